//! The ground of virtual time: the production core under a client that moves, and the bare link
//! beside it. All laws of the world hold meanwhile; a breach ends the story.
//!
//! Goodput and times over emulated links are valid here, since nothing is late; what a processor
//! bounds is not: there is none. The download is the world's own ([`super::bulk`]).

use std::collections::BTreeSet;

use rove_proto::wire::Kind;

use super::bulk::Bulk;
use super::laws::Breach;
use super::op::Way;
use super::road::{Bare, Passed, Road, Tunnelled};
use crate::arrivals::Arrivals;
use crate::emu::{LinkConfig, MS, SECOND};
use crate::ground::{
    Act, Clock, Cue, Download, Flow, FlowRun, Ground, Harm, Heard, Moment, Pings, RoundTrips,
    Route, Transfer, Trouble, enclosed,
};

/// Bytes of an inner packet of the steady flow: payload, IPv4 and UDP header.
const FLOW_LEN: u16 = Flow::BYTES + 28;
/// Bytes of a ping.
const PING_LEN: u16 = 84;
/// How long an answer to a ping may take.
const ECHO_NS: u64 = 2 * SECOND;
/// Time between two words on a download's progress.
const PROGRESS_NS: u64 = 50 * MS;

/// A client with a tunnel, and the link that it has without.
#[derive(Debug)]
pub struct Journey {
    tunnelled: Tunnelled,
    bare: Bare,
    link: LinkConfig,
    /// Every network that the client moves to swallows everything.
    dead_ends: bool,
}

impl Journey {
    /// A session that carries, over a link like this.
    ///
    /// # Errors
    /// A breach of a law.
    pub fn new(seed: u64, link: &LinkConfig) -> Result<Self, Trouble> {
        let tunnelled = Tunnelled::new(seed, link)?;
        let bare = Bare::new(seed, link);
        Ok(Self { tunnelled, bare, link: link.clone(), dead_ends: false })
    }
}

impl Ground for Journey {
    fn clock(&self) -> Clock {
        Clock::Virtual
    }

    fn pause(&mut self, length_ns: u64) -> Result<(), Trouble> {
        Ok(self.tunnelled.pass(self.tunnelled.now_ns() + length_ns)?)
    }

    fn ping(&mut self, routes: &[Route], pings: Pings) -> Result<Vec<RoundTrips>, Trouble> {
        let mut all = Vec::new();
        for route in routes {
            all.push(match route {
                Route::Tunnelled => ping(&mut self.tunnelled, pings)?,
                Route::Open => ping(&mut self.bare, pings)?,
            });
        }
        Ok(all)
    }

    fn flow(&mut self, flow: Flow, script: &[Cue]) -> Result<FlowRun, Trouble> {
        let road = &mut self.tunnelled;
        road.arrivals();
        road.overheard();
        let start_ns = road.now_ns();
        let mut under_way = UnderWay::default();
        let mut moments = Vec::new();
        let mut script = script.iter().peekable();
        for number in 0..=u64::from(flow.count) {
            let due_ns = start_ns + flow.silence_ns + number * Flow::INTERVAL_NS;
            while let Some(cue) = script.next_if(|cue| start_ns + cue.at_ns <= due_ns) {
                road.pass(start_ns + cue.at_ns)?;
                moments.push(act(road, cue.act, self.dead_ends)?);
            }
            road.pass(due_ns)?;
            if number < u64::from(flow.count) {
                under_way.sent.insert(road.send(Way::Down, FLOW_LEN)?);
            }
            under_way.take(road);
        }
        let end_ns = road.now_ns();
        road.pass(end_ns + Flow::PATIENCE_NS)?;
        under_way.take(road);
        let passed = road.overheard();
        let UnderWay { sent, first_ns, mut arrivals } = under_way;
        let arrived = first_ns.map(|first_ns| (first_ns, arrivals.latest_ns()));
        let run = FlowRun::new(start_ns, end_ns, arrived, arrivals.take_gaps());
        let mut run = FlowRun { lost: sent.len() as u64, moments, ..run };
        run.see(|_| passed.iter().map(|one| (one.at_ns, one.way == Way::Down)).collect());
        run.added_bytes = passed.iter().filter_map(added_bytes).collect();
        Ok(run)
    }

