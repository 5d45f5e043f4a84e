//! Startup: the search for the rate of a new path, or of one that was silent for long (BBR's
//! Startup, draft-ietf-ccwg-bbr).
//!
//! The pace is a multiple of the highest rate measured, until the rate stops growing, a queue
//! forms, or datagrams are lost without growth. A path that returns begins with what it carried
//! before. A path that replaces another one is perhaps as fast as that (the idea of careful resume,
//! draft-ietf-tsvwg-careful-resume): it begins with a part of the other's rate, and is not paced
//! much faster than the other was until it has proved to carry more. A search without that guess
//! overshoots, and the losses of that make an inner sender slow down.
//!
//! Answers how the search goes on. Changes nothing outside.

use super::round::Round;

/// Datagrams that may leave before anything is known (RFC 6928).
pub(super) const WINDOW_FIRST: f64 = 10.0;
/// Gain of pace and window: 4 ln 2, which doubles the known rate in each round trip.
pub(super) const GAIN: f64 = 2.77;
/// A round in which the rate grows by less than this factor ...
const GROWTH: f64 = 1.25;
/// ... so often means that it has been found.
const ROUNDS: u8 = 3;
/// If the loss in a round without growth exceeds this (`BBRLossThresh`: draft-ietf-ccwg-bbr, 2.7)
const LOSS: f64 = 0.02;
/// and so many feedbacks report losses (`BBRStartupFullLossCnt`), the rate is found at once.
const LOSSES: u32 = 6;
/// If this part is lost, feedbacks of several rounds in a row count together: where little arrives,
/// a round has few.
const LOSS_HEAVY: f64 = 0.5;
/// A queue of half a round trip ends the search, but of no less and no more seconds than these.
const QUEUE: (f64, f64) = (0.008, 0.040);
/// A rate that the path carried before is found again at this part of it.
const FOUND_AGAIN: f64 = 1.1;
/// What a path carried counts only in this part if a search that began with it found nothing, or
/// if another path carried it.
pub(super) const DOUBTED: f64 = 0.5;
/// The path carries more than a guess if this many times that arrives; this much less is as good.
const AS_GOOD: f64 = 1.1;
/// A path that replaced another one is paced at this multiple of the rate of that path: enough to
/// measure whether it carries more.
const GUESS_GAIN: f64 = 1.25;

/// The search for the rate of a path, in bytes per second.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Startup {
    /// The highest rate before this round, and rounds since it grew.
    best: f64,
    flat: u8,
    /// Feedbacks with losses in the rounds in a row that lost much.
    losses: u32,
    /// What the path carried before, if that is known.
    pub(super) known: Option<f64>,
    /// The pace is at least this.
    pub(super) first: f64,
    /// What a path before it carried.
    guess: Option<f64>,
}

/// How the search goes on.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Search {
    GoesOn,
    /// The path carries the highest rate that was measured, and what it usually loses.
    Found,
    /// The path carries what was known of it, or guessed.
    Confirmed {
        rate: f64,
    },
    /// Most is lost. Perhaps there is a ceiling.
    Drowned,
}

impl Startup {
    /// A search on a path that carried `known`, if that is known. The pace is at least `first`.
    pub(super) fn again(known: Option<f64>, first: f64) -> Self {
        Self { known, first, ..Self::default() }
    }

    /// Another path carried `rate` before this one.
    pub(super) const fn guess(&mut self, rate: f64) {
        if self.known.is_none() {
            self.first = rate * DOUBTED;
            self.guess = Some(rate);
        }
    }

    /// The pace, after `rate` was measured at most, for datagrams of so many bytes on a path with a
    /// round trip of `trip` seconds.
    pub(super) fn pace(&self, rate: f64, datagram: f64, trip: f64) -> f64 {
        let first = WINDOW_FIRST * datagram / trip;
        let most = self.guess.map_or(f64::INFINITY, |guess| (guess * GUESS_GAIN).max(first));
        let pace = first.max(rate * GAIN).max(self.first).min(most);
        self.known.map_or(pace, |known| pace.min(known.max(first / WINDOW_FIRST)))
    }

    /// A round is over. `rate` is the highest rate measured so far.
    pub(super) fn end_round(&mut self, rate: f64, round: &Round) -> Search {
        let has_grown = rate >= self.best * GROWTH;
        self.flat = if has_grown || round.is_limited { 0 } else { self.flat + 1 };
        self.best = if has_grown { rate } else { self.best };
        let (loss, losses) = (round.loss(), round.feedbacks.1);
        self.losses = if loss > LOSS_HEAVY { self.losses + losses } else { 0 };
        // A sender may have too little for a whole round and still overrun the path with each of
        // its bursts: they leave at a multiple of the rate.
        let is_overrun = !has_grown && loss > LOSS && losses >= LOSSES;
        if self.flat >= ROUNDS || is_overrun {
            Search::Found
        } else if round.is_limited && !has_grown && self.losses >= LOSSES {
            Search::Drowned
        } else {
            Search::GoesOn
        }
    }

    /// Feedback came: `rate` is the highest rate so far, of which the part `loss` was lost. The
    /// seconds are those of the queue and its target, and of the round trip.
    pub(super) fn told(&mut self, rate: f64, loss: f64, queue: (f64, f64), trip: f64) -> Search {
        let (queue, target) = queue;
        let long = (trip / 2.0).clamp(QUEUE.0, QUEUE.1) + target;
        if rate > 0.0 && queue > long {
            return Search::Found;
        }
        if let Some(known) = self.known.filter(|known| rate * FOUND_AGAIN >= *known) {
            return Search::Confirmed { rate: known };
        }
        match self.guess {
            Some(guess) if rate >= guess * AS_GOOD => self.guess = None,
            // Then the first queue tells enough, not only a long one.
            Some(guess) if rate * AS_GOOD >= guess && queue > target => {
                return Search::Confirmed { rate: rate / (1.0 - loss) };
            }
            Some(_) | None => {}
        }
        Search::GoesOn
    }
}
