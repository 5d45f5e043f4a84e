//! Connections of ours beside one of another host without a tunnel, through one queue, and the rate
//! of each. The scenarios judge the rates.

use super::links::GRID;
use super::outage::receiver;
use super::settings::{Setting, Settings};
use super::{CALM_NS, Grid, Outcome, Stage};
use crate::emu::{MS, Rng, SECOND};
use crate::ground::{Congestion, Connections, Route, Terrain, Transfer};

/// The competitor.
pub(super) const BESIDE: Setting = Setting::choice(
    "beside",
    &[GRID, "cubic", "reno", "bbr"],
    "congestion control of the connection without a tunnel",
);
/// The inner congestion control of ours: CUBIC in the default grid.
pub(super) const CONGESTION: Setting = Setting::choice(
    "cc",
    &[GRID, "cubic", "reno", "bbr"],
    "congestion control of our connection in the tunnel; without one it is CUBIC",
);
/// The queue's rate.
pub(super) const MBPS: Setting =
    Setting::number("mbps", 20, (1, 200), "what the queue lets through, in Mbit/s");
/// The round trip.
pub(super) const RTT: Setting = Setting::number("rtt", 40, (2, 500), "round trip in milliseconds");

/// The number of runs of each cell, because the share of two senders in one queue depends on
/// chance.
pub(super) const STORIES: Setting = Setting::number(
    "stories",
    4,
    (1, 100),
    "of each cell, whose mean it is; half begin with theirs",
);

/// Congestion control of the competitor, and of ours.
const OTHERS: [Congestion; 3] = [Congestion::Cubic, Congestion::Reno, Congestion::Bbr];
/// The client's links are this many times as fast as the bottleneck.
pub(super) const LINKS_TIMES: u64 = 5;
/// The part of short transfers that does not count.
const FIRST_PART: u64 = 4;

/// The round trip, and up to a millisecond more, drawn for each run of each seed. The share of two
/// senders in one queue depends on which of them is dropped first, so ten equal runs would be one.
pub(super) fn round_trip_ns(stage: &Stage<'_>, story: u64) -> u64 {
    let mut rng = Rng::new(stage.seed);
    rng.skip(story);
    stage.settings.number("rtt") * MS + rng.below(MS)
}

/// The selected competitors; in a control the first.
pub(super) fn others(stage: &Stage<'_>) -> impl Iterator<Item = Congestion> {
    let beside = stage.settings.text("beside");
    let others = OTHERS.into_iter().filter(move |other| [GRID, other.name()].contains(&beside));
    others.take(if stage.control() { 1 } else { OTHERS.len() })
}

/// The selected congestion control of ours, or CUBIC; in the full grid all, CUBIC first.
pub(super) fn ours(stage: &Stage<'_>) -> Vec<Congestion> {
    let set = stage.settings.text("cc");
    let is_full = stage.grid == Grid::Full && !stage.control();
    match OTHERS.into_iter().find(|one| one.name() == set) {
        Some(one) => vec![one],
        None if is_full => OTHERS.to_vec(),
        None => vec![OTHERS[0]],
    }
}

/// A connection that outlasts this time.
pub(super) fn lasting(settings: &Settings, length_ns: u64) -> Connections {
    Connections::outlasting(receiver(settings), settings.number("mbps"), length_ns)
}

/// Our connection, with this congestion control in the tunnel, or with CUBIC without one.
pub(super) fn by(ours: Option<Congestion>, usual: Connections) -> Connections {
    let route = if ours.is_some() { Route::Tunnelled } else { Route::Open };
    Connections { route, congestion: ours.unwrap_or(Congestion::Cubic), ..usual }
}

/// The rates of ours and theirs over these networks, in Mbit/s, in the mean of all runs. In every
/// second run theirs begins.
///
/// # Errors
/// The reason why one could not run.
pub(super) fn mean_mbps(
    stage: &Stage<'_>,
    terrain: impl Fn(u64) -> Terrain,
    [ours, theirs]: [Connections; 2],
    first_ns: u64,
    outcome: &mut Outcome,
) -> anyhow::Result<[Option<f64>; 2]> {
    let stories = stage.settings.number(STORIES.key);
    let mut sums = [Some(0.0); 2];
    for story in 0..stories {
        let is_last = story % 2 == 1;
        let both = if is_last { [theirs, ours] } else { [ours, theirs] };
        let mut taken = rates_mbps(stage, &terrain(story), &both, first_ns, outcome)?;
        if is_last {
            taken.reverse();
        }
        sums = [0, 1].map(|which| Some(sums[which]? + taken[which]?));
    }
    Ok(sums.map(|sum| Some(sum? / stories as f64)))
}

/// The rates of the connections of each kind together over this network, in Mbit/s, without their
/// beginning.
///
/// # Errors
/// The reason why it could not be measured.
fn rates_mbps(
    stage: &Stage<'_>,
    terrain: &Terrain,
    kinds: &[Connections; 2],
    first_ns: u64,
    outcome: &mut Outcome,
) -> anyhow::Result<[Option<f64>; 2]> {
    let length_ns = stage.settings.number("seconds") * SECOND;
    let skip_ns = first_ns.min(length_ns / FIRST_PART);
    let mut rates = [None; 2];
    let told = stage.on_ground(terrain, &mut |ground, _| {
        ground.pause(CALM_NS)?;
        let transfers = ground.connect(kinds, length_ns + Connections::OPENING_NS, &[])?;
        let mbps = |one: &Transfer| one.mbps_within(skip_ns, length_ns);
        let all = |kind: &Vec<Transfer>| kind.iter().map(mbps).sum::<Option<f64>>();
        rates = [0, 1].map(|which| transfers.get(which).and_then(all));
        Ok(())
    })?;
    outcome.absorb(told);
    Ok(rates)
}
