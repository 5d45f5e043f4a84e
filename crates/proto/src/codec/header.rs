//! Elision of headers after RFC 8724: a template holds the fields that all packets of a flow have
//! in common, and a packet travels as the fields that vary and its payload
//! (docs/spec/wire.md#compact-packets).
//!
//! What is restored is byte for byte what was elided. So a packet fits a template only if all that
//! does not travel follows from the template and the length: lengths, and checksums that are right.
//! Everything else travels whole: fragments, IP options, extension headers, other TCP options, a
//! wrong checksum.
//!
//! Restoring makes no checksum of the transport. The device needs none for packets that it joins to
//! one super-packet, and makes that of all others.

use crate::error::DropReason;
use crate::packet::Checksum;
use crate::wire::checksum::Sum;
use crate::wire::inner::{
    IPV4_HEADER, IPV6_HEADER, MAX_PACKET, Pieces, TCP, TCP_HEADER, UDP, UDP_HEADER,
};

/// Bytes of the longest template: IPv6, TCP, timestamps.
pub const HEADER_MAX: usize = IPV6_HEADER + TCP_HEADER + CLOCKS;
const _: () = assert!(HEADER_MAX.is_multiple_of(4), "headers are compared in words");
/// Bytes of the fixed RTP header (RFC 3550, section 5.1).
const RTP_HEADER: usize = 12;
/// Bytes of the timestamps option with its padding (RFC 7323, appendix A), and how they begin.
const CLOCKS: usize = 12;
const CLOCKS_LEAD: [u8; 4] = [1, 1, 8, 10];
/// How selective acknowledgements begin with their padding (RFC 2018, section 3); a length follows.
const SACK_LEAD: [u8; 3] = [1, 1, 5];
const SACK_BLOCK: usize = 8;
const SACK_BLOCKS_MAX: usize = 4;
/// Payload types that are RTCP's where both share a port (RFC 5761, section 4).
const OF_RTCP: std::ops::RangeInclusive<u8> = 64..=95;

/// Bits of a template's form.
mod form {
    pub(super) const SACKS: u8 = 1;
    pub(super) const RTP: u8 = 2;
    pub(super) const NO_CHECKSUM: u8 = 4;
}

/// Which headers there are, and so which fields vary.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Shape {
    is_v6: bool,
    upper: Upper,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Upper {
    /// With timestamps or without; with SACK blocks behind them, whose number varies, or without.
    Tcp { clocks: bool, sacks: bool },
    /// With an RTP header behind it or without. Over IPv4 there may be no checksum (RFC 768).
    Udp { is_rtp: bool, has_checksum: bool },
}

impl Shape {
    /// The shape of the packet that begins with `head`; `None` if it can only travel whole. Where
    /// the flow `is_rtp`, the RTP header is part of it.
    fn of(head: &[u8], is_rtp: bool) -> Option<Self> {
        let (is_v6, protocol) = ip_of(head)?;
        let upper = head.get(ip_len(is_v6)..)?;
        let upper = match protocol {
            TCP => tcp_of(upper)?,
            UDP => {
                let fixed = upper.first_chunk::<UDP_HEADER>()?;
                let has_checksum = is_v6 || fixed[6..] != [0, 0];
                Upper::Udp { is_rtp: is_rtp && looks_like_rtp(&upper[UDP_HEADER..]), has_checksum }
            }
            _ => return None,
        };
        Some(Self { is_v6, upper })
    }

    /// Where the transport header begins.
    const fn transport(self) -> usize {
        ip_len(self.is_v6)
    }

    /// Bytes of the headers, without SACK blocks.
    const fn len(self) -> usize {
        self.transport()
            + match self.upper {
                Upper::Tcp { clocks: true, .. } => TCP_HEADER + CLOCKS,
                Upper::Tcp { clocks: false, .. } => TCP_HEADER,
                Upper::Udp { is_rtp: true, .. } => UDP_HEADER + RTP_HEADER,
                Upper::Udp { is_rtp: false, .. } => UDP_HEADER,
            }
    }

