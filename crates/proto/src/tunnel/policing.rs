//! What a client knows of links that police UDP. Some networks drop UDP beyond a rate and leave TCP
//! alone. The congestion controllers of both ends notice that (`congestion::policed`). They cannot
//! know whether TCP is better off, so the client tries a stream by the same link (`stream_trial`).
//!
//! Only remembers: which links these are, the trial of each, the stream that was kept, and when UDP
//! is asked again. A link with another address is another link. Bounds: `LINKS_MAX` links, one
//! trial each, one packet train. Limit: only mode `full` has controllers.

use std::net::IpAddr;

use super::StreamTo;
use super::candidate::Candidate;
use crate::id::LinkId;
use crate::path::PathId;
use crate::time::{Duration, Instant};

/// Time until the next trial of a link after one in vain, and until UDP is asked again; twice as
/// long each time,
const PAUSE_FIRST: Duration = Duration::from_secs(60);
/// up to this.
pub(super) const PAUSE_MAX: Duration = Duration::from_secs(3_600);
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

/// All such links of a client.
#[derive(Debug, Default)]
pub(crate) struct Policing {
    pub(super) links: Vec<Policed>,
    pub(super) trials: Vec<Trial>,
    pub(super) train: Option<Train>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Policed {
    pub(super) of: (LinkId, IpAddr),
    pub(super) kbps: u32,
    pub(super) since: Instant,
    pub(super) told_at: Instant,
    pub(super) remedy: Remedy,
    /// The stream that carries in place of UDP.
    pub(super) kept: Option<Candidate>,
    /// When the next trial, or the next train, may begin,
    pub(super) next: Instant,
    /// and how long after that the one after it.
    pub(super) pause: Duration,
}

/// A stream beside UDP.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trial {
    pub(super) of: (LinkId, IpAddr),
    pub(super) candidate: Candidate,
    /// Streams of this link that were tried before it.
    pub(super) tried: usize,
    pub(super) direction: Direction,
    /// Bytes per second that UDP carried.
    pub(super) before: f64,
    /// Since when the stream carries.
    pub(super) carries_since: Option<Instant>,
    pub(super) is_alone: bool,
    pub(super) began: Instant,
    pub(super) look_at: Instant,
}

/// A train of challenges by UDP.
#[derive(Clone, Copy, Debug)]
pub(super) struct Train {
    pub(super) of: (LinkId, IpAddr),
    pub(super) path: PathId,
    /// Challenges that are still to leave.
    pub(super) left: u32,
    /// Bytes that left, and that had come before.
    pub(super) bytes: (u64, u64),
    pub(super) due: Instant,
}

impl Policing {
    pub(super) fn link(&mut self, of: (LinkId, IpAddr)) -> Option<&mut Policed> {
        self.links.iter_mut().find(|link| link.of == of)
    }

    /// Whether a stream takes the place of UDP by this link.
    pub(crate) fn prefers_stream(&self, link: Option<LinkId>) -> bool {
        let is_kept = |it: &Policed| Some(it.of.0) == link && it.kept.is_some();
        let is_tried = |trial: &Trial| Some(trial.of.0) == link && trial.is_alone;
        self.links.iter().any(is_kept) || self.trials.iter().any(is_tried)
    }

    /// Whether a stream is tried beside UDP by `candidate`.
    pub(crate) fn is_tried(&self, candidate: Option<Candidate>) -> bool {
        !self.trials.is_empty()
            && self.trials.iter().any(|trial| Some(trial.candidate) == candidate)
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

    /// The streams to the gateway are these now.
    pub(crate) fn keep_only(&mut self, streams: &[StreamTo]) {
        let leads = |candidate: &Candidate| {
            let to = |stream: &StreamTo| (stream.remote, Some(stream.method));
            streams.iter().any(|stream| to(stream) == (candidate.remote, candidate.stream))
        };
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

    /// Notes a policer. Returns whether a trial may begin.
    pub(super) fn note(
        &mut self,
        now: Instant,
        of: (LinkId, IpAddr),
        kbps: u32,
        has_streams: bool,
    ) -> bool {
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
}
