//! Ctrl-C and its kin: they leave nothing behind.
//!
//! Children and namespaces vanish with the process anyway; this is for what would not, the
//! terminal session's scheduling weight and an empty directory.

use std::io;

/// The signals that end the lab.
const ENDING: &[libc::c_int] = &[libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

/// Blocks the signals that end the lab, for this thread and all that it starts.
pub(super) fn block() {
    let set = ending();
    // SAFETY: `set` is initialised and lives through the call, which changes only the mask of the
    // calling thread.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
}

/// Starts a thread that waits for one of them, cleans up, and ends the process with the status
/// that a shell expects.
pub(super) fn clean_up_on_signal(clean_up: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        let set = ending();
        let mut signal = 0;
        // SAFETY: both pointers are to initialised values that live through the call.
        let failed = unsafe { libc::sigwait(&raw const set, &raw mut signal) };
        if failed == 0 {
            clean_up();
            std::process::exit(128 + signal);
        }
    })?;
    Ok(())
}

/// Lets a child have what the lab has blocked. To be called between fork and exec.
pub(super) fn unblock_all() {
    // SAFETY: `sigset_t` is plain memory that `sigemptyset` initialises; both calls touch only the
    // set and the calling thread's mask, and are async-signal-safe (signal-safety(7)).
    unsafe {
        let mut none = std::mem::zeroed::<libc::sigset_t>();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
    }
}

fn ending() -> libc::sigset_t {
    // SAFETY: `sigset_t` is plain memory that `sigemptyset` initialises; the calls touch only it.
    unsafe {
        let mut set = std::mem::zeroed::<libc::sigset_t>();
        libc::sigemptyset(&raw mut set);
        for signal in ENDING {
            libc::sigaddset(&raw mut set, *signal);
        }
        set
    }
}
