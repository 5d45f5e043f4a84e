//! CoDel (RFC 8289): when a queue has stood for too long, and how its senders are told of it.
//!
//! Decides for one queue, packet by packet as they leave it, which of them is to carry the word
//! that there is too much: by a mark where its sender understands marks (RFC 3168), else by being
//! dropped. Knows neither the queue nor how long it may stand: whoever asks says so each time.

use crate::time::{Duration, Instant};
use crate::wire::inner::MAX_PACKET;

/// A queue that went bad again within so many intervals is treated as it was last (RFC 8289, 5.5).
const MEMORY_INTERVALS: u32 = 16;
/// Who listens has answered when so many intervals have gone by: each is a round trip at least, and
/// in so many the control law tells him about ten times. If there is more in the queue then than
/// before, nobody listens. How long it stands does not show that: where a link becomes slower, it
/// stands longer although its senders answer.
const DEAF_INTERVALS: u32 = 4;
/// The longest wait of what is sent by somebody of whom nobody knows yet whether he listens: a BBR
/// does not for as long as its window grows, and then is still for as long as the queue stood. By
/// two recorded mobile networks QUIC by BBR had 1.01 of what it had by the better one, and has 1.15
/// (means of ten seeds; with 500 or 900 ms less). By CUBIC and Reno it makes no difference.
const LONGEST: Duration = Duration::from_millis(700);

/// How long a queue may stand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bound {
    /// A wait that is no harm, however long it lasts.
    pub target: Duration,
    /// How long every packet may wait for longer than that: as long as a sender needs to react,
    /// its round trip at least.
    pub interval: Duration,
    /// The longest wait of what is sent by somebody who does not listen. The control law alone
    /// would let its queue grow: where thousands of packets a second are too many, it takes hours
    /// until it drops as many. `None` for senders who have to listen.
    pub limit: Option<Duration>,
}

impl Bound {
    /// For flows that see their own losses (RFC 8289, 4.2 and 4.3).
    pub const SHORT: Self = Self {
        target: Duration::from_millis(5),
        interval: Duration::from_millis(100),
        limit: None,
    };
    /// For flows whose losses are hidden, where none takes long to mend: one CUBIC flow over
    /// 20 Mbit/s and 60 ms that loses 1 % each way gets 0.99 of the rate.
    pub const LONG: Self = Self {
        target: Duration::from_millis(80),
        interval: Duration::from_millis(500),
        limit: None,
    };

    /// For a queue whose senders are never told.
    pub(crate) const NEVER: Self =
        Self { target: Duration::from_secs(3_600), interval: Self::LONG.interval, limit: None };

    /// For flows whose losses are hidden, where mending one takes up to `repair`, a round trip of
    /// the longest path: never less than [`Self::LONG`]. While a gap is open nothing is delivered,
    /// and the sender, who then hears of much at once, fills the entry with what the paths carry in
    /// so long; what stood there before has to last until then. A third more than `repair` is for
    /// what is told of it and for gaps that overlap. The interval is two round trips as the sender
    /// has them meanwhile, its own and the repair's.
    #[must_use]
    pub fn mended_in(repair: Duration) -> Self {
        Self {
            target: Self::LONG.target.max(repair * 13 / 10),
            interval: Self::LONG.interval.max(repair * 4),
            limit: None,
        }
    }

    /// The same where a link carries now more, now less, by the tenth of a second: what stands at
    /// the entry while it carries less is what keeps it busy when it carries more, and a sender who
    /// is told of each of these tenths sends too little in the next. With 80 ms and 500 ms, QUIC by
    /// two recorded mobile networks had 0.94 to 1.01 of the better one.
    #[must_use]
    pub(crate) fn of_varying(self) -> Self {
        Self {
            target: self.target.max(Duration::from_millis(300)),
            interval: self.interval.max(Duration::from_secs(1)),
            ..self
        }
    }

    /// The same for a while after a path took the place of one that carried. What waited
    /// meanwhile arrives at once and is acknowledged at once, and a BBR takes that for what the
    /// path does and has as much more on its way for ten round trips (its `extra_acked`). To lose a
    /// packet teaches it nothing; it would only stand still once more, a second after the move.
    #[must_use]
    pub(crate) fn of_replaced(self) -> Self {
        Self { target: self.target * 2, ..self }
    }

    /// The same for senders of whom nobody knows whether they listen: if they do not, they find
    /// twice the target of [`Self::LONG`], however long a repair takes.
    #[must_use]
    pub(crate) fn for_the_deaf(self) -> Self {
        Self { limit: Some(self.target.min(Self::LONG.target) * 2), ..self }
    }
}

impl Default for Bound {
    fn default() -> Self {
        Self::LONG
    }
}

