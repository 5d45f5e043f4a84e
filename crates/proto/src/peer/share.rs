//! Which paths have a share, and what the parts of a peer are told of that.
//!
//! A client in [`Mode::Full`] shares its data among paths of all links. It tells the gateway in a
//! challenge on each of these paths, and the gateway does the same. Each path has its own
//! congestion controller, and its losses are repaired by the earliest path (`repair`).
//! `paths::plan::spread` chooses the paths, and `bonding` chooses among them for each packet.
//!
//! The controllers of paths that share a bottleneck (`multipath::bottleneck`) are coupled: each is
//! told of the others.

use super::ways;
use crate::ablation::Heuristic;
use crate::bonding::Bonding;
use crate::congestion::Conditions;
use crate::flow::rules::Assist;
use crate::flow::{Assists, Flows};
use crate::multipath::bottleneck::Bottlenecks;
use crate::multipath::{Mode, Recovery};
use crate::path::{Path, PathId};
use crate::paths::PathManager;
use crate::time::Instant;
use crate::tunnel::{Context, Told, Tunnel};

/// What is known of the paths that have or had a share.
#[derive(Debug, Default)]
pub(super) struct Shares {
    /// The rate in bytes per second of the last path that lost its share.
    carried: Option<f64>,
    /// Which paths share a bottleneck.
    bottlenecks: Bottlenecks,
}

impl Shares {
    /// Client: shares data among the paths that are to carry together, or leaves it to one.
    pub(super) fn share_paths(&mut self, cx: &mut Context<'_>, tunnel: &mut Tunnel) {
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
            self.set_shared(cx, tunnel, id, !is_shared);
            let Some(path) = tunnel.paths.list.get_mut(id) else { continue };
            path.probes.say_anew(cx.now);
            let settled = path.mtu.is_settled();
            if !path.is_gone() {
                tunnel.manage(cx, |paths, cx| paths.ask(cx.now, id));
            }
            // An answer on the active path begins the search by itself.
            if !settled && tunnel.paths.list.active_id() != Some(id) {
                tunnel.search_mtu(cx, id);
            }
        }
        if any {
            tunnel.manage(cx, PathManager::stand_by); // of those that carry there may be more
        }
    }

    /// Data is shared with a path from now on, or no more. One that takes the place of all that
    /// carried before is perhaps as the fastest of those was.
    pub(super) fn set_shared(
        &mut self,
        cx: &Context<'_>,
        tunnel: &mut Tunnel,
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
        path.set_shared(cx.now, is_shared);
        if let (true, Some(controller), Some(carried)) = (is_new, &mut path.congestion, carried) {
            if !cx.config.ablation.is_off(Heuristic::Guess) {
                controller.guess(carried);
            }
            tunnel.changes.note_replaced(cx.now);
        }
    }

    /// Something was told of a path. If it began a trial, the others join it. Now and then the
    /// paths that share a bottleneck are looked for.
    pub(super) fn couple(&mut self, cx: &Context<'_>, tunnel: &mut Tunnel, told: &Told) {
        let (id, trial) = (told.path, told.findings.trial);
        let now = cx.now;
        if !cx.config.couples || cx.config.ablation.is_off(Heuristic::Coupling) {
            return;
        }
        let Some(path) = tunnel.paths.list.get_mut(id) else { return };
        let Some(controller) = path.congestion.as_mut() else { return };
        if let Some(queue) = path.delay.queue(now).filter(|_| controller.is_steady()) {
            self.bottlenecks.note(now, id, queue);
        }
        if let Some(pace) = trial {
            let others = tunnel.paths.list.iter_mut().filter(|other| other.id != id);
            let others = others.filter_map(|other| other.congestion.as_mut());
            others.for_each(|other| other.join_trial(now, pace));
        }
        if self.bottlenecks.compare(now) {
            self.set_company(tunnel, now);
        }
    }

    /// Each path hears what others carry through the queue that it leads through.
    fn set_company(&self, tunnel: &mut Tunnel, now: Instant) {
        let carried = |path: &Path| path.congestion.as_ref().and_then(|one| one.rate());
        let rates: Vec<(PathId, f64)> =
            tunnel.paths.list.iter().filter_map(|path| Some((path.id, carried(path)?))).collect();
        for path in tunnel.paths.list.iter_mut() {
            let Some(controller) = &mut path.congestion else { continue };
            let others = rates.iter().filter(|(other, _)| *other != path.id);
            let company =
                others.filter(|(id, _)| self.bottlenecks.are_companions(now, path.id, *id));
            controller.set_company(company.map(|(_, rate)| rate).sum());
        }
    }
}

/// What the session tells the congestion controllers of its paths.
pub(super) fn conditions(bonding: &Bonding, cx: &Context<'_>) -> Conditions {
    Conditions {
        turns_late: bonding.late.usual(),
        gives_way: !cx.config.competes,
        wants_short: bonding.settings.recovery == Recovery::Latency,
        ablation: cx.config.ablation,
        ..Conditions::default()
    }
}

/// Assists connections where that is wanted: only what is shared among paths is paced, and
/// repaired, by this node. It does not begin with one path: there is little to gain, and a crash
/// would break off what is owed. Where it has begun, a path may be the last for a while. Beside
/// somebody else who fills the queue it does: a path is sent by a window there, and what is kept
/// here fills it, whatever the sender's own window does meanwhile.
pub(super) fn assist(now: Instant, bonding: &mut Bonding, tunnel: &mut Tunnel, flows: &mut Flows) {
    let is_wanted = flows.wants_assist() == Assist::On && ways::are_shared(bonding, tunnel, now);
    let assists = match bonding.ways().len() {
        _ if !is_wanted => Assists::None,
        0 | 1 if !tunnel.paths.list.compete() => Assists::Begun,
        _ => Assists::All,
    };
    flows.set_assist(assists);
}
