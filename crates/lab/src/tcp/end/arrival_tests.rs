//! What an end makes of segments that nobody meant, or that somebody between the ends made up.

use super::*;
use crate::emu::SECOND;
use crate::tcp::end::{Config, EndStats, State};
use crate::tcp::segment::{Options, Timestamps};
use proptest::prelude::*;

/// Two ends that are connected without any link: what leaves one arrives at once, or is kept.
struct Pair {
    client: End,
    server: End,
    now_ns: u64,
}

impl Pair {
    fn new() -> Self {
        Self::with(|config| config)
    }

    /// The same with another client.
    fn with(change: impl FnOnce(Config) -> Config) -> Self {
        let (a, b) = ("192.0.2.1:5000".parse().unwrap(), "198.51.100.7:80".parse().unwrap());
        let config = Config { no_delay: true, ..Config::new(a, b, 5) };
        let client = End::connect(change(config), 0);
        let mut pair = Self { client, server: End::listen(Config::new(b, a, 6)), now_ns: 0 };
        pair.talk();
        assert_eq!(pair.client.state(), State::Established);
        assert_eq!(pair.server.state(), State::Established);
        pair
    }

    /// Lets packets go to and fro until neither has more to say.
    fn talk(&mut self) {
        for _ in 0..1_000 {
            let there = self.client.leaving(self.now_ns);
            let back = self.server.leaving(self.now_ns);
            if there.is_empty() && back.is_empty() {
                return;
            }
            there.iter().for_each(|packet| self.server.arrives(self.now_ns, packet));
            back.iter().for_each(|packet| self.client.arrives(self.now_ns, packet));
        }
        panic!("they talk without end");
    }

    /// What the client would send next, changed.
    fn client_says(&self, change: impl FnOnce(&mut Segment)) -> Vec<u8> {
        let Self { client, now_ns, .. } = self;
        forged(client, *now_ns, change)
    }

    /// What the server would send next, changed.
    fn server_says(&self, change: impl FnOnce(&mut Segment)) -> Vec<u8> {
        let Self { server, now_ns, .. } = self;
        forged(server, *now_ns, change)
    }
}

fn forged(end: &End, now_ns: u64, change: impl FnOnce(&mut Segment)) -> Vec<u8> {
    let value = end.clock.value(now_ns);
    let mut segment = Segment {
        sequence: end.sender.numbering.wire(end.sender.next),
        acknowledgment: Some(end.receiver.numbering.wire(end.receiver.next)),
        window: 500,
        options: Options { timestamps: Some(Timestamps { value, echo: 0 }), ..Options::default() },
        ..end.blank()
    };
    change(&mut segment);
    segment.emit()
}

#[test]
fn a_timestamp_from_before_is_refused_and_answered() {
    let mut pair = Pair::new();
    pair.now_ns = SECOND;
    pair.client.write(b"one");
    pair.talk();
    let old = pair.client_says(|segment| {
        segment.payload = b"two".to_vec();
        if let Some(timestamps) = &mut segment.options.timestamps {
            timestamps.value = timestamps.value.wrapping_sub(100);
        }
    });
    pair.server.arrives(SECOND, &old);
    assert_eq!(pair.server.delivered(), 3);
    assert_eq!(pair.server.stats().outdated, 1);
    assert_eq!(pair.server.leaving(SECOND).len(), 1);
}

#[test]
fn acknowledgments_of_what_was_never_sent_or_long_ago_move_nothing() {
    let mut pair = Pair::new();
    pair.client.write(b"something");
    pair.client.leaving(0);
    let ahead = pair.server_says(|segment| {
        segment.acknowledgment = segment.acknowledgment.map(|number| number.wrapping_add(100));
    });
    pair.client.arrives(0, &ahead);
    assert_eq!(pair.client.unacknowledged(), 9);
    let long_ago = pair.server_says(|segment| {
        segment.acknowledgment = segment.acknowledgment.map(|number| number.wrapping_sub(1 << 30));
    });
    pair.client.arrives(0, &long_ago);
    assert_eq!(pair.client.unacknowledged(), 9);
    assert_eq!(pair.client.stats().challenges, 1);
}

#[test]
fn a_syn_in_the_middle_is_challenged_at_most_twice_a_second() {
    let mut pair = Pair::new();
    let syn = pair.client_says(|segment| segment.flags.syn = true);
    for _ in 0..5 {
        pair.server.arrives(0, &syn);
    }
    assert_eq!(pair.server.leaving(0).len(), 1);
    pair.server.arrives(600 * MS, &syn);
    assert_eq!(pair.server.leaving(600 * MS).len(), 1);
    assert_eq!(pair.server.stats(), EndStats { challenges: 2, ..EndStats::default() });
    assert_eq!(pair.server.state(), State::Established);
}

