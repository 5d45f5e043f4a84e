//! Steady flows, what is done in them, and what befell them: the measure that many stories have in
//! common.
//!
//! Decides what counts as unavoidable: nobody can send again what was on a path that nobody knew to
//! be dead. Knows no story, and no limit.

use super::statistics::{max, median};
use super::{Key, MARGIN_MS, Outcome};
use crate::emu::{MS, Rng, SECOND};
use crate::ground::{Act, Cue, Flow, FlowRun, Ground, Pings, RoundTrips, Route, Trouble};

/// Round trips before anything happens.
const PINGS: Pings = Pings { count: 20, interval_ns: 50 * MS };

/// How much longer flows go on where the mechanism is broken on purpose: on a busy machine an act
/// may take half a second, and what is lost meanwhile is excused.
pub(super) const CONTROL_NS: u64 = 2 * SECOND;

/// What [`Steady`] measures.
pub(super) const KEYS: [Key; 5] = [
    Key::lower_is_better("lost_packets"),
    Key::lower_is_better("lost_beyond_flight"),
    Key::lower_is_better("still_ms_median"),
    Key::lower_is_better("still_ms_max"),
    Key::lower_is_better("in_flight_packets"),
];

/// What befell flows.
#[derive(Debug)]
pub(super) struct Steady {
    round_trip_ns: u64,
    lost: u64,
    beyond: u64,
    flight: u64,
    still_ms: Vec<f64>,
}

impl Steady {
    /// Nothing yet, on paths with this round trip.
    pub(super) const fn new(round_trip_ns: u64) -> Self {
        Self { round_trip_ns, lost: 0, beyond: 0, flight: 0, still_ms: Vec::new() }
    }

    /// Adds flows that ran at the same time.
    pub(super) fn add(&mut self, runs: &[FlowRun]) {
        for run in runs {
            let flight = self.in_flight(run);
            self.lost += run.lost;
            self.flight += flight;
            self.beyond += run.lost.saturating_sub(flight);
        }
        // What stands still in either direction does.
        let still: Vec<Vec<f64>> = runs.iter().map(FlowRun::still_ms).collect();
        let acts = still.iter().map(Vec::len).max().unwrap_or(0);
        let worst = |act: usize| {
            max(&still.iter().filter_map(|all| all.get(act).copied()).collect::<Vec<_>>())
        };
        self.still_ms.extend((0..acts).filter_map(worst));
    }

    /// Datagrams of a flow that were on a path which nobody could know to be dead: from when it
    /// died until the new one could be used, and then for a round trip and the margin.
    fn in_flight(&self, run: &FlowRun) -> u64 {
        let unknown_ns = self.round_trip_ns + MARGIN_MS * MS;
        let times = run.moments.iter().map(|one| one.done_ns - one.began_ns + unknown_ns);
        times.map(|ns| ns.div_ceil(Flow::INTERVAL_NS)).sum()
    }

    /// Writes down what was measured.
    pub(super) fn report(self, outcome: &mut Outcome) {
        outcome.count("lost_packets", self.lost);
        outcome.count("lost_beyond_flight", self.beyond);
        outcome.count("in_flight_packets", self.flight);
        outcome.measure("still_ms_median", median(&self.still_ms));
        outcome.measure("still_ms_max", max(&self.still_ms));
        outcome.sample("still_ms", self.still_ms);
    }
}

/// The same act so many times, after a pause each that is up to a quarter shorter or longer than
/// `pause_ns`. With it when a flow should end that has all of them in it.
pub(super) fn again_and_again(
    rng: &mut Rng,
    pause_ns: u64,
    times: u64,
    act: Act,
) -> (Vec<Cue>, u64) {
    let mut at_ns = 0;
    let mut pause = || {
        at_ns += pause_ns * 3 / 4 + rng.below(pause_ns / 2);
        at_ns
    };
    let script = (0..times).map(|_| Cue::at(pause(), act)).collect();
    (script, pause())
}

/// Round trips before anything happens: their median is noted as `rtt_ms`.
pub(super) fn at_rest(ground: &mut dyn Ground, outcome: &mut Outcome) -> Result<(), Trouble> {
    let series = ground.ping(&[Route::Tunnelled], PINGS)?;
    let trips: Vec<f64> = series.iter().flat_map(RoundTrips::milliseconds).collect();
    outcome.measure("rtt_ms", median(&trips));
    Ok(())
}
