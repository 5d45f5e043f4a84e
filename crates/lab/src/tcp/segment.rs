//! IPv4 or IPv6 with TCP on top, as bytes (RFC 9293, 3.1; options RFC 7323, RFC 2018).
//!
//! Decides what is a segment and what is noise: a packet whose lengths or checksums are wrong is
//! [`Malformed`], with the reason, and no part of it is believed. Options nobody here knows are
//! skipped. Limits: no fragments, no IPv6 extension headers, no urgent data, no ECN.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// Length of an IPv4 header without options, as emitted.
const IPV4_HEADER: usize = 20;
/// Length of the fixed IPv6 header.
const IPV6_HEADER: usize = 40;
/// Length of a TCP header without options.
const TCP_HEADER: usize = 20;
/// Protocol number of TCP.
const TCP: u8 = 6;
/// Time to live of what is emitted: Linux's.
const HOPS: u8 = 64;
/// The most SACK blocks that fit in a header beside timestamps (RFC 2018, 3).
pub(super) const SACKS_MAX: usize = 3;

/// Flag bits of the header, lowest first.
mod bit {
    pub(super) const FIN: u8 = 0x01;
    pub(super) const SYN: u8 = 0x02;
    pub(super) const RST: u8 = 0x04;
    pub(super) const PSH: u8 = 0x08;
    pub(super) const ACK: u8 = 0x10;
}

/// Kinds of options.
mod kind {
    pub(super) const END: u8 = 0;
    pub(super) const NOTHING: u8 = 1;
    pub(super) const MSS: u8 = 2;
    pub(super) const WINDOW_SCALE: u8 = 3;
    pub(super) const SACK_PERMITTED: u8 = 4;
    pub(super) const SACK: u8 = 5;
    pub(super) const TIMESTAMPS: u8 = 8;
}

/// A TCP segment with the addresses of its packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Where it comes from.
    pub source: SocketAddr,
    /// Where it goes to; of the same family.
    pub destination: SocketAddr,
    /// The sequence number.
    pub sequence: u32,
    /// The acknowledgment number; `None` where the ACK flag is not set.
    pub acknowledgment: Option<u32>,
    /// The flags beside ACK.
    pub flags: Flags,
    /// The window as it stands in the header, not yet scaled.
    pub window: u16,
    /// The options.
    pub options: Options,
    /// What it carries.
    pub payload: Vec<u8>,
}

/// The flags beside ACK that matter here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// Opens.
    pub syn: bool,
    /// No more bytes follow.
    pub fin: bool,
    /// Ends at once.
    pub rst: bool,
    /// The writer has nothing more for now.
    pub psh: bool,
}

/// The options that matter here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The longest payload that the sender of this takes, in bytes (SYN only).
    pub mss: Option<u16>,
    /// By how many bits windows are shifted (SYN only).
    pub window_scale: Option<u8>,
    /// SACK blocks are understood (SYN only).
    pub sack_permitted: bool,
    /// Value and echo, in units of the respective sender's clock.
    pub timestamps: Option<Timestamps>,
    /// Ranges that arrived beyond the acknowledgment number, first and one past the last; the
    /// first may be a duplicate below it (RFC 2883).
    pub sacks: Vec<(u32, u32)>,
}

/// The timestamps option (RFC 7323, 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timestamps {
    /// The sender's clock.
    pub value: u32,
    /// What it last saw of the other's.
    pub echo: u32,
}

/// Why a packet is no segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// Neither IPv4 nor IPv6, or another protocol inside.
    NotTcp,
    /// A part of a packet.
    Fragment,
    /// Lengths that do not fit each other.
    Length,
    /// A checksum is wrong: of the IPv4 header or of TCP.
    Checksum,
    /// An option that contradicts its own length.
    Option,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotTcp => "not TCP over IPv4 or IPv6",
            Self::Fragment => "a fragment",
            Self::Length => "lengths contradict each other",
            Self::Checksum => "a checksum is wrong",
            Self::Option => "an option contradicts its length",
        })
    }
}

impl std::error::Error for Malformed {}

impl Segment {
    /// Reads a packet, IP header first.
    ///
    /// # Errors
    /// Why it is not to be believed.
    pub fn parse(packet: &[u8]) -> Result<Self, Malformed> {
        let Network { source, destination, transport } = Network::parse(packet)?;
        if transport.len() < TCP_HEADER {
            return Err(Malformed::Length);
        }
        if checksum(pseudo_header(source, destination, transport.len()), transport) != 0 {
            return Err(Malformed::Checksum);
        }
        let header = usize::from(transport[12] >> 4) * 4;
        let options = transport.get(TCP_HEADER..header).ok_or(Malformed::Length)?;
        let flags = transport[13];
        let word = |at: usize| u16::from_be_bytes([transport[at], transport[at + 1]]);
        let acknowledgment = u32_at(transport, 8);
        Ok(Self {
            source: SocketAddr::new(source, word(0)),
            destination: SocketAddr::new(destination, word(2)),
            sequence: u32_at(transport, 4),
            acknowledgment: (flags & bit::ACK != 0).then_some(acknowledgment),
            flags: Flags {
                syn: flags & bit::SYN != 0,
                fin: flags & bit::FIN != 0,
                rst: flags & bit::RST != 0,
                psh: flags & bit::PSH != 0,
            },
            window: word(14),
            options: Options::parse(options)?,
            payload: transport[header..].to_vec(),
        })
    }

