//! One round trip through the whole tunnel, as any program would make it.
//!
//! A ping to the gateway's inner address, out of this host's TUN and back into it. Echo requests
//! need no program at the other end (RFC 1122 section 3.2.2.6, RFC 4443 section 4.2), only a raw
//! socket here (CAP_NET_RAW).

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::mpsc::SyncSender;
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketType, connect, ipproto, recv, send, sendto, socket,
    sockopt,
};

use crate::message::{Message, Own};

/// Time between two requests.
const EVERY: Duration = Duration::from_millis(250);
/// Addresses that are asked, each by a thread of its own: one per family is what gateways have.
const ASKED_MAX: usize = 4;
/// Bytes of the longest answer that is read.
const ANSWER_LEN_MAX: usize = 2_048;
/// Bytes of an echo request without content, and of the headers before it.
const HEADER_LEN: usize = 8;
const IPV4_HEADER_LEN: usize = 20;
const IPV6_HEADER_LEN: usize = 40;
const ECHO_V4: u8 = 8;
const REPLY_V4: u8 = 0;
const ECHO_V6: u8 = 128;
const REPLY_V6: u8 = 129;

/// Asks at all of the `gateways` addresses until one answers or it is `give_up`; says
/// [`Own::Answered`] when one does. An error if none can be asked.
pub(crate) fn start(
    gateways: &[IpAddr],
    give_up: Instant,
    to: &SyncSender<Message>,
) -> io::Result<()> {
    let mut started = None;
    for &gateway in gateways.iter().take(ASKED_MAX) {
        let opened = open(gateway).map_err(io::Error::from).and_then(|socket| {
            let to = to.clone();
            thread::Builder::new().name("rove-probe".to_owned()).spawn(move || {
                if ask(&socket, gateway, give_up, HEADER_LEN) {
                    // The node may have ended meanwhile.
                    drop(to.send(Message::Own(Own::Answered)));
                }
            })
        });
        match opened {
            Ok(_) => started = Some(Ok(())),
            Err(error) => drop(started.get_or_insert(Err(error))),
        }
    }
    started.unwrap_or(Ok(()))
}

fn open(gateway: IpAddr) -> rustix::io::Result<OwnedFd> {
    let (family, protocol) = match gateway {
        IpAddr::V4(_) => (AddressFamily::INET, ipproto::ICMP),
        IpAddr::V6(_) => (AddressFamily::INET6, ipproto::ICMPV6),
    };
    let socket = socket(family, SocketType::RAW, Some(protocol))?;
    connect(&socket, &SocketAddr::new(gateway, 0))?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(EVERY))?;
    Ok(socket)
}

/// Whether `gateway` answered before `give_up`.
fn ask(socket: &OwnedFd, gateway: IpAddr, give_up: Instant, length: usize) -> bool {
    let echo = if gateway.is_ipv4() { ECHO_V4 } else { ECHO_V6 };
    let identifier = u16::try_from(std::process::id() & 0xffff).unwrap_or(0).to_be_bytes();
    let mut sequence: u16 = 0;
    while Instant::now() < give_up {
        sequence = sequence.wrapping_add(1);
        // What cannot be sent now may be sent the next time: links come and go.
        let request = request(echo, identifier, sequence, length);
        if let Err(error) = send(socket, &request, SendFlags::empty()) {
            tracing::debug!(%error, "a ping cannot be sent");
        }
        let next = Instant::now() + EVERY;
        let mut bytes = [0; ANSWER_LEN_MAX];
        while let Ok((_, got)) = recv(socket, &mut bytes, RecvFlags::empty()) {
            let answer = &bytes[..got.min(bytes.len())];
            // A late answer to a smaller request says nothing about this one.
            let is_whole = got == bytes.len() || message(answer, gateway).len() >= length;
            if is_whole && is_reply(answer, gateway, identifier) {
                return true;
            }
            if Instant::now() >= next {
                break;
            }
        }
        // An error that is pending ends the wait before its time.
        thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    tracing::debug!("no ping came back through the tunnel");
    false
}

/// Whether `address` answers an echo request, as a packet of `length` bytes, `within` this time.
///
/// # Errors
/// No socket for pings is available: CAP_NET_RAW or a route is missing.
pub fn echo(address: IpAddr, length: u16, within: Duration) -> io::Result<bool> {
    let socket = open(address)?;
    let header = if address.is_ipv4() { IPV4_HEADER_LEN } else { IPV6_HEADER_LEN };
    let length = usize::from(length).saturating_sub(header);
    Ok(ask(&socket, address, Instant::now() + within, length))
}

/// What the gateway's host says of a packet to the Internet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WayOut {
    /// It has a route there. A packet filter may drop the packet all the same.
    Exists,
    /// It has none.
    NoRoute,
    /// It says nothing.
    Unknown,
}

