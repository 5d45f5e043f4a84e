//! DNS queries and responses for addresses (RFC 1035 section 4, RFC 3596).

use std::net::IpAddr;

/// Bytes of a name as it is written, without a final dot (RFC 1035 section 2.3.4).
pub const NAME_LEN_MAX: usize = 253;
/// Addresses that are taken from one answer.
pub const ADDRESSES_MAX: usize = 16;

const HEADER_LEN: usize = 12;
const LABEL_LEN_MAX: usize = 63;
/// Records of an answer that are looked at.
const RECORDS_MAX: usize = 64;
const CLASS_INTERNET: u16 = 1;
const FLAG_RESPONSE: u16 = 0x8000;
const FLAG_RECURSION_DESIRED: u16 = 0x0100;
const CODE: u16 = 0x000f;
const CODE_NO_ERROR: u16 = 0;
const CODE_NO_SUCH_NAME: u16 = 3;

/// Which kind of address is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// AAAA.
    Ipv6 = 0,
    /// A.
    Ipv4 = 1,
}

impl Kind {
    fn number(self) -> u16 {
        match self {
            Self::Ipv6 => 28,
            Self::Ipv4 => 1,
        }
    }
}

/// What a server says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    /// These; at least one.
    Addresses(Vec<IpAddr>),
    /// There is no such name, or it has no such address.
    None,
    /// It could not or would not say.
    Refused,
}

/// The question for an address of `name`; `None` if that can be nobody's name.
pub(crate) fn question(name: &str, kind: Kind, number: u16) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(HEADER_LEN + NAME_LEN_MAX + 6);
    for word in [number, FLAG_RECURSION_DESIRED, 1, 0, 0, 0] {
        bytes.extend(word.to_be_bytes());
    }
    let name = name.strip_suffix('.').unwrap_or(name);
    if name.len() > NAME_LEN_MAX {
        return None;
    }
    for label in name.split('.') {
        if label.is_empty() || label.len() > LABEL_LEN_MAX || !label.is_ascii() {
            return None;
        }
        bytes.push(label.len() as u8);
        bytes.extend(label.as_bytes());
    }
    bytes.push(0);
    bytes.extend(kind.number().to_be_bytes());
    bytes.extend(CLASS_INTERNET.to_be_bytes());
    Some(bytes)
}

/// What `datagram` answers to our question with this number; `None` if it is no answer to it.
pub(crate) fn answer(datagram: &[u8], name: &str, kind: Kind, number: u16) -> Option<Answer> {
    let word = |at: usize| Some(u16::from_be_bytes(*datagram.get(at..)?.first_chunk()?));
    let asked = question(name, kind, number)?;
    let flags = word(2)?;
    let (questions, records) = (word(4)?, word(6)?);
    if word(0)? != number || flags & FLAG_RESPONSE == 0 || questions != 1 {
        return None;
    }
    // Servers may change the letters' case, and nothing else.
    let echoed = datagram.get(HEADER_LEN..asked.len())?;
    if !echoed.eq_ignore_ascii_case(&asked[HEADER_LEN..]) {
        return None;
    }
    match flags & CODE {
        CODE_NO_ERROR => {}
        CODE_NO_SUCH_NAME => return Some(Answer::None),
        _ => return Some(Answer::Refused),
    }
    let found = addresses(datagram, asked.len(), usize::from(records), kind)?;
    Some(if found.is_empty() { Answer::None } else { Answer::Addresses(found) })
}

/// The addresses among the answer's records, which start at `at`. Those of the name that an alias
/// leads to count as well: whose they are the handshake will tell.
fn addresses(datagram: &[u8], at: usize, records: usize, kind: Kind) -> Option<Vec<IpAddr>> {
    let mut at = at;
    let mut found = Vec::new();
    for _ in 0..records.min(RECORDS_MAX) {
        at = after_name(datagram, at)?;
        let [t0, t1, c0, c1, _, _, _, _, l0, l1] = *datagram.get(at..)?.first_chunk()?;
        at += 10;
        let length = usize::from(u16::from_be_bytes([l0, l1]));
        let data = datagram.get(at..at + length)?;
        at += length;
        let right = u16::from_be_bytes([t0, t1]) == kind.number()
            && u16::from_be_bytes([c0, c1]) == CLASS_INTERNET;
        let address = match kind {
            Kind::Ipv6 => <[u8; 16]>::try_from(data).ok().map(IpAddr::from),
            Kind::Ipv4 => <[u8; 4]>::try_from(data).ok().map(IpAddr::from),
        };
        if let Some(address) = address.filter(|address| right && !found.contains(address)) {
            found.push(address);
        }
    }
    found.truncate(ADDRESSES_MAX);
    Some(found)
}

/// Where the name that starts at `at` ends. A pointer ends it: where that leads is of no interest.
fn after_name(datagram: &[u8], at: usize) -> Option<usize> {
    let mut at = at;
    loop {
        match *datagram.get(at)? {
            0 => return Some(at + 1),
            0xc0..=0xff => return Some(at + 2),
            label @ 1..=0x3f => at += 1 + usize::from(label),
            0x40..=0xbf => return None,
        }
    }
}
