//! Silent paths: which paths are asked then (docs/spec/wire.md#silence).

use super::{PathManager, Side, Wish};
use crate::context::Context;
use crate::id::Transport;
use crate::multipath::Mode;
use crate::path::{Path, PathId};
use crate::time::{Duration, Instant};

/// Nothing came or went by a stream for this long: either there was nothing, or it stands still.
const QUIET: Duration = Duration::from_secs(1);
impl PathManager {
    /// These have owed an answer for too long, or were silent for long enough for the next step.
    pub(crate) fn take_overdue(&mut self, cx: &mut Context<'_>, overdue: Vec<PathId>) {
        for id in overdue {
            let active = self.list.active_id() == Some(id);
            let Some(path) = self.list.get_mut(id) else { continue };
            if path.is_good() {
                path.move_to_silent(cx.now);
                let link = path.link;
                self.ask(cx.now, id);
                if !self.at_gateway() && cx.config.mode == Mode::Full {
                    // Others by its link could take its place, if that is not what died.
                    let others = self.list.ids(|path| {
                        let is_asked = path.probes.asking_since().is_some();
                        path.link == link && path.is_able() && !is_asked
                    });
                    others.into_iter().for_each(|id| self.ask(cx.now, id));
                }
                match self.plan().best_with_share(id) {
                    Some(other) if active => self.activate(cx, other),
                    None if active => self.try_elsewhere(cx),
                    Some(_) | None => {}
                }
            } else if active {
                self.wishes.push(Wish::Connect);
            } else {
                self.remove_path(cx, id);
            }
        }
    }

    /// When a client on a stream asks why nothing comes. The gateway, whose stream stands still,
    /// cannot open another, and who only receives is owed nothing.
    pub(crate) fn quiet_due(&self) -> Option<Instant> {
        let good = |path: &&Path| path.is_good() && path.probes.due().is_none();
        let waits = !self.at_gateway() && self.list.is_on_stream();
        self.list.active().filter(good).filter(|_| waits)?;
        self.used_at.filter(|&used| self.quiet_after != Some(used)).map(|used| used + QUIET)
    }

    /// Asks once after each burst of packets by a stream.
    pub(crate) fn ask_quiet_stream(&mut self, cx: &mut Context<'_>) {
        if self.quiet_due().is_some_and(|due| due <= cx.now)
            && let Some(id) = self.list.active_id()
        {
            self.quiet_after = self.used_at;
            self.ask(cx.now, id);
        }
    }

    /// Challenges, once, every path that may have carried the stream.
    pub(crate) fn ask_for_stream(&mut self, cx: &mut Context<'_>) {
        let Side::Client(connector) = &mut self.side else { return };
        if !connector.listening.take_stopped(cx.now) {
            return;
        }
        let active = self.list.active_id();
        let carries = |path: &&Path| {
            let may_have = Some(path.id) == active || path.congestion.is_some();
            let is_asked = path.probes.asking_since().is_some();
            may_have && path.is_able() && path.transport() == Transport::Udp && !is_asked
        };
        let paths = self.list.ids(carries);
        for id in paths {
            self.ask(cx.now, id);
        }
    }

    /// Data for a path that is silent and no longer asked: it is asked again.
    pub(crate) fn ask_if_silent(&mut self, now: Instant, id: PathId) {
        let Some(path) = self.list.get(id) else { return };
        if path.is_silent() && path.probes.asking_since().is_none() {
            self.ask(now, id);
        }
    }

    /// Gateway: there is something to say and no path that is not given up. The one in use is asked
    /// all the same: a client that has nothing to say itself may be there, and not know.
    pub(crate) fn ask_given_up(&mut self, now: Instant) {
        let gone = |path: &&Path| path.is_gone() && path.is_proven();
        let given_up = self.list.active().filter(gone).filter(|_| self.at_gateway());
        let given_up = given_up.filter(|path| path.probes.asking_since().is_none());
        if let Some(id) = given_up.map(|path| path.id) {
            self.ask(now, id);
        }
    }
}
