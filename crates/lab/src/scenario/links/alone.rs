//! What the better of the links has alone, which whoever carries by all of them must not fall
//! behind.
//!
//! Decides what counts as that. One link alone is carried by in mode `single`; but what repairs
//! nothing is no measure where something is lost, so there it is also carried by in mode `full`,
//! which repairs what it loses, and the better of both counts. Where nothing is lost, `full` has
//! 1 % less by one steady link, and by a recorded one up to 28 %: there `single` is the measure.

use super::{CALM_NS, Cell, Link, Mode, loss, mode};
use crate::ground::Terrain;
use crate::scenario::{Outcome, Stage};

impl<const N: usize> Cell<N> {
    /// The goodput of Rove over the better of the links, which alone is there, in Mbit/s. A slower
    /// one is tried only where it could be better.
    ///
    /// # Errors
    /// What kept it from being measured.
    pub(in super::super) fn best_mbps(
        &self,
        stage: &Stage<'_>,
        outcome: &mut Outcome,
    ) -> anyhow::Result<Option<f64>> {
        let mut links = self.pair.to_vec();
        links.sort_by_key(|link| std::cmp::Reverse(link.kbps[self.to as usize]));
        links.dedup();
        let mut best: Option<f64> = None;
        for link in links {
            let is_slower = best.is_some_and(|best| best >= link.mbps_to(self.to));
            if is_slower && link.recording.is_none() {
                continue;
            }
            for &mode in self.modes_alone(mode(stage)) {
                let alone_mbps = self.alone_mbps(stage, link, mode, outcome)?;
                best = best.into_iter().chain(alone_mbps).reduce(f64::max);
            }
        }
        Ok(best)
    }

    /// How one link alone is carried by, to be compared with both in this mode: what goes by one of
    /// two does not repair either.
    pub(super) fn modes_alone(&self, both: Mode) -> &'static [Mode] {
        let is_repaired = both == Mode::Full && self.loss != "0";
        if is_repaired { &[Mode::Single, Mode::Full] } else { &[Mode::Single] }
    }

    fn alone_mbps(
        &self,
        stage: &Stage<'_>,
        link: Link,
        mode: Mode,
        outcome: &mut Outcome,
    ) -> anyhow::Result<Option<f64>> {
        let alone = Terrain { mode, ..Terrain::of(link.config(loss(self.loss))) };
        let mut mbps = None;
        let told = stage.on_ground(&alone, &mut |ground, _| {
            // It begins in the same moment of a recording.
            ground.pause(CALM_NS)?;
            mbps = self.goodput(stage, ground)?.mbps;
            Ok(())
        })?;
        outcome.absorb(told);
        Ok(mbps)
    }
}
