//! Pieces that stories are made of: a download watched to its end, a flow with moves in it.

use super::deploy::Deployment;
use super::testbed::{Move, Route, Testbed, report};
use crate::emu::{Carrier, Rng, SECOND};
use crate::netns::{Process, monotonic_ns};
use crate::programs::{Download, FlowRequest, FlowStats, Gap, Report};
use std::time::{Duration, Instant};

/// How long a transfer may be silent before it counts as dead.
const SILENCE: Duration = Duration::from_secs(20);

/// How a download went.
#[derive(Clone, Debug, Default)]
pub(super) struct Transfer {
    /// Its end, if it had one.
    pub(super) done: Option<Download>,
    /// All its standstills of a millisecond and more.
    pub(super) gaps: Vec<Gap>,
    /// How far it was, and when.
    pub(super) progress: Vec<(u64, u64)>,
}

impl Transfer {
    /// Watches a download for at most `limit`; `tick` is called with the bytes so far and may move
    /// things.
    pub(super) fn watch(
        mut download: Process,
        limit: Duration,
        mut tick: impl FnMut(u64) -> anyhow::Result<()>,
    ) -> anyhow::Result<Self> {
        let mut transfer = Self::default();
        let end = Instant::now() + limit;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            // It fails by silence, an early end, or by going on for too long.
            let Ok(next) = download.line_where(left.min(SILENCE), report) else {
                return Ok(transfer);
            };
            match next {
                Report::Progress { bytes, latest_ns, mut gaps, .. } => {
                    transfer.progress.push((latest_ns, bytes));
                    transfer.gaps.append(&mut gaps);
                    tick(bytes)?;
                }
                Report::Downloaded(mut done) => {
                    transfer.progress.push((done.end_ns, done.bytes));
                    transfer.gaps.append(&mut done.gaps);
                    transfer.done = Some(done);
                    return Ok(transfer);
                }
                Report::Ready
                | Report::Connected { .. }
                | Report::Pinged(_)
                | Report::Flowing { .. }
                | Report::Flowed(_) => {}
            }
        }
    }

    /// Mean rate in Mbit/s from `skip_ns` after the first progress to the end; `None` when the
    /// transfer did not last that long or did not end.
    pub(super) fn goodput_mbps(&self, skip_ns: u64) -> Option<f64> {
        self.done.as_ref()?;
        let (first_ns, _) = *self.progress.first()?;
        let from = self.progress.iter().find(|(at_ns, _)| *at_ns >= first_ns + skip_ns)?;
        let to = self.progress.last()?;
        let seconds = to.0.checked_sub(from.0).filter(|ns| *ns > 0)? as f64 / SECOND as f64;
        Some((to.1 - from.1) as f64 * 8.0 / 1e6 / seconds)
    }

    /// Whether it arrived whole and with this SHA-256.
    pub(super) fn is_intact(&self, sha256: &str) -> bool {
        self.done.as_ref().is_some_and(|done| done.sha256 == sha256)
    }
}

/// A steady flow during which the client moved.
#[derive(Clone, Debug)]
pub(super) struct MovingFlow {
    pub(super) stats: FlowStats,
    pub(super) moves: Vec<Move>,
    /// When the flow should have ended, in nanoseconds.
    pub(super) end_ns: u64,
}

/// How a flow with moves is run.
#[derive(Clone, Copy, Debug)]
pub(super) struct MovingFlowPlan {
    /// How many moves.
    pub(super) moves: u32,
    /// Mean time between two, in nanoseconds; each is up to a quarter shorter or longer.
    pub(super) pause_ns: u64,
    /// Every network that the client moves to swallows everything.
    pub(super) dead_ends: bool,
}

/// Microseconds between two datagrams of a flow: with 125 bytes, the 1 Mbit/s of the papers.
pub(super) const FLOW_INTERVAL_US: u64 = 1_000;
/// UDP payload of a flow's datagram, in bytes.
pub(super) const FLOW_BYTES: u16 = 125;

