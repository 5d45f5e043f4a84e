//! What the tunnel does for the path manager: it says what there is for new paths, lets it act, and
//! carries out its wishes in order: path challenges and MTU probes above all (RFC 9000, sections
//! 8.2 and 14.3).

use super::{Context, Event, Tunnel};
use crate::path::{Path, PathId};
use crate::paths::connector::Connector;
use crate::paths::wishes::FLIGHT_SIZE;
use crate::paths::{PathManager, Wish};
use crate::recovery::packet::Load;
use crate::wire::control::Control;
use crate::wire::frame;
use crate::wire::frame::{Challenge, Frame};

/// Datagrams of a mover's first flight, padded to [`FLIGHT_SIZE`]: its amplification budget.
const FLIGHT: usize = 6;

impl Tunnel {
    /// Lets the path manager act, and carries out its wishes.
    pub(crate) fn manage<R>(
        &mut self,
        cx: &mut Context<'_>,
        act: impl FnOnce(&mut PathManager, &mut Context<'_>) -> R,
    ) -> R {
        let indices = self.paths.indices_mut();
        match &self.epochs.current {
            Some(epoch) => {
                let used_by = epoch.tx.iter().map(|lane| lane.path);
                indices.are(epoch.spare_indices(), epoch.unheard_networks(), used_by);
            }
            None => indices.none(),
        }
        let answer = act(&mut self.paths, cx);
        self.carry_out(cx);
        answer
    }

    /// Carries out what the path manager wishes.
    pub(crate) fn carry_out(&mut self, cx: &mut Context<'_>) {
        while let Some(wish) = self.paths.wishes.pop() {
            match wish {
                Wish::Ask(id) => self.send_probe_due(cx, id),
                Wish::AskAll => {
                    for id in self.paths.plan().probes_due(cx.now) {
                        self.send_probe_due(cx, id);
                    }
                }
                Wish::Challenge(id, size) => self.challenge(cx, id, size),
                Wish::FirstFlight(id) => {
                    if let Some(size) = self.paths.list.probe_mtu(cx.now, id) {
                        self.challenge(cx, id, size);
                    }
                    self.pad_first_flight(cx, id);
                }
                Wish::Pad(id) => self.pad_first_flight(cx, id),
                Wish::SearchMtu(id) => self.search_mtu(cx, id),
                Wish::Carry => self.changes.note_carries(),
                Wish::Activated { remote, took } => {
                    self.reach.note_change();
                    cx.tell(Event::Moved { peer: self.identity.key, remote, took });
                }
                Wish::Forgive(id) => self.forgive(id),
                Wish::Lost(id) => {
                    if let (false, Some(epoch)) =
                        (self.paths.at_gateway(), &mut self.epochs.current)
                    {
                        self.last_words.take(cx.now, epoch, id);
                    }
                }
                Wish::Removed(path) => self.clean_up_after(cx, &path),
                Wish::TellTaken => self.tell_taken(cx),
                Wish::Home => self.epochs.set_home(self.paths.connector().map(Connector::home)),
                Wish::Connect => self.connect(cx),
                Wish::Reconnect => self.reconnect(cx),
                Wish::Attempt => self.attempt_due(cx),
            }
        }
    }

    /// Gateway: tells the client where this node is reached, if it was not told yet.
    pub(crate) fn announce(&mut self, cx: &mut Context<'_>) {
        if self.paths.at_gateway()
            && self.epochs.current.is_some()
            && self.reach.announce(cx.now, cx.announced, &mut self.control)
        {
            self.send_control(cx);
        }
    }

    /// The packets of a path that did not work are lost, and its lane is free for another.
    fn clean_up_after(&mut self, cx: &mut Context<'_>, path: &Path) {
        if !path.is_good() {
            let memory = (cx.memory.blocks(), &mut *cx.drops);
            self.recovery.lose_dead(cx.now, memory, |id| id == path.id);
            self.changes.note_removed(path.id);
        }
        if let Some(epoch) = &mut self.epochs.current {
            epoch.park(path);
            self.recovery.park(cx.memory.blocks(), epoch.id, path.id);
            self.forget_spaces();
        }
    }

    /// Client: if few of the gateway's indices are left, reports which are used. The gateway issues
    /// new ones for paths that it receives packets on, and it receives none from a dead link.
    fn tell_taken(&mut self, cx: &mut Context<'_>) {
        if let Some(epoch) = &mut self.epochs.current
            && let Some(next) = epoch.taken_to_tell()
            && self.control.push(cx.now, &Control::Taken { next })
        {
            epoch.note_told_taken(next);
            self.send_control(cx);
        }
    }

    /// Does what is due about silent paths. Returns whether anything was.
    pub(crate) fn notice_silence(&mut self, cx: &mut Context<'_>) -> bool {
        let due = |path: &&Path| {
            let debt = || self.epochs.debt(path, self.sent_on(path.id));
            let due = self.paths.plan().silence_due(cx.config.ablation, path, debt);
            due.is_some_and(|due| due <= cx.now)
        };
        let overdue = self.paths.list.ids(due);
        let any = !overdue.is_empty();
        if any {
            self.manage(cx, |paths, cx| paths.take_overdue(cx, overdue));
        }
        any
    }

    /// Sends the challenge of a path, if it is due.
    pub(crate) fn send_probe_due(&mut self, cx: &mut Context<'_>, id: PathId) {
        let Some(path) = self.paths.list.get(id) else { return };
        if self.paths.plan().probe_due(path).is_none_or(|due| due > cx.now) {
            return;
        }
        // An address is proven at full size, if its budget and its link allow that: what there is
        // of a smaller one is for data. A path that went silent is asked by small datagrams, which
        // pass where large ones no longer do.
        let is_large = path.probes.may_be_large(cx.now);
        let full = !path.is_proven() && path.allows(FLIGHT_SIZE) && is_large;
        let size = if full { FLIGHT_SIZE } else { 0 };
        self.challenge(cx, id, size);
        if self.paths.list.active_id() == Some(id) {
            self.changes.note_asked();
        }
    }

    /// Sends one challenge, padded to `size` bytes.
    pub(crate) fn challenge(&mut self, cx: &mut Context<'_>, id: PathId, size: usize) {
        let token = cx.random();
        let client = !self.paths.at_gateway();
        let prefer = client && self.paths.list.active_id() == Some(id);
        let others_gone = self.paths.list.iter().all(|path| path.id == id || path.is_gone());
        let moves = self.paths.list.moves();
        let beside =
            client && self.paths.list.get(id).is_some_and(|path| path.congestion.is_some());
        let abandon_others = prefer && others_gone;
        let challenge = Challenge { prefer, abandon_others, beside, token, moves };
        let last_words = if prefer { self.last_words.words().to_vec() } else { Vec::new() };
        let Some(path) = self.paths.list.get_mut(id) else { return };
        // What the budget forbids counts as asked: the next try is due as if it had left.
        path.probes.sent(cx.now, token, size, path.route.remote);
        // A probe of the MTU may well be lost: its silence tells nothing of the path.
        let is_carried = path.mtu.surely_carries(size);
        let load = if is_carried { Load::Eliciting } else { Load::Probe };
        let sent = self.send_on(cx, id, load, |draft| {
            Frame::Challenge(challenge).emit(draft.frames());
            for &word in &last_words {
                Frame::LastFeedback(word).emit(draft.frames());
            }
            let padding = size.saturating_sub(draft.len());
            frame::emit_padding(draft.frames(), padding);
        });
        if let Err(reason) = sent {
            cx.drops.count(reason);
        }
    }

    /// Sends the next probe of a path's MTU, if one is wanted.
    pub(crate) fn search_mtu(&mut self, cx: &mut Context<'_>, id: PathId) {
        let Some(path) = self.paths.list.get_mut(id) else { return };
        if !path.is_able() {
            return;
        }
        path.set_mtu_due(None);
        if let Some(size) = self.paths.list.probe_mtu(cx.now, id) {
            self.challenge(cx, id, size);
        }
    }

    /// Client: the rest of a first flight, which is the gateway's budget until it has the answer to
    /// a challenge of its own.
    pub(crate) fn pad_first_flight(&mut self, cx: &mut Context<'_>, id: PathId) {
        for _ in 2..FLIGHT {
            let sent = self.send_on(cx, id, Load::Quiet, |draft| {
                let padding = FLIGHT_SIZE.saturating_sub(draft.len());
                frame::emit_padding(draft.frames(), padding);
            });
            if let Err(reason) = sent {
                cx.drops.count(reason);
            }
        }
    }

    /// A path has answered: what it owed before is forgiven. On a path with a share, data stays
    /// owed: if its window is full, no later packet leaves that would show the loss.
    pub(crate) fn forgive(&mut self, id: PathId) {
        let is_shared = self.paths.list.is_shared(id);
        if let Some(epoch) = self.epochs.id() {
            self.recovery.forgive(epoch, id, is_shared);
        }
    }
}
