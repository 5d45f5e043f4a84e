//! Whether what is lost is lost because too much is sent.
//!
//! Where more is lost than the path usually loses, and than chance explains, less and as much as
//! before are sent in turns. If less is lost of the one, the path has a ceiling, below which the
//! rate is held for a while; if not, that loss is the usual one from then on. How losses come
//! together is counted with: one burst is one event of chance.

use super::round::Round;
use crate::time::{Duration, Instant};

/// A path may lose so much by itself, until it is known better.
const LOSS_USUAL: f64 = 0.1;
/// Loss beyond the usual that is looked into, as a part of what was sent.
const EXCESS: f64 = 0.015;
/// Standard deviations beyond that before it is no chance.
const CERTAINTY: f64 = 3.0;
/// Weight of one round in what is known of bursts of losses,
const BURST_WEIGHT: f64 = 1.0 / 32.0;
/// of which so many tell how long they are.
const BURSTS_MIN: f64 = 8.0;
/// Losses beyond the first of a burst are taken for no more than this: where a queue runs over, all
/// are together.
const BURST_MAX: f64 = 3.0;
/// Part of what arrives that is sent then.
const TRY: f64 = 0.95;
/// The same of what was sent, where a new path lost at least half.
const START_PART: f64 = 0.5;
/// Datagrams after which an attempt is judged, and the mean of what came before is halved.
const ENOUGH: f64 = 100.0;
const MANY: f64 = 1_000.0;
/// It is sent less and as before in turns, so often in all, until it is clear.
const MOMENTS_MAX: u8 = 7;
/// What is told of in the first rounds of an attempt had left before it.
const ROUNDS_BEFORE: u8 = 1;
/// More than this is never taken for the usual loss of a path.
const USUAL_MAX: f64 = 0.25;
/// Bursts overrun a policer only if this part of the rate is sent.
const BURSTS_SENT: f64 = 0.25;
/// For so long the rate does not grow after a ceiling was found, and twice as long if that comes
/// soon again,
const HOLD_FIRST: Duration = Duration::from_secs(2);
/// up to this.
const HOLD_MAX: Duration = Duration::from_secs(16);

/// Growth of the rate in one round,
const GROWTH_MAX: f64 = 0.25;
/// and for so long after a ceiling held it.
const GROWTH_NEAR: f64 = 0.02;
const NEAR: Duration = Duration::from_secs(20);
/// A loss that is taken for usual is doubted so often,
const DOUBT: Duration = Duration::from_secs(30);
/// where it is more than this.
const DOUBT_MIN: f64 = 0.03;

/// The loss of a path, and whether it has a ceiling.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Ceiling {
    /// The part that is lost at any rate.
    usual: f64,
    /// Datagrams lost, and all of them.
    counts: (f64, f64),
    attempt: Option<Attempt>,
    /// Until when the rate does not grow.
    pub(super) holds_until: Instant,
    hold: Duration,
    holds: bool,
    doubt_at: Instant,
    /// Of the last rounds: datagrams, those lost, feedbacks, and those that told of losses.
    bursts: [f64; 4],
    /// Feedbacks that told of losses and all of them, in this moment of an attempt.
    feedbacks: (u32, u32),
}

/// It is sent less for a moment, and as much as before in another, in turns: when it began, the
/// loss was perhaps high by chance, and says nothing.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Attempt {
    /// The loss before.
    before: f64,
    /// What arrived then, bytes per second.
    arrived: f64,
    /// What is sent less, as a part of what else would be.
    part: f64,
    /// Datagrams lost and all of them, with less and as before, in moments that are over.
    counts: [(f64, f64); 2],
    /// Feedbacks that told of losses and all of them, as before.
    feedbacks: (u32, u32),
    /// Such moments.
    moments: u8,
    /// Rounds of this one.
    rounds: u8,
}

impl Attempt {
    /// One after the part `before` was lost and `arrived` bytes per second came.
    const fn new(before: f64, arrived: f64, part: f64) -> Self {
        let (counts, feedbacks) = ([(0.0, 0.0); 2], (0, 0));
        Self { before, arrived, part, counts, feedbacks, moments: 0, rounds: 0 }
    }
}

/// A ceiling, and what the experiment that found it was like.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Found {
    /// What arrived before, bytes per second.
    pub(super) arrived: f64,
    /// Datagrams of the moments in which as much as before was sent, and the lost part of them.
    pub(super) datagrams: f64,
    pub(super) loss: f64,
    /// Feedbacks about these that told of losses, and all of them.
    pub(super) feedbacks: (u32, u32),
}

/// The rate to send at from now on, if that is another, and the ceiling that was found.
type Verdict = Option<(f64, Option<Found>)>;

impl Ceiling {
    /// Whether it is sent less for a moment, or a ceiling was found of late.
    pub(super) const fn holds(&self) -> bool {
        self.holds || self.attempt.is_some()
    }

    /// Whether it is sent less for a moment.
    pub(super) const fn tries(&self) -> bool {
        self.attempt.is_some()
    }

