//! Makes `crates/proto/testdata/rtp/captures.txt`: what captures look like to who looks for RTP,
//! without an address, a port, a name or a byte of payload.
//!
//! ```text
//! cargo run -p rove-lab --example rtp_features DIRECTORY > crates/proto/testdata/rtp/captures.txt
//! ```
//!
//! The directory holds captures (classic pcap) and `labels.csv`, whose columns `file`, `is_rtp` and
//! `score` say what each is. Of a datagram its flow, direction, time and length are kept, and the
//! fields of the RTP header where its first bits say version 2; sources are numbered in the order
//! in which they appear.

#![expect(clippy::print_stdout, reason = "it writes what it makes")]

mod captures;

use anyhow::Context as _;
use rove_proto::wire::inner::{Headers, UDP};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

/// Datagrams of a capture with RTP: what it is shows in the first few.
const DATAGRAMS_MAX: usize = 300;
/// The fixed part of an RTP header (RFC 3550, 5.1), and of UDP's.
const RTP_HEADER: usize = 12;
const UDP_HEADER: usize = 8;
/// An extension whose length is not in the datagram.
const CUT_OFF: u16 = u16::MAX;

fn main() -> anyhow::Result<()> {
    let directory = std::env::args().nth(1).context("say where the captures are")?;
    let directory = Path::new(&directory);
    let labels = std::fs::read_to_string(directory.join("labels.csv"))?;
    let mut lines = labels.lines();
    let columns: Vec<&str> = lines.next().context("no columns")?.split(',').collect();
    let column = |name: &str| columns.iter().position(|one| *one == name).context("a column");
    let (file, is_rtp, score) = (column("file")?, column("is_rtp")?, column("score")?);
    for line in lines {
        let fields: Vec<&str> = line.split(',').collect();
        if fields[score].split('+').any(|one| one == "rtp") {
            let capture = std::fs::read(directory.join(fields[file]))?;
            let name = fields[file].trim_end_matches(".pcap");
            let is_rtp = fields[is_rtp] == "yes";
            let said = features(&capture, if is_rtp { DATAGRAMS_MAX } else { usize::MAX })?;
            println!("capture {name} {}", if is_rtp { "rtp" } else { "other" });
            print!("{said}");
        }
    }
    Ok(())
}

/// The lines of a capture.
fn features(capture: &[u8], most: usize) -> anyhow::Result<String> {
    let (mut flows, mut sources) = (BTreeMap::new(), BTreeMap::new());
    let (mut lines, mut before_us) = (String::new(), None);
    let datagrams = captures::packets(capture)?.into_iter();
    let datagrams = datagrams.filter_map(|(time_us, packet)| Some((time_us, datagram(packet)?)));
    for (time_us, (ends, payload, length)) in datagrams.take(most) {
        let (first, second) = (ends.0.min(ends.1), ends.0.max(ends.1));
        let next = flows.len();
        let flow = *flows.entry((first, second)).or_insert(next);
        let way = u8::from(ends.0 != first);
        let since_us = before_us.map_or(0, |before: u64| time_us.saturating_sub(before));
        before_us = Some(time_us);
        write!(lines, "{flow} {way} {since_us} {length}")?;
        if let Some(header) = payload.first_chunk::<RTP_HEADER>().filter(|h| h[0] >> 6 == 2) {
            let word = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
            let long = |at: usize| u32::from(word(at)) << 16 | u32::from(word(at + 2));
            let next = sources.len();
            let source = *sources.entry(long(8)).or_insert(next);
            let extension_at = RTP_HEADER + usize::from(header[0] & 0xf) * 4;
            let extension = payload.get(extension_at + 2..extension_at + 4);
            let words = extension.map_or(CUT_OFF, |two| u16::from_be_bytes([two[0], two[1]]));
            let words = if header[0] & 0x10 == 0 { 0 } else { words };
            let whole = header[0] & 0x20 != 0 && payload.len() == length;
            let padding = payload.last().copied().filter(|_| whole).unwrap_or(0);
            let [first, kind, ..] = header;
            write!(lines, " {first} {kind} {} {} {source} {words} {padding}", word(2), long(4))?;
        }
        lines.push('\n');
    }
    Ok(lines)
}

type End = (std::net::IpAddr, u16);

/// The ends of a UDP datagram, what was captured of its payload, and how long that is.
fn datagram(packet: &[u8]) -> Option<((End, End), &[u8], usize)> {
    let len = rove_proto::wire::inner::declared_len(packet)?;
    // What is longer than a tunnel's packets was joined by a card.
    let view = Headers::parse(packet, len).ok().filter(|view| view.protocol == UDP)?;
    let ((from, to), at) = (view.ports?, view.transport?);
    let length = u16::from_be_bytes([*packet.get(at + 4)?, *packet.get(at + 5)?]);
    let payload = packet.get(at + UDP_HEADER..packet.len().min(at + usize::from(length)))?;
    let ends = ((view.source, from), (view.destination, to));
    Some((ends, payload, usize::from(length).checked_sub(UDP_HEADER)?))
}
