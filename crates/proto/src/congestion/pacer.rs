//! Pacing: spreads datagrams over time.
//!
//! Decides when the next datagram may leave at a given pace. A host's timers are coarse and its
//! turns may be late, so what could have left a moment ago may leave at once, up to a credit.
//! Datagrams that leave regardless of the pace make a debt of at most [`DEBT`].

use crate::time::{Duration, Instant};

/// Bytes of a datagram before any was sent.
const DATAGRAM: f64 = 1_400.0;
/// A datagram may leave so late and still count as on time: timers are this coarse.
pub const CREDIT: Duration = Duration::from_millis(1);
/// The limit on data that leaves with a late turn, in time at the pacing rate. It is a burst for
/// the path.
const CREDIT_LATE: Duration = Duration::from_millis(20);
/// Datagrams that leave regardless of the pace hold up the rest for at most this long.
pub(super) const DEBT: Duration = Duration::from_millis(250);
/// A path on which nothing left for so long is not what it was.
const IDLE: Duration = Duration::from_secs(10);

/// When datagrams leave.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pacer {
    /// When the next datagram may leave.
    pub(super) next_at: Instant,
    sent_at: Option<Instant>,
    /// Bytes of the largest datagram so far.
    pub(super) datagram: f64,
}

impl Pacer {
    pub(super) const fn new(now: Instant) -> Self {
        Self { next_at: now, sent_at: None, datagram: DATAGRAM }
    }

    /// Whether nothing has left for so long that the path is unknown again.
    pub(super) fn is_idle(&self, now: Instant) -> bool {
        self.sent_at.is_some_and(|at| now.saturating_since(at) >= IDLE)
    }

    /// `bytes` leave at `pace` bytes per second, on a host whose turns are `late`.
    #[expect(clippy::cast_precision_loss, reason = "bytes of a datagram")]
    pub(super) fn sent(&mut self, now: Instant, bytes: usize, pace: f64, late: Duration) {
        self.sent_at = Some(now);
        self.datagram = self.datagram.max(bytes as f64);
        let credit = (CREDIT + late.min(CREDIT_LATE)).as_secs_f64().max(self.datagram / pace);
        let from = self.next_at.max(now - Duration::from_secs_f64(credit));
        self.next_at = (from + Duration::from_secs_f64(bytes as f64 / pace)).min(now + DEBT);
    }
}
