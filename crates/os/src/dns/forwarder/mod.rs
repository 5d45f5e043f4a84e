//! A DNS forwarder on a loopback address, for a split tunnel on a host without systemd-resolved.
//!
//! resolv.conf(5) cannot name one server for some domains and another server for the rest, so it
//! names this forwarder. Names of the tunnel's domains go to the gateway's servers. All other names
//! go to the servers of this host's links, beside the tunnel ([`servers`]). UDP and TCP queries are
//! forwarded alike.
//!
//! It reads the question of a query and compares it with the question of the answer. It refuses to
//! know what an answer says: EDNS options, truncation and errors pass through. It has no cache and
//! needs no privilege but a port below 1024.
//!
//! An answer counts only if it comes from the server that was asked, to a random port, with a
//! random identifier and the same question. The case of letters is not compared, because some
//! servers change it. An answer is kept for nobody, so a forged one deceives one query at most. A
//! UDP answer that is longer than the client allows is cut to its question, and the client asks
//! again over TCP.
//!
//! If a server does not answer within [`RETRY`](servers::RETRY), or refuses, the next one is asked
//! as well.
//!
//! It listens on IPv4 alone. Hosts without an IPv4 network have 127.0.0.0/8, too, with an address
//! that no other resolver uses. IPv6 has one loopback address, and `net.ipv6.conf.lo.disable_ipv6`
//! removes it. Servers may have either family.
//!
//! Bounds: [`SOCKETS_MAX`](datagrams::SOCKETS_MAX) sockets wait for UDP answers,
//! [`SAME_MAX`](datagrams::SAME_MAX) of them for one question, and
//! [`STREAMS_MAX`](streams::STREAMS_MAX) TCP connections are served at once. Limits: only programs
//! that read resolv.conf find it. Some users of the host who work together can keep all TCP
//! connections busy, and so long answers from others.

mod datagrams;
pub(crate) mod message;
mod servers;
mod streams;

use std::{
    io,
    net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket},
    os::unix::net::UnixStream,
    path::Path,
    sync::Arc,
    thread::{self, JoinHandle},
};

use socket2::{Domain, Socket, Type};

use self::servers::Servers;
use crate::{names::PORT, plan::Dns};

/// The addresses that are tried, the last byte of 127.0.0.x. Well-known resolvers use 1, 11, 53 and
/// 54 there.
const LAST_BYTES: std::ops::RangeInclusive<u8> = 77..=92;

/// A running forwarder. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Forwarder {
    address: Ipv4Addr,
    servers: Arc<Servers>,
    /// Wakes the thread. It ends when this end is closed.
    awake: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Forwarder {
    /// Begins to listen on the first free address that no line of `resolv_conf` names.
    ///
    /// # Errors
    /// The kernel's for the last address, for example if another server has port 53 of all
    /// addresses.
    pub(super) fn start(resolv_conf: &Path) -> io::Result<Self> {
        Self::start_at(resolv_conf, PORT)
    }

    fn start_at(resolv_conf: &Path, port: u16) -> io::Result<Self> {
        let named = super::file::servers(resolv_conf);
        let is_named = |address: &Ipv4Addr| named.iter().any(|server| server.ip() == *address);
        let candidates = LAST_BYTES.map(|last| Ipv4Addr::new(127, 0, 0, last));
        let mut last_error = io::Error::from(io::ErrorKind::AddrInUse);
        for address in candidates.filter(|address| !is_named(address)) {
            match listen(SocketAddr::new(address.into(), port)) {
                Ok(sockets) => return Self::run(address, sockets, resolv_conf),
                Err(error) => last_error = error,
            }
        }
        Err(last_error)
    }

    fn run(
        address: Ipv4Addr,
        (datagrams, streams): (UdpSocket, TcpListener),
        resolv_conf: &Path,
    ) -> io::Result<Self> {
        let servers = Arc::new(Servers::new(address, resolv_conf));
        let (awake, wakes) = UnixStream::pair()?;
        let asked = Arc::clone(&servers);
        let serve = move || datagrams::serve(&datagrams, &streams, &wakes, &asked);
        let thread = thread::Builder::new().name("dns-forwarder".to_owned()).spawn(serve)?;
        Ok(Self { address, servers, awake: Some(awake), thread: Some(thread) })
    }

    /// The address that resolv.conf has to name.
    pub(super) fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// Sends names of these domains to these servers from now on.
    pub(super) fn set(&self, dns: &Dns) {
        self.servers.set(dns);
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.servers.stop();
        drop(self.awake.take());
        // A panic of the thread was reported when it happened.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Both sockets. Neither shares its port, so a server that is there already refuses them.
fn listen(at: SocketAddr) -> io::Result<(UdpSocket, TcpListener)> {
    let stream = Socket::new(Domain::for_address(at), Type::STREAM, None)?;
    // Only for addresses whose last connection closed a moment ago (socket(7)).
    stream.set_reuse_address(true)?;
    stream.bind(&at.into())?;
    stream.listen(streams::BACKLOG)?;
    stream.set_nonblocking(true)?;
    let datagrams = UdpSocket::bind(at)?;
    datagrams.set_nonblocking(true)?;
    Ok((datagrams, stream.into()))
}

#[cfg(test)]
mod tests;
