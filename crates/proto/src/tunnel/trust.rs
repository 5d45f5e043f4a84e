//! What a client makes of a link's own doing: one that fell silent under data, or lost much of it,
//! while another carried, comes last for a while, and for longer each time.
//!
//! The only link is used however bad it is. A word of the shell's on the order of its links counts
//! more.

use super::connector::Connector;
use crate::id::LinkId;
use crate::time::{Duration, Instant};

/// A link that did badly is not preferred to others for this long the first time; twice as long
/// each time that it does so again, up to [`DISTRUST_MAX`].
const DISTRUST: Duration = Duration::from_secs(2);
/// The longest distrust; and a link that did not do badly for as long has a new first time.
const DISTRUST_MAX: Duration = Duration::from_secs(300);
/// Links whose faults are remembered.
const DISTRUSTED_MAX: usize = 8;

/// A link that fell silent under data, or lost much of it, while another carried.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Distrust {
    link: LinkId,
    since: Instant,
    length: Duration,
    /// Whether it is over, and only remembered.
    over: bool,
}

impl Distrust {
    /// Whether a path by `link` comes last for it.
    pub(crate) fn concerns(&self, link: Option<LinkId>) -> bool {
        link == Some(self.link) && !self.over
    }

    /// It is over, and only remembered.
    pub(crate) const fn forgive(&mut self) {
        self.over = true;
    }

    fn end(&self) -> Instant {
        self.since + self.length
    }
}

impl Connector {
    /// Notes that a link did badly while another one carried.
    pub(crate) fn distrust(&mut self, now: Instant, link: LinkId) {
        let list = &mut self.distrusted;
        let before = list.iter().find(|bad| bad.link == link && now < bad.end() + DISTRUST_MAX);
        let length = before.map_or(DISTRUST, |bad| (bad.length * 2).min(DISTRUST_MAX));
        list.retain(|bad| bad.link != link && now < bad.end() + DISTRUST_MAX);
        if list.len() >= DISTRUSTED_MAX {
            list.remove(0);
        }
        list.push(Distrust { link, since: now, length, over: false });
    }

    /// When a link is trusted again.
    pub(crate) fn trust_due(&self) -> Option<Instant> {
        self.distrusted.iter().filter(|bad| !bad.over).map(Distrust::end).min()
    }

    /// Trusts the links again whose time is over. Returns whether there were any.
    pub(crate) fn trust_again(&mut self, now: Instant) -> bool {
        let is_over = |bad: &&mut Distrust| !bad.over && bad.end() <= now;
        let over = self.distrusted.iter_mut().filter(is_over);
        over.map(Distrust::forgive).count() > 0
    }
}
