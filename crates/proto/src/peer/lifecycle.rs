//! A session begins, changes its state and ends, and the shell changes what it goes by. While no
//! path carries, open connections are held.

use super::{Peer, live, repair, share};
use crate::error::{CloseCode, DropReason, PeerError};
use crate::flow::live::Early;
use crate::flow::{Flows, Memory};
use crate::id::PathSerial;
use crate::paths::PathManager;
use crate::paths::connector::Refusal;
use crate::session::index::EpochId;
use crate::time::{Duration, Instant};
use crate::tunnel::established::Installed;
use crate::tunnel::{Context, Event, Link, PeerState, Side, saving};
use crate::wire::control::Control;
use crate::wire::handshake::ResponsePart;

impl Peer {
    /// Takes a part of the response to a handshake of this client.
    pub(crate) fn receive_part(
        &mut self,
        cx: &mut Context<'_>,
        epoch: EpochId,
        part: ResponsePart<'_>,
    ) -> Result<(), DropReason> {
        let connector = self.tunnel.paths.side.client_mut().ok_or(DropReason::BadHandshake)?;
        let mut taken = Ok(());
        for response in connector.take_part(epoch, part)? {
            taken = self.receive_response(cx, epoch, &response);
            if taken.is_ok() {
                break;
            }
        }
        taken
    }

    /// Takes the response to a handshake of this client.
    pub(crate) fn receive_response(
        &mut self,
        cx: &mut Context<'_>,
        epoch: EpochId,
        bytes: &[u8],
    ) -> Result<(), DropReason> {
        // The path in use was heard again and carries data, which a new session would lose. So it
        // is only taken if keys are due or that path turns out not to answer.
        let returns = self.tunnel.paths.list.return_due().is_some_and(|due| cx.now < due);
        let is_needed = !returns || self.tunnel.epochs.need_keys(cx.now);
        let connector = self.tunnel.paths.side.client_mut().ok_or(DropReason::BadHandshake)?;
        if let Some(mut answer) = connector.take_answer(cx, epoch, bytes, is_needed)? {
            if let Some(keys) = answer.keys.take() {
                if let Some(previous) = self.tunnel.epochs.end_previous() {
                    self.release(cx, previous);
                }
                if let Some(installed) = self.tunnel.install(cx, answer, keys) {
                    let Installed { path, first, took } = installed;
                    self.begin_epoch(cx, first, Some(took));
                    self.tunnel.settle_in(cx, path);
                }
            } else {
                match connector.be_refused(cx, self.tunnel.identity.key, answer) {
                    Refusal::Again => self.tunnel.attempt_due(cx),
                    Refusal::Later => {}
                    Refusal::Over(code) => self.leave_session(cx, PeerState::Down(code)),
                }
            }
        }
        self.apply_changes(cx);
        Ok(())
    }

    /// Says goodbye and forgets the session.
    pub(crate) fn close(&mut self, cx: &mut Context<'_>, code: CloseCode) {
        self.tunnel.say_close(cx, code);
        if code != CloseCode::Restarting {
            self.break_promises(cx);
        }
        if let Side::Client(connector) = &mut self.tunnel.paths.side {
            connector.handshakes.quit(cx.indices);
        }
        self.leave_session(cx, PeerState::Down(code));
    }

    /// Ends the session: forgets keys, paths and control frames, and reports why.
    pub(super) fn end(&mut self, cx: &mut Context<'_>, error: PeerError) {
        self.forget_session(cx);
        if error == PeerError::TimedOut {
            self.flows.abandon(cx.now, cx.memory);
        } else {
            self.tunnel.reach.forget(); // the client does not wait to be called
        }
        cx.tell(Event::Ended { peer: self.tunnel.identity.key, error });
        let down = match error {
            PeerError::Closed(code @ (CloseCode::Revoked | CloseCode::Requested)) => Some(code),
            PeerError::Closed(_)
            | PeerError::UnknownFrame(_)
            | PeerError::EpochExhausted
            | PeerError::TimedOut => None,
        };
        match (down, &mut self.tunnel.paths.side) {
            (Some(code), Side::Client(connector)) => {
                connector.handshakes.quit(cx.indices);
                self.leave_session(cx, PeerState::Down(code));
            }
            (None, Side::Client(_)) => self.tunnel.connect(cx),
            (_, Side::Gateway { .. }) => self.apply_changes(cx),
        }
    }

    /// Forgets all keys, as if the other end had lost them, and asks for new ones. What was to be
    /// acknowledged and repaired under them is void; open connections are held.
    pub(crate) fn forget_keys(&mut self, cx: &mut Context<'_>) {
        let connector = self.tunnel.paths.side.client_mut();
        let was_trying = connector.is_some_and(|it| it.handshakes.stop(cx.indices));
        if was_trying || !self.tunnel.epochs.is_empty() {
            self.forget_session(cx);
            self.tunnel.connect(cx);
            self.tunnel.paths.close_unused_sockets(cx);
            self.tunnel.reach.call(cx);
            self.apply_changes(cx);
        }
    }

