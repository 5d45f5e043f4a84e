//! A name server, as small as it can be.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

use super::netns::{SOON, inside};

const HEADER: usize = 12;
/// Of a question, behind its name: type and class (RFC 1035 section 4.1.2).
const TYPE_A: [u8; 4] = [0, 1, 0, 1];
const TYPE_AAAA: [u8; 4] = [0, 28, 0, 1];

/// The names that a server was asked for, in order.
#[derive(Clone, Default)]
pub(crate) struct Asked(Arc<Mutex<Vec<String>>>);

impl Asked {
    /// The names since the last call.
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// Answers on a host: every name has the address `answer`, and no other record.
pub(crate) fn serve_names(host: &str, address: &str, answer: Ipv4Addr) -> Asked {
    serve(host, address, move |_| vec![answer.into()])
}

/// Answers on a host: the names have these addresses, and others have none.
pub(crate) fn serve_zone(host: &str, address: &str, zone: &[(&'static str, &str)]) -> Asked {
    let zone = zone.iter().map(|&(name, address)| (name, address.parse().unwrap()));
    let zone: Vec<(&str, IpAddr)> = zone.collect();
    serve(host, address, move |asked| {
        let known = zone.iter().filter(|(name, _)| *name == asked);
        known.map(|(_, address)| *address).collect()
    })
}

fn serve(
    host: &str,
    address: &str,
    look_up: impl Fn(&str) -> Vec<IpAddr> + Send + 'static,
) -> Asked {
    let address: SocketAddr = address.parse().unwrap();
    let (asked, (ready, is_ready)) = (Asked::default(), channel());
    let noted = asked.clone();
    inside(host, move || {
        let socket = UdpSocket::bind(address).unwrap();
        ready.send(()).unwrap();
        let mut query = [0; 512];
        while let Ok((len, from)) = socket.recv_from(&mut query) {
            let Some((name, end)) = name(&query[..len]) else { continue };
            let kinds = [(TYPE_A, true), (TYPE_AAAA, false)];
            let kind = kinds.into_iter().find(|(kind, _)| query[end..].starts_with(kind));
            let of_kind = |at: &IpAddr| kind.is_some_and(|(_, v4)| at.is_ipv4() == v4);
            let found: Vec<IpAddr> = look_up(&name).into_iter().filter(of_kind).collect();
            noted.0.lock().unwrap().push(name);
            let _ = socket.send_to(&reply(&query[..end + TYPE_A.len()], &found), from);
        }
    });
    is_ready.recv_timeout(SOON).unwrap();
    asked
}

/// The name in the first question, and where it ends.
fn name(query: &[u8]) -> Option<(String, usize)> {
    let (mut labels, mut at) = (Vec::new(), HEADER);
    loop {
        let length = usize::from(*query.get(at)?);
        at += 1;
        if length == 0 {
            return Some((labels.join("."), at));
        }
        labels.push(String::from_utf8_lossy(query.get(at..at + length)?).to_lowercase());
        at += length;
    }
}

/// RFC 1035 section 4: the question again, and behind it a record for each address.
fn reply(question: &[u8], found: &[IpAddr]) -> Vec<u8> {
    let mut reply = question.to_vec();
    // An answer, recursion available, no error; one question and so many records.
    reply[2..HEADER].copy_from_slice(&[0x81, 0x80, 0, 1, 0, found.len() as u8, 0, 0, 0, 0]);
    for address in found {
        let (kind, octets) = match address {
            IpAddr::V4(v4) => (TYPE_A, v4.octets().to_vec()),
            IpAddr::V6(v6) => (TYPE_AAAA, v6.octets().to_vec()),
        };
        let name = [0xc0, HEADER as u8];
        let (seconds, length) = ([0, 0, 0, 1], [0, octets.len() as u8]);
        reply.extend([&name[..], &kind, &seconds, &length, &octets].concat());
    }
    reply
}
