//! Stories told in virtual time over the production core: a tunnel beside its bare link, and a
//! client that moves. All laws of the world hold meanwhile; a breach ends the story.
//!
//! Goodput and times over emulated links are valid here, since nothing is late; what a processor
//! bounds is not: there is none.

use std::collections::BTreeMap;

use rove_proto::wire::Kind;

use super::bulk::{Bulk, Transfer};
use super::laws::Breach;
use super::op::Way;
use super::road::{Bare, Passed, Road, Tunnelled};
use crate::emu::{BitErrors, LinkConfig, MS, Rng, SECOND};
use crate::programs::Gap;

/// Bytes of an inner packet of the steady flow: 125 of payload, as in the papers.
const FLOW_LEN: u16 = 125 + 28;
/// Time between two of them, in nanoseconds.
const FLOW_GAP_NS: u64 = MS;
/// Bytes of a ping.
const PING_LEN: u16 = 84;
/// Round trips measured.
const PINGS: u32 = 100;
/// Time between two.
const PING_GAP_NS: u64 = 20 * MS;
/// Packets of the flow that shows losses and overhead.
const FLOW_PACKETS: u32 = 3_000;
/// How many of a hundred thousand bits are turned when the mechanism is broken on purpose.
const BROKEN_BIT_ERRORS: f64 = 3e-5;
/// How long after its regular end a flow's packets are waited for.
const PATIENCE_NS: u64 = SECOND;

/// A law was broken in a story.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken(String);

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a law was broken: {}", self.0)
    }
}

impl std::error::Error for Broken {}

impl From<Breach> for Broken {
    fn from(breach: Breach) -> Self {
        Self(breach.to_string())
    }
}

/// What the tunnel costs.
#[derive(Clone, Debug, Default)]
pub struct TunnelTale {
    /// Goodput without and with the tunnel, Mbit/s; none when the transfer did not end.
    pub goodput_mbps: [Option<f64>; 2],
    /// Round trips without and with the tunnel, microseconds.
    pub round_trips_us: [Vec<f64>; 2],
    /// Bytes that the tunnel adds to each packet of the flow, outer IP and UDP headers not counted.
    pub overhead_bytes: Vec<f64>,
    /// Packets of the flow that did not arrive.
    pub lost: u32,
    /// Whether both transfers were complete; that nothing was altered is a law.
    pub intact: bool,
}

/// Tells of a tunnel over `link`: round trips, a steady flow, and a transfer of `length` bytes
/// whose first `skip_ns` do not count. A `broken` link turns bits and must be noticed.
///
/// # Errors
/// A breach of a law.
pub fn tunnel(
    seed: u64,
    link: &LinkConfig,
    length: u64,
    skip_ns: u64,
    broken: bool,
) -> Result<TunnelTale, Broken> {
    let mut tale = TunnelTale { intact: true, ..TunnelTale::default() };
    let mut tunnelled = Tunnelled::new(seed, link)?;
    let mut bare = Bare::new(seed, link);
    if broken {
        let mut link = link.clone();
        for pipe in [&mut link.up, &mut link.down] {
            pipe.bit_errors = BitErrors::Delivered(BROKEN_BIT_ERRORS);
        }
        tunnelled.set_link(&link);
    }
    tale.round_trips_us = [ping(&mut bare)?, ping(&mut tunnelled)?];
    tunnelled.overheard();
    let flow = Flow::run(&mut tunnelled, u64::from(FLOW_PACKETS) * FLOW_GAP_NS, |_, _| Ok(()))?;
    tale.lost = flow.lost;
    let data = |passed: &&Passed| {
        passed.way == Way::Down
            && passed.kind == Some(Kind::Data)
            && passed.len > usize::from(FLOW_LEN)
    };
    let passed = tunnelled.overheard();
    let added = |passed: &Passed| (passed.len - usize::from(FLOW_LEN)) as f64;
    tale.overhead_bytes = passed.iter().filter(data).map(added).collect();
    // A broken link gets a little more time than a whole one would need, and no more.
    let patience = if broken { 1 } else { 4 };
    let limit_ns = length * 8 * SECOND / 20_000_000 * patience + 10 * SECOND;
    let transfers = [
        transfer(&mut bare, length, limit_ns, |_, _| Ok(()))?,
        transfer(&mut tunnelled, length, limit_ns, |_, _| Ok(()))?,
    ];
    tale.intact = transfers.iter().all(|transfer| transfer.end_ns.is_some());
    tale.goodput_mbps = transfers.map(|transfer| transfer.goodput_mbps(skip_ns));
    Ok(tale)
}

