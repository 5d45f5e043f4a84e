//! Measures how evenly the machine works: the same small task again and again, by its processor's
//! clock.
//!
//! Time in which another program has the processor does not count. So a longer task has a cause
//! below: the host of a virtual machine that gives its processors to others, or a processor that
//! shares its units with another. Neither has to show as `steal` (proc(5)). The emulator hardly
//! notices it, because it has priority and mostly sleeps; the threads that carry packets do.

use super::times::Times;
use crate::emu::{MS, SECOND};
use anyhow::Context as _;
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use rustix::time::{ClockId, clock_gettime};
use std::os::fd::OwnedFd;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// The time between two samples: some thousandths of a processor.
const EVERY: Duration = Duration::from_nanos(10 * MS);
/// The task is to send and receive datagrams of this size, in bytes.
const BYTES: usize = 1_400;
/// See [`BYTES`].
const DATAGRAMS: usize = 16;

/// Samples the machine until it is stopped.
#[derive(Debug)]
pub struct Machine {
    asked: Sender<()>,
    thread: JoinHandle<Times>,
}

impl Machine {
    /// Begins to sample.
    ///
    /// # Errors
    /// There is no socket or thread.
    pub fn watch() -> anyhow::Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        let pair = net::socketpair(AddressFamily::UNIX, SocketType::DGRAM, flags, None)
            .context("no socket for a look at the machine")?;
        let (asked, is_asked) = mpsc::channel();
        let look = move || {
            let mut times = Times::default();
            while is_asked.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
                times.record(took_ns(|| work(&pair)));
            }
            times
        };
        let thread = thread::Builder::new().name("machine".to_owned()).spawn(look)?;
        Ok(Self { asked, thread })
    }

    /// Stops; returns the time of each sample.
    pub fn took(self) -> Times {
        drop(self.asked);
        self.thread.join().unwrap_or_default()
    }
}

/// Processor time of this thread for a task, in nanoseconds.
fn took_ns(work: impl FnOnce()) -> u64 {
    let now_ns = || {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        now.tv_sec as u64 * SECOND + now.tv_nsec as u64
    };
    let began_ns = now_ns();
    work();
    now_ns() - began_ns
}

fn work((here, there): &(OwnedFd, OwnedFd)) {
    let mut bytes = [0; BYTES];
    for _ in 0..DATAGRAMS {
        // Its arrival does not matter: the work does.
        let _ = net::send(here, &bytes, SendFlags::DONTWAIT);
        let _ = net::recv(there, &mut bytes[..], RecvFlags::DONTWAIT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn the_work_is_timed_again_and_again_until_somebody_asks() {
        let began = Instant::now();
        let machine = Machine::watch().unwrap();
        thread::sleep(10 * EVERY);
        let times = machine.took();
        // Who sleeps may be woken late, and so may the one who looks: never early.
        let most = began.elapsed().as_nanos() / EVERY.as_nanos();
        assert!((1..=most).contains(&times.count().into()), "{most}: {times:?}");
        assert!((1..SECOND).contains(&times.quantile_ns(0.5)), "{times:?}");
    }

    #[test]
    fn who_sleeps_takes_no_processor_time() {
        assert!(took_ns(|| thread::sleep(Duration::from_millis(50))) < 25 * MS);
    }
}
