use proptest::prelude::*;

use super::*;
use crate::wire::tcp::{Ends, Made};

const START: Seq = Seq(u32::MAX - 500);

fn stream() -> Vec<u8> {
    (0..4_000u32).map(|at| (at * 7 % 251) as u8).collect()
}

fn push(cache: &mut Cache, memory: &mut Memory, from: usize, to: usize) {
    let stream = stream();
    let bytes = &stream[from..to];
    let cut = bytes.len() / 3;
    let sum = Sum::default().bytes(bytes).folded();
    let seq = START.plus(from as u32);
    let bytes = bytes.split_at(cut);
    cache.push(memory, Payload { seq, bytes, home: None, sum, push: false });
}

/// The same, out of a super-packet that may be kept as it is.
fn push_of(buffer: &Arc<[u8]>, cache: &mut Cache, memory: &mut Memory, from: usize, to: usize) {
    let bytes = (&[][..], &buffer[from..to]);
    let sum = Sum::default().bytes(bytes.1).folded();
    let seq = START.plus(from as u32);
    let home = Some(Home { buffer, at: from });
    cache.push(memory, Payload { seq, bytes, home, sum, push: false });
}

fn bytes(cache: &Cache, from: Seq) -> Vec<u8> {
    cache.from(from).flat_map(|again| [again.bytes.0, again.bytes.1].concat()).collect()
}

#[test]
fn what_is_acknowledged_goes_and_the_rest_is_there_in_its_pieces() {
    let (mut cache, mut memory) = (Cache::default(), Memory::new(1 << 20));
    for from in (0..3_000).step_by(100) {
        push(&mut cache, &mut memory, from, from + 100);
    }
    assert_eq!(memory.used(), 3_000);
    cache.acknowledged(&mut memory, START.plus(1_050));
    assert_eq!(cache.span(), Some((START.plus(1_000), START.plus(3_000))), "whole pieces");
    assert_eq!(memory.used(), 2_000);
    let pieces: Vec<_> = cache.from(START.plus(1_250)).map(|again| again.seq).collect();
    assert_eq!((pieces[0], pieces.len()), (START.plus(1_200), 18));
    assert_eq!(bytes(&cache, START.plus(1_000)), stream()[1_000..3_000]);
    cache.acknowledged(&mut memory, START.plus(3_000));
    assert_eq!((cache.span(), memory.used()), (None, 0));
}

#[test]
fn what_came_in_a_buffer_stays_there_and_the_buffer_is_kept_no_longer() {
    let (mut cache, mut memory) = (Cache::default(), Memory::new(1 << 20));
    let buffers: Vec<Arc<[u8]>> = (0..2).map(|_| Arc::from(stream())).collect();
    let kept = || [Arc::strong_count(&buffers[0]) - 1, Arc::strong_count(&buffers[1]) - 1];
    for from in (0..1_000).step_by(100) {
        push_of(&buffers[0], &mut cache, &mut memory, from, from + 100);
    }
    push(&mut cache, &mut memory, 1_000, 1_100);
    for from in (1_100..2_000).step_by(100) {
        push_of(&buffers[1], &mut cache, &mut memory, from, from + 100);
    }
    assert_eq!(bytes(&cache, START), stream()[..2_000]);
    assert_eq!((kept(), memory.used(), memory.lent()), ([1, 1], 2_000, 3));
    cache.acknowledged(&mut memory, START.plus(950));
    assert_eq!((kept(), memory.used()), ([1, 1], 1_100));
    cache.acknowledged(&mut memory, START.plus(1_050));
    assert_eq!((kept(), memory.used(), memory.lent()), ([0, 1], 1_000, 2));
    assert_eq!(bytes(&cache, START.plus(1_000)), stream()[1_000..2_000]);
    cache.clear(&mut memory);
    assert_eq!((kept(), memory.used(), memory.lent()), ([0, 0], 0, 0));
}

#[test]
fn a_buffer_that_there_is_no_room_for_is_copied() {
    let (mut cache, mut memory) = (Cache::default(), Memory::new(1 << 20));
    let large: Arc<[u8]> = Arc::from([stream(), vec![0; 4 << 20]].concat());
    push_of(&large, &mut cache, &mut memory, 0, 100);
    assert_eq!((Arc::strong_count(&large), memory.used(), memory.lent()), (1, 100, 1));
    assert_eq!(bytes(&cache, START), stream()[..100]);
}

#[test]
fn a_hole_is_filled_later() {
    let (mut cache, mut memory) = (Cache::default(), Memory::new(1 << 20));
    push(&mut cache, &mut memory, 0, 100);
    push(&mut cache, &mut memory, 300, 400);
    push(&mut cache, &mut memory, 200, 300);
    assert_eq!(cache.span(), Some((START, START.plus(100))));
    push(&mut cache, &mut memory, 100, 200);
    assert_eq!(cache.span(), Some((START, START.plus(400))));
    assert_eq!(bytes(&cache, START), stream()[..400]);
    assert_eq!(memory.used(), 400);
}

#[test]
fn a_damaged_piece_and_what_follows_counts_as_never_seen() {
    let (mut cache, mut memory) = (Cache::default(), Memory::new(1 << 20));
    push(&mut cache, &mut memory, 0, 101);
    let stream = stream();
    let payload = (&stream[101..180], &stream[180..200]);
    let (seq, home) = (START.plus(101), None);
    cache.push(&mut memory, Payload { seq, bytes: payload, home, sum: 1, push: false });
    push(&mut cache, &mut memory, 200, 300);
    cache.verify(&mut memory);
    assert_eq!(cache.span(), Some((START, START.plus(101))));
    assert_eq!(memory.used(), 101);
}

