//! Farther links that a sender would never come to by himself.
//!
//! A BBR has at most twice as much on its way as its shortest round trip holds. That never waits
//! for so long that a farther link would be the earlier way, however much more it carries. So where
//! the nearer links are full and a farther one carries much more, what is sent in bulk finds every
//! link as far as that one: its sender sees one link that carries what all do. Who sends little
//! goes by the nearest, as before.
//!
//! Until such a sender knows that his shortest round trip is another (after ten seconds; some never
//! do) he has less by as much as that is longer. So the farther link has to carry as much more.
//!
//! What a link carries that was never filled nobody knows. It is found out with copies of what
//! fills the nearer ones, for a moment: nothing waits for what leaves by a link that may be slow.
//!
//! Knows links by what they carry and how far they are, senders by how much comes from a bucket;
//! neither what they send nor how they control it.

use super::bucket::BUCKETS;
use crate::multipath::snapshot::PathSnapshot;
use crate::path::PathId;
use crate::time::{Duration, Instant};

/// A farther link that carries less than this part of what the nearer ones do together is not worth
/// the way.
const WORTH: f64 = 0.75;
/// Links by which this part of what they carry arrives are full.
const FULL: f64 = 0.8;
/// Links count as far for so long after they were full last: a sender who holds his round trip to
/// be the shortest one of ten seconds (BBR: `bbr_min_rtt_win_sec` of Linux' tcp_bbr.c) finds out
/// that it is another, and fills them again.
const STAYS: Duration = Duration::from_secs(12);
/// A link is tried with so many copies of a packet,
pub(crate) const COPIES: usize = 8;
/// for so long at most,
const TRIED: Duration = Duration::from_secs(2);
/// and not again before this.
const AGAIN_AFTER: Duration = Duration::from_secs(60);
/// Who sent so many bytes beyond [`TRICKLE`] sends in bulk,
const BULK: f64 = 256_000.0;
/// in bytes per second;
const TRICKLE: f64 = 125_000.0;
/// and counts for as many at most, so that it is forgotten in a few seconds.
const BULK_MOST: f64 = 4.0 * BULK;

/// Which links count as far as which, and who sends in bulk.
#[derive(Clone, Debug, Default)]
pub struct Far {
    /// How far every link is at least for what is sent in bulk,
    floor: Duration,
    /// and until when, unless the links are full again.
    until: Instant,
    /// The path that is tried, and until when.
    tries: Option<(PathId, Instant)>,
    /// Which were, and when they may be again: at most one for each [`TRIED`] in [`AGAIN_AFTER`].
    tried: Vec<(PathId, Instant)>,
    /// One for each bucket, or none yet.
    senders: Vec<Sender>,
}

/// On which terms a packet is given to the paths.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Terms {
    /// How far every path is at least.
    pub floor: Duration,
    /// The path that gets copies, `COPIES` at most.
    pub copied_to: Option<PathId>,
}

/// How much the flows of one bucket send.
#[derive(Clone, Copy, Debug, Default)]
struct Sender {
    /// Bytes beyond the trickle,
    bytes: f64,
    /// at that time.
    at: Instant,
}

impl Far {
    /// Looks at the paths as they are now.
    pub fn look(&mut self, now: Instant, ways: &[PathSnapshot]) {
        let arrives: f64 = ways.iter().filter_map(|way| way.measured.arrives).sum();
        let (mut floor, mut unknown) = (Duration::ZERO, None);
        for way in ways {
            let nearer = || ways.iter().filter(|other| other.delay < way.delay);
            let carried: f64 = nearer().filter_map(|way| way.measured.proven).sum();
            if carried <= 0.0 {
                continue; // there is no nearer one, or nobody knows what it carries
            }
            let is_full =
                nearer().filter_map(|way| way.measured.arrives).sum::<f64>() >= FULL * carried;
            let trip = nearer().map(|way| way.least_trip).min().unwrap_or_default();
            // Who never learns has less by as many of these as it is farther.
            let worth = WORTH.max(way.delay.as_secs_f64() / trip.as_secs_f64()) * carried;
            if way.measured.proven.is_some_and(|proven| proven >= worth) {
                let was_far = self.floor >= way.delay && now < self.until;
                // What all carry now is no longer what the nearer ones do.
                let goes_on = was_far && arrives >= FULL * carried;
                if is_full || goes_on {
                    self.until = now + STAYS;
                }
                if is_full || was_far {
                    floor = floor.max(way.delay);
                }
            } else if is_full && !way.measured.is_known {
                unknown = Some(way.path);
            }
        }
        self.floor = floor;
        self.try_out(now, unknown);
    }

    /// Nothing is far any more, and nothing is tried.
    pub const fn forget(&mut self) {
        self.floor = Duration::ZERO;
        self.tries = None;
    }

    /// No path is tried.
    pub(crate) const fn end_trial(&mut self) {
        self.tries = None;
    }

    /// The terms of a packet of `len` bytes that leaves now in this bucket.
    pub fn terms(&mut self, now: Instant, bucket: u8, len: usize) -> Terms {
        if !self.is_bulk(now, bucket, len) {
            return Terms::default();
        }
        let tries = self.tries.filter(|&(_, until)| now < until);
        Terms { floor: self.floor, copied_to: tries.map(|(path, _)| path) }
    }

    /// Whether some path may get copies.
    pub const fn copies(&self) -> bool {
        self.tries.is_some()
    }

    /// Whether the flows of this bucket send in bulk, with `len` bytes that they send now.
    #[expect(clippy::cast_precision_loss, reason = "bytes of a packet")]
    fn is_bulk(&mut self, now: Instant, bucket: u8, len: usize) -> bool {
        self.senders.resize(BUCKETS, Sender::default());
        let sender = &mut self.senders[usize::from(bucket)];
        let passed = now.saturating_since(sender.at).as_secs_f64() * TRICKLE;
        let bytes = (sender.bytes - passed).max(0.0) + len as f64;
        *sender = Sender { bytes: bytes.min(BULK_MOST), at: now };
        bytes >= BULK
    }

    /// The path `unknown` is tried, unless it was of late.
    fn try_out(&mut self, now: Instant, unknown: Option<PathId>) {
        if let Some((path, until)) = self.tries
            && now < until
            && unknown == Some(path)
        {
            return;
        }
        self.tries = None;
        let Some(path) = unknown else { return };
        self.tried.retain(|&(_, again_at)| now < again_at);
        if self.tried.iter().all(|&(tried, _)| tried != path) {
            self.tried.push((path, now + AGAIN_AFTER));
            self.tries = Some((path, now + TRIED));
        }
    }
}

#[cfg(test)]
#[path = "far_tests.rs"]
mod tests;
