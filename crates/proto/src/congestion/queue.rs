//! The queueing delay on a path that this end's own sending causes, and its target.

use crate::time::{Duration, Instant};

/// The least wait is that of two spans, each as long as half a round trip, but no shorter
const SPAN_MIN: Duration = Duration::from_millis(10);
/// and no longer than this.
const SPAN_MAX: Duration = Duration::from_millis(50);
/// More than this between three datagrams is no jitter, seconds.
const JITTER_MAX: f64 = 0.020;
/// So much of each sample enters the mean of the jitter.
const JITTER_WEIGHT: f64 = 1.0 / 16.0;
/// Rounds without effect on the queue after which it may be another's.
const STUBBORN: u8 = 4;

/// The target queue: seconds and datagrams,
const QUEUE: (f64, f64) = (0.0015, 1.5);
/// and the same while realtime traffic shares the path.
const QUEUE_CALM: (f64, f64) = (0.0003, 0.75);

/// The wait of datagrams. All times in seconds, except where a type says otherwise.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Queue {
    /// The least of the span that is going on, and of the one before.
    least: (Option<f64>, Option<f64>),
    span_began: Instant,
    /// How much later than the queue itself its least shows that it grew.
    pub(super) span: f64,
    /// The last two samples.
    last: Option<(f64, f64)>,
    /// Mean deviation of the wait from one datagram to the next.
    pub(super) jitter: f64,
    /// A wait on which this end has no influence: others fill the queue, or the way is longer now.
    foreign: f64,
    /// Rounds without effect, and the queue at the last one.
    stubborn: (u8, f64),
}

impl Queue {
    /// A datagram waited for `wait` on a path with a round trip of `trip`.
    pub(super) fn sample(&mut self, now: Instant, wait: f64, trip: Duration) {
        let (last, before) = self.last.unwrap_or((wait, wait));
        self.last = Some((wait, last));
        // Of the second difference, which a queue that steadily grows does not have.
        let jitter = ((wait - 2.0 * last + before).abs() / 2.0).min(JITTER_MAX);
        self.jitter += (jitter - self.jitter) * JITTER_WEIGHT;
        let span = (trip / 2).clamp(SPAN_MIN, SPAN_MAX);
        if self.least.0.is_some() && now.saturating_since(self.span_began) >= span {
            self.span = now.saturating_since(self.span_began).as_secs_f64().min(0.5);
            self.span_began = now;
            // One that is short once was lucky.
            if let (Some(now), Some(before)) = self.least {
                self.foreign = self.foreign.min(now.max(before));
            }
            self.least = (None, self.least.0);
        }
        self.least.0 = Some(self.least.0.map_or(wait, |least| least.min(wait)));
    }

    /// The least wait of late, without what is not this end's doing.
    pub(super) fn least(&self) -> f64 {
        (self.whole() - self.foreign).max(0.0)
    }

    /// The least wait of late, whoever makes it.
    pub(super) fn whole(&self) -> f64 {
        let (now, before) = self.least;
        now.map_or(0.0, |now| before.map_or(0.0, |before| before.min(now)))
    }

    /// Whether something waits that is not this end's doing.
    pub(super) fn is_foreign(&self) -> bool {
        self.foreign > 0.0
    }

    /// Once per round: whether the queue is longer than `most`, and has not become shorter for so
    /// many rounds that it may not be this end's.
    pub(super) fn is_stubborn(&mut self, most: f64) -> bool {
        let queue = self.least();
        let (count, before) = self.stubborn;
        let stands = queue > most && queue > 0.9 * before;
        let count = if stands { count + 1 } else { 0 };
        self.stubborn = (count % STUBBORN, queue);
        count >= STUBBORN
    }

    /// All that waits is this end's doing.
    pub(super) const fn own(&mut self) {
        self.foreign = 0.0;
    }

    /// What waits now is not this end's doing.
    pub(super) fn disown(&mut self) {
        self.foreign += self.least();
    }
}

/// The queue that is wanted, in seconds: with it, a path of constant rate is never idle, and
/// queueing that comes from jitter is not taken for more. A datagram takes `datagram` seconds.
/// While realtime traffic shares the path, the queue `is_calm`.
pub(super) fn wanted(datagram: f64, jitter: f64, is_calm: bool) -> f64 {
    let (least, datagrams) = if is_calm { QUEUE_CALM } else { QUEUE };
    least + datagrams * datagram + 2.0 * jitter
}
