//! How often Rove restores an item that another program keeps removing.
//!
//! Two programs that undo each other's work waste the processor and help nobody. The first few
//! repairs happen at once, because a restarting network manager removes several items one after the
//! other. After that, each wait is twice the one before. A quiet period resets the count.

use std::time::{Duration, Instant};

/// Repairs without a wait.
const FREE: u32 = 8;
/// The first wait after them, and the longest. After a person has stopped the other program, the
/// repair takes up to the longest wait.
const WAIT_MIN: Duration = Duration::from_secs(1);
const WAIT_MAX: Duration = Duration::from_secs(60);
/// If nothing is lost for this time, the count starts again.
const PEACE: Duration = Duration::from_secs(300);

/// The count of one item.
#[derive(Clone, Debug, Default)]
pub(super) struct Contest {
    /// Repairs since the last quiet period.
    times: u32,
    last: Option<Instant>,
}

impl Contest {
    /// The item is missing. Returns when it may be restored: `now` or later.
    pub(super) fn may_act(&mut self, now: Instant) -> Instant {
        let Some(last) = self.last else { return now };
        if now.saturating_duration_since(last) >= PEACE {
            *self = Self::default();
            return now;
        }
        let Some(over) = self.times.checked_sub(FREE) else { return now };
        let wait = WAIT_MIN.saturating_mul(2u32.saturating_pow(over)).min(WAIT_MAX);
        now.max(last + wait)
    }

    /// The item was restored.
    pub(super) fn acted(&mut self, now: Instant) {
        self.times = self.times.saturating_add(1);
        self.last = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stubborn_opponent_is_answered_ever_more_seldom_and_never_given_up_on() {
        let start = Instant::now();
        let (mut contest, mut now, mut waits) = (Contest::default(), start, Vec::new());
        for _ in 0..FREE + 10 {
            let due = contest.may_act(now);
            waits.push((due - now).as_secs());
            now = due;
            contest.acted(now);
        }
        let free = FREE as usize;
        assert!(waits[..free].iter().all(|&wait| wait == 0), "{waits:?}");
        assert_eq!(waits[free..][..8], [1, 2, 4, 8, 16, 32, 60, 60]);
    }

    #[test]
    fn peace_forgets() {
        let start = Instant::now();
        let mut contest = Contest::default();
        for _ in 0..FREE + 5 {
            contest.acted(start);
        }
        assert!(contest.may_act(start) > start);
        let later = start + PEACE;
        assert_eq!(contest.may_act(later), later);
        contest.acted(later);
        assert_eq!(contest.may_act(later), later, "the free times are back");
    }
}
