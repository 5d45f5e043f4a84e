//! How long the NAT in front of a client remembers a mapping, and the keepalives that follow from
//! that.
//!
//! The interval is learned, not fixed (RFC 5780, 4.6, with a session's own means). By a path of its
//! own, a new socket with a new mapping, the client asks the gateway to answer after a while. If
//! the answer arrives, a mapping outlives that while. The path in use is not put at risk. What kind
//! of NAT it is, and how it maps, is not asked.
//!
//! Decides what is asked, and what an answer or its absence means. Sends nothing: `keepalive` does.

use std::net::{IpAddr, SocketAddr};

use crate::crypto;
use crate::id::LinkId;
use crate::path::{Path, PathId};
use crate::time::{Duration, Instant};
use crate::wire::frame::Echo;
use crate::wire::keepalive::KeepaliveProof;

/// Keepalives in a row, with nothing between them, after which the session is idle enough to learn.
const IDLE: u32 = 2;
/// The longest interval that is tried: what is saved beyond it is not worth a thought.
pub(crate) const INTERVAL_MAX: Duration = Duration::from_secs(300);
/// The interval is this many hundredths of what a mapping is known to outlive.
const MARGIN: u32 = 95;
/// Learning ends when what is outlived and what is not are closer than this many hundredths. At 120
/// a NAT that forgets after 120 s would be sent 5 % more every day, which costs as much as ten
/// questions; at 105 two more questions would save 2 %.
const CLOSE: u32 = 110;
/// How long an answer may be late.
pub(crate) const GRACE: Duration = Duration::from_secs(3);
/// Answers that stay away before the first interval counts as too long: one may be lost. Between
/// that and what is outlived it costs less to be wrong than to ask twice.
const TRIES: u8 = 2;

/// What is known of the NAT in front of one address.
#[derive(Debug, Default)]
pub(crate) struct NatTimeout {
    of: Option<(LinkId, IpAddr)>,
    /// A mapping outlives this.
    outlives: Option<Duration>,
    /// And not this.
    forgets: Option<Duration>,
    test: Option<Test>,
    /// The mapping, as the gateway saw it last.
    observed: Option<SocketAddr>,
    /// The number of the next keepalive.
    next: u16,
    /// Keepalives since anything else was sent.
    in_a_row: u32,
    /// The keepalive whose answer is awaited.
    open: Option<Open>,
}

/// A keepalive that was sent and not yet answered.
#[derive(Clone, Copy, Debug)]
struct Open {
    path: PathId,
    answer: KeepaliveProof,
    /// When it counts as lost.
    late: Instant,
}

/// One question: does a mapping outlive `length`?
#[derive(Clone, Copy, Debug)]
struct Test {
    path: PathId,
    length: Duration,
    tries: u8,
    /// The token of the answer that is awaited; `None` until the path is proven.
    token: Option<u64>,
    /// When what is awaited counts as lost.
    late: Instant,
}

/// What follows a question that was answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    /// The next question goes by the same path, whose mapping lives.
    Ask(PathId),
    /// Enough is known, and the path is of no more use.
    End(PathId),
}

/// A question that stayed without an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Unanswered {
    /// The path, which is of no more use.
    pub(crate) path: PathId,
    /// The length that is asked about once more, by another path, and how often it was.
    pub(crate) again: Option<(Duration, u8)>,
}

impl NatTimeout {
    /// Whether the path exists only to find out when a NAT forgets.
    pub(crate) fn is_test(&self, id: PathId) -> bool {
        self.test.is_some_and(|test| test.path == id)
    }

    /// How long nothing need be sent.
    pub(super) fn interval(&self, least: Duration) -> Duration {
        self.outlives.map_or(least, |outlives| (outlives * MARGIN / 100).max(least))
    }

    /// When an answer stays away for too long: to a keepalive, or to a question.
    pub(crate) fn answer_due(&self) -> Option<Instant> {
        let (open, test) = (self.open.map(|open| open.late), self.test.map(|test| test.late));
        open.into_iter().chain(test).min()
    }

    /// Something else was sent: the session is not idle.
    pub(super) const fn not_idle(&mut self) {
        self.in_a_row = 0;
    }

    /// A keepalive is due from the network `of`. Of another network nothing is known: returns the
    /// path of a question about the one before.
    pub(crate) fn begin(&mut self, of: Option<(LinkId, IpAddr)>) -> Option<PathId> {
        let mut left = None;
        if self.of != of {
            left = self.test.take().map(|test| test.path);
            *self = Self { of, next: self.next, ..Self::default() };
        }
        self.in_a_row += 1;
        left
    }

    /// The number of the keepalive that leaves now.
    pub(crate) const fn take_number(&mut self) -> u16 {
        let number = self.next;
        self.next = number.wrapping_add(1);
        number
    }

