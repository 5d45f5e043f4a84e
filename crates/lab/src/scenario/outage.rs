//! The common part of the scenarios with outages.
//!
//! This module decides how, when and how often a link fails and returns, and how Rove treats open
//! connections meanwhile. It knows no scenario, and only the limit that all of them have.

use super::deploy::{By, Deployment, Hold, Setup, openvpn_installed};
use super::settings::{Setting, Settings};
use super::stage::Story;
use super::statistics::{max, median, min};
use super::{Baseline, CleanLink, Key, Outcome, Stage};
use crate::emu::{Rng, SECOND};
use crate::ground::{Act, Congestion, Cue, Receiver, Terrain, Transfer, WhileUp};
use crate::world::{Journey, StreamsKnown};
use std::collections::BTreeMap;

/// When the first outage begins after the connection was opened, as in the thesis. Earlier traffic
/// does not count.
pub(super) const FIRST_NS: u64 = 5 * SECOND;
/// The least share of the goodput without outages.
pub(super) const SHARE_MIN: f64 = 0.95;
/// The greatest random delay of an outage, and its greatest random extension, so that the seed
/// decides when in a sender's round it begins.
const CHANCE_NS: u64 = SECOND / 4;
/// How long a silent session is kept in virtual time, in seconds: an outage may last a day.
const KEPT_S: u64 = Journey::DAY_S + 3_600;
/// The cost of a restart beyond a round trip, in milliseconds.
const RESTART_MARGIN_MS: u64 = 20;

/// The setting behind [`hold`].
pub(super) const MODE: Setting = Setting::choice(
    "mode",
    &["held", "reinjected", "off"],
    "what is held of open connections: all, one segment of each, nothing",
);
/// The setting behind [`acts`].
pub(super) const BY: Setting = Setting::choice(
    "by",
    &["silence", "event"],
    "the link swallows all, unseen; or its carrier goes and comes back",
);
/// The setting behind [`receiver`].
pub(super) const TRANSFER: Setting =
    Setting::choice("transfer", &["up", "down"], "from the client, as in the thesis, or to it");
/// The setting behind [`congestion`].
pub(super) const CONGESTION: Setting =
    Setting::choice("cc", &["cubic", "reno", "bbr"], "congestion control of both ends");
/// Whether [`over_outages`] also measures other programs; by default it does not.
pub(super) const BASELINE: Setting = Setting::flag(
    "baseline",
    false,
    "the same without a tunnel, and with OpenVPN if it is installed",
);

/// The keys of [`Shares`].
pub(super) const KEYS: [Key; 6] = [
    Key::higher_is_better("goodput_share"),
    Key::lower_is_better("restart_ms_median"),
    Key::lower_is_better("restart_ms_max"),
    Key::higher_is_better("goodput_mbps"),
    Key::higher_is_better("undisturbed_mbps"),
    Key::must_hold("checksum_ok"),
];

/// How Rove treats open connections.
pub(super) fn hold(settings: &Settings) -> Hold {
    match settings.text("mode") {
        "held" => Hold::Held,
        "reinjected" => Hold::Reinjected,
        _ => Hold::Off,
    }
}

/// How the link fails and returns.
pub(super) fn acts(settings: &Settings) -> [Act; 2] {
    match settings.text("by") {
        "event" => [Act::Unplug(0), Act::Replug(0)],
        _ => [Act::Swallow(0), Act::Return(0)],
    }
}

/// The receiver.
pub(super) fn receiver(settings: &Settings) -> Receiver {
    if settings.text("transfer") == "down" { Receiver::Client } else { Receiver::Server }
}

/// The congestion control of both ends.
pub(super) fn congestion(settings: &Settings) -> Congestion {
    match settings.text("cc") {
        "reno" => Congestion::Reno,
        "bbr" => Congestion::Bbr,
        _ => Congestion::Cubic,
    }
}

/// Outages of the same length.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outages {
    /// When the first one begins.
    pub(super) first_ns: u64,
    /// Their number.
    pub(super) count: u64,
    /// The length of each.
    pub(super) length_ns: u64,
    /// The time between two.
    pub(super) between_ns: u64,
}

impl Outages {
    /// One outage.
    pub(super) const fn one(first_ns: u64, length_ns: u64) -> Self {
        Self { first_ns, count: 1, length_ns, between_ns: 0 }
    }

    /// When the link fails and returns, each up to [`CHANCE_NS`] later. In a control it never
    /// returns.
    pub(super) fn script(self, [goes, comes]: [Act; 2], stage: &Stage<'_>) -> Vec<Cue> {
        let mut script = self
            .moments(stage.seed)
            .flat_map(|(goes_ns, comes_ns)| [Cue::at(goes_ns, goes), Cue::at(comes_ns, comes)]);
        if stage.control() { script.next().into_iter().collect() } else { script.collect() }
    }

