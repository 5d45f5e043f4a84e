//! Looks up the proxy of a network, and asks networks for their NAT64 prefixes. A name server may
//! be slow, so each query runs on a thread of its own and the answer is a message.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::SyncSender;
use std::thread;

use rove_host::resolve::{OUTSIDE, QUESTIONS_MAX, look_up};
use rove_host::values::Host;
use rove_os::names;
use rove_os::plan::MARK;

use crate::config::ProxyUrl;
use crate::message::{Message, Own};
use crate::nat64::Network;
use crate::streams::ResolvedProxy;

/// Sends these queries.
pub(crate) struct Discovery {
    to: SyncSender<Message>,
    /// How many NAT64 queries are open.
    asking: Arc<AtomicUsize>,
}

impl Discovery {
    /// Answers go to `to`.
    pub(crate) fn new(to: SyncSender<Message>) -> Self {
        Self { to, asking: Arc::default() }
    }

    /// Looks up the address of a proxy once. If there is none, no message follows.
    pub(crate) fn ask_proxy(&self, proxy: ProxyUrl, servers: Vec<SocketAddr>) {
        let to = self.to.clone();
        let look = move || {
            let ProxyUrl { at, credentials } = proxy;
            let found = match &at.host {
                Host::Address(address) => Ok(vec![SocketAddr::new(*address, at.port)]),
                Host::Name(name) => look_up(name, at.port, &servers),
            };
            match found.map(|found| found.first().copied()) {
                Ok(Some(address)) => {
                    let proxy = ResolvedProxy { address, credentials };
                    let _ = to.send(Message::Own(Own::Proxy(proxy)));
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

    /// Asks a network for its NAT64 prefixes, unless too many queries are open.
    pub(crate) fn ask_network(&self, network: Network, servers: Vec<SocketAddr>) {
        let asking = Arc::clone(&self.asking);
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
                    let _ = to.send(Message::Own(Own::Nat64 { network, prefixes }));
                }
                Ok(_) => {}
                Err(error) => tracing::debug!(%error, link = network.link, "no NAT64 is told of"),
            }
        };
        let spawned = thread::Builder::new().name("rove-resolve".to_owned()).spawn(look);
        if spawned.is_err() {
            self.asking.fetch_sub(1, Ordering::AcqRel);
        }
    }
}
