//! Whether segmented sends of a path lose more than the same datagrams sent one by one, and how
//! runs are sent then.
//!
//! Some kernels, network cards and virtual hosts mangle sends with UDP segmentation offload. The
//! datagrams that arrive look like those of a bad link, so loss alone proves nothing. When a path
//! loses much, a comparison begins: a coin decides for each run whether it is sent segmented or
//! one call a datagram, both at the same time and back to back. `recovery::segmented` judges the
//! two. If segmented runs lose more, runs get a shorter last segment; if those lose more too, no
//! run is segmented any more. After a long time segmented sends are tried again.
//!
//! It knows no interface: `tunnel` passes the verdict on to other paths of the same link.
//!
//! Limits: losses below [`SUSPECT_PART`] are not looked into. A mangled send that loses nothing is
//! not noticed. A queue on the sending host that drops a segmented send as one packet counts as
//! mangling, because single sends lose less there.

use crate::outbox::Sending;
use crate::recovery::segmented::{Evidence, Tag};
use crate::time::{Duration, Instant};

/// A comparison begins when so many bytes were lost, which are three large datagrams,
const SUSPECT_BYTES: u64 = 4_000;
/// and of so many bytes at least one. A healthy path is hardly ever compared then, and a flow does
/// not suffer much from less.
const SUSPECT_PART: u64 = 64;
/// Loss is counted over so many bytes.
const WINDOW_BYTES: u64 = 256 * 1_024;
/// Runs of one comparison. Half as many do not find that each 16th run is lost; with twice as many,
/// a lossy path pays the single sends of a comparison for longer.
const RUNS_MAX: u32 = 2_048;
/// After so many, a comparison ends as soon as it is not on course: the logarithm of its evidence
/// has to keep up with the number of runs. Single sends cost a fast path half of its rate, and most
/// of what makes a path suspect is the end of a slow start.
const COURSE_RUNS: u32 = 256;
/// How often chance may make a comparison say that segmented sends lose more: once in so many.
/// About 20 lost runs reach it if single sends lose nothing.
const CHANCE: f64 = 1e5;
/// A comparison that found nothing is repeated after this time at the earliest, while the path
/// loses much. The time doubles up to the second value.
const PAUSE: (Duration, Duration) = (Duration::from_secs(8), Duration::from_secs(128));
/// Segmented sends that lost more are tried again after this time, and the time doubles up to the
/// second value. A driver is seldom replaced while an interface is up.
const RETRY: (Duration, Duration) = (Duration::from_secs(600), Duration::from_secs(3 * 3_600));
/// Such a trial has fewer runs, and ends with less evidence: it only confirms what is known.
const RETRY_RUNS_MAX: u32 = 256;
const RETRY_CHANCE: f64 = 1e3;

/// How runs of a path are sent, and what is known of it.
#[derive(Clone, Debug)]
pub(crate) struct Offload {
    sending: Sending,
    /// Since when runs are not simply segmented.
    since: Option<Instant>,
    comparison: Option<Comparison>,
    /// Bytes lost and bytes that arrived or were lost, in the present window.
    window: (u64, u64),
    /// No comparison begins before, because of loss,
    paused_until: Instant,
    pause: Duration,
    /// and none to end a fallback.
    retry_at: Instant,
    retry_after: Duration,
    /// Comparisons so far.
    comparisons: u64,
}

/// Runs of one kind beside runs sent one call a datagram.
#[derive(Clone, Debug)]
struct Comparison {
    /// The kind.
    tries: Sending,
    evidence: Evidence,
    /// Makes the coins.
    seed: u64,
    /// Runs that began.
    runs: u64,
    is_second: bool,
    /// The present run's,
    tag: Tag,
    /// and how the next one is sent.
    next: Sending,
}

impl Default for Offload {
    fn default() -> Self {
        Self {
            sending: Sending::Segmented,
            since: None,
            comparison: None,
            window: (0, 0),
            paused_until: Instant::ZERO,
            pause: PAUSE.0,
            retry_at: Instant::ZERO,
            retry_after: RETRY.0,
            comparisons: 0,
        }
    }
}

impl Offload {
    /// How the next datagram is sent if it begins a run. While segmented sends are suspect, what
    /// was lost is not risked in one again: flows within the tunnel would back off from losses
    /// that come back. A repair is then no part of the comparison.
    pub(crate) const fn next(&self, is_repair: bool) -> Sending {
        match &self.comparison {
            Some(_) if is_repair => Sending::Alone,
            Some(comparison) => comparison.next,
            None => self.sending,
        }
    }

    /// A datagram was added to a run, which it began or continues. Returns the mark of the run.
    pub(crate) const fn added(&mut self, sending: Sending, begins: bool) -> Option<Tag> {
        let Some(comparison) = &mut self.comparison else { return None };
        if matches!(sending, Sending::Alone) {
            return None;
        }
        if begins {
            comparison.begin_run();
        }
        Some(comparison.tag)
    }

    /// How runs are sent outside of comparisons, and since when, unless they are simply segmented.
    pub(crate) fn fallback(&self) -> Option<(Sending, Instant)> {
        self.since.map(|since| (self.sending, since))
    }