#[test]
fn a_window_that_is_taken_back_is_asked_for_and_kills_nobody() {
    let mut pair = Pair::new();
    pair.client.write(&[7; 20_000]);
    let sent = pair.client.leaving(0).len();
    assert!(sent > 5);
    // Nothing of it arrives; somebody says that there is no room any more.
    for now in 0..40u64 {
        let now_ns = now * 60 * SECOND;
        pair.now_ns = now_ns;
        let closed = pair.server_says(|segment| segment.window = 0);
        pair.client.arrives(now_ns, &closed);
        let asked = pair.client.leaving(now_ns);
        assert!(asked.len() <= 1, "only the head asks");
    }
    assert_eq!(pair.client.state(), State::Established);
    let open = pair.server_says(|_| {});
    pair.client.arrives(pair.now_ns, &open);
    for step in 0..40u64 {
        pair.now_ns += 5 * step * SECOND;
        pair.talk();
    }
    assert_eq!(pair.server.delivered(), 20_000);
}

#[test]
fn a_timeout_that_was_none_is_known_by_the_timestamp_from_before() {
    let undone = |old: bool| {
        let mut pair = Pair::new();
        pair.now_ns = SECOND;
        pair.client.write(&[7; 14_480]);
        assert_eq!(pair.client.leaving(SECOND).len(), 10);
        let mut now_ns = SECOND;
        while pair.client.sender_stats().timeouts == 0 {
            now_ns = pair.client.due_ns().unwrap();
            pair.client.leaving(now_ns);
        }
        assert!(pair.client.congestion_window() <= 2, "the head, and a probe before it");
        let echo = pair.client.clock.value(if old { SECOND } else { now_ns });
        let first = pair.server_says(|segment| {
            segment.acknowledgment = segment.acknowledgment.map(|at| at.wrapping_add(1_448));
            let value = pair.server.clock.value(now_ns);
            segment.options.timestamps = Some(Timestamps { value, echo });
        });
        pair.client.arrives(now_ns + 40 * MS, &first);
        (pair.client.sender_stats().undone, pair.client.congestion_window() >= 10)
    };
    assert_eq!(undone(true), (1, true));
    assert_eq!(undone(false), (0, false), "of what left again");
}

/// One segment left again and two are acknowledged: the other may have waited for it.
#[test]
fn without_sack_blocks_a_timeout_was_one_although_more_arrived_than_left_again() {
    let mut pair = Pair::with(|config| Config { sack: false, timestamps: false, ..config });
    let first = pair.client.sender.next;
    pair.client.write(&[7; 14_600]);
    assert_eq!(pair.client.leaving(SECOND).len(), 10);
    let mut now_ns = SECOND;
    while pair.client.sender_stats().timeouts == 0 {
        now_ns = pair.client.due_ns().unwrap();
        pair.client.leaving(now_ns);
    }
    let two = pair.server_says(|segment| {
        segment.acknowledgment = segment.acknowledgment.map(|at| at.wrapping_add(2 * 1_460));
    });
    pair.client.arrives(now_ns + 40 * MS, &two);
    assert_eq!(pair.client.sender_stats().undone, 0);
    let again = pair.client.leaving(now_ns + 40 * MS);
    let again = Segment::parse(&again[0]).unwrap().sequence;
    assert_eq!(again, pair.client.sender.numbering.wire(first + 2 * 1_460));
}

/// What holds a connection still: everything outstanding acknowledged by somebody between the
/// ends, then no window, and every probe answered.
#[test]
fn an_end_that_is_held_lives_on_and_runs_at_once() {
    let mut pair = Pair::new();
    pair.client.write(&[7; 200_000]);
    let outstanding = pair.client.leaving(0);
    let all = |segment: &mut Segment| {
        let bytes: usize = outstanding
            .iter()
            .filter_map(|packet| Some(Segment::parse(packet).ok()?.payload.len()))
            .sum();
        segment.acknowledgment = segment.acknowledgment.map(|at| at.wrapping_add(bytes as u32));
    };
    let closed = pair.server_says(|segment| {
        all(segment);
        segment.window = 0;
    });
    pair.client.arrives(10 * MS, &closed);
    let (mut probes, mut now_ns) = (0, 10 * MS);
    while now_ns < 24 * 3_600 * SECOND {
        for packet in pair.client.leaving(now_ns) {
            assert!(Segment::parse(&packet).unwrap().payload.is_empty());
            probes += 1;
            pair.client.arrives(now_ns, &closed);
        }
        now_ns = pair.client.due_ns().unwrap().max(now_ns + 1);
    }
    assert!((700..740).contains(&probes), "one in two minutes, and some at first: {probes}");
    assert_eq!(pair.client.ending(), None);
    let open = pair.server_says(all);
    pair.client.arrives(now_ns, &open);
    assert_eq!(pair.client.leaving(now_ns).len(), 10, "the first window, at once");
}

