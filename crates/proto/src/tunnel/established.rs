//! A client takes new keys into use.

use super::{Context, Side, Tunnel};
use crate::crypto::EpochKeys;
use crate::id::LinkId;
use crate::outbox::Route;
use crate::path::{Path, PathId, Trust};
use crate::paths::PathManager;
use crate::paths::connector::Answer;
use crate::session::epoch::{Agreed, Epoch};
use crate::time::{Duration, Instant};

/// New keys, and what they were agreed on by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Installed {
    /// The path by which the answer came.
    pub(crate) path: PathId,
    /// Whether there was no session before.
    pub(crate) first: bool,
    /// Time from the first handshake message to the answer.
    pub(crate) took: Duration,
}

impl Tunnel {
    /// The gateway accepted: the new keys are used at once.
    pub(crate) fn install(
        &mut self,
        cx: &mut Context<'_>,
        answer: Answer,
        keys: EpochKeys,
    ) -> Option<Installed> {
        let Answer { attempt, welcome, .. } = answer;
        let started = self.paths.side.client_mut()?.accept(cx, &attempt);
        let (route, epoch) = (attempt.route, attempt.epoch);
        let agreed = Agreed {
            id: epoch,
            keys,
            initiator: true,
            origin: route,
            features: welcome.features,
            sealing: cx.config.sealing,
            ours: attempt.indices,
            theirs: welcome.indices.to_vec(),
        };
        let first = self.epochs.install(cx.now, Epoch::new(cx.now, agreed), cx.indices);
        let path = self.path_of_answer(cx, route, attempt.candidate.link, attempt.sent_at);
        if let Some(path) = self.paths.list.get_mut(path) {
            path.note_observed(welcome.observed);
        }
        self.manage(cx, PathManager::forget_gone);
        Some(Installed { path, first, took: cx.now.saturating_since(started) })
    }

    /// The new keys were introduced: paths are what they should be under them.
    pub(crate) fn settle_in(&mut self, cx: &mut Context<'_>, path: PathId) {
        // Shows the gateway that the keys arrived. What confirms is small: it must arrive even
        // where large datagrams do not. Its answer begins the search for the path's MTU.
        self.manage(cx, |paths, cx| paths.ask(cx.now, path));
        self.manage(cx, |paths, cx| paths.insist(cx.now, path));
        self.send_control(cx);
        self.manage(cx, |paths, cx| {
            paths.close_unused_sockets(cx);
            paths.take_better(cx);
            paths.stand_by(cx);
            // What was said under the old keys of who shares may have come too late.
            let shared = paths.list.ids(|path| path.has_share());
            shared.into_iter().for_each(|id| paths.ask(cx.now, id));
        });
        self.changes.note_carries();
    }

    /// The path by which the answer came: it carries, and the gateway is there.
    fn path_of_answer(
        &mut self,
        cx: &mut Context<'_>,
        route: Route,
        link: LinkId,
        sent_at: Instant,
    ) -> PathId {
        let id = match self.paths.list.by_route(&route) {
            Some(path) => path.id,
            None => {
                let id = self.paths.list.next_id();
                let path = Path::new(id, route, Some(link), cx.now, Trust::Proven);
                self.manage(cx, |paths, cx| {
                    paths.add_path(cx, path);
                    // It came by a socket of its own. What was there between these addresses does
                    // not carry, or it would have been asked by it. If a path was asked that was
                    // there already, others may carry beside it.
                    paths.remove_paths(cx, paths.list.twins_of(id));
                });
                id
            }
        };
        if let Side::Client(connector) = &mut self.paths.side {
            connector.unanswered.note_answer(Some(link), route.local);
        }
        // One that was only begun, as after a move, may lead nowhere; this one was just answered.
        let is_active_able = self.paths.list.active().is_some_and(Path::is_able);
        if let Some(path) = self.paths.list.get_mut(id) {
            path.note_handshake(cx.now, sent_at);
        }
        if !is_active_able {
            self.paths.list.activate(id);
        }
        id
    }
}
