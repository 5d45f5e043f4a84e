//! Gateway: admits a client's replies to addresses that it may not contact, because they contacted
//! the client first.
//!
//! A grant lets one client send to another, and needs no second grant for the replies. For each
//! packet to a client from outside the Internet, the gateway remembers its two ends, as a stateful
//! packet filter does. Packets of that client between the same ends are admitted for as long as a
//! NAT keeps a mapping. So are ICMP errors about packets to the client. A TCP segment that opens a
//! connection is never a reply.
//!
//! This module does not know grants. Packets that reach it were admitted from another client, or
//! come from the gateway's own host or through its firewall. Limits: a conversation is forgotten if
//! [`ANSWERS_MAX`] others with the same client are more recent. The next packet from the end that
//! began it restores it.

use crate::flow::tuple::{Direction, Tuple};
use crate::time::{Duration, Instant};
use crate::wire::icmp::{ICMP, ICMPV6};
use crate::wire::inner::{Headers, InnerPacket, Pieces, TCP, UDP, declared_len};

/// Conversations remembered for one client, 256 KiB at most. With half as many, a scan of a /20
/// behind a client would evict the scanner's other connections.
pub(super) const ANSWERS_MAX: usize = 4_096;
/// Places per set. Each packet searches all places of one set. With half as many, chance alone
/// would fill a set of a nearly empty table and make the table grow.
const WAYS: usize = 8;
/// The initial number of sets. It doubles when a set is full.
const SETS_MIN: usize = 2;
/// The maximum number of sets.
const SETS_MAX: usize = ANSWERS_MAX / WAYS;

/// RFC 5382, REQ-5: an established connection may be idle for two hours and four minutes.
const TCP_FOR: Duration = Duration::from_secs(124 * 60);
/// RFC 4787, REQ-5.
const UDP_FOR: Duration = Duration::from_secs(5 * 60);
/// RFC 5508, REQ-2.
const ICMP_FOR: Duration = Duration::from_secs(60);
/// Linux, `nf_conntrack_generic_timeout`.
const OTHER_FOR: Duration = Duration::from_secs(10 * 60);

/// The conversations that others began with one client.
#[derive(Debug)]
pub(super) struct Answers {
    secret: u64,
    /// A power of two, or none while nothing is remembered.
    sets: Vec<[Option<Conversation>; WAYS]>,
}

#[derive(Clone, Copy, Debug)]
struct Conversation {
    /// The local end is the one that began the conversation.
    tuple: Tuple,
    used_at: Instant,
}

impl Answers {
    /// An empty table. Without knowing `secret`, an attacker cannot fill one set on purpose.
    pub(super) fn new(secret: u64) -> Self {
        Self { secret, sets: Vec::new() }
    }

    /// Notes a packet to the client. The client may reply to it.
    pub(super) fn expect(&mut self, now: Instant, packet: &InnerPacket<'_>) {
        let Some(tuple) = conversation(packet, Direction::Out) else { return };
        let all_parts = fragments_of(&tuple);
        if all_parts != tuple {
            self.remember(now, all_parts);
        }
        // Remembered last, so that it is not the one to be evicted.
        self.remember(now, tuple);
    }

    /// Whether a packet of the client is a reply, or an ICMP error about a packet to the client.
    pub(super) fn admit(&mut self, now: Instant, packet: &InnerPacket<'_>) -> bool {
        if let Some(about) = quoted(packet) {
            let tuple = conversation(&about, Direction::Out);
            let is_own = about.headers.source == packet.headers.destination;
            return is_own && tuple.is_some_and(|tuple| self.find(now, &tuple).is_some());
        }
        if opens_connection(packet) {
            return false;
        }
        let found = conversation(packet, Direction::In);
        match found.and_then(|tuple| self.find(now, &tuple)) {
            Some(conversation) => {
                conversation.used_at = now;
                true
            }
            None => false,
        }
    }

    fn find(&mut self, now: Instant, tuple: &Tuple) -> Option<&mut Conversation> {
        let at = self.set_of(tuple)?;
        let mut known = self.sets[at].iter_mut().flatten();
        known.find(|known| known.tuple == *tuple && known.is_fresh(now))
    }

    fn remember(&mut self, now: Instant, tuple: Tuple) {
        if self.sets.is_empty() {
            self.sets.resize(SETS_MIN, [None; WAYS]);
        }
        while !self.place(now, Conversation { tuple, used_at: now }) {
            self.grow(now);
        }
    }