#[test]
fn no_connection_takes_more_than_its_share_nor_all_more_than_there_is() {
    let mut memory = Memory::new(8_000);
    let mut caches: Vec<_> = (0..10).map(|_| Cache::default()).collect();
    for cache in &mut caches {
        for from in (0..3_000).step_by(100) {
            push(cache, &mut memory, from, from + 100);
        }
    }
    let held: Vec<_> = caches.iter().map(Cache::len).collect();
    assert_eq!(held, [1_000, 1_000, 1_000, 1_000, 1_000, 1_000, 1_000, 0, 0, 0]);
    assert!(memory.take_for_oldest(1_000) && !memory.take_for_oldest(1), "the rest is for those");
    memory.give_back(1_000);
    caches.iter_mut().for_each(|cache| cache.clear(&mut memory));
    assert_eq!(memory.used(), 0);
}

proptest! {
    /// Whatever comes in whatever order: what is held is what was sent, and counted.
    #[test]
    fn it_holds_the_stream(
        operations in proptest::collection::vec((0usize..38, 1usize..4, 0u8..12), 1..120),
        max in 200usize..40_000,
    ) {
        let (mut cache, mut memory) = (Cache::default(), Memory::new(max));
        let buffers: Vec<Arc<[u8]>> = (0..3).map(|_| Arc::from(stream())).collect();
        let mut acked = 0;
        for (at, count, what) in operations {
            if what == 0 {
                acked = acked.max(at * 100 / 3);
                cache.acknowledged(&mut memory, START.plus(acked as u32));
            } else if let Some(buffer) = buffers.get(usize::from(what) - 1) {
                push_of(buffer, &mut cache, &mut memory, at * 100, at * 100 + count * 50);
            } else {
                push(&mut cache, &mut memory, at * 100, at * 100 + count * 50);
            }
            prop_assert_eq!(memory.used(), cache.len());
            prop_assert!(cache.len() <= max / 8);
            if let Some((first, end)) = cache.span() {
                let (first, end) = (first.since(START) as usize, end.since(START) as usize);
                prop_assert_eq!(bytes(&cache, START.plus(first as u32)), &stream()[first..end]);
            }
        }
        let held = cache.span();
        cache.verify(&mut memory);
        prop_assert_eq!(cache.span(), held, "nothing was damaged");
        cache.clear(&mut memory);
        prop_assert_eq!((memory.used(), memory.lent()), (0, 0));
        prop_assert!(buffers.iter().all(|buffer| Arc::strong_count(buffer) == 1));
    }
}

#[test]
fn small_pieces_count_as_what_it_takes_to_remember_them() {
    let (mut cache, mut memory) = (Cache::default(), Memory::new(80_000));
    let push = |cache: &mut Cache, memory: &mut Memory, at: u32| {
        let payload =
            Payload { seq: START.plus(at), bytes: (&[1], &[]), home: None, sum: 256, push: false };
        cache.push(memory, payload)
    };
    let kept: usize = (0..1_000).map(|at| push(&mut cache, &mut memory, at)).sum();
    assert!(kept * PIECE_MIN <= 10_000, "the share of one, not {kept} of a byte");
    assert_eq!((cache.len(), memory.used()), (kept * PIECE_MIN, kept * PIECE_MIN));
    cache.acknowledged(&mut memory, START.plus(100));
    assert_eq!(memory.used(), (kept - 100) * PIECE_MIN);
    cache.clear(&mut memory);
    // Behind a hole some wait, and what came otherwise meanwhile waits no longer.
    let mut memory = Memory::new(1 << 20);
    push(&mut cache, &mut memory, 0);
    for at in 2..2_000 {
        push(&mut cache, &mut memory, at);
    }
    assert_eq!(cache.beyond.len(), BEYOND_PIECES_MAX);
    let whole = stream();
    let sum = Sum::default().bytes(&whole[1..11]).folded();
    let bytes = (&whole[1..11], &[][..]);
    cache.push(&mut memory, Payload { seq: START.plus(1), bytes, home: None, sum, push: false });
    let (first, end) = cache.span().unwrap();
    assert_eq!((first, cache.beyond.len()), (START, 0), "up to {end:?} it follows");
    assert_eq!((cache.len(), cache.waiting), (memory.used(), 0));
    cache.clear(&mut memory);
    assert_eq!(memory.used(), 0);
}

/// Its checksum was left out, and the field says nothing of the payload.
#[test]
fn the_payload_of_a_restored_packet_is_sound() {
    let [source, destination] = [[10, 77, 0, 2], [192, 0, 2, 80]].map(|it| (it.into(), 443));
    let made = Made {
        ends: Ends { source, destination },
        seq: Seq(7),
        ack: Seq(9),
        flags: Flags::ACK,
        window: 512,
        timestamps: None,
    };
    let mut packet = Vec::new();
    made.emit((b"payload", &[]), &mut packet);
    packet[36] ^= 1;
    for (checksum, is_sound) in [(Checksum::Unchecked, false), (Checksum::LeftOut, true)] {
        let packet = Pieces::whole(&packet).with_checksum(checksum);
        let packet = InnerPacket::parse(packet).unwrap();
        let segment = Segment::parse(&packet).unwrap();
        assert_eq!(Payload::of(&packet, &segment).is_sound(), is_sound);
    }
}
