//! A session that nobody has spoken by for as long as one is kept (`persistence.timeout`).
//!
//! Both ends forget its keys, without a word: a client that can be reached at its own address rests
//! until there is something to send, or until the gateway calls. A gateway calls with the notice
//! that it would send had it lost the session (`restart`), because it has. A client that only a
//! stream or a NAT's memory leads to asks before that whether the gateway is still there: nobody
//! could call it.

use super::{Context, PeerState, Side, Tunnel};
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

impl Tunnel {
    pub(crate) fn end_of_silence(
        &self,
        persistence: Duration,
        any_waits: bool,
    ) -> Option<(Instant, Outcome)> {
        self.established?;
        let (hundredths, outcome) = match (&self.paths.side, self.paths.list.active()) {
            (Side::Client(connector), Some(path))
                if is_quiet(path) && !connector.handshakes.is_trying() && !any_waits =>
            {
                if can_be_called(path) {
                    (RESTED_AT, Outcome::Rest)
                } else {
                    (RENEWED_AT, Outcome::Renewal)
                }
            }
            _ => (100, Outcome::End),
        };
        Some((self.heard_at + persistence * hundredths / 100, outcome))
    }

    /// Client: whether it still rests, with no keys and nothing under way.
    pub(crate) fn rests(&self) -> bool {
        let Side::Client(connector) = &self.paths.side else { return false };
        self.state == PeerState::Resting && !connector.handshakes.is_trying()
    }

    /// There is something to send: a client that rests asks for a session, a gateway calls a client
    /// that may rest.
    pub(crate) fn wake(&mut self, cx: &mut Context<'_>) {
        if self.state == PeerState::Resting {
            self.connect(cx);
        } else if self.paths.at_gateway() && self.epochs.current.is_none() {
            self.reach.call(cx);
        }
    }

    /// Client: whether the gateway may have forgotten the session, which rests then.
    pub(crate) fn is_outlived(&self, now: Instant, persistence: Duration, any_waits: bool) -> bool {
        let kept = persistence * RENEWED_AT / 100;
        let is_over = self.heard_at + kept <= now;
        is_over && matches!(self.end_of_silence(persistence, any_waits), Some((_, Outcome::Rest)))
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
