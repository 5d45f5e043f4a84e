//! A minimal name server (RFC 1035, RFC 3596): addresses of a few names, over UDP.
//!
//! It also is the network's cache: it repeats an earlier answer for the record's time to live,
//! whatever the zone says meanwhile. The zone is a file with lines of `NAME ADDRESS`, read again
//! when no record is cached.

use super::report::{Report, Reporter};
use crate::emu::SECOND;
use crate::netns::monotonic_ns;
use anyhow::Context as _;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::Path;

/// Length of a message's header.
const HEADER: usize = 12;
/// The longest query: that of UDP without extensions.
const MESSAGE_BYTES: usize = 512;
/// The most labels of a name.
const LABELS_MAX: usize = 32;
/// The most records that are kept.
const RECORDS_MAX: usize = 64;
/// Types of records: an IPv4 address, an IPv6 address.
const TYPES: [u16; 2] = [1, 28];
/// The class of the Internet.
const CLASS: u16 = 1;

/// Answers queries for ever.
///
/// # Errors
/// If the address cannot be bound.
pub fn serve_names(
    listen: SocketAddr,
    zone: &Path,
    keep_s: u32,
    reporter: &Reporter,
) -> anyhow::Result<()> {
    let socket = UdpSocket::bind(listen).with_context(|| format!("cannot listen on {listen}"))?;
    reporter.tell(&Report::Ready)?;
    let mut cache = Cache::default();
    let mut buffer = [0; MESSAGE_BYTES];
    loop {
        let Ok((length, from)) = socket.recv_from(&mut buffer) else { continue };
        let Some(question) = Question::read(&buffer[..length]) else { continue };
        let now_ns = monotonic_ns();
        if cache.until_ns <= now_ns {
            // A zone that cannot be read is an empty one.
            let text = std::fs::read_to_string(zone).unwrap_or_default();
            cache =
                Cache { records: records(&text), until_ns: now_ns + u64::from(keep_s) * SECOND };
        }
        let left_s = (cache.until_ns - now_ns).div_ceil(SECOND) as u32;
        // A client that cannot be reached asks again.
        let _ = socket.send_to(&question.answer(&cache.records, left_s), from);
    }
}

/// The zone's records, and how long they are cached.
#[derive(Default)]
struct Cache {
    records: Vec<(String, IpAddr)>,
    until_ns: u64,
}

fn records(zone: &str) -> Vec<(String, IpAddr)> {
    let record = |line: &str| {
        let (name, address) = line.split_once(' ')?;
        Some((name.to_ascii_lowercase(), address.trim().parse().ok()?))
    };
    zone.lines().filter_map(record).take(RECORDS_MAX).collect()
}

/// The one query of a message.
struct Question<'a> {
    /// From the message's first byte to the question's last.
    bytes: &'a [u8],
    name: String,
    wanted: u16,
}

impl<'a> Question<'a> {
    /// The question, if the message is a plain one.
    fn read(message: &'a [u8]) -> Option<Self> {
        let flags = *message.get(2)?;
        // It is no answer, and an ordinary question.
        let is_question = flags & 0xf8 == 0 && message.get(4..6)? == [0, 1];
        let mut at = HEADER;
        let mut labels = Vec::new();
        loop {
            let length = usize::from(*message.get(at)?);
            at += 1;
            if length == 0 {
                break;
            }
            if labels.len() == LABELS_MAX {
                return None;
            }
            // A pointer, which no question has, is longer than what is left, or than a label.
            let label = message.get(at..at + length).filter(|_| length < 64)?;
            labels.push(String::from_utf8_lossy(label).to_ascii_lowercase());
            at += length;
        }
        let word = |at: usize| Some(u16::from_be_bytes([*message.get(at)?, *message.get(at + 1)?]));
        let (wanted, class) = (word(at)?, word(at + 2)?);
        let bytes = message.get(..at + 4).filter(|_| is_question && class == CLASS)?;
        Some(Self { bytes, name: labels.join("."), wanted })
    }

