//! Which links get the places, if paths or the gateway's indices are scarce: those that never
//! answered come behind all others and take turns in the remaining places.

use std::cmp::Reverse;

use super::PathPlan;
use crate::id::LinkId;
use crate::path::Path;
use crate::paths::candidate::Candidate;
use crate::paths::turns::{TURN, turn_time};
use crate::session::epoch::INDICES_FOR_HEARD;
use crate::time::Instant;

/// Candidates on unanswered links that are tried at the same time, if there are more. Twice as many
/// would leave too few of `SPARES_MAX` places to working links. With half as many, a modem beside
/// ten dead links waits twice as long for its first probe.
const UNANSWERED_MAX: usize = 4;

/// Indices reserved for a new link while no path works and all links are being probed.
const INDICES_FOR_NEW: usize = 1;

/// The order in which links get places; the smallest value is first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Precedence {
    /// The link answers, or was not probed yet.
    First,
    /// Probed a moment ago. The newest is first, so that a new link is tried at once.
    Asked(Reverse<Instant>),
    /// No answer for [`TURN`]. The link that gave up its place earliest is first.
    Unanswered(Instant),
}

impl PathPlan<'_> {
    /// The candidate's position in the order of links.
    pub(crate) fn precedence(&self, now: Instant, way: &Candidate) -> Precedence {
        let Some(connector) = self.connector else { return Precedence::First };
        let of = (way.link, way.local.is_ipv4());
        match connector.unanswered.get(of).filter(|_| !self.answers_by(of)) {
            None => Precedence::First,
            Some(asked) if now < asked.since + TURN => Precedence::Asked(Reverse(asked.since)),
            Some(asked) => Precedence::Unanswered(asked.rested_at),
        }
    }

    /// Whether a path on this link, in this family, has answered.
    fn answers_by(&self, of: (LinkId, bool)) -> bool {
        self.paths
            .iter()
            .any(|path| path.is_proven() && !path.is_gone() && family_of(path) == Some(of))
    }

    /// The first `most` of these candidates, of which at most [`UNANSWERED_MAX`] use links that
    /// never answered, and whether there were more. Links that answer keep their order.
    pub(crate) fn first_places(
        &self,
        now: Instant,
        mut ways: Vec<Candidate>,
        most: usize,
    ) -> (Vec<Candidate>, bool) {
        ways.sort_by_cached_key(|way| self.precedence(now, way));
        let all = ways.len();
        let mut unanswered = 0;
        ways.retain(|way| {
            let never = matches!(self.precedence(now, way), Precedence::Unanswered(_));
            unanswered += usize::from(never);
            !never || unanswered <= UNANSWERED_MAX
        });
        ways.truncate(most);
        let is_crowded = ways.len() < all;
        (ways, is_crowded)
    }

    /// When a path without any answer gives its place to a path on another link.
    pub(crate) fn rest_due(&self, path: &Path) -> Option<Instant> {
        let connector = self.connector?;
        if !connector.spares.is_crowded()
            || path.is_proven()
            || self.paths.active_id() == Some(path.id)
        {
            return None;
        }
        let of = family_of(path)?;
        let asked = connector.unanswered.get(of).filter(|_| self.is_spare(path))?;
        let due = path.probes.asking_since()? + turn_time(asked.rests, 1);
        (asked.rests == 0 || !self.is_idle_at(due)).then_some(due)
    }

    /// A link and family whose turn is over now.
    pub(crate) fn rest_over(&self, now: Instant) -> Option<(LinkId, bool)> {
        let due = |path: &&Path| self.rest_due(path).is_some_and(|due| due <= now);
        family_of(self.paths.iter().find(due)?)
    }

    /// How many of the gateway's indices a path on `way` must leave. A link that was not probed yet
    /// may use the last one, so that unanswered links do not delay a new link.
    pub(crate) fn kept_from(&self, now: Instant, way: &Candidate) -> usize {
        match self.precedence(now, way) {
            Precedence::First => 0,
            Precedence::Asked(_) | Precedence::Unanswered(_) => {
                let carries = self.paths.iter().any(Path::is_able);
                if carries { INDICES_FOR_HEARD } else { INDICES_FOR_NEW }
            }
        }
    }
}

pub(crate) fn family_of(path: &Path) -> Option<(LinkId, bool)> {
    Some((path.link?, path.route.local?.is_ipv4()))
}
