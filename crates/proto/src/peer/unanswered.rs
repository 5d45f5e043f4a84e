//! Links that never answered. They stand behind all others where places for paths and the
//! gateway's indices are few, and take turns in what is left to them.
//!
//! A link counts from the moment when it is first asked until anything answers by it; one that
//! leaves the shell's list, or gets another address, is new when it comes back. Decides only who
//! comes first. When a path is asked, `standby` and `path::probe` decide.

use std::cmp::Reverse;
use std::net::IpAddr;

use super::connector::{Candidate, Connector};
use super::epoch::INDICES_FOR_HEARD;
use super::standby::{TURN, turn_time};
use super::{Context, Peer, Role};
use crate::id::LinkId;
use crate::path::{Health, Path};
use crate::time::Instant;
use crate::wire::control::Control;

/// Ways by links that never answered which are tried at the same time, where there are more of
/// them. Twice as many would leave too few of `SPARES_MAX` places to links that carry; with half
/// as many a modem beside ten dead links waits twice as long until it is asked.
const UNANSWERED_MAX: usize = 4;

/// Indices that are left for a link that may come, while nothing carries and everything is asked.
const INDICES_FOR_NEW: usize = 1;

/// A link that was asked, in one family, and has not answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    /// The link, and whether IPv4.
    of: (LinkId, bool),
    local: IpAddr,
    /// When it was asked first,
    since: Instant,
    /// and when it left its place to another last.
    rested_at: Instant,
    /// How often it did.
    rests: u32,
}

/// Who gets a place first; the least goes first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Precedence {
    /// Its link answers, or was not asked yet.
    First,
    /// Asked a moment ago: the newest first, so that a link that comes is tried at once.
    Asked(Reverse<Instant>),
    /// No answer for [`TURN`]: whoever left its place earliest goes first.
    Unanswered(Instant),
}

impl Connector {
    /// A way is asked, by a path or a handshake.
    pub(super) fn note_asked(&mut self, now: Instant, way: &Candidate) {
        let of = (way.link, way.local.is_ipv4());
        if self.asked_of(of).is_none() {
            let local = way.local;
            self.asked.push(Asked { of, local, since: now, rested_at: now, rests: 0 });
        }
    }

    /// Something answered by this link.
    pub(super) fn note_answer(&mut self, link: Option<LinkId>, local: Option<IpAddr>) {
        if let Some((link, local)) = link.zip(local) {
            self.asked.retain(|asked| asked.of != (link, local.is_ipv4()));
        }
    }

    /// The links are others now: those that went, or have another address, are not known any more.
    pub(super) fn forget_asked(&mut self) {
        let links = &self.links;
        self.asked.retain(|asked| {
            links.iter().any(|link| link.id == asked.of.0 && link.addresses.contains(&asked.local))
        });
    }

    fn asked_of(&self, of: (LinkId, bool)) -> Option<&Asked> {
        self.asked.iter().find(|asked| asked.of == of)
    }

    /// Whether a way's link was asked in its family, and has not answered.
    pub(super) fn was_asked(&self, way: &Candidate) -> bool {
        self.asked_of((way.link, way.local.is_ipv4())).is_some()
    }

    /// Whether it has not answered for long enough to come behind all others.
    pub(super) fn is_unanswered(&self, now: Instant, way: &Candidate) -> bool {
        let asked = self.asked_of((way.link, way.local.is_ipv4()));
        asked.is_some_and(|asked| asked.since + TURN <= now)
    }
}

impl Peer {
    /// Who of the links gets a place before others.
    pub(super) fn precedence(&self, now: Instant, way: &Candidate) -> Precedence {
        let Role::Client(connector) = &self.role else { return Precedence::First };
        let of = (way.link, way.local.is_ipv4());
        match connector.asked_of(of).filter(|_| !self.answers_by(of)) {
            None => Precedence::First,
            Some(asked) if now < asked.since + TURN => Precedence::Asked(Reverse(asked.since)),
            Some(asked) => Precedence::Unanswered(asked.rested_at),
        }
    }

