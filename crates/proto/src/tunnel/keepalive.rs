//! A client behind a NAT: what keeps its mapping alive while nobody speaks
//! (docs/spec/wire.md#keepalives-and-idle-sessions).
//!
//! Each keepalive is answered, so that a client that says nothing notices within one interval that
//! its gateway is gone. Neither is sealed: two sealed datagrams every 113 s are 84 KB a day, these
//! are 52. So a keepalive changes nothing at the gateway, which answers only where it reaches the
//! client anyway. A keepalive that stays without an answer is followed by a challenge. How long the
//! interval may be is learned (`paths::nat`).

use super::{Context, Tunnel};
use crate::error::DropReason;
use crate::id::Transport;
use crate::outbox::Route;
use crate::path::{Path, PathId};
use crate::paths::Side;
use crate::paths::nat::{GRACE, Next, Unanswered};
use crate::session::index::Lead;
use crate::time::Duration;
use crate::wire::frame::Frame;
use crate::wire::keepalive::{KEEPALIVE_LEN, Keepalive};

impl Tunnel {
    /// Sends what keeps the mapping alive, when it is due.
    pub(crate) fn keep_alive(&mut self, cx: &mut Context<'_>) {
        self.miss_answers(cx);
        let Some(path) = self.paths.list.active() else { return };
        let due = self.paths.plan().keepalive_due(cx.config.keepalive, path);
        if due.is_none_or(|due| due > cx.now) {
            return;
        }
        let (id, of) = (path.id, path.link.zip(path.route.local));
        let Side::Client(connector) = &mut self.paths.side else { return };
        if let Some(left) = connector.nat.begin(of) {
            self.manage(cx, |paths, cx| paths.remove_spare(cx, left));
        }
        // After a sleep the NAT has forgotten the client, and the gateway answers nothing unsealed.
        let slept = due.is_some_and(|due| cx.now.saturating_since(due) > GRACE);
        self.send_keepalive(cx, id, slept);
        let nat = self.paths.connector().map(|connector| &connector.nat);
        let length = nat.zip(cx.config.keepalive).and_then(|(nat, least)| nat.wants_test(least));
        if let Some(length) = length {
            self.test_nat(cx, id, length, 0);
        }
    }

    /// Sends a keepalive by `id`; a challenge if the client slept, or if nothing has left by that
    /// path under the present keys.
    fn send_keepalive(&mut self, cx: &mut Context<'_>, id: PathId, slept: bool) {
        let epoch = self.epochs.current.as_ref().filter(|_| !slept);
        let index = epoch.and_then(|epoch| epoch.keepalive_index(id));
        let Some(path) = self.paths.list.get_mut(id) else { return };
        path.kept_alive(cx.now); // not before the next interval again
        let (Some((epoch, index)), Side::Client(connector)) =
            (epoch.zip(index), &mut self.paths.side)
        else {
            return self.manage(cx, |paths, cx| paths.ask(cx.now, id));
        };
        let keepalive = Keepalive { index, number: connector.nat.take_number() };
        connector.nat.await_answer(id, epoch.answer(keepalive), cx.now + path.patience());
        path.sent(cx.now, KEEPALIVE_LEN);
        cx.send_clear(path.route, &keepalive.emit());
    }

    /// If a keepalive was not answered in time, asks by a challenge: one of them was lost, the NAT
    /// maps to another address, or the gateway is gone. A question about the NAT is asked again.
    fn miss_answers(&mut self, cx: &mut Context<'_>) {
        let active = self.paths.list.active_id();
        let is_still = self.paths.plan().is_behind_tested_nat();
        let Side::Client(connector) = &mut self.paths.side else { return };
        let missed = connector.nat.take_missed(cx.now);
        let unanswered = connector.nat.take_unanswered(cx.now, is_still);
        if let Some(id) = missed.filter(|&id| active == Some(id)) {
            self.manage(cx, |paths, cx| paths.ask(cx.now, id));
        }
        let Some(Unanswered { path, again }) = unanswered else { return };
        self.manage(cx, |paths, cx| paths.remove_spare(cx, path));
        if let Some(((length, tries), active)) = again.zip(self.paths.list.active_id()) {
            self.test_nat(cx, active, length, tries);
        }
    }