    /// The query again, followed by the records that answer it.
    fn answer(&self, records: &[(String, IpAddr)], keep_s: u32) -> Vec<u8> {
        let of_name = || records.iter().filter(|(name, _)| *name == self.name);
        let addresses: Vec<Vec<u8>> = of_name()
            .filter_map(|(_, address)| match (address, self.wanted) {
                (IpAddr::V4(address), wanted) if wanted == TYPES[0] => {
                    Some(address.octets().into())
                }
                (IpAddr::V6(address), wanted) if wanted == TYPES[1] => {
                    Some(address.octets().into())
                }
                (IpAddr::V4(_) | IpAddr::V6(_), _) => None,
            })
            .collect();
        // An answer; recursion is available; no such name, or no error (section 4.1.1).
        let outcome = if of_name().next().is_none() { 3 } else { 0 };
        let mut message = self.bytes.to_vec();
        message[2] |= 0x80;
        message[3] = 0x80 | outcome;
        message[4..HEADER].copy_from_slice(&[0, 1, 0, addresses.len() as u8, 0, 0, 0, 0]);
        for address in addresses {
            // The name is the question's own.
            message.extend([0xc0, HEADER as u8]);
            message.extend(self.wanted.to_be_bytes());
            message.extend(CLASS.to_be_bytes());
            message.extend(keep_s.to_be_bytes());
            message.extend((address.len() as u16).to_be_bytes());
            message.extend(address);
        }
        message
    }
}

#[cfg(test)]
mod tests {
    use super::{HEADER, Question, records};

    const ZONE: &str = "gateway.example.net 192.0.2.2\nGateway.Example.Net 2001:db8::2\nno line\n";

    fn question(name: &str, wanted: u8) -> Vec<u8> {
        let mut message = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in name.split('.') {
            message.push(label.len() as u8);
            message.extend(label.as_bytes());
        }
        message.extend([0, 0, wanted, 0, 1]);
        message
    }

    #[test]
    fn a_name_has_the_addresses_of_its_zone() {
        let records = records(ZONE);
        assert_eq!(records.len(), 2);
        let asked = question("gateway.EXAMPLE.net", 1);
        let answer = Question::read(&asked).unwrap().answer(&records, 7);
        assert_eq!(answer[..4], [0x12, 0x34, 0x81, 0x80]);
        assert_eq!(answer[4..HEADER], [0, 1, 0, 1, 0, 0, 0, 0]);
        assert_eq!(answer[HEADER..asked.len()], asked[HEADER..]);
        assert_eq!(answer[asked.len()..], [0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 7, 0, 4, 192, 0, 2, 2]);
        let asked = question("gateway.example.net", 28);
        let answer = Question::read(&asked).unwrap().answer(&records, 0);
        assert_eq!(answer.len(), asked.len() + 12 + 16);
    }

    #[test]
    fn what_is_not_there_is_said_so() {
        let answer = |name: &str, wanted| {
            let asked = question(name, wanted);
            let answer = Question::read(&asked).unwrap().answer(&records(ZONE), 1);
            assert_eq!(answer.len(), asked.len());
            answer[3] & 0x0f
        };
        assert_eq!(answer("nobody.example.net", 1), 3);
        assert_eq!(answer("gateway.example.net", 15), 0, "the name is there, the type is not");
    }

    proptest::proptest! {
        #[test]
        fn no_message_is_too_strange(
            mut bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..64),
            plain in proptest::bool::ANY,
        ) {
            if plain && bytes.len() > 5 {
                (bytes[2], bytes[4], bytes[5]) = (1, 0, 1);
            }
            if let Some(question) = Question::read(&bytes) {
                let answer = question.answer(&records(ZONE), 1);
                proptest::prop_assert!(answer.len() >= HEADER + 5);
            }
        }
    }

    #[test]
    fn answers_and_pieces_are_no_questions() {
        let whole = question("gateway.example.net", 1);
        for length in 0..whole.len() {
            assert!(Question::read(&whole[..length]).is_none(), "{length}");
        }
        let mut answer = whole.clone();
        answer[2] |= 0x80;
        assert!(Question::read(&answer).is_none());
        let mut pointer = whole;
        pointer[HEADER] = 0xc0;
        assert!(Question::read(&pointer).is_none());
    }
}
