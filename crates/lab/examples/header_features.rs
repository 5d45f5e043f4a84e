//! Makes `crates/proto/testdata/headers/captures.txt`: the headers of recorded packets, without an
//! address, a port, a name or a byte of payload.
//!
//! ```text
//! cargo run -p rove-lab --example header_features DIRECTORY \
//!     > crates/proto/testdata/headers/captures.txt
//! ```
//!
//! The directory holds captures (classic pcap). Of each of [`CAPTURES`] the first packets are kept,
//! without those that a card had joined to more than 1,500 bytes, as their flow, direction, and the
//! fields of their headers. The file beside the result says how a line is read.

#![expect(clippy::print_stdout, reason = "it writes what it makes")]

mod captures;

use anyhow::Context as _;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

/// The captures, by the kind of their flows.
const CAPTURES: [(&str, &[&str]); 7] = [
    ("tcp", &["bittorrent_bulk", "ssh_interactive", "weibo_http", "whatsapp_files", "tor_bulk"]),
    ("tcp-plain", &["smb2_file_copy", "modbus_plc", "nest_telemetry"]),
    ("tcp-v6", &["http_bulk_download_1", "pinterest_tls"]),
    ("quic", &["quic_youtube", "quic_web_cloudflare", "quic_facebook"]),
    ("udp", &["coap_sensor_json", "game_nintendo", "mdns"]),
    ("names", &["dns_alexa", "dns_android"]),
    ("rtp", &["rtp_ulaw_call", "rtp_opus_call", "rtp_codec_60s", "kakaotalk_call_1"]),
];
/// Packets of each that are kept, and their greatest length in bytes.
const PACKETS_MAX: usize = 120;
const LENGTH_MAX: usize = 1_500;

const TCP: u8 = 6;
const UDP: u8 = 17;
/// Bytes of the fixed headers of IPv4, IPv6, TCP, UDP and RTP.
const IPV4_HEADER: usize = 20;
const IPV6_HEADER: usize = 40;
const TCP_HEADER: usize = 20;
const UDP_HEADER: usize = 8;
const RTP_HEADER: usize = 12;

fn main() -> anyhow::Result<()> {
    let directory = std::env::args().nth(1).context("say where the captures are")?;
    for (kind, names) in CAPTURES {
        for name in names {
            let path = Path::new(&directory).join(name).with_extension("pcap");
            let capture = std::fs::read(&path).with_context(|| path.display().to_string())?;
            println!("capture {name} {kind}");
            print!("{}", features(&capture)?);
        }
    }
    Ok(())
}

/// The lines of a capture.
fn features(capture: &[u8]) -> anyhow::Result<String> {
    let (mut flows, mut sources) = (BTreeMap::new(), BTreeMap::new());
    let mut lines = String::new();
    let packets = captures::packets(capture)?.into_iter();
    for packet in packets.filter_map(|(_, packet)| Packet::parse(packet)).take(PACKETS_MAX) {
        let ends = packet.ends();
        let (first, second) = (ends.0.min(ends.1), ends.0.max(ends.1));
        let next = flows.len();
        let flow = *flows.entry((packet.protocol, first, second)).or_insert(next);
        write!(lines, "{flow} {} ", u8::from(ends.0 != first))?;
        packet.write(&mut lines, &mut sources)?;
        lines.push('\n');
    }
    Ok(lines)
}

/// A packet of TCP or UDP that is no fragment and has no IP options.
struct Packet<'a> {
    bytes: &'a [u8],
    is_v6: bool,
    protocol: u8,
    /// Where its transport begins.
    at: usize,
}

/// An address and a port.
type End<'a> = (&'a [u8], &'a [u8]);

impl<'a> Packet<'a> {
    fn parse(bytes: &'a [u8]) -> Option<Self> {
        let word = |at: usize| {
            let pair = bytes.get(at..)?.first_chunk::<2>()?;
            Some(usize::from(u16::from_be_bytes(*pair)))
        };
        let (is_v6, length, protocol) = match bytes.first()? {
            0x45 if word(6)? & 0x3fff == 0 => (false, word(2)?, *bytes.get(9)?),
            0x60..=0x6f => (true, word(4)? + IPV6_HEADER, *bytes.get(6)?),
            _ => return None,
        };
        let at = if is_v6 { IPV6_HEADER } else { IPV4_HEADER };
        let header = match protocol {
            TCP => TCP_HEADER,
            UDP => UDP_HEADER,
            _ => return None,
        };
        let is_whole = at + header <= length && length <= LENGTH_MAX;
        let bytes = bytes.get(..length).filter(|_| is_whole)?;
        let packet = Self { bytes, is_v6, protocol, at };
        (packet.payload_at() <= length).then_some(packet)
    }