/// Whether the gateway's host has a route to `address`, as it says itself `within` this time. The
/// packets have a hop limit of one: no router sends them on, and each says why (RFC 1812 section
/// 5.2.7, RFC 4443 section 3).
///
/// # Errors
/// No socket for pings is available: CAP_NET_RAW or a route is missing.
pub fn way_out(address: IpAddr, within: Duration) -> io::Result<WayOut> {
    let (family, protocol, echo) = match address {
        IpAddr::V4(_) => (AddressFamily::INET, ipproto::ICMP, ECHO_V4),
        IpAddr::V6(_) => (AddressFamily::INET6, ipproto::ICMPV6, ECHO_V6),
    };
    let socket = socket(family, SocketType::RAW, Some(protocol))?;
    match address {
        IpAddr::V4(_) => sockopt::set_ip_ttl(&socket, 1)?,
        IpAddr::V6(_) => sockopt::set_ipv6_unicast_hops(&socket, Some(1))?,
    }
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(EVERY))?;
    let identifier = u16::try_from(std::process::id() & 0xffff).unwrap_or(0).to_be_bytes();
    let give_up = Instant::now() + within;
    let mut sequence: u16 = 0;
    while Instant::now() < give_up {
        sequence = sequence.wrapping_add(1);
        let request = request(echo, identifier, sequence, HEADER_LEN);
        sendto(&socket, &request, SendFlags::empty(), &SocketAddr::new(address, 0))?;
        let next = Instant::now() + EVERY;
        let mut bytes = [0; ANSWER_LEN_MAX];
        while let Ok((_, length)) = recv(&socket, &mut bytes, RecvFlags::empty()) {
            let answer = &bytes[..length.min(bytes.len())];
            if let Some(said) = read_refusal(answer, address.is_ipv4(), identifier) {
                return Ok(said);
            }
            if Instant::now() >= next {
                break;
            }
        }
        thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    Ok(WayOut::Unknown)
}

/// What an ICMP error says of an echo request of this process (RFC 792, RFC 4443 section 3).
fn read_refusal(bytes: &[u8], v4: bool, identifier: [u8; 2]) -> Option<WayOut> {
    let header = |bytes: &[u8]| match v4 {
        true => bytes.first().map_or(0, |first| usize::from(first & 0xf) * 4),
        false => IPV6_HEADER_LEN,
    };
    let message = if v4 { bytes.get(header(bytes)..)? } else { bytes };
    let quoted = message.get(HEADER_LEN..)?;
    let quoted = quoted.get(header(quoted)..)?;
    let echo = if v4 { ECHO_V4 } else { ECHO_V6 };
    if quoted.first() != Some(&echo) || quoted.get(4..6) != Some(&identifier[..]) {
        return None;
    }
    match (v4, message.first()?, message.get(1)?) {
        (true, 11, _) | (false, 3, _) => Some(WayOut::Exists),
        (true, 3, 0 | 1) | (false, 1, 0 | 3) => Some(WayOut::NoRoute),
        _ => None,
    }
}

