//! TCP connections in virtual time, watched to their end, and what is done meanwhile.
//!
//! Decides when a connection has ended: when its receiver has all, or when either end notices that
//! it broke, since the other may never learn of it.

use std::iter::Peekable;
use std::slice;

use super::super::connections::{Carrier, Number, Party, Program, Saying, Shell, Side, Terminal};
use super::super::host_id::CLIENT;
use super::super::road::{Road, Tunnelled};
use super::Journey;
use super::acts::Client;
use crate::emu::{MS, SECOND};
use crate::ground::{
    Congestion, Connections, Cue, Download, Heard, KeepAlive, Moment, Patience, Receiver, Route,
    Session, SessionRun, Transfer, Trouble, enclosed,
};
use crate::tcp::{self, Config, CongestionControl};

/// Time between two words on a download's progress.
const PROGRESS_NS: u64 = 50 * MS;

/// What is done while connections are watched.
#[derive(Debug)]
pub(super) struct Script<'a> {
    cues: Peekable<slice::Iter<'a, Cue>>,
    start_ns: u64,
    pub(super) moments: Vec<Moment>,
    /// The link is down.
    is_down: bool,
}

impl Journey {
    /// Opens connections and watches them to their end.
    pub(super) fn carry(
        &mut self,
        kinds: &[Connections],
        limit_ns: u64,
        script: &[Cue],
    ) -> Result<Vec<Vec<Transfer>>, Trouble> {
        let is_open = |kind: &&Connections| kind.route == Route::Open;
        // Beside the tunnel there is somebody, or its link alone in another world.
        let is_beside = self.tunnelled.world.place.neighbour.is_some();
        if !is_beside && kinds.iter().any(|kind| is_open(&kind)) {
            let alone = kinds.iter().all(|kind| is_open(&kind)) && script.is_empty();
            if !alone {
                let what = "over the bare link nothing is done in virtual time";
                return Err(Trouble::Lab(anyhow::anyhow!(what)));
            }
            let road = &mut self.bare;
            let end_ns = road.now_ns().saturating_add(limit_ns);
            let opened = open_all(road, kinds);
            watch(road, end_ns, |_| Ok(u64::MAX))?;
            return Ok(end_all(road, &opened, &[]));
        }
        let opened = open_all(&mut self.tunnelled, kinds);
        let moments = self.watch(limit_ns, script)?;
        Ok(end_all(&mut self.tunnelled, &opened, &moments))
    }

    /// Begins a session and watches it to its end.
    pub(super) fn hold_session(
        &mut self,
        session: Session,
        limit_ns: u64,
        script: &[Cue],
    ) -> Result<SessionRun, Trouble> {
        let world = &mut self.tunnelled.world;
        let number = world.open_connection((CLIENT, 0), |[client, server]| {
            let server = patient(server, session.patience, session.patience.retries);
            [
                Party { config: client, program: Program::Terminal(Terminal::new(session)) },
                Party { config: server, program: Program::Shell(Shell::new(session)) },
            ]
        });
        let moments = self.watch(limit_ns, script)?;
        let transfer = end(&mut self.tunnelled, number, &moments);
        let program =
            self.tunnelled.world.connections.get(number).map(|one| one.program(Side::Client));
        let echoes = match program {
            Some(Program::Terminal(terminal)) => terminal.echoes().to_vec(),
            Some(Program::None | Program::Carrier(_) | Program::Shell(_)) | None => Vec::new(),
        };
        Ok(SessionRun { transfer, echoes })
    }

