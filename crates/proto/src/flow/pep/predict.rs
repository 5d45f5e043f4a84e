//! Whether a packet is the next of the same stream as the one before it: header prediction, as a
//! TCP does it (Jacobson, in 4.3BSD; `tcp_rcv_established` of Linux).
//!
//! Packets come in runs, cut from what one side sent at once: their headers differ in nothing but
//! the number, the identification and the sums. Comparing some fifty bytes is all that it takes to
//! know of such a one which connection it is of and what it says. Knows nothing of how far that
//! connection is: whether the number is the next is for `tcp` to say.

use crate::id::FlowId;
use crate::wire::inner::{IPV4_HEADER, IPV6_HEADER, Pieces};
use crate::wire::tcp::{Flags, HEADER_MAX, Segment};

/// Bytes of the longest headers that are predicted: no options of IPv4, no extensions of IPv6.
const HEAD_MAX: usize = IPV6_HEADER + HEADER_MAX;
/// Where the sequence number is within a TCP header,
const SEQ: usize = 4;
/// the flags,
const FLAGS: usize = 13;
/// and the checksum.
const CHECKSUM: usize = 16;
/// What need not be the same in an IPv4 header: identification and checksum.
const MASK_IPV4: [u8; HEAD_MAX] = mask(IPV4_HEADER, &[4, 5, 10, 11]);
/// In an IPv6 header all is the same.
const MASK_IPV6: [u8; HEAD_MAX] = mask(IPV6_HEADER, &[]);

/// What the next packet of a stream looks like.
#[derive(Debug)]
pub(in crate::flow) struct Prediction {
    id: FlowId,
    /// What the last one said.
    segment: Segment,
    /// Bytes of the packet.
    packet_len: usize,
    /// Where its TCP header begins.
    tcp: usize,
    /// Its headers, so many bytes.
    head: [u8; HEAD_MAX],
    head_len: usize,
    mask: &'static [u8; HEAD_MAX],
}

impl Prediction {
    /// What follows `packet`, whose TCP header is `segment`, of the connection `id`. `None`
    /// where that is not said by its headers: it has no payload, or says more than that.
    pub(crate) fn after(id: FlowId, segment: &Segment, packet: Pieces<'_>) -> Option<Self> {
        let is_plain = segment.flags.without(Flags::PSH) == Flags::ACK && segment.len > 0;
        let (tcp, mask) = match segment.at() {
            IPV4_HEADER => (IPV4_HEADER, &MASK_IPV4),
            IPV6_HEADER => (IPV6_HEADER, &MASK_IPV6),
            _ => return None,
        };
        let head_len = segment.payload().start;
        let bytes = packet.head.get(..head_len).filter(|_| is_plain)?;
        let mut head = [0; HEAD_MAX];
        head.get_mut(..head_len)?.copy_from_slice(bytes);
        let (segment, packet_len) = (*segment, packet.len());
        Some(Self { id, segment, packet_len, tcp, head, head_len, mask })
    }

    /// The connection of `packet`, and what it says, if it looks as predicted but for its
    /// number, which nobody has looked at.
    #[inline]
    pub(crate) fn matches(&mut self, packet: Pieces<'_>) -> Option<(FlowId, &Segment)> {
        let head = packet.head.get(..self.head_len)?;
        if packet.len() != self.packet_len {
            return None;
        }
        let words = head.as_chunks::<4>().0.iter().zip(self.head.as_chunks::<4>().0);
        let differs =
            words.zip(self.mask.as_chunks::<4>().0).fold(0, |differs, ((is, was), mask)| {
                let [is, was, mask] = [is, was, mask].map(|word| u32::from_ne_bytes(*word));
                differs | ((is ^ was) & mask)
            });
        if differs != 0 {
            return None;
        }
        let tcp = head.get(self.tcp..)?.first_chunk::<{ FLAGS + 1 }>()?;
        let seq = [tcp[SEQ], tcp[SEQ + 1], tcp[SEQ + 2], tcp[SEQ + 3]];
        self.segment.seq.0 = u32::from_be_bytes(seq);
        self.segment.flags.0 = tcp[FLAGS];
        Some((self.id, &self.segment))
    }
}