    fn download(
        &mut self,
        download: Download,
        script: &[Cue],
        listen: &mut dyn FnMut(Heard<'_>),
    ) -> Result<Transfer, Trouble> {
        let dead_ends = self.dead_ends;
        match download.route {
            Route::Open => transfer(&mut self.bare, download, |_, _| Ok(())),
            Route::Tunnelled => {
                let road = &mut self.tunnelled;
                let start_ns = road.now_ns();
                let mut script = script.iter().peekable();
                let mut moments = Vec::new();
                let mut told_ns = start_ns;
                let tick = |road: &mut Tunnelled, bytes| {
                    let now_ns = road.now_ns();
                    if now_ns >= told_ns + PROGRESS_NS {
                        told_ns = now_ns;
                        listen(Heard::Progress { at_ns: now_ns, bytes });
                    }
                    let due = |cue: &&Cue| now_ns >= start_ns + cue.at_ns || bytes >= cue.at_bytes;
                    if let Some(cue) = script.next_if(due) {
                        let moment = act(road, cue.act, dead_ends)?;
                        listen(Heard::Done(&moment));
                        moments.push(moment);
                    }
                    Ok(())
                };
                let transfer = transfer(road, download, tick)?;
                Ok(Transfer { moments, ..transfer })
            }
        }
    }

    fn harm(&mut self, harm: Harm) -> Result<(), Trouble> {
        match harm {
            Harm::DeadEnds => self.dead_ends = true,
            Harm::BitErrors(share) => {
                let mut link = self.link.clone();
                for pipe in [&mut link.up, &mut link.down] {
                    pipe.bit_errors = crate::emu::BitErrors::Delivered(share);
                }
                self.tunnelled.set_link(&link);
            }
        }
        Ok(())
    }

    fn add_spare(&mut self) -> Result<(), Trouble> {
        Ok(self.tunnelled.add_spare()?)
    }
}

fn act(road: &mut Tunnelled, act: Act, dead_ends: bool) -> Result<Moment, Breach> {
    match act {
        Act::Relocate => {
            if dead_ends {
                road.swallow();
            }
            road.relocate()?;
        }
        Act::AnnounceDeparture => road.announce_departure()?,
        Act::Depart => road.depart()?,
    }
    let now_ns = road.now_ns();
    let address = road.address();
    Ok(Moment { act, began_ns: now_ns, done_ns: now_ns, address, left_ns: None, came_ns: None })
}

fn added_bytes(passed: &Passed) -> Option<f64> {
    let Passed { way, kind, len, .. } = *passed;
    let of_flow = way == Way::Down && kind == Some(Kind::Data) && len > usize::from(FLOW_LEN);
    of_flow.then(|| (len - usize::from(FLOW_LEN)) as f64)
}

fn transfer<R: Road>(
    road: &mut R,
    download: Download,
    tick: impl FnMut(&mut R, u64) -> Result<(), Breach>,
) -> Result<Transfer, Trouble> {
    let start_ns = road.now_ns();
    road.arrivals();
    let bulk = Bulk::new(download.length, R::PACKET_MAX);
    let done = bulk.run(road, start_ns + download.limit_ns, tick)?;
    let mut arrivals = Arrivals::default();
    done.progress.iter().for_each(|(at_ns, _)| arrivals.note(*at_ns));
    let end_ns = done.end_ns.unwrap_or_else(|| road.now_ns());
    let first = done.progress.first();
    let arrived = first.map(|(first_ns, _)| (*first_ns, arrivals.latest_ns()));
    Ok(Transfer {
        start_ns,
        end_ns,
        complete: done.end_ns.is_some(),
        // That nothing was altered on the way is a law.
        intact: done.end_ns.is_some(),
        gaps: enclosed(start_ns, end_ns, arrived, arrivals.take_gaps()),
        progress: done.progress,
        ..Transfer::default()
    })
}

fn ping<R: Road>(road: &mut R, pings: Pings) -> Result<RoundTrips, Trouble> {
    let mut trips = Vec::new();
    road.arrivals();
    for _ in 0..pings.count {
        let sent_ns = road.now_ns();
        trips.push(ping_once(road, sent_ns + ECHO_NS)?.map(|back_ns| back_ns - sent_ns));
        road.pass((sent_ns + pings.interval_ns).max(road.now_ns()))?;
    }
    Ok(RoundTrips(trips))
}

/// Sends a packet and its answer; returns when that came, if it did before `end_ns`.
fn ping_once<R: Road>(road: &mut R, end_ns: u64) -> Result<Option<u64>, Trouble> {
    let mut awaited = road.send(Way::Up, PING_LEN)?;
    let mut back = false;
    while let Some(next_ns) = road.next_ns().filter(|&next| next <= end_ns) {
        road.pass(next_ns)?;
        let Some(arrival) = road.arrivals().into_iter().find(|a| a.id == awaited) else {
            continue;
        };
        if back {
            return Ok(Some(arrival.at_ns));
        }
        awaited = road.send(Way::Down, PING_LEN)?;
        back = true;
    }
    Ok(None)
}

/// Packets of a flow, and when those came that have.
#[derive(Debug, Default)]
struct UnderWay {
    sent: BTreeSet<u32>,
    first_ns: Option<u64>,
    arrivals: Arrivals,
}

impl UnderWay {
    fn take(&mut self, road: &mut Tunnelled) {
        for arrival in road.arrivals() {
            if self.sent.remove(&arrival.id) {
                self.first_ns.get_or_insert(arrival.at_ns);
                self.arrivals.note(arrival.at_ns);
            }
        }
    }
}

impl From<Breach> for Trouble {
    fn from(breach: Breach) -> Self {
        Self::UnderTest(format!("a law was broken: {breach}"))
    }
}

#[cfg(test)]
#[path = "journey_tests.rs"]
mod tests;
