//! What a client does about news of the core.

use std::time::Instant;

use anyhow::{Context, Result, anyhow};
use rove_host::sessions;
use rove_host::shared_key;
use rove_host::time::wall_clock;
use rove_proto::error::PeerError;
use rove_proto::flow::tuple::Tuple;
use rove_proto::id::PeerKey;
use rove_proto::node::{Command, Event, PeerState};
use rove_proto::wire::control::{Lease, Prefix};

use super::{Client, Progress, saving};
use crate::probe;
use crate::refusal::refusal;
use crate::status::reason;

impl Client<'_> {
    /// Something happened in the core. An error ends the client: only before it ever carried.
    pub(super) fn note(&mut self, event: Event) -> Result<()> {
        match event {
            Event::Leased { lease, .. } => return self.lease_came(lease),
            Event::Networks { networks, .. } => self.networks_named(&networks),
            Event::HandshakeCounter { counter, .. } => {
                if let Err(error) = self.gateway_at.membership.note_counter(counter) {
                    tracing::error!("handshake counters cannot be stored: {error:#}");
                }
            }
            Event::Established { took, first, .. } => {
                tracing::debug!(?took, first, "fresh keys");
                self.accepted();
            }
            Event::Refused { status, .. } => {
                let refused = anyhow!(refusal(status));
                if self.progress != Progress::Told {
                    return Err(refused);
                }
                tracing::error!("{refused}");
            }
            Event::State { state, .. } => {
                self.state_changed(state);
                let Self { noted, config, data, gateway, links, .. } = &mut *self;
                saving::tell(&mut noted.saving, config, (data, *gateway), links);
            }
            Event::Moved { remote, took, .. } => {
                let took_ms = took.as_millis();
                if tracing::enabled!(tracing::Level::DEBUG) {
                    tracing::debug!(took_ms, %remote, "moved");
                } else {
                    tracing::info!(took_ms, "moved");
                }
                self.note_where();
                self.note_transport();
                let Self { noted, config, data, gateway, links, .. } = &mut *self;
                saving::tell(&mut noted.saving, config, (data, *gateway), links);
            }
            Event::Ended { error: PeerError::Closed(code), .. } => {
                tracing::warn!("the session ended: {}", reason(code));
            }
            Event::Ended { error, .. } => tracing::warn!("the session ended: {error}"),
            Event::Announced { addresses, .. } => {
                tracing::debug!(?addresses, "the gateway says where it is reached");
                self.take_announced(&addresses);
            }
            Event::KeyIsShared { .. } => self.warn_of_shared_key(),
            Event::Owing { peer, tuple } => self.owed.begins(peer, tuple),
            Event::Settled { peer, tuple } => self.owed.ends(peer, tuple),
            Event::WhoseFlow { peer, tuple } => identify(self, peer, tuple),
            Event::Routes { .. }
            | Event::Reached { .. }
            | Event::OpenSocket { .. }
            | Event::CloseSocket { .. }
            | Event::EnrolmentRequested { .. }
            | Event::PeerRefused { .. } => {}
        }
        Ok(())
    }

    /// The gateway reported that another host uses this client's key.
    fn warn_of_shared_key(&mut self) {
        self.shared.noticed(wall_clock().0);
        let Some(snapshot) = self.data.status(Some(vec![self.gateway])) else { return };
        let session = snapshot.peers.first();
        let problem = session.and_then(|session| shared_key::at_client(session, snapshot.now));
        if let Some(problem) = problem {
            tracing::warn!("{}", shared_key::line(&problem));
        }
    }

    /// The gateway gave addresses: routes and DNS follow, and the first ping.
    fn lease_came(&mut self, lease: Lease) -> Result<()> {
        if self.lease.as_ref() == Some(&lease) {
            return Ok(());
        }
        if let Err(error) = self.take_lease(lease) {
            if self.progress != Progress::Told {
                return Err(error);
            }
            tracing::error!("the new lease is not taken: {error:#}");
        }
        if self.progress == Progress::Asking {
            self.progress = Progress::Proving;
            let gateways = self.lease.as_ref().map_or(&[][..], |lease| &lease.gateway);
            probe::start(gateways, self.deadline, &self.inbox).context(
                "no ping can be sent through the tunnel (run as root, or grant CAP_NET_RAW to this \
                 program)",
            )?;
        }
        Ok(())
    }

    /// The gateway named networks that it leads to, before a lease or later.
    fn networks_named(&mut self, networks: &[Prefix]) {
        self.reachable = super::lease::reachable(networks);
        if self.lease.is_some()
            && let Err(error) = self.apply()
        {
            tracing::error!("the gateway's networks cannot be routed: {error:#}");
        }
    }

    fn take_lease(&mut self, lease: Lease) -> Result<()> {
        super::lease::check(&lease, &self.networks)?;
        let (peer, access) = (self.gateway, super::lease::access(&self.config, Some(&lease)));
        self.data.command(Command::SetAccess { peer, access });
        let old = self.lease.replace(lease);
        let applied = self.apply();
        if applied.is_err() && self.progress == Progress::Told {
            self.lease = old;
        }
        applied
    }

    /// The gateway knows this client: remembers it, and where the gateway answered.
    fn accepted(&mut self) {
        if let Err(error) = self.gateway_at.membership.note_accepted(self.remote_in_use()) {
            tracing::error!("the membership cannot be stored: {error:#}");
        }
    }

    fn state_changed(&mut self, state: PeerState) {
        tracing::info!(state = sessions::state(state).word(), "session");
        // A client that rests has lost nothing that the gateway's name could give back.
        let is_up = matches!(state, PeerState::Up | PeerState::Resting);
        let was_up = std::mem::replace(&mut self.is_up, is_up);
        match (was_up, is_up) {
            (true, false) => self.lookups.hurry(Instant::now()),
            (false, false) => self.lookups.go_on(Instant::now()),
            (_, true) => self.note_transport(),
        }
        self.suspect_portals();
    }
}

/// Tells the core whose a flow is. Flows of devices behind this client have no socket here.
fn identify(client: &Client<'_>, peer: PeerKey, tuple: Tuple) {
    let inner = client.lease.iter().flat_map(|lease| &lease.addresses);
    let is_own = inner.map(|net| net.address).any(|own| own == tuple.local.0);
    let ask = || rove_os::users::user_of(tuple.protocol, tuple.local.into(), tuple.remote.into());
    let user = if is_own { ask() } else { Ok(None) };
    let user = user.unwrap_or_else(|error| {
        tracing::debug!(%error, "the user of a flow is not known");
        None
    });
    client.data.command(Command::SetUser { peer, tuple, user });
}
