//! Whether others took the processors away while tests ran: the host of a virtual machine says what
//! it did not give (`steal` in `/proc/stat`, proc(5)), and who sleeps is woken late.
//!
//! Looks of two seconds are taken one after the other until the tests end. What is left at the end
//! is shorter and says nothing: a few ticks are all or none of it.

use std::fmt;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// How long each look lasts.
const LOOK: Duration = Duration::from_secs(2);
/// A look is starved where so much was stolen, in hundredths of the time of all processors. Of two
/// that is half of one, for two seconds: whoever waits for real time on it is late.
const STOLEN: u64 = 25;
/// Or where the watcher, who asks for next to nothing, was woken so late, in hundredths of a look.
const LATE: u64 = 20;
/// The machine was starved where so many looks were, in hundredths, and at least one: a single one
/// in minutes explains no failure.
const STARVED: u32 = 5;

/// Processor time since the start, in ticks of all processors.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Ticks {
    /// Used, or not asked for.
    given: u64,
    /// Asked for, and not given.
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
        let &[user, nice, system, idle, iowait, irq, softirq, stolen, ..] = fields.as_slice()
        else {
            return None;
        };
        Some(Self { given: user + nice + system + idle + iowait + irq + softirq, stolen })
    }

    /// Hundredths of all processor time since `before` that were stolen, 0 to 100.
    fn stolen_since(self, before: Self) -> u64 {
        let stolen = self.stolen.saturating_sub(before.stolen);
        let all = stolen + self.given.saturating_sub(before.given);
        (stolen * 100).checked_div(all).unwrap_or(0)
    }
}

/// What was seen of the machine while tests ran.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Looks {
    all: u32,
    starved: u32,
    /// In the worst look, in hundredths of the time of all processors.
    stolen_max: u64,
    /// How late the watcher was woken at worst, in hundredths of a look.
    late_max: u64,
}

impl Looks {
    /// Adds a look that lasted so long, with so many hundredths stolen; one cut short is none.
    fn add(&mut self, lasted: Duration, stolen: u64) {
        let Some(late) = lasted.checked_sub(LOOK) else { return };
        let late = u64::try_from(late.as_millis() * 100 / LOOK.as_millis()).unwrap_or(u64::MAX);
        self.all += 1;
        self.starved += u32::from(stolen >= STOLEN || late >= LATE);
        self.stolen_max = self.stolen_max.max(stolen);
        self.late_max = self.late_max.max(late);
    }

    /// Whether a test that failed meanwhile may have failed for want of processor time.
    pub(crate) const fn excuse(self) -> bool {
        self.starved > 0 && self.starved * 100 >= self.all * STARVED
    }

    #[cfg(test)]
    pub(crate) const fn of(all: u32, starved: u32) -> Self {
        Self { all, starved, stolen_max: 0, late_max: 0 }
    }
}

impl fmt::Display for Looks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { all, starved, stolen_max, late_max } = self;
        write!(
            f,
            "{starved} of {all} looks of {} s were starved, at worst {stolen_max} % of the \
             processor time stolen and {late_max} % of a look late",
            LOOK.as_secs()
        )
    }
}

/// Runs `work`; returns what it did, and what was seen of the machine meanwhile.
pub(crate) fn watched<T>(work: impl FnOnce() -> T) -> (T, Looks) {
    // Nothing is ever sent: the watcher hears that the other end is gone, by a panic too.
    let (working, is_over) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let watcher = scope.spawn(move || watch(&is_over));
        let done = work();
        drop(working);
        (done, watcher.join().unwrap_or_default())
    })
}

fn watch(is_over: &Receiver<()>) -> Looks {
    let mut looks = Looks::default();
    let (mut begin, mut before) = (Instant::now(), Ticks::now());
    loop {
        let rest = LOOK.saturating_sub(begin.elapsed());
        let ended = is_over.recv_timeout(rest) == Err(RecvTimeoutError::Disconnected);
        let (end, after) = (Instant::now(), Ticks::now());
        looks.add(end - begin, after.stolen_since(before));
        if ended {
            return looks;
        }
        (begin, before) = (end, after);
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{catch_unwind, resume_unwind};

    use super::*;

    #[test]
    fn what_is_stolen_counts_against_the_time_of_all_processors_idle_or_not() {
        let before = Ticks::of("cpu  100 0 50 9000 3 0 10 40 0 0\ncpu0 1 2").unwrap();
        let after = Ticks::of("cpu  120 0 55 9260 8 5 15 140 0 0\ncpu0 1 2").unwrap();
        assert_eq!(before, Ticks { given: 9_163, stolen: 40 });
        assert_eq!(after.stolen_since(before), 25, "100 of 400");
        assert_eq!(before.stolen_since(after), 0, "it went backwards");
        let idle = Ticks::of("cpu  101 0 50 9380 3 0 10 59 0 0").unwrap();
        assert_eq!(idle.stolen_since(before), 4, "nearly all of what was asked for, and little");
        assert_eq!(Ticks::of("intr 1 2 3"), None);
        assert_eq!(Ticks::of("cpu  1 2 3"), None);
    }

    fn look(lasted_ms: u64, stolen: u64) -> Looks {
        let mut looks = Looks::default();
        looks.add(Duration::from_millis(lasted_ms), stolen);
        looks
    }

    #[test]
    fn a_look_is_starved_by_what_was_stolen_or_by_waking_late() {
        assert_eq!((look(2_000, 24).all, look(2_000, 24).starved), (1, 0));
        assert_eq!(look(2_000, 25).starved, 1);
        assert_eq!(look(2_399, 0).starved, 0);
        assert_eq!(look(2_400, 0).starved, 1);
        assert_eq!((look(2_400, 7).stolen_max, look(2_400, 7).late_max), (7, 20));
    }

    #[test]
    fn a_look_that_was_cut_short_says_nothing() {
        assert_eq!(look(1_999, 100), Looks::default());
        assert!(!Looks::default().excuse(), "nor does nothing");
    }

    #[test]
    fn one_look_in_twenty_excuses_a_failure_and_one_in_more_does_not() {
        assert!(!Looks::of(1, 0).excuse());
        assert!(Looks::of(1, 1).excuse());
        assert!(Looks::of(20, 1).excuse());
        assert!(!Looks::of(21, 1).excuse());
        assert!(Looks::of(40, 2).excuse());
        assert!(!Looks::of(41, 2).excuse());
    }

    #[test]
    fn the_figures_are_told() {
        let mut looks = look(2_500, 4);
        looks.add(LOOK, 31);
        looks.add(LOOK, 0);
        let told = "2 of 3 looks of 2 s were starved, at worst 31 % of the processor time stolen \
                    and 25 % of a look late";
        assert_eq!(looks.to_string(), told);
    }

    #[test]
    fn work_is_watched_to_its_end() {
        let (done, looks) = watched(|| {
            thread::sleep(LOOK + LOOK / 8);
            7
        });
        assert_eq!(done, 7);
        assert!(looks.all >= 1, "{looks}");
        assert!(looks.stolen_max <= 100, "{looks}");
    }

    #[test]
    fn nobody_goes_on_watching_work_that_panicked() {
        assert!(catch_unwind(|| watched(|| resume_unwind(Box::new(())))).is_err());
    }
}
