//! Path feedback, both ends: what was received and when to say so; what the peer says it received
//! and what that tells of the path.

use super::decline::Decline;
use super::replay::ReplayWindow;
use super::rtt::Rtt;
use super::sent::SentTimes;
use crate::id::{PacketNumber, PathSerial};
use crate::time::{Duration, Instant};
use crate::wire::data::BASE_DATAGRAM;
use crate::wire::frame::Feedback;

/// How long the first datagram after a quiet time may wait for its feedback.
pub const DELAY_FIRST: Duration = Duration::from_millis(10);
/// How long feedback waits while datagrams keep coming: ten frames a second stay below one per
/// cent of a 1 Mbit/s flow.
pub const DELAY_STEADY: Duration = Duration::from_millis(100);
/// Feedback is due at once after this many datagrams without any.
pub const DATAGRAMS_MAX: u32 = 64;

/// Large datagrams lost one after the other, of those watched, that mean that the path shrank. At
/// 10 % loss this happens by chance once in a hundred thousand.
const LARGE_LOST_MAX: u8 = 5;

/// The receiving side of one path: what it owes the peer.
#[derive(Clone, Debug, Default)]
pub struct Owed {
    received: u64,
    bytes: u64,
    largest_at: Instant,
    unreported: u32,
    due: Option<Instant>,
    reported_at: Option<Instant>,
    /// What the last report said: numbers up to it, and how many of them arrived.
    told: (u64, u64),
    decline: Decline,
}

impl Owed {
    /// Records an authentic datagram of `len` bytes.
    pub fn received(&mut self, now: Instant, len: usize, newest: bool, eliciting: bool) {
        self.received += 1;
        self.bytes += len as u64;
        if newest {
            self.largest_at = now;
        }
        if !eliciting {
            return;
        }
        self.unreported += 1;
        let steady = self.reported_at.is_some_and(|at| now.saturating_since(at) < 2 * DELAY_STEADY);
        let delay = if steady { DELAY_STEADY } else { DELAY_FIRST };
        let due = *self.due.get_or_insert(now + delay);
        if self.unreported >= DATAGRAMS_MAX {
            self.due = Some(due.min(now));
        }
    }

    /// Whether the path has begun to lose much of what the peer sends: said once.
    pub const fn takes_decline(&mut self) -> bool {
        self.decline.takes_decline()
    }

    /// Bytes received on this path so far, UDP payload.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// When feedback must be sent at the latest; `None` while nothing is owed.
    pub const fn due(&self) -> Option<Instant> {
        self.due
    }

    /// The frame to send now; what it reports is no longer owed.
    pub fn report(
        &mut self,
        now: Instant,
        serial: PathSerial,
        window: &ReplayWindow,
    ) -> Option<Feedback> {
        let largest = window.highest()?;
        self.due = None;
        self.unreported = 0;
        self.reported_at = Some(now);
        let (upto, received) = std::mem::replace(&mut self.told, (largest + 1, self.received));
        self.decline.sample(now, (largest + 1).saturating_sub(upto), self.received - received);
        let delay = now.saturating_since(self.largest_at).as_micros();
        Some(Feedback {
            serial,
            largest,
            delay_us: u32::try_from(delay).unwrap_or(u32::MAX),
            arrived_us: self.largest_at.wrapping_micros(),
            received: self.received,
            bytes: self.bytes,
            runs: window.runs(),
        })
    }
}

/// The sending side of one path: what left, and what the peer said of it.
#[derive(Clone, Debug, Default)]
pub struct Flight {
    sent_times: SentTimes,
    sent: u64,
    bytes: u64,
    /// The oldest eliciting datagram that no feedback has covered yet.
    oldest_unanswered: Option<(PacketNumber, Instant)>,
    newest_eliciting: Option<PacketNumber>,
    newest_sent_at: Instant,
    acknowledged: Option<PacketNumber>,
    large: Large,
    /// Totals at the last feedback, for the loss of the interval: sent up to it, received.
    settled: (u64, u64),
    loss: Loss,
    decline: Decline,
}

/// What feedback tells that was not known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct News {
    /// When the newest datagram that arrived had left; `None` when that is too long ago.
    pub sent_at: Option<Instant>,
}

/// Samples the fate of datagrams larger than every path carries, one at a time: a path that
/// shrinks loses all of them while the small ones arrive.
#[derive(Clone, Copy, Debug, Default)]
struct Large {
    watched: Option<PacketNumber>,
    lost: u8,
}

impl Large {
    fn sent(&mut self, number: PacketNumber, len: usize) {
        if len > BASE_DATAGRAM {
            self.watched.get_or_insert(number);
        }
    }

