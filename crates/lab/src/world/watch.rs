//! Who looks on: a line for everything that happens, for people who hunt a fault.

use std::fmt;

/// Takes a line.
pub type Teller = Box<dyn FnMut(&str)>;

/// Somebody, or nobody.
#[derive(Default)]
pub(super) struct Watch(Option<Teller>);

impl Watch {
    /// Somebody who wants to hear everything.
    pub(super) fn new(teller: Teller) -> Self {
        Self(Some(teller))
    }

    /// Says what happened at `at_ns`; the line is made only when somebody listens.
    pub(super) fn tell(&mut self, at_ns: u64, line: impl FnOnce() -> String) {
        if let Some(teller) = &mut self.0 {
            let (seconds, micros) = (at_ns / 1_000_000_000, at_ns / 1_000 % 1_000_000);
            teller(&format!("{seconds:>7}.{micros:06} {}", line()));
        }
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Watch").field(&self.0.is_some()).finish()
    }
}
