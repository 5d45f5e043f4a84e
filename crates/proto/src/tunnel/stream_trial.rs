//! A client tries a stream beside UDP on a link that polices UDP, and keeps what carries more.
//!
//! The stream shares the data with UDP during the trial. It is kept if it carries clearly more. If
//! both together do, data goes by the stream alone for a moment, to see whether it carries all of
//! that. Each trial in vain doubles the time to the next. Where a stream is kept, a train of
//! challenges and their answers asks now and then whether UDP is free again. The data stays.
//!
//! Decides by goodput alone, for each link by itself. Limit: a policer that lets 9 Mbit/s by, or
//! the whole train at once, looks free to the train. A controller then notices it anew.

use super::candidate::Candidate;
use super::connector::Connector;
use super::plan::PathPlan;
use super::policing::{Direction, PAUSE_MAX, Policed, Policing, Remedy, Train, Trial};
use super::probing::FLIGHT_SIZE;
use super::{Context, Side, Tunnel};
use crate::id::{LinkId, PathSerial, Transport};
use crate::path::{Path, PathId};
use crate::time::{Duration, Instant};
use crate::wire::control::Control;

/// A stream is kept if it carries so many times what UDP did. Less would not be clear: the rate of
/// a TCP connection inside the tunnel varies by a third.
const GAIN: f64 = 1.5;
/// It is tried alone if it and UDP carry so many times what UDP did, and is kept if it alone does.
const GAIN_ALONE: f64 = 1.2;
/// How long it is tried beside UDP before that: it begins slowly.
const BESIDE: Duration = Duration::from_millis(1_500);
/// How long a stream has for its first answer: a connection, perhaps TLS, and a challenge.
const ANSWER: Duration = Duration::from_secs(2);
/// How long a stream is tried beside UDP,
const TRIAL: Duration = Duration::from_secs(4);
/// and alone. Twice as long would be a slow moment that people notice.
const TRIAL_ALONE: Duration = Duration::from_secs(2);
/// How often a trial is looked at: a rate is measured over half a second.
const LOOK_EVERY: Duration = Duration::from_millis(250);
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

impl Connector {
    /// The streams by this link, those that failed just now left out.
    fn streams_by(&self, now: Instant, link: LinkId) -> impl Iterator<Item = Candidate> + '_ {
        let by_it = self.stream_candidates().filter(move |candidate| candidate.link == link);
        by_it.filter(move |candidate| !self.failed_lately(now, *candidate))
    }
}

impl PathPlan<'_> {
    /// Client: when a trial or a train goes on, or UDP is to be asked again while anybody speaks.
    pub(crate) fn policing_due(&self) -> Option<Instant> {
        let policing = &self.connector?.policing;
        if policing.links.is_empty() {
            return None; // nearly always
        }
        let trial = policing.trials.iter().map(|trial| trial.look_at).min();
        let train = policing.train.map(|train| train.due);
        let kept = policing.links.iter().filter(|link| link.kept.is_some());
        let next = kept.map(|link| link.next).min();
        let next = next.filter(|&due| policing.train.is_none() && !self.is_idle_at(due));
        [trial, train, next].into_iter().flatten().min()
    }
}

impl Tunnel {
    /// This end's controller found that a path is policed, and so many bytes per second pass.
    /// `serial` is what it sends under, if the keys are the current ones.
    pub(crate) fn note_policed(
        &mut self,
        cx: &mut Context<'_>,
        id: PathId,
        serial: Option<PathSerial>,
        rate: f64,
    ) {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
        let kbps = (rate / 125.0) as u32;
        if matches!(self.side, Side::Client(_)) {
            self.doubt_udp(cx, id, Direction::Up, kbps);
        } else if let Some(serial) = serial
            && self.paths.get(id).is_some_and(|path| path.transport() == Transport::Udp)
        {
            self.control.push(cx.now, &Control::Policed { serial, kbps });
        }
    }

