//! Links that police UDP. Some networks drop UDP beyond a rate and leave TCP alone. The congestion
//! controllers of both ends notice that (`congestion::policed`); a gateway tells its client. The
//! client remembers it for its status, so that people can try TCP.
//!
//! Changes nothing by itself: whether TCP carries more is not known here. A link with another
//! address is another link. Limit: only mode `full` has controllers.

use std::net::IpAddr;

use super::status::PolicedLink;
use super::{Context, Side, Tunnel};
use crate::id::{LinkId, PathSerial, Transport};
use crate::path::PathId;
use crate::time::Instant;
use crate::wire::control::Control;

/// Links of which this is remembered.
const LINKS_MAX: usize = 8;

/// All such links of a client, each by one of its addresses.
#[derive(Debug, Default)]
pub(crate) struct Policing {
    links: Vec<(IpAddr, PolicedLink)>,
}

impl Policing {
    /// Forgets links that are gone or have another address.
    pub(crate) fn retain(&mut self, is_there: impl Fn(LinkId, IpAddr) -> bool) {
        self.links.retain(|(local, it)| is_there(it.link, *local));
    }

    /// The links that police UDP, or did a while ago.
    pub(crate) fn policed_links(&self) -> Vec<PolicedLink> {
        self.links.iter().map(|(_, it)| *it).collect()
    }

    fn note(&mut self, now: Instant, link: LinkId, local: IpAddr, kbps: u32) {
        let known = self.links.iter_mut().find(|(at, it)| (*at, it.link) == (local, link));
        if let Some((_, it)) = known {
            let since = if it.lasts(now) { it.since } else { now };
            *it = PolicedLink { link, kbps, since, told_at: now };
            return;
        }
        if self.links.len() >= LINKS_MAX {
            self.links.remove(0);
        }
        self.links.push((local, PolicedLink { link, kbps, since: now, told_at: now }));
    }
}

impl Tunnel {
    /// This end's controller found that a path is policed, and so many bytes per second pass.
    /// `serial` is what it sends under, if the keys are the current ones.
    pub(crate) fn note_policed(
        &mut self,
        cx: &Context<'_>,
        id: PathId,
        serial: Option<PathSerial>,
        rate: f64,
    ) {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
        let kbps = (rate / 125.0) as u32;
        if matches!(self.side, Side::Client(_)) {
            self.take_policed(cx, Some(id), kbps);
        } else if let Some(serial) = serial
            && self.paths.get(id).is_some_and(|path| path.transport() == Transport::Udp)
        {
            self.control.push(cx.now, &Control::Policed { serial, kbps });
        }
    }

    /// Client: the path is policed, in whatever direction.
    pub(crate) fn take_policed(&mut self, cx: &Context<'_>, id: Option<PathId>, kbps: u32) {
        let path = id.and_then(|id| self.paths.get(id));
        let path = path.filter(|path| path.transport() == Transport::Udp);
        let of = path.and_then(|path| path.link.zip(path.route.local));
        if let (Some((link, local)), Side::Client(connector)) = (of, &mut self.side) {
            connector.policing.note(cx.now, link, local, kbps);
        }
    }
}
