//! A gateway that lost its sessions and the clients that hear of it (docs/spec/wire.md, section 7).
//!
//! A notice changes no session: it only begins a handshake, beside a session that goes on under its
//! old keys until the new ones are used.

use super::{Context, Event, Peer, Side};
use crate::error::DropReason;
use crate::id::{PathSerial, SessionIndex};
use crate::outbox::Route;
use crate::time::Duration;
use crate::wire::control::Control;
use crate::wire::restart::RestartNotice;

/// An attempt that left within a round trip may still be answered: another notice begins no other.
/// Where the round trip is not known any more, after a goodbye, it counts as this long,
const PATIENCE_MIN: Duration = Duration::from_millis(50);
/// and never as longer than this.
const PATIENCE_MAX: Duration = Duration::from_millis(250);

impl Peer {
    /// Gateway: hands out what will prove a restart, for the indices that it issued last.
    pub(super) fn hand_out_restart_tokens(&mut self, cx: &Context<'_>, first: PathSerial) {
        let Some(epoch) = self.epochs.current.as_ref().filter(|_| self.is_client()) else { return };
        let issued = epoch.issued_from(first);
        let tokens = issued.into_iter().map(|index| cx.restart_key.token(index)).collect();
        self.control.push(cx.now, &Control::RestartTokens { first, tokens });
    }

    /// Gateway: tells by which way the client is reached now, for the journal that a new process
    /// will read.
    pub(super) fn tell_reach(&mut self, cx: &mut Context<'_>) {
        if !std::mem::take(&mut self.reach_changed) || !self.is_client() {
            return;
        }
        let proven = self.paths.active().filter(|path| path.is_proven());
        let (Some(path), Some(epoch)) = (proven, &self.epochs.current) else { return };
        let index = epoch.rx_serial(path.id).and_then(|s| epoch.rx.get(&s)).map(|lane| lane.index);
        let Some(at) = index.map(|index| (path.route, index)) else { return };
        if self.reach != Some(at) {
            self.reach = Some(at);
            let (route, index): (Route, SessionIndex) = at;
            cx.tell(Event::Reached { peer: self.key, route, index });
        }
    }

    /// Client: what would prove that the gateway lost the session, where its path in use leads.
    pub(super) fn restart_proof(&self) -> Option<(Route, RestartNotice)> {
        let path = self.paths.active()?;
        let proof = self.epochs.current.as_ref()?.restart_proof(path.id)?;
        Some((path.route, proof))
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
        let Side::Gateway(connector) = &self.side else { return Err(DropReason::BadHandshake) };
        let path = self.paths.by_route(&route).map(|path| path.id);
        let current = self.epochs.current.as_ref().zip(path);
        let current = current.and_then(|(epoch, path)| epoch.restart_proof(path));
        let same = |at: &Route| (at.socket, at.remote) == (route.socket, route.remote);
        let lost = connector.lost.filter(|(at, _)| same(at)).map(|(_, proof)| proof);
        let proves =
            |proof: RestartNotice| proof.index == notice.index && proof.token.is(&notice.token);
        if !current.is_some_and(proves) && !lost.is_some_and(proves) {
            return Err(DropReason::BadHandshake);
        }
        let rtt = self.paths.active().and_then(|path| path.rtt.measured()).unwrap_or_default();
        let patience = rtt.clamp(PATIENCE_MIN, PATIENCE_MAX);
        if connector.last_attempt().is_none_or(|at| at + patience <= cx.now) {
            self.reconnect(cx);
        }
        Ok(())
    }
}
