//! Resolves names outside the tunnel.
//!
//! The gateway's own name must resolve while the tunnel is down, although all traffic is routed
//! into the tunnel and the kill switch may be on. The system's resolver does not know this. This
//! resolver asks the servers that the host had before the tunnel
//! ([`crate::plan::Applier::outside_servers`]) from a marked socket, which routes and kill switch
//! let pass.
//!
//! It is a stub (RFC 1035, RFC 3596) for addresses only: no cache, no hosts file, no search list,
//! no TCP. A response counts if it comes from the queried server, to a random port, with a random
//! number and our query. The gateway at the address then proves itself in the handshake. It does
//! not decide which of the addresses is the right one.

pub(crate) mod message;
mod nat64;

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    time::{Duration, Instant},
};

use socket2::{Domain, Protocol, Socket, Type};

use self::message::{Answer, Kind};
pub use self::{
    message::{ADDRESSES_MAX, NAME_LEN_MAX},
    nat64::{Nat64Prefix, PREFIXES_MAX as NAT64_PREFIXES_MAX, discover as discover_nat64},
};
use crate::{error::Error, random, socket::lead};

/// Servers that are asked, all at once.
pub const SERVERS_MAX: usize = 8;
/// The port of name servers (RFC 1035 section 4.2).
pub const PORT: u16 = 53;
/// How long until a question is repeated: one may get lost.
const REPEAT: Duration = Duration::from_secs(1);
/// How long until it is, if it could not even leave: this host has an address and no route yet.
const UNSENT: Duration = Duration::from_millis(20);
/// How long the other family is waited for once one has answered (RFC 8305 section 3 waits 50 ms;
/// there the connection is urgent, here a missing family is missed for long).
const OTHER_FAMILY: Duration = Duration::from_millis(300);
/// Bytes of an answer: what EDNS would allow is not asked for, so 512 suffice (RFC 1035 4.2.1).
const ANSWER_LEN_MAX: usize = 1_500;
/// Datagrams that are read for one name, so that nobody keeps us reading.
const ANSWERS_MAX: usize = 256;

/// The addresses of `name` according to `servers`, IPv6 first, none twice. Blocks for `time` at
/// most. `mark` is that of [`crate::plan::MARK`], or `None` where the tunnel is not up.
///
/// # Errors
/// [`Error::NameUnknown`] when a server says that there is no such name or address;
/// [`Error::NameUnanswered`] when none answers in time; [`Error::NoPrivilege`] or [`Error::Os`].
pub fn resolve(
    name: &str,
    servers: &[SocketAddr],
    mark: Option<u32>,
    time: Duration,
) -> Result<Vec<IpAddr>, Error> {
    resolve_for(Target { name, link: None }, servers, mark, time)
}

/// The name to look up, and the only link to use for it.
#[derive(Clone, Copy)]
struct Target<'a> {
    name: &'a str,
    link: Option<&'a str>,
}

fn resolve_for(
    target: Target<'_>,
    servers: &[SocketAddr],
    mark: Option<u32>,
    time: Duration,
) -> Result<Vec<IpAddr>, Error> {
    let Target { name, link } = target;
    let unknown = || Error::NameUnknown { name: name.to_owned() };
    let mut number = [0; 4];
    random::fill(&mut number)?;
    let numbers = [[number[0], number[1]], [number[2], number[3]]].map(u16::from_be_bytes);
    let questions =
        [Kind::Ipv6, Kind::Ipv4].map(|kind| message::question(name, kind, numbers[kind as usize]));
    let [Some(ipv6), Some(ipv4)] = questions else { return Err(unknown()) };
    if servers.is_empty() {
        return Err(Error::NameUnanswered { name: name.to_owned() });
    }
    let mut search = Search {
        name,
        servers: &servers[..servers.len().min(SERVERS_MAX)],
        sockets: open(servers, link, mark)?,
        questions: [ipv6, ipv4],
        numbers,
        found: [None, None],
    };
    search.run(Instant::now() + time);
    let answered = search.found.iter().any(Option::is_some);
    let addresses: Vec<IpAddr> = search.found.into_iter().flatten().flatten().collect();
    match (answered, addresses.is_empty()) {
        (false, _) => Err(Error::NameUnanswered { name: name.to_owned() }),
        (true, true) => Err(unknown()),
        (true, false) => Ok(addresses),
    }
}

