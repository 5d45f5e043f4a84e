//! A gateway that lost its sessions and the clients that hear of it
//! (docs/spec/wire.md#7-restart-notice).
//!
//! A notice changes no session: it only begins a handshake, beside a session that goes on under its
//! old keys until the new ones are used.

use super::{Context, Side, Tunnel};
use crate::error::DropReason;
use crate::id::PathSerial;
use crate::outbox::Route;
use crate::session::restart::Proof;
use crate::time::Duration;
use crate::wire::control::Control;
use crate::wire::restart::RestartNotice;

/// How long an attempt may stay unanswered before another notice begins the next, where no round
/// trip was measured. Usually it is one: what left later arrives after the notice was sent.
const PATIENCE: Duration = Duration::from_millis(50);
/// The least: a gateway that has many to answer is not asked twice by all of them,
const PATIENCE_MIN: Duration = Duration::from_millis(20);
/// and the most.
const PATIENCE_MAX: Duration = Duration::from_millis(250);

/// How often that is doubled while there is no answer.
const HEEDED_MAX: u32 = 5;

impl Tunnel {
    /// Gateway: hands out what will prove a restart, for the indices that it issued last.
    pub(crate) fn hand_out_restart_tokens(&mut self, cx: &Context<'_>, first: PathSerial) {
        let Some(epoch) = self.epochs.current.as_ref().filter(|_| self.paths.at_gateway()) else {
            return;
        };
        let issued = epoch.issued_from(first);
        let tokens = issued.into_iter().map(|index| cx.restart_key.token(index)).collect();
        self.control.push(cx.now, &Control::RestartTokens { first, tokens });
    }

    /// Client: a notice came by `route`.
    ///
    /// # Errors
    /// [`DropReason::BadHandshake`] when it proves nothing that this session waits for.
    pub(crate) fn receive_restart(
        &mut self,
        cx: &mut Context<'_>,
        route: Route,
        notice: RestartNotice,
    ) -> Result<(), DropReason> {
        let Side::Client(connector) = &mut self.paths.side else {
            return Err(DropReason::BadHandshake);
        };
        let current = self.epochs.current.as_ref().zip(self.paths.list.by_route(&route));
        let current = current.and_then(|(epoch, path)| Proof::of(epoch, path));
        let same = |at: &Route| (at.socket, at.remote) == (route.socket, route.remote);
        let lost = connector.handshakes.lost.filter(|lost| same(&lost.route));
        let mut proofs = current.into_iter().chain(lost);
        let proof = proofs.find(|proof| proof.is(&notice)).ok_or(DropReason::BadHandshake)?;
        let patience = proof.rtt.unwrap_or(PATIENCE).clamp(PATIENCE_MIN, PATIENCE_MAX);
        // One by a stream may still wait for the stream.
        let asked = connector.handshakes.last_attempt(&route).map(|at| at + patience);
        // Who waits eagerly is told often: an answer that takes longer must not be missed.
        let times = connector.handshakes.heeded.map_or(0, |(_, times)| times);
        let heeded =
            connector.handshakes.heeded.map(|(at, _)| at + patience * (1 << times.min(HEEDED_MAX)));
        if asked.max(heeded).is_none_or(|due| due <= cx.now) {
            connector.handshakes.heeded = Some((cx.now, times + 1));
            self.reconnect(cx);
        }
        Ok(())
    }
}