/// Ones where headers of IP and TCP have to be the same: that of IP has `ip` bytes, of which those
/// at `but` vary.
const fn mask(ip: usize, but: &[usize]) -> [u8; HEAD_MAX] {
    let mut mask = [0xff; HEAD_MAX];
    let mut at = 0;
    while at < but.len() {
        mask[but[at]] = 0;
        at += 1;
    }
    at = 0;
    while at < 4 {
        mask[ip + SEQ + at] = 0;
        at += 1;
    }
    mask[ip + FLAGS] = !Flags::PSH.0;
    mask[ip + CHECKSUM] = 0;
    mask[ip + CHECKSUM + 1] = 0;
    mask
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::pep::tcp::Connection;
    use crate::flow::rules::Rules;
    use crate::flow::table::Table;
    use crate::flow::tuple::Tuple;
    use crate::time::Instant;
    use crate::wire::inner::{InnerPacket, TCP};
    use crate::wire::tcp::{Ends, Made, Seq, Timestamps};
    use std::net::IpAddr;

    /// The name of some connection.
    fn id() -> FlowId {
        let end = ([10, 77, 0, 2].into(), 443);
        let tuple = Tuple { local: end, remote: end, protocol: TCP };
        let flow = Connection::new(tuple, &Rules::default(), Instant::ZERO);
        Table::new(1).insert(flow).unwrap()
    }

    /// A packet with ten bytes of payload, and a clock if `clocked`.
    fn packet(addresses: [IpAddr; 2], clocked: bool) -> Vec<u8> {
        let [source, destination] = addresses.map(|address| (address, 443));
        let mut packet = Vec::new();
        let made = Made {
            ends: Ends { source, destination },
            seq: Seq(u32::MAX - 7),
            ack: Seq(70_000),
            flags: Flags::ACK,
            window: 512,
            timestamps: clocked.then_some(Timestamps { value: 8, echo: 9 }),
        };
        made.emit((b"0123456789", &[]), &mut packet);
        packet
    }

    fn parse(packet: &[u8]) -> Option<Segment> {
        Segment::parse(&InnerPacket::whole(packet).ok()?)
    }

    #[test]
    fn whichever_bit_of_a_header_is_another_it_is_seen_or_read() {
        let v4: [IpAddr; 2] = [[10, 77, 0, 2].into(), [192, 0, 2, 80].into()];
        let v6: [IpAddr; 2] = ["fd77::2".parse().unwrap(), "2001:db8::80".parse().unwrap()];
        let all = [v4, v6].map(|addresses| [true, false].map(|it| packet(addresses, it)));
        for first in all.iter().flatten() {
            let segment = parse(first).unwrap();
            let whole = Pieces::whole(first);
            let mut prediction = Prediction::after(id(), &segment, whole).unwrap();
            assert_eq!(prediction.matches(whole), Some((id(), &segment)));
            let (tcp, head) = (segment.at(), segment.payload().start);
            let mut passed = Vec::new();
            for bit in 0..head * 8 {
                let mut other = first.clone();
                other[bit / 8] ^= 1 << (bit % 8);
                if let Some((at, read)) = prediction.matches(Pieces::whole(&other)) {
                    assert_eq!((at, Some(*read)), (id(), parse(&other)), "bit {bit}");
                    passed.push(bit);
                }
            }
            let of = |bytes: std::ops::Range<usize>| bytes.start * 8..bytes.end * 8;
            let mut free: Vec<usize> = of(tcp + 4..tcp + 8).chain(of(tcp + 16..tcp + 18)).collect();
            free.push((tcp + FLAGS) * 8 + 3); // PSH
            if tcp == IPV4_HEADER {
                free.extend(of(4..6).chain(of(10..12)));
            }
            free.sort_unstable();
            assert_eq!(passed, free);
        }
    }

    #[test]
    fn another_length_is_not_the_same_and_nothing_follows_what_has_no_payload() {
        let first = packet([[10, 77, 0, 2].into(), [192, 0, 2, 80].into()], true);
        let segment = parse(&first).unwrap();
        let mut prediction = Prediction::after(id(), &segment, Pieces::whole(&first)).unwrap();
        for len in 0..first.len() {
            assert_eq!(prediction.matches(Pieces::whole(&first[..len])), None);
        }
        let cut = Pieces::cut(&first[..segment.payload().start], b"9876543210");
        assert_eq!(prediction.matches(cut), Some((id(), &segment)));
        let all = Flags::ACK.and(Flags::PSH);
        for (flags, is_plain) in [(all, true), (all.and(Flags::FIN), false), (Flags::ACK, true)] {
            let mut segment = segment;
            segment.flags = flags;
            let next = Prediction::after(id(), &segment, Pieces::whole(&first));
            assert_eq!(next.is_some(), is_plain);
            segment.len = 0;
            assert!(Prediction::after(id(), &segment, cut).is_none());
        }
    }
}
