//! Silent paths: which paths are asked then, and how far a path is trusted that is heard again.

use super::{PathManager, Side, Wish};
use crate::id::Transport;
use crate::path::probe::URGENT;
use crate::path::{Health, Path, PathId};
use crate::time::{Duration, Instant};
use crate::tunnel::Context;

/// Nothing came or went by a stream for this long: either there was nothing, or it stands still.
const QUIET: Duration = Duration::from_secs(1);
/// How long a gateway challenges a client that went silent; the next data begins anew.
const GATEWAY_ASKS: Duration = Duration::from_secs(15);
/// The same while open connections wait for it.
const GATEWAY_ASKS_FOR_FLOWS: Duration = Duration::from_secs(60);
/// Paths that are asked more often at once: the questions of more fill a slow link by themselves.
const URGENT_PATHS: usize = 3;

impl PathManager {
    /// These have owed an answer for too long, or were silent for long enough for the next step.
    pub(crate) fn take_overdue(&mut self, cx: &mut Context<'_>, overdue: Vec<PathId>) {
        for id in overdue {
            let active = self.list.active_id() == Some(id);
            let Some(path) = self.list.get_mut(id) else { continue };
            if path.is_good() {
                path.move_to_silent(cx.now);
                self.ask(cx.now, id);
                self.ask_others_by_its_link(cx, id);
                match self.plan().best_with_share(id) {
                    Some(other) if active => self.activate(cx, other),
                    None if active => self.try_elsewhere(cx),
                    Some(_) | None => {}
                }
            } else if active {
                self.wish(Wish::Connect);
            } else {
                self.remove_path(cx, id);
            }
        }
    }

    /// When a gateway has challenged `path` for long enough, whatever it is taken for: a client
    /// that is there will send, and one that is not must not be asked for ever.
    pub(crate) fn asked_enough_due(&self, flows_wait: bool, path: &Path) -> Option<Instant> {
        let asking = path.probes.asking_since().filter(|_| self.at_gateway());
        let enough = if flows_wait { GATEWAY_ASKS_FOR_FLOWS } else { GATEWAY_ASKS };
        asking.map(|since| since + enough)
    }

    pub(crate) fn stop_asking(&mut self, now: Instant, flows_wait: bool) {
        let enough =
            |path: &&Path| self.asked_enough_due(flows_wait, path).is_some_and(|due| due <= now);
        let enough: Vec<_> = self.list.iter().filter(enough).map(|path| path.id).collect();
        for id in enough {
            if let Some(path) = self.list.get_mut(id) {
                path.probes.stop();
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
        let paths: Vec<PathId> = self.list.iter().filter(carries).map(|path| path.id).collect();
        for id in paths {
            self.ask(cx.now, id);
        }
    }

    /// Whether the path in use was silent in both directions and is heard again: that it carries
    /// the other way as well is not proven, and likely enough for what is sent again if not.
    pub(crate) fn returns(&mut self, now: Instant) -> bool {
        let Some(due) = self.plan().return_due() else { return false };
        if due <= now
            && let Some(id) = self.list.active_id()
            && let Some(path) = self.list.get_mut(id)
        {
            path.forget_return();
        }
        now < due
    }

    /// Gateway: where the peer says that it is, if it left every other place: what is said there
    /// before that is proven is bounded, and saves a round trip.
    pub(crate) fn claimed(&self) -> Option<&Path> {
        let path = self.list.get(self.list.choose()?.original)?;
        path.is_claimed().then_some(path)
    }

    /// While connections wait for a path it is asked more often, in the first minute: who asks
    /// again for what is held later does so in passing, whenever its programs try again. Of many
    /// paths, those that are likely to return first.
    pub(crate) fn ask_urgently(&mut self, now: Instant, flows_wait: bool) {
        let active = self.list.active_id();
        let is_wanted = |path: &Path| {
            let since = match path.health() {
                Health::Silent { since } => Some(since),
                Health::Gone => Some(path.heard_at().unwrap_or_else(|| path.since())),
                Health::Good => None,
            };
            flows_wait && since.is_none_or(|since| now.saturating_since(since) < URGENT)
        };
        let likely =
            |path: &&Path| (Some(path.id) == active, path.heard_at().max(Some(path.since())));
        let mut chosen = [None; URGENT_PATHS];
        for place in 0..URGENT_PATHS {
            let rest = |path: &&Path| is_wanted(path) && !chosen.contains(&Some(path.id));
            chosen[place] = self.list.iter().filter(rest).max_by_key(likely).map(|path| path.id);
        }
        for path in self.list.iter_mut() {
            path.probes.set_urgent(now, chosen.contains(&Some(path.id)));
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
