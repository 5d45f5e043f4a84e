//! Reads captures (classic pcap): the time of each frame, and the IP packet in it.

use anyhow::{Context as _, ensure};

/// The IP packets of a capture, each with its time in microseconds. Other frames are left out.
///
/// # Errors
/// If it is not a capture of a known kind, or ends early.
pub(crate) fn packets(capture: &[u8]) -> anyhow::Result<Vec<(u64, &[u8])>> {
    let number = |at: usize| -> anyhow::Result<u32> {
        let bytes = capture.get(at..at + 4).context("a capture that ends early")?;
        Ok(u32::from_le_bytes(bytes.try_into()?))
    };
    ensure!(number(0)? == 0xa1b2_c3d4, "not a pcap file of microseconds in little-endian order");
    let link = number(20)? & 0xffff;
    let (mut packets, mut at) = (Vec::new(), 24);
    while at + 16 <= capture.len() {
        let time_us = u64::from(number(at)?) * 1_000_000 + u64::from(number(at + 4)?);
        let length = number(at + 8)? as usize;
        let frame = capture.get(at + 16..at + 16 + length).context("a frame that ends early")?;
        at += 16 + length;
        packets.extend(network_layer(frame, link)?.map(|packet| (time_us, packet)));
    }
    Ok(packets)
}

/// The IP packet in a frame, if there is one.
fn network_layer(frame: &[u8], link: u32) -> anyhow::Result<Option<&[u8]>> {
    let (mut kind_at, kinds) = match link {
        1 => (12, [0x0800, 0x86dd]),   // Ethernet
        113 => (14, [0x0800, 0x86dd]), // Linux "cooked"
        12 | 14 | 101 => return Ok(Some(frame)),
        other => anyhow::bail!("frames of kind {other} are not known"),
    };
    let kind = |at: usize| Some(u16::from_be_bytes([*frame.get(at)?, *frame.get(at + 1)?]));
    while kind(kind_at).is_some_and(|kind| kind == 0x8100 || kind == 0x88a8) {
        kind_at += 4; // a VLAN
    }
    if kind(kind_at) == Some(0x8864) {
        let is_ip = matches!(kind(kind_at + 8), Some(0x21 | 0x57)); // PPPoE
        return Ok(frame.get(kind_at + 10..).filter(|_| is_ip));
    }
    let is_ip = kind(kind_at).is_some_and(|kind| kinds.contains(&kind));
    Ok(frame.get(kind_at + 2..).filter(|_| is_ip))
}
