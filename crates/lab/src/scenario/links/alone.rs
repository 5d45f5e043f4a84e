//! The rate of the better link alone: several links together must not be slower.
//!
//! This module decides which rate counts. One link alone uses mode `single`. But this mode repairs
//! nothing, so it is no measure on lossy links: there mode `full`, which repairs losses, runs too,
//! and the better of both counts. Without loss, `full` has 1 % less on a steady link, and up to 28
//! % less on a recorded one: there `single` is the measure.

use super::compared::Rate;
use super::{CALM_NS, Cell, Goodput, Link, Mode, mode};
use crate::ground::Terrain;
use crate::scenario::{Outcome, Stage};

/// The rates of one link alone.
pub(in super::super) struct Alone {
    /// The best of them, in Mbit/s.
    pub(in super::super) best_mbps: Option<f64>,
    /// The rate of the fastest link in mode `single`, or why there is none.
    pub(super) single: Result<Rate, String>,
    /// The error that ended a connection early. Such a connection is no measure.
    pub(super) broke: Option<String>,
}

impl<const N: usize> Cell<N> {
    /// The goodput of Rove over the better link, without the other. A slower one runs only if it
    /// could be better.
    ///
    /// # Errors
    /// The reason why it could not be measured.
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

    /// The modes of one link alone that are compared with both links in this mode. A path without a
    /// share repairs nothing in either case.
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
            // It begins at the same moment of a recording.
            ground.pause(CALM_NS)?;
            goodput = self.goodput(stage, ground)?;
            Ok(())
        })?;
        outcome.absorb(told);
        Ok(goodput)
    }
}
