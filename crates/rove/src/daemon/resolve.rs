//! The gateway's own name, resolved outside the tunnel.
//!
//! By the system's resolver, on a thread of its own: it may take half a minute to fail and cannot
//! be interrupted, so its answer is a message. Meanwhile the last good addresses are tried.

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::thread;

use super::message::Message;
use crate::values::{Endpoint, Host};

/// Addresses that are tried, in all.
pub(super) const ADDRESSES_MAX: usize = 16;

/// Asks for the addresses of a gateway, one question at a time.
pub(super) struct Resolver {
    to: SyncSender<Message>,
    asking: Arc<AtomicBool>,
}

impl Resolver {
    /// Answers go to `to`.
    pub(super) fn new(to: SyncSender<Message>) -> Self {
        Self { to, asking: Arc::default() }
    }

    /// Asks, unless the last question is still open.
    pub(super) fn ask(&self, endpoints: &[Endpoint]) {
        if self.asking.swap(true, Ordering::AcqRel) {
            return;
        }
        let (to, asking, endpoints) =
            (self.to.clone(), Arc::clone(&self.asking), endpoints.to_vec());
        let spawned = thread::Builder::new().name("rove-resolve".to_owned()).spawn(move || {
            let resolved = resolve(&endpoints);
            asking.store(false, Ordering::Release);
            // The node may have ended meanwhile.
            let _ = to.send(Message::Resolved(resolved));
        });
        if spawned.is_err() {
            self.asking.store(false, Ordering::Release);
        }
    }
}

/// The addresses that need no resolving.
pub(super) fn literal(endpoints: &[Endpoint]) -> Vec<SocketAddr> {
    let literal = |endpoint: &Endpoint| match endpoint.host {
        Host::Address(address) => Some(SocketAddr::new(address, endpoint.port)),
        Host::Name(_) => None,
    };
    endpoints.iter().filter_map(literal).collect()
}

/// Whether a name has to be resolved.
pub(super) fn has_names(endpoints: &[Endpoint]) -> bool {
    endpoints.iter().any(|endpoint| matches!(endpoint.host, Host::Name(_)))
}

/// The addresses of `endpoints`, in their order; why there is none, if there is none.
fn resolve(endpoints: &[Endpoint]) -> Result<Vec<SocketAddr>, String> {
    let mut addresses = Vec::new();
    let mut failure = None;
    for endpoint in endpoints {
        match &endpoint.host {
            Host::Address(address) => addresses.push(SocketAddr::new(*address, endpoint.port)),
            Host::Name(name) => match (name.as_str(), endpoint.port).to_socket_addrs() {
                Ok(found) => addresses.extend(found),
                Err(error) => {
                    tracing::debug!(%error, name, "a name does not resolve");
                    failure.get_or_insert_with(|| name.clone());
                }
            },
        }
    }
    addresses.truncate(ADDRESSES_MAX);
    match failure {
        Some(name) if addresses.is_empty() => Err(name),
        Some(_) | None => Ok(addresses),
    }
}
