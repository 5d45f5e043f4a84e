//! Beside somebody who has no tunnel: connections of ours and one of theirs through one queue, and
//! what each of them has. What may come of that the scenarios judge.

use super::links::GRID;
use super::outage::receiver;
use super::settings::{Setting, Settings};
use super::{CALM_NS, Grid, Outcome, Stage};
use crate::emu::{MS, Rng, SECOND};
use crate::ground::{Congestion, Connections, Route, Terrain, Transfer};

/// The setting of who is beside.
pub(super) const BESIDE: Setting = Setting::choice(
    "beside",
    &[GRID, "cubic", "reno", "bbr"],
    "congestion control of the connection without a tunnel",
);
/// The setting of what ours is controlled by inside the tunnel: CUBIC in the default grid.
pub(super) const CONGESTION: Setting = Setting::choice(
    "cc",
    &[GRID, "cubic", "reno", "bbr"],
    "congestion control of our connection in the tunnel; without one it is CUBIC",
);
/// The setting of the queue's rate.
pub(super) const MBPS: Setting =
    Setting::number("mbps", 20, (1, 200), "what the queue lets through, in Mbit/s");
/// The setting of the round trip.
pub(super) const RTT: Setting = Setting::number("rtt", 40, (2, 500), "round trip in milliseconds");

/// The setting of how often each cell is told: what becomes of two who fill one queue is chance.
pub(super) const STORIES: Setting = Setting::number(
    "stories",
    4,
    (1, 100),
    "of each cell, whose mean it is; half begin with theirs",
);

/// Who is beside, and what ours may be.
const OTHERS: [Congestion; 3] = [Congestion::Cubic, Congestion::Reno, Congestion::Bbr];
/// The client's links are so many times as fast as what is behind them.
pub(super) const LINKS_TIMES: u64 = 5;
/// Of short transfers only such a part does not count.
const FIRST_PART: u64 = 4;

/// The round trip, and up to a millisecond more, which each story of each seed has its own: what
/// becomes of two who fill one queue depends on who meets its end first, and one story told ten
/// times is one.
pub(super) fn round_trip_ns(stage: &Stage<'_>, story: u64) -> u64 {
    let mut rng = Rng::new(stage.seed);
    rng.skip(story);
    stage.settings.number("rtt") * MS + rng.below(MS)
}

/// Those that the setting names; of a control the first.
pub(super) fn others(stage: &Stage<'_>) -> impl Iterator<Item = Congestion> {
    let beside = stage.settings.text("beside");
    let others = OTHERS.into_iter().filter(move |other| [GRID, other.name()].contains(&beside));
    others.take(if stage.control() { 1 } else { OTHERS.len() })
}

/// What ours is controlled by: as it is set, or CUBIC; in the full grid everything, CUBIC first.
pub(super) fn ours(stage: &Stage<'_>) -> Vec<Congestion> {
    let set = stage.settings.text("cc");
    let is_full = stage.grid == Grid::Full && !stage.control();
    match OTHERS.into_iter().find(|one| one.name() == set) {
        Some(one) => vec![one],
        None if is_full => OTHERS.to_vec(),
        None => vec![OTHERS[0]],
    }
}

/// A connection of more than the queue lets through in so long.
pub(super) fn lasting(settings: &Settings, length_ns: u64) -> Connections {
    Connections::outlasting(receiver(settings), settings.number("mbps"), length_ns)
}

/// Our connection, by this in the tunnel, or by CUBIC without one.
pub(super) fn by(ours: Option<Congestion>, usual: Connections) -> Connections {
    let route = if ours.is_some() { Route::Tunnelled } else { Route::Open };
    Connections { route, congestion: ours.unwrap_or(Congestion::Cubic), ..usual }
}

/// What ours and theirs have over these terrains, in Mbit/s, in the mean of all stories: in every
/// second one theirs begins.
///
/// # Errors
/// What kept one from being told.
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

/// What the connections of either kind have together over this terrain, in Mbit/s, but for their
/// beginning.
///
/// # Errors
/// What kept it from being measured.
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