    /// By what part the rate may grow in a round: a ceiling is felt for gently.
    pub(super) fn growth_max(&self, now: Instant) -> f64 {
        let is_near = self.hold > Duration::ZERO && now < self.holds_until + NEAR;
        if is_near { GROWTH_NEAR } else { GROWTH_MAX }
    }

    /// Notes how losses come together: if fewer feedbacks tell of them than by chance, they come in
    /// bursts.
    #[expect(clippy::cast_precision_loss, reason = "bytes of a round trip")]
    fn note_bursts(&mut self, round: &Round, datagram: f64) {
        let all = round.delivered.saturating_add(round.lost) as f64 / datagram;
        let (feedbacks, losses) = round.feedbacks;
        let now = [all, round.lost as f64 / datagram, f64::from(feedbacks), f64::from(losses)];
        for (sum, now) in self.bursts.iter_mut().zip(now) {
            *sum += now - *sum * BURST_WEIGHT;
        }
    }

    /// The variance of how many are lost, in that of losses by themselves: of bursts whose lengths
    /// are geometric, two means less one.
    fn dispersion(&self) -> f64 {
        let [all, lost, feedbacks, losses] = self.bursts;
        if losses < BURSTS_MIN {
            return 1.0;
        }
        let told = (all / feedbacks).max(1.0);
        #[expect(clippy::cast_possible_truncation, reason = "datagrams of a feedback")]
        let none = (1.0 - (lost / all).min(1.0)).powi(told.round() as i32);
        let by_chance = feedbacks * (1.0 - none);
        let together = (by_chance / losses - 1.0).clamp(0.0, BURST_MAX);
        1.0 + 2.0 * together
    }

    /// The path begins anew.
    pub(super) const fn forget(&mut self) {
        self.attempt = None;
        self.counts = (0.0, 0.0);
        self.feedbacks = (0, 0);
    }

    /// `round` is over, in datagrams of about `size` bytes, sent at about `rate`.
    #[expect(clippy::cast_precision_loss, reason = "bytes of a round trip")]
    pub(super) fn round(&mut self, now: Instant, round: &Round, size: f64, rate: f64) -> Verdict {
        self.note_bursts(round, size);
        self.holds = now < self.holds_until;
        if let Some(attempt) = &mut self.attempt {
            attempt.rounds = attempt.rounds.saturating_add(1);
            if attempt.rounds <= ROUNDS_BEFORE {
                return None;
            }
            self.feedbacks.0 = self.feedbacks.0.saturating_add(round.feedbacks.1);
            self.feedbacks.1 = self.feedbacks.1.saturating_add(round.feedbacks.0);
        }
        let (delivered, lost) = (round.delivered as f64 / size, round.lost as f64 / size);
        self.counts.0 += lost;
        self.counts.1 += lost + delivered;
        if now >= self.doubt_at && self.usual > DOUBT_MIN {
            (self.doubt_at, self.usual) = (now + DOUBT, self.usual / 2.0);
        }
        match self.attempt {
            Some(attempt) => self.judge(now, rate, attempt),
            None => {
                let arrived = round.arrived().or_else(|| arrived_of_bursts(now, round, rate));
                self.watch(rate, arrived?).map(|rate| (rate, None))
            }
        }
    }

    /// Of a rate at which datagrams left the queue, lost or not, that at which to send if `loss`
    /// was lost. If more is lost than chance explains, datagrams did not come that far.
    pub(super) fn with_usual_loss(&self, rate: f64, loss: f64) -> f64 {
        let usual = loss.min(self.usual.max(LOSS_USUAL));
        rate * (1.0 - loss) / (1.0 - usual)
    }

    /// A new path lost the part `loss`, at least half, and `arrived` bytes per second came. Sends a
    /// little less than that and twice as much in turns. Returns the rate to send at from now on.
    pub(super) fn doubt_start(&mut self, loss: f64, arrived: f64) -> f64 {
        self.forget();
        self.attempt = Some(Attempt::new(loss, arrived, START_PART));
        TRY * arrived
    }

    /// Is more lost than usual?
    fn watch(&mut self, rate: f64, arrived: f64) -> Option<f64> {
        let (lost, all) = self.counts;
        let share = lost / all.max(1.0);
        let expected = all * (self.usual + EXCESS);
        let spread = (expected * self.dispersion()).sqrt();
        if all >= ENOUGH / 2.0 && lost > expected + CERTAINTY * spread {
            // Below any ceiling there is: the loss told so far may be that of a lower rate.
            let less = (TRY * arrived / (1.0 - self.usual)).min(TRY * rate);
            self.forget();
            self.attempt = Some(Attempt::new(share, arrived, less / rate));
            return Some(less);
        }
        if all > MANY {
            self.usual += (share - self.usual).min(0.0) / 2.0;
            self.counts = (lost / 2.0, all / 2.0);
        }
        None
    }