    /// Gateway: answers a keepalive that came by the path on which the client is reached. From
    /// anywhere else it may be anybody's, or a NAT maps anew: that takes a challenge.
    ///
    /// # Errors
    /// [`DropReason::NoRoute`] if the client is reached otherwise, or not at all.
    pub(crate) fn answer_keepalive(
        &mut self,
        cx: &mut Context<'_>,
        lead: Lead,
        route: Route,
        keepalive: Keepalive,
    ) -> Result<(), DropReason> {
        let epoch = self.epochs.current.as_ref().filter(|epoch| epoch.id == lead.epoch);
        let lane = epoch.and_then(|epoch| epoch.rx.get(&lead.serial));
        let path =
            self.paths.list.by_route(&route).filter(|path| path.is_able()).map(|path| path.id);
        let is_here = path.is_some()
            && path == self.paths.list.active_id()
            && lane.is_some_and(|lane| lane.path == path);
        if !is_here || !self.paths.at_gateway() {
            return Err(DropReason::NoRoute);
        }
        let answer = epoch.map(|epoch| epoch.answer(keepalive)).ok_or(DropReason::NoRoute)?;
        cx.send_clear(route, &answer.emit());
        Ok(())
    }

    /// Opens a path to ask about the NAT by, like `id` but for its socket, and challenges it once,
    /// by a small datagram: to prove an address at full size would cost more than what is learned.
    fn test_nat(&mut self, cx: &mut Context<'_>, id: PathId, length: Duration, tries: u8) {
        let like = self.paths.list.get(id).filter(|path| path.transport() == Transport::Udp);
        let connector = self.paths.connector();
        let candidate = connector
            .zip(like)
            .and_then(|(connector, path)| connector.candidate_of(path.link, &path.route));
        if self.paths.list.has_room()
            && let Some(candidate) = candidate
            && let Some(path) = self.manage(cx, |paths, cx| paths.open_path(cx, candidate))
            && let Side::Client(connector) = &mut self.paths.side
        {
            connector.nat.begin_test(cx.now, path, length, tries);
            self.challenge(cx, path, 0);
        }
    }

    /// A path answered a challenge. If it is the one to ask about the NAT by, the question follows.
    pub(crate) fn ask_nat(&mut self, cx: &mut Context<'_>, id: PathId) {
        let token = cx.random();
        let Side::Client(connector) = &mut self.paths.side else { return };
        let Some(echo) = connector.nat.question(cx.now, id, token) else { return };
        if let Err(reason) = self.send_frame(cx, id, &Frame::Echo(echo), 0) {
            cx.drops.count(reason);
        }
    }

    /// An answer came by `id`: whether it is the one that was asked for a while ago.
    pub(crate) fn answers_nat_test(
        &mut self,
        cx: &mut Context<'_>,
        id: PathId,
        token: u64,
    ) -> bool {
        let is_still = self.paths.plan().is_behind_tested_nat();
        let sent_at = self.paths.list.get(id).and_then(|path| path.sent_at());
        let Side::Client(connector) = &mut self.paths.side else { return false };
        let least = cx.config.keepalive.filter(|_| is_still);
        match connector.nat.take_answer((id, token), sent_at, least) {
            Some(Next::Ask(path)) => self.ask_nat(cx, path),
            Some(Next::End(path)) => self.manage(cx, |paths, cx| paths.remove_spare(cx, path)),
            None => return false,
        }
        true
    }

    /// Gateway: sends the answer that is due, which the client asked for a while ago.
    pub(crate) fn send_echo(&mut self, cx: &mut Context<'_>) {
        let Some((id, response)) = self.echo.take_due(cx.now) else { return };
        let is_proven = |path: &Path| path.is_proven() && !path.is_gone();
        if self.paths.list.get(id).is_some_and(is_proven)
            && let Err(reason) = self.send_frame(cx, id, &Frame::Response(response), 0)
        {
            cx.drops.count(reason);
        }
    }
}
