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

use super::client::Network;
use super::message::Message;
use super::streams::ResolvedProxy;
use crate::config::ProxyUrl;
use crate::values::{Endpoint, Host};

/// Addresses that are tried, in all.
pub(super) const ADDRESSES_MAX: usize = 16;

/// The servers outside the tunnel, and the system.
const WAYS: usize = 2;
/// DNS queries that are open at once. A query sent on a network that is gone waits until the
/// system's resolver gives up, and the next query must not wait for it.
const QUESTIONS_MAX: usize = 8;
/// How long the servers outside the tunnel have to answer.
const OUTSIDE: Duration = Duration::from_secs(5);

/// Asks for the addresses of a gateway.
pub(super) struct Resolver {
    to: SyncSender<Message>,
    asking: Arc<AtomicUsize>,
    /// The same for queries for a network's NAT64.
    asking_networks: Arc<AtomicUsize>,
}

impl Resolver {
    /// Answers go to `to`.
    pub(super) fn new(to: SyncSender<Message>) -> Self {
        Self { to, asking: Arc::default(), asking_networks: Arc::default() }
    }

    /// Asks once for the address of a proxy, which is told unless there is none.
    pub(super) fn ask_proxy(&self, proxy: ProxyUrl, servers: Vec<SocketAddr>) {
        let to = self.to.clone();
        let look = move || {
            let ProxyUrl { at, credentials } = proxy;
            let found = match &at.host {
                Host::Address(address) => Ok(vec![SocketAddr::new(*address, at.port)]),
                Host::Name(name) => look_up(name, at.port, &servers),
            };
            match found.map(|found| found.first().copied()) {
                Ok(Some(address)) => {
                    let _ = to.send(Message::Proxy(ResolvedProxy { address, credentials }));
                }
                Ok(None) => {}
                Err(error) => tracing::warn!("the proxy's name does not resolve: {error}"),
            }
        };
        let spawned = thread::Builder::new().name("rove-resolve".to_owned()).spawn(look);
        if let Err(error) = spawned {
            tracing::warn!(%error, "the proxy's name cannot be looked up");
        }
    }

    /// Whether an answer is awaited.
    pub(super) fn is_asking(&self) -> bool {
        self.asking.load(Ordering::Acquire) > 0
    }

    /// Asks a network for its NAT64, unless too many are being asked.
    pub(super) fn ask_network(&self, network: Network, servers: Vec<SocketAddr>) {
        let asking = Arc::clone(&self.asking_networks);
        if asking.fetch_add(1, Ordering::AcqRel) >= QUESTIONS_MAX {
            asking.fetch_sub(1, Ordering::AcqRel);
            return;
        }
        let to = self.to.clone();
        let look = move || {
            let found = names::discover_nat64(&servers, Some(MARK), &network.link, OUTSIDE);
            asking.fetch_sub(1, Ordering::AcqRel);
            match found {
                Ok(prefixes) if !prefixes.is_empty() => {
                    // The node may have ended meanwhile.
                    let _ = to.send(Message::Nat64 { network, prefixes });
                }
                Ok(_) => {}
                Err(error) => tracing::debug!(%error, link = network.link, "no NAT64 is told of"),
            }
        };
        let spawned = thread::Builder::new().name("rove-resolve".to_owned()).spawn(look);
        if spawned.is_err() {
            self.asking_networks.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Asks `servers` and then the system, unless too many questions are open. One that was asked
    /// on a network that is gone may stay so for half a minute, and must not hold up the next.
    pub(super) fn ask(&self, endpoints: &[Endpoint], servers: Vec<SocketAddr>) {
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
pub(super) fn literal(endpoints: &[Endpoint]) -> Vec<SocketAddr> {
    let literal = |endpoint: &Endpoint| match endpoint.host {
        Host::Address(address) => Some(SocketAddr::new(address, endpoint.port)),
        Host::Name(_) => None,
    };
    endpoints.iter().filter_map(literal).collect()
}

/// Whether a name has to be resolved.
pub(super) fn has_names(endpoints: &[Endpoint]) -> bool {
    first_name(endpoints).is_some()
}

/// The first name among the endpoints.
pub(super) fn first_name(endpoints: &[Endpoint]) -> Option<&str> {
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
fn look_up(name: &str, port: u16, servers: &[SocketAddr]) -> Result<Vec<SocketAddr>, String> {
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
