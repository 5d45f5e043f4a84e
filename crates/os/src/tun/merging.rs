//! Whether packets are joined into super-packets for the kernel.
//!
//! Some kernels agree to offloads and then refuse what uses them. Joining ends when the kernel has
//! refused several super-packets in a row with `EINVAL`, and is tried again after a long time.
//! A single refusal is not enough: one odd flow of a peer must not slow all others down.
//!
//! Limit: a kernel that takes a super-packet and then gives its segments wrong checksums is not
//! noticed. Linux trusts the checksums of what comes from a TUN, so no counter of this host shows
//! it.

use std::time::{Duration, Instant};

/// Super-packets refused one after the other that end joining. Each costs a system call in vain.
const REFUSED_MAX: u32 = 4;
/// Joining is tried again after this time, which doubles up to the second value. A kernel does not
/// change while it runs, but the flow that it refused ends.
const RETRY: (Duration, Duration) = (Duration::from_secs(600), Duration::from_secs(3 * 3_600));

/// Whether packets are joined.
#[derive(Debug)]
pub(super) struct Merging {
    /// The kernel agreed to super-packets.
    agreed: bool,
    refused: u32,
    /// Since when packets are not joined although the kernel agreed.
    off_since: Option<Instant>,
    retry_at: Option<Instant>,
    retry_after: Duration,
}

impl Merging {
    pub(super) const fn new(agreed: bool) -> Self {
        let (refused, off_since, retry_at) = (0, None, None);
        Self { agreed, refused, off_since, retry_at, retry_after: RETRY.0 }
    }

    /// Whether packets are to be joined. The time is asked for only while they are not.
    pub(super) fn is_on(&mut self, now: impl FnOnce() -> Instant) -> bool {
        if self.retry_at.is_some_and(|at| at <= now()) {
            // Refused once more, it ends again at once.
            (self.retry_at, self.refused) = (None, REFUSED_MAX - 1);
        }
        self.agreed && self.retry_at.is_none()
    }

    /// The kernel took a super-packet.
    pub(super) const fn taken(&mut self) {
        (self.refused, self.off_since) = (0, None);
    }

    /// The kernel refused a super-packet.
    pub(super) fn refused(&mut self, now: Instant) {
        self.refused += 1;
        if self.refused >= REFUSED_MAX && self.retry_at.is_none() {
            self.off_since.get_or_insert(now);
            self.retry_at = Some(now + self.retry_after);
            self.retry_after = (self.retry_after * 2).min(RETRY.1);
        }
    }

    /// For how long packets have not been joined although the kernel agreed to it.
    pub(super) fn off_for(&self) -> Option<Duration> {
        self.off_since.map(|since| since.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refuse(merging: &mut Merging, now: Instant, times: u32) -> bool {
        (0..times).for_each(|_| merging.refused(now));
        merging.is_on(|| now)
    }

    #[test]
    fn several_refusals_in_a_row_end_it_and_one_that_is_taken_ends_the_row() {
        let (mut merging, now) = (Merging::new(true), Instant::now());
        assert!(refuse(&mut merging, now, REFUSED_MAX - 1));
        merging.taken();
        assert!(refuse(&mut merging, now, REFUSED_MAX - 1));
        assert_eq!(merging.off_for(), None);
        assert!(!refuse(&mut merging, now, 1));
        assert!(merging.off_for().is_some());
    }

    #[test]
    fn it_is_tried_again_later_and_later() {
        let (mut merging, mut now) = (Merging::new(true), Instant::now());
        assert!(!refuse(&mut merging, now, REFUSED_MAX));
        for wait in [RETRY.0, 2 * RETRY.0, 4 * RETRY.0] {
            assert!(!merging.is_on(|| now + wait - Duration::from_secs(1)));
            now += wait;
            assert!(merging.is_on(|| now));
            assert!(merging.off_for().is_some(), "nothing shows yet that it works");
            assert!(!refuse(&mut merging, now, 1), "once is enough now");
        }
        now += RETRY.1;
        assert!(merging.is_on(|| now));
        merging.taken();
        assert_eq!(merging.off_for(), None);
    }

    #[test]
    fn without_the_kernels_agreement_it_never_begins() {
        let mut merging = Merging::new(false);
        assert!(!merging.is_on(Instant::now));
        assert_eq!(merging.off_for(), None);
    }
}
