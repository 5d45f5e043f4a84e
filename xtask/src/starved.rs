//! Whether others took the processors away while tests ran: the host of a virtual machine says what
//! it did not give (`steal` in `/proc/stat`, proc(5)), and who sleeps is woken late.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How long each look lasts.
const LOOK: Duration = Duration::from_secs(2);
/// Hundredths of the processor time that was asked for. A test that waits for real time is late
/// when so much of it was not given.
const STARVED: u64 = 20;
/// How long to wait at most until it is given again.
const CALM_WITHIN: Duration = Duration::from_secs(120);

/// Processor time since the start, in ticks: what was used, and what was asked for and not given.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Ticks {
    used: u64,
    stolen: u64,
}

impl Ticks {
    /// Those of now; zero where no such thing is counted.
    fn now() -> Self {
        Self::of(&std::fs::read_to_string("/proc/stat").unwrap_or_default()).unwrap_or_default()
    }

    /// Reads the first line of `/proc/stat`: user, nice, system, idle, iowait, irq, softirq, steal.
    fn of(stat: &str) -> Option<Self> {
        let line = stat.lines().next()?.strip_prefix("cpu ")?;
        let fields: Vec<u64> = line.split_whitespace().map_while(|it| it.parse().ok()).collect();
        let &[user, nice, system, _idle, _iowait, irq, softirq, stolen, ..] = fields.as_slice()
        else {
            return None;
        };
        Some(Self { used: user + nice + system + irq + softirq, stolen })
    }

    /// Hundredths of what was asked for since `before` that were not given. A machine that asks for
    /// nothing is not starved.
    fn stolen_since(self, before: Self) -> u64 {
        let stolen = self.stolen.saturating_sub(before.stolen);
        let asked = stolen + self.used.saturating_sub(before.used);
        (stolen * 100).checked_div(asked).unwrap_or(0)
    }
}

/// Runs `work`; returns what it did, and how many hundredths of the time that was asked for were
/// not given in the worst two seconds of it.
pub(crate) fn watched<T>(work: impl FnOnce() -> T) -> (T, u64) {
    let (worst, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let done = thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let (before, begin) = (Ticks::now(), Instant::now());
                thread::park_timeout(LOOK);
                let stolen = Ticks::now().stolen_since(before);
                worst.fetch_max(stolen.max(lateness(begin.elapsed())), Ordering::Relaxed);
            }
        });
        let done = work();
        is_over.store(true, Ordering::Relaxed);
        watcher.thread().unpark();
        done
    });
    (done, worst.into_inner())
}

/// How much later somebody was woken who wanted to sleep for one look, in hundredths of it.
fn lateness(slept: Duration) -> u64 {
    u64::try_from(slept.saturating_sub(LOOK).as_millis() * 100 / LOOK.as_millis()).unwrap_or(100)
}

/// Whether a test may have failed because of it.
pub(crate) const fn excuses(worst: u64) -> bool {
    worst >= STARVED
}

/// Waits until processor time is given to who asks for it, but no longer than two minutes.
pub(crate) fn wait_for_calm() {
    let begin = Instant::now();
    while begin.elapsed() < CALM_WITHIN {
        let before = Ticks::now();
        let look = Instant::now();
        // Who asks for nothing is refused nothing.
        while look.elapsed() < LOOK {
            std::hint::spin_loop();
        }
        if !excuses(Ticks::now().stolen_since(before)) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_given_counts_against_what_was_asked_for() {
        let before = Ticks::of("cpu  100 0 50 9000 3 0 10 40 0 0\ncpu0 1 2").unwrap();
        let after = Ticks::of("cpu  120 0 55 9900 3 0 15 50 0 0\ncpu0 1 2").unwrap();
        assert_eq!(before, Ticks { used: 160, stolen: 40 });
        assert_eq!(after.stolen_since(before), 25);
        assert_eq!(before.stolen_since(before), 0);
        assert_eq!(Ticks::of("intr 1 2 3"), None);
        assert_eq!(Ticks::of("cpu  1 2 3"), None);
    }

    #[test]
    fn who_is_woken_late_was_not_given_time() {
        assert_eq!(lateness(Duration::from_millis(1_900)), 0);
        assert_eq!(lateness(Duration::from_millis(2_500)), 25);
    }

    #[test]
    fn work_is_watched_to_its_end() {
        let (done, worst) = watched(|| 7);
        assert_eq!(done, 7);
        assert!(worst <= 100, "{worst} of 100");
    }
}