/// An echo request of `length` bytes. The kernel fills in the checksum for IPv6 (RFC 3542 section
/// 3.1).
fn request(kind: u8, identifier: [u8; 2], sequence: u16, length: usize) -> Vec<u8> {
    let [high, low] = sequence.to_be_bytes();
    let mut bytes = vec![kind, 0, 0, 0, identifier[0], identifier[1], high, low];
    bytes.resize(length.max(HEADER_LEN).next_multiple_of(2), 0);
    if kind == ECHO_V4 {
        let sum = bytes.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
        let sum: u32 = sum.sum();
        let folded = (sum & 0xffff) + (sum >> 16);
        let checksum = !u16::try_from((folded & 0xffff) + (folded >> 16)).unwrap_or(0);
        bytes[2..4].copy_from_slice(&checksum.to_be_bytes());
    }
    bytes
}

/// Raw IPv4 sockets deliver the IP header too (raw(7)), IPv6 ones do not.
fn message(bytes: &[u8], gateway: IpAddr) -> &[u8] {
    match gateway {
        IpAddr::V4(_) => {
            let header = bytes.first().map_or(0, |first| usize::from(first & 0xf) * 4);
            bytes.get(header..).unwrap_or_default()
        }
        IpAddr::V6(_) => bytes,
    }
}

fn is_reply(bytes: &[u8], gateway: IpAddr, identifier: [u8; 2]) -> bool {
    let kind = if gateway.is_ipv4() { REPLY_V4 } else { REPLY_V6 };
    let message = message(bytes, gateway);
    message.len() >= 8 && message[0] == kind && message[4..6] == identifier
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_a_right_checksum() {
        for sequence in [0, 1, 0xffff] {
            let bytes = request(ECHO_V4, [0xff, 0xfe], sequence, 8);
            let pairs =
                bytes.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
            let sum: u32 = pairs.sum();
            assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff);
        }
    }

    #[test]
    fn a_refusal_says_whether_there_is_a_route() {
        let quoted = |echo: u8| [echo, 0, 0, 0, 7, 7, 0, 1];
        let v4 = |kind: u8, code: u8| {
            let mut packet = vec![0x45; 20];
            packet.extend([kind, code, 0, 0, 0, 0, 0, 0]);
            packet.extend([0x45; 20]);
            packet.extend(quoted(ECHO_V4));
            packet
        };
        let v6 = |kind: u8, code: u8| {
            let mut packet = vec![kind, code, 0, 0, 0, 0, 0, 0];
            packet.extend([0x60; IPV6_HEADER_LEN]);
            packet.extend(quoted(ECHO_V6));
            packet
        };
        for (packet, is_v4, expected) in [
            (v4(11, 0), true, Some(WayOut::Exists)),
            (v4(3, 0), true, Some(WayOut::NoRoute)),
            (v4(3, 3), true, None),
            (v6(3, 0), false, Some(WayOut::Exists)),
            (v6(1, 0), false, Some(WayOut::NoRoute)),
            (v6(1, 4), false, None),
        ] {
            assert_eq!(read_refusal(&packet, is_v4, [7, 7]), expected, "{packet:?}");
            assert_eq!(read_refusal(&packet, is_v4, [7, 8]), None, "of another process");
            for length in 0..packet.len() - 2 {
                assert_eq!(read_refusal(&packet[..length], is_v4, [7, 7]), None, "{length}");
            }
        }
    }

    #[test]
    fn only_an_answer_to_this_process_counts() {
        let v4: IpAddr = [10, 0, 0, 1].into();
        let mut packet = vec![0x45; 20];
        packet.extend([REPLY_V4, 0, 0, 0, 7, 7, 0, 1]);
        assert!(is_reply(&packet, v4, [7, 7]));
        assert!(!is_reply(&packet, v4, [7, 8]));
        packet[20] = ECHO_V4;
        assert!(!is_reply(&packet, v4, [7, 7]));
        for length in 0..packet.len() {
            assert!(!is_reply(&packet[..length], v4, [7, 7]));
            assert!(!is_reply(&packet[..length], [0u16; 8].into(), [7, 7]));
        }
    }
}