    /// Does it help to send less?
    fn judge(&mut self, now: Instant, rate: f64, mut attempt: Attempt) -> Verdict {
        let dispersion = self.dispersion();
        if self.counts.1 < ENOUGH * dispersion {
            return None;
        }
        let (lost, all) = std::mem::take(&mut self.counts);
        let is_less = attempt.moments.is_multiple_of(2);
        let counts = &mut attempt.counts[usize::from(!is_less)];
        *counts = (counts.0 + lost, counts.1 + all);
        let told = std::mem::take(&mut self.feedbacks);
        if !is_less {
            attempt.feedbacks = (attempt.feedbacks.0 + told.0, attempt.feedbacks.1 + told.1);
        }
        attempt.moments += 1;
        self.attempt = None;
        let otherwise = if is_less { rate / attempt.part } else { rate * attempt.part };
        let [less, full] = attempt.counts;
        let share = (less.0 + full.0) / (less.1 + full.1);
        let spread = share * (1.0 - share) * dispersion * (1.0 / less.1 + 1.0 / full.1);
        let less = less.0 / less.1;
        let full = if full.1 > 0.0 { full.0 / full.1 } else { attempt.before };
        if less > self.usual + (full - self.usual) / 2.0 || attempt.moments >= MOMENTS_MAX {
            self.doubt_at = now + DOUBT;
            self.usual = f64::midpoint(less, full).min(USUAL_MAX);
            return is_less.then_some((otherwise, None));
        }
        // Nothing is known of the whole rate yet where that makes the spread infinite.
        if full - less > CERTAINTY * spread.sqrt() {
            let is_soon = now.saturating_since(self.holds_until) < HOLD_MAX;
            self.hold = if is_soon { (self.hold * 2).min(HOLD_MAX) } else { HOLD_FIRST };
            self.hold = self.hold.max(HOLD_FIRST);
            (self.holds_until, self.holds) = (now + self.hold, true);
            let Attempt { arrived, feedbacks, .. } = attempt;
            let datagrams = attempt.counts[1].1;
            let found = Found { arrived, datagrams, loss: full, feedbacks };
            return Some((arrived / (1.0 - self.usual), Some(found)));
        }
        self.attempt = Some(Attempt { rounds: 0, ..attempt });
        Some((otherwise, None))
    }
}

/// Bytes per second that arrived of a sender that had not always something to send, and perhaps
/// overran a policer with its bursts: more is lost than paths lose by themselves.
fn arrived_of_bursts(now: Instant, round: &Round, rate: f64) -> Option<f64> {
    let (loss, arrived) = (round.loss(), round.delivered_per_second(now));
    (loss > USUAL_MAX && arrived / (1.0 - loss) >= BURSTS_SENT * rate).then_some(arrived)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recovery::RateSample;

    /// A sender on a path of 10 MB/s, told of by ten datagrams at a time, that loses 2 % in bursts
    /// of `burst`, in rounds of 40 ms: in how many of 4,000 less was sent to see whether that
    /// helps, and the mean of the rate, as a part of what the path carries.
    fn sends(burst: u64, seed: u64) -> (u32, f64) {
        const CARRIES: f64 = 1e7;
        let (mut ceiling, mut tries, mut state) = (Ceiling::default(), 0, seed);
        let (mut now, mut rate, mut sum) = (Instant::ZERO, CARRIES, 0.0);
        for _ in 0..4_000 {
            let told = (40.0 * rate / CARRIES).round() as u64;
            let (mut lost, mut losses) = (0, 0);
            for _ in 0..told {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let falls = |bits: u32| (state >> bits) % 1_000 < 200 / burst;
                let bursts = u64::from(falls(33));
                lost += bursts * burst;
                losses += u32::from(bursts > 0);
            }
            now = now + Duration::from_millis(40);
            let mut round = Round::new(now, rate);
            (round.delivered, round.lost) = ((told * 10 - lost) * 1_400, lost * 1_400);
            round.feedbacks = (told as u32, losses);
            let arrived = rate * (told * 10 - lost) as f64 / (told * 10) as f64;
            let sample = RateSample {
                bytes_per_second: arrived,
                left_per_second: rate,
                is_limited: false,
                prior_delivered: 0,
            };
            round.sample(now, &sample, (arrived, rate));
            let another = ceiling.round(now, &round, 1_400.0, rate).map(|(rate, _)| rate);
            let grows = !ceiling.tries() && now >= ceiling.holds_until;
            let growth = if grows { ceiling.growth_max(now) } else { 0.0 };
            rate = another.unwrap_or(rate * (1.0 + growth)).min(CARRIES);
            tries += u32::from(ceiling.tries());
            sum += rate / CARRIES;
        }
        (tries, sum / 4_000.0)
    }

    #[test]
    fn losses_that_come_in_bursts_are_no_sign_of_a_ceiling() {
        for (burst, seed) in
            [1, 3, 5].into_iter().flat_map(|burst| (1..=20).map(move |s| (burst, s)))
        {
            let (tries, rate) = sends(burst, seed);
            assert!(tries < 40 && rate > 0.98, "bursts of {burst}, seed {seed}: {tries} {rate}");
        }
    }
}
