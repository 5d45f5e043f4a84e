//! A path as the choice among paths sees it: where it stands, and what it got so far. Decides
//! nothing (`scheduler` does), and knows no address.

use crate::path::PathId;
use crate::time::{Duration, Instant};

/// How long a line keeps its path busy before another packet is given to any.
pub(super) const AHEAD: Duration = Duration::from_millis(2);

/// The part of all repairs that may take longer than [`PathSnapshot::repeats_ns`]. The packets
/// behind a repair wait for it, so the slowest of many matter. A path that loses no more than this
/// costs nothing. With half as much, one that loses 1 % would cost 0.15 round trips more.
const UNREPAIRED: f64 = 0.01;

/// A path as far as the choice goes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PathSnapshot {
    /// Its name.
    pub path: PathId,
    /// When it may carry another datagram.
    pub next_at: Instant,
    /// Nanoseconds that a byte takes on it.
    pub byte_ns: f64,
    /// How much longer it takes from end to end than the shortest.
    pub delay: Duration,
    /// Its round trip,
    pub trip: Duration,
    /// and the shortest that was seen.
    pub least_trip: Duration,
    /// What was measured of it.
    pub measured: Measured,
    /// Bytes that its window has room for.
    pub room: u64,
    /// Bytes that wait in its line.
    pub waiting: usize,
    /// What it got so far.
    pub tally: Tally,
}

/// What was measured of a path.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Measured {
    /// Which part of what leaves by it is lost.
    pub loss: f64,
    /// Bytes per second that arrived by it of late, if that was measured.
    pub arrives: Option<f64>,
    /// Bytes per second that it proved to carry,
    pub proven: Option<f64>,
    /// and whether it carries no more than that.
    pub is_known: bool,
}

impl PathSnapshot {
    /// So many bytes have left by the path, which may carry another datagram at `next_at`.
    pub fn left(&mut self, next_at: Instant, bytes: usize) {
        self.next_at = next_at;
        self.room = self.room.saturating_sub(bytes as u64);
    }

    /// Bytes per second that it carries.
    pub fn rate(&self) -> f64 {
        1e9 / self.byte_ns
    }

    /// Whether its window has room.
    pub const fn is_open(&self) -> bool {
        self.room > 0
    }

    /// Whether it may carry a datagram now.
    pub fn is_ready(&self, now: Instant) -> bool {
        self.is_open() && self.next_at <= now
    }

    /// Whether it could get something and will soon have nothing to carry.
    pub fn starves(&self, now: Instant) -> bool {
        self.is_open() && self.carried_at(now, self.waiting) < nanos(now, AHEAD)
    }

    /// When the last of so many bytes arrives that leave from now on, in nanoseconds.
    pub(super) fn arrival(&self, now: Instant, bytes: usize) -> u64 {
        self.arrival_from(now, bytes, Duration::ZERO)
    }

    /// The same if it is no nearer than `floor`.
    pub(super) fn arrival_from(&self, now: Instant, bytes: usize, floor: Duration) -> u64 {
        nanos(Instant::from_nanos(self.carried_at(now, bytes)), self.delay.max(floor))
    }

    /// The time in nanoseconds that repeated losses add to the arrival of a packet on this path:
    /// only the part [`UNREPAIRED`] of all packets takes longer. Each sending after the first takes
    /// one more round trip.
    pub(super) fn repeats_ns(&self) -> u64 {
        let sendings = UNREPAIRED.ln() / self.measured.loss.clamp(f64::MIN_POSITIVE, 0.99).ln();
        let repeats = (sendings - 1.0).max(0.0);
        u64::try_from(self.trip.mul_f64(repeats).as_nanos()).unwrap_or(u64::MAX)
    }

    /// When the last of so many bytes has left, in nanoseconds.
    fn carried_at(&self, now: Instant, bytes: usize) -> u64 {
        #[expect(clippy::cast_precision_loss, reason = "bytes of a line")]
        #[expect(clippy::cast_possible_truncation, reason = "saturates")]
        #[expect(clippy::cast_sign_loss, reason = "both are positive")]
        let time_ns = (bytes as f64 * self.byte_ns) as u64;
        self.next_at.max(now).as_nanos().saturating_add(time_ns)
    }
}

#[cfg(test)]
impl PathSnapshot {
    /// A path that is free from `next_at` on and has lost nothing yet, with as much delay each way.
    pub(super) fn free(path: u32, next_at: Instant, mbps: f64, trip: Duration) -> Self {
        Self {
            path: PathId(path),
            next_at,
            byte_ns: 8_000.0 / mbps,
            delay: trip / 2,
            trip,
            least_trip: trip,
            measured: Measured::default(),
            room: 1 << 40,
            waiting: 0,
            tally: Tally::default(),
        }
    }
}

/// What a path got so far, as far as a choice needs it.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Tally {
    /// The place of its line.
    pub(super) line: usize,
    /// When it was its turn last, in turns of all.
    pub(super) turn: u64,
    /// What it is owed, in packets, beside the others.
    pub(super) credit: f64,
    /// Since when bytes are counted, and how many it got since.
    pub(super) counted: (Instant, u64),
    /// Bytes per second that it carries on the average; not known yet if zero.
    pub(super) carried: f64,
}

/// A moment so much later, in nanoseconds.
const fn nanos(from: Instant, later: Duration) -> u64 {
    let later_ns = later.as_secs().saturating_mul(1_000_000_000);
    from.as_nanos().saturating_add(later_ns).saturating_add(later.subsec_nanos() as u64)
}