    /// Applies the consequences of a change, in this order: waiting packets leave; the last
    /// acknowledgements of held connections and realtime copies leave; a gateway leaves a path that
    /// is gone; shares are set; packets owed to dead paths are collected; the state is
    /// reported; flows are held or resumed; lost packets are sent. Called where links, addresses,
    /// modes or keys change, by `settle`, and several times by `settle_time`.
    pub(super) fn apply_changes(&mut self, cx: &mut Context<'_>) {
        if matches!(self.tunnel.state, PeerState::Down(_)) && self.tunnel.epochs.current.is_none() {
            return;
        }
        if self.tunnel.changes.take_carries() {
            self.flush_waiting(cx);
        }
        self.repeat_last_acks(cx);
        live::rescue_from_removed(self, cx);
        if let Some(id) = self.tunnel.paths.plan().instead_of_gone() {
            self.tunnel.manage(cx, |paths, cx| paths.activate(cx, id));
            self.flush_waiting(cx);
        }
        self.shares.share_paths(cx, &mut self.tunnel);
        self.bonding.is_shared =
            self.tunnel.paths.list.iter().any(|path| path.congestion.is_some());
        self.tunnel.collect_lost(cx);
        if self.at_gateway()
            && let Some((route, index)) =
                self.tunnel.reach.take_news(&self.tunnel.epochs, &self.tunnel.paths.list)
        {
            cx.tell(Event::Reached { peer: self.tunnel.identity.key, route, index });
        }
        let before = self.tunnel.state;
        let is_trying = self.tunnel.paths.connector().is_none_or(|it| it.handshakes.is_trying());
        let state = match &self.tunnel.epochs.current {
            Some(_) => self.tunnel.paths.list.state(),
            None if before == PeerState::Resting && !is_trying => PeerState::Resting,
            None => PeerState::Unestablished,
        };
        self.tunnel.set_state(cx, state);
        if before == PeerState::Suspended && state != before && !self.waiting.is_empty() {
            self.flush_waiting(cx); // feedback alone may end a silence
        }
        if before == PeerState::Suspended
            && state == PeerState::Up
            && !self.tunnel.epochs.need_keys(cx.now)
            && let Side::Client(connector) = &mut self.tunnel.paths.side
        {
            connector.call_off(cx, &self.tunnel.paths.list); // no other session is needed
        }
        self.hold_or_resume(cx);
        repair::send_lost(self, cx);
    }

    /// The session has new keys. Numbers, names and requests under the old ones are void. `first`
    /// if it had none before; a client says how long the handshake `took`.
    pub(super) fn begin_epoch(
        &mut self,
        cx: &mut Context<'_>,
        first: bool,
        took: Option<Duration>,
    ) {
        self.tunnel.begin_epoch();
        self.bonding.settings.begin_epoch(self.tunnel.paths.at_gateway());
        if let Some(epoch) = &mut self.tunnel.epochs.current {
            self.bonding.renumber(cx.memory.blocks(), &mut epoch.numbers);
        }
        self.followed = 0; // it may be another process that asks now
        self.is_early_known = false;
        self.introduce(cx);
        cx.tell(Event::Established { peer: self.tunnel.identity.key, first, took });
    }

    /// Says at the beginning of an epoch what the other end has to know. A client names the
    /// networks behind it even if there are none: an earlier process may have named some.
    fn introduce(&mut self, cx: &mut Context<'_>) {
        match &self.tunnel.paths.side {
            Side::Gateway { lease } => {
                let networks = self.admission.access().networks();
                if !networks.is_empty() {
                    self.tunnel.control.push(cx.now, &Control::Networks(networks));
                }
                self.tunnel.control.push(cx.now, &Control::Lease(lease.clone()));
                if let Some(epoch) = &self.tunnel.epochs.current {
                    let tokens = epoch.restart_tokens(cx.restart_key, PathSerial(0));
                    self.tunnel.control.push(cx.now, &tokens);
                }
                self.tunnel.reach.announce_again();
                self.tunnel.announce(cx);
                if self.key_alarm.lasts(cx.now) {
                    self.tunnel.control.push(cx.now, &Control::KeyIsShared);
                    self.tunnel.send_control(cx);
                }
            }
            Side::Client(connector) => {
                let routes = Control::Routes(connector.handshakes.advertise.clone());
                self.tunnel.control.push(cx.now, &Control::Run(connector.handshakes.run));
                if !self.flows.early().is_empty() {
                    let early = self.flows.early().ends().to_vec();
                    self.tunnel.control.push(cx.now, &Control::Early(early));
                }
                saving::of_mut(&mut self.tunnel).apply(&cx.config.saving);
                if !saving::of(&self.tunnel).has_no_wish() {
                    saving::ask(&mut self.tunnel, cx);
                }
                self.tunnel.control.push(cx.now, &routes);
                self.apply_settings(cx);
            }
        }
    }

