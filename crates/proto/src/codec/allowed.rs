//! Which flows may be compressed: an allow-list, and what no rule can allow.
//!
//! The length of a compressed packet depends on its content. If a secret and bytes that an attacker
//! chooses are compressed together, the attacker can guess the secret from lengths (CRIME,
//! VORACLE). So a flow is compressed only if its user named one of its ends, and by that says that
//! no secret of the flow shares a packet with bytes that somebody else chooses.
//!
//! Whatever a rule says, two kinds of flows are refused: those with a web port ([`WEB_PORTS`]), and
//! those with a packet that begins like HTTP or TLS ([`shows_web`]), in either direction.
//!
//! Decides by addresses, ports and the first bytes of a payload. Keeps nothing of a flow; `entries`
//! does. Bounds: [`RULES_MAX`] rules.

use std::net::IpAddr;
use std::sync::Arc;

use super::coding::Coding;
use crate::wire::control::End;

pub use crate::wire::control::RULES_MAX;

/// A rule names at least so many bits of an address. A shorter prefix names nobody: half of the
/// Internet is no destination that a user knows.
pub const BITS_MIN: u8 = 8;
/// Ports of the web: no flow with one of them is ever compressed.
pub const WEB_PORTS: [u16; 3] = [80, 443, 8080];

/// Flows that are compressed: those with an end there, on whichever side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rule {
    /// The end that the user named.
    pub end: End,
    /// How its packets are compressed.
    pub coding: Coding,
}

/// The flows that may be compressed.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Allowed {
    /// Shared by all sessions of a node.
    rules: Arc<[Rule]>,
}

/// The two ends of a flow and its IP protocol, as one end of the tunnel sees them: `near` is behind
/// its own tunnel device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Ends {
    /// Address and port behind this end.
    pub near: (IpAddr, u16),
    /// Address and port behind the peer.
    pub far: (IpAddr, u16),
    /// IP protocol number.
    pub protocol: u8,
}

impl Allowed {
    /// The first [`RULES_MAX`] rules that name at least [`BITS_MIN`] bits of an address.
    pub fn new(rules: &[Rule]) -> Self {
        let named = rules.iter().filter(|rule| rule.end.network.bits >= BITS_MIN);
        Self { rules: named.take(RULES_MAX).copied().collect() }
    }

    /// Whether nothing may be compressed.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// The rules that count.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// How packets of a flow are compressed, by the first rule that names one of its ends. `None`
    /// if no rule does, or if the flow has a web port.
    pub fn coding(&self, ends: &Ends) -> Option<Coding> {
        if WEB_PORTS.contains(&ends.near.1) || WEB_PORTS.contains(&ends.far.1) {
            return None;
        }
        let names = |rule: &&Rule| rule.end.means(ends.near) || rule.end.means(ends.far);
        self.rules.iter().find(names).map(|rule| rule.coding)
    }
}

/// Methods of HTTP and `WebDAV` (RFC 9110, RFC 4918, RFC 9113 section 3.4), and its answers. A
/// request has a space after the method.
const HTTP: [&[u8]; 18] = [
    b"GET ",
    b"HEAD ",
    b"POST ",
    b"PUT ",
    b"DELETE ",
    b"CONNECT ",
    b"OPTIONS ",
    b"TRACE ",
    b"PATCH ",
    b"PRI * HTTP/",
    b"PROPFIND ",
    b"PROPPATCH ",
    b"MKCOL ",
    b"LOCK ",
    b"UNLOCK ",
    b"REPORT ",
    b"SEARCH ",
    b"HTTP/",
];
/// Content types of TLS and DTLS records (RFC 8446 section 5.1, RFC 9147 section 4).
const RECORDS: std::ops::RangeInclusive<u8> = 20..=26;
/// The longest TLS record: 2^14 bytes, and what protecting it may add (RFC 5246, 6.2.3).
const RECORD_MAX: u16 = (1 << 14) + 2_048;
/// The versions of QUIC, which carries TLS (RFC 9000, RFC 9369).
const QUIC: [[u8; 4]; 2] = [[0, 0, 0, 1], [0x6b, 0x33, 0x43, 0xcf]];

/// Whether a payload begins like HTTP, TLS, DTLS or QUIC. One that is too short to tell counts as
/// what it may become: a wrong yes costs bytes, a wrong no a secret.
pub fn shows_web(payload: &[u8]) -> bool {
    !payload.is_empty() && (is_http(payload) || is_record(payload) || is_quic(payload))
}

fn is_http(payload: &[u8]) -> bool {
    HTTP.iter().any(|start| {
        let len = start.len().min(payload.len());
        start[..len] == payload[..len]
    })
}

/// Content type, version, and for TLS a length (RFC 8446, 5.1).
fn is_record(payload: &[u8]) -> bool {
    let Some((kind, rest)) = payload.split_first() else { return false };
    let is_version = match rest {
        [] => true,
        [3, 0..=4, high, low, ..] => u16::from_be_bytes([*high, *low]) <= RECORD_MAX,
        [3] | [3, 0..=4] | [3, 0..=4, _] | [0xfe] | [0xfe, 0xfc..=0xff, ..] => true,
        _ => false,
    };
    RECORDS.contains(kind) && is_version
}

/// A long header with a known version (RFC 8999, section 5.1).
fn is_quic(payload: &[u8]) -> bool {
    let version = payload.get(1..5);
    payload[0] & 0x80 != 0 && version.is_some_and(|it| QUIC.iter().any(|known| known == it))
}

#[cfg(test)]
#[path = "allowed_tests.rs"]
mod tests;
