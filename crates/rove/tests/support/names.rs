//! A name server, as small as it can be.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

use super::netns::{SOON, inside};

const HEADER: usize = 12;
/// Of a question, behind its name: type and class (RFC 1035 section 4.1.2).
const TYPE_A: [u8; 4] = [0, 1, 0, 1];
const TYPE_AAAA: [u8; 4] = [0, 28, 0, 1];

/// How a name begins whose answers fit into no datagram.
pub(crate) const LONG: &str = "long.";

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
    look_up: impl Fn(&str) -> Vec<IpAddr> + Send + Sync + 'static,
) -> Asked {
    let address: SocketAddr = address.parse().unwrap();
    let (asked, (ready, is_ready)) = (Asked::default(), channel());
    let answerer = Arc::new(Answerer { look_up, asked: asked.clone() });
    let streams = Arc::clone(&answerer);
    inside(host, move || {
        let (socket, listener) =
            (UdpSocket::bind(address).unwrap(), TcpListener::bind(address).unwrap());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let _ = stream.and_then(|stream| streams.serve(stream));
            }
        });
        ready.send(()).unwrap();
        let mut query = [0; 512];
        while let Ok((len, from)) = socket.recv_from(&mut query) {
            if let Some(reply) = answerer.answer(&query[..len], true) {
                let _ = socket.send_to(&reply, from);
            }
        }
    });
    is_ready.recv_timeout(SOON).unwrap();
    asked
}

struct Answerer<L> {
    look_up: L,
    asked: Asked,
}

impl<L: Fn(&str) -> Vec<IpAddr>> Answerer<L> {
    fn answer(&self, query: &[u8], is_datagram: bool) -> Option<Vec<u8>> {
        let (name, end) = name(query)?;
        let kinds = [(TYPE_A, true), (TYPE_AAAA, false)];
        let kind = kinds.into_iter().find(|(kind, _)| query[end..].starts_with(kind));
        let of_kind = |at: &IpAddr| kind.is_some_and(|(_, v4)| at.is_ipv4() == v4);
        let is_truncated = is_datagram && name.starts_with(LONG);
        let found = (self.look_up)(&name).into_iter().filter(of_kind);
        let found: Vec<IpAddr> = found.filter(|_| !is_truncated).collect();
        self.asked.0.lock().unwrap().push(name);
        let mut reply = reply(query.get(..end + TYPE_A.len())?, &found);
        reply[2] |= u8::from(is_truncated) << 1;
        Some(reply)
    }

    /// One query of a stream, behind its length (RFC 1035 section 4.2.2).
    fn serve(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let mut length = [0; 2];
        stream.read_exact(&mut length)?;
        let mut query = vec![0; u16::from_be_bytes(length).into()];
        stream.read_exact(&mut query)?;
        let reply = self.answer(&query, false).unwrap_or_default();
        stream.write_all(&[&(reply.len() as u16).to_be_bytes()[..], &reply].concat())
    }
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
