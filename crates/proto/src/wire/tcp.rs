//! TCP segments (RFC 9293) as the tunnel sees them between two ends that know nothing of it: a view
//! of a header, made once; headers written for segments that the tunnel sends itself; and small
//! changes made to one in place, checksum mended.
//!
//! Knows the layout, the timestamps option (RFC 7323), window scaling (RFC 7323) and selective
//! acknowledgements (RFC 2018). Payload is never touched.

use std::net::IpAddr;
use std::ops::Range;

use super::checksum::{Sum, mended};
pub use super::flags::Flags;
use super::inner::{IPV4_HEADER, IPV6_HEADER, InnerPacket, TCP, TCP_HEADER};

/// Bytes of a header without options.
pub const HEADER: usize = TCP_HEADER;
/// Bytes of the longest header.
pub(crate) const HEADER_MAX: usize = 60;
/// Blocks of one selective acknowledgement.
pub(crate) const SACK_MAX: usize = 4;

/// No TCP is asked for segments smaller than this (RFC 9293's default less options).
const MSS_MIN: u16 = 500;
/// The largest window scale that means anything (RFC 7323, 2.3).
const SCALE_MAX: u8 = 14;
const OPTION_END: u8 = 0;
const OPTION_NOP: u8 = 1;
const OPTION_MSS: u8 = 2;
const OPTION_SCALE: u8 = 3;
const OPTION_SACK_PERMITTED: u8 = 4;
const OPTION_SACK: u8 = 5;
const OPTION_TIMESTAMPS: u8 = 8;
const OPTION_MD5: u8 = 19;
const OPTION_AO: u8 = 29;
const OPTION_MPTCP: u8 = 30;
/// Two bytes of padding, then the option: as every system writes it, so that it lies at one place.
const TIMESTAMPS_LEAD: [u8; 4] = [OPTION_NOP, OPTION_NOP, OPTION_TIMESTAMPS, 10];
/// Bytes that clocks take of each segment.
pub(crate) const TIMESTAMPS_PADDED: usize = 12;
/// Hops that a segment of the tunnel's own may go: the usual first value.
const HOPS: u8 = 64;

/// A number in a stream's sequence space, which wraps (RFC 9293, 3.4).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Seq(pub u32);

impl Seq {
    /// The number `bytes` further.
    #[must_use]
    pub const fn plus(self, bytes: u32) -> Self {
        Self(self.0.wrapping_add(bytes))
    }

    /// The number `bytes` back.
    #[must_use]
    pub(crate) const fn minus(self, bytes: u32) -> Self {
        Self(self.0.wrapping_sub(bytes))
    }

    /// Bytes from `earlier` to here; negative when it is later.
    pub const fn since(self, earlier: Self) -> i32 {
        self.0.wrapping_sub(earlier.0).cast_signed()
    }

    /// Bytes from `earlier` to here, none when it is later.
    pub const fn beyond(self, earlier: Self) -> u32 {
        let since = self.since(earlier);
        if since > 0 { since.cast_unsigned() } else { 0 }
    }

    /// Whether this number comes before `other`.
    pub const fn is_before(self, other: Self) -> bool {
        self.since(other) < 0
    }

    /// The later of the two.
    #[must_use]
    pub const fn max(self, other: Self) -> Self {
        if self.is_before(other) { other } else { self }
    }

    /// The earlier of the two.
    #[must_use]
    pub const fn min(self, other: Self) -> Self {
        if self.is_before(other) { self } else { other }
    }
}

/// A timestamps option.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Timestamps {
    /// The sender's clock.
    pub value: u32,
    /// What it heard of the other's.
    pub echo: u32,
}

/// A segment's header, read once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// Number of the first byte, or of the SYN.
    pub seq: Seq,
    /// The first byte that the sender of this misses.
    pub ack: Seq,
    /// What it is for.
    pub flags: Flags,
    /// The window, not scaled.
    pub window: u16,
    /// Clocks, where both ends keep them.
    pub timestamps: Option<Timestamps>,
    /// Bytes of payload.
    pub len: u16,
    /// Where the header begins within the packet.
    at: usize,
    /// Bytes of the header.
    header: usize,
}

/// What only a SYN says.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Opening {
    /// The largest segment that its sender takes, in bytes.
    pub mss: Option<u16>,
    /// By how many bits its windows are to be shifted.
    pub scale: Option<u8>,
    /// Whether it understands selective acknowledgements.
    pub sack: bool,
    /// Whether segments are signed, or belong to a connection of several: nobody else can make
    /// any.
    pub closed_to_others: bool,
}

