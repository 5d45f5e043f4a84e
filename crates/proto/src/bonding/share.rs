//! Which paths have a share.
//!
//! A client in [`Mode::Full`] shares its data among paths of all links. It tells the gateway in a
//! challenge on each of these paths, and the gateway does the same. Each path has its own
//! congestion controller (`coupling`), and its losses are repaired by the earliest path
//! (`retransmit`). `paths::plan::spread` chooses the paths, and `dispatch` chooses among
//! them for each packet.

use super::Bonding;
use crate::ablation::Heuristic;
use crate::flow::rules::Assist;
use crate::flow::{Assists, Flows};
use crate::multipath::Mode;
use crate::path::{Path, PathId};
use crate::paths::PathManager;
use crate::time::Instant;
use crate::tunnel::{Context, Tunnel};

impl Bonding {
    /// Assists connections where that is wanted: only what is shared among paths is paced, and
    /// repaired, by this node. It does not begin with one path: there is little to gain, and a
    /// crash would break off what is owed. Where it has begun, a path may be the last for a while.
    /// Beside somebody else who fills the queue it does: a path is sent by a window there, and what
    /// is kept here fills it, whatever the sender's own window does meanwhile.
    pub(crate) fn assist(&mut self, cx: &Context<'_>, tunnel: &mut Tunnel, flows: &mut Flows) {
        let is_wanted = flows.wants_assist() == Assist::On && self.is_bonded(cx, tunnel);
        let assists = match tunnel.sharing.len() {
            _ if !is_wanted => Assists::None,
            0 | 1 if !tunnel.paths.list.compete() => Assists::Begun,
            _ => Assists::All,
        };
        flows.set_assist(assists);
    }

    /// Client: shares data among the paths that are to carry together, or leaves it to one.
    pub(crate) fn share_paths(&mut self, cx: &mut Context<'_>, tunnel: &mut Tunnel) {
        if tunnel.paths.at_gateway()
            || (cx.config.mode != Mode::Full && !tunnel.paths.list.iter().any(Path::has_share))
        {
            return;
        }
        let is_full = cx.config.mode == Mode::Full;
        let chosen = |path: &Path| is_full && tunnel.paths.plan().is_to_share(cx.now, path);
        let changed = |path: &&Path| path.congestion.is_some() != chosen(path);
        let changed = tunnel.paths.list.ids(changed);
        let any = !changed.is_empty();
        for id in changed {
            let is_shared = tunnel.paths.list.is_shared(id);
            self.set_shared(tunnel, cx.now, id, !is_shared);
            let Some(path) = tunnel.paths.list.get_mut(id) else { continue };
            path.probes.say_anew(cx.now);
            let settled = path.mtu.is_settled();
            if !path.is_gone() {
                tunnel.manage(cx, |paths, cx| paths.ask(cx.now, id));
            }
            if !settled {
                tunnel.search_mtu(cx, id);
            }
        }
        if any {
            tunnel.manage(cx, PathManager::stand_by); // of those that carry there may be more
        }
    }

    /// Data is shared with a path from now on, or no more. One that takes the place of all that
    /// carried before is perhaps as the fastest of those was.
    pub(crate) fn set_shared(
        &mut self,
        tunnel: &mut Tunnel,
        now: Instant,
        id: PathId,
        is_shared: bool,
    ) {
        let others = || tunnel.paths.list.iter().filter(|other| other.id != id);
        let rate = |path: &Path| path.congestion.as_ref().and_then(|one| one.rate());
        let known = others().filter_map(rate).reduce(f64::max);
        let carried = known.or(self.carried).filter(|_| !others().any(Path::has_share));
        let Some(path) = tunnel.paths.list.get_mut(id) else { return };
        if !is_shared {
            self.carried = rate(path).or(self.carried);
        }
        let is_new = is_shared && path.congestion.is_none();
        path.set_shared(now, is_shared);
        if let (true, Some(controller), Some(carried)) = (is_new, &mut path.congestion, carried) {
            if !self.ablation.is_off(Heuristic::Guess) {
                controller.guess(carried);
            }
            tunnel.changes.note_replaced(now);
        }
    }
}
