//! A rehearsal: one link is not used for a while, as if it had been unplugged, and what every open
//! connection makes of it is watched.
//!
//! The link itself is not touched, so nothing outlives the process; and nothing outlives for long
//! whoever began it, since that one must go on asking. Connections are looked at every few
//! milliseconds, from a little before to a little after; how far their ends have got is all that is
//! asked for, so this costs nothing while nobody rehearses.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rove_api::{self as api, RehearsalBegun};
use rove_host::data::{Carried, Handle};
use rove_host::flows;
use rove_host::values::Lifetime;
use rove_os::links::Link;
use rove_proto::flow::report::{FlowReport, Stage as FlowStage};
use rove_proto::flow::tuple::Tuple;
use rove_proto::id::SocketId;
use rove_proto::node::PeerStatus;
use rove_proto::wire::inner::TCP;

use super::Client;
use super::portal::carries;
use crate::ranking::Ranked;

/// How often connections are looked at: a pause is known to within twice this.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// How long they are watched before the link goes, and after it is back.
const BESIDE: Duration = Duration::from_secs(3);
/// The longest time for which a link is not used.
const LASTS_MAX: Lifetime = Lifetime::from_seconds(600);
/// Whoever does not ask for so long how far it is has gone: its command asks four times a second.
const UNASKED_MAX: Duration = Duration::from_secs(2);
/// The most that counts of that between two looks: while this thread was busy with something else
/// it could not be asked.
const UNASKED_STEP: Duration = Duration::from_millis(100);
/// Connections that are watched; of more, those that were found first.
const WATCHED_MAX: usize = 1_000;
/// Pages of connections that are looked at each time.
const PAGES_MAX: usize = 16;

/// A rehearsal, and what it found.
#[derive(Debug)]
pub(super) struct Rehearsal {
    /// The name of the link that is away.
    link: String,
    /// How long each stage but the last takes, or took.
    takes: [Duration; 3],
    stage: Stage,
    /// When the stage is over.
    until: Instant,
    look_at: Instant,
    looked_at: Instant,
    /// For how long nobody has asked how far it is.
    unasked: Duration,
    /// It was ended before its time, because nobody asked any more.
    is_forsaken: bool,
    watch: Watch,
}

/// How far it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Stage {
    /// The link still carries.
    Before,
    /// It does not.
    Without,
    /// It does again.
    After,
    /// Nothing is watched any more.
    Over,
}

/// What was seen of all connections.
#[derive(Debug)]
struct Watch {
    flows: BTreeMap<Tuple, Watched>,
    stage: Stage,
    looked_at: Instant,
    /// The longest time in which nobody looked.
    blind: Duration,
}

/// What was seen of one.
#[derive(Debug)]
struct Watched {
    class: &'static str,
    /// Its other end says how far it has got; of datagrams only those that come are a sign.
    is_acknowledged: bool,
    /// How far its ends had got: what was sent and acknowledged, and what was received.
    at: (u32, u32),
    /// Since when they have not got further.
    still_since: Instant,
    /// When it was there last.
    seen_at: Instant,
    felt: [Felt; 3],
    is_open: bool,
}

/// What a connection felt in one stage.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Felt {
    /// It was open then, so that even if nothing came there is something to tell.
    is_known: bool,
    sent: u64,
    received: u64,
    pause: Duration,
}

