//! Coupling of the paths of a session that share a bottleneck (`multipath::bottleneck`): the
//! congestion controller of each path is told of the others.

use super::Bonding;
use crate::ablation::Heuristic;
use crate::congestion::Conditions;
use crate::multipath::Recovery;
use crate::path::{Path, PathId};
use crate::time::Instant;
use crate::tunnel::{Context, Told, Tunnel};

impl Bonding {
    /// What the session tells the congestion controllers of its paths.
    pub(crate) fn conditions(&self, cx: &Context<'_>) -> Conditions {
        Conditions {
            turns_late: self.late.usual(),
            gives_way: !cx.config.competes,
            wants_short: self.settings.recovery == Recovery::Latency,
            ablation: self.ablation,
            ..Conditions::default()
        }
    }

    /// Something was told of a path. If it began a trial, the others join it. Now and then the
    /// paths that share a bottleneck are looked for.
    pub(crate) fn couple(&mut self, cx: &Context<'_>, tunnel: &mut Tunnel, told: &Told) {
        let (id, trial) = (told.path, told.findings.trial);
        let now = cx.now;
        if !cx.config.couples || self.ablation.is_off(Heuristic::Coupling) {
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
        let bottlenecks = &self.bottlenecks;
        let carried = |path: &Path| path.congestion.as_ref().and_then(|one| one.rate());
        let rates: Vec<(PathId, f64)> =
            tunnel.paths.list.iter().filter_map(|path| Some((path.id, carried(path)?))).collect();
        for path in tunnel.paths.list.iter_mut() {
            let Some(controller) = &mut path.congestion else { continue };
            let others = rates.iter().filter(|(other, _)| *other != path.id);
            let company = others.filter(|(id, _)| bottlenecks.are_companions(now, path.id, *id));
            controller.set_company(company.map(|(_, rate)| rate).sum());
        }
    }
}
