//! When a path that owes an answer counts as silent.

use super::PathPlan;
use crate::ablation::{Ablation, Heuristic};
use crate::path::Path;
use crate::recovery::feedback;
use crate::session::epochs::Debt;
use crate::time::{Duration, Instant};

/// Where other paths carry, one is silent that has owed an answer for three halves of a round trip,
const TAIL_TRIPS: (u32, u32) = (3, 2);
/// and this, or if that is more what feedback may wait and a little: so may the processes at both
/// ends.
const TAIL_GRACE: Duration = Duration::from_millis(25);
/// How little.
const TAIL_LATE: Duration = Duration::from_millis(5);

impl PathPlan<'_> {
    /// When `path`, by which the peer owes this, counts as silent, or takes the next step if it
    /// does already.
    pub(crate) fn silence_due(
        &self,
        ablation: Ablation,
        path: &Path,
        debt: impl FnOnce() -> Option<Debt>,
    ) -> Option<Instant> {
        if !path.is_good() {
            return self.silent_step_due(path);
        }
        let Debt { since, told_at } = debt()?;
        let due = since + self.patience(ablation, path);
        // Who becomes slower tells late of everything, but tells. The last word of a path that dies
        // comes half a round trip and a report's wait later, so this finds no death later.
        Some(told_at.map_or(due, |told| due.max(told + path.rtt.smoothed())))
    }

    /// How long an answer may be owed before `path` counts as silent: not long, where others carry
    /// what it does not.
    fn patience(&self, ablation: Ablation, path: &Path) -> Duration {
        let others = || self.paths.iter().any(|other| other.id != path.id && other.has_share());
        let is_impatient = || others() && !ablation.is_off(Heuristic::Impatience);
        let Some(controller) = path.congestion.as_ref().filter(|_| is_impatient()) else {
            return path.patience();
        };
        let wait = controller.rate().map_or(Duration::ZERO, feedback::wait);
        let trips = path.rtt.smoothed() * TAIL_TRIPS.0 / TAIL_TRIPS.1;
        path.rtt.timeout().max(trips) + TAIL_GRACE.max(wait + TAIL_LATE)
    }
}
