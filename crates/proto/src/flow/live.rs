//! What is known of a realtime flow: whether its user wants it early, how much of it may leave
//! early, and by which paths it leaves and comes.
//!
//! Decides nothing about paths, and sees no packet: `observe` notes what packets show.

use std::sync::Arc;

use super::rtp::Likeness;
use super::tuple::Tuple;
use crate::path::PathId;
use crate::time::{Duration, Instant};
use crate::wire::control::{ENDS_MAX, End};

/// What is more than may leave early waits its turn for so long.
const WAITS: Duration = Duration::from_secs(1);

/// A flow that sent so many bytes in its turn keeps its order, with all that is small of it: QUIC
/// takes what three datagrams overtook for lost (RFC 9002, 6.1.1), and there a whole queue is
/// overtaken. It is what QUIC may send at first (7.2), and more than a handshake pads or the search
/// for the longest datagram takes.
const MUCH: u32 = 16_000;
/// A flow that sent nothing for so long has nothing left that could be overtaken: what waits at the
/// entry does so for less, if its sender listens, and so does a gap by most paths.
const REMEMBERED: Duration = Duration::from_secs(1);

/// Where what is wanted early goes, as its user says.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Early {
    /// Shared by all that know of it.
    ends: Arc<[End]>,
}

impl Early {
    /// The ends that are meant, of which the first [`ENDS_MAX`] count.
    pub fn new(ends: &[End]) -> Self {
        Self { ends: ends.iter().take(ENDS_MAX).copied().collect() }
    }

    /// The ends that are meant.
    pub fn ends(&self) -> &[End] {
        &self.ends
    }

    /// Whether nothing is meant.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Whether a flow is meant: one of its ends is there. A gateway sees that on the other side
    /// than its client does.
    pub(super) fn means(&self, tuple: &Tuple) -> bool {
        self.ends.iter().any(|end| end.means(tuple.local) || end.means(tuple.remote))
    }
}

/// How much may be sent.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Allowance {
    /// Bytes per second.
    pub rate: f64,
    /// Bytes at once.
    pub burst: f64,
}

/// What has been spent of an allowance.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Spent {
    spent: f64,
    at: Instant,
}

impl Spent {
    /// Whether `len` more bytes may be sent now; they count as sent if so.
    pub(crate) fn take(&mut self, now: Instant, allowance: Allowance, len: usize) -> bool {
        let passed = now.saturating_since(self.at).as_secs_f64();
        self.spent = (self.spent - passed * allowance.rate).max(0.0);
        self.at = now;
        #[expect(clippy::cast_precision_loss, reason = "bytes of a packet")]
        let after = self.spent + len as f64;
        let may = after <= allowance.burst;
        if may {
            self.spent = after;
        }
        may
    }
}

/// A flow that may be of no use late, and by which paths it goes.
#[derive(Debug, Default)]
pub(crate) struct LiveFlow {
    pub(super) observed_at: Instant,
    /// Its user said so.
    pub(super) is_wanted_early: bool,
    pub(super) likeness: Likeness,
    sent: Spent,
    /// It was more than may leave early: until then it waits its turn like everything else.
    waits_until: Instant,
    /// Bytes that left in their turn, one soon after the other, and when the last of them did.
    in_turn: (u32, Instant),
    /// Bytes of inner packets that were to leave, and that came, modulo 2^32.
    pub(super) carried: (u32, u32),
    /// The path that it leaves by,
    pub leaves: Option<PathId>,
    /// and when that took the place of another.
    pub changed_at: Option<Instant>,
    /// The path that it came by last, and when.
    pub came: Option<(PathId, Instant)>,
    /// When it came last by the path that it leaves by.
    pub came_back_at: Option<Instant>,
}

impl LiveFlow {
    /// Whether a packet of `len` bytes of it may leave early. A flow that is too much for that is
    /// not cut in two, of which one overtakes the other: all of it waits for a while.
    pub(crate) fn may_leave(&mut self, now: Instant, allowance: Allowance, len: usize) -> bool {
        if self.waits(now) {
            return false;
        }
        let may = self.sent.take(now, allowance, len);
        if !may {
            self.waits_until = now + WAITS;
        }
        may
    }

    /// `len` bytes of it leave in their turn.
    pub(super) fn leaves_in_turn(&mut self, now: Instant, len: usize) {
        let (bytes, at) = self.in_turn;
        let before = if now.saturating_since(at) > REMEMBERED { 0 } else { bytes };
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        self.in_turn = (before.saturating_add(len), now);
    }

    /// Whether what is small of it has to follow what is not.
    pub(super) fn keeps_order(&self, now: Instant) -> bool {
        let (bytes, at) = self.in_turn;
        bytes >= MUCH && now.saturating_since(at) <= REMEMBERED
    }

    /// Whether it waits its turn like everything else, since it was too much.
    pub(super) fn waits(&self, now: Instant) -> bool {
        now < self.waits_until
    }
}

/// How an inner packet came, as far as it matters to what is live.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Came {
    /// By the one path that carries.
    Alone,
    /// By this one of several.
    Beside(PathId),
    /// In its turn, by whichever of several.
    InTurn,
}

#[cfg(test)]
#[path = "live_tests.rs"]
mod tests;