#[test]
fn a_stranger_is_refused_and_noise_is_counted() {
    let mut pair = Pair::new();
    let stranger = pair.client_says(|segment| segment.source.set_port(1));
    pair.server.arrives(0, &stranger);
    pair.server.arrives(0, &[0x45; 60]);
    let EndStats { foreign, malformed, .. } = pair.server.stats();
    assert_eq!((foreign, malformed), (1, 1));
    pair.server.abort(0);
    pair.talk();
    assert_eq!(pair.client.ending(), Some(Ending::ResetByPeer));
    assert_eq!(pair.server.ending(), Some(Ending::Aborted));
    let late = pair.client_says(|segment| segment.payload = vec![1]);
    pair.server.arrives(0, &late);
    let reset = Segment::parse(&pair.server.leaving(0)[0]).unwrap();
    assert!(reset.flags.rst);
}

#[test]
fn both_may_close_at_the_same_time_and_both_may_open() {
    let mut pair = Pair::new();
    pair.client.close();
    pair.server.close();
    pair.talk();
    assert_eq!(pair.client.state(), State::TimeWait);
    assert_eq!(pair.server.state(), State::TimeWait);

    let (a, b) = ("192.0.2.1:1".parse().unwrap(), "198.51.100.7:2".parse().unwrap());
    let (client, server) = (Config::new(a, b, 5), Config::new(b, a, 6));
    let mut pair =
        Pair { client: End::connect(client, 0), server: End::connect(server, 0), now_ns: 0 };
    pair.talk();
    pair.client.write(b"hello");
    pair.talk();
    assert_eq!(pair.server.read(10), b"hello");
}

/// A segment whose numbers are near to what is expected, or at random far from it.
#[derive(Clone, Debug)]
struct Forgery {
    at_server: bool,
    sequence: i32,
    acknowledgment: Option<i32>,
    flags: Flags,
    window: u16,
    timestamps: Option<(i32, i32)>,
    sacks: Vec<(i32, i32)>,
    payload: usize,
    after_ms: u64,
    written: usize,
}

fn near() -> impl Strategy<Value = i32> {
    prop_oneof![Just(0), -3_000..3_000, -100_000..100_000, any::<i32>()]
}

prop_compose! {
    fn forgery()(
        at_server in any::<bool>(),
        sequence in near(),
        acknowledgment in proptest::option::weighted(0.9, near()),
        (syn, fin, rst) in (any::<u8>(), any::<u8>(), any::<u8>()),
        window in any::<u16>(),
        timestamps in proptest::option::of((near(), near())),
        sacks in proptest::collection::vec((near(), near()), 0..4),
        payload in prop_oneof![Just(0), 1usize..3_000],
        (after_ms, written) in (0u64..2_000, 0usize..20_000),
    ) -> Forgery {
        // Rarely what ends it all.
        let flags = Flags { syn: syn < 8, fin: fin < 8, rst: rst < 4, psh: false };
        Forgery {
            at_server, sequence, acknowledgment, flags, window, timestamps, sacks, payload,
            after_ms, written,
        }
    }
}

impl Forgery {
    fn emit(&self, from: &End, now_ns: u64) -> Vec<u8> {
        let off = |wire: u32, by: i32| wire.wrapping_add(by.cast_unsigned());
        forged(from, now_ns, |segment| {
            let right = segment.acknowledgment.unwrap_or(0);
            segment.sequence = off(segment.sequence, self.sequence);
            segment.acknowledgment = self.acknowledgment.map(|by| off(right, by));
            segment.flags = self.flags;
            segment.window = self.window;
            segment.payload = vec![9; self.payload];
            let value = segment.options.timestamps.map_or(0, |timestamps| timestamps.value);
            segment.options.timestamps = self
                .timestamps
                .map(|(by, echo)| Timestamps { value: off(value, by), echo: off(value, echo) });
            let block = |(from, to): &(i32, i32)| (off(right, *from), off(right, *to));
            segment.options.sacks = self.sacks.iter().map(block).collect();
        })
    }
}

proptest! {
    #[test]
    fn nothing_that_is_made_up_breaks_an_end(
        forgeries in proptest::collection::vec(forgery(), 1..60),
    ) {
        let mut pair = Pair::new();
        for forgery in forgeries {
            pair.now_ns += forgery.after_ms * MS;
            let now_ns = pair.now_ns;
            let Pair { client, server, .. } = &mut pair;
            let (from, to) = if forgery.at_server { (client, server) } else { (server, client) };
            to.write(&vec![1; forgery.written]);
            to.arrives(now_ns, &forgery.emit(from, now_ns));
            to.leaving(now_ns);
            prop_assert!(to.due_ns().is_none_or(|due_ns| due_ns > now_ns));
            prop_assert!(to.unread() <= 8 << 20);
        }
    }
}