/// One socket per family that a server needs.
fn open(
    servers: &[SocketAddr],
    link: Option<&str>,
    mark: Option<u32>,
) -> Result<Vec<UdpSocket>, Error> {
    let make = |local: SocketAddr| -> io::Result<Socket> {
        let socket = Socket::new(Domain::for_address(local), Type::DGRAM, Some(Protocol::UDP))?;
        if local.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        Ok(socket)
    };
    let failed = |error| Error::os("open a socket to ask for a name", error);
    let open = |any: IpAddr| -> Result<UdpSocket, Error> {
        let local = SocketAddr::new(any, 0);
        let socket = make(local).map_err(failed)?;
        lead(&socket, link, mark)?;
        socket.bind(&local.into()).map_err(failed)?;
        Ok(socket.into())
    };
    let families = [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)];
    families
        .into_iter()
        .filter(|any| servers.iter().any(|server| server.is_ipv4() == any.is_ipv4()))
        .map(open)
        .collect()
}

/// One name being asked for.
struct Search<'a> {
    name: &'a str,
    servers: &'a [SocketAddr],
    sockets: Vec<UdpSocket>,
    /// By [`Kind`], as are the numbers and what was found.
    questions: [Vec<u8>; 2],
    numbers: [u16; 2],
    /// `None` until a server has answered.
    found: [Option<Vec<IpAddr>>; 2],
}

impl Search<'_> {
    fn run(&mut self, end: Instant) {
        let mut end = end;
        let mut repeat = Instant::now();
        for _ in 0..ANSWERS_MAX {
            let now = Instant::now();
            if now >= end || self.found.iter().all(Option::is_some) {
                return;
            }
            if now >= repeat {
                repeat = now + if self.ask() { REPEAT } else { UNSENT };
            }
            let had = self.found.iter().flatten().flatten().count();
            self.listen(repeat.min(end).saturating_duration_since(Instant::now()));
            if had == 0 && self.found.iter().flatten().flatten().count() > 0 {
                end = end.min(Instant::now() + OTHER_FAMILY);
            }
        }
    }

    /// Whether any question left.
    fn ask(&self) -> bool {
        let mut left = false;
        for server in self.servers {
            for socket in &self.sockets {
                let fits = socket.local_addr().is_ok_and(|at| at.is_ipv4() == server.is_ipv4());
                let open = |kind: usize| self.found[kind].is_none();
                for kind in (0..2).filter(|&kind| fits && open(kind)) {
                    // A server that cannot be reached now is one that does not answer.
                    left |= socket.send_to(&self.questions[kind], server).is_ok();
                }
            }
        }
        left
    }

    /// Waits for at most `time` and takes what has come.
    fn listen(&mut self, time: Duration) {
        let mut polled: Vec<libc::pollfd> = self.sockets.iter().map(readable).collect();
        // At least a millisecond: a wait of nothing would be a loop.
        let time = libc::c_int::try_from(time.as_millis()).unwrap_or(libc::c_int::MAX).max(1);
        // SAFETY: the pointer and the length are those of a live, writable vector.
        unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, time) };
        let mut room = [0; ANSWER_LEN_MAX];
        for (at, polled) in polled.iter().enumerate() {
            if polled.revents == 0 {
                continue;
            }
            // An ICMP error that arrives here is one server's that does not listen.
            if let Ok((length, from)) = self.sockets[at].recv_from(&mut room)
                && self.servers.contains(&from)
            {
                self.take(&room[..length]);
            }
        }
    }

    fn take(&mut self, datagram: &[u8]) {
        for kind in [Kind::Ipv6, Kind::Ipv4] {
            let slot = &mut self.found[kind as usize];
            match message::answer(datagram, self.name, kind, self.numbers[kind as usize]) {
                // An address from one server counts more than nothing from another.
                Some(Answer::Addresses(found)) if slot.as_ref().is_none_or(Vec::is_empty) => {
                    *slot = Some(found);
                }
                Some(Answer::None) if slot.is_none() => *slot = Some(Vec::new()),
                // It answered something else, or refuses: another may do better.
                Some(_) | None => {}
            }
        }
    }
}

fn readable(socket: &UdpSocket) -> libc::pollfd {
    use std::os::fd::AsRawFd as _;
    libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLIN, revents: 0 }
}

#[cfg(test)]
mod tests;
