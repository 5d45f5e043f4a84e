//! What the paths of a session have to do with each other's queues: which of them lead through one
//! (`bond::bottleneck`), and what each is told of the others because of that. What a path makes of
//! it is for its congestion controller.

use super::{Context, Peer};
use crate::ablation::Heuristic;
use crate::bond::Recovery;
use crate::path::{Path, PathId};
use crate::time::Instant;

impl Peer {
    /// Something was told of the path `id`, which carries a share: what it does to find out whose
    /// its queue is the others do as well, and who leads through one queue is looked at.
    pub(super) fn couple(&mut self, cx: &Context<'_>, id: PathId) {
        let now = cx.now;
        let Some(path) = self.paths.get_mut(id) else { return };
        let Some(controller) = path.congestion.as_mut() else { return };
        if !cx.config.competes {
            controller.forget_others();
        }
        if self.bond.recovery == Recovery::Latency {
            controller.forget_variation();
        }
        if !cx.config.couples || self.bond.ablation.is_off(Heuristic::Coupling) {
            return;
        }
        let empties = controller.takes_emptying();
        if let Some(queue) = path.delay.queue(now).filter(|_| controller.is_steady()) {
            self.bond.bottlenecks.note(now, id, queue);
        }
        if let Some(pace) = empties {
            let others = self.paths.iter_mut().filter(|other| other.id != id);
            let others = others.filter_map(|other| other.congestion.as_mut());
            others.for_each(|other| other.empty_beside(now, pace));
        }
        if self.bond.bottlenecks.compare(now) {
            self.set_company(now);
        }
    }

    /// Each path hears what others carry through the queue that it leads through.
    fn set_company(&mut self, now: Instant) {
        let bottlenecks = &self.bond.bottlenecks;
        let carried = |path: &Path| path.congestion.as_ref().and_then(|one| one.rate());
        let rates: Vec<(PathId, f64)> =
            self.paths.iter().filter_map(|path| Some((path.id, carried(path)?))).collect();
        for path in self.paths.iter_mut() {
            let Some(controller) = &mut path.congestion else { continue };
            let others = rates.iter().filter(|(other, _)| *other != path.id);
            let company = others.filter(|(id, _)| bottlenecks.are_companions(now, path.id, *id));
            controller.set_company(company.map(|(_, rate)| rate).sum());
        }
    }
}