    fn payload_at(&self) -> usize {
        let words = usize::from(self.bytes[self.at + 12] >> 4);
        self.at + if self.protocol == TCP { words * 4 } else { UDP_HEADER }
    }

    fn ends(&self) -> (End<'a>, End<'a>) {
        let (from, length) = if self.is_v6 { (8, 16) } else { (12, 4) };
        let address = |at: usize| &self.bytes[at..at + length];
        let port = |at: usize| &self.bytes[at..at + 2];
        ((address(from), port(self.at)), (address(from + length), port(self.at + 2)))
    }

    fn word(&self, at: usize) -> u16 {
        u16::from_be_bytes([self.bytes[at], self.bytes[at + 1]])
    }

    fn long(&self, at: usize) -> u32 {
        u32::from(self.word(at)) << 16 | u32::from(self.word(at + 2))
    }

    /// Writes the fields.
    fn write(&self, out: &mut String, sources: &mut BTreeMap<u32, usize>) -> anyhow::Result<()> {
        let Self { bytes, at, .. } = *self;
        let length = bytes.len() - self.payload_at();
        if self.is_v6 {
            let label = self.long(0) & 0xf_ffff;
            write!(out, "6 {} {label} {}", bytes[0] << 4 | bytes[1] >> 4, bytes[7])?;
        } else {
            let (id, bits, sum) = (self.word(4), bytes[6] >> 5, self.checksum_of(0, 10));
            write!(out, "4 {} {id} {bits} {} {sum}", bytes[1], bytes[8])?;
        }
        if self.protocol == TCP {
            let (flags, window, urgent) =
                (self.word(at + 12) & 0xfff, self.word(at + 14), self.word(at + 18));
            let sum = self.checksum_of(at, at + 16);
            write!(out, " T {length} {sum} {} {}", self.long(at + 4), self.long(at + 8))?;
            write!(out, " {flags} {window} {urgent} ")?;
            let options = &bytes[at + TCP_HEADER..self.payload_at()];
            options.iter().try_for_each(|byte| write!(out, "{byte:02x}"))?;
            return Ok(());
        }
        write!(out, " U {length} {}", self.checksum_of(at, at + 6))?;
        let rtp = at + UDP_HEADER;
        if length >= RTP_HEADER && bytes[rtp] >> 6 == 2 {
            let next = sources.len();
            let source = *sources.entry(self.long(rtp + 8)).or_insert(next);
            let (sequence, timestamp) = (self.word(rtp + 2), self.long(rtp + 4));
            write!(out, " {} {} {sequence} {timestamp} {source}", bytes[rtp], bytes[rtp + 1])?;
        }
        Ok(())
    }

    /// Whether a checksum at `field` of the header at `from` is right, wrong, or zero.
    fn checksum_of(&self, from: usize, field: usize) -> char {
        if self.word(field) == 0 {
            return 'z';
        }
        let (end, pseudo) =
            if from == 0 { (self.at, 0) } else { (self.bytes.len(), self.pseudo()) };
        let mut sum = pseudo + words(&self.bytes[from..end]);
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        if sum == 0xffff { 'r' } else { 'w' }
    }

    /// The sum of the pseudo header (RFC 9293, 3.1; RFC 8200, 8.1).
    fn pseudo(&self) -> u32 {
        let addresses = if self.is_v6 { 8..IPV6_HEADER } else { 12..IPV4_HEADER };
        let length = u32::try_from(self.bytes.len() - self.at).unwrap_or_default();
        words(&self.bytes[addresses]) + u32::from(self.protocol) + length
    }
}

/// The sum of 16-bit words; cannot overflow for what fits in a packet.
fn words(bytes: &[u8]) -> u32 {
    let word = |pair: &[u8]| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
    bytes.chunks(2).map(word).sum()
}