    /// The gateway's controller found that, for the path.
    pub(crate) fn take_policed(&mut self, cx: &mut Context<'_>, id: Option<PathId>, kbps: u32) {
        if let Some(id) = id {
            self.doubt_udp(cx, id, Direction::Down, kbps);
        }
    }

    /// The path `id` is policed, if it is one of UDP, and a trial begins if one is due.
    fn doubt_udp(&mut self, cx: &mut Context<'_>, id: PathId, direction: Direction, kbps: u32) {
        let is_there = |path: &&Path| path.has_share() && path.transport() == Transport::Udp;
        let path = self.paths.get(id).filter(is_there);
        let of = path.and_then(|path| path.link.zip(path.route.local));
        let (Some(of), Side::Client(connector)) = (of, &mut self.side) else { return };
        let first = connector.streams_by(cx.now, of.0).next();
        if !connector.policing.note(cx.now, of, kbps, first.is_some()) {
            return;
        }
        let Some(candidate) = first else { return };
        let trial = Trial {
            of,
            candidate,
            tried: 0,
            direction,
            before: f64::from(kbps) * 125.0,
            carries_since: None,
            is_alone: false,
            began: cx.now,
            look_at: cx.now + LOOK_EVERY,
        };
        connector.policing.trials.push(trial);
        if let Some(link) = connector.policing.link(of) {
            link.remedy = Remedy::Trying;
        }
        self.stand_by(cx);
    }

    /// Does what is due about links that police UDP.
    pub(crate) fn judge_udp(&mut self, cx: &mut Context<'_>) {
        let Side::Client(connector) = &self.side else { return };
        let Policing { trials, train, .. } = &connector.policing;
        let (due, train) = (trials.iter().find(|trial| trial.look_at <= cx.now).copied(), *train);
        if let Some(trial) = due {
            self.judge_trial(cx, trial);
        } else if let Some(train) = train.filter(|train| train.due <= cx.now) {
            self.drive(cx, train);
        } else if train.is_none() {
            self.ask_udp_again(cx);
        }
    }

