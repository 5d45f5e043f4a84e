//! Links that lose UDP steadily. Some networks drop UDP beyond a small rate and leave TCP alone; a
//! radio loses datagrams at random, and TCP is worse there. Loss alone does not tell one from the
//! other, so a client tries a stream by the same link and keeps it if it carries clearly more.
//!
//! In mode `full` the stream shares the data with UDP while it is tried. In the other modes data
//! goes by it alone, for two seconds if it carries less. Each trial in vain doubles the time to the
//! next. Where a stream is kept, UDP by that link is asked from time to time: a train of challenges
//! and their answers goes both ways, faster than a policer lets by, while the data stays.
//!
//! Knows nothing of why something is lost. A link with another address is another link.
//!
//! Limits: one trial at a time. Loss that is told of another link meanwhile is not remembered, so
//! where two links are policed at once the second may wait long for its trial.

use std::net::IpAddr;

use super::connector::{Candidate, Connector};
use super::plan::PathPlan;
use super::probing::FLIGHT_SIZE;
use super::{Context, Side, StreamTo, Tunnel};
use crate::id::{LinkId, Transport};
use crate::multipath::Mode;
use crate::path::{Path, PathId};
use crate::time::{Duration, Instant};

/// A stream is kept if it carries so many times what UDP did. Less would not be clear: the rate of
/// a TCP connection inside the tunnel varies by a third.
const GAIN: f64 = 1.5;
/// How long a stream has for its first answer: a connection, perhaps TLS, and a challenge.
const ANSWER: Duration = Duration::from_secs(2);
/// How long a stream is tried beside UDP,
const TRIAL: Duration = Duration::from_secs(4);
/// and alone, if it carries less than UDP did. Twice as long would be a pause that people notice.
const TRIAL_ALONE: Duration = Duration::from_secs(2);
/// How often a trial is looked at: a rate is measured over half a second.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Time until the next trial of a link after one in vain, and until UDP is asked again; twice as
/// long each time,
const PAUSE_FIRST: Duration = Duration::from_secs(60);
/// up to this.
const PAUSE_MAX: Duration = Duration::from_secs(3_600);
/// Links of which this is remembered.
const LINKS_MAX: usize = 8;
/// Steady loss was told of within this time, or it is over: it is told of every three seconds.
const LASTS: Duration = Duration::from_secs(10);
/// Challenges of a train, 140 kB each way: a policer's burst is usually less than 64 kB.
const TRAIN: u32 = 128;
/// So many leave at once,
const TRAIN_BURST: u32 = 8;
/// so far apart: 9 Mbit/s, if the link carries that.
const TRAIN_EVERY: Duration = Duration::from_millis(8);
/// How long the answers to a train are waited for.
const TRAIN_ANSWERS: Duration = Duration::from_secs(1);
/// UDP is free again if so many hundredths of a train came back.
const TRAIN_PASSES: u64 = 95;

/// Which way a path loses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Direction {
    /// What this end sends.
    Up,
    /// What comes.
    Down,
}

/// What a client makes of a link that loses UDP steadily.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Remedy {
    /// No stream leads to the gateway, because the user or the gateway wants none.
    None,
    /// A stream is tried.
    Trying,
    /// A stream was tried in vain: it carries no more.
    InVain,
    /// A stream carries.
    Stream,
}

/// A link that loses UDP steadily.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LossyLink {
    /// The link.
    pub link: LinkId,
    /// When that was noticed first.
    pub since: Instant,
    /// When it was noticed last.
    pub told_at: Instant,
    /// What is done about it.
    pub remedy: Remedy,
}

impl LossyLink {
    /// Whether it still does, as far as anybody can tell: where a stream carries, UDP is not asked.
    pub fn lasts(&self, now: Instant) -> bool {
        matches!(self.remedy, Remedy::Trying | Remedy::Stream)
            || now.saturating_since(self.told_at) < LASTS
    }
}

/// All such links of a client.
#[derive(Debug, Default)]
pub(crate) struct Policing {
    links: Vec<Lossy>,
    trial: Option<Trial>,
    train: Option<Train>,
}

#[derive(Clone, Copy, Debug)]
struct Lossy {
    of: (LinkId, IpAddr),
    since: Instant,
    told_at: Instant,
    remedy: Remedy,
    /// The stream that carries in place of UDP.
    kept: Option<Candidate>,
    /// When the next trial, or the next train, may begin,
    next: Instant,
    /// and how long after that the one after it.
    pause: Duration,
}