    /// Whether there is a path by this link, in this family, that has answered.
    fn answers_by(&self, of: (LinkId, bool)) -> bool {
        self.paths.iter().any(|path| {
            path.is_proven() && path.health != Health::Gone && family_of(path) == Some(of)
        })
    }

    /// The first `most` of these ways, at most [`UNANSWERED_MAX`] by links that never answered.
    /// The order of the links counts among those that answer.
    pub(super) fn first_places(
        &mut self,
        now: Instant,
        mut ways: Vec<Candidate>,
        most: usize,
    ) -> Vec<Candidate> {
        ways.sort_by_cached_key(|way| self.precedence(now, way));
        let all = ways.len();
        let mut unanswered = 0;
        ways.retain(|way| {
            let never = matches!(self.precedence(now, way), Precedence::Unanswered(_));
            unanswered += usize::from(never);
            !never || unanswered <= UNANSWERED_MAX
        });
        ways.truncate(most);
        if let Role::Client(connector) = &mut self.role {
            connector.is_crowded = ways.len() < all;
        }
        ways
    }

    /// When a path that was never answered leaves its place to another link's.
    pub(super) fn rest_due(&self, path: &Path) -> Option<Instant> {
        let Role::Client(connector) = &self.role else { return None };
        if !connector.is_crowded || path.is_proven() || self.paths.active_id() == Some(path.id) {
            return None;
        }
        let of = family_of(path)?;
        let asked = connector.asked_of(of).filter(|_| self.is_spare(path))?;
        let due = path.probes.asking_since()? + turn_time(asked.rests, 1);
        (asked.rests == 0 || !self.is_idle_at(due)).then_some(due)
    }

    /// Gives places to others, each of which may have been asked for as long already.
    pub(super) fn take_rests(&mut self, cx: &mut Context<'_>) {
        while let Some(of) = self.rest_over(cx.now) {
            if let Role::Client(connector) = &mut self.role {
                for asked in connector.asked.iter_mut().filter(|asked| asked.of == of) {
                    asked.rested_at = cx.now;
                    asked.rests = asked.rests.saturating_add(1);
                }
            }
            let active = self.paths.active_id();
            let leaves = |path: &&Path| {
                !path.is_proven() && Some(path.id) != active && family_of(path) == Some(of)
            };
            let leaving: Vec<_> = self.paths.iter().filter(leaves).map(|path| path.id).collect();
            for id in leaving {
                self.remove_path(cx, id);
            }
            self.stand_by(cx);
        }
    }

    /// A link, and its family, that leaves its places now.
    fn rest_over(&self, now: Instant) -> Option<(LinkId, bool)> {
        let due = |path: &&Path| self.rest_due(path).is_some_and(|due| due <= now);
        family_of(self.paths.iter().find(due)?)
    }

    /// How many of the gateway's indices a path by `way` must leave. A link that was not asked yet
    /// may take the last one: what comes is not held up by what never answered.
    pub(super) fn kept_from(&self, now: Instant, way: &Candidate) -> usize {
        match self.precedence(now, way) {
            Precedence::First => 0,
            Precedence::Asked(_) | Precedence::Unanswered(_) => {
                let carries = self.paths.iter().any(Path::is_able);
                if carries { INDICES_FOR_HEARD } else { INDICES_FOR_NEW }
            }
        }
    }

    /// Client: if few of the gateway's indices are left, tells it which are taken. It issues
    /// others by what it hears of, and of a dead link's it hears nothing.
    pub(super) fn tell_taken(&mut self, cx: &Context<'_>) {
        if !matches!(self.role, Role::Client(_)) {
            return;
        }
        if let Some(epoch) = &mut self.epochs.current
            && let Some(next) = epoch.taken_to_tell()
            && self.control.push(cx.now, &Control::Taken { next })
        {
            epoch.told_taken = next;
        }
    }
}

fn family_of(path: &Path) -> Option<(LinkId, bool)> {
    Some((path.link?, path.route.local?.is_ipv4()))
}