/// What moves cost.
#[derive(Clone, Debug, Default)]
pub struct RoamTale {
    /// Round trips before anything moves, milliseconds.
    pub round_trips_ms: Vec<f64>,
    /// For each move under a steady flow, how long data stood still, milliseconds.
    pub still_ms: Vec<f64>,
    /// From the new address being usable to the first datagram that arrives there, milliseconds.
    pub resumption_ms: Vec<f64>,
    /// From the first datagram that leaves from there to the first that arrives, milliseconds.
    pub signalling_ms: Vec<f64>,
    /// Packets of the busy flow that did not arrive.
    pub lost: u32,
    /// For each move of an idle tunnel, until the gateway gets through again, milliseconds.
    pub idle_still_ms: Vec<f64>,
    /// How long the download stood still for its move, milliseconds, and how long it took, seconds.
    pub download: Option<(f64, f64)>,
    /// Standstill and losses when a known second link takes over: milliseconds, packets.
    pub known_link: Option<(f64, u32)>,
}

/// How a client moves.
#[derive(Clone, Copy, Debug)]
pub struct RoamPlan {
    /// Moves under the steady flow.
    pub moves: u32,
    /// Mean time between two, in nanoseconds.
    pub pause_ns: u64,
    /// Moves of an idle tunnel, and how long it is silent before each, in nanoseconds.
    pub idle: (u32, u64),
    /// Bytes of the download.
    pub length: u64,
    /// When the client moves in it, in nanoseconds after its beginning.
    pub move_at_ns: u64,
    /// Every network that the client moves to swallows everything: the mechanism is broken.
    pub broken: bool,
}

/// Tells of a client that moves over `link`.
///
/// # Errors
/// A breach of a law.
pub fn roam_client(seed: u64, link: &LinkConfig, plan: &RoamPlan) -> Result<RoamTale, Broken> {
    let mut road = Tunnelled::new(seed, link)?;
    let mut tale = RoamTale {
        round_trips_ms: ping(&mut road)?.into_iter().map(|us| us / 1e3).collect(),
        ..RoamTale::default()
    };
    busy(&mut road, seed, plan, &mut tale)?;
    tale.download = download(&mut road, plan)?;
    if !plan.broken {
        tale.idle_still_ms = idle(&mut road, plan)?;
        tale.known_link = Some(known_link(&mut road)?);
    }
    Ok(tale)
}

fn relocate(road: &mut Tunnelled, broken: bool) -> Result<(), Breach> {
    if broken {
        road.swallow();
    }
    road.relocate()
}

fn busy(
    road: &mut Tunnelled,
    seed: u64,
    plan: &RoamPlan,
    tale: &mut RoamTale,
) -> Result<(), Broken> {
    let mut rng = Rng::new(seed);
    let mut pause = || plan.pause_ns * 3 / 4 + rng.below(plan.pause_ns / 2);
    let pauses: Vec<u64> = (0..=plan.moves).map(|_| pause()).collect();
    let start_ns = road.now_ns();
    let mut due: Vec<u64> = pauses
        .iter()
        .scan(start_ns, |at, pause| {
            *at += pause;
            Some(*at)
        })
        .collect();
    let end_ns = due.pop().unwrap_or(start_ns);
    let moves = due.clone();
    due.reverse();
    road.overheard();
    let flow = Flow::run(road, end_ns - start_ns, |road, now_ns| {
        if due.pop_if(|at| *at <= now_ns).is_some() {
            relocate(road, plan.broken)?;
        }
        Ok(())
    })?;
    let passed = road.overheard();
    tale.lost = flow.lost;
    for (number, &moved_ns) in moves.iter().enumerate() {
        let until_ns = moves.get(number + 1).copied().unwrap_or(end_ns);
        tale.still_ms.push(flow.still_ms(moved_ns, until_ns));
        let first = |way| {
            let within = |p: &&Passed| p.way == way && (moved_ns..until_ns).contains(&p.at_ns);
            passed.iter().find(within).map(|passed| passed.at_ns)
        };
        if let (Some(out), Some(back)) = (first(Way::Up), first(Way::Down)) {
            tale.resumption_ms.push((back - moved_ns) as f64 / 1e6);
            tale.signalling_ms.push(back.saturating_sub(out) as f64 / 1e6);
        }
    }
    Ok(())
}

fn download(road: &mut Tunnelled, plan: &RoamPlan) -> Result<Option<(f64, f64)>, Broken> {
    let move_ns = road.now_ns() + plan.move_at_ns;
    let mut moved_ns = None;
    let limit_ns = if plan.broken { 15 * SECOND } else { 300 * SECOND };
    let done = transfer(road, plan.length, limit_ns, |road, bytes| {
        let now_ns = road.now_ns();
        if moved_ns.is_none() && (now_ns >= move_ns || bytes >= plan.length / 2) {
            moved_ns = Some(now_ns);
            relocate(road, plan.broken)?;
        }
        Ok(())
    })?;
    let (Some(end_ns), Some(moved_ns)) = (done.end_ns, moved_ns) else { return Ok(None) };
    let times: Vec<u64> = done.progress.iter().map(|(at, _)| *at).collect();
    let still_ns = Gap::longest_after(&gaps(&times), moved_ns, end_ns);
    Ok(Some((still_ns as f64 / 1e6, (end_ns - done.start_ns) as f64 / 1e9)))
}