    /// Downloads over one connection.
    pub(super) fn fetch(
        &mut self,
        download: Download,
        script: &[Cue],
        listen: &mut dyn FnMut(Heard<'_>),
    ) -> Result<Transfer, Trouble> {
        let Download { route, length, limit_ns, .. } = download;
        let kind = [Connections { route, ..Connections::bulk(Receiver::Client, length) }];
        let Route::Tunnelled = route else {
            let transfer = self.carry(&kind, limit_ns, &[])?.concat().pop().unwrap_or_default();
            return Ok(Transfer { intact: transfer.complete, ..transfer });
        };
        let (road, client) = (&mut self.tunnelled, &mut self.client);
        let start_ns = road.now_ns();
        let opened = open_all(road, &kind).concat();
        let mut script = Script::new(start_ns, script);
        let mut told_ns = start_ns;
        watch(road, start_ns + limit_ns, |road| {
            let (now_ns, bytes) = (road.now_ns(), road.heard(&opened));
            if now_ns >= told_ns + PROGRESS_NS {
                told_ns = now_ns;
                listen(Heard::Progress { at_ns: now_ns, bytes });
            }
            if let Some(moment) = script.act(client, road, bytes)? {
                listen(Heard::Done(&moment));
            }
            Ok(script.next_ns())
        })?;
        let transfers = opened.iter().map(|number| end(road, *number, &script.moments));
        let transfer = transfers.last().unwrap_or_default();
        // Where a part is missing there is nothing to compare the whole with.
        Ok(Transfer { start_ns, intact: transfer.complete, ..transfer })
    }

    /// Lets time pass and acts until every connection has ended, or the time is over.
    fn watch(&mut self, limit_ns: u64, script: &[Cue]) -> Result<Vec<Moment>, Trouble> {
        let (road, client) = (&mut self.tunnelled, &mut self.client);
        let start_ns = road.now_ns();
        let mut script = Script::new(start_ns, script);
        let mut held_max = self.held_bytes_max;
        watch(road, start_ns.saturating_add(limit_ns), |road| {
            script.act(client, road, 0)?;
            if script.is_down {
                held_max = held_max.max(Some(road.held_bytes()));
            }
            Ok(script.next_ns())
        })?;
        self.held_bytes_max = held_max;
        // What comes next finds the link as it was.
        if let Some(cue) = script.cues.next().filter(|_| script.is_down) {
            client.act(road, cue.act)?;
        }
        Ok(script.moments)
    }
}

impl<'a> Script<'a> {
    pub(super) fn new(start_ns: u64, cues: &'a [Cue]) -> Self {
        let (moments, is_down) = (Vec::new(), false);
        Self { cues: cues.iter().peekable(), start_ns, moments, is_down }
    }

    /// When the next act is due, as far as that is a matter of time.
    pub(super) fn next_ns(&mut self) -> u64 {
        self.cues.peek().map_or(u64::MAX, |cue| self.start_ns.saturating_add(cue.at_ns))
    }