    /// The beginning and the end of each.
    fn moments(self, seed: u64) -> impl Iterator<Item = (u64, u64)> {
        let mut rng = Rng::new(seed);
        let mut next_ns = self.first_ns;
        (0..self.count).map(move |_| {
            let goes_ns = next_ns + rng.below(CHANCE_NS);
            let comes_ns = goes_ns + self.length_ns + rng.below(CHANCE_NS);
            next_ns = comes_ns + self.between_ns;
            (goes_ns, comes_ns)
        })
    }

    /// The time for which the link is down in all of them, at least.
    pub(super) const fn total_ns(&self) -> u64 {
        self.count * self.length_ns
    }
}

/// The longest restart on this link, in milliseconds.
pub(super) fn restart_ms(link: &CleanLink) -> f64 {
    link.round_trips_ms(1.0) + RESTART_MARGIN_MS as f64
}

/// Transfers with outages compared with transfers without.
#[derive(Debug, Default)]
pub(super) struct Shares {
    shares: Vec<Option<f64>>,
    disturbed_mbps: Vec<f64>,
    undisturbed_mbps: Vec<f64>,
    restart_ms: Vec<f64>,
    arrived: Vec<bool>,
}

impl Shares {
    /// Adds a transfer without outages and one with them, over a link with this capacity between
    /// two moments, in any unit.
    pub(super) fn add(
        &mut self,
        undisturbed: &Transfer,
        disturbed: &Transfer,
        capacity: &dyn Fn(u64, u64) -> f64,
    ) {
        let [alone, with] = [undisturbed, disturbed].map(|one| one.while_up(FIRST_NS));
        let share = |up: &WhileUp| up.share_of(capacity);
        let of_alone = with.as_ref().map(share).zip(alone.as_ref().map(share));
        self.shares.push(of_alone.map(|(with, alone)| with / alone));
        self.disturbed_mbps.extend(with.as_ref().map(WhileUp::mbps));
        self.undisturbed_mbps.extend(alone.as_ref().map(WhileUp::mbps));
        self.restart_ms.extend(disturbed.restart_ms());
        self.arrived.extend([undisturbed, disturbed].map(|one| one.complete && one.intact));
    }

    /// Writes the result: the worst share, since every cell must pass.
    pub(super) fn report(self, outcome: &mut Outcome) {
        // A transfer that never ended has no share, and then the worst has none.
        let shares: Option<Vec<f64>> = self.shares.into_iter().collect();
        outcome.measure("goodput_share", shares.as_deref().and_then(min));
        outcome.measure("goodput_mbps", median(&self.disturbed_mbps));
        outcome.measure("undisturbed_mbps", median(&self.undisturbed_mbps));
        outcome.measure("restart_ms_median", median(&self.restart_ms));
        outcome.measure("restart_ms_max", max(&self.restart_ms));
        let all = !self.arrived.is_empty() && self.arrived.into_iter().all(|one| one);
        outcome.hold("checksum_ok", all);
        outcome.sample("goodput_share", shares.unwrap_or_default());
        outcome.sample("restart_ms", self.restart_ms);
    }
}

/// The rate of a transfer while the link was up, as text.
pub(super) fn rate_in_words(transfer: &Transfer) -> String {
    let rate = transfer.while_up(FIRST_NS).map(|up| format!("{:.1} Mbit/s", up.mbps()));
    rate.unwrap_or_else(|| "it never ended".to_owned())
}

/// Why a connection broke, as text.
pub(super) fn obituary(transfer: &Transfer) -> Option<String> {
    let after_s = transfer.broke_after_s()?;
    let cause = transfer.broke.as_deref().unwrap_or("nobody knows why");
    Some(format!("one broke {after_s:.1} s after the link: {cause}"))
}

/// Runs over a Rove that treats open connections as the settings say; if selected, also without a
/// tunnel, and with OpenVPN if it is installed.
///
/// # Errors
/// The reason why it could not run.
pub(super) fn over_outages(
    stage: &Stage<'_>,
    terrain: &Terrain,
    story: Story<'_>,
) -> anyhow::Result<Outcome> {
    let mut outcome = on_holding_ground(stage, terrain, hold(stage.settings), &mut *story)?;
    outcome.baseline = of_others(stage, terrain, story)?;
    Ok(outcome)
}

