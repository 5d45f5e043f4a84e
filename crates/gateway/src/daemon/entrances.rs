//! Where a gateway takes streams, for clients on networks that lose UDP.
//!
//! The ports of UDP are the default, and one that cannot be had must not keep a gateway from
//! running; those that the operator named are demanded. It decides which places are open, and
//! refuses to know who comes in: that is the data thread's.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use anyhow::Result;
use rove_os::error::Error;
use rove_os::plan::MARK;
use rove_os::stream::{Listener, ListeningSocket};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::listening;
use crate::config::Config;

/// The places that are open. One stays open until the process ends.
#[derive(Debug, Default)]
pub(super) struct Entrances {
    bound: Vec<SocketAddr>,
}

/// What was opened, and what could not be and need not.
#[derive(Debug, Default)]
pub(super) struct Opened {
    /// Each is to be added to the listener.
    pub(super) sockets: Vec<ListeningSocket>,
    /// Why clients without UDP do not get in somewhere, and the cure.
    pub(super) warning: Option<String>,
}

impl Entrances {
    /// The listener for all of `config`'s places; none if it wants no streams.
    ///
    /// # Errors
    /// A place that was asked for cannot be had. One that was not is told in the log.
    pub(super) fn begin(config: &Config) -> Result<(Self, Option<Listener>)> {
        let mut entrances = Self::default();
        if config.streams.is_empty() {
            return Ok((entrances, None));
        }
        allow_descriptors();
        let mut listener = Listener::new(config.web_server, Some(MARK))?;
        let opened = entrances.open(config)?;
        if let Some(warning) = opened.warning {
            tracing::warn!("{warning}");
        }
        for socket in opened.sockets {
            listener.add(socket)?;
        }
        Ok((entrances, Some(listener)))
    }

    /// Opens those of `config`'s places that are not open.
    ///
    /// # Errors
    /// A place that was asked for cannot be had: nothing was opened.
    pub(super) fn open(&mut self, config: &Config) -> Result<Opened> {
        let is_demanded = config.streams != config.listen || config.web_server.is_some();
        let mut opened = Opened::default();
        for &place in &config.streams {
            if self.bound.iter().any(|&bound| listening::serves(bound, place)) {
                continue;
            }
            match bind(place) {
                Ok(socket) => {
                    self.bound.push(socket.local().unwrap_or(place));
                    opened.sockets.push(socket);
                }
                Err(error) if is_demanded => {
                    self.forget(&opened);
                    return Err(error.into());
                }
                Err(error) => {
                    let text =
                        format!("clients on networks that block UDP cannot connect: {error}");
                    opened.warning.get_or_insert(text);
                }
            }
        }
        Ok(opened)
    }

    /// The open addresses.
    pub(super) fn places(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        self.bound.iter().copied()
    }

    /// What was opened last is not wanted after all.
    pub(super) fn forget(&mut self, opened: &Opened) {
        self.bound.truncate(self.bound.len() - opened.sockets.len());
    }
}

/// Binds a place; on a host without IPv6 that of IPv4.
fn bind(place: SocketAddr) -> Result<ListeningSocket, Error> {
    let bind = |place| ListeningSocket::bind(place, false, Some(MARK));
    match (bind(place), place.ip()) {
        (Err(Error::Os { .. }), IpAddr::V6(ip)) if ip.is_unspecified() => {
            bind((Ipv4Addr::UNSPECIFIED, place.port()).into())
        }
        (bound, _) => bound,
    }
}

/// Each stream takes a descriptor, and the soft limit is often 1,024. What the hard one does not
/// allow makes newcomers wait.
fn allow_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, ..limit };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::debug!(%error, "the limit of descriptors stays");
    }
}