    /// Does the next act if it is due, now that so many bytes have come.
    pub(super) fn act(
        &mut self,
        client: &mut Client,
        road: &mut Tunnelled,
        bytes: u64,
    ) -> Result<Option<Moment>, Trouble> {
        let is_due = road.now_ns() >= self.next_ns();
        let Some(cue) = self.cues.next_if(|cue| is_due || bytes >= cue.at_bytes) else {
            return Ok(None);
        };
        let moment = client.act(road, cue.act)?;
        self.is_down = cue.act.begins_outage();
        self.moments.push(moment);
        Ok(Some(moment))
    }
}

/// Lets time pass until every connection has ended, or until then; `tick` is called after whatever
/// happens, and says when it has to be called next if nothing does.
fn watch<R: Road>(
    road: &mut R,
    end_ns: u64,
    mut tick: impl FnMut(&mut R) -> Result<u64, Trouble>,
) -> Result<(), Trouble> {
    while road.connections().any_goes_on() && road.now_ns() < end_ns {
        let due_ns = tick(road)?.min(end_ns);
        let next_ns = road.next_ns().map_or(due_ns, |next_ns| next_ns.min(due_ns));
        road.pass(next_ns.max(road.now_ns()))?;
    }
    Ok(())
}

/// Opens connections of all these kinds; a list for each.
pub(super) fn open_all<R: Road>(road: &mut R, kinds: &[Connections]) -> Vec<Vec<Number>> {
    // The kernel of the server has one number for all.
    let retries = kinds.iter().filter_map(|kind| kind.patience.retries).min();
    let all = |kind: &Connections| (0..kind.count).map(|_| open(road, kind, retries)).collect();
    kinds.iter().map(all).collect()
}

fn open<R: Road>(road: &mut R, kind: &Connections, retries: Option<u32>) -> Number {
    let now_ns = road.now_ns();
    let connections = road.connections();
    let [client, server] = connections.configs_by(kind.version, CLIENT, kind.server, R::PACKET_MAX);
    let seed = client.seed;
    let says = Saying::new(seed, kind.length, kind.pace).with(kind.content, seed);
    let says = Program::Carrier(Carrier::new(Some(says), None));
    let hears = Program::Carrier(Carrier::expecting(kind.content, seed, kind.length));
    let [of_client, of_server] = match kind.to {
        Receiver::Client => [hears, says],
        Receiver::Server => [says, hears],
    };
    let congestion = match kind.congestion {
        Congestion::Reno => CongestionControl::Reno,
        Congestion::Cubic => CongestionControl::Cubic,
        Congestion::Bbr => CongestionControl::Bbr,
    };
    let server = patient(server, kind.patience, retries);
    let is_open = kind.route == Route::Open;
    let client = Config { mtu: if is_open { server.mtu } else { client.mtu }, ..client };
    let parties = [(client, of_client), (server, of_server)]
        .map(|(config, program)| Party { config: Config { congestion, ..config }, program });
    let number = connections.open(now_ns, CLIENT, parties);
    if is_open {
        connections.set_open(number);
    }
    number
}

/// An end that gives a silent peer up so.
fn patient(config: Config, patience: Patience, retries: Option<u32>) -> Config {
    let KeepAlive { time_s, interval_s, probes } = KeepAlive::THESIS;
    let (idle_ns, interval_ns) = (time_s * SECOND, interval_s * SECOND);
    let keep_alive = tcp::KeepAlive { idle_ns, interval_ns, probes };
    Config {
        retries: retries.unwrap_or(config.retries),
        keep_alive: patience.keeps_alive.then_some(keep_alive),
        ..config
    }
}

pub(super) fn end_all<R: Road>(
    road: &mut R,
    opened: &[Vec<Number>],
    moments: &[Moment],
) -> Vec<Vec<Transfer>> {
    let mut end_of =
        |numbers: &Vec<Number>| numbers.iter().map(|number| end(road, *number, moments)).collect();
    opened.iter().map(&mut end_of).collect()
}

/// How a connection went; where it still goes on it is given up.
fn end<R: Road>(road: &mut R, number: Number, moments: &[Moment]) -> Transfer {
    let now_ns = road.now_ns();
    let connections = road.connections();
    let Some(one) = connections.get(number) else { return Transfer::default() };
    let outcome = one.outcome().cloned();
    let heard = one.heard().next().cloned().unwrap_or_default();
    let segments = one.segments();
    if outcome.is_none() {
        connections.abort(now_ns, number);
    }
    let end_ns = outcome.as_ref().map_or(now_ns, |outcome| outcome.at_ns);
    let start_ns = heard.opened_ns.unwrap_or(end_ns);
    let arrived = heard.first_ns.map(|first_ns| (first_ns, heard.arrivals.latest_ns()));
    let mut arrivals = heard.arrivals;
    let complete = outcome.as_ref().is_some_and(|outcome| outcome.broke.is_none());
    let is_within = |moment: &&Moment| moment.began_ns <= end_ns;
    Transfer {
        start_ns,
        end_ns,
        complete,
        // That nothing was altered on the way is a law.
        intact: true,
        sha256: None,
        gaps: enclosed(start_ns, end_ns, arrived, arrivals.take_gaps()),
        progress: heard.progress,
        moments: moments.iter().filter(is_within).copied().collect(),
        broke: outcome.and_then(|outcome| outcome.broke).map(str::to_owned),
        segments: Some(segments),
    }
}
