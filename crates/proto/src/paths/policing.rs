//! Links that police UDP, and the trial of a stream on each.
//!
//! Some networks drop UDP beyond a rate and leave TCP alone. The congestion controllers of both
//! ends notice that (`congestion::policed`). They cannot know whether TCP is better off, so the
//! client tries a stream on the same link.
//!
//! The stream shares the data with UDP during the trial. It is kept if it carries clearly more. If
//! both together do, data goes by the stream alone for a moment, to see whether it carries all of
//! that. Each trial in vain doubles the time to the next. Where a stream is kept, a train of
//! challenges and their answers asks now and then whether UDP is free again. The data stays.
//!
//! Decides by goodput alone, for each link by itself. Knows no paths: `stream_trial` measures them,
//! and does what is decided here. A link with another address is another link. Bounds: `LINKS_MAX`
//! links, one trial each, one packet train. Limits: only mode `full` has controllers. A policer
//! that lets 9 Mbit/s by, or the whole train at once, looks free to the train. A controller then
//! notices it anew.

use std::net::IpAddr;

use super::candidate::Candidate;
use crate::id::LinkId;
use crate::path::PathId;
use crate::time::{Duration, Instant};

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
/// Time until the next trial of a link after one in vain, and until UDP is asked again; twice as
/// long each time,
const PAUSE_FIRST: Duration = Duration::from_secs(60);
/// up to this.
const PAUSE_MAX: Duration = Duration::from_secs(3_600);
/// Links of which this is remembered.
const LINKS_MAX: usize = 8;
/// A policer was noticed within this time, or it is gone: a controller feels for its rate at least
/// every 36 s.
const LASTS: Duration = Duration::from_secs(60);

/// In which direction a path loses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Direction {
    /// What this end sends.
    Up,
    /// What comes.
    Down,
}

/// What a client makes of a link that polices UDP.
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
    /// A stream carried, but UDP is free again.
    Gone,
}

/// A link that polices UDP.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PolicedLink {
    /// The link.
    pub link: LinkId,
    /// What passes, in kilobits per second.
    pub kbps: u32,
    /// When that was noticed first.
    pub since: Instant,
    /// When it was noticed last.
    pub told_at: Instant,
    /// What is done about it.
    pub remedy: Remedy,
}

impl PolicedLink {
    /// Whether it still does, as far as anybody can tell: where a stream carries, UDP is not asked.
    pub fn lasts(&self, now: Instant) -> bool {
        match self.remedy {
            Remedy::Trying | Remedy::Stream => true,
            Remedy::None | Remedy::InVain => now.saturating_since(self.told_at) < LASTS,
            Remedy::Gone => false,
        }
    }
}

/// A link, by one of its addresses.
pub(super) type Place = (LinkId, IpAddr);

/// All such links of a client.
#[derive(Debug, Default)]
pub(crate) struct Policing {
    links: Vec<Policed>,
    trials: Vec<Trial>,
    train: Option<Train>,
}

#[derive(Clone, Copy, Debug)]
struct Policed {
    of: Place,
    kbps: u32,
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
pub(super) struct Trial {
    of: Place,
    candidate: Candidate,
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

/// What the paths of a link carry during a trial, in bytes per second.
#[derive(Clone, Copy, Debug)]
pub(super) struct Carried {
    /// By the stream, if its path can carry.
    pub(super) stream: Option<f64>,
    /// By UDP beside it.
    pub(super) udp: f64,
}

/// What follows from a look at a trial.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// Nothing yet.
    Wait,
    /// The order of paths, or which are wanted, is another.
    Reorder,
    /// The same, and the path of the stream is wanted no more.
    End,
}

/// A train of challenges by UDP.
#[derive(Clone, Copy, Debug)]
struct Train {
    of: Place,
    path: PathId,
    /// Challenges that are still to leave.
    left: u32,
    /// Bytes that left, and that had come before.
    bytes: (u64, u64),
    due: Instant,
}

/// What follows from a look at a train.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Burst {
    /// So many challenges leave by this path.
    Send(PathId, u32),
    /// UDP is free again.
    Free,
    /// It is not, and this path is wanted no more.
    Policed(PathId),
}

impl Trial {
    /// The link.
    pub(super) const fn link(&self) -> LinkId {
        self.of.0
    }

    /// The stream that is tried.
    pub(super) const fn candidate(&self) -> Candidate {
        self.candidate
    }

    /// The direction in which UDP is policed.
    pub(super) const fn direction(&self) -> Direction {
        self.direction
    }

    /// How many streams of the link were tried, this one included.
    pub(super) const fn tried(&self) -> usize {
        self.tried + 1
    }
}

impl Policing {
    fn link(&mut self, of: Place) -> Option<&mut Policed> {
        self.links.iter_mut().find(|link| link.of == of)
    }