/// A stream beside UDP.
#[derive(Clone, Copy, Debug)]
struct Trial {
    of: (LinkId, IpAddr),
    way: Candidate,
    /// Streams of this link that were tried before it.
    tried: usize,
    direction: Direction,
    /// Bytes per second that UDP carried.
    before: f64,
    /// Since when the stream carries.
    carries_since: Option<Instant>,
    is_alone: bool,
    began: Instant,
    look_at: Instant,
}

/// A train of challenges by UDP.
#[derive(Clone, Copy, Debug)]
struct Train {
    of: (LinkId, IpAddr),
    path: PathId,
    /// Challenges that are still to leave.
    left: u32,
    /// Bytes that left, and that had come before.
    bytes: (u64, u64),
    due: Instant,
}

impl Policing {
    fn lossy(&mut self, of: (LinkId, IpAddr)) -> Option<&mut Lossy> {
        self.links.iter_mut().find(|lossy| lossy.of == of)
    }

    /// Whether a stream takes the place of UDP by this link.
    pub(crate) fn prefers_stream(&self, link: Option<LinkId>) -> bool {
        let is_kept = |lossy: &Lossy| Some(lossy.of.0) == link && lossy.kept.is_some();
        let is_tried = |trial: &Trial| {
            Some(trial.of.0) == link && trial.is_alone && trial.carries_since.is_some()
        };
        self.links.iter().any(is_kept) || self.trial.as_ref().is_some_and(is_tried)
    }

    /// Whether a stream is tried beside UDP by `way`.
    pub(crate) fn is_tried(&self, way: Option<Candidate>) -> bool {
        way.is_some() && self.trial.map(|trial| trial.way) == way
    }

    /// The streams that are to be there.
    pub(crate) fn ways(&self) -> impl Iterator<Item = Candidate> + '_ {
        let kept = self.links.iter().filter_map(|lossy| lossy.kept);
        let tried = self.trial.iter().map(|trial| trial.way);
        kept.chain(tried)
    }

    /// Forgets links that are gone or have another address.
    pub(crate) fn retain(&mut self, is_there: impl Fn(LinkId, IpAddr) -> bool) {
        self.links.retain(|lossy| is_there(lossy.of.0, lossy.of.1));
        self.trial.take_if(|trial| !is_there(trial.of.0, trial.of.1));
        self.train.take_if(|train| !is_there(train.of.0, train.of.1));
    }

    /// The streams to the gateway are these now.
    pub(crate) fn keep_only(&mut self, streams: &[StreamTo]) {
        let leads = |way: &Candidate| {
            let to = |stream: &StreamTo| (stream.remote, Some(stream.method));
            streams.iter().any(|stream| to(stream) == (way.remote, way.stream))
        };
        self.links.retain(|lossy| lossy.kept.is_none_or(|way| leads(&way)));
        self.trial.take_if(|trial| !leads(&trial.way));
    }

    /// The links that lose UDP steadily, or did until a stream took its place.
    pub(crate) fn lossy_links(&self) -> Vec<LossyLink> {
        let told = |&Lossy { of, since, told_at, remedy, .. }: &Lossy| LossyLink {
            link: of.0,
            since,
            told_at,
            remedy,
        };
        self.links.iter().map(told).collect()
    }

    /// Notes a loss. Returns whether a trial may begin.
    fn note(&mut self, now: Instant, of: (LinkId, IpAddr), has_streams: bool) -> bool {
        let is_free = self.trial.is_none();
        if let Some(lossy) = self.lossy(of) {
            if now.saturating_since(lossy.told_at) >= LASTS {
                lossy.since = now;
            }
            lossy.told_at = now;
            if !has_streams && lossy.kept.is_none() {
                lossy.remedy = Remedy::None;
            }
            return is_free && has_streams && lossy.kept.is_none() && lossy.next <= now;
        }
        if self.links.len() >= LINKS_MAX {
            self.links.remove(0);
        }
        let remedy = if has_streams { Remedy::Trying } else { Remedy::None };
        let (kept, pause) = (None, PAUSE_FIRST);
        self.links.push(Lossy { of, since: now, told_at: now, remedy, kept, next: now, pause });
        is_free && has_streams
    }
}

impl Connector {
    /// The streams by this link, those that failed just now left out.
    fn streams_by(&self, now: Instant, link: LinkId) -> impl Iterator<Item = Candidate> + '_ {
        let by_it = self.stream_candidates().filter(move |way| way.link == link);
        by_it.filter(move |way| !self.failed_lately(now, *way))
    }
}

