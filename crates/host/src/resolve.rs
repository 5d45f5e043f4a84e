//! The gateway's own name, resolved outside the tunnel.
//!
//! Two ways at once: the name servers that this host has beside the tunnel, with marked queries,
//! which pass by a tunnel that is dead and through a kill switch; and the system's resolver, which
//! knows what no server does, and may take half a minute to fail. So the answer is a message, and
//! meanwhile the last good addresses are tried.

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use rove_os::names;
use rove_os::plan::MARK;

use crate::message::Message;
use crate::values::{Endpoint, Host};

/// Addresses that are tried, in all.
pub const ADDRESSES_MAX: usize = 16;

/// The servers outside the tunnel, and the system.
const WAYS: usize = 2;
/// DNS queries that are open at once. A query sent on a network that is gone waits until the
/// system's resolver gives up, and the next query must not wait for it.
pub const QUESTIONS_MAX: usize = 8;
/// How long the servers outside the tunnel have to answer.
pub const OUTSIDE: Duration = Duration::from_secs(5);

/// Asks for the addresses of a gateway.
pub struct Resolver<O> {
    to: SyncSender<Message<O>>,
    asking: Arc<AtomicUsize>,
}

impl<O: Send + 'static> Resolver<O> {
    /// Answers go to `to`.
    pub fn new(to: SyncSender<Message<O>>) -> Self {
        Self { to, asking: Arc::default() }
    }

    /// Whether an answer is awaited.
    pub fn is_asking(&self) -> bool {
        self.asking.load(Ordering::Acquire) > 0
    }

    /// Asks `servers` and then the system, unless too many questions are open. One that was asked
    /// on a network that is gone may stay so for half a minute, and must not hold up the next.
    pub fn ask(&self, endpoints: &[Endpoint], servers: Vec<SocketAddr>) {
        if self.asking.fetch_add(1, Ordering::AcqRel) >= QUESTIONS_MAX {
            self.asking.fetch_sub(1, Ordering::AcqRel);
            return;
        }
        let (to, asking, endpoints) =
            (self.to.clone(), Arc::clone(&self.asking), endpoints.to_vec());
        let spawned = thread::Builder::new().name("rove-resolve".to_owned()).spawn(move || {
            let resolved = resolve(&endpoints, &servers);
            asking.fetch_sub(1, Ordering::AcqRel);
            // The node may have ended meanwhile.
            let _ = to.send(Message::Resolved(resolved));
        });
        if spawned.is_err() {
            self.asking.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// The addresses that need no resolving.
pub fn literal(endpoints: &[Endpoint]) -> Vec<SocketAddr> {
    let literal = |endpoint: &Endpoint| match endpoint.host {
        Host::Address(address) => Some(SocketAddr::new(address, endpoint.port)),
        Host::Name(_) => None,
    };
    endpoints.iter().filter_map(literal).collect()
}

/// Whether a name has to be resolved.
pub fn has_names(endpoints: &[Endpoint]) -> bool {
    first_name(endpoints).is_some()
}

/// The first name among the endpoints.
pub fn first_name(endpoints: &[Endpoint]) -> Option<&str> {
    endpoints.iter().find_map(|endpoint| match &endpoint.host {
        Host::Name(name) => Some(name.as_str()),
        Host::Address(_) => None,
    })
}

/// The addresses of `endpoints`, in their order; why there is none, if there is none.
fn resolve(endpoints: &[Endpoint], servers: &[SocketAddr]) -> Result<Vec<SocketAddr>, String> {
    let mut addresses = Vec::new();
    let mut failure = None;
    for endpoint in endpoints {
        match &endpoint.host {
            Host::Address(address) => addresses.push(SocketAddr::new(*address, endpoint.port)),
            Host::Name(name) => match look_up(name, endpoint.port, servers) {
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

/// Asks both ways at once; the first that knows an address wins.
pub fn look_up(name: &str, port: u16, servers: &[SocketAddr]) -> Result<Vec<SocketAddr>, String> {
    let (to, answers) = sync_channel(WAYS);
    let system = to.clone();
    let (outside_name, system_name) = (name.to_owned(), name.to_owned());
    let servers = servers.to_vec();
    // Answers that come too late are dropped with the channel.
    let outside = move || {
        let found = names::resolve(&outside_name, &servers, Some(MARK), OUTSIDE);
        let found = found.map(|ips| ips.into_iter().map(|ip| (ip, port).into()).collect());
        drop(to.send(found.map_err(|error| error.to_string())));
    };
    let system = move || {
        let found = (system_name.as_str(), port).to_socket_addrs();
        drop(system.send(found.map(Iterator::collect).map_err(|error| error.to_string())));
    };
    for way in [Box::new(outside) as Box<dyn FnOnce() + Send>, Box::new(system)] {
        let spawned = thread::Builder::new().name("rove-resolve".to_owned()).spawn(way);
        spawned.map_err(|error| error.to_string())?;
    }
    let mut failure = String::new();
    for answer in answers {
        match answer {
            Ok(found) if !Vec::is_empty(&found) => return Ok(found),
            Ok(_) => {}
            Err(error) => failure = error,
        }
    }
    Err(failure)
}