    /// Puts a conversation into its set. Returns `false` if the set is full and the table can grow.
    /// If the table cannot grow, evicts the conversation of the set that was unused for longest.
    fn place(&mut self, now: Instant, new: Conversation) -> bool {
        let Some(at) = self.set_of(&new.tuple) else { return false };
        let is_last = self.sets.len() >= SETS_MAX;
        let set = &mut self.sets[at];
        let same = set.iter().position(|place| place.is_some_and(|known| known.tuple == new.tuple));
        let free = || set.iter().position(|place| place.is_none_or(|known| !known.is_fresh(now)));
        let oldest = || {
            let used_at = |place: &usize| set[*place].map(|known| known.used_at);
            (0..WAYS).min_by_key(used_at).filter(|_| is_last)
        };
        let place = same.or_else(free).or_else(oldest);
        if let Some(place) = place {
            set[place] = Some(new);
        }
        place.is_some()
    }

    /// Doubles the number of sets.
    fn grow(&mut self, now: Instant) {
        let sets = vec![[None; WAYS]; self.sets.len() * 2];
        let before = std::mem::replace(&mut self.sets, sets);
        for known in before.into_iter().flatten().flatten().filter(|known| known.is_fresh(now)) {
            // Each new set receives from only one old set, so there is always a place.
            self.place(now, known);
        }
    }

    fn set_of(&self, tuple: &Tuple) -> Option<usize> {
        let mask = self.sets.len().checked_sub(1)?;
        #[expect(clippy::cast_possible_truncation, reason = "fewer sets than 32 bits count")]
        let hash = tuple.hash(self.secret) as u32;
        Some(hash as usize & mask)
    }
}

impl Conversation {
    fn is_fresh(&self, now: Instant) -> bool {
        let lasts = match self.tuple.protocol {
            TCP => TCP_FOR,
            UDP => UDP_FOR,
            ICMP | ICMPV6 => ICMP_FOR,
            _ => OTHER_FOR,
        };
        now.saturating_since(self.used_at) < lasts
    }
}

/// The conversation of a packet: by its ports, for an echo by its identifier, and otherwise by its
/// addresses and protocol. `None` for packets that are neither a request nor a reply.
fn conversation(packet: &InnerPacket<'_>, way: Direction) -> Option<Tuple> {
    let headers = &packet.headers;
    let of_ports = |from, to| {
        let ports = Some((from, to));
        Tuple::of(&Headers { ports, ..*headers }, way)
    };
    match (headers.protocol, headers.transport) {
        // A later fragment has no ports. Its first fragment is checked by its ports.
        (_, None) => of_ports(0, 0),
        // No host uses port 0 (RFC 6335, section 6), so it stands for fragments here.
        (TCP | UDP, Some(_)) => {
            let ports = headers.ports.filter(|&(from, to)| from != 0 && to != 0);
            ports.and_then(|_| Tuple::of(headers, way))
        }
        (ICMP | ICMPV6, Some(at)) => {
            let (question, reply) = if headers.protocol == ICMP { (8, 0) } else { (128, 129) };
            let wanted = if way == Direction::Out { question } else { reply };
            let &[kind, _, _, _, high, low] = packet.pieces.head.get(at..)?.first_chunk()?;
            let identifier = u16::from_be_bytes([high, low]);
            // The port 1 keeps the identifier 0 from meaning fragments.
            let ports = if way == Direction::Out { (identifier, 1) } else { (1, identifier) };
            (kind == wanted).then(|| of_ports(ports.0, ports.1)).flatten()
        }
        (_, Some(_)) => of_ports(0, 0),
    }
}

/// The same conversation as its later fragments identify it, without ports.
fn fragments_of(tuple: &Tuple) -> Tuple {
    let Tuple { local, remote, protocol } = *tuple;
    Tuple { local: (local.0, 0), remote: (remote.0, 0), protocol }
}

/// The packet that an ICMP error is about (RFC 792; RFC 4443, section 2.1).
fn quoted<'a>(packet: &InnerPacket<'a>) -> Option<InnerPacket<'a>> {
    const HEADER: usize = 8;
    let message = packet.pieces.head.get(packet.headers.transport?..)?;
    let is_error = match (packet.headers.protocol, *message.first()?) {
        (ICMP, kind) => matches!(kind, 3 | 11 | 12),
        (ICMPV6, kind) => matches!(kind, 1..=4),
        _ => false,
    };
    let quoted = message.get(HEADER..).filter(|_| is_error)?;
    let headers = Headers::parse(quoted, declared_len(quoted)?).ok()?;
    Some(InnerPacket::read(headers, Pieces::whole(quoted)))
}

/// Whether a TCP segment opens a connection: SYN without ACK. A segment too short for flags counts
/// as opening one.
fn opens_connection(packet: &InnerPacket<'_>) -> bool {
    const FLAGS_AT: usize = 13;
    const SYN: u8 = 0x02;
    const ACK: u8 = 0x10;
    let (TCP, Some(at)) = (packet.headers.protocol, packet.headers.transport) else { return false };
    packet.pieces.head.get(at + FLAGS_AT).is_none_or(|flags| flags & (SYN | ACK) == SYN)
}

#[cfg(test)]
#[path = "answers_tests.rs"]
mod tests;