    /// Whether a stream takes the place of UDP by this link.
    pub(crate) fn prefers_stream(&self, link: Option<LinkId>) -> bool {
        let is_kept = |it: &Policed| Some(it.of.0) == link && it.kept.is_some();
        let is_tried = |trial: &Trial| Some(trial.of.0) == link && trial.is_alone;
        self.links.iter().any(is_kept) || self.trials.iter().any(is_tried)
    }

    /// Whether a stream is tried beside UDP by this candidate. It is asked with every datagram, so
    /// the candidate is only looked up during a trial.
    pub(crate) fn is_tried(&self, candidate: impl FnOnce() -> Option<Candidate>) -> bool {
        !self.trials.is_empty()
            && candidate().is_some_and(|it| self.trials.iter().any(|trial| trial.candidate == it))
    }

    /// The streams that are to be there.
    pub(crate) fn streams(&self) -> impl Iterator<Item = Candidate> + '_ {
        let kept = self.links.iter().filter_map(|link| link.kept);
        let tried = self.trials.iter().map(|trial| trial.candidate);
        kept.chain(tried)
    }

    /// Forgets links that are gone or have another address.
    pub(crate) fn retain(&mut self, is_there: impl Fn(LinkId, IpAddr) -> bool) {
        self.links.retain(|link| is_there(link.of.0, link.of.1));
        self.trials.retain(|trial| is_there(trial.of.0, trial.of.1));
        self.train.take_if(|train| !is_there(train.of.0, train.of.1));
    }

    /// Forgets streams that do not lead to the gateway any more.
    pub(crate) fn keep_only(&mut self, leads: impl Fn(&Candidate) -> bool) {
        self.links.retain(|link| link.kept.is_none_or(|candidate| leads(&candidate)));
        self.trials.retain(|trial| leads(&trial.candidate));
    }

    /// The links that police UDP, or did until a stream took its place.
    pub(crate) fn policed_links(&self) -> Vec<PolicedLink> {
        let told = |&Policed { of, kbps, since, told_at, remedy, .. }: &Policed| PolicedLink {
            link: of.0,
            kbps,
            since,
            told_at,
            remedy,
        };
        self.links.iter().map(told).collect()
    }

    /// When a trial or a train goes on, or UDP is to be asked again. That waits while nobody
    /// speaks, of which `is_idle_at` knows.
    pub(crate) fn due(&self, is_idle_at: impl Fn(Instant) -> bool) -> Option<Instant> {
        if self.links.is_empty() {
            return None; // nearly always
        }
        let trial = self.trials.iter().map(|trial| trial.look_at).min();
        let train = self.train.map(|train| train.due);
        let kept = self.links.iter().filter(|link| link.kept.is_some());
        let next = kept.map(|link| link.next).min();
        let next = next.filter(|&due| self.train.is_none() && !is_idle_at(due));
        [trial, train, next].into_iter().flatten().min()
    }

    /// Notes that UDP is policed on this link. Begins a trial of `stream` if one is due. Returns
    /// whether it does.
    pub(super) fn note(
        &mut self,
        now: Instant,
        of: Place,
        (direction, kbps): (Direction, u32),
        stream: Option<Candidate>,
    ) -> bool {
        let is_due = self.note_link(now, of, kbps, stream.is_some());
        let Some(candidate) = stream.filter(|_| is_due) else { return false };
        self.trials.push(Trial {
            of,
            candidate,
            tried: 0,
            direction,
            before: f64::from(kbps) * 125.0,
            carries_since: None,
            is_alone: false,
            began: now,
            look_at: now + LOOK_EVERY,
        });
        if let Some(link) = self.link(of) {
            link.remedy = Remedy::Trying;
        }
        true
    }

    /// Returns whether a trial may begin.
    fn note_link(&mut self, now: Instant, of: Place, kbps: u32, has_streams: bool) -> bool {
        let is_free = self.trials.iter().all(|trial| trial.of != of);
        if let Some(link) = self.link(of) {
            if now.saturating_since(link.told_at) >= LASTS {
                link.since = now;
            }
            (link.told_at, link.kbps) = (now, kbps);
            if !has_streams && link.kept.is_none() {
                link.remedy = Remedy::None;
            }
            return is_free && has_streams && link.kept.is_none() && link.next <= now;
        }
        if self.links.len() >= LINKS_MAX {
            self.links.remove(0);
        }
        let remedy = if has_streams { Remedy::Trying } else { Remedy::None };
        let (since, told_at, next, kept, pause) = (now, now, now, None, PAUSE_FIRST);
        self.links.push(Policed { of, kbps, since, told_at, remedy, kept, next, pause });
        is_free && has_streams
    }

    /// A trial that is to be looked at now.
    pub(super) fn trial_due(&self, now: Instant) -> Option<Trial> {
        self.trials.iter().find(|trial| trial.look_at <= now).copied()
    }

    /// Looks at a trial. `next` is the stream to try if this one does not answer.
    pub(super) fn look(
        &mut self,
        now: Instant,
        trial: Trial,
        carried: Carried,
        next: Option<Candidate>,
    ) -> Step {
        let Some(since) = trial.carries_since else {
            return if carried.stream.is_some() {
                self.go_on(now, Trial { carries_since: Some(now), ..trial }, Step::Reorder)
            } else if now < trial.began + ANSWER {
                self.go_on(now, trial, Step::Wait)
            } else if let Some(candidate) = next {
                let tried = trial.tried();
                self.go_on(now, Trial { candidate, tried, began: now, ..trial }, Step::Reorder)
            } else {
                self.end(now, trial, true)
            };
        };
        let stream = carried.stream.unwrap_or(0.0);
        let both = stream + carried.udp;
        let before = trial.before.max(carried.udp);
        let took = now.saturating_since(since);
        let gain = if trial.is_alone { GAIN_ALONE } else { GAIN };
        let most = if trial.is_alone { TRIAL_ALONE } else { TRIAL };
        if stream >= gain * before {
            self.keep(now, trial)
        } else if carried.stream.is_none() || took >= most {
            // Where hardly anything was sent, the trial says nothing.
            self.end(now, trial, carried.stream.is_none() || both >= before / 2.0)
        } else if !trial.is_alone && took >= BESIDE && both >= GAIN_ALONE * before {
            let alone = Trial { is_alone: true, carries_since: Some(now), before, ..trial };
            self.go_on(now, alone, Step::Reorder)
        } else {
            self.go_on(now, trial, Step::Wait)
        }
    }

    fn go_on(&mut self, now: Instant, trial: Trial, step: Step) -> Step {
        if let Some(there) = self.trials.iter_mut().find(|other| other.of == trial.of) {
            *there = Trial { look_at: now + LOOK_EVERY, ..trial };
        }
        step
    }

    /// The stream carries clearly more: it takes the place of UDP by this link.
    fn keep(&mut self, now: Instant, trial: Trial) -> Step {
        self.trials.retain(|other| other.of != trial.of);
        if let Some(link) = self.link(trial.of) {
            (link.remedy, link.kept) = (Remedy::Stream, Some(trial.candidate));
            link.next = now + link.pause;
        }
        Step::Reorder
    }

    /// The stream carries no more than UDP, as far as the trial shows. `pauses` if it shows that.
    fn end(&mut self, now: Instant, trial: Trial, pauses: bool) -> Step {
        self.trials.retain(|other| other.of != trial.of);
        if let Some(link) = self.link(trial.of) {
            link.remedy = Remedy::InVain;
            if pauses {
                link.pauses(now);
            }
        }
        Step::End
    }

    /// Whether UDP is to be asked again by a link now: its address. The next time is later.
    pub(super) fn asks_again(&mut self, now: Instant) -> Option<Place> {
        let due = |link: &&mut Policed| link.kept.is_some() && link.next <= now;
        let link = self.links.iter_mut().find(due)?;
        link.pauses(now);
        Some(link.of)
    }

    /// A train leaves by a path of UDP, which was asked just now.
    pub(super) fn begin_train(&mut self, now: Instant, of: Place, path: PathId) {
        let (left, bytes, due) = (TRAIN, (0, 0), now + LOOK_EVERY);
        self.train = Some(Train { of, path, left, bytes, due });
    }

    /// The path of a train that goes on now.
    pub(super) fn train_due(&self, now: Instant) -> Option<PathId> {
        self.train.filter(|train| train.due <= now).map(|train| train.path)
    }

    /// The next burst of the train, of challenges of `size` bytes, or its end. `came` is how many
    /// bytes came by its path so far, if that can carry.
    pub(super) fn burst(&mut self, now: Instant, came: Option<u64>, size: usize) -> Option<Burst> {
        let mut train = self.train.take()?;
        if let Some(came) = came.filter(|_| train.left == TRAIN) {
            train.bytes.1 = came;
        }
        if train.left > 0 && came.is_some() {
            train.left = train.left.saturating_sub(TRAIN_BURST);
            train.bytes.0 += u64::from(TRAIN_BURST) * size as u64;
            train.due = now + if train.left == 0 { TRAIN_ANSWERS } else { TRAIN_EVERY };
            self.train = Some(train);
            return Some(Burst::Send(train.path, TRAIN_BURST));
        }
        let answers = came.unwrap_or(0).saturating_sub(train.bytes.1);
        let is_free = train.bytes.0 > 0 && answers * 100 >= train.bytes.0 * TRAIN_PASSES;
        if !is_free {
            return Some(Burst::Policed(train.path));
        }
        if let Some(link) = self.link(train.of) {
            (link.kept, link.remedy, link.next) = (None, Remedy::Gone, now);
        }
        Some(Burst::Free)
    }
}

impl Policed {
    /// The next trial or train is later, and the one after it later still.
    fn pauses(&mut self, now: Instant) {
        self.next = now + self.pause;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
    }
}
