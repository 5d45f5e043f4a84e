//! A new path that takes the place of another is perhaps as that was (the idea of careful resume,
//! draft-ietf-tsvwg-careful-resume).
//!
//! Who finds it as any new path overshoots, and a sender that goes on as before meanwhile is cut by
//! what is lost in that. So it begins with a part of what the other carried, and is not sent on
//! much faster than the other was until it is known that it carries more.

use super::{Controller, DOUBTED, Phase};
use crate::ablation::Heuristic;
use crate::time::Instant;

/// It carries more where this many times that arrives; this much less is as good as the other.
const AS_GOOD: f64 = 1.1;

impl Controller {
    /// A path before this one carried `rate` bytes per second. Has no effect once anything was
    /// measured of this one.
    pub fn guess(&mut self, rate: f64) {
        if let Phase::Startup { known: None, first, .. } = &mut self.phase
            && self.rate == 0.0
            && !self.ablation.is_off(Heuristic::Guess)
        {
            *first = rate * DOUBTED;
            self.guess = Some(rate);
            self.set_pace();
        }
    }

    /// Looks with every feedback of a new path whether the guess was right: then the path is known
    /// with the first queue, not when that is long.
    pub(super) fn judge_guess(&mut self, now: Instant) {
        let Some(guess) = self.guess.filter(|guess| self.rate * AS_GOOD >= *guess) else { return };
        if self.rate >= guess * AS_GOOD {
            self.guess = None;
        } else if self.queue.least() > self.target() {
            self.found(now, self.rate / (1.0 - self.round.loss()));
        }
    }
}