impl Client<'_> {
    /// Begins a rehearsal. An error where the link is the only one that carries, unless that
    /// `is_forced`: who works through the tunnel would be locked out.
    pub(super) fn rehearse(
        &mut self,
        unplug: &str,
        lasts: Lifetime,
        is_forced: bool,
    ) -> Result<RehearsalBegun> {
        if let Some(doing) = self.rehearsal.as_ref().and_then(Rehearsal::doing) {
            bail!("{doing}: wait until that is over");
        }
        if lasts > LASTS_MAX {
            bail!("a rehearsal lasts {LASTS_MAX} at most");
        }
        let Some(link) = self.links.ranked().iter().find(|ranked| ranked.link.name == unplug)
        else {
            let names: Vec<_> = self.links.ranked().iter().map(|r| r.link.name.as_str()).collect();
            match names.as_slice() {
                [] => bail!("no link {unplug} is in use, and no other"),
                names => bail!("no link {unplug} is in use: there are {}", names.join(", ")),
            }
        };
        if !is_forced {
            let snapshot = self.data.status(Some(vec![self.gateway]));
            let snapshot = snapshot.context("the data thread does not answer: see the log")?;
            let session = snapshot.peers.first().context("the session is gone: see the log")?;
            let ranked = self.links.ranked();
            ensure!(
                carry_without(&link.link, ranked, session, &snapshot.streams),
                "{unplug} is the only working link, so the test would stop all traffic of the \
                 tunnel: add --force to do it anyway"
            );
        }
        let rehearsal = Rehearsal::new(Instant::now(), unplug, lasts.duration());
        let lasts = rehearsal.takes.iter().sum();
        self.rehearsal = Some(rehearsal);
        tracing::info!("{}", Stage::Before.told(unplug));
        Ok(RehearsalBegun { lasts_ms: milliseconds(lasts) })
    }

    /// How far the rehearsal is, and what it found when it is over.
    pub(super) fn rehearsed(&mut self) -> Result<api::Rehearsal> {
        let rehearsal = self.rehearsal.as_mut().context("nothing was rehearsed")?;
        rehearsal.unasked = Duration::ZERO;
        Ok(rehearsal.report())
    }

    /// Looks at the connections when that is due; takes the link away, and gives it back.
    pub(super) fn go_on_rehearsing(&mut self) {
        let now = Instant::now();
        let Some(rehearsal) = &mut self.rehearsal else { return };
        if rehearsal.due().is_none_or(|due| due > now) {
            return;
        }
        rehearsal.look(now, &self.data);
        let is_forsaken = rehearsal.forsake(now);
        if is_forsaken || rehearsal.turn(now) {
            let (link, stage) = (&rehearsal.link, rehearsal.stage);
            if is_forsaken {
                tracing::warn!(
                    "the rehearsal of {link} ends early, because `rove rehearse` was interrupted"
                );
            } else {
                tracing::info!("{}", stage.told(link));
            }
            // The kernel's subflows go by the link until it is told otherwise.
            self.apply_subflows();
            self.tell_links();
        }
    }
}

impl Stage {
    /// The beginning of this stage, for the log.
    fn told(self, link: &str) -> String {
        match self {
            Self::Before => format!("the rehearsal of {link} begins"),
            Self::Without => format!("rehearsal: {link} is not used from now on"),
            Self::After => format!("rehearsal: {link} is used again"),
            Self::Over => format!("the rehearsal of {link} is over"),
        }
    }
}

impl Rehearsal {
    fn new(now: Instant, link: &str, lasts: Duration) -> Self {
        Self {
            link: link.to_owned(),
            takes: [BESIDE, lasts, BESIDE],
            stage: Stage::Before,
            until: now + BESIDE,
            look_at: now,
            looked_at: now,
            unasked: Duration::ZERO,
            is_forsaken: false,
            watch: Watch::new(now),
        }
    }

    /// When something is to be done.
    pub(super) fn due(&self) -> Option<Instant> {
        (self.stage != Stage::Over).then(|| self.look_at.min(self.until))
    }

    /// The link that is away.
    pub(super) fn unplugged(&self) -> Option<&str> {
        (self.stage == Stage::Without).then_some(self.link.as_str())
    }

    /// What is going on, for people.
    pub(super) fn doing(&self) -> Option<String> {
        let link = &self.link;
        match self.stage {
            Stage::Before => Some(format!("about to do without {link}, to see what comes of it")),
            Stage::Without => Some(format!("doing without {link}, to see what comes of it")),
            Stage::After => Some(format!("looking what came of doing without {link}")),
            Stage::Over => None,
        }
    }