/// What is to be done with a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sentence {
    /// It goes as it is.
    Pass,
    /// Its sender is to be told: by a mark, else by its loss.
    Tell,
    /// It is dropped: it waited for too long, and its sender does not listen.
    Drop,
}

/// The controller of one queue.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Codel {
    phase: Phase,
    /// How often senders were told since the queue went bad; the square root of it is how often
    /// they are told within an interval.
    count: u32,
    /// What `count` began with.
    began_with: u32,
    /// When senders were or would have been told next, when the queue last went bad.
    last_next: Instant,
    /// What leaves had waited for [`LONGEST`], and is dropped until it is well below. To drop every
    /// other packet for as long as there is too much makes more gaps than receivers of streams keep
    /// in mind: quinn and quic-go end a connection that has a thousand.
    is_stale: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Phase {
    /// The wait is short, or was a moment ago.
    #[default]
    Good,
    /// It is long: the queue is bad if that is so until then.
    Long { until: Instant },
    /// The queue is bad: its senders are told again at `next`.
    Bad { next: Instant, answer: Answer },
}

/// How senders answer to being told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Answer {
    /// It is not known yet: at that time there were so many bytes in the queue.
    Awaited { since: Instant, bytes: usize },
    /// They do not.
    None,
}

impl Codel {
    /// Judges a packet that leaves the queue after it `waited`, and leaves `behind` bytes there: no
    /// sender can do better where that is less than another full packet (RFC 8289, 4.1).
    pub(crate) fn judge(
        &mut self,
        now: Instant,
        waited: Duration,
        behind: usize,
        bound: Bound,
    ) -> Sentence {
        if waited < self.target(bound) || behind <= MAX_PACKET {
            (self.phase, self.is_stale) = (Phase::Good, false);
            return Sentence::Pass;
        }
        let longest = if self.is_stale { LONGEST * 3 / 4 } else { LONGEST };
        self.is_stale = bound.limit.is_some() && waited >= longest;
        let sentence = match self.phase {
            Phase::Good => {
                self.phase = Phase::Long { until: now + bound.interval };
                Sentence::Pass
            }
            Phase::Long { until } if now < until => Sentence::Pass,
            Phase::Long { .. } => {
                self.begin(now, behind, bound);
                Sentence::Tell
            }
            Phase::Bad { next, answer } => {
                // Who lets it come to that has not answered: it grows no more as it is cut.
                let bytes = if self.is_stale { usize::MAX } else { behind };
                let answer = answer.looked_at(now, bytes, bound);
                let is_told = now >= next;
                if is_told {
                    self.count = self.count.saturating_add(1);
                    self.move_to_bad(next, answer, bound);
                } else {
                    self.phase = Phase::Bad { next, answer };
                }
                let is_beyond = bound.limit.is_some_and(|limit| waited >= limit);
                match (is_beyond && answer == Answer::None, is_told) {
                    (true, _) => Sentence::Drop,
                    (false, true) => Sentence::Tell,
                    (false, false) => Sentence::Pass,
                }
            }
        };
        if self.is_stale { Sentence::Drop } else { sentence }
    }

    /// The wait that is no harm now: who does not listen gains nothing by a long one.
    fn target(&self, bound: Bound) -> Duration {
        match (self.phase, bound.limit) {
            (Phase::Bad { answer: Answer::None, .. }, Some(limit)) => bound.target.min(limit / 2),
            _ => bound.target,
        }
    }

    /// The queue goes bad. If it was so a short while ago, as often as told then is told now.
    fn begin(&mut self, now: Instant, bytes: usize, bound: Bound) {
        let told = self.count.saturating_sub(self.began_with);
        let memory = bound.interval.saturating_mul(MEMORY_INTERVALS);
        let is_remembered = told > 1 && now.saturating_since(self.last_next) < memory;
        self.count = if is_remembered { told } else { 1 };
        self.began_with = self.count;
        self.move_to_bad(now, Answer::Awaited { since: now, bytes }, bound);
    }

    /// The control law (RFC 8289, 5.6): `interval / sqrt(count)` after `from`.
    fn move_to_bad(&mut self, from: Instant, answer: Answer, bound: Bound) {
        let interval_us = u64::try_from(bound.interval.as_micros()).unwrap_or(u64::MAX);
        let pause_us = (interval_us.saturating_mul(interval_us) / u64::from(self.count)).isqrt();
        let next = from + Duration::from_micros(pause_us.max(1));
        self.last_next = next;
        self.phase = Phase::Bad { next, answer };
    }
}

