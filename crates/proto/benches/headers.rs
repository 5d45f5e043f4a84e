//! The cost of leaving out the headers of a packet, in nanoseconds a packet. The copies that every
//! packet needs are not part of it. `cargo bench -p rove-proto --bench headers`.
//!
//! Packets of one TCP flow with timestamps, 1,420 bytes each, out of a buffer that no cache holds
//! whole, as from a tunnel device. At the sender, *whole* is the copy of the packet into a
//! datagram. *Elided* is what replaces it: the context is found, the checksums are verified, and
//! the varying fields and the payload are copied. A packet out of a super-packet has a checksum
//! that was just made from its payload, and is not summed again. At the receiver, *whole* is the
//! copy into the outbox, and *restored* puts the headers in front of the payload there.
//!
//! The TUN device sums a whole packet before it joins it with others, and sums no restored one.
//! The figures do not contain this gain, which is printed beside them. The shortest of all rounds
//! counts. Both ends together must take no more than [`BOTH_NS_MAX`], or the benchmark fails.

#![allow(clippy::unwrap_used, reason = "a benchmark: a panic is the report")]
#![allow(clippy::print_stdout, reason = "what it is for")]
#![allow(clippy::cast_precision_loss, reason = "figures for people")]
#![allow(clippy::cast_possible_truncation, reason = "any bytes will do as payload")]

use std::hint::black_box;
use std::process::ExitCode;
use std::time::Instant as Clock;

use rove_proto::codec::contexts::{BUCKET_TEMPLATES, Contexts, Known, PACKETS_BEFORE, Passing};
use rove_proto::packet::Checksum;
use rove_proto::time::Instant;
use rove_proto::wire::checksum::Sum;
use rove_proto::wire::inner::Pieces;

/// Bytes of a packet, of its headers (IPv4, TCP, timestamps), and of the first of them.
const PACKET: usize = 1_420;
const HEADERS: usize = 52;
const IP_HEADER: usize = 20;
/// Different packets, in turn: 2.8 MB.
const PACKETS: usize = 2_000;
const ROUNDS: usize = 50;
/// What both ends together may add to a packet, in nanoseconds.
const BOTH_NS_MAX: f64 = 60.0;
/// The port of the flow that is measured. Others have the numbers before it.
const PORT: u16 = 40_000;

/// A packet of the flow from this port, with right checksums.
fn packet(port: u16, number: u32) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 6, 0, 0, 10, 77, 0, 2, 192, 0, 2, 9];
    packet[2..4].copy_from_slice(&u16::try_from(PACKET).unwrap().to_be_bytes());
    packet[4..6].copy_from_slice(&number.to_be_bytes()[2..]);
    let sum = Sum::default().bytes(&packet).checksum();
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend(port.to_be_bytes());
    packet.extend([0x01, 0xbb]);
    packet.extend((number * 1_368).to_be_bytes());
    packet.extend([0, 0, 0, 9, 0x80, 0x10, 1, 0, 0, 0, 0, 0, 1, 1, 8, 10, 0, 0, 0, 7, 0, 0, 0, 8]);
    packet.extend((HEADERS..PACKET).map(|at| (at as u32 ^ number.wrapping_mul(0x9e37)) as u8));
    let addresses = [[10, 77, 0, 2], [192, 0, 2, 9]].map(Into::into);
    let length = u16::try_from(PACKET - IP_HEADER).unwrap();
    let sum = Sum::default().pseudo(addresses[0], addresses[1], 6, length);
    let sum = sum.bytes(&packet[IP_HEADER..]).checksum();
    packet[36..38].copy_from_slice(&sum.to_be_bytes());
    packet
}