    /// Bytes of the fields that vary, without SACK blocks.
    const fn fields(self) -> usize {
        let ip = if self.is_v6 { 1 } else { 3 };
        ip + match self.upper {
            Upper::Tcp { clocks, sacks } => {
                11 + (if clocks { 8 } else { 0 }) + (if sacks { 1 } else { 0 })
            }
            Upper::Udp { is_rtp: true, .. } => 7,
            Upper::Udp { is_rtp: false, .. } => 0,
        }
    }

    const fn protocol(self) -> u8 {
        match self.upper {
            Upper::Tcp { .. } => TCP,
            Upper::Udp { .. } => UDP,
        }
    }

    /// What the shape does not show of itself in the headers.
    const fn form(self) -> u8 {
        match self.upper {
            Upper::Tcp { sacks: true, .. } => form::SACKS,
            Upper::Tcp { sacks: false, .. } => 0,
            Upper::Udp { is_rtp, has_checksum } => {
                (if is_rtp { form::RTP } else { 0 })
                    | (if has_checksum { 0 } else { form::NO_CHECKSUM })
            }
        }
    }

    /// The shape of a template that a peer sent.
    fn of_template(header: &[u8], form: u8) -> Option<Self> {
        let (is_v6, protocol) = ip_of(header)?;
        let upper = match protocol {
            TCP => {
                let clocks = header.len() > ip_len(is_v6) + TCP_HEADER;
                Upper::Tcp { clocks, sacks: form & form::SACKS != 0 }
            }
            UDP => Upper::Udp {
                is_rtp: form & form::RTP != 0,
                has_checksum: form & form::NO_CHECKSUM == 0,
            },
            _ => return None,
        };
        let shape = Self { is_v6, upper };
        let has_sum = !is_v6 || form & form::NO_CHECKSUM == 0;
        (shape.form() == form && shape.len() == header.len() && has_sum).then_some(shape)
    }

    /// A set bit for each bit of the headers that stays the same.
    fn mask(self) -> [u8; HEADER_MAX] {
        let mut mask = [0; HEADER_MAX];
        mask[..self.len()].fill(0xff);
        let at = self.transport();
        if self.is_v6 {
            (mask[0], mask[1]) = (0xf0, 0x0f); // the traffic class lies across them
            mask[4..6].fill(0);
        } else {
            mask[1..6].fill(0);
            mask[10..12].fill(0);
        }
        match self.upper {
            Upper::Tcp { clocks, sacks } => {
                mask[at + 4..at + 12].fill(0);
                mask[at + 12] = if sacks { 0x0f } else { 0xff };
                mask[at + 13..at + 18].fill(0);
                if clocks {
                    mask[at + TCP_HEADER + CLOCKS_LEAD.len()..at + TCP_HEADER + CLOCKS].fill(0);
                }
            }
            Upper::Udp { is_rtp, has_checksum } => {
                mask[at + 4..at + 6].fill(0);
                mask[at + 6..at + 8].fill(if has_checksum { 0 } else { 0xff });
                if is_rtp {
                    mask[at + UDP_HEADER + 1..at + UDP_HEADER + 8].fill(0);
                }
            }
        }
        mask
    }
}

/// Bytes of the IP header.
const fn ip_len(is_v6: bool) -> usize {
    if is_v6 { IPV6_HEADER } else { IPV4_HEADER }
}

/// Whether it is IPv6, and its transport; `None` for fragments, options and extension headers,
/// which no transport's number looks like.
fn ip_of(head: &[u8]) -> Option<(bool, u8)> {
    match head.first()? {
        0x45 => {
            let fixed = head.first_chunk::<IPV4_HEADER>()?;
            let is_whole = fixed[6] & 0x3f == 0 && fixed[7] == 0;
            is_whole.then_some((false, fixed[9]))
        }
        0x60..=0x6f => head.first_chunk::<IPV6_HEADER>().map(|fixed| (true, fixed[6])),
        _ => None,
    }
}

