//! Scenarios: stories told on an emulated network, what was measured in them, and the verdict.
//!
//! A scenario has two runners: on namespaces with the real binary, and in virtual time over the
//! production core. Both return the same [`Outcome`]; everything around them (settings, seeds,
//! limits, lateness, JSON, exit status) is in [`run`] and knows no scenario.
//!
//! What a scenario decides: the story, the keys it measures, and the limits. What it refuses to
//! know: whether it passed; that is computed from limits and measured values alone.

pub mod addresses;
pub mod binary;
pub mod deploy;
mod in_virtual_time;
pub mod record;
mod roam_client;
pub mod run;
pub mod settings;
pub mod statistics;
mod story;
pub mod testbed;
mod tunnel;

use crate::netns::{Entered, Lateness};
use addresses::Family;
use binary::Binary;
use record::{Limit, Values};
use serde_json::Value;
use settings::{Kind, Setting, Settings};
use std::collections::BTreeMap;

/// Every scenario, in the order of `rove-lab list`.
pub const SCENARIOS: &[&dyn Scenario] = &[&tunnel::Tunnel, &roam_client::RoamClient];

/// A story and what is measured in it.
pub trait Scenario: Sync {
    /// The name that people type.
    fn name(&self) -> &'static str;

    /// One line on what is shown.
    fn summary(&self) -> &'static str;

    /// The settings it understands besides the common ones.
    fn settings(&self) -> &'static [Setting];

    /// What it measures at least, and which way is better.
    fn keys(&self) -> &'static [Key];

    /// The paper's own numbers under these settings, with where they stand; null where no paper
    /// measured this.
    fn paper(&self, settings: &Settings) -> Value;

    /// What must hold for a pass under these settings.
    fn limits(&self, settings: &Settings) -> Vec<Limit>;

    /// The time, in milliseconds, against which the emulator's lateness is held: the smallest
    /// bound under test.
    fn bound_ms(&self, settings: &Settings) -> f64;

    /// Tells the story on namespaces.
    ///
    /// # Errors
    /// What kept it from being told: a program that failed, a refusal of the kernel. A bad result
    /// is no error.
    fn run_netns(&self, stage: &Stage<'_>) -> anyhow::Result<Outcome>;

    /// Tells the story in virtual time; `None` where that cannot be, for want of a model.
    ///
    /// # Errors
    /// As for namespaces.
    fn run_virtual(
        &self,
        _seed: u64,
        _grid: Grid,
        _settings: &Settings,
    ) -> Option<anyhow::Result<Outcome>> {
        None
    }
}

/// How much of a scenario's grid of conditions is covered. A scenario of one cell has no choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Grid {
    /// The cells that stand for the rest.
    Default,
    /// All of them.
    Full,
}

/// The setting behind [`Stage::family`].
const FAMILY: Setting =
    Setting::new("family", Kind::Choice(&["4", "6"]), "IP version outside of the tunnel");

/// A measured key.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Its name, with the unit.
    pub name: &'static str,
    /// Which values of it are worse.
    pub worse: Worse,
}

/// Which way a key gets worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Worse {
    /// Greater is worse: times, losses.
    Higher,
    /// Smaller is worse: rates, shares.
    Lower,
    /// False is worse.
    False,
}

/// Where a story on namespaces is told, and under which conditions.
pub struct Stage<'a> {
    /// Proof that there are namespaces.
    pub entered: &'a Entered,
    /// All chance follows from it.
    pub seed: u64,
    /// What was set.
    pub settings: &'a Settings,
    /// How much of the grid to cover.
    pub grid: Grid,
    /// The binary under test; none when the bare link is.
    pub rove: Option<&'a Binary>,
    /// Tells people what goes on.
    pub tell: &'a dyn Fn(&str),
}

/// What a story brought to light.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Measured values by key.
    pub measured: Values,
    /// The single values behind medians.
    pub samples: BTreeMap<String, Vec<f64>>,
    /// The same story without Rove; or why there is none.
    pub baseline: Baseline,
    /// How late the emulator was; none in virtual time, which is never late.
    pub lateness: Option<Lateness>,
}

/// What else was measured in the same run.
#[derive(Clone, Debug)]
pub enum Baseline {
    /// By name of the other, its values.
    Measured(BTreeMap<String, Values>),
    /// Nothing, for this reason.
    None(String),
}

impl Default for Baseline {
    fn default() -> Self {
        Self::None("nothing to compare with".to_owned())
    }
}

impl Stage<'_> {
    /// The family that the tunnel uses outside.
    pub fn family(&self) -> Family {
        if self.settings.text("family") == "6" { Family::V6 } else { Family::V4 }
    }

    /// True when the mechanism is to be broken on purpose: the run must fail.
    pub fn control(&self) -> bool {
        self.settings.flag("control")
    }
}

impl Key {
    /// A key of which greater values are worse.
    pub const fn lower_is_better(name: &'static str) -> Self {
        Self { name, worse: Worse::Higher }
    }

    /// A key of which smaller values are worse.
    pub const fn higher_is_better(name: &'static str) -> Self {
        Self { name, worse: Worse::Lower }
    }

    /// A key that must be true.
    pub const fn must_hold(name: &'static str) -> Self {
        Self { name, worse: Worse::False }
    }
}

/// The scenario of this name.
pub fn find(name: &str) -> Option<&'static dyn Scenario> {
    SCENARIOS.iter().copied().find(|scenario| scenario.name() == name)
}
