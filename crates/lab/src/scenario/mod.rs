//! Scenarios: stories told on an emulated network, what was measured in them, and the verdict.
//!
//! A scenario is told once, over a [`crate::ground::Ground`]: on namespaces with the real binary,
//! or in virtual time over the production core. Its [`Stage`] builds the ground. Everything around
//! that (settings, seeds, limits, lateness, JSON, exit status) is in [`run`] and knows no scenario.
//!
//! What a scenario decides: the story, the keys it measures, and the limits. What it refuses to
//! know: whether it passed; that is computed from limits and measured values alone.

pub mod ablation;
pub mod addresses;
pub mod all;
mod asymmetric;
mod beside;
pub mod binary;
mod blackhole;
mod bond;
mod both_move;
mod calls;
mod commute;
mod competition;
pub mod deploy;
mod disconnects;
mod drawn;
mod failover;
mod family;
mod feedback;
mod gso_mangled;
mod hop;
pub mod hosts;
mod idle;
mod jobs;
mod kept;
mod latency_qos;
mod links;
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
use paper::Paper;
use record::Limit;
use serde_json::json;
use settings::{Setting, Settings};
pub use stage::Stage;
use std::collections::BTreeMap;
use values::Values;

/// Every scenario, in the order of `rove-lab list`.
pub const SCENARIOS: &[&dyn Scenario] = &[
    &tunnel::Tunnel,
    &roam_client::RoamClient,
    &roam_gateway::RoamGateway,
    &blackhole::Blackhole,
    &nat_rebind::NatRebind,
    &family::FamilyChange,
    &resume_loss::ResumeLoss,
    &idle::Idle,
    &restart_gateway::RestartGateway,
    &subnets::Subnets,
    &hop::Hop,
    &udp_blocked::UdpBlocked,
    &udp_policed::UdpPoliced,
    &both_move::BothMove,
    &persist::Persist,
    &disconnects::Disconnects,
    &commute::Commute,
    &ssh_lid::SshLid,
    &many_flows::ManyFlows,
    &symmetric::Symmetric,
    &asymmetric::Asymmetric,
    &split::Split,
    &failover::Failover,
    &modes::Modes,
    &schedulers::Schedulers,
    &subflows::Subflows,
    &mesh::Mesh,
    &voip::Voip,
    &latency_qos::LatencyQos,
    &priority::Priority,
    &bond::Bond,
    &shared_bottleneck::SharedBottleneck,
    &competition::Competition,
    &gso_mangled::GsoMangled,
    &random_links::RandomLinks,
];

/// A story and what is measured in it.
pub trait Scenario: Sync {
    /// What it is called, what can be set, and what it measures.
    fn about(&self) -> About;

    /// The values that papers print under these settings; empty where no paper measured this.
    fn paper(&self, _settings: &Settings) -> Paper {
        Paper::default()
    }

    /// What must hold for a pass under these settings, whatever else the story asks of what it
    /// told.
    fn limits(&self, settings: &Settings) -> Vec<Limit>;

    /// The time, in milliseconds, against which the emulator's lateness is held: the smallest
    /// bound under test.
    fn bound_ms(&self, settings: &Settings) -> f64;

    /// Tells the story, on one ground after the other if it needs several.
    ///
    /// # Errors
    /// What kept it from being told: a program of the lab that failed, a refusal of the kernel. A
    /// bad result is no error, nor is it one that what is under test breaks down.
    fn run(&self, stage: &Stage<'_>) -> anyhow::Result<Outcome>;
}

/// What a scenario says of itself.
#[derive(Clone, Copy, Debug)]
pub struct About {
    /// The name that people type.
    pub name: &'static str,
    /// One line on what is shown.
    pub summary: &'static str,
    /// The settings it understands besides the common ones.
    pub settings: &'static [Setting],
    /// What it measures at least, and which way is better.
    pub keys: &'static [Key],
}

/// Time in which the links of a client are found, and in which what was said before drains from
/// their queues.
const CALM_NS: u64 = 2 * SECOND;

/// The link of most stories: the distant testbed of Alshalan's thesis. Each seed draws a round trip
/// about as long ([`drawn`]).
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