/// The shape of a TCP header, if its options are those that travel in a template.
fn tcp_of(tcp: &[u8]) -> Option<Upper> {
    let fixed = tcp.first_chunk::<TCP_HEADER>()?;
    let options = tcp.get(TCP_HEADER..usize::from(fixed[12] >> 4) * 4)?;
    let clocks = options.starts_with(&CLOCKS_LEAD);
    let rest = if clocks { options.get(CLOCKS..)? } else { options };
    let sacks = !rest.is_empty();
    let is_urgent = fixed[18..] != [0, 0];
    (!is_urgent && (!sacks || sack_blocks(rest).is_some())).then_some(Upper::Tcp { clocks, sacks })
}

/// The blocks of a SACK option that is padded as usual and is all there is.
fn sack_blocks(options: &[u8]) -> Option<&[u8]> {
    let (&[a, b, kind, length], blocks) = options.split_first_chunk::<4>()?;
    let is_option = [a, b, kind] == SACK_LEAD && usize::from(length) == 2 + blocks.len();
    let count = blocks.len() / SACK_BLOCK;
    let is_whole = blocks.len().is_multiple_of(SACK_BLOCK);
    (is_option && is_whole && (1..=SACK_BLOCKS_MAX).contains(&count)).then_some(blocks)
}

fn looks_like_rtp(payload: &[u8]) -> bool {
    payload.len() >= RTP_HEADER && payload[0] >> 6 == 2 && !OF_RTCP.contains(&(payload[1] & 0x7f))
}

/// What the headers of a flow have in common.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Template {
    shape: Shape,
    /// The headers, zero where they vary.
    header: [u8; HEADER_MAX],
    mask: [u8; HEADER_MAX],
    /// The sum of the constant fields of an IPv4 header.
    ip_sum: u16,
}

impl Template {
    /// The template of a packet that begins with `head`; `None` if no packet like it can be elided.
    /// If its flow `is_rtp`, the RTP header is part of the template.
    pub fn of(head: &[u8], is_rtp: bool) -> Option<Self> {
        let shape = Shape::of(head, is_rtp)?;
        let mask = shape.mask();
        let mut header = [0; HEADER_MAX];
        for ((byte, &sent), &mask) in header.iter_mut().zip(&head[..shape.len()]).zip(&mask) {
            *byte = sent & mask;
        }
        Some(Self { shape, header, mask, ip_sum: ip_sum(&header) })
    }

    /// Reads a template that a peer sent.
    ///
    /// # Errors
    /// [`DropReason::BadFrame`] if it is not what [`Self::of`] makes of any packet.
    pub fn parse(form: u8, header: &[u8]) -> Result<Self, DropReason> {
        let shape = Shape::of_template(header, form).ok_or(DropReason::BadFrame)?;
        let mask = shape.mask();
        let mut whole = [0; HEADER_MAX];
        whole[..header.len()].copy_from_slice(header);
        let is_blank = whole.iter().zip(&mask).all(|(byte, mask)| byte & !mask == 0);
        let at = shape.transport();
        let are_options_right = match shape.upper {
            Upper::Tcp { clocks, sacks } => {
                let words = if sacks { 0 } else { (shape.len() - at) / 4 };
                let options = &header[at + TCP_HEADER..];
                usize::from(whole[at + 12] >> 4) == words
                    && whole[at + 18..at + 20] == [0, 0]
                    && (!clocks || options.starts_with(&CLOCKS_LEAD))
            }
            Upper::Udp { is_rtp, .. } => !is_rtp || whole[at + UDP_HEADER] >> 6 == 2,
        };
        let template = Self { shape, header: whole, mask, ip_sum: ip_sum(&whole) };
        (is_blank && are_options_right).then_some(template).ok_or(DropReason::BadFrame)
    }

    /// The form byte that [`Self::parse`] reads,
    pub const fn form(&self) -> u8 {
        self.shape.form()
    }

    /// and the headers.
    pub fn header(&self) -> &[u8] {
        &self.header[..self.shape.len()]
    }

    /// Whether the RTP header is part of it.
    pub const fn is_rtp(&self) -> bool {
        matches!(self.shape.upper, Upper::Udp { is_rtp: true, .. })
    }

    /// The source address.
    pub fn source(&self) -> std::net::IpAddr {
        if self.shape.is_v6 {
            let octets: [u8; 16] = self.header[8..24].try_into().unwrap_or_default();
            octets.into()
        } else {
            let octets: [u8; 4] = self.header[12..16].try_into().unwrap_or_default();
            octets.into()
        }
    }