fn passing(packet: Pieces<'_>) -> Passing<'_> {
    Passing { bucket: 3, is_rtp: false, packet }
}

/// Both ends of so many flows of one bucket, whose contexts have arrived. That of [`PORT`] is the
/// last of them.
fn ends(flows: u16) -> (Contexts, Known) {
    let (mut contexts, mut known) = (Contexts::default(), Known::default());
    for port in PORT + 1 - flows..=PORT {
        let packet = packet(port, 0);
        for _ in 0..=PACKETS_BEFORE {
            contexts.elide(Instant::ZERO, passing(Pieces::whole(&packet)), 0, |id, template| {
                known.define(id, Some(*template)).unwrap();
                Some(0)
            });
        }
    }
    (contexts, known)
}

/// Nanoseconds that `one` takes for a packet, in the fastest round.
fn time(mut one: impl FnMut(usize)) -> f64 {
    let mut round = || {
        let start = Clock::now();
        (0..PACKETS).for_each(&mut one);
        start.elapsed().as_nanos() as f64 / PACKETS as f64
    };
    (0..ROUNDS).map(|_| round()).fold(f64::MAX, f64::min)
}

/// What it takes to send the packets of a buffer elided, where so many flows share a bucket.
fn elided(buffer: &[u8], flows: u16, checksum: Checksum) -> f64 {
    let (mut contexts, mut out) = (ends(flows).0, Vec::with_capacity(PACKET));
    time(|number| {
        let packet = cut(buffer, number).with_checksum(checksum);
        let compact = contexts.elide(Instant::ZERO, passing(packet), 1, |_, _| None).unwrap();
        out.clear();
        compact.fields.append(packet, &mut out);
        black_box(&out);
    })
}

/// A packet of the buffer, in two pieces as the device hands it over.
fn cut(buffer: &[u8], number: usize) -> Pieces<'_> {
    let (head, tail) = buffer[number * PACKET..(number + 1) * PACKET].split_at(HEADERS);
    Pieces::cut(head, tail)
}

/// The bodies of the compact packets, end to end, and the bytes of each.
fn bodies(buffer: &[u8]) -> (Vec<u8>, usize) {
    let (mut contexts, mut bodies) = (ends(1).0, Vec::new());
    for number in 0..PACKETS {
        let packet = cut(buffer, number);
        let compact = contexts.elide(Instant::ZERO, passing(packet), 1, |_, _| None).unwrap();
        compact.fields.append(packet, &mut bodies);
    }
    let len = bodies.len() / PACKETS;
    (bodies, len)
}

fn main() -> ExitCode {
    let buffer: Vec<u8> = (0..).take(PACKETS).flat_map(|number| packet(PORT, number)).collect();
    let mut out = Vec::with_capacity(PACKET);
    let mut copied = || {
        time(|number| {
            out.clear();
            cut(&buffer, number).copy_to(&mut out);
            black_box(&out);
        })
    };
    let (sent, delivered) = (copied(), copied());
    let summed = elided(&buffer, 1, Checksum::Unchecked);
    let known = elided(&buffer, 1, Checksum::Right);
    let crowded = elided(&buffer, u16::try_from(BUCKET_TEMPLATES).unwrap(), Checksum::Right);
    let (bodies, len) = bodies(&buffer);
    let (contexts, mut head) = (ends(1).1, Vec::new());
    let restored = time(|number| {
        out.clear();
        let body = &bodies[number * len..(number + 1) * len];
        contexts.restore(0, body, &mut head).unwrap().copy_to(&mut out);
        black_box(&out);
    });
    let sum = time(|number| {
        let packet = &buffer[number * PACKET..(number + 1) * PACKET];
        black_box(Sum::default().bytes(&packet[IP_HEADER..]).folded());
    });
    println!("sent whole                      {sent:6.1} ns");
    println!("sent elided                     {summed:6.1} ns, {:+.1}", summed - sent);
    println!("the same, checksum known        {known:6.1} ns, {:+.1}", known - sent);
    println!("the same, last of its bucket    {crowded:6.1} ns, {:+.1}", crowded - sent);
    println!("delivered whole                 {delivered:6.1} ns");
    println!("delivered restored              {restored:6.1} ns, {:+.1}", restored - delivered);
    println!("sum that the device need not make {sum:4.1} ns");
    let both = known - sent + restored - delivered;
    println!("both ends, checksum known       {both:+6.1} ns (at most {BOTH_NS_MAX})");
    if both <= BOTH_NS_MAX { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