impl MovingFlow {
    /// Lets a steady flow run from the server to the client while the client moves.
    pub(super) fn run(
        testbed: &mut Testbed,
        deployment: &Deployment,
        plan: MovingFlowPlan,
        rng: &mut Rng,
    ) -> anyhow::Result<Self> {
        let pauses: Vec<u64> = (0..=plan.moves)
            .map(|_| plan.pause_ns * 3 / 4 + rng.below(plan.pause_ns / 2))
            .collect();
        let length_ns: u64 = pauses.iter().sum();
        let count = (length_ns / (FLOW_INTERVAL_US * 1_000)) as u32;
        let request =
            FlowRequest { interval_us: FLOW_INTERVAL_US, size: FLOW_BYTES, wait_ms: 0, count };
        let flow = testbed.subscribe(Route::Tunnelled, &request)?;
        let start_ns = monotonic_ns();
        let mut moves = Vec::new();
        for pause_ns in pauses.iter().take(plan.moves as usize) {
            std::thread::sleep(Duration::from_nanos(*pause_ns));
            if plan.dead_ends {
                testbed.network.set_access(testbed.next_access(), Carrier::BlackHole)?;
            }
            moves.push(testbed.relocate(deployment.on_move())?);
        }
        let stats = flow_stats(flow, Duration::from_nanos(length_ns) + SILENCE)?;
        Ok(Self { stats, moves, end_ns: start_ns + length_ns })
    }

    /// How long data stood still after each move, in milliseconds.
    pub(super) fn still_ms(&self) -> Vec<f64> {
        let mut gaps = self.stats.gaps.clone();
        // A flow that never came back stood still until its end.
        gaps.push(Gap { from_ns: self.stats.last_ns, to_ns: self.end_ns.max(self.stats.last_ns) });
        let next = |index: usize| self.moves.get(index + 1).map_or(self.end_ns, |m| m.usable_ns);
        self.moves
            .iter()
            .enumerate()
            .map(|(index, one)| Gap::longest_after(&gaps, one.usable_ns, next(index)) as f64 / 1e6)
            .collect()
    }
}

/// The result of a flow that ends by itself.
pub(super) fn flow_stats(mut flow: Process, patience: Duration) -> anyhow::Result<FlowStats> {
    let stats = flow.line_where(patience, |line| {
        if let Report::Flowed(stats) = report(line)? { Some(stats) } else { None }
    })?;
    Ok(stats)
}

#[cfg(test)]
mod tests {
    use super::{MovingFlow, Transfer};
    use crate::emu::{MS, SECOND};
    use crate::programs::{Download, FlowStats, Gap};
    use crate::scenario::testbed::Move;

    fn at(ms: u64) -> Move {
        Move { usable_ns: ms * MS, address: "192.0.2.1".parse().unwrap() }
    }

    #[test]
    fn a_flow_that_never_comes_back_stood_still_to_its_end() {
        let stats = FlowStats {
            sent: 3_000,
            lost: 1_990,
            duplicates: 0,
            first_ns: MS,
            last_ns: 1_010 * MS,
            gaps: vec![Gap { from_ns: 500 * MS, to_ns: 545 * MS }],
        };
        let flow = MovingFlow { stats, moves: vec![at(502), at(1_000)], end_ns: 3_000 * MS };
        assert_eq!(flow.still_ms(), [43.0, 1_990.0]);
    }

    #[test]
    fn goodput_is_measured_after_the_start() {
        let mut transfer = Transfer {
            progress: (0..=10)
                .map(|s| (s * SECOND, if s < 5 { 0 } else { (s - 5) * 1_000_000 }))
                .collect(),
            ..Transfer::default()
        };
        assert_eq!(transfer.goodput_mbps(0), None, "it has not ended");
        transfer.done = Some(Download {
            start_ns: 0,
            end_ns: 10 * SECOND,
            bytes: 5_000_000,
            sha256: "ab".to_owned(),
            gaps: Vec::new(),
        });
        assert_eq!(transfer.goodput_mbps(5 * SECOND), Some(8.0));
        assert_eq!(transfer.goodput_mbps(11 * SECOND), None);
        assert!(transfer.is_intact("ab") && !transfer.is_intact("cd"));
    }
}
