//! Panics of a dependency that are expected, caught and told as an error: without their noise.
//!
//! redb asserts what it believes about its pages, so a damaged file can panic inside it. The store
//! catches that; this module keeps the panic's message off the terminal while it does.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Makes the panics that the store catches silent. Call once, before any thread is started.
pub fn install() {
    let loud = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if !QUIET.get() {
            loud(info);
        }
    }));
}

/// Runs `work`; none if it panicked.
pub(crate) fn catching<T>(work: impl FnOnce() -> T) -> Option<T> {
    QUIET.set(true);
    // What a panicking `work` leaves behind is dropped by the caller and never looked at.
    let outcome = panic::catch_unwind(AssertUnwindSafe(work));
    QUIET.set(false);
    outcome.ok()
}
