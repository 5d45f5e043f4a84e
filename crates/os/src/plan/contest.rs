//! How often Rove restores an item that another program keeps removing.
//!
//! Two programs that undo each other's work waste the processor and help nobody. A packet filter
//! is restored at once all the same, with a short pause between two repairs: while it is missing,
//! packets may leave in clear. Of other items the first few repairs happen at once, because a
//! restarting network manager removes several items one after the other. After that, each wait is
//! twice the one before. A quiet period resets the count.

use std::time::{Duration, Instant};

/// Repairs without a wait.
const FREE: u32 = 8;
/// The pause between two repairs of a packet filter, and the first wait of other items. A repair
/// starts `nft` twice, some 20 ms. Half as long would use a fifth of a processor in a fight; twice
/// as long would leave no room in the half second within which a filter must be back.
const WAIT_MIN: Duration = Duration::from_millis(200);
/// The longest wait. After the other program has stopped, the repair takes up to so long, because
/// only a repair that stays shows that it stopped. Repairs of routes and rules take some 5 ms.
const WAIT_MAX: Duration = Duration::from_secs(2);
/// If nothing is lost for this time, the count starts again.
const PEACE: Duration = Duration::from_secs(30);

/// What is lost while an item is missing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Loss {
    /// Packets may leave in clear.
    Protection,
    /// The tunnel may carry less.
    Service,
}

/// The count of one item.
#[derive(Clone, Debug, Default)]
pub(super) struct Contest {
    /// Repairs since the last quiet period.
    times: u32,
    last: Option<Instant>,
}

impl Contest {
    /// The item is missing. Returns when it may be restored: `now` or later.
    pub(super) fn may_act(&mut self, now: Instant, loss: Loss) -> Instant {
        let Some(last) = self.last else { return now };
        if now.saturating_duration_since(last) >= PEACE {
            *self = Self::default();
            return now;
        }
        let wait = match (loss, self.times.checked_sub(FREE)) {
            (Loss::Protection, _) => WAIT_MIN,
            (Loss::Service, None) => Duration::ZERO,
            (Loss::Service, Some(over)) => {
                WAIT_MIN.saturating_mul(2u32.saturating_pow(over)).min(WAIT_MAX)
            }
        };
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

    /// The waits of an opponent that never stops, in milliseconds.
    fn waits(loss: Loss) -> Vec<u128> {
        let (mut contest, mut now, mut waits) = (Contest::default(), Instant::now(), Vec::new());
        for _ in 0..FREE + 8 {
            let due = contest.may_act(now, loss);
            waits.push((due - now).as_millis());
            now = due;
            contest.acted(now);
        }
        waits
    }

    #[test]
    fn a_stubborn_opponent_is_answered_more_seldom_and_never_given_up_on() {
        let waits = waits(Loss::Service);
        let free = FREE as usize;
        assert!(waits[..free].iter().all(|&wait| wait == 0), "{waits:?}");
        assert_eq!(waits[free..], [200, 400, 800, 1_600, 2_000, 2_000, 2_000, 2_000]);
    }

    #[test]
    fn a_packet_filter_is_put_back_at_any_rate_of_flushes() {
        let waits = waits(Loss::Protection);
        assert_eq!(waits[0], 0);
        assert!(waits[1..].iter().all(|&wait| wait == 200), "{waits:?}");
    }

    #[test]
    fn peace_forgets() {
        let (start, loss) = (Instant::now(), Loss::Service);
        let mut contest = Contest::default();
        for _ in 0..FREE + 5 {
            contest.acted(start);
        }
        assert!(contest.may_act(start, loss) > start);
        let later = start + PEACE;
        assert_eq!(contest.may_act(later, loss), later);
        contest.acted(later);
        assert_eq!(contest.may_act(later, loss), later, "the free times are back");
    }
}
