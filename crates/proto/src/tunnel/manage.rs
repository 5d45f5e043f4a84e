//! What the tunnel does for the path manager: it says what there is for new paths, lets it act, and
//! carries out its wishes in order.

use super::paths::{PathManager, Wish};
use super::{Context, Event, Link, Tunnel};
use crate::path::{Path, PathId};
use crate::wire::control::Control;

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
        while let Some(wish) = self.paths.next_wish() {
            match wish {
                Wish::Ask(id) => self.send_probe_due(cx, id),
                Wish::AskAll => self.send_probes_due(cx),
                Wish::Challenge(id, size) => self.challenge(cx, id, size),
                Wish::FirstFlight(id) => self.send_first_flight(cx, id),
                Wish::Pad(id) => self.pad_first_flight(cx, id),
                Wish::SearchMtu(id) => self.search_mtu(cx, id),
                Wish::Carry => self.carries_anew = true,
                Wish::Activated { remote, took } => {
                    self.reach.note_change();
                    cx.tell(Event::Moved { peer: self.identity.key, remote, took });
                }
                Wish::Forgive(id) => self.forgive(id),
                Wish::Lost(id) => self.note_last_words(cx, id),
                Wish::Removed(path) => self.clean_up_after(cx, &path),
                Wish::TellTaken => self.tell_taken(cx),
                Wish::Home => self.note_home(),
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

    /// Begins to challenge a path and sends the first challenge.
    pub(crate) fn ask(&mut self, cx: &mut Context<'_>, id: PathId) {
        self.paths.ask(cx.now, id);
        self.carry_out(cx);
    }

    /// Client: the usable links are these now.
    pub(crate) fn links_changed(&mut self, cx: &mut Context<'_>, links: &[Link]) {
        if let Some(epoch) = &mut self.epochs.current {
            let has = |link: &Link, id, local| link.id == id && link.addresses.contains(&local);
            epoch.leave_networks(|id, local| links.iter().any(|link| has(link, id, local)));
        }
        self.manage(cx, |paths, cx| paths.links_changed(cx, links));
    }

    /// The packets of a path that did not work are lost, and its lane is free for another.
    fn clean_up_after(&mut self, cx: &mut Context<'_>, path: &Path) {
        if !path.is_good() {
            let memory = (cx.memory.blocks(), &mut *cx.drops);
            self.recovery.lose_dead(cx.now, memory, |id| id == path.id);
            self.removed.push(path.id);
        }
        if let Some(epoch) = &mut self.epochs.current {
            epoch.park(path);
            self.recovery.park(cx.memory.blocks(), epoch.id, path.id);
            self.forget_spaces();
        }
    }

    /// Client: notes what arrived by a path that is gone, before it says where it is.
    fn note_last_words(&mut self, cx: &Context<'_>, id: PathId) {
        if let Some(epoch) = self.epochs.current.as_mut().filter(|_| !self.paths.at_gateway()) {
            let lanes = epoch.rx.values_mut().filter(|lane| lane.path == Some(id));
            let words =
                lanes.filter_map(|lane| lane.owed.last_report(cx.now, lane.serial, &lane.window));
            self.last_words.add(cx.now, words);
        }
    }

    /// Client: if few of the gateway's indices are left, reports which are used. The gateway issues
    /// new ones for paths that it receives packets on, and it receives none from a dead link.
    fn tell_taken(&mut self, cx: &mut Context<'_>) {
        if let Some(epoch) = &mut self.epochs.current
            && let Some(next) = epoch.taken_to_tell()
            && self.control.push(cx.now, &Control::Taken { next })
        {
            epoch.told_taken = next;
            self.send_control(cx);
        }
    }
}