    /// Whether both are templates of one flow: addresses, protocol and ports are the same.
    pub fn is_of_same_flow(&self, other: &Self) -> bool {
        let addresses = if self.shape.is_v6 { 8..IPV6_HEADER } else { 12..IPV4_HEADER };
        let at = self.shape.transport();
        self.shape.is_v6 == other.shape.is_v6
            && self.shape.protocol() == other.shape.protocol()
            && self.header[addresses.clone()] == other.header[addresses]
            && self.header[at..at + 4] == other.header[at..at + 4]
    }

    /// Whether the constant fields of the packet that begins with `head` are those of the template,
    /// and whether it has SACK blocks if the template is for those.
    #[inline]
    pub fn matches(&self, head: &[u8]) -> bool {
        let Some(fixed) = head.get(..self.shape.len()) else { return false };
        let words = fixed.as_chunks::<4>().0.iter().zip(self.header.as_chunks::<4>().0);
        let differ = words.zip(self.mask.as_chunks::<4>().0).fold(0, |all, ((is, was), mask)| {
            let [is, was, mask] = [is, was, mask].map(|word| u32::from_ne_bytes(*word));
            all | ((is ^ was) & mask)
        });
        differ == 0 && self.options(head).is_some()
    }

    /// The fields of `packet` that vary, if it [matches](Self::matches) and everything else about
    /// it can be restored.
    pub fn elide(&self, packet: Pieces<'_>) -> Option<Fields> {
        let head = packet.head;
        if head.len() < self.shape.len() {
            return None;
        }
        let options = self.options(head)?;
        if !self.are_lengths_right(packet) || !self.are_checksums_right(packet) {
            return None;
        }
        #[expect(clippy::cast_possible_truncation, reason = "at most four blocks")]
        let sacks = options.len() as u8;
        Some(Fields { shape: self.shape, sacks })
    }

