//! Whether what is lost is lost because too much is sent.

use crate::time::{Duration, Instant};

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
/// Datagrams after which an attempt is judged, and the mean of what came before is halved.
const ENOUGH: f64 = 100.0;
const MANY: f64 = 1_000.0;
/// What is told of in the first rounds of an attempt had left before it.
const ROUNDS_BEFORE: u8 = 1;
/// More than this is never taken for the usual loss of a path.
const USUAL_MAX: f64 = 0.25;
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
    holds_until: Instant,
    hold: Duration,
    holds: bool,
    doubt_at: Instant,
    /// Of the last rounds: datagrams, those lost, feedbacks, and those that told of losses.
    bursts: [f64; 4],
}

/// It is sent less for a moment.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Attempt {
    /// The loss before.
    before: f64,
    /// What arrived then, bytes per second.
    arrived: f64,
    /// The rate before, bytes per second.
    rate: f64,
    /// Rounds since.
    rounds: u8,
}

impl Ceiling {
    /// The part that is lost at any rate, 0 to 0.25.
    pub(super) const fn usual(&self) -> f64 {
        self.usual
    }

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

    /// Until when the rate does not grow.
    pub(super) const fn holds_until(&self) -> Instant {
        self.holds_until
    }

    /// One round of so many bytes delivered and lost, in datagrams of about `datagram` bytes, of
    /// which so many feedbacks told, and so many of them of losses: where those are fewer than
    /// chance has it, losses come in bursts.
    #[expect(clippy::cast_precision_loss, reason = "bytes of a round trip")]
    pub(super) fn note_bursts(&mut self, bytes: (u64, u64), feedbacks: (u32, u32), datagram: f64) {
        let now = [
            (bytes.0.saturating_add(bytes.1)) as f64 / datagram,
            bytes.1 as f64 / datagram,
            f64::from(feedbacks.0),
            f64::from(feedbacks.1),
        ];
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
    }

    /// One round of so many bytes delivered and lost, in datagrams of about `datagram` bytes, sent
    /// at about `rate`, that arrived at `arrived`, if that is known. Returns the rate to send at
    /// from now on, if that is another.
    #[expect(clippy::cast_precision_loss, reason = "bytes of a round trip")]
    pub(super) fn round(
        &mut self,
        now: Instant,
        bytes: (u64, u64),
        datagram: f64,
        rate: f64,
        arrived: Option<f64>,
    ) -> Option<f64> {
        self.holds = now < self.holds_until;
        let (delivered, lost) = (bytes.0 as f64 / datagram, bytes.1 as f64 / datagram);
        if let Some(attempt) = &mut self.attempt {
            attempt.rounds += 1;
            if attempt.rounds <= ROUNDS_BEFORE {
                return None;
            }
        }
        self.counts.0 += lost;
        self.counts.1 += lost + delivered;
        if now >= self.doubt_at && self.usual > DOUBT_MIN {
            (self.doubt_at, self.usual) = (now + DOUBT, self.usual / 2.0);
        }
        match self.attempt {
            Some(attempt) => self.judge(now, attempt),
            None => self.watch(rate, arrived?),
        }
    }

    /// Is more lost than usual?
    fn watch(&mut self, rate: f64, arrived: f64) -> Option<f64> {
        let (lost, all) = self.counts;
        let share = lost / all.max(1.0);
        let expected = all * (self.usual + EXCESS);
        let spread = (expected * self.dispersion()).sqrt();
        if all >= ENOUGH / 2.0 && lost > expected + CERTAINTY * spread {
            self.attempt = Some(Attempt { before: share, arrived, rate, rounds: 0 });
            self.counts = (0.0, 0.0);
            // Below any ceiling there is: the loss told so far may be that of a lower rate.
            return Some((TRY * arrived / (1.0 - self.usual)).min(TRY * rate));
        }
        if all > MANY {
            self.usual += (share - self.usual).min(0.0) / 2.0;
            self.counts = (lost / 2.0, all / 2.0);
        }
        None
    }

    /// Did it help to send less?
    fn judge(&mut self, now: Instant, attempt: Attempt) -> Option<f64> {
        let (lost, all) = self.counts;
        if all < ENOUGH * self.dispersion() {
            return None;
        }
        let share = lost / all;
        (self.attempt, self.counts) = (None, (0.0, 0.0));
        if share > self.usual + (attempt.before - self.usual) / 2.0 {
            self.doubt_at = now + DOUBT;
            self.usual = ((share + attempt.before) / 2.0).min(USUAL_MAX);
            return Some(attempt.rate);
        }
        let is_soon = now.saturating_since(self.holds_until) < HOLD_MAX;
        self.hold = if is_soon { (self.hold * 2).min(HOLD_MAX) } else { HOLD_FIRST };
        self.hold = self.hold.max(HOLD_FIRST);
        (self.holds_until, self.holds) = (now + self.hold, true);
        Some(attempt.arrived / (1.0 - self.usual))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rounds of 400 datagrams, told of by ten at a time, that lose 2 % in bursts of `burst`: in
    /// how many of them less was sent to see whether that helps.
    fn tries(burst: u64) -> u32 {
        let (mut ceiling, mut tries, mut state) = (Ceiling::default(), 0, 1u64);
        let mut now = Instant::ZERO;
        for _ in 0..4_000 {
            let (mut lost, mut losses) = (0, 0);
            for _ in 0..40 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let falls = |bits: u32| (state >> bits) % 1_000 < 200 / burst;
                let bursts = u64::from(falls(33));
                lost += bursts * burst;
                losses += u32::from(bursts > 0);
            }
            now = now + Duration::from_millis(40);
            let bytes = ((400 - lost) * 1_400, lost * 1_400);
            ceiling.note_bursts(bytes, (40, losses), 1_400.0);
            ceiling.round(now, bytes, 1_400.0, 1e7, Some(1e7));
            tries += u32::from(ceiling.tries());
        }
        tries
    }

    #[test]
    fn losses_that_come_in_bursts_are_no_sign_of_a_ceiling() {
        assert!(tries(1) < 40, "{}", tries(1));
        assert!(tries(3) < 40, "{}", tries(3));
    }
}