    /// So many of its round trips, in milliseconds.
    fn round_trips_ms(&self, count: f64) -> f64 {
        statistics::rounded(self.round_trip_ns as f64 * count / MS as f64)
    }

    /// For how long a move to it may hold up a download, in milliseconds.
    fn download_still_ms(&self) -> f64 {
        self.round_trips_ms(1.0) + DOWNLOAD_MARGIN_MS as f64
    }

    /// What a move to it may cost, in milliseconds: a round trip, and [`MARGIN_MS`].
    fn move_ms(&self) -> f64 {
        self.round_trips_ms(1.0) + MARGIN_MS as f64
    }
}

/// What a change of path may cost beyond a round trip, in milliseconds.
const MARGIN_MS: u64 = 10;

/// What a move may cost a download beyond a round trip, in milliseconds: at most 101 over ten seeds
/// in virtual time, and a fifth more. What was on its way is sent again, and what had come of it
/// already waits until that is there.
const DOWNLOAD_MARGIN_MS: u64 = 120;

/// How much of a scenario's grid of conditions is covered. A scenario of one cell has no choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Grid {
    /// The cells that stand for the rest.
    Default,
    /// All of them.
    Full,
}

impl Grid {
    /// As it is said on the command line.
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

/// What a story brought to light.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Measured values by key.
    pub measured: Values,
    /// Why keys have no value, where the story knows.
    pub not_measured: BTreeMap<String, String>,
    /// The single values behind medians.
    pub samples: BTreeMap<String, Vec<f64>>,
    /// What must hold besides, of what not every run tells.
    pub limits: Vec<Limit>,
    /// The same story without Rove; or why there is none.
    pub baseline: Baseline,
    /// What broke down of what is under test, before the story's end.
    pub broke: Option<String>,
    /// How late the emulator was; none in virtual time, which is never late.
    pub timekeeping: Option<Timekeeping>,
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

impl Outcome {
    /// Takes over what another story of the same run brought to light.
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

    /// Notes a measured value, rounded; null where there is none.
    fn measure(&mut self, key: &str, value: Option<f64>) {
        self.measured.insert(key.to_owned(), json!(value.map(statistics::rounded)));
    }

    /// Notes that a key has no value, and why.
    fn skip(&mut self, key: &str, why: &str) {
        self.measure(key, None);
        self.not_measured.insert(key.to_owned(), why.to_owned());
    }

    /// Notes how many there were of something.
    fn count(&mut self, key: &str, number: u64) {
        self.measured.insert(key.to_owned(), json!(number));
    }

    /// Notes whether something holds.
    fn hold(&mut self, key: &str, holds: bool) {
        self.measured.insert(key.to_owned(), json!(holds));
    }

    /// Asks for something besides.
    fn ask(&mut self, limit: Limit) {
        self.limits.push(limit);
    }

    /// Notes the single values behind a median.
    fn sample(&mut self, key: &str, values: Vec<f64>) {
        self.samples.insert(key.to_owned(), values);
    }

    /// Notes how a download went in which so much was to be done: one that ended before that shows
    /// nothing.
    fn transferred(&mut self, transfer: &Transfer, acts: usize) {
        self.measure("transfer_s", transfer.seconds());
        self.hold("checksum_ok", transfer.intact && transfer.moments.len() == acts);
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

    /// Those of several scenarios, and then a scenario's own.
    ///
    /// # Panics
    /// While it is compiled, unless they are so many together.
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

/// The scenario of this name.
pub fn find(name: &str) -> Option<&'static dyn Scenario> {
    SCENARIOS.iter().copied().find(|scenario| scenario.about().name == name)
}