fn idle(road: &mut Tunnelled, plan: &RoamPlan) -> Result<Vec<f64>, Broken> {
    let (moves, silence_ns) = plan.idle;
    let mut still = Vec::new();
    for _ in 0..moves {
        road.pass(road.now_ns() + silence_ns)?;
        road.relocate()?;
        let moved_ns = road.now_ns();
        let flow = Flow::run(road, SECOND, |_, _| Ok(()))?;
        let first_ns = flow.arrived_ns.first().copied().unwrap_or(moved_ns + SECOND);
        still.push((first_ns - moved_ns) as f64 / 1e6);
    }
    Ok(still)
}

/// A second link is there before the first one goes, and the going is announced: first the routes,
/// 300 ms later the carrier.
fn known_link(road: &mut Tunnelled) -> Result<(f64, u32), Broken> {
    const NOTICE_NS: u64 = 300 * MS;
    road.add_spare()?;
    road.pass(road.now_ns() + 1_500 * MS)?;
    let announced_ns = road.now_ns() + 800 * MS;
    let mut step = 0;
    let flow = Flow::run(road, 3 * SECOND, |road, now_ns| {
        if step == 0 && now_ns >= announced_ns {
            step = 1;
            road.announce_departure()?;
        } else if step == 1 && now_ns >= announced_ns + NOTICE_NS {
            step = 2;
            road.depart()?;
        }
        Ok(())
    })?;
    Ok((flow.still_ms(announced_ns, announced_ns + 2 * SECOND), flow.lost))
}

fn transfer<R: Road>(
    road: &mut R,
    length: u64,
    limit_ns: u64,
    tick: impl FnMut(&mut R, u64) -> Result<(), Breach>,
) -> Result<Transfer, Broken> {
    let now_ns = road.now_ns();
    road.arrivals();
    Ok(Bulk::new(now_ns, length, R::PACKET_MAX).run(road, now_ns + limit_ns, tick)?)
}

/// Round trips in microseconds.
fn ping<R: Road>(road: &mut R) -> Result<Vec<f64>, Broken> {
    let mut trips = Vec::new();
    road.arrivals();
    for _ in 0..PINGS {
        let sent_ns = road.now_ns();
        let end_ns = sent_ns + PING_GAP_NS.max(SECOND);
        let mut awaited = road.send(Way::Up, PING_LEN)?;
        let mut back = false;
        while let Some(next_ns) = road.next_ns().filter(|&next| next <= end_ns) {
            road.pass(next_ns)?;
            let Some(arrival) = road.arrivals().into_iter().find(|a| a.id == awaited) else {
                continue;
            };
            if back {
                trips.push((arrival.at_ns - sent_ns) as f64 / 1e3);
                break;
            }
            awaited = road.send(Way::Down, PING_LEN)?;
            back = true;
        }
        road.pass((sent_ns + PING_GAP_NS).max(road.now_ns()))?;
    }
    Ok(trips)
}

/// A steady flow from the server to the client.
#[derive(Debug)]
struct Flow {
    arrived_ns: Vec<u64>,
    end_ns: u64,
    lost: u32,
}

impl Flow {
    fn run<R: Road>(
        road: &mut R,
        length_ns: u64,
        mut tick: impl FnMut(&mut R, u64) -> Result<(), Breach>,
    ) -> Result<Self, Broken> {
        let end_ns = road.now_ns() + length_ns;
        let mut flow = Self { arrived_ns: Vec::new(), end_ns, lost: 0 };
        let mut open = BTreeMap::new();
        road.arrivals();
        while road.now_ns() < end_ns {
            tick(road, road.now_ns())?;
            open.insert(road.send(Way::Down, FLOW_LEN)?, ());
            road.pass(road.now_ns() + FLOW_GAP_NS)?;
            flow.take(road, &mut open);
        }
        road.pass(end_ns + PATIENCE_NS)?;
        flow.take(road, &mut open);
        flow.lost = open.len() as u32;
        Ok(flow)
    }

    fn take<R: Road>(&mut self, road: &mut R, open: &mut BTreeMap<u32, ()>) {
        for arrival in road.arrivals() {
            if open.remove(&arrival.id).is_some() {
                self.arrived_ns.push(arrival.at_ns);
            }
        }
    }

    /// How long data stood still after `moved_ns`. A flow that never came back stood still until
    /// its end.
    fn still_ms(&self, moved_ns: u64, until_ns: u64) -> f64 {
        let mut times = self.arrived_ns.clone();
        if times.last().is_none_or(|last| *last < self.end_ns) {
            times.push(self.end_ns);
        }
        Gap::longest_after(&gaps(&times), moved_ns, until_ns) as f64 / 1e6
    }
}

/// The standstills of a millisecond and more between arrivals; the flow's own pace is none.
fn gaps(times: &[u64]) -> Vec<Gap> {
    let gap = |pair: &[u64]| Gap { from_ns: pair[0], to_ns: pair[1] };
    times.windows(2).map(gap).filter(|gap| gap.length_ns() > FLOW_GAP_NS).collect()
}

#[cfg(test)]
#[path = "journey_tests.rs"]
mod tests;