    /// The SACK blocks, of a template with them; nothing of one without. `None` if the options are
    /// others.
    #[inline]
    fn options<'p>(&self, head: &'p [u8]) -> Option<&'p [u8]> {
        let Upper::Tcp { sacks: true, .. } = self.shape.upper else { return Some(&[]) };
        let at = self.shape.transport();
        let end = at + usize::from(head[at + 12] >> 4) * 4;
        sack_blocks(head.get(self.shape.len()..end)?)
    }

    /// Whether the lengths in the headers are those of the packet.
    #[inline]
    fn are_lengths_right(&self, packet: Pieces<'_>) -> bool {
        let (head, at, len) = (packet.head, self.shape.transport(), packet.len());
        let word = |at: usize| usize::from(u16::from_be_bytes([head[at], head[at + 1]]));
        let ip = if self.shape.is_v6 { word(4) + IPV6_HEADER } else { word(2) };
        let is_udp = self.shape.protocol() == UDP;
        ip == len && (!is_udp || word(at + 4) + at == len)
    }

    /// Whether the checksums are those that the receiver writes. Of the two ways to write zero it
    /// writes 0xffff, so a field that is 0 does not fit. The payload is only summed if the checksum
    /// is not known to be right.
    #[inline]
    fn are_checksums_right(&self, packet: Pieces<'_>) -> bool {
        let (head, at) = (packet.head, self.shape.transport());
        if let Some(ip) = head.first_chunk::<IPV4_HEADER>().filter(|_| !self.shape.is_v6)
            && (ip[10..12] == [0, 0] || Sum::default().bytes(ip).folded() != 0)
        {
            return false;
        }
        let field = match self.shape.upper {
            Upper::Tcp { .. } => at + 16,
            Upper::Udp { has_checksum: true, .. } => at + 6,
            Upper::Udp { has_checksum: false, .. } => return true,
        };
        let is_right = || self.sum(head, packet.tail).folded() == 0;
        head[field..field + 2] != [0, 0] && (packet.checksum == Checksum::Right || is_right())
    }

    /// The sum of pseudo header and transport of a packet in two pieces.
    fn sum(&self, head: &[u8], tail: &[u8]) -> Sum {
        let at = self.shape.transport();
        let addresses = if self.shape.is_v6 { 8..IPV6_HEADER } else { 12..IPV4_HEADER };
        let length = u16::try_from(head.len() + tail.len() - at).unwrap_or_default();
        let sum = Sum::default().bytes(&head[addresses]).word(self.shape.protocol().into());
        let sum = sum.word(length).bytes(&head[at..]);
        let rest = Sum::default().bytes(tail).folded();
        // Behind an odd number of bytes, the bytes of each word change places (RFC 1071, 2 (B)).
        sum.and(if head.len().is_multiple_of(2) { rest } else { rest.swap_bytes() })
    }

    /// The packet of which `body` has the fields that vary, and the payload. Its headers are put
    /// into `head`. Its checksum is [left out](Checksum::LeftOut), unless it has none.
    ///
    /// # Errors
    /// [`DropReason::BadFrame`] if `body` is too short, or the packet longer than any.
    pub fn restore<'p>(
        &self,
        body: &'p [u8],
        head: &'p mut Vec<u8>,
    ) -> Result<Pieces<'p>, DropReason> {
        let mut fields = Body(body);
        self.restore_headers(&mut fields, head)?;
        let Body(payload) = fields;
        let len = head.len() + payload.len();
        if len > MAX_PACKET {
            return Err(DropReason::BadFrame);
        }
        self.complete(head, len);
        let has_none = matches!(self.shape.upper, Upper::Udp { has_checksum: false, .. });
        let checksum = if has_none { Checksum::Unchecked } else { Checksum::LeftOut };
        if self.is_rtp() {
            head.extend_from_slice(payload); // where the RTP header may go on
            return Ok(Pieces::whole(head).with_checksum(checksum));
        }
        Ok(Pieces::cut(head, payload).with_checksum(checksum))
    }

    /// Puts headers into `head` that are whole but for lengths and checksums.
    fn restore_headers(&self, fields: &mut Body<'_>, head: &mut Vec<u8>) -> Result<(), DropReason> {
        let at = self.shape.transport();
        head.clear();
        head.extend_from_slice(self.header());
        if self.shape.is_v6 {
            let [class] = fields.take()?;
            head[0] |= class >> 4;
            head[1] |= class << 4;
        } else {
            [head[1], head[4], head[5]] = fields.take()?;
        }
        match self.shape.upper {
            Upper::Tcp { clocks, sacks } => {
                [head[at + 13]] = fields.take()?;
                head[at + 4..at + 12].copy_from_slice(&fields.take::<8>()?);
                head[at + 14..at + 16].copy_from_slice(&fields.take::<2>()?);
                if clocks {
                    let values = at + TCP_HEADER + CLOCKS_LEAD.len();
                    head[values..values + 8].copy_from_slice(&fields.take::<8>()?);
                }
                if sacks {
                    restore_sacks(fields, at, head)?;
                }
            }
            Upper::Udp { is_rtp: true, .. } => {
                let rtp = at + UDP_HEADER;
                head[rtp + 1..rtp + 8].copy_from_slice(&fields.take::<7>()?);
            }
            Upper::Udp { is_rtp: false, .. } => {}
        }
        Ok(())
    }

    /// Writes the lengths of a packet of `len` bytes into its headers, and the checksum of IPv4.
    fn complete(&self, head: &mut [u8], len: usize) {
        let at = self.shape.transport();
        let bytes = |len: usize| u16::try_from(len).unwrap_or_default().to_be_bytes();
        if self.shape.is_v6 {
            head[4..6].copy_from_slice(&bytes(len - IPV6_HEADER));
        } else {
            head[2..4].copy_from_slice(&bytes(len));
            // Summing what was just written would wait for it.
            let sum = Sum::default().word(self.ip_sum).word(head[1].into());
            let sum = sum.word(u16::from_be_bytes([head[4], head[5]]));
            let checksum = sum.word(u16::from_be_bytes(bytes(len))).checksum();
            head[10..12].copy_from_slice(&checksum.to_be_bytes());
        }
        if self.shape.protocol() == UDP {
            head[at + 4..at + 6].copy_from_slice(&bytes(len - at));
        }
    }
}

