//! How often a gateway tells a client that it refuses a destination (RFC 1812, section 4.3.2.8;
//! RFC 4443, section 2.4 f). Without an answer an application waits for a minute or two.

use crate::time::{Duration, Instant};

/// Answers in a row: those that a browser's many questions at once want.
const BURST: u32 = 16;
/// Time between two of them in the long run.
const EVERY: Duration = Duration::from_millis(50);

/// How often somebody was told.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    /// When nothing of the last ones would count any more: a bucket of tokens, told as the time at
    /// which it is full (ATM Forum TM 4.1, the virtual scheduling algorithm).
    full_at: Option<Instant>,
}

impl Refusals {
    /// Whether one more may be said now; it is.
    pub(super) fn take(&mut self, now: Instant) -> bool {
        let full_at = self.full_at.map_or(now, |at| at.max(now));
        let allowed = full_at <= now + EVERY * (BURST - 1);
        if allowed {
            self.full_at = Some(full_at + EVERY);
        }
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_at_once_and_then_so_many_a_second() {
        let mut refusals = Refusals::default();
        let start = Instant::from_nanos(7_000_000_000);
        let mut said = 0;
        for ms in 0..10_000 {
            said += u32::from(refusals.take(start + Duration::from_millis(ms)));
        }
        assert_eq!(said, BURST + 9_999 / 50);
        let later = start + Duration::from_secs(60);
        assert_eq!((0..100).filter(|_| refusals.take(later)).count(), BURST as usize);
    }
}
