//! When a client asks for a session, or for new keys. `Connector` makes the handshakes.

use super::{Context, PeerState, Side, Tunnel};
use crate::error::DropReason;
use crate::outbox::Route;
use crate::session::restart::Proof;
use crate::wire::restart::RestartNotice;

impl Tunnel {
    /// The user wants a session with the peer, a gateway.
    pub(crate) fn want(&mut self, cx: &mut Context<'_>) {
        if let Some(connector) = self.paths.side.client_mut() {
            connector.handshakes.set_wanted(true);
        }
        self.connect(cx);
    }

    /// Asks for a session, by every candidate. No effect while already asking, while there is
    /// no link, or when no session is wanted.
    pub(crate) fn connect(&mut self, cx: &mut Context<'_>) {
        if !self.paths.side.client_mut().is_some_and(|it| it.begin_round(cx.now)) {
            return;
        }
        if matches!(self.state, PeerState::Down(_) | PeerState::Resting) {
            self.set_state(cx, PeerState::Unestablished);
        }
        self.attempt_due(cx);
    }

    /// Asks at once, as if for the first time: the links changed.
    pub(crate) fn reconnect(&mut self, cx: &mut Context<'_>) {
        if matches!(self.state, PeerState::Down(_)) {
            return;
        }
        if let Some(connector) = self.paths.side.client_mut() {
            connector.restart_round(cx.now);
        }
        self.connect(cx);
        self.attempt_due(cx);
    }

    /// Asks for new keys when the old are due and traffic flows.
    pub(crate) fn rekey_if_due(&mut self, cx: &mut Context<'_>) {
        if self.epochs.current.as_ref().is_some_and(|epoch| epoch.wants_rekey(cx.now)) {
            self.connect(cx);
        }
    }

    /// Makes the attempts that are due.
    pub(crate) fn attempt_due(&mut self, cx: &mut Context<'_>) {
        if let Side::Client(connector) = &mut self.paths.side {
            connector.attempt_due(cx, &mut self.identity, &self.paths.list);
        }
    }

    /// Client: a notice came by `route` that the gateway lost the session. It changes no session:
    /// it only begins a handshake, beside a session that goes on under its old keys until the new
    /// ones are used.
    ///
    /// # Errors
    /// [`DropReason::BadHandshake`] when it proves nothing that this session waits for.
    pub(crate) fn receive_restart(
        &mut self,
        cx: &mut Context<'_>,
        route: Route,
        notice: RestartNotice,
    ) -> Result<(), DropReason> {
        let current = self.epochs.current.as_ref().zip(self.paths.list.by_route(&route));
        let current = current.and_then(|(epoch, path)| Proof::of(epoch, path));
        let connector = self.paths.side.client_mut().ok_or(DropReason::BadHandshake)?;
        if connector.receive_restart(cx.now, route, notice, current)? {
            self.reconnect(cx);
        }
        Ok(())
    }
}