/// The sum of what is constant in an IPv4 header at the beginning of `header`.
fn ip_sum(header: &[u8; HEADER_MAX]) -> u16 {
    Sum::default().bytes(&header[..IPV4_HEADER]).folded()
}

/// Restores the SACK option behind the headers in `out`, and the length of the TCP header at `at`.
fn restore_sacks(fields: &mut Body<'_>, at: usize, out: &mut Vec<u8>) -> Result<(), DropReason> {
    let [count] = fields.take()?;
    if !(1..=SACK_BLOCKS_MAX).contains(&usize::from(count)) {
        return Err(DropReason::BadFrame);
    }
    let length = usize::from(count) * SACK_BLOCK;
    let blocks = fields.slice(length)?;
    out.extend_from_slice(&SACK_LEAD);
    #[expect(clippy::cast_possible_truncation, reason = "at most 34")]
    out.push(2 + length as u8);
    out.extend_from_slice(blocks);
    let words = (out.len() - at) / 4;
    #[expect(clippy::cast_possible_truncation, reason = "a header has at most 17 words here")]
    let words = words as u8;
    if words > 0xf {
        return Err(DropReason::BadFrame);
    }
    out[at + 12] |= words << 4;
    Ok(())
}

/// What is left of a compact packet's body.
struct Body<'a>(&'a [u8]);

impl<'a> Body<'a> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], DropReason> {
        let (&taken, rest) = self.0.split_first_chunk().ok_or(DropReason::BadFrame)?;
        self.0 = rest;
        Ok(taken)
    }

    fn slice(&mut self, len: usize) -> Result<&'a [u8], DropReason> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(DropReason::BadFrame)?;
        self.0 = rest;
        Ok(taken)
    }
}

/// Which fields of a packet travel. They are read from the packet when it leaves: bytes that were
/// just written one by one would have to be waited for.
#[derive(Clone, Copy, Debug)]
pub struct Fields {
    shape: Shape,
    /// Bytes of SACK blocks.
    sacks: u8,
}

impl Fields {
    /// Appends the body of the compact packet: the fields, and what follows the headers.
    pub fn append(&self, packet: Pieces<'_>, out: &mut Vec<u8>) {
        let Some((head, rest)) = packet.head.split_at_checked(self.skipped()) else { return };
        out.reserve(self.len(&packet));
        let at = self.shape.transport();
        if self.shape.is_v6 {
            out.push(head[0] << 4 | head[1] >> 4);
        } else {
            out.extend_from_slice(&[head[1], head[4], head[5]]);
        }
        match self.shape.upper {
            Upper::Tcp { clocks, sacks } => {
                out.push(head[at + 13]);
                out.extend_from_slice(&head[at + 4..at + 12]);
                out.extend_from_slice(&head[at + 14..at + 16]);
                if clocks {
                    let values = at + TCP_HEADER + CLOCKS_LEAD.len();
                    out.extend_from_slice(&head[values..values + 8]);
                }
                if sacks {
                    out.push(self.sacks / SACK_BLOCK as u8);
                    out.extend_from_slice(&head[head.len() - usize::from(self.sacks)..]);
                }
            }
            Upper::Udp { is_rtp: true, .. } => {
                out.extend_from_slice(&head[at + UDP_HEADER + 1..at + UDP_HEADER + 8]);
            }
            Upper::Udp { is_rtp: false, .. } => {}
        }
        out.extend_from_slice(rest);
        out.extend_from_slice(packet.tail);
    }

    /// Bytes of that body.
    pub const fn len(&self, packet: &Pieces<'_>) -> usize {
        self.shape.fields() + self.sacks as usize + packet.len() - self.skipped()
    }

    /// Bytes of the headers that the fields stand for.
    const fn skipped(&self) -> usize {
        let lead = if self.sacks > 0 { SACK_LEAD.len() + 1 } else { 0 };
        self.shape.len() + lead + self.sacks as usize
    }
}

#[cfg(test)]
#[path = "header_tests.rs"]
pub(super) mod tests;
