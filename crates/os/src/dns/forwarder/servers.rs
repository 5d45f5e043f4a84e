//! Which servers are asked for a name.
//!
//! The gateway's servers are asked from ordinary sockets: the routes of the plan lead them into the
//! tunnel, and nothing leaves while it is down. Servers of the links are asked from marked sockets,
//! so a route of the tunnel that covers the local network takes no name of that network along.
//!
//! The servers of the links are those of the file that Rove's text replaces. A DHCP client that
//! writes the file after a move changes them. The file is read at most once in [`READ_AFTER`].

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::{Path, PathBuf},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use socket2::{Domain, Socket, Type};

use super::message::{self, Question};
use crate::{
    names::PORT,
    plan::{Dns, MARK},
    random,
    socket::lead,
};

/// How long a server has before the next one is asked. The C library waits 5 s for the forwarder,
/// and 1 s with `options timeout:1`: then the second server still has time to answer.
pub(super) const RETRY: Duration = Duration::from_millis(700);
/// How long a query is remembered in all.
pub(super) const QUERY_TIME: Duration = Duration::from_secs(6);
/// How long the servers of the links are believed. A name that is looked up this soon after a move
/// may be asked in vain.
const READ_AFTER: Duration = Duration::from_secs(1);
/// Servers that are asked for one name, one after the other.
const SERVERS_MAX: usize = 3;

/// The servers, and where the other ones stand.
#[derive(Debug)]
pub(super) struct Servers {
    /// The forwarder's own address, which is not asked.
    own: Ipv4Addr,
    resolv_conf: PathBuf,
    known: Mutex<Known>,
    stopped: AtomicBool,
}

#[derive(Debug, Default)]
struct Known {
    /// The gateway's.
    inside: Vec<SocketAddr>,
    /// The domains that they are asked for.
    domains: Vec<Vec<u8>>,
    /// Those of the links, and when they were read.
    outside: Vec<SocketAddr>,
    read: Option<Instant>,
}

/// A server, and the mark of packets to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Server {
    pub(super) address: SocketAddr,
    mark: Option<u32>,
}

impl Servers {
    pub(super) fn new(own: Ipv4Addr, resolv_conf: &Path) -> Self {
        let (known, stopped) = (Mutex::default(), AtomicBool::new(false));
        Self { own, resolv_conf: resolv_conf.to_owned(), known, stopped }
    }

    pub(super) fn set(&self, dns: &Dns) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        // A gateway cannot be on this host, and one that says so could lead queries in a circle.
        let servers = dns.servers.iter().filter(|server| !server.to_canonical().is_loopback());
        known.inside = servers.map(|&server| SocketAddr::new(server, PORT)).collect();
        known.domains = dns.domains.iter().map(|domain| message::encode(domain)).collect();
    }

    /// Forwards no further query.
    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// The servers for a question, the preferred one first.
    pub(super) fn of(&self, question: Question<'_>) -> Vec<Server> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.domains.iter().any(|domain| question.is_under(domain)) {
            return list(&known.inside, None);
        }
        if known.read.is_none_or(|read| read.elapsed() >= READ_AFTER) {
            known.outside = super::super::file::servers(&self.resolv_conf);
            known.outside.retain(|server| server.ip() != self.own);
            known.read = Some(Instant::now());
        }
        list(&known.outside, Some(MARK))
    }
}

fn list(addresses: &[SocketAddr], mark: Option<u32>) -> Vec<Server> {
    let addresses = addresses.iter().take(SERVERS_MAX);
    addresses.map(|&address| Server { address, mark }).collect()
}

impl Server {
    /// A socket to ask it, bound to a port that the kernel chose at random.
    pub(super) fn socket(&self, kind: Type) -> io::Result<Socket> {
        let any: IpAddr = match self.address {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let socket = Socket::new(Domain::for_address(self.address), kind, None)?;
        lead(&socket, None, self.mark).map_err(io::Error::other)?;
        socket.bind(&SocketAddr::new(any, 0).into())?;
        Ok(socket)
    }
}

/// A fresh identifier for a query.
pub(super) fn identifier() -> io::Result<[u8; message::ID_LEN]> {
    let mut id = [0; message::ID_LEN];
    random::fill(&mut id).map_err(io::Error::other)?;
    Ok(id)
}

/// Whether a query may come from this address. The kernel lets no other machine send to 127.0.0.0/8
/// unless it is told to (`route_localnet`).
pub(super) fn is_local(from: &SocketAddr) -> bool {
    match from.ip() {
        IpAddr::V4(from) => from.is_loopback(),
        IpAddr::V6(_) => false,
    }
}
