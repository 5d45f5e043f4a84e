//! Steady flows with acts in them: the measurement that many scenarios share.
//!
//! This module decides which losses are unavoidable: nobody can retransmit packets on a path that
//! nobody knew to be down. It knows no scenario, and no limit.

use super::statistics::{max, median};
use super::{Key, MARGIN_MS, Outcome};
use crate::emu::{MS, Rng, SECOND};
use crate::ground::{Act, Cue, Flow, FlowRun, Ground, Pings, RoundTrips, Route, Trouble};

/// Round trips before anything happens.
const PINGS: Pings = Pings { count: 20, interval_ns: 50 * MS };

/// How much longer flows last if the mechanism is broken on purpose. On a busy machine an act may
/// take half a second, and losses during it are excused.
pub(super) const CONTROL_NS: u64 = 2 * SECOND;

/// The keys of [`Steady`].
pub(super) const KEYS: [Key; 5] = [
    Key::lower_is_better("lost_packets"),
    Key::lower_is_better("lost_beyond_flight"),
    Key::lower_is_better("still_ms_median"),
    Key::lower_is_better("still_ms_max"),
    Key::lower_is_better("in_flight_packets"),
];

/// The results of flows.
#[derive(Debug)]
pub(super) struct Steady {
    round_trip_ns: u64,
    lost: u64,
    beyond: u64,
    flight: u64,
    still_ms: Vec<f64>,
}

impl Steady {
    /// Empty, for paths with this round trip.
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
        // A pause in either direction counts.
        let still: Vec<Vec<f64>> = runs.iter().map(FlowRun::still_ms).collect();
        let acts = still.iter().map(Vec::len).max().unwrap_or(0);
        let worst = |act: usize| {
            max(&still.iter().filter_map(|all| all.get(act).copied()).collect::<Vec<_>>())
        };
        self.still_ms.extend((0..acts).filter_map(worst));
    }

    /// Datagrams of a flow on a path that nobody could know to be down: from its failure until the
    /// new one was usable, and then for a round trip and the margin.
    fn in_flight(&self, run: &FlowRun) -> u64 {
        let unknown_ns = self.round_trip_ns + MARGIN_MS * MS;
        let times = run.moments.iter().map(|one| one.done_ns - one.began_ns + unknown_ns);
        times.map(|ns| ns.div_ceil(Flow::INTERVAL_NS)).sum()
    }

    /// Writes the measured values.
    pub(super) fn report(self, outcome: &mut Outcome) {
        outcome.count("lost_packets", self.lost);
        outcome.count("lost_beyond_flight", self.beyond);
        outcome.count("in_flight_packets", self.flight);
        outcome.measure("still_ms_median", median(&self.still_ms));
        outcome.measure("still_ms_max", max(&self.still_ms));
        outcome.sample("still_ms", self.still_ms);
    }
}

/// The same act several times, after a pause of `pause_ns` each, up to a quarter shorter or longer.
/// Also returns the end of a flow that contains all of them.
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

/// Round trips before any act: their median is `rtt_ms`.
pub(super) fn at_rest(ground: &mut dyn Ground, outcome: &mut Outcome) -> Result<(), Trouble> {
    let series = ground.ping(&[Route::Tunnelled], PINGS)?;
    let trips: Vec<f64> = series.iter().flat_map(RoundTrips::milliseconds).collect();
    outcome.measure("rtt_ms", median(&trips));
    Ok(())
}