    /// Called when the state may have changed.
    fn hold_or_resume(&mut self, cx: &mut Context<'_>) {
        let returns = self.tunnel.paths.list.returns(cx.now);
        let carries = matches!(self.tunnel.state, PeerState::Up | PeerState::Moving)
            || returns
            || self.tunnel.paths.list.claimed().is_some();
        if self.tunnel.state == PeerState::Up
            && let Some(path) = self.tunnel.paths.list.active()
            && let Some(trip) = path.rtt.minimum()
        {
            // The shortest round trip: a longer one may come from the session's own queue, or from
            // a signal that fades.
            let own = path.route.local.filter(|_| !self.tunnel.paths.at_gateway());
            self.flows.visit(own.unwrap_or_else(|| path.route.remote.ip()), trip);
        }
        match (self.flows.is_up(), carries) {
            (true, false) => self.flows.suspend(cx.now, cx.memory),
            (false, true) => {
                let trip = self.tunnel.paths.list.active().map(|path| path.rtt.smoothed());
                self.flows.resume(cx.now, cx.memory, trip.unwrap_or_default());
                repair::end_sequences(self, cx);
            }
            (true, true) => return,
            (false, false) => {}
        }
        self.tunnel.paths.list.ask_urgently(cx.now, self.flows.is_waiting());
    }

    /// Forgets the flows of a revoked peer and frees their memory, unless an end of a connection
    /// has still to be told that the connection is over. Returns whether the peer may be removed.
    pub(crate) fn leave(&mut self, memory: &mut Memory) -> bool {
        if self.flows.is_breaking_off() {
            return false;
        }
        self.flows.terminate(memory, &mut Vec::new(), &mut Vec::new());
        true
    }

    /// The connections.
    #[cfg(test)]
    pub(crate) const fn flows(&self) -> &crate::flow::Flows {
        &self.flows
    }

    /// Changes what is done for the flows, or tells them what was done. They act on it at once.
    pub(crate) fn change_flows(
        &mut self,
        cx: &mut Context<'_>,
        change: impl FnOnce(&mut Flows, &mut Context<'_>),
    ) {
        change(&mut self.flows, cx);
        share::assist(cx.now, &mut self.bonding, &mut self.tunnel, &mut self.flows);
        self.send_generated(cx);
    }

    /// The user wants these flows to have low latency from now on. A client tells its gateway.
    pub(crate) fn set_early(&mut self, now: Instant, early: &Early) {
        if self.flows.early() == early {
            return;
        }
        self.flows.set_early(early.clone());
        if !self.tunnel.paths.at_gateway() && self.tunnel.epochs.current.is_some() {
            self.tunnel.control.push(now, &Control::Early(early.ends().to_vec()));
        }
    }

    /// Client: the usable links are these now.
    pub(crate) fn links_changed(&mut self, cx: &mut Context<'_>, links: &[Link]) {
        if let Some(epoch) = &mut self.tunnel.epochs.current {
            let has = |link: &Link, id, local| link.id == id && link.addresses.contains(&local);
            epoch.leave_networks(|id, local| links.iter().any(|link| has(link, id, local)));
        }
        self.change_paths(cx, |paths, cx| paths.links_changed(cx, links));
    }

    /// Changes the paths, or what they go by: the session acts on it at once.
    pub(crate) fn change_paths(
        &mut self,
        cx: &mut Context<'_>,
        change: impl FnOnce(&mut PathManager, &mut Context<'_>),
    ) {
        self.tunnel.manage(cx, change);
        self.apply_changes(cx);
    }

    /// Client: applies its settings, and tells the gateway those that it does not know.
    pub(super) fn apply_settings(&mut self, cx: &Context<'_>) {
        if self.tunnel.paths.at_gateway() {
            return;
        }
        let (config, has_keys) = (cx.config, self.tunnel.epochs.current.is_some());
        self.bonding.settings.apply(config.scheduler, config.recovery, |control| {
            has_keys && self.tunnel.control.push(cx.now, control)
        });
        if saving::of_mut(&mut self.tunnel).apply(&config.saving) && has_keys {
            saving::ask(&mut self.tunnel, cx);
        }
    }

    /// Client: the scheduler or the kind of repair was changed, for both ends.
    pub(crate) fn settings_changed(&mut self, cx: &mut Context<'_>) {
        self.apply_settings(cx);
        self.tunnel.send_control(cx);
        self.serve_bonding(cx);
    }
}

#[cfg(test)]
#[path = "lifecycle_tests.rs"]
mod tests;