impl Segment {
    /// Reads the TCP header of a packet. `None` when it is no TCP, or cut short: then nothing is
    /// known of it, and it is left alone.
    pub fn parse(packet: &InnerPacket<'_>) -> Option<Self> {
        let at = packet.headers.transport.filter(|_| packet.is_tcp())?;
        let tcp = packet.pieces.head.get(at..)?;
        let fixed = tcp.first_chunk::<HEADER>()?;
        let header = usize::from(fixed[12] >> 4) * 4;
        let len = packet.len().checked_sub(at + header)?;
        if header < HEADER || tcp.len() < header {
            return None;
        }
        let word = |at: usize| u16::from_be_bytes([fixed[at], fixed[at + 1]]);
        let long = |at: usize| u32::from(word(at)) << 16 | u32::from(word(at + 2));
        Some(Self {
            seq: Seq(long(4)),
            ack: Seq(long(8)),
            flags: Flags(fixed[13]),
            window: word(14),
            timestamps: find_timestamps(&tcp[HEADER..header]).map(|(_, found)| found),
            len: u16::try_from(len).ok()?,
            at,
            header,
        })
    }

    /// The segment with so many more bytes of payload, which lie elsewhere.
    #[must_use]
    pub(crate) fn longer(self, more: usize) -> Self {
        Self { len: self.len.saturating_add(u16::try_from(more).unwrap_or(u16::MAX)), ..self }
    }

    /// The number after the last that the segment takes up: SYN and FIN take one each.
    pub const fn end(&self) -> Seq {
        let extra = self.flags.has(Flags::SYN) as u32 + self.flags.has(Flags::FIN) as u32;
        self.seq.plus(self.len as u32 + extra)
    }

    /// Where the header begins within the packet.
    pub const fn at(&self) -> usize {
        self.at
    }

    /// Where the payload lies in the packet.
    pub const fn payload(&self) -> Range<usize> {
        let start = self.at + self.header;
        start..start + self.len as usize
    }

    /// What a SYN says beside.
    pub fn opening(&self, packet: &InnerPacket<'_>) -> Opening {
        let mut opening = Opening::default();
        let options = packet.pieces.head.get(self.at + HEADER..self.at + self.header);
        for (kind, _, body) in Options(options.unwrap_or_default(), 0) {
            match (kind, body) {
                (OPTION_MSS, &[high, low]) => {
                    opening.mss = Some(u16::from_be_bytes([high, low]));
                }
                (OPTION_SCALE, &[scale]) => opening.scale = Some(scale.min(SCALE_MAX)),
                (OPTION_SACK_PERMITTED, []) => opening.sack = true,
                (OPTION_MD5 | OPTION_AO | OPTION_MPTCP, _) => opening.closed_to_others = true,
                _ => {}
            }
        }
        opening
    }

    /// The ranges that arrived out of order: from, to.
    pub fn sacked<'a>(&self, packet: &InnerPacket<'a>) -> impl Iterator<Item = (Seq, Seq)> + 'a {
        let options = packet.pieces.head.get(self.at + HEADER..self.at + self.header);
        let options = options.unwrap_or_default();
        let blocks = Options(options, 0).filter(|&(kind, ..)| kind == OPTION_SACK);
        blocks.flat_map(|(_, _, body)| body.as_chunks::<8>().0).take(SACK_MAX).map(|block| {
            let [a, b, c, d, e, f, g, h] = *block;
            (Seq(u32::from_be_bytes([a, b, c, d])), Seq(u32::from_be_bytes([e, f, g, h])))
        })
    }

    /// The sum of the payload alone, as the segment's checksum declares it: nothing of the payload
    /// is read, so this costs the same for all lengths. It can be held against the bytes later.
    pub fn declared_sum(&self, packet: &InnerPacket<'_>) -> u16 {
        let header = packet.pieces.head.get(self.at..self.at + self.header).unwrap_or_default();
        let (source, destination) = (packet.headers.source, packet.headers.destination);
        let length = u16::try_from(self.header).unwrap_or(0) + self.len;
        let rest = Sum::default().pseudo(source, destination, TCP, length).bytes(header);
        // All together is zero; so the payload is what the rest lacks.
        Sum::default().without(rest.folded()).folded()
    }

    /// Changes `packet`, or the headers of it, which this was read from, and mends the checksum.
    pub fn rewrite(&self, packet: &mut [u8], what: &Rewrite) {
        let Some(tcp) = packet.get_mut(self.at..self.at + self.header) else { return };
        if let Some(ack) = what.ack {
            overwrite(tcp, 8, &ack.0.to_be_bytes());
        }
        if let Some(window) = what.window {
            overwrite(tcp, 14, &window.to_be_bytes());
        }
        for (offset, value) in [(0, what.clock), (4, what.echo)] {
            if let Some(value) = value
                && let Some((place, _)) = find_timestamps(&tcp[HEADER..])
            {
                overwrite(tcp, HEADER + place + offset, &value.to_be_bytes());
            }
        }
        let mut options = Options(&tcp[HEADER..], 0);
        if what.removes_sacks
            && let Some((_, at, body)) = options.find(|&(kind, ..)| kind == OPTION_SACK)
        {
            let padding = &[OPTION_NOP; HEADER_MAX - HEADER][..2 + body.len()];
            overwrite(tcp, HEADER + at, padding);
        }
    }
}

