//! A name server, as small as it can be.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

use super::netns::{SOON, inside};

const HEADER: usize = 12;
/// Of a question, behind its name: type and class (RFC 1035 section 4.1.2).
const TYPE_A: [u8; 4] = [0, 1, 0, 1];

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
    let address: SocketAddr = address.parse().unwrap();
    let (asked, (ready, is_ready)) = (Asked::default(), channel());
    let noted = asked.clone();
    inside(host, move || {
        let socket = UdpSocket::bind(address).unwrap();
        ready.send(()).unwrap();
        let mut query = [0; 512];
        while let Ok((len, from)) = socket.recv_from(&mut query) {
            let Some((name, end)) = name(&query[..len]) else { continue };
            let is_a = query[end..].starts_with(&TYPE_A);
            noted.0.lock().unwrap().push(name);
            let _ = socket.send_to(&reply(&query[..end + TYPE_A.len()], is_a, answer), from);
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

/// RFC 1035 section 4: the question again, and behind it the record.
fn reply(question: &[u8], is_a: bool, answer: Ipv4Addr) -> Vec<u8> {
    let mut reply = question.to_vec();
    // An answer, recursion available, no error; one question and at most one record.
    reply[2..HEADER].copy_from_slice(&[0x81, 0x80, 0, 1, 0, u8::from(is_a), 0, 0, 0, 0]);
    if is_a {
        let name = [0xc0, HEADER as u8];
        let (seconds, length) = ([0, 0, 0, 1], [0, 4]);
        reply.extend([&name[..], &TYPE_A, &seconds, &length, &answer.octets()].concat());
    }
    reply
}