    fn judge(&mut self, feedback: &Feedback) {
        let Some(number) = self.watched.filter(|&number| number <= feedback.largest) else {
            return;
        };
        self.watched = None;
        if feedback.acknowledges(number) {
            self.lost = 0;
        } else if feedback.reaches(number) {
            self.lost = self.lost.saturating_add(1);
        }
    }
}

/// Loss of a path as an exponentially weighted mean over the intervals between feedback frames.
#[derive(Clone, Copy, Debug, Default)]
pub struct Loss {
    mean: f64,
}

impl Loss {
    /// Lost part of what was sent, 0 to 1.
    pub const fn share(&self) -> f64 {
        self.mean
    }

    fn sample(&mut self, sent: u64, received: u64) {
        if sent == 0 {
            return;
        }
        #[expect(clippy::cast_precision_loss, reason = "counts of one interval")]
        let lost = 1.0 - (received as f64 / sent as f64).min(1.0);
        #[expect(clippy::cast_precision_loss, reason = "counts of one interval")]
        let weight = (sent as f64 / 256.0).min(1.0) / 2.0;
        self.mean += (lost - self.mean) * weight;
    }
}

impl Flight {
    /// Records that `number` left with `len` bytes.
    pub fn sent(&mut self, now: Instant, number: PacketNumber, len: usize, eliciting: bool) {
        self.sent_times.record(now, number);
        self.sent += 1;
        self.bytes += len as u64;
        self.large.sent(number, len);
        if eliciting {
            self.oldest_unanswered.get_or_insert((number, now));
            self.newest_eliciting = Some(number);
            self.newest_sent_at = now;
        }
    }

    /// Takes the peer's feedback. Returns what it tells that is new, if anything is.
    pub fn acknowledged(
        &mut self,
        now: Instant,
        feedback: &Feedback,
        rtt: &mut Rtt,
    ) -> Option<News> {
        if feedback.largest >= self.sent {
            return None;
        }
        let is_new = self.acknowledged.is_none_or(|seen| feedback.largest > seen);
        let news = is_new.then(|| {
            let elapsed = self.sent_times.elapsed(now, feedback.largest);
            if let Some(elapsed) = elapsed {
                rtt.sample(elapsed, Duration::from_micros(feedback.delay_us.into()));
            }
            let (sent, received) = self.settled;
            let upto = feedback.largest + 1;
            let arrived = feedback.received.saturating_sub(received);
            self.loss.sample(upto.saturating_sub(sent), arrived);
            self.decline.sample(now, upto.saturating_sub(sent), arrived);
            self.settled = (upto, feedback.received.max(received));
            self.acknowledged = Some(feedback.largest);
            News { sent_at: elapsed.map(|elapsed| now - elapsed) }
        });
        self.large.judge(feedback);
        self.settle(feedback.largest);
        news
    }

    /// Since when the peer has owed feedback for what was sent; `None` when nothing is open.
    pub fn unanswered_since(&self) -> Option<Instant> {
        self.oldest_unanswered.map(|(_, at)| at)
    }

    /// Whether large datagrams vanish while others arrive: said once, then watched anew.
    pub const fn takes_shrunk(&mut self) -> bool {
        let shrunk = self.large.lost >= LARGE_LOST_MAX;
        if shrunk {
            self.large.lost = 0;
        }
        shrunk
    }

    /// Whether the path has begun to lose much of what this end sends: said once.
    pub const fn takes_decline(&mut self) -> bool {
        self.decline.takes_decline()
    }

    /// Forgets what is open: the path was declared dead or has answered by other means.
    pub const fn forgive(&mut self) {
        self.oldest_unanswered = None;
    }

    /// Datagrams and bytes sent so far.
    pub const fn totals(&self) -> (u64, u64) {
        (self.sent, self.bytes)
    }

    /// The path's loss as the peer's feedback shows it.
    pub const fn loss(&self) -> Loss {
        self.loss
    }

    /// Everything up to `largest` is answered: received, or lost and that known.
    fn settle(&mut self, largest: PacketNumber) {
        let Some((oldest, _)) = self.oldest_unanswered else { return };
        if oldest > largest {
            return;
        }
        // What left after the acknowledged one is still open. Whether it elicits is not kept per
        // datagram; the one taken left within the last round trip, so the error is less than that.
        self.oldest_unanswered = match self.newest_eliciting {
            Some(newest) if newest > largest => {
                let at = self.sent_times.elapsed(self.newest_sent_at, largest + 1);
                Some((largest + 1, at.map_or(self.newest_sent_at, |ago| self.newest_sent_at - ago)))
            }
            _ => None,
        };
    }
}

#[cfg(test)]
#[path = "feedback_tests.rs"]
mod tests;
