use proptest::prelude::*;

use super::*;
use crate::packet::Checksum;

const BULK: u8 = 7;
const SPARSE: u8 = 200;

fn at_us(us: u64) -> Instant {
    Instant::from_nanos(us * 1_000)
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A UDP packet of `len` bytes that says who it is; `service` is the byte with the ECN field.
fn packet(len: usize, service: u8, id: u32) -> Vec<u8> {
    let mut packet = vec![0; len];
    let [high, low] = u16::try_from(len).unwrap().to_be_bytes();
    packet[..4].copy_from_slice(&[0x45, service, high, low]);
    packet[9] = 17;
    packet[12..16].copy_from_slice(&id.to_be_bytes());
    packet
}

/// The record of a packet of `bucket`, of which `kept` bytes are kept.
fn of(bucket: u8, kept: u16) -> PacketRecord {
    PacketRecord { kept, ..PacketRecord::of_bucket(bucket) }
}

fn id(packet: &[u8]) -> u32 {
    u32::from_be_bytes(packet[12..16].try_into().unwrap())
}

/// Takes the next packet out, its bytes in place of those in `out`.
fn pop(
    entry: &mut FqCodel,
    blocks: &mut Blocks,
    now: Instant,
    out: &mut Vec<u8>,
) -> Option<PacketRecord> {
    let (popped, packet) = entry.pop(blocks, now)?;
    out.clear();
    out.extend_from_slice(packet.packet());
    blocks.discard(packet);
    Some(popped)
}

/// An entry before a link of 10 Mbit/s, and what came out of it.
#[derive(Default)]
struct Link {
    entry: FqCodel,
    blocks: Blocks,
    now_us: u64,
    /// When the link has sent what it has.
    free_us: u64,
    refused: u64,
    left: Vec<(u64, PacketRecord, Vec<u8>)>,
}

const BYTES_PER_MS: u64 = 1_250;

impl Link {
    fn push(&mut self, bucket: u8, len: usize, service: u8, bound: Bound) {
        let packet = packet(len, service, u32::try_from(self.now_us).unwrap());
        let inner = Pieces::whole(&packet);
        let now = at_us(self.now_us);
        self.refused += self.entry.push(&mut self.blocks, now, of(bucket, 0), inner, bound);
        self.send();
    }

    fn send(&mut self) {
        while self.free_us <= self.now_us {
            let mut packet = Vec::new();
            let now = at_us(self.now_us);
            let popped = pop(&mut self.entry, &mut self.blocks, now, &mut packet);
            let Some(popped) = popped else { return };
            self.free_us = self.now_us + packet.len() as u64 * 1_000 / BYTES_PER_MS;
            self.left.push((self.now_us, popped, packet));
        }
    }

    /// Lets time go on until `until_us`.
    fn run(&mut self, until_us: u64) {
        while self.free_us <= until_us && !self.entry.is_empty() {
            self.now_us = self.now_us.max(self.free_us);
            self.send();
        }
        self.now_us = until_us;
        self.send();
    }

    fn waits(&self, bucket: u8, from_us: u64) -> Vec<Duration> {
        let of_bucket = |(at, popped, _): &&(u64, PacketRecord, Vec<u8>)| {
            popped.bucket == bucket && *at >= from_us
        };
        let waited = |at: u64, packet: &[u8]| Duration::from_micros(at - u64::from(id(packet)));
        self.left.iter().filter(of_bucket).map(|(at, _, packet)| waited(*at, packet)).collect()
    }
}

/// A bucket that offers `percent` of the link for `seconds`, in full packets.
fn load(link: &mut Link, percent: u64, seconds: u64, service: u8, bound: Bound) {
    let (end_us, pause_us) = (seconds * 1_000_000, 1_500 * 100_000 / (BYTES_PER_MS * percent));
    while link.now_us < end_us {
        link.push(BULK, 1_500, service, bound);
        link.run(link.now_us + pause_us);
    }
}

#[test]
fn who_sends_little_never_waits_for_who_sends_much() {
    let mut link = Link::default();
    for round in 0..500 {
        for bucket in (BULK - 5..=BULK).cycle().take(24) {
            link.push(bucket, 1_500, 0, Bound::LONG);
        }
        link.run(round * 20_000 + 7_300);
        link.push(SPARSE, 200, 0, Bound::SHORT);
        link.run((round + 1) * 20_000);
    }
    // All who begin at once are equal; that is over after a while.
    let (few, many) = (link.waits(SPARSE, 100_000), link.waits(BULK, 0));
    assert_eq!(few.len(), 495);
    let quantum = Duration::from_micros(u64::from(QUANTUM) * 1_000 / BYTES_PER_MS);
    assert!(few.iter().max().unwrap() < &quantum, "{:?}", few.iter().max());
    assert!(many.iter().max().unwrap() > &ms(80));
}

#[test]
fn all_who_send_much_get_as_many_bytes() {
    let mut link = Link::default();
    for step in 0..2_000u64 {
        for _ in 0..2 {
            link.push(1, 1_500, 0, Bound::LONG);
            link.push(2, 500, 0, Bound::LONG);
            link.push(2, 500, 0, Bound::LONG);
            link.push(2, 500, 0, Bound::LONG);
            link.push(3, 1_400, 0, Bound::LONG);
        }
        link.run((step + 1) * 2_400);
    }
    let bytes = |bucket| -> usize {
        let of_bucket = link.left.iter().filter(|(_, popped, _)| popped.bucket == bucket);
        of_bucket.map(|(_, _, packet)| packet.len()).sum()
    };
    let all = [bytes(1), bytes(2), bytes(3)];
    let (least, most) = (all.iter().min().unwrap(), all.iter().max().unwrap());
    assert!(most - least <= 2 * usize::from(QUANTUM), "{all:?}");
}

/// Its queue was found empty before the next comes, and still it is no better off than who has a
/// long one.
#[test]
fn one_packet_at_a_time_gets_no_more_than_its_share() {
    let mut link = Link::default();
    for step in 0..3_000 {
        for bucket in BULK - 2..=BULK {
            link.push(bucket, 1_500, 0, Bound::LONG);
        }
        let lately = link.left.iter().rev().take(2).any(|(_, popped, _)| popped.bucket == SPARSE);
        if !lately && !link.entry.waits(SPARSE) {
            link.push(SPARSE, 1_500, 0, Bound::LONG);
        }
        link.run((step + 1) * 1_200);
    }
    let (few, all) = (link.waits(SPARSE, 0).len(), link.left.len());
    assert!(few <= all / 4 && few > all / 10, "{few} of {all}");
}

#[test]
fn who_does_not_listen_is_held_near_the_target() {
    for (bound, percent, until) in [(Bound::SHORT, 110, ms(25)), (Bound::LONG, 102, ms(160))] {
        let mut link = Link::default();
        load(&mut link, percent, 30, 0, bound);
        let late = link.waits(BULK, 20_000_000);
        let mean = late.iter().sum::<Duration>() / u32::try_from(late.len()).unwrap();
        assert!(mean > bound.target && mean < until, "{bound:?}: {mean:?}");
        // And the link is never idle for it: 10 s of full packets.
        assert!(late.len() >= 8_330, "{bound:?}: {}", late.len());
        // What is too much is lost, and nothing else.
        let lost = link.entry.take_dropped() * 100 / link.left.len() as u64;
        assert!(lost + 1 >= percent - 100 && lost <= percent - 100, "{bound:?}: {lost} %");
        assert_eq!((link.entry.take_dropped(), link.entry.take_marked(), link.refused), (0, 0, 0));
    }
}

#[test]
fn who_does_not_listen_at_all_waits_no_longer_than_the_limit() {
    let bound = Bound::LONG.for_the_deaf();
    for percent in [110, 400] {
        let mut link = Link::default();
        load(&mut link, percent, 10, 0, bound);
        // Longer only until it is clear that nobody listens.
        let longest = |from_us| link.waits(BULK, from_us).into_iter().max().unwrap();
        assert!(longest(0) > ms(300), "{percent} %: {:?}", longest(0));
        assert!(longest(5_000_000) < ms(165), "{percent} %: {:?}", longest(5_000_000));
        assert!(link.waits(BULK, 5_000_000).len() >= 4_165, "{percent} %: the link is idle");
        // Without a limit nothing keeps its queue short.
        let mut other = Link::default();
        load(&mut other, percent, 10, 0, Bound::LONG);
        let longest = other.waits(BULK, 5_000_000).into_iter().max().unwrap();
        assert!(longest > ms(250), "{percent} %: {longest:?}");
    }
    // Who answers to being told never comes to that: 50 % too much, until it was told once.
    let mut link = Link::default();
    load(&mut link, 150, 1, 0, bound);
    let most = link.waits(BULK, 0).into_iter().max().unwrap();
    assert!(most > ms(300), "{most:?}");
    let dropped = link.entry.take_dropped();
    assert!((1..5).contains(&dropped), "{dropped}");
}

#[test]
fn who_understands_marks_loses_nothing() {
    let mut link = Link::default();
    load(&mut link, 102, 10, 2, Bound::SHORT);
    let marked = link.left.iter().filter(|(_, _, packet)| packet[1] == 3).count();
    assert_eq!(link.entry.take_marked(), marked as u64);
    assert!(marked > 20, "{marked}");
    assert_eq!(link.entry.take_dropped(), 0);
}

#[test]
fn the_fullest_loses_its_oldest_when_there_is_no_room() {
    let (mut entry, mut blocks) = (FqCodel::default(), Blocks::default());
    let mut push = |entry: &mut FqCodel, bucket, len, id| {
        let packet = packet(len, 0, id);
        let inner = Pieces::cut(&packet[..20], &packet[20..]);
        entry.push(&mut blocks, at_us(id.into()), of(bucket, id as u16), inner, Bound::LONG)
    };
    for id in 0..100 {
        assert_eq!(push(&mut entry, SPARSE, 100, id), 0);
    }
    let dropped: u64 = (0..7_000).map(|id| push(&mut entry, BULK, 1_500, id)).sum();
    assert!(dropped > 1_000 && entry.len() as u64 == 7_100 - dropped);
    assert!(entry.weight() <= BYTES_MAX && entry.weight() > BYTES_MAX - 2_000);
    // What it tells of when it is pushed, it does not tell of again.
    assert_eq!(entry.take_dropped(), 0);
    let mut packet = Vec::new();
    let popped = |entry: &mut FqCodel, blocks: &mut Blocks, packet: &mut Vec<u8>| {
        pop(entry, blocks, at_us(7_000), packet).map(|popped| (popped.bucket, popped.kept))
    };
    let first = popped(&mut entry, &mut blocks, &mut packet);
    assert_eq!(first, Some((SPARSE, 0)), "not one of the small ones was lost");
    while packet.len() == 100 {
        popped(&mut entry, &mut blocks, &mut packet);
    }
    assert_eq!(u64::from(id(&packet)), dropped, "the oldest were");
}

#[test]
fn what_is_known_of_a_checksum_waits_with_its_packet() {
    let (mut entry, mut blocks) = (FqCodel::default(), Blocks::default());
    let packet = packet(100, 0, 0);
    for checksum in [Checksum::Right, Checksum::Unchecked] {
        let inner = Pieces::whole(&packet).with_checksum(checksum);
        assert_eq!(entry.push(&mut blocks, at_us(0), of(SPARSE, 0), inner, Bound::LONG), 0);
        let (_, waited) = entry.pop(&mut blocks, at_us(0)).unwrap();
        assert_eq!(Pieces::waited(&waited).checksum, checksum);
        blocks.discard(waited);
    }
}

#[test]
fn short_packets_take_room_as_well() {
    let (mut entry, mut blocks) = (FqCodel::default(), Blocks::default());
    let packet = packet(40, 0, 0);
    let mut push = |bucket| {
        let inner = Pieces::whole(&packet);
        entry.push(&mut blocks, at_us(0), of(bucket, 0), inner, Bound::LONG)
    };
    assert!((0..PACKETS_MAX).all(|number| push((number % 3) as u8) == 0));
    assert_eq!([push(3), push(4)], [1, 1]);
    assert_eq!((entry.len(), entry.bytes()), (PACKETS_MAX, PACKETS_MAX * 40));
    assert!(entry.waits(3) && entry.waits(4), "of those that have much");
}

#[test]
fn what_waited_for_too_long_goes_some_at_a_time() {
    let (mut entry, mut blocks) = (FqCodel::default(), Blocks::default());
    let packet = packet(1_000, 0, 0);
    for bucket in 0..250 {
        for round in 0..4 {
            let now = at_us(if round < 2 { 0 } else { 2_000_000 });
            let inner = Pieces::whole(&packet);
            assert_eq!(entry.push(&mut blocks, now, of(bucket, 0), inner, Bound::LONG), 0);
        }
    }
    assert_eq!(entry.due(), Some(at_us(3_000_000)));
    entry.expire(&mut blocks, at_us(2_999_999));
    assert_eq!(entry.take_dropped(), 0);
    entry.expire(&mut blocks, at_us(3_000_000));
    assert_eq!((entry.take_dropped(), entry.due()), (256, Some(at_us(3_001_000))));
    entry.expire(&mut blocks, at_us(3_001_000));
    assert_eq!((entry.take_dropped(), entry.due()), (244, Some(at_us(5_000_000))));
    // What nobody expired in time is not given out either.
    let popped = pop(&mut entry, &mut blocks, at_us(6_000_000), &mut Vec::new());
    assert_eq!((popped, entry.take_dropped(), entry.len()), (None, 500, 0));
    assert_eq!(entry.due(), Some(at_us(16_000_000)));
    entry.expire(&mut blocks, at_us(16_000_000));
    assert_eq!((entry.due(), entry.buckets.capacity()), (None, 0));
}

#[test]
fn what_no_tunnel_carries_does_not_wait() {
    let (mut entry, mut blocks) = (FqCodel::default(), Blocks::default());
    for len in [0, MAX_PACKET + 1, 70_000] {
        let bytes = vec![0x45; len];
        let inner = Pieces::whole(&bytes);
        assert_eq!(entry.push(&mut blocks, at_us(0), of(0, 0), inner, Bound::SHORT), 1);
    }
    assert!(entry.is_empty() && entry.due().is_none());
}

#[derive(Clone, Debug)]
enum Op {
    Push { bucket: u8, len: usize, service: u8 },
    Pop(usize),
    Rest { ms: u64 },
    Expire,
}

fn op() -> impl Strategy<Value = Op> {
    let push = (0u8..6, 20usize..=MAX_PACKET, any::<u8>());
    prop_oneof![
        6 => push.prop_map(|(bucket, len, service)| Op::Push { bucket, len, service }),
        2 => (1usize..6).prop_map(Op::Pop),
        1 => (0u64..400).prop_map(|ms| Op::Rest { ms }),
        1 => Just(Op::Expire),
    ]
}

proptest! {
    /// What is pushed is popped once, in the order of its bucket, or counted.
    #[test]
    fn nothing_is_lost_untold(ops in proptest::collection::vec(op(), 1..400)) {
        let (mut entry, mut blocks) = (FqCodel::default(), Blocks::default());
        let (mut now, mut pushed, mut popped, mut lost) = (at_us(5), 0, 0, 0);
        let mut newest = [None; 6];
        let mut bytes = Vec::new();
        for op in ops {
            match op {
                Op::Push { bucket, len, service } => {
                    let bytes = packet(len, service, pushed);
                    let inner = Pieces::cut(&bytes[..len / 2], &bytes[len / 2..]);
                    let record = of(bucket, pushed as u16);
                    lost += entry.push(&mut blocks, now, record, inner, Bound::SHORT);
                    pushed += 1;
                    prop_assert!(entry.waits(bucket));
                }
                Op::Pop(times) => for _ in 0..times {
                    let Some(out) = pop(&mut entry, &mut blocks, now, &mut bytes) else { break };
                    popped += 1;
                    let declared = u16::from_be_bytes([bytes[2], bytes[3]]);
                    prop_assert_eq!(bytes.len(), usize::from(declared));
                    prop_assert_eq!(id(&bytes) as u16, out.kept);
                    let newest = &mut newest[usize::from(out.bucket)];
                    prop_assert!(newest.is_none_or(|newest| newest < out.kept));
                    *newest = Some(out.kept);
                },
                Op::Rest { ms } => now = now + Duration::from_millis(ms),
                Op::Expire => entry.expire(&mut blocks, now),
            }
            lost += entry.take_dropped();
            prop_assert_eq!(u64::from(pushed), popped + lost + entry.len() as u64);
            prop_assert!(entry.weight() <= BYTES_MAX);
            prop_assert_eq!((0..=255).any(|bucket| entry.waits(bucket)), !entry.is_empty());
            let held: usize = entry.buckets.iter().flatten().map(|bucket| bucket.bytes).sum();
            prop_assert_eq!(entry.bytes(), held);
            prop_assert!(entry.is_empty() || entry.due().is_some());
        }
        let cleared = entry.clear(&mut blocks) as u64;
        prop_assert_eq!(u64::from(pushed), popped + lost + cleared);
        prop_assert_eq!((entry.len(), entry.bytes(), entry.take_dropped()), (0, 0, 0));
        prop_assert_eq!(entry.due(), None);
    }
}

#[test]
fn what_is_of_no_use_any_more_is_forgotten_and_the_rest_keeps_its_order() {
    let (mut entry, mut blocks, mut out) = (FqCodel::default(), Blocks::default(), Vec::new());
    for number in 0..6 {
        let packet = packet(1_000, 0, number);
        let whole = Pieces::whole(&packet);
        entry.push(&mut blocks, at_us(0), of(BULK, number as u16), whole, Bound::LONG);
    }
    let whole = packet(100, 0, 8);
    entry.push(&mut blocks, at_us(0), of(SPARSE, 8), Pieces::whole(&whole), Bound::LONG);
    entry.forget(&mut blocks, |_, packet| id(packet).is_multiple_of(2));
    assert_eq!((entry.len(), entry.bytes(), entry.queued(BULK)), (3, 3_000, 3_000));
    let mut left = std::iter::from_fn(|| pop(&mut entry, &mut blocks, at_us(1), &mut out));
    assert_eq!(left.by_ref().map(|popped| popped.kept).collect::<Vec<_>>(), [1, 3, 5]);
    assert_eq!((entry.len(), entry.take_dropped()), (0, 0));
}

/// What leaves of each bucket of 16, 4 and 1 shares, in bytes, while those that `offer` always have
/// something that waits.
fn shares(offer: [bool; 3]) -> [usize; 3] {
    let (mut entry, mut blocks, mut out) = (FqCodel::default(), Blocks::default(), Vec::new());
    let mut left = [0; 3];
    for us in 0..3_000 {
        let now = at_us(us);
        for (bucket, level) in (0..).zip(Level::ALL) {
            while offer[usize::from(bucket)] && entry.queued(bucket) < 60_000 {
                let packet = packet(1_400, 0, 0);
                let record = PacketRecord { level, ..of(bucket, 0) };
                entry.push(&mut blocks, now, record, Pieces::whole(&packet), Bound::LONG);
            }
        }
        let popped = pop(&mut entry, &mut blocks, now, &mut out).unwrap();
        left[usize::from(popped.bucket)] += out.len();
    }
    left
}

#[test]
fn turns_are_as_long_as_was_said_and_who_has_nothing_to_send_costs_nobody_anything() {
    let of_all = |left: [usize; 3]| left.map(|bytes| bytes as f64 / (3_000.0 * 1_400.0));
    let parts = of_all(shares([true; 3]));
    for (part, weight) in parts.into_iter().zip([16.0, 4.0, 1.0]) {
        assert!((part / (weight / 21.0) - 1.0).abs() < 0.03, "{parts:?}");
    }
    let parts = of_all(shares([false, true, true]));
    assert!((parts[1] - 0.8).abs() < 0.02 && (parts[2] - 0.2).abs() < 0.02, "{parts:?}");
    assert_eq!(of_all(shares([false, false, true])), [0.0, 0.0, 1.0]);
}