impl Answer {
    /// What is known of it now that there are so many bytes in the queue.
    fn looked_at(self, now: Instant, bytes: usize, bound: Bound) -> Self {
        let Self::Awaited { since, bytes: before } = self else { return self };
        let is_time = now.saturating_since(since) >= bound.interval.saturating_mul(DEAF_INTERVALS);
        match (is_time, bytes > before) {
            (false, _) => self,
            (true, true) => Self::None,
            (true, false) => Self::Awaited { since: now, bytes },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    /// When senders are told, of packets that leave once a millisecond after `waited(ms)`.
    fn told(codel: &mut Codel, ms: std::ops::Range<u64>, waited: impl Fn(u64) -> u64) -> Vec<u64> {
        ms.filter(|&ms| {
            let waited = Duration::from_millis(waited(ms));
            codel.judge(at(ms), waited, usize::MAX, Bound::SHORT) == Sentence::Tell
        })
        .collect()
    }

    #[test]
    fn a_burst_is_no_harm() {
        let mut codel = Codel::default();
        assert_eq!(told(&mut codel, 0..1_000, |ms| if ms % 100 == 99 { 4 } else { 90 }), []);
    }

    #[test]
    fn a_standing_queue_is_told_of_ever_more_often() {
        let mut codel = Codel::default();
        // 100 ms over the square roots of 1, 2, 3, 4 and 5.
        let expected = [100, 200, 271, 329, 379, 424];
        assert_eq!(told(&mut codel, 0..430, |_| 6), expected);
    }

    #[test]
    fn it_remembers_for_a_while_how_often_it_told() {
        let (mut codel, mut old) = (Codel::default(), Codel::default());
        let often = told(&mut codel, 0..2_000, |_| 6).len();
        told(&mut old, 0..2_000, |_| 6);
        told(&mut codel, 2_000..2_001, |_| 0);
        let soon = told(&mut codel, 2_001..2_300, |_| 6).len();
        told(&mut old, 2_000..4_000, |_| 0);
        let late = told(&mut old, 4_000..4_299, |_| 6).len();
        assert!(often > 50 && soon > 10 && late < 4, "{often} {soon} {late}");
    }

    /// What becomes of the last of the packets that leave for three seconds once a millisecond,
    /// after 600 ms each, where so many bytes are behind that of a millisecond.
    fn last_of(bound: Bound, behind: impl Fn(usize) -> usize) -> Sentence {
        let mut codel = Codel::default();
        let judged = (0..3_000).map(|ms| {
            let now = at(ms as u64);
            codel.judge(now, Duration::from_millis(600), behind(ms), bound)
        });
        judged.filter(|sentence| *sentence != Sentence::Tell).last().unwrap()
    }

    #[test]
    fn who_lets_his_queue_grow_while_he_is_told_is_cut_short() {
        let bound = Bound::LONG.for_the_deaf();
        assert_eq!(last_of(bound, |ms| 50_000 + ms), Sentence::Drop);
        // Who answers is not, however long it takes until his queue is short; nor who has to.
        assert_eq!(last_of(bound, |ms| 50_000 - ms), Sentence::Pass);
        assert_eq!(last_of(bound, |_| 50_000), Sentence::Pass);
        assert_eq!(last_of(Bound::LONG, |ms| 50_000 + ms), Sentence::Pass);
    }

    #[test]
    fn who_may_not_listen_never_waits_for_long() {
        let mut codel = Codel::default();
        let varying = Bound::LONG.of_varying();
        for (waited_ms, bound, sentence) in [
            (699, varying.for_the_deaf(), Sentence::Pass),
            (700, varying.for_the_deaf(), Sentence::Drop),
            (3_000, varying, Sentence::Pass),
            // Where it takes as long to mend a gap, no wait that is wanted is too long.
            (700, Bound::mended_in(Duration::from_secs(1)).for_the_deaf(), Sentence::Pass),
        ] {
            let waited = Duration::from_millis(waited_ms);
            assert_eq!(codel.judge(at(5_000), waited, usize::MAX, bound), sentence, "{waited_ms}");
        }
    }

    #[test]
    fn what_waited_for_too_long_is_dropped_in_one_run() {
        let mut codel = Codel::default();
        let bound = Bound::LONG.of_varying().for_the_deaf();
        let mut becomes =
            |waited_ms| codel.judge(at(5_000), Duration::from_millis(waited_ms), usize::MAX, bound);
        let (run, rest) = ([700, 690, 600, 525].map(&mut becomes), [524, 600, 699].map(becomes));
        assert_eq!(run, [Sentence::Drop; 4]);
        assert_eq!(rest, [Sentence::Pass; 3]);
    }

    #[test]
    fn the_last_packet_is_not_to_blame() {
        let mut codel = Codel::default();
        let all = (0..1_000).all(|ms| {
            codel.judge(at(ms), Duration::from_secs(1), MAX_PACKET, Bound::SHORT) == Sentence::Pass
        });
        assert!(all);
    }
}
