//! How often something may be put back that somebody else keeps taking away.
//!
//! Two programs that undo each other's work burn a processor and help nobody. The first few times
//! are free, since a restart of a network manager takes several things away one after the other;
//! then each wait is twice the one before. A time of peace forgets all.

use std::time::{Duration, Instant};

/// Times that are free.
const FREE: u32 = 8;
/// The first wait after them, and the longest. The longest is what a person waits who has stopped
/// the other program.
const WAIT_MIN: Duration = Duration::from_secs(1);
const WAIT_MAX: Duration = Duration::from_secs(60);
/// Without a loss for so long, the contest is over.
const PEACE: Duration = Duration::from_secs(300);

/// One thing's contest.
#[derive(Clone, Debug, Default)]
pub(super) struct Contest {
    /// How often it was put back since peace.
    times: u32,
    last: Option<Instant>,
}

impl Contest {
    /// It is missing: when it may be put back, which is now or later.
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

    /// It was put back.
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
