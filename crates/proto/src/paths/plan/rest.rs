//! A session that nobody has spoken by for as long as one is kept (`persistence.timeout`).
//!
//! Both ends forget its keys, without a word: a client that can be reached at its own address rests
//! until there is something to send, or until the gateway calls. A gateway calls with the notice
//! that it would send had it lost the session (`reach`), because it has. A client that only a
//! stream or a NAT's memory leads to asks before that whether the gateway is still there: nobody
//! could call it.

use super::PathPlan;
use crate::id::Transport;
use crate::path::Path;
use crate::time::{Duration, Instant};

/// Hundredths of the time for which a session is kept, after which the other end may have given it
/// up: a client renews a session that must not rest, and sends nothing more by another.
const RENEWED_AT: u32 = 95;
/// The same after which a client rests: when the gateway does already, so that each of them knows
/// what the other one says.
const RESTED_AT: u32 = 105;
/// A machine that woke this much later than it should have slept, and may have missed a call.
pub(crate) const SLEPT: Duration = Duration::from_secs(30);
/// How the silence of a session ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// The keys are forgotten until somebody has something to say.
    Rest,
    /// The client asks whether the gateway is still there.
    Renewal,
    /// It is given up.
    End,
}

impl PathPlan<'_> {
    /// How the silence of a session ends that was heard of last at `heard_at`, and when.
    pub(crate) fn end_of_silence(
        &self,
        heard_at: Instant,
        persistence: Duration,
        any_waits: bool,
    ) -> (Instant, Outcome) {
        let is_idle = |path: &&Path| {
            let is_trying = self.connector.is_none_or(|it| it.handshakes.is_trying());
            is_quiet(path) && !is_trying && !any_waits
        };
        let (hundredths, outcome) = match self.paths.active().filter(is_idle) {
            Some(path) if can_be_called(path) => (RESTED_AT, Outcome::Rest),
            Some(_) => (RENEWED_AT, Outcome::Renewal),
            None => (100, Outcome::End),
        };
        (heard_at + persistence * hundredths / 100, outcome)
    }

    /// Client: whether the gateway may have forgotten the session, which rests then.
    pub(crate) fn is_outlived(
        &self,
        now: Instant,
        heard_at: Instant,
        persistence: Duration,
        any_waits: bool,
    ) -> bool {
        heard_at + persistence * RENEWED_AT / 100 <= now
            && self.end_of_silence(heard_at, persistence, any_waits).1 == Outcome::Rest
    }
}

/// Whether a client on `path` is reached by a word of the gateway's, however long it was silent.
fn can_be_called(path: &Path) -> bool {
    path.transport() == Transport::Udp && !path.is_natted()
}

/// Whether nothing is known against `path`, and nothing asked of it.
fn is_quiet(path: &Path) -> bool {
    path.is_able() && path.probes.asking_since().is_none()
}