/// Runs over a Rove that treats open connections this way.
///
/// # Errors
/// The reason why it could not run.
pub(super) fn on_holding_ground(
    stage: &Stage<'_>,
    terrain: &Terrain,
    hold: Hold,
    story: Story<'_>,
) -> anyhow::Result<Outcome> {
    let Some(entered) = stage.entered else {
        let held = (hold.in_core(), KEPT_S);
        return stage.in_virtual_time(terrain, StreamsKnown::Direct, held, story);
    };
    let setup = Setup { hold, ..Setup::default() };
    let deploy = |testbed: &_| Deployment::start_with(testbed, stage.rove, &setup);
    stage.on_hosts(entered, terrain, &deploy, story)
}

fn of_others(stage: &Stage<'_>, terrain: &Terrain, story: Story<'_>) -> anyhow::Result<Baseline> {
    let Some(entered) = stage.entered else {
        return Ok(Baseline::None("another program does not run in virtual time".to_owned()));
    };
    if stage.rove.is_none() {
        return Ok(Baseline::None("the bare link is what was measured".to_owned()));
    }
    if stage.control() || !stage.settings.flag("baseline") {
        return Ok(Baseline::None("not asked for".to_owned()));
    }
    let mut baselines = BTreeMap::new();
    (stage.tell)("the same without a tunnel");
    let bare = |testbed: &_| Deployment::start(testbed, None);
    let bare = stage.on_hosts(entered, terrain, &bare, &mut *story)?;
    baselines.insert("bare".to_owned(), bare.measured);
    if openvpn_installed().is_ok() {
        (stage.tell)("the same with OpenVPN");
        let deploy = |testbed: &_| Deployment::start_openvpn(testbed, By::Udp);
        let openvpn = stage.on_hosts(entered, terrain, &deploy, story)?;
        baselines.insert("openvpn".to_owned(), openvpn.measured);
    }
    Ok(Baseline::Measured(baselines))
}

#[cfg(test)]
mod tests {
    use super::{CHANCE_NS, Outages, Shares};
    use crate::emu::SECOND;
    use crate::ground::Transfer;
    use crate::scenario::Outcome;

    #[test]
    fn outages_have_the_time_between_them_that_they_should() {
        let outages = Outages {
            first_ns: 5 * SECOND,
            count: 2,
            length_ns: 15 * SECOND,
            between_ns: 8 * SECOND,
        };
        let all = |seed| outages.moments(seed).collect::<Vec<_>>();
        for seed in 0..100 {
            let [(first_ns, return_ns), (second_ns, end_ns)] = all(seed)[..] else { panic!() };
            let spans = [first_ns, return_ns - first_ns, second_ns - return_ns, end_ns - second_ns];
            for (is_ns, said_s) in spans.into_iter().zip([5, 15, 8, 15]) {
                let said_ns = said_s * SECOND;
                assert!((said_ns..said_ns + CHANCE_NS).contains(&is_ns), "seed {seed}: {is_ns}");
            }
        }
        assert_eq!(all(1), all(1));
        assert_ne!(all(1), all(2));
        assert_eq!(outages.total_ns(), 30 * SECOND);
    }

    /// A transfer of a megabyte a second for this time.
    fn transfer(seconds: u64, complete: bool) -> Transfer {
        let progress = (0..=seconds).map(|s| (s * SECOND, s * 1_000_000)).collect();
        let (end_ns, intact) = (seconds * SECOND, true);
        Transfer { end_ns, complete, intact, progress, ..Transfer::default() }
    }

    #[test]
    fn the_worst_share_counts_and_what_never_ended_has_none() {
        let report = |disturbed: &[Transfer]| {
            let mut shares = Shares::default();
            for disturbed in disturbed {
                let capacity = |from_ns: u64, to_ns: u64| (to_ns - from_ns) as f64;
                shares.add(&transfer(10, true), disturbed, &capacity);
            }
            let mut outcome = Outcome::default();
            shares.report(&mut outcome);
            outcome.measured
        };
        let slow = Transfer { end_ns: 15 * SECOND, ..transfer(10, true) };
        let slow = Transfer {
            progress: slow.progress.iter().map(|(at, bytes)| (at * 3 / 2, *bytes)).collect(),
            ..slow
        };
        let measured = report(&[transfer(10, true), slow]);
        let share = measured["goodput_share"].as_f64().unwrap();
        assert!((0.6..0.8).contains(&share), "{share}");
        assert_eq!(measured["checksum_ok"], true);
        let measured = report(&[transfer(10, true), transfer(9, false)]);
        assert!(measured["goodput_share"].is_null());
        assert_eq!(measured["checksum_ok"], false);
        assert_eq!(report(&[])["checksum_ok"], false, "nothing was shown");
    }
}
