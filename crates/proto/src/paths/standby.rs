//! Make before break: what a client has ready beside the path in use
//! (docs/spec/wire.md#links). By the ways that `spread`
//! names paths are proven ahead of need, and asked now and then whether they still carry.
//!
//! Where the gateway has several addresses, they are asked by turns. An idle session asks nothing
//! but for its first minute. While data goes by a stream, UDP is asked by the best ways of every
//! link, all at once and for as long as it takes.

use super::plan::places::family_of;
use super::{PathManager, Side};
use crate::context::Context;
use crate::id::{LinkId, Transport};
use crate::path::{Path, PathId};
use crate::time::Instant;

impl PathManager {
    /// Gives the turn to the next address, where one has not answered. The path to that may have
    /// been asked for as long already.
    pub(crate) fn take_turns(&mut self, cx: &mut Context<'_>) {
        while let Some((id, of)) = self.plan().turn_over(cx.now)
            && let Side::Client(connector) = &mut self.side
        {
            connector.turns.next(of);
            self.stand_by_at(cx, id, of);
        }
    }

    /// Tries it.
    pub(crate) fn retry_streams(&mut self, cx: &mut Context<'_>) {
        if self.plan().retry_due().is_some_and(|due| due <= cx.now)
            && let Side::Client(connector) = &mut self.side
        {
            connector.forgive_failures(cx.now); // tried once, whatever comes of it
            self.stand_by(cx);
        }
    }

    /// The path `id`, which nobody answered, leads to the next address of its link from now on.
    fn stand_by_at(&mut self, cx: &mut Context<'_>, id: PathId, of: (LinkId, bool)) {
        let next = self.plan().spares(cx.now).0.into_iter();
        let mut next = next.filter(|way| (way.link, way.local.is_ipv4()) == of);
        let next = next.next().filter(|way| {
            let there = |path: &Path| {
                (path.link, path.route.remote, path.transport())
                    == (Some(way.link), way.remote, way.transport())
            };
            !self.list.iter().any(there)
        });
        match (next, self.list.get(id)) {
            (Some(way), Some(path))
                if [path.transport(), way.transport()] == [Transport::Udp; 2] =>
            {
                self.lead(cx, id, way);
            }
            _ => self.remove_path(cx, id),
        }
        self.stand_by(cx);
    }

    /// Asks the spare paths that nobody has heard of for a while.
    pub(crate) fn check_spares(&mut self, cx: &mut Context<'_>) {
        let due = |path: &&Path| {
            let due = self.plan().check_due(path, cx.config.saving.frugal);
            due.is_some_and(|due| due <= cx.now)
        };
        let due = self.list.ids(due);
        for id in due {
            self.ask(cx.now, id);
        }
    }

    /// Client: an answer to what was asked at `asked_at` says nothing of what the gateway knows, if
    /// the path has got its share since, or there are new keys.
    pub(crate) fn repeat_share(
        &mut self,
        now: Instant,
        (id, asked_at): (PathId, Instant),
        keys_since: Option<Instant>,
    ) {
        let Some(path) = self.list.get(id).filter(|_| !self.at_gateway()) else { return };
        let is_said = asked_at >= path.shared_since()
            && (path.congestion.is_none() || Some(asked_at) >= keys_since);
        if !is_said {
            self.ask(now, id);
        }
    }

    /// Gives places to other links. The time of those may be over at once, so this repeats.
    pub(crate) fn take_rests(&mut self, cx: &mut Context<'_>) {
        while let Some(of) = self.plan().rest_over(cx.now) {
            if let Side::Client(connector) = &mut self.side {
                connector.unanswered.let_rest(cx.now, of);
            }
            let active = self.list.active_id();
            let leaves = |path: &&Path| {
                !path.is_proven() && Some(path.id) != active && family_of(path) == Some(of)
            };
            self.remove_paths(cx, self.list.ids(leaves));
            self.stand_by(cx);
        }
    }
}
