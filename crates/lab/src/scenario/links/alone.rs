//! What the better of the links has alone, which whoever carries by all of them must not fall
//! behind.
//!
//! Decides what counts as that. One link alone is carried by in mode `single`; but what repairs
//! nothing is no measure where something is lost, so there it is also carried by in mode `full`,
//! which repairs what it loses, and the better of both counts. Where nothing is lost, `full` has
//! 1 % less by one steady link, and by a recorded one up to 28 %: there `single` is the measure.

use super::compared::Rate;
use super::{CALM_NS, Cell, Goodput, Link, Mode, mode};
use crate::ground::Terrain;
use crate::scenario::{Outcome, Stage};

/// What there is by one link alone.
pub(in super::super) struct Alone {
    /// The best of it, in Mbit/s.
    pub(in super::super) best_mbps: Option<f64>,
    /// What the fastest link has in mode `single`, or why it came to nothing.
    pub(super) single: Result<Rate, String>,
    /// What ended a connection early, which then is no measure.
    pub(super) broke: Option<String>,
}

impl<const N: usize> Cell<N> {
    /// The goodput of Rove over the better of the links, which alone is there. A slower one is
    /// tried only where it could be better.
    ///
    /// # Errors
    /// What kept it from being measured.
    pub(in super::super) fn alone(
        &self,
        stage: &Stage<'_>,
        outcome: &mut Outcome,
    ) -> anyhow::Result<Alone> {
        let mut best: Option<f64> = None;
        let (mut single, mut broke) = (None, None);
        for link in self.by_rate() {
            let is_slower = best.is_some_and(|best| best >= link.mbps_to(self.to));
            if is_slower && link.recording.is_none() {
                continue;
            }
            for &mode in self.modes_alone(mode(stage)) {
                let goodput = self.goodput_alone(stage, link, mode, outcome)?;
                best = best.into_iter().chain(goodput.mbps).reduce(f64::max);
                let why = goodput.run.transfer.broke.as_ref();
                broke = broke.or_else(|| why.map(|why| format!("by {} alone: {why}", link.name())));
                let rate = || Rate::of(&goodput, Self::file_bytes(stage));
                single = single.or_else(|| (mode == Mode::Single).then(rate));
            }
        }
        let single = single.unwrap_or_else(|| Err("there is no link".to_owned()));
        Ok(Alone { best_mbps: best, single, broke })
    }

    /// The links, each once, the fastest first.
    pub(super) fn by_rate(&self) -> Vec<Link> {
        let mut links = self.pair.to_vec();
        links.sort_by_key(|link| std::cmp::Reverse(link.kbps[self.to as usize]));
        links.dedup();
        links
    }

    /// How one link alone is carried by, to be compared with both in this mode: what goes by one of
    /// two does not repair either.
    pub(super) fn modes_alone(&self, both: Mode) -> &'static [Mode] {
        let is_repaired = both == Mode::Full && self.is_lossy();
        if is_repaired { &[Mode::Single, Mode::Full] } else { &[Mode::Single] }
    }

    /// One link without another.
    pub(super) fn terrain_alone(&self, link: Link, mode: Mode) -> Terrain {
        Terrain { mode, ..Terrain::of(link.config(link.loss(self.loss))) }
    }

    fn goodput_alone(
        &self,
        stage: &Stage<'_>,
        link: Link,
        mode: Mode,
        outcome: &mut Outcome,
    ) -> anyhow::Result<Goodput> {
        let mut goodput = Goodput::default();
        let told = stage.on_ground(&self.terrain_alone(link, mode), &mut |ground, _| {
            // It begins in the same moment of a recording.
            ground.pause(CALM_NS)?;
            goodput = self.goodput(stage, ground)?;
            Ok(())
        })?;
        outcome.absorb(told);
        Ok(goodput)
    }
}