/// What is changed of a segment that is passed on: what is `None` stays.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Rewrite {
    /// The acknowledgement number.
    pub ack: Option<Seq>,
    /// The window, not scaled.
    pub window: Option<u16>,
    /// The clock of its sender, where it has one.
    pub clock: Option<u32>,
    /// What was heard of the other's, where it has that.
    pub echo: Option<u32>,
    /// Whether padding stands in the place of selective acknowledgements.
    pub removes_sacks: bool,
}

/// Lowers the segment size in the SYN `packet` (RFC 9293, 3.7.1), whose TCP header starts at `at`,
/// so that a segment makes an inner packet of at most `packet_max` bytes, and bulk flows are never
/// split in pieces. A packet without the option, or with a smaller value, is left alone.
pub fn clamp(packet: &mut [u8], at: usize, packet_max: usize) {
    let Some(tcp) = packet.get_mut(at..).filter(|tcp| tcp.len() >= HEADER) else { return };
    let limit = packet_max.checked_sub(at + HEADER).and_then(|most| u16::try_from(most).ok());
    let Some(limit) = limit.map(|limit| limit.max(MSS_MIN)) else { return };
    let header = (usize::from(tcp[12] >> 4) * 4).min(tcp.len());
    let options = tcp.get(HEADER..header).unwrap_or_default();
    let found = Options(options, 0).find_map(|(kind, at, body)| match (kind, body) {
        (OPTION_MSS, &[high, low]) => Some((at, u16::from_be_bytes([high, low]))),
        _ => None,
    });
    if let Some((at, announced)) = found
        && announced > limit
    {
        overwrite(tcp, HEADER + at + 2, &limit.to_be_bytes());
    }
}

/// Puts bytes into a TCP header, and mends its checksum.
fn overwrite(tcp: &mut [u8], at: usize, new: &[u8]) {
    for (offset, &byte) in (at..).zip(new) {
        let even = offset & !1;
        let old = [tcp[even], tcp[even + 1]];
        let mut word = old;
        word[offset & 1] = byte;
        tcp[offset] = byte;
        let checksum = u16::from_be_bytes([tcp[16], tcp[17]]);
        let checksum = mended(checksum, u16::from_be_bytes(old), u16::from_be_bytes(word));
        tcp[16..18].copy_from_slice(&checksum.to_be_bytes());
    }
}

/// The options of a header: kind, place, body. Ends at the first that is malformed.
struct Options<'a>(&'a [u8], usize);

impl<'a> Iterator for Options<'a> {
    type Item = (u8, usize, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let at = self.1;
            match *self.0.get(at)? {
                OPTION_END => return None,
                OPTION_NOP => self.1 += 1,
                kind => {
                    let length = usize::from(*self.0.get(at + 1)?);
                    let body = self.0.get(at..at + length)?.get(2..)?;
                    self.1 += length;
                    return Some((kind, at, body));
                }
            }
        }
    }
}

/// The place of the timestamps' values among options, and the option.
fn find_timestamps(options: &[u8]) -> Option<(usize, Timestamps)> {
    let read = |body: &[u8]| {
        let &[a, b, c, d, e, f, g, h] = body.first_chunk::<8>()?;
        let value = u32::from_be_bytes([a, b, c, d]);
        Some(Timestamps { value, echo: u32::from_be_bytes([e, f, g, h]) })
    };
    if options.starts_with(&TIMESTAMPS_LEAD) {
        return Some((TIMESTAMPS_LEAD.len(), read(&options[TIMESTAMPS_LEAD.len()..])?));
    }
    let (_, at, body) = Options(options, 0).find(|&(kind, ..)| kind == OPTION_TIMESTAMPS)?;
    Some((at + 2, read(body)?))
}

