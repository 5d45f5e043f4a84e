//! What a client makes of a link's own doing: one that fell silent under data, or lost much of it,
//! while another carried, comes last for a while, and for longer each time.
//!
//! The only link is used however bad it is. A word of the shell's on the order of its links counts
//! more.

use super::{Context, Peer, Role};
use crate::id::LinkId;
use crate::path::{Health, PathId};
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
pub(super) struct Distrust {
    link: LinkId,
    since: Instant,
    length: Duration,
    /// Whether it is over, and only remembered.
    over: bool,
}

impl Distrust {
    /// Whether a path by `link` comes last for it.
    pub(super) fn concerns(&self, link: Option<LinkId>) -> bool {
        link == Some(self.link) && !self.over
    }

    /// It is over, and only remembered.
    pub(super) const fn forgive(&mut self) {
        self.over = true;
    }

    fn end(&self) -> Instant {
        self.since + self.length
    }
}

impl Peer {
    /// Client: the path `id`, in use, does badly. If another link carries, data goes there, and
    /// comes back after a while.
    pub(super) fn distrust(&mut self, cx: &mut Context<'_>, id: PathId) {
        let Some(path) = self.paths.get(id).filter(|_| self.paths.active_id() == Some(id)) else {
            return;
        };
        let other = self.best_proven(Some(id)).and_then(|id| self.paths.get(id));
        let elsewhere = other
            .is_some_and(|other| other.link != path.link && other.transport() <= path.transport());
        if let Some(link) = path.link.filter(|_| elsewhere) {
            self.distrust_link(cx.now, link);
            self.take_better(cx);
        }
    }

    /// Client: data goes over to the path `id`. If that is because the one in use fell silent, its
    /// link is not trusted at its first word.
    pub(super) fn distrust_silent(&mut self, now: Instant, id: PathId) {
        let (Some(from), Some(to)) = (self.paths.active(), self.paths.get(id)) else { return };
        let silent = matches!(from.health, Health::Silent { .. });
        if let Some(link) = from.link.filter(|_| silent && from.link != to.link) {
            self.distrust_link(now, link);
        }
    }

    fn distrust_link(&mut self, now: Instant, link: LinkId) {
        let Role::Client(connector) = &mut self.role else { return };
        let list = &mut connector.distrusted;
        let before = list.iter().find(|bad| bad.link == link && now < bad.end() + DISTRUST_MAX);
        let length = before.map_or(DISTRUST, |bad| (bad.length * 2).min(DISTRUST_MAX));
        list.retain(|bad| bad.link != link && now < bad.end() + DISTRUST_MAX);
        if list.len() >= DISTRUSTED_MAX {
            list.remove(0);
        }
        list.push(Distrust { link, since: now, length, over: false });
    }

    /// When a link is trusted again.
    pub(super) fn trust_due(&self) -> Option<Instant> {
        let Role::Client(connector) = &self.role else { return None };
        connector.distrusted.iter().filter(|bad| !bad.over).map(Distrust::end).min()
    }

    /// Links whose time is over may carry again.
    pub(super) fn trust_again(&mut self, cx: &mut Context<'_>) {
        if self.trust_due().is_none_or(|due| due > cx.now) {
            return;
        }
        if let Role::Client(connector) = &mut self.role {
            for bad in &mut connector.distrusted {
                bad.over |= bad.end() <= cx.now;
            }
        }
        self.take_better(cx);
        self.stand_by(cx);
    }
}
