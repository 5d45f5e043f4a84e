//! The clock of the whole node: nanoseconds that never go back and count suspended time.
//!
//! It decides which kernel clock is read and nothing else. CLOCK_BOOTTIME counts the hours in
//! which a laptop slept, so timers of the protocol see them; CLOCK_MONOTONIC, which does not,
//! is the fallback where a sandbox refuses the first. Neither is a time of day: a wall clock
//! wrong by years changes nothing here.

const NS_PER_S: u64 = 1_000_000_000;

/// A kernel clock, chosen once at start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    id: libc::clockid_t,
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock {
    /// CLOCK_BOOTTIME, or CLOCK_MONOTONIC where that is refused (clock_gettime(2)).
    pub fn new() -> Self {
        match read(libc::CLOCK_BOOTTIME) {
            Some(_) => Self { id: libc::CLOCK_BOOTTIME },
            None => Self { id: libc::CLOCK_MONOTONIC },
        }
    }

    /// Nanoseconds since boot. Never smaller than an earlier reading of the same clock.
    pub fn now(self) -> u64 {
        // CLOCK_MONOTONIC cannot fail (POSIX), and CLOCK_BOOTTIME did not when it was chosen.
        read(self.id).unwrap_or(0)
    }

    /// Whether time spent suspended is counted.
    pub fn counts_sleep(self) -> bool {
        self.id == libc::CLOCK_BOOTTIME
    }
}

pub(crate) fn read(id: libc::clockid_t) -> Option<u64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec for the duration of the call.
    let result = unsafe { libc::clock_gettime(id, &raw mut time) };
    if result != 0 {
        return None;
    }
    let seconds = u64::try_from(time.tv_sec).ok()?;
    let nanoseconds = u64::try_from(time.tv_nsec).ok()?;
    Some(seconds * NS_PER_S + nanoseconds)
}

#[cfg(test)]
mod tests {
    use super::Clock;

    #[test]
    fn time_passes_and_never_goes_back() {
        let clock = Clock::new();
        let start = clock.now();
        std::thread::sleep(std::time::Duration::from_millis(2));
        let mut last = clock.now();
        assert!(last >= start + 2_000_000);
        for _ in 0..1_000 {
            let now = clock.now();
            assert!(now >= last);
            last = now;
        }
    }

    #[test]
    fn this_kernel_counts_sleep() {
        assert!(Clock::new().counts_sleep());
    }
}