    /// The packet, with right lengths and checksums.
    pub fn emit(&self) -> Vec<u8> {
        let options = self.options.emit();
        let length = TCP_HEADER + options.len() + self.payload.len();
        let mut packet = Network::emit(self.source.ip(), self.destination.ip(), length);
        let start = packet.len();
        packet.extend(self.source.port().to_be_bytes());
        packet.extend(self.destination.port().to_be_bytes());
        packet.extend(self.sequence.to_be_bytes());
        packet.extend(self.acknowledgment.unwrap_or(0).to_be_bytes());
        packet.push((((TCP_HEADER + options.len()) / 4) << 4) as u8);
        packet.push(self.flag_bits());
        packet.extend(self.window.to_be_bytes());
        packet.extend([0; 4]); // checksum, urgent pointer
        packet.extend(options);
        packet.extend(&self.payload);
        let pseudo = pseudo_header(self.source.ip(), self.destination.ip(), length);
        let sum = checksum(pseudo, &packet[start..]);
        packet[start + 16..start + 18].copy_from_slice(&sum.to_be_bytes());
        packet
    }

    /// How many sequence numbers it takes: its bytes, SYN and FIN.
    pub fn sequence_length(&self) -> u64 {
        self.payload.len() as u64 + u64::from(self.flags.syn) + u64::from(self.flags.fin)
    }

    fn flag_bits(&self) -> u8 {
        let Flags { syn, fin, rst, psh } = self.flags;
        let set = |on: bool, bit: u8| if on { bit } else { 0 };
        set(syn, bit::SYN)
            | set(fin, bit::FIN)
            | set(rst, bit::RST)
            | set(psh, bit::PSH)
            | set(self.acknowledgment.is_some(), bit::ACK)
    }
}

impl Options {
    fn parse(mut rest: &[u8]) -> Result<Self, Malformed> {
        let mut options = Self::default();
        while let Some((&kind, after)) = rest.split_first() {
            match kind {
                kind::END => break,
                kind::NOTHING => {
                    rest = after;
                    continue;
                }
                _ => {}
            }
            let length = usize::from(*after.first().ok_or(Malformed::Option)?);
            let body = rest.get(2..length).ok_or(Malformed::Option)?;
            options.take(kind, body)?;
            rest = &rest[length..];
        }
        Ok(options)
    }

    fn take(&mut self, kind: u8, body: &[u8]) -> Result<(), Malformed> {
        match (kind, body) {
            (kind::MSS, &[high, low]) => self.mss = Some(u16::from_be_bytes([high, low])),
            (kind::WINDOW_SCALE, &[shift]) => self.window_scale = Some(shift),
            (kind::SACK_PERMITTED, []) => self.sack_permitted = true,
            (kind::TIMESTAMPS, body) if body.len() == 8 => {
                let (value, echo) = (u32_at(body, 0), u32_at(body, 4));
                self.timestamps = Some(Timestamps { value, echo });
            }
            (kind::SACK, body) if body.len() % 8 == 0 => {
                let blocks = body.chunks_exact(8);
                self.sacks = blocks.map(|block| (u32_at(block, 0), u32_at(block, 4))).collect();
            }
            (
                kind::MSS
                | kind::WINDOW_SCALE
                | kind::SACK_PERMITTED
                | kind::TIMESTAMPS
                | kind::SACK,
                _,
            ) => return Err(Malformed::Option),
            (_, _) => {}
        }
        Ok(())
    }

    /// In the order and with the padding of Linux (`tcp_options_write`).
    fn emit(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(40);
        if let Some(mss) = self.mss {
            bytes.extend([kind::MSS, 4]);
            bytes.extend(mss.to_be_bytes());
        }
        if self.sack_permitted && self.timestamps.is_none() {
            bytes.extend([kind::NOTHING, kind::NOTHING]);
        }
        if self.sack_permitted {
            bytes.extend([kind::SACK_PERMITTED, 2]);
        }
        if let Some(Timestamps { value, echo }) = self.timestamps {
            if !self.sack_permitted {
                bytes.extend([kind::NOTHING, kind::NOTHING]);
            }
            bytes.extend([kind::TIMESTAMPS, 10]);
            bytes.extend(value.to_be_bytes());
            bytes.extend(echo.to_be_bytes());
        }
        if let Some(shift) = self.window_scale {
            bytes.extend([kind::NOTHING, kind::WINDOW_SCALE, 3, shift]);
        }
        if !self.sacks.is_empty() {
            let most = SACKS_MAX + usize::from(self.timestamps.is_none());
            let sacks = &self.sacks[..self.sacks.len().min(most)];
            bytes.extend([kind::NOTHING, kind::NOTHING, kind::SACK, 2 + 8 * sacks.len() as u8]);
            for (first, end) in sacks {
                bytes.extend(first.to_be_bytes());
                bytes.extend(end.to_be_bytes());
            }
        }
        bytes
    }
}