impl PathPlan<'_> {
    /// Client: when a trial or a train goes on, or UDP is to be asked again while anybody speaks.
    pub(crate) fn policing_due(&self) -> Option<Instant> {
        let policing = &self.connector?.policing;
        let trial = policing.trial.map(|trial| trial.look_at);
        let train = policing.train.map(|train| train.due);
        let kept = policing.links.iter().filter(|lossy| lossy.kept.is_some());
        let next = kept.map(|lossy| lossy.next).min();
        let next = next.filter(|&due| policing.train.is_none() && !self.is_idle_at(due));
        [trial, train, next].into_iter().flatten().min()
    }
}

impl Tunnel {
    /// The path `id` loses steadily, and so many bytes per second arrive nevertheless.
    pub(crate) fn doubt_udp(
        &mut self,
        cx: &mut Context<'_>,
        id: PathId,
        direction: Direction,
        arrives: f64,
    ) {
        let carries = self.paths.active_id() == Some(id) || self.is_shared(Some(id));
        let path = self.paths.get(id).filter(|path| carries && path.transport() == Transport::Udp);
        let of = path.and_then(|path| path.link.zip(path.route.local));
        let (Some(of), Side::Client(connector)) = (of, &mut self.side) else { return };
        let first = connector.streams_by(cx.now, of.0).next();
        if !connector.policing.note(cx.now, of, first.is_some()) {
            return;
        }
        let Some(way) = first else { return };
        let trial = Trial {
            of,
            way,
            tried: 0,
            direction,
            before: arrives,
            carries_since: None,
            is_alone: cx.config.mode != Mode::Full,
            began: cx.now,
            look_at: cx.now + LOOK_EVERY,
        };
        connector.policing.trial = Some(trial);
        if let Some(lossy) = connector.policing.lossy(of) {
            lossy.remedy = Remedy::Trying;
        }
        self.stand_by(cx);
    }

    /// Does what is due about links that lose UDP.
    pub(crate) fn judge_udp(&mut self, cx: &mut Context<'_>) {
        let Side::Client(connector) = &self.side else { return };
        let Policing { trial, train, .. } = connector.policing;
        if let Some(trial) = trial.filter(|trial| trial.look_at <= cx.now) {
            self.judge_trial(cx, trial);
        }
        if let Some(train) = train.filter(|train| train.due <= cx.now) {
            self.drive(cx, train);
        } else if train.is_none() {
            self.ask_udp_again(cx);
        }
    }

    fn judge_trial(&mut self, cx: &mut Context<'_>, trial: Trial) {
        let path = self.path_by(trial.way).filter(|path| path.is_able());
        let rate = |path: &Path| match trial.direction {
            Direction::Up => path.rates.0.at(cx.now),
            Direction::Down => path.rates.1.at(cx.now),
        };
        let now = path.and_then(rate).unwrap_or(0.0);
        let Some(since) = trial.carries_since else {
            if path.is_some() {
                let trial = Trial { carries_since: Some(cx.now), ..trial };
                self.go_on(cx, trial);
                self.take_better(cx);
            } else if trial.began + ANSWER <= cx.now {
                self.try_next_stream(cx, trial);
            } else {
                self.go_on(cx, trial);
            }
            return;
        };
        let beside = self.paths.iter().filter(|path| {
            path.transport() == Transport::Udp && path.link == Some(trial.of.0) && path.has_share()
        });
        let udp = beside.filter_map(rate).fold(trial.before, f64::max);
        let took = cx.now.saturating_since(since);
        if now >= GAIN * udp {
            self.keep_stream(cx, trial);
        } else if path.is_none()
            || took >= TRIAL
            || (trial.is_alone && took >= TRIAL_ALONE && now < trial.before)
        {
            self.end_trial(cx, trial);
        } else {
            self.go_on(cx, trial);
        }
    }

    fn go_on(&mut self, cx: &Context<'_>, trial: Trial) {
        if let Side::Client(connector) = &mut self.side {
            let look_at = cx.now + LOOK_EVERY;
            connector.policing.trial = Some(Trial { look_at, ..trial });
        }
    }

    /// The stream that is tried does not answer.
    fn try_next_stream(&mut self, cx: &mut Context<'_>, trial: Trial) {
        let Side::Client(connector) = &self.side else { return };
        let tried = trial.tried + 1;
        let next = connector.stream_candidates().filter(|way| way.link == trial.of.0).nth(tried);
        let Some(way) = next else { return self.end_trial(cx, trial) };
        self.go_on(cx, Trial { way, tried, began: cx.now, ..trial });
        self.stand_by(cx);
    }

