//! Scenarios: runs on an emulated network, their measurements, and the verdict.
//!
//! A scenario is written once, over a [`crate::ground::Ground`]: it runs on namespaces with the
//! real binary, or in virtual time over the production core. Its [`Stage`] builds the backend.
//! Settings, seeds, limits, lateness, JSON and exit status are in [`run`], which knows no scenario.
//!
//! A scenario defines the run, the keys that it measures, and the limits. It does not decide
//! whether it passed: limits and measured values alone do.

pub mod ablation;
pub mod addresses;
pub mod all;
mod asymmetric;
mod beside;
pub mod binary;
mod blackhole;
mod bond;
mod both_move;
mod busy_sessions;
mod calls;
mod commute;
mod competition;
mod compress;
pub mod deploy;
mod disconnects;
mod drawn;
mod failover;
mod family;
mod feedback;
mod first_download;
mod gso_mangled;
mod headers;
mod hop;
pub mod hosts;
mod idle;
mod jobs;
mod kept;
mod latency_qos;
mod links;
mod list;
mod lossy_uplink;
mod many_flows;
pub mod matrix;
mod mesh;
mod modes;
mod nat_rebind;
mod outage;
pub mod paper;
mod persist;
mod plot;
mod priority;
mod random_links;
pub mod record;
mod restart_gateway;
mod resume_loss;
mod roam_client;
mod roam_gateway;
pub mod rows;
pub mod run;
mod schedulers;
pub mod settings;
mod shared_bottleneck;
mod split;
mod ssh_lid;
mod stage;
pub mod statistics;
mod steady;
mod subflows;
mod subnets;
mod symmetric;
mod table;
pub mod testbed;
mod text;
mod tunnel;
mod udp_blocked;
mod udp_policed;
pub mod values;
mod voip;

use crate::emu::{LinkConfig, MS, SECOND};
use crate::ground::{Terrain, Transfer};
use crate::netns::Timekeeping;
pub use list::{SCENARIOS, find};
use paper::Paper;
use record::Limit;
use serde_json::json;
use settings::{Setting, Settings};
pub use stage::Stage;
use std::collections::BTreeMap;
use values::Values;

/// A run and its measurements.
pub trait Scenario: Sync {
    /// Its name, its settings, and its keys.
    fn about(&self) -> About;

    /// The values that papers print for these settings; empty if no paper measured this.
    fn paper(&self, _settings: &Settings) -> Paper {
        Paper::default()
    }

    /// The limits for a pass under these settings, besides those that the run adds.
    fn limits(&self, settings: &Settings) -> Vec<Limit>;

    /// The time in milliseconds that the emulator's lateness is compared with: the smallest bound
    /// under test.
    fn bound_ms(&self, settings: &Settings) -> f64;

    /// Runs it, on several backends one after the other if it needs them.
    ///
    /// # Errors
    /// The reason why it could not run: a program of the lab failed, or the kernel refused
    /// something. A bad result is no error, nor is a failure of the program under test.
    fn run(&self, stage: &Stage<'_>) -> anyhow::Result<Outcome>;
}

/// The description of a scenario.
#[derive(Clone, Copy, Debug)]
pub struct About {
    /// The name that people type.
    pub name: &'static str,
    /// Its purpose in one line.
    pub summary: &'static str,
    /// The settings it understands besides the common ones.
    pub settings: &'static [Setting],
    /// Its keys at least, and the better direction of each.
    pub keys: &'static [Key],
}

/// Time in which a client finds its links, and in which earlier traffic drains from their queues.
const CALM_NS: u64 = 2 * SECOND;

/// The link of most scenarios: the distant testbed of Alshalan's thesis. Each seed draws a similar
/// round trip ([`drawn`]).
const USUAL: CleanLink = CleanLink { rate: 20_000_000, round_trip_ns: 40 * MS };

/// The link of the thesis' local testbed.
const LOCAL: CleanLink = CleanLink { rate: 100_000_000, round_trip_ns: MS };

/// A link without losses, by its rate in bits per second and its round trip.
#[derive(Clone, Copy, Debug)]
struct CleanLink {
    rate: u64,
    round_trip_ns: u64,
}

impl CleanLink {
    fn link(&self) -> LinkConfig {
        LinkConfig::lossless(self.rate, self.round_trip_ns)
    }

    fn terrain(&self) -> Terrain {
        Terrain::of(self.link())
    }

    /// This number of its round trips, in milliseconds.
    fn round_trips_ms(&self, count: f64) -> f64 {
        statistics::rounded(self.round_trip_ns as f64 * count / MS as f64)
    }

    /// The longest pause of a download that a move to it may cause, in milliseconds.
    fn download_still_ms(&self) -> f64 {
        self.round_trips_ms(1.0) + DOWNLOAD_MARGIN_MS as f64
    }