    /// Looks at every connection.
    fn look(&mut self, now: Instant, data: &Handle) {
        self.look_at = now + LOOK_EVERY;
        let mut seen = Vec::new();
        let mut from = None;
        for _ in 0..PAGES_MAX {
            let Some(page) = data.flows(from) else { return };
            seen.extend(page.flows.into_iter().map(|(_, flow)| flow));
            from = page.next;
            if from.is_none() {
                break;
            }
        }
        self.watch.see(Instant::now(), &seen, from.is_none());
    }

    /// Goes on to the next stage when it is due. Returns whether it did.
    fn turn(&mut self, now: Instant) -> bool {
        if self.stage == Stage::Over || now < self.until {
            return false;
        }
        let stage = match self.stage {
            Stage::Before => Stage::Without,
            Stage::Without => Stage::After,
            Stage::After | Stage::Over => Stage::Over,
        };
        self.begin(now, stage);
        true
    }

    fn begin(&mut self, now: Instant, stage: Stage) {
        let takes = self.takes.get(stage as usize).copied().unwrap_or_default();
        (self.stage, self.until) = (stage, now + takes);
        self.watch.turn(now, stage);
    }

    /// Ends it when nobody has asked for it for too long. Returns whether it did.
    fn forsake(&mut self, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.looked_at).min(UNASKED_STEP);
        self.looked_at = now;
        self.unasked += passed;
        if self.stage == Stage::Over || self.unasked < UNASKED_MAX {
            return false;
        }
        let left = self.until.saturating_duration_since(now);
        for (stage, takes) in self.takes.iter_mut().enumerate().skip(self.stage as usize) {
            let is_this = stage == self.stage as usize;
            *takes = if is_this { takes.saturating_sub(left) } else { Duration::ZERO };
        }
        self.is_forsaken = true;
        self.begin(now, Stage::Over);
        true
    }

    fn report(&self) -> api::Rehearsal {
        let felt = |watched: &Watched, stage: Stage| {
            let Felt { is_known, sent, received, pause } = watched.felt[stage as usize];
            let takes = self.takes[stage as usize].max(LOOK_EVERY);
            let rate = |bytes: u64| bytes as f64 * 8.0 / takes.as_secs_f64() / 1e6;
            api::Felt {
                known: is_known,
                tx_bytes: sent,
                rx_bytes: received,
                tx_mbps: rate(sent),
                rx_mbps: rate(received),
                pause_ms: milliseconds(pause),
            }
        };
        let flows = self.watch.flows.iter().map(|(tuple, watched)| api::RehearsedFlow {
            tuple: flows::tuple(tuple),
            class: watched.class.to_owned(),
            open: watched.is_open,
            before: felt(watched, Stage::Before),
            without: felt(watched, Stage::Without),
            after: felt(watched, Stage::After),
        });
        api::Rehearsal {
            link: self.link.clone(),
            over: self.stage == Stage::Over,
            forsaken: self.is_forsaken,
            doing: self.doing(),
            without_ms: milliseconds(self.takes[Stage::Without as usize]),
            blind_ms: milliseconds(self.watch.blind),
            flows: flows.collect(),
        }
    }
}

impl Watch {
    fn new(now: Instant) -> Self {
        let (flows, stage, blind) = (BTreeMap::new(), Stage::Before, Duration::ZERO);
        Self { flows, stage, looked_at: now, blind }
    }

    /// The connections are here now; `is_all` of them.
    fn see(&mut self, now: Instant, flows: &[FlowReport], is_all: bool) {
        self.blind = self.blind.max(now.saturating_duration_since(self.looked_at));
        self.looked_at = now;
        for flow in flows {
            let (at, is_open) = ((flow.sent, flow.received), flow.stage != FlowStage::Closed);
            let has_room = self.flows.len() < WATCHED_MAX;
            match self.flows.get_mut(&flow.tuple) {
                Some(watched) if watched.is_open => {
                    watched.seen_at = now;
                    watched.see(now, self.stage, at);
                    if !is_open {
                        watched.end(now, self.stage);
                    }
                }
                // Another one between the same ends: it begins somewhere else.
                Some(watched) if is_open => watched.begin(now, self.stage, at),
                None if is_open && has_room => {
                    self.flows.insert(flow.tuple, Watched::new(now, self.stage, flow));
                }
                Some(_) | None => {}
            }
        }
        if is_all {
            let open = self.flows.values_mut().filter(|watched| watched.is_open);
            let gone = open.filter(|watched| watched.seen_at != now);
            gone.for_each(|watched| watched.end(now, self.stage));
        }
    }