    /// The stream carries clearly more: it takes the place of UDP by this link.
    fn keep_stream(&mut self, cx: &mut Context<'_>, trial: Trial) {
        let Side::Client(connector) = &mut self.side else { return };
        connector.policing.trial = None;
        if let Some(lossy) = connector.policing.lossy(trial.of) {
            (lossy.remedy, lossy.kept) = (Remedy::Stream, Some(trial.way));
            lossy.next = cx.now + lossy.pause;
        }
        self.take_better(cx);
        self.stand_by(cx);
    }

    /// The stream carries no more than UDP.
    fn end_trial(&mut self, cx: &mut Context<'_>, trial: Trial) {
        let Side::Client(connector) = &mut self.side else { return };
        connector.policing.trial = None;
        if let Some(lossy) = connector.policing.lossy(trial.of) {
            lossy.remedy = Remedy::InVain;
            lossy.next = cx.now + lossy.pause;
            lossy.pause = (lossy.pause * 2).min(PAUSE_MAX);
        }
        self.take_better(cx);
        self.stand_by(cx);
        let left = self.path_by(trial.way).map(|path| path.id);
        if let Some(id) = left.filter(|&id| self.paths.active_id() != Some(id)) {
            self.remove_path(cx, id);
        }
    }

    fn path_by(&self, way: Candidate) -> Option<&Path> {
        let Side::Client(connector) = &self.side else { return None };
        let by_it = |path: &&Path| connector.candidate_of(path.link, &path.route) == Some(way);
        self.paths.iter().find(by_it)
    }

    /// UDP by a link where a stream took its place is asked whether it is free again.
    fn ask_udp_again(&mut self, cx: &mut Context<'_>) {
        if self.plan().policing_due().is_none_or(|due| due > cx.now) {
            return;
        }
        let Side::Client(connector) = &mut self.side else { return };
        let due = |lossy: &&mut Lossy| lossy.kept.is_some() && lossy.next <= cx.now;
        let Some(lossy) = connector.policing.links.iter_mut().find(due) else { return };
        lossy.next = cx.now + lossy.pause;
        lossy.pause = (lossy.pause * 2).min(PAUSE_MAX);
        let of = lossy.of;
        let way = connector.candidates().find(|way| (way.link, way.local) == of);
        let Some(way) = way.filter(|_| self.paths.has_room()) else { return };
        let there = self.path_by(way).map(|path| path.id);
        let Some(path) = there.or_else(|| self.open_path(cx, way)) else { return };
        self.ask(cx, path);
        let (left, bytes, due) = (TRAIN, (0, 0), cx.now + LOOK_EVERY);
        if let Side::Client(connector) = &mut self.side {
            connector.policing.train = Some(Train { of, path, left, bytes, due });
        }
    }

    /// The next burst of a train, or its end.
    fn drive(&mut self, cx: &mut Context<'_>, mut train: Train) {
        let path = self.paths.get(train.path).filter(|path| path.is_able());
        let came = path.map(|path| path.traffic.1);
        let is_over = train.left == 0 || came.is_none();
        if let Some(came) = came.filter(|_| train.left == TRAIN) {
            train.bytes.1 = came;
        }
        if !is_over {
            for _ in 0..TRAIN_BURST {
                self.challenge(cx, train.path, FLIGHT_SIZE);
            }
            train.left = train.left.saturating_sub(TRAIN_BURST);
            train.bytes.0 += u64::from(TRAIN_BURST) * FLIGHT_SIZE as u64;
            train.due = cx.now + if train.left == 0 { TRAIN_ANSWERS } else { TRAIN_EVERY };
        }
        let Side::Client(connector) = &mut self.side else { return };
        connector.policing.train = Some(train).filter(|_| !is_over);
        if !is_over {
            return;
        }
        let answers = came.unwrap_or(0).saturating_sub(train.bytes.1);
        if train.bytes.0 > 0 && answers * 100 >= train.bytes.0 * TRAIN_PASSES {
            if let Some(lossy) = connector.policing.lossy(train.of) {
                (lossy.kept, lossy.remedy, lossy.next) = (None, Remedy::InVain, cx.now);
            }
            self.take_better(cx);
            self.stand_by(cx);
        } else if self.paths.active_id() != Some(train.path) {
            self.remove_path(cx, train.path);
        }
    }
}
