//! How late the emulator was.

use super::times::Times;

/// How the emulator kept time.
#[derive(Clone, Debug, Default)]
pub struct Timekeeping {
    /// Every delivery: how much later than it was due a packet was handed to a host.
    pub all: Times,
    /// The deliveries, to whomever, from the moment when a card was plugged in to the first that
    /// came to it: few among all, and the ones on which a standstill is measured.
    pub after_moves: Times,
}

impl Timekeeping {
    /// Adds what was noted elsewhere.
    pub fn add(&mut self, other: &Self) {
        self.all.add(&other.all);
        self.after_moves.add(&other.after_moves);
    }
}
