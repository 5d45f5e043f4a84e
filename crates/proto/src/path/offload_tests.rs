use super::*;
use crate::recovery::segmented::Runs;

const LEN: u64 = 1_400;

/// What loses datagrams on the way, and what the sending host does with segmented sends.
struct World {
    random: u64,
    /// Datagrams of a run that find room at the policer; `u64::MAX` without one.
    policer: fn(u64) -> u64,
    mangles: fn(u64, usize, usize) -> bool,
}

/// A path over it: the time, and what became of runs.
struct Trip {
    world: World,
    offload: Offload,
    runs: Runs,
    now: Instant,
    draws: u64,
    sends: u64,
    segmented: u64,
    single: u64,
}

const NOTHING: fn(u64, usize, usize) -> bool = |_, _, _| false;

impl Trip {
    fn new(seed: u64, world: World) -> Self {
        let now = Instant::from_nanos(1_000_000_000 + seed * 7_919);
        let (offload, runs) = (Offload::default(), Runs::default());
        Self { world, offload, runs, now, draws: seed << 32, sends: 0, segmented: 0, single: 0 }
    }

    fn below(&mut self, most: u64) -> u64 {
        self.draws += 1;
        mixed(self.draws.wrapping_mul(GOLDEN)) % most
    }

    /// Sends one run of two to 41 datagrams, and hears of it.
    fn run(&mut self) -> bool {
        let count = 2 + self.below(40) as usize;
        let room = (self.world.policer)(self.below(64));
        let sending = self.offload.next(false);
        let (mut lost, mut delivered, mut tag) = (0, 0, None);
        let is_segmented = sending != Sending::Single;
        self.sends += u64::from(is_segmented);
        *(if is_segmented { &mut self.segmented } else { &mut self.single }) += 1;
        for at in 0..count {
            tag = self.offload.added(sending, at == 0).or(tag);
            let is_full = sending == Sending::Segmented;
            let end = if is_full { count } else { usize::MAX };
            let is_mangled = is_segmented && (self.world.mangles)(self.sends, at, end);
            let is_lost = is_mangled || self.below(1_000) < self.world.random || at as u64 >= room;
            *(if is_lost { &mut lost } else { &mut delivered }) += LEN;
            self.runs.settle(tag.unwrap_or_default(), is_lost);
        }
        self.now = self.now + Duration::from_millis(2);
        let evidence = self.runs.take();
        self.offload.told(self.now, (delivered, lost), evidence)
    }

    /// Runs until it sends like `sending`; `None` if it does not within `most`.
    fn until(&mut self, sending: Sending, most: u32) -> Option<u32> {
        (0..most).find(|_| {
            self.run();
            self.offload.fallback().is_some_and(|(now, _)| now == sending)
        })
    }
}

const SOUND: World = World { random: 0, policer: |_| u64::MAX, mangles: NOTHING };

#[test]
fn a_path_that_loses_nothing_is_never_compared() {
    let mut trip = Trip::new(1, SOUND);
    (0..10_000).for_each(|_| _ = trip.run());
    assert_eq!((trip.offload.comparisons, trip.single), (0, 0));
}

/// Random losses, bursts that lose their ends, and both.
#[test]
fn what_a_network_loses_is_not_put_down_to_offload() {
    for seed in 0..100 {
        for (random, policer) in [
            (50, (|_| u64::MAX) as fn(u64) -> u64),
            (0, |room| room / 2),
            (20, |room| if room < 32 { 0 } else { room }),
        ] {
            let mut trip = Trip::new(seed, World { random, policer, ..SOUND });
            for _ in 0..3_000 {
                trip.run();
                assert_eq!(trip.offload.fallback(), None, "seed {seed}, {random}");
            }
            assert!(trip.offload.comparisons > 0, "it was compared");
        }
    }
}

/// As at the end of a slow start: every run loses datagrams for a moment, then none does.
#[test]
fn a_burst_of_losses_costs_a_short_comparison() {
    for seed in 0..100 {
        let mut trip = Trip::new(seed, World { policer: |room| room / 2, ..SOUND });
        (0..20).for_each(|_| _ = trip.run());
        trip.world = SOUND;
        (0..4_000).for_each(|_| _ = trip.run());
        assert_eq!((trip.offload.comparisons, trip.offload.fallback()), (1, None), "seed {seed}");
        assert!(trip.single < u64::from(COURSE_RUNS), "seed {seed}: {} runs", trip.single);
    }
}

#[test]
fn a_lossy_path_seldom_pays_for_comparisons() {
    let mut trip = Trip::new(3, World { random: 50, ..SOUND });
    (0..200_000).for_each(|_| _ = trip.run());
    let part = trip.single as f64 / (trip.single + trip.segmented) as f64;
    assert!(part < 0.05, "{part}");
}

