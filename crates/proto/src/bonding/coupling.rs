//! Coupling of the paths of a session that share a bottleneck (`multipath::bottleneck`): the
//! congestion controller of each path is told of the others.

use super::Bonding;
use crate::ablation::Heuristic;
use crate::multipath::Recovery;
use crate::path::{Path, PathId};
use crate::time::Instant;
use crate::tunnel::{Context, Tunnel};

impl Bonding {
    /// Something was told of the path `id`, which carries a share: what it does to find out whose
    /// its queue is the others do as well, and who leads through one queue is looked at.
    pub(crate) fn couple(&mut self, cx: &Context<'_>, tunnel: &mut Tunnel, id: PathId) {
        let now = cx.now;
        let Some(path) = tunnel.paths.list.get_mut(id) else { return };
        let Some(controller) = path.congestion.as_mut() else { return };
        if !cx.config.competes {
            controller.forget_others();
        }
        if self.multipath.recovery == Recovery::Latency {
            controller.forget_variation();
        }
        if !cx.config.couples || self.multipath.ablation.is_off(Heuristic::Coupling) {
            return;
        }
        let empties = controller.takes_emptying();
        if let Some(queue) = path.delay.queue(now).filter(|_| controller.is_steady()) {
            self.multipath.bottlenecks.note(now, id, queue);
        }
        if let Some(pace) = empties {
            let others = tunnel.paths.list.iter_mut().filter(|other| other.id != id);
            let others = others.filter_map(|other| other.congestion.as_mut());
            others.for_each(|other| other.empty_beside(now, pace));
        }
        if self.multipath.bottlenecks.compare(now) {
            self.set_company(tunnel, now);
        }
    }

    /// Each path hears what others carry through the queue that it leads through.
    fn set_company(&self, tunnel: &mut Tunnel, now: Instant) {
        let bottlenecks = &self.multipath.bottlenecks;
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