    /// It left by this path: `answer` is awaited, until `late`.
    pub(crate) const fn await_answer(
        &mut self,
        path: PathId,
        answer: KeepaliveProof,
        late: Instant,
    ) {
        self.open = Some(Open { path, answer, late });
    }

    /// The path of a keepalive that was not answered in time.
    pub(crate) fn take_missed(&mut self, now: Instant) -> Option<PathId> {
        self.open.take_if(|open| open.late <= now).map(|open| open.path)
    }

    /// Whether this proof, which came by a path, answers the keepalive. It does so once.
    pub(crate) fn is_answered(&mut self, path: PathId, proof: &KeepaliveProof) -> bool {
        let answers = |open: &mut Open| open.path == path && crypto::same(&open.answer.0, &proof.0);
        self.open.take_if(answers).is_some()
    }

    /// The length to ask about, if the session is idle and nothing is asked; `least` is the
    /// interval at first.
    pub(crate) fn wants_test(&self, least: Duration) -> Option<Duration> {
        let is_free = self.test.is_none() && self.in_a_row >= IDLE;
        self.next_length(least).filter(|_| is_free)
    }

    /// This path was opened to ask about `length`, and challenged.
    pub(crate) fn begin_test(&mut self, now: Instant, path: PathId, length: Duration, tries: u8) {
        self.test = Some(Test { path, length, tries, token: None, late: now + GRACE });
    }

    /// A path is proven. If it is the one to ask by, the question follows, with this token.
    pub(crate) fn question(&mut self, now: Instant, path: PathId, token: u64) -> Option<Echo> {
        let is_ready = |test: &&mut Test| test.path == path && test.token.is_none();
        let test = self.test.as_mut().filter(is_ready)?;
        (test.token, test.late) = (Some(token), now + test.length + GRACE);
        Some(Echo { delay: test.length, token })
    }

    /// An answer came by a path by which something was sent last at `sent_at`. Returns what
    /// follows, if it is the one that was asked for; `least` is `None` if nothing more is asked.
    pub(crate) fn take_answer(
        &mut self,
        (path, token): (PathId, u64),
        sent_at: Option<Instant>,
        least: Option<Duration>,
    ) -> Option<Next> {
        let is_asked = |test: &mut Test| test.path == path && test.token == Some(token);
        let test = self.test.take_if(is_asked)?;
        // Whatever else was sent since kept the mapping alive: then the question is open, and
        // asked again once.
        let asked_at = test.late - GRACE - test.length;
        let is_clean = sent_at.is_none_or(|sent| sent <= asked_at);
        let tries = if is_clean { 0 } else { test.tries + 1 };
        if is_clean {
            self.outlives = Some(test.length);
        }
        let least = least.filter(|_| tries < TRIES);
        if let Some(length) = least.and_then(|least| self.next_length(least)) {
            self.test = Some(Test { length, tries, token: None, ..test });
            return Some(Next::Ask(path));
        }
        if tries >= TRIES {
            self.forgets = Some(test.length);
        }
        Some(Next::End(path))
    }

    /// A question stayed without an answer for too long: once more, then the length counts as too
    /// much. `is_still` says whether the NAT is still the one that is asked about.
    pub(crate) fn take_unanswered(&mut self, now: Instant, is_still: bool) -> Option<Unanswered> {
        let test = self.test.take_if(|test| test.late <= now)?;
        let tries = test.tries + 1;
        let is_again = is_still && tries < TRIES && self.forgets.is_none();
        if is_still && !is_again {
            // Who cannot even open a path learns nothing here.
            let is_proven = test.token.is_some();
            self.forgets = Some(if is_proven { test.length } else { Duration::ZERO });
        }
        Some(Unanswered { path: test.path, again: is_again.then_some((test.length, tries)) })
    }

    /// Whether this path leads through the NAT that is asked about, and is not the one to ask by.
    pub(super) fn is_of(&self, path: &Path) -> bool {
        path.is_natted() && self.of == path.link.zip(path.route.local) && !self.is_test(path.id)
    }

    /// The gateway saw this mapping of the path in use. One that changed while nobody spoke was
    /// forgotten.
    pub(crate) fn observe(&mut self, observed: SocketAddr) {
        let has_changed = self.observed.replace(observed).is_some_and(|before| before != observed);
        if has_changed && self.in_a_row > 0 {
            self.forgets = self.outlives.take();
        }
    }

    /// The next length to ask about; `None` when enough is known.
    fn next_length(&self, least: Duration) -> Option<Duration> {
        let outlives = self.outlives.unwrap_or(least);
        let length = match self.forgets {
            Some(forgets) if forgets * 100 <= outlives * CLOSE => return None,
            Some(forgets) => (outlives + forgets) / 2,
            None => outlives * 2,
        };
        (outlives < INTERVAL_MAX).then(|| length.min(INTERVAL_MAX))
    }
}

#[cfg(test)]
#[path = "nat_tests.rs"]
mod tests;