#[test]
fn runs_that_are_mangled_by_their_end_get_a_shorter_one() {
    let whole: fn(u64, usize, usize) -> bool = |_, _, end| end < usize::MAX;
    let last: fn(u64, usize, usize) -> bool = |_, at, end| at + 1 == end;
    for seed in 0..100 {
        for mangles in [whole, last] {
            for random in [0, 50] {
                let mut trip = Trip::new(seed, World { random, mangles, ..SOUND });
                let runs = trip.until(Sending::ShortLast, 600);
                assert!(runs.is_some(), "seed {seed}, {random}: not noticed");
                let more = trip.until(Sending::Single, 20_000);
                assert_eq!(more, None, "seed {seed}: that is all it needs");
            }
        }
    }
}

#[test]
fn where_the_end_does_not_matter_nothing_is_segmented() {
    let nth: fn(u64, usize, usize) -> bool = |send, _, _| send.is_multiple_of(5);
    let mut all: Vec<u32> = (0..100)
        .map(|seed| {
            let mut trip = Trip::new(seed, World { mangles: nth, ..SOUND });
            trip.until(Sending::Single, 4_000).expect("noticed")
        })
        .collect();
    all.sort_unstable();
    assert!(all[50] < 700, "{all:?}");
}

#[test]
fn segmented_sends_are_tried_again_rarely_and_taken_up_again_when_they_work() {
    let mut trip = Trip::new(5, World { mangles: |_, _, end| end < usize::MAX, ..SOUND });
    trip.until(Sending::ShortLast, 600).unwrap();
    let minutes = |trip: &mut Trip, count: u64| {
        let end = trip.now + Duration::from_secs(60 * count);
        let before = trip.offload.comparisons;
        while trip.now < end {
            trip.run();
        }
        trip.offload.comparisons - before
    };
    assert!(minutes(&mut trip, 9) <= 1, "the comparison with a short last segment");
    assert_eq!(minutes(&mut trip, 3), 1, "after ten minutes it is tried again");
    assert!(trip.offload.fallback().is_some());
    assert_eq!(minutes(&mut trip, 15), 0, "the next time is later");
    trip.world.mangles = NOTHING;
    assert_eq!(minutes(&mut trip, 10), 1);
    assert_eq!((trip.offload.fallback(), trip.offload.next(false)), (None, Sending::Segmented));
}

#[test]
fn a_fallback_is_adopted_and_never_undone_by_another_path() {
    let mut trip = Trip::new(6, World { mangles: |_, _, end| end < usize::MAX, ..SOUND });
    trip.until(Sending::ShortLast, 600).unwrap();
    let mut other = Offload::default();
    other.adopt(&trip.offload);
    assert_eq!(other.fallback(), trip.offload.fallback());
    assert!(other.comparison.is_none());
    other.adopt(&Offload::default());
    assert_eq!(other.fallback(), trip.offload.fallback());
}

/// What a path sent before it adopted a fallback is no evidence in its next comparison.
#[test]
fn a_fallback_that_is_adopted_leaves_old_evidence_behind() {
    let mut trip = Trip::new(7, World { mangles: |_, _, end| end < usize::MAX, ..SOUND });
    trip.until(Sending::ShortLast, 600).unwrap();
    for comparisons in [1, 2] {
        let mut other = Offload { comparisons, ..Offload::default() };
        other.adopt(&trip.offload);
        other.compare(trip.now, Sending::ShortLast);
        assert_ne!(other.comparison.unwrap().is_second, comparisons.is_multiple_of(2));
    }
}

#[test]
fn repairs_are_not_risked_while_segmented_sends_are_suspect() {
    let mut offload = Offload::default();
    assert_eq!(offload.next(true), Sending::Segmented);
    offload.compare(Instant::from_nanos(1), Sending::Segmented);
    let (next, tag) = (offload.next(false), offload.added(Sending::Segmented, true));
    assert_eq!(offload.next(true), Sending::Alone);
    assert_eq!(offload.added(Sending::Alone, true), None, "no part of the comparison");
    assert_eq!((tag.is_some(), offload.comparison.unwrap().runs), (true, 1));
    assert_ne!(next, Sending::Alone);
}

#[test]
fn coins_are_fair() {
    for seed in 0..20 {
        let mut offload = Offload::default();
        offload.compare(Instant::from_nanos(seed * 12_345), Sending::Segmented);
        let mut heads = 0;
        for _ in 0..10_000 {
            heads += u32::from(offload.next(false) == Sending::Single);
            offload.added(Sending::Segmented, true);
        }
        assert!((4_800..5_200).contains(&heads), "{heads}");
    }
}