/// Between whom a segment of the tunnel's own goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ends {
    /// Who seems to send it: address and port.
    pub source: (IpAddr, u16),
    /// Who receives it.
    pub destination: (IpAddr, u16),
}

/// A segment of the tunnel's own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Made {
    /// Between whom.
    pub ends: Ends,
    /// See [`Segment::seq`].
    pub seq: Seq,
    /// See [`Segment::ack`].
    pub ack: Seq,
    /// See [`Segment::flags`].
    pub flags: Flags,
    /// The window, not scaled.
    pub window: u16,
    /// Clocks, where both ends keep them.
    pub timestamps: Option<Timestamps>,
}

impl Made {
    /// Appends the packet to `out`: IP header, TCP header, the payload in its two pieces. Both ends
    /// must be of one family.
    pub fn emit(&self, payload: (&[u8], &[u8]), out: &mut Vec<u8>) {
        let options = if self.timestamps.is_some() { TIMESTAMPS_PADDED } else { 0 };
        let header = HEADER + options;
        let length = u16::try_from(header + payload.0.len() + payload.1.len()).unwrap_or(0);
        let Ends { source, destination } = self.ends;
        emit_ip(source.0, destination.0, TCP, length, out);
        let at = out.len();
        out.extend_from_slice(&source.1.to_be_bytes());
        out.extend_from_slice(&destination.1.to_be_bytes());
        out.extend_from_slice(&self.seq.0.to_be_bytes());
        out.extend_from_slice(&self.ack.0.to_be_bytes());
        #[expect(clippy::cast_possible_truncation, reason = "at most 8 words")]
        let words = (header / 4) as u8;
        out.extend_from_slice(&[words << 4, self.flags.0]);
        out.extend_from_slice(&self.window.to_be_bytes());
        out.extend_from_slice(&[0; 4]); // checksum, urgent pointer
        if let Some(Timestamps { value, echo }) = self.timestamps {
            out.extend_from_slice(&TIMESTAMPS_LEAD);
            out.extend_from_slice(&value.to_be_bytes());
            out.extend_from_slice(&echo.to_be_bytes());
        }
        out.extend_from_slice(payload.0);
        out.extend_from_slice(payload.1);
        let sum = Sum::default().pseudo(source.0, destination.0, TCP, length);
        let checksum = sum.bytes(&out[at..]).checksum();
        out[at + 16..at + 18].copy_from_slice(&checksum.to_be_bytes());
    }

    /// Bytes of the packet around its payload.
    pub const fn overhead(&self) -> usize {
        let ip = if self.ends.source.0.is_ipv4() { IPV4_HEADER } else { IPV6_HEADER };
        let options = if self.timestamps.is_some() { TIMESTAMPS_PADDED } else { 0 };
        ip + HEADER + options
    }
}

/// An IP header for `length` bytes of `protocol` (RFC 791, RFC 8200); IPv4 that must not be
/// fragmented, and so needs no identification (RFC 6864).
pub(super) fn emit_ip(
    source: IpAddr,
    destination: IpAddr,
    protocol: u8,
    length: u16,
    out: &mut Vec<u8>,
) {
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let at = out.len();
            let total = u16::try_from(IPV4_HEADER).unwrap_or(0) + length;
            out.extend_from_slice(&[0x45, 0]);
            out.extend_from_slice(&total.to_be_bytes());
            out.extend_from_slice(&[0, 0, 0x40, 0, HOPS, protocol, 0, 0]);
            out.extend_from_slice(&source.octets());
            out.extend_from_slice(&destination.octets());
            let checksum = Sum::default().bytes(&out[at..]).checksum();
            out[at + 10..at + 12].copy_from_slice(&checksum.to_be_bytes());
        }
        (source, destination) => {
            let octets = |address: IpAddr| match address {
                IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
                IpAddr::V6(v6) => v6.octets(),
            };
            out.extend_from_slice(&[0x60, 0, 0, 0]);
            out.extend_from_slice(&length.to_be_bytes());
            out.extend_from_slice(&[protocol, HOPS]);
            out.extend_from_slice(&octets(source));
            out.extend_from_slice(&octets(destination));
        }
    }
}

#[cfg(test)]
#[path = "clamp_tests.rs"]
mod clamp_tests;
#[cfg(test)]
#[path = "tcp_tests.rs"]
mod tests;