    /// The longest pause that a move to it may cause, in milliseconds: a round trip and
    /// [`MARGIN_MS`].
    fn move_ms(&self) -> f64 {
        self.round_trips_ms(1.0) + MARGIN_MS as f64
    }
}

/// The cost of a change of path beyond a round trip, in milliseconds.
const MARGIN_MS: u64 = 10;

/// The cost of a move for a download beyond a round trip, in milliseconds: at most 101 over ten
/// seeds in virtual time, and a fifth more. Packets in flight are sent again, and those that had
/// arrived wait for them.
const DOWNLOAD_MARGIN_MS: u64 = 120;

/// The covered part of a scenario's grid of conditions. A scenario of one cell has no choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Grid {
    /// The cells that represent the others.
    Default,
    /// All of them.
    Full,
}

impl Grid {
    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Full => "full",
        }
    }
}

/// The setting behind [`Stage::family`].
const FAMILY: Setting = Setting::choice("family", &["4", "6"], "IP version outside of the tunnel");

/// A measured key.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Its name, with the unit.
    pub name: &'static str,
    /// The worse direction.
    pub worse: Worse,
}

/// The worse direction of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Worse {
    /// Greater is worse: times, losses.
    Higher,
    /// Smaller is worse: rates, shares.
    Lower,
    /// False is worse.
    False,
}

/// The result of a run.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Measured values by key.
    pub measured: Values,
    /// The reason why a key has no value, if the run knows it.
    pub not_measured: BTreeMap<String, String>,
    /// The single values of each median.
    pub samples: BTreeMap<String, Vec<f64>>,
    /// Further limits that only some runs have.
    pub limits: Vec<Limit>,
    /// The same run without Rove, or why there is none.
    pub baseline: Baseline,
    /// What failed in the program under test before the run's end.
    pub broke: Option<String>,
    /// The emulator's lateness; `None` in virtual time, which is never late.
    pub timekeeping: Option<Timekeeping>,
}

/// Comparison in the same run.
#[derive(Clone, Debug)]
pub enum Baseline {
    /// The values of each other, by name.
    Measured(BTreeMap<String, Values>),
    /// None, for this reason.
    None(String),
}

impl Default for Baseline {
    fn default() -> Self {
        Self::None("nothing to compare with".to_owned())
    }
}

impl Outcome {
    /// Adds the result of another part of the same run.
    fn absorb(&mut self, other: Self) {
        self.measured.extend(other.measured);
        self.not_measured.extend(other.not_measured);
        self.samples.extend(other.samples);
        self.limits.extend(other.limits);
        self.broke = self.broke.take().or(other.broke);
        self.timekeeping = match (self.timekeeping.take(), other.timekeeping) {
            (Some(mut all), Some(one)) => {
                all.add(&one);
                Some(all)
            }
            (all, one) => all.or(one),
        };
    }

    /// Notes a measured value, rounded; null if there is none.
    fn measure(&mut self, key: &str, value: Option<f64>) {
        self.measured.insert(key.to_owned(), json!(value.map(statistics::rounded)));
    }

    /// Notes that a key has no value, and the reason.
    fn skip(&mut self, key: &str, why: &str) {
        self.measure(key, None);
        self.not_measured.insert(key.to_owned(), why.to_owned());
    }

    /// Notes a number.
    fn count(&mut self, key: &str, number: u64) {
        self.measured.insert(key.to_owned(), json!(number));
    }

    /// Notes whether something holds.
    fn hold(&mut self, key: &str, holds: bool) {
        self.measured.insert(key.to_owned(), json!(holds));
    }

    /// Adds a limit.
    fn ask(&mut self, limit: Limit) {
        self.limits.push(limit);
    }

    /// Notes the single values behind a median.
    fn sample(&mut self, key: &str, values: Vec<f64>) {
        self.samples.insert(key.to_owned(), values);
    }

    /// Notes the result of a download with this number of acts. If it ended before the last of
    /// them, it proves nothing.
    fn transferred(&mut self, transfer: &Transfer, acts: usize) {
        self.measure("transfer_s", transfer.seconds());
        self.hold("checksum_ok", transfer.intact && transfer.moments.len() == acts);
    }
}

impl Key {
    /// A key whose greater values are worse.
    pub const fn lower_is_better(name: &'static str) -> Self {
        Self { name, worse: Worse::Higher }
    }

    /// A key whose smaller values are worse.
    pub const fn higher_is_better(name: &'static str) -> Self {
        Self { name, worse: Worse::Lower }
    }

    /// Keys of several scenarios, and then a scenario's own.
    ///
    /// # Panics
    /// At compile time, unless the number fits.
    const fn with<const N: usize>(several: &[Self], own: &[Self]) -> [Self; N] {
        assert!(several.len() + own.len() == N, "count them");
        let mut all = [Self::must_hold(""); N];
        let mut at = 0;
        while at < N {
            all[at] = if at < several.len() { several[at] } else { own[at - several.len()] };
            at += 1;
        }
        all
    }

    /// A key that must be true.
    pub const fn must_hold(name: &'static str) -> Self {
        Self { name, worse: Worse::False }
    }
}