    /// Takes what feedback tells: bytes that arrived and that were lost, and what runs say. Returns
    /// whether runs are sent in another way from now on.
    pub(crate) fn told(
        &mut self,
        now: Instant,
        (delivered, lost): (u64, u64),
        evidence: Option<Evidence>,
    ) -> bool {
        if self.window.1 >= WINDOW_BYTES {
            self.window = (0, 0);
        }
        self.window.0 += lost;
        self.window.1 += delivered + lost;
        if let Some(comparison) = &mut self.comparison {
            let same = evidence.filter(|it| it.is_second == comparison.is_second);
            let Some(evidence) = same else { return false };
            comparison.evidence.add(&evidence);
            return self.judge(now);
        }
        if self.since.is_some() && now >= self.retry_at {
            self.compare(now, Sending::Segmented);
        } else if self.sending != Sending::Single && self.is_suspect() && now >= self.paused_until {
            self.compare(now, self.sending);
        }
        false
    }

    /// Another path of the same interface has fallen back. The comparisons stay this path's own:
    /// their numbers tell what is on its way from what a later one sends.
    pub(crate) fn adopt(&mut self, other: &Self) {
        if other.since.is_some() && rank(other.sending) > rank(self.sending) {
            let comparisons = self.comparisons;
            *self = Self { comparison: None, window: (0, 0), comparisons, ..other.clone() };
        }
    }

    const fn is_suspect(&self) -> bool {
        let (lost, all) = self.window;
        lost >= SUSPECT_BYTES && lost * SUSPECT_PART >= all
    }

    fn compare(&mut self, now: Instant, tries: Sending) {
        self.comparisons += 1;
        let mut comparison = Comparison {
            tries,
            evidence: Evidence::default(),
            seed: now.as_nanos(),
            runs: 0,
            is_second: self.comparisons.is_multiple_of(2),
            tag: Tag::NONE,
            next: Sending::Single,
        };
        comparison.toss();
        self.comparison = Some(comparison);
    }

    /// Ends the comparison if it has come to a result. Returns whether runs are sent in another way
    /// from now on.
    fn judge(&mut self, now: Instant) -> bool {
        let Some(comparison) = &self.comparison else { return false };
        let tries = comparison.tries;
        let is_retry = tries != self.sending;
        let (runs_max, chance) =
            if is_retry { (RETRY_RUNS_MAX, RETRY_CHANCE) } else { (RUNS_MAX, CHANCE) };
        let (runs, capital) = (comparison.evidence.runs, comparison.evidence.capital());
        let loses_more = capital >= chance;
        let course = chance.powf(f64::from(runs) / f64::from(runs_max));
        let goes_on = runs < COURSE_RUNS || runs < runs_max && capital >= course;
        if !loses_more && goes_on {
            return false;
        }
        (self.comparison, self.window) = (None, (0, 0));
        match (loses_more, is_retry) {
            (false, false) => {
                self.paused_until = now + self.pause;
                self.pause = (self.pause * 2).min(PAUSE.1);
            }
            (false, true) => (self.sending, self.since) = (Sending::Segmented, None),
            (true, true) => self.retry_later(now),
            (true, false) => {
                self.fall_back(now);
                return true;
            }
        }
        !loses_more && is_retry
    }

    fn fall_back(&mut self, now: Instant) {
        if self.since.is_none() {
            self.since = Some(now);
            self.retry_later(now);
        }
        match self.sending {
            Sending::Segmented => {
                self.sending = Sending::ShortLast;
                self.compare(now, Sending::ShortLast);
            }
            Sending::ShortLast | Sending::Single | Sending::Alone => {
                self.sending = Sending::Single;
            }
        }
    }

    fn retry_later(&mut self, now: Instant) {
        self.retry_at = now + self.retry_after;
        self.retry_after = (self.retry_after * 2).min(RETRY.1);
    }
}

impl Comparison {
    const fn begin_run(&mut self) {
        #[expect(clippy::cast_possible_truncation, reason = "tags tell a few runs apart")]
        let number = self.runs as u8;
        let is_segmented = !matches!(self.next, Sending::Single);
        self.tag = Tag::new(number, self.is_second, is_segmented);
        self.runs += 1;
        self.toss();
    }

    /// Decides how the next run is sent. Nobody on the way can know it beforehand: the seed is a
    /// time in nanoseconds.
    const fn toss(&mut self) {
        let coin = mixed(self.seed.wrapping_add(self.runs.wrapping_mul(GOLDEN)));
        self.next = if coin & 1 == 0 { self.tries } else { Sending::Single };
    }
}

/// The increment and the mixing of `SplitMix64` (Steele, Lea and Flood 2014): coins, no secrets.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
const fn mixed(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// How far a way to send is from a plain segmented one.
const fn rank(sending: Sending) -> u8 {
    match sending {
        Sending::Segmented => 0,
        Sending::ShortLast => 1,
        Sending::Single | Sending::Alone => 2,
    }
}

#[cfg(test)]
#[path = "offload_tests.rs"]
mod tests;
