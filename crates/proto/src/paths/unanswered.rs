//! Links that were probed and never answered.
//!
//! A link counts as unanswered from its first probe until any answer arrives on it. A link that
//! leaves the shell's list, or changes its address, is new when it returns. `plan::places` says
//! what follows; `standby` and `path::probe` decide when to probe a path.

use std::net::IpAddr;

use super::candidate::Candidate;
use super::turns::TURN;
use crate::context::Link;
use crate::id::LinkId;
use crate::time::Instant;

/// The links that were probed and have not answered since they appeared; at most two entries a
/// link.
#[derive(Debug, Default)]
pub(crate) struct Unanswered(Vec<Asked>);

/// A link that was probed in one address family and has not answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    /// The link, and whether the family is IPv4.
    of: (LinkId, bool),
    local: IpAddr,
    /// When it was first probed,
    pub(crate) since: Instant,
    /// and when it last gave its place to another link.
    pub(crate) rested_at: Instant,
    /// How often it gave up its place.
    pub(crate) rests: u32,
}

impl Unanswered {
    /// Notes that a candidate is probed by a path or a handshake.
    pub(crate) fn note_asked(&mut self, now: Instant, way: &Candidate) {
        let of = (way.link, way.local.is_ipv4());
        if self.get(of).is_none() {
            let local = way.local;
            self.0.push(Asked { of, local, since: now, rested_at: now, rests: 0 });
        }
    }

    /// Notes that an answer arrived on this link.
    pub(crate) fn note_answer(&mut self, link: Option<LinkId>, local: Option<IpAddr>) {
        if let Some((link, local)) = link.zip(local) {
            self.0.retain(|asked| asked.of != (link, local.is_ipv4()));
        }
    }

    /// Forgets those that are not among `links`, or have another address.
    pub(crate) fn keep(&mut self, links: &[Link]) {
        self.0.retain(|asked| {
            links.iter().any(|link| link.id == asked.of.0 && link.addresses.contains(&asked.local))
        });
    }

    /// A link that never answered gives its place to another one.
    pub(crate) fn let_rest(&mut self, now: Instant, of: (LinkId, bool)) {
        for asked in self.0.iter_mut().filter(|asked| asked.of == of) {
            asked.rested_at = now;
            asked.rests = asked.rests.saturating_add(1);
        }
    }

    /// The link and family, if it was probed and has not answered.
    pub(crate) fn get(&self, of: (LinkId, bool)) -> Option<&Asked> {
        self.0.iter().find(|asked| asked.of == of)
    }

    /// Whether a candidate's link was probed in its family and has not answered.
    pub(crate) fn has(&self, way: &Candidate) -> bool {
        self.get((way.link, way.local.is_ipv4())).is_some()
    }

    /// Whether the link has been silent for long enough to come behind all others.
    pub(crate) fn has_long(&self, now: Instant, way: &Candidate) -> bool {
        let asked = self.get((way.link, way.local.is_ipv4()));
        asked.is_some_and(|asked| asked.since + TURN <= now)
    }
}