/// What the IP header says.
struct Network<'a> {
    source: IpAddr,
    destination: IpAddr,
    transport: &'a [u8],
}

impl<'a> Network<'a> {
    fn parse(packet: &'a [u8]) -> Result<Self, Malformed> {
        match packet.first().map(|byte| byte >> 4) {
            Some(4) => Self::parse_v4(packet),
            Some(6) => Self::parse_v6(packet),
            Some(_) | None => Err(Malformed::NotTcp),
        }
    }

    fn parse_v4(packet: &'a [u8]) -> Result<Self, Malformed> {
        let header = usize::from(packet[0] & 0x0f) * 4;
        if header < IPV4_HEADER || packet.len() < header {
            return Err(Malformed::Length);
        }
        if checksum(0, &packet[..header]) != 0 {
            return Err(Malformed::Checksum);
        }
        if packet[9] != TCP {
            return Err(Malformed::NotTcp);
        }
        // More fragments, or an offset.
        if u16::from_be_bytes([packet[6], packet[7]]) & 0x3fff != 0 {
            return Err(Malformed::Fragment);
        }
        let total = usize::from(u16::from_be_bytes([packet[2], packet[3]]));
        let transport = packet.get(header..total).ok_or(Malformed::Length)?;
        let address = |at: usize| IpAddr::from([0, 1, 2, 3].map(|byte| packet[at + byte]));
        Ok(Self { source: address(12), destination: address(16), transport })
    }

    fn parse_v6(packet: &'a [u8]) -> Result<Self, Malformed> {
        if packet.len() < IPV6_HEADER {
            return Err(Malformed::Length);
        }
        if packet[6] != TCP {
            return Err(Malformed::NotTcp);
        }
        let length = usize::from(u16::from_be_bytes([packet[4], packet[5]]));
        let transport = packet.get(IPV6_HEADER..IPV6_HEADER + length).ok_or(Malformed::Length)?;
        let address = |at: usize| {
            let mut octets = [0; 16];
            octets.copy_from_slice(&packet[at..at + 16]);
            IpAddr::from(octets)
        };
        Ok(Self { source: address(8), destination: address(24), transport })
    }

    /// The header of a packet that will carry `length` bytes of TCP.
    fn emit(source: IpAddr, destination: IpAddr, length: usize) -> Vec<u8> {
        let mut header = Vec::with_capacity(IPV6_HEADER + length);
        match (source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let total = (IPV4_HEADER + length) as u16;
                header.extend([0x45, 0]);
                header.extend(total.to_be_bytes());
                // No identification, do not fragment.
                header.extend([0, 0, 0x40, 0, HOPS, TCP, 0, 0]);
                header.extend(source.octets());
                header.extend(destination.octets());
                let sum = checksum(0, &header);
                header[10..12].copy_from_slice(&sum.to_be_bytes());
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                header.extend([0x60, 0, 0, 0]);
                header.extend((length as u16).to_be_bytes());
                header.extend([TCP, HOPS]);
                header.extend(source.octets());
                header.extend(destination.octets());
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => {
                unreachable!("`End` was made with two addresses of one family")
            }
        }
        header
    }
}

/// The sum over the pseudo header (RFC 9293, 3.1; RFC 8200, 8.1).
fn pseudo_header(source: IpAddr, destination: IpAddr, length: usize) -> u32 {
    let sum_of = |address: IpAddr| match address {
        IpAddr::V4(address) => sum(&address.octets()),
        IpAddr::V6(address) => sum(&address.octets()),
    };
    sum_of(source) + sum_of(destination) + u32::from(TCP) + length as u32
}

/// The Internet checksum (RFC 1071); 0 over bytes that contain their own right checksum.
fn checksum(start: u32, bytes: &[u8]) -> u16 {
    let mut total = start + sum(bytes);
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    !(total as u16)
}

/// The sum of 16-bit words; cannot overflow for what fits in a packet.
fn sum(bytes: &[u8]) -> u32 {
    let words = bytes.chunks_exact(2);
    let odd = words.remainder().first().map_or(0, |&last| u32::from(last) << 8);
    words.map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum::<u32>() + odd
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
#[path = "segment_tests.rs"]
mod tests;