    /// Another stage begins.
    fn turn(&mut self, now: Instant, stage: Stage) {
        for watched in self.flows.values_mut().filter(|watched| watched.is_open) {
            watched.pause(now, self.stage);
            watched.still_since = now;
            watched.know(stage);
        }
        self.stage = stage;
    }
}

impl Watched {
    fn new(now: Instant, stage: Stage, flow: &FlowReport) -> Self {
        let mut watched = Self {
            class: flow.class.label(),
            is_acknowledged: flow.tuple.protocol == TCP,
            at: (0, 0),
            still_since: now,
            seen_at: now,
            felt: [Felt::default(); 3],
            is_open: true,
        };
        watched.begin(now, stage, (flow.sent, flow.received));
        watched
    }

    /// It is open from now on, and has got as far as `at`.
    fn begin(&mut self, now: Instant, stage: Stage, at: (u32, u32)) {
        (self.is_open, self.at) = (true, at);
        (self.still_since, self.seen_at) = (now, now);
        self.know(stage);
    }

    /// It stood still until it ended, and no longer.
    fn end(&mut self, now: Instant, stage: Stage) {
        self.pause(now, stage);
        self.is_open = false;
    }

    /// It is open in this stage.
    fn know(&mut self, stage: Stage) {
        if let Some(felt) = self.felt.get_mut(stage as usize) {
            felt.is_known = true;
        }
    }

    /// Its ends have got as far as `at`.
    fn see(&mut self, now: Instant, stage: Stage, at: (u32, u32)) {
        // A word that was said late is no step back.
        let forth = |from: u32, to: u32| {
            let moved = to.wrapping_sub(from);
            if moved.cast_signed() > 0 { u64::from(moved) } else { 0 }
        };
        let (sent, received) = (forth(self.at.0, at.0), forth(self.at.1, at.1));
        if sent + received == 0 {
            return;
        }
        if self.is_acknowledged || received > 0 {
            self.pause(now, stage);
            self.still_since = now;
        }
        self.at = at;
        if let Some(felt) = self.felt.get_mut(stage as usize) {
            felt.sent += sent;
            felt.received += received;
        }
    }

    /// It stood still until now.
    fn pause(&mut self, now: Instant, stage: Stage) {
        if let Some(felt) = self.felt.get_mut(stage as usize) {
            felt.pause = felt.pause.max(now.saturating_duration_since(self.still_since));
        }
    }
}

/// Whether something is known to carry by another of these links than `unplug`: a path, or one of
/// MPTCP's subflows.
fn carry_without(
    unplug: &Link,
    ranked: &[Ranked],
    session: &PeerStatus,
    streams: &BTreeMap<SocketId, Carried>,
) -> bool {
    let others = || ranked.iter().map(|other| &other.link).filter(|l| l.index != unplug.index);
    session.paths.iter().filter(|path| carries(path)).any(|path| {
        let is_elsewhere = path.link.is_some_and(|link| others().any(|l| l.index == link.0));
        let subflows = streams.get(&path.route.socket).map(|carried| carried.subflows.as_slice());
        let mut starts = subflows.unwrap_or_default().iter().map(|subflow| subflow.local.ip());
        let has = |link: &Link, ip| link.addresses.iter().any(|net| net.addr() == ip);
        is_elsewhere || starts.any(|ip| others().any(|link| has(link, ip)))
    })
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
#[path = "rehearsal_tests.rs"]
mod tests;
