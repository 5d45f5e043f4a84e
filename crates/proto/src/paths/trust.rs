//! What a client makes of a link's own doing: one that fell silent under data, or lost much of it,
//! while another carried, comes last for a while, and for longer each time.
//!
//! The only link is used however bad it is. A word of the shell's on the order of its links counts
//! more.

use crate::id::LinkId;
use crate::time::{Duration, Instant};

/// A link that did badly is not preferred to others for this long the first time; twice as long
/// each time that it does so again, up to [`DISTRUST_MAX`].
const DISTRUST: Duration = Duration::from_secs(2);
/// The longest distrust; and a link that did not do badly for as long has a new first time.
const DISTRUST_MAX: Duration = Duration::from_secs(300);
/// Links whose faults are remembered.
const DISTRUSTED_MAX: usize = 8;

/// The links that did badly while another carried.
#[derive(Debug, Default)]
pub(crate) struct Distrusted(Vec<Distrust>);

/// One of them.
#[derive(Clone, Copy, Debug)]
struct Distrust {
    link: LinkId,
    since: Instant,
    length: Duration,
    /// Whether it is over, and only remembered.
    over: bool,
}

impl Distrust {
    fn end(&self) -> Instant {
        self.since + self.length
    }
}

impl Distrusted {
    /// Notes that a link did badly while another one carried.
    pub(crate) fn note(&mut self, now: Instant, link: LinkId) {
        let list = &mut self.0;
        let before = list.iter().find(|bad| bad.link == link && now < bad.end() + DISTRUST_MAX);
        let length = before.map_or(DISTRUST, |bad| (bad.length * 2).min(DISTRUST_MAX));
        list.retain(|bad| bad.link != link && now < bad.end() + DISTRUST_MAX);
        if list.len() >= DISTRUSTED_MAX {
            list.remove(0);
        }
        list.push(Distrust { link, since: now, length, over: false });
    }

    /// Whether a path by `link` comes last.
    pub(crate) fn has(&self, link: Option<LinkId>) -> bool {
        self.0.iter().any(|bad| link == Some(bad.link) && !bad.over)
    }

    /// All links are trusted again; what they did is remembered.
    pub(crate) fn forgive(&mut self) {
        self.0.iter_mut().for_each(|bad| bad.over = true);
    }

    /// When a link is trusted again.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.0.iter().filter(|bad| !bad.over).map(Distrust::end).min()
    }

    /// Trusts the links again whose time is over. Returns whether there were any.
    pub(crate) fn trust_again(&mut self, now: Instant) -> bool {
        let over = self.0.iter_mut().filter(|bad| !bad.over && bad.end() <= now);
        over.map(|bad| bad.over = true).count() > 0
    }
}