    fn judge_trial(&mut self, cx: &mut Context<'_>, trial: Trial) {
        let path = self.path_by(trial.candidate).filter(|path| path.is_able());
        let rate = |path: &Path| match trial.direction {
            Direction::Up => path.rates.0.at(cx.now),
            Direction::Down => path.rates.1.at(cx.now),
        };
        let stream = path.and_then(rate).unwrap_or(0.0);
        let Some(since) = trial.carries_since else {
            if path.is_some() {
                self.go_on(cx, Trial { carries_since: Some(cx.now), ..trial });
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
        let udp: f64 = beside.filter_map(rate).sum();
        let before = trial.before.max(udp);
        let took = cx.now.saturating_since(since);
        let gain = if trial.is_alone { GAIN_ALONE } else { GAIN };
        let most = if trial.is_alone { TRIAL_ALONE } else { TRIAL };
        if stream >= gain * before {
            self.keep_stream(cx, trial);
        } else if path.is_none() || took >= most {
            // Where hardly anything was sent, the trial says nothing.
            let pauses = path.is_none() || stream + udp >= before / 2.0;
            self.end_trial(cx, trial, pauses);
        } else if !trial.is_alone && took >= BESIDE && stream + udp >= GAIN_ALONE * before {
            self.go_on(cx, Trial { is_alone: true, carries_since: Some(cx.now), before, ..trial });
            self.take_better(cx);
            self.stand_by(cx);
        } else {
            self.go_on(cx, trial);
        }
    }

    fn go_on(&mut self, cx: &Context<'_>, trial: Trial) {
        let Side::Client(connector) = &mut self.side else { return };
        let there = connector.policing.trials.iter_mut().find(|other| other.of == trial.of);
        if let Some(there) = there {
            *there = Trial { look_at: cx.now + LOOK_EVERY, ..trial };
        }
    }

    /// The stream that is tried does not answer.
    fn try_next_stream(&mut self, cx: &mut Context<'_>, trial: Trial) {
        let Side::Client(connector) = &self.side else { return };
        let tried = trial.tried + 1;
        let next = connector
            .stream_candidates()
            .filter(|candidate| candidate.link == trial.of.0)
            .nth(tried);
        let Some(candidate) = next else { return self.end_trial(cx, trial, true) };
        self.go_on(cx, Trial { candidate, tried, began: cx.now, ..trial });
        self.stand_by(cx);
    }

    /// The stream carries clearly more: it takes the place of UDP by this link.
    fn keep_stream(&mut self, cx: &mut Context<'_>, trial: Trial) {
        let Side::Client(connector) = &mut self.side else { return };
        connector.policing.trials.retain(|other| other.of != trial.of);
        if let Some(link) = connector.policing.link(trial.of) {
            (link.remedy, link.kept) = (Remedy::Stream, Some(trial.candidate));
            link.next = cx.now + link.pause;
        }
        self.take_better(cx);
        self.stand_by(cx);
    }

    /// The stream carries no more than UDP, as far as the trial shows. `pauses` if it shows that.
    fn end_trial(&mut self, cx: &mut Context<'_>, trial: Trial, pauses: bool) {
        let Side::Client(connector) = &mut self.side else { return };
        connector.policing.trials.retain(|other| other.of != trial.of);
        if let Some(link) = connector.policing.link(trial.of) {
            link.remedy = Remedy::InVain;
            if pauses {
                link.next = cx.now + link.pause;
                link.pause = (link.pause * 2).min(PAUSE_MAX);
            }
        }
        self.take_better(cx);
        self.stand_by(cx);
        let left = self.path_by(trial.candidate).map(|path| path.id);
        if let Some(id) = left.filter(|&id| self.paths.active_id() != Some(id)) {
            self.remove_path(cx, id);
        }
    }

    fn path_by(&self, candidate: Candidate) -> Option<&Path> {
        let Side::Client(connector) = &self.side else { return None };
        let by_it =
            |path: &&Path| connector.candidate_of(path.link, &path.route) == Some(candidate);
        self.paths.iter().find(by_it)
    }

    /// UDP by a link where a stream took its place is asked whether it is free again.
    fn ask_udp_again(&mut self, cx: &mut Context<'_>) {
        if self.plan().policing_due().is_none_or(|due| due > cx.now) {
            return;
        }
        let Side::Client(connector) = &mut self.side else { return };
        let due = |link: &&mut Policed| link.kept.is_some() && link.next <= cx.now;
        let Some(link) = connector.policing.links.iter_mut().find(due) else { return };
        link.next = cx.now + link.pause;
        link.pause = (link.pause * 2).min(PAUSE_MAX);
        let of = link.of;
        let candidate =
            connector.candidates().find(|candidate| (candidate.link, candidate.local) == of);
        let Some(candidate) = candidate.filter(|_| self.paths.has_room()) else { return };
        let there = self.path_by(candidate).map(|path| path.id);
        let Some(path) = there.or_else(|| self.open_path(cx, candidate)) else { return };
        self.ask(cx, path);
        let (left, bytes, due) = (TRAIN, (0, 0), cx.now + LOOK_EVERY);
        if let Side::Client(connector) = &mut self.side {
            connector.policing.train = Some(Train { of, path, left, bytes, due });
        }
    }

    /// The next burst of a train, or its end.
    fn drive(&mut self, cx: &mut Context<'_>, mut train: Train) {
        let path = self.paths.get(train.path).filter(|path| path.is_able());
        let came = path.map(|path| path.counts().received);
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
            if let Some(link) = connector.policing.link(train.of) {
                (link.kept, link.remedy, link.next) = (None, Remedy::Gone, cx.now);
            }
            self.take_better(cx);
            self.stand_by(cx);
        } else if self.paths.active_id() != Some(train.path) {
            self.remove_path(cx, train.path);
        }
    }
}
