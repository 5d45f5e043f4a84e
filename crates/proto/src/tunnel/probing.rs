//! Path challenges and MTU probes: what is sent to find out whether a path works, and how much it
//! carries (RFC 9000, sections 8.2 and 14.3).

use super::{Context, Tunnel};
use crate::path::{Path, PathId};
use crate::recovery::packet::Load;
use crate::wire::data::BASE_DATAGRAM;
use crate::wire::frame;
use crate::wire::frame::{Challenge, Frame};

/// Datagrams of a mover's first flight, padded to [`FLIGHT_SIZE`]: its amplification budget.
const FLIGHT: usize = 6;
/// UDP payload of the first flight's datagrams, and of the challenges that prove an address (RFC
/// 9000, 8.2.1). A path that carries less is unusable.
pub(crate) const FLIGHT_SIZE: usize = BASE_DATAGRAM;

impl Tunnel {
    /// Sends every challenge that is due.
    pub(crate) fn send_probes_due(&mut self, cx: &mut Context<'_>) {
        let due = |path: &&Path| self.paths.plan().probe_due(path).is_some_and(|due| due <= cx.now);
        let due = self.paths.list.ids(due);
        for id in due {
            self.send_probe_due(cx, id);
        }
    }

    /// Sends the challenge of a path, if it is due.
    pub(crate) fn send_probe_due(&mut self, cx: &mut Context<'_>, id: PathId) {
        let Some(path) = self.paths.list.get(id) else { return };
        if self.paths.plan().probe_due(path).is_none_or(|due| due > cx.now) {
            return;
        }
        // An address is proven at full size, if its budget and its link allow that: what there is
        // of a smaller one is for data. A path that went silent is asked by small datagrams, which
        // pass where large ones no longer do.
        let is_large = path.probes.may_be_large(cx.now);
        let full = !path.is_proven() && path.allows(FLIGHT_SIZE) && is_large;
        let size = if full { FLIGHT_SIZE } else { 0 };
        self.challenge(cx, id, size);
        self.asks_active |= self.paths.list.active_id() == Some(id);
    }

    /// Sends one challenge, padded to `size` bytes.
    pub(crate) fn challenge(&mut self, cx: &mut Context<'_>, id: PathId, size: usize) {
        let token = cx.random();
        let client = !self.paths.at_gateway();
        let prefer = client && self.paths.list.active_id() == Some(id);
        let others_gone = self.paths.list.iter().all(|path| path.id == id || path.is_gone());
        let moves = self.paths.list.moves();
        let beside =
            client && self.paths.list.get(id).is_some_and(|path| path.congestion.is_some());
        let abandon_others = prefer && others_gone;
        let challenge = Challenge { prefer, abandon_others, beside, token, moves };
        let last_words = if prefer { self.last_words.words().to_vec() } else { Vec::new() };
        let Some(path) = self.paths.list.get_mut(id) else { return };
        // What the budget forbids counts as asked: the next try is due as if it had left.
        path.probes.sent(cx.now, token, size, path.route.remote);
        // A probe of the MTU may well be lost: its silence tells nothing of the path.
        let owes_answer = path.mtu.surely_carries(size);
        let sent = self.send_on(cx, id, Load::of(owes_answer), |draft| {
            Frame::Challenge(challenge).emit(draft.frames());
            for &word in &last_words {
                Frame::LastFeedback(word).emit(draft.frames());
            }
            let padding = size.saturating_sub(draft.len());
            frame::emit_padding(draft.frames(), padding);
        });
        if let Err(reason) = sent {
            cx.drops.count(reason);
        }
    }

    /// Sends the next probe of a path's MTU, if one is wanted.
    pub(crate) fn search_mtu(&mut self, cx: &mut Context<'_>, id: PathId) {
        let Some(path) = self.paths.list.get_mut(id) else { return };
        if !path.is_able() {
            return;
        }
        path.set_mtu_due(None);
        if let Some(size) = path.mtu.probe(cx.now) {
            path.set_mtu_due(Some(cx.now + path.rtt.timeout() * 2));
            self.challenge(cx, id, size);
        }
    }

    /// Client: it has just taken a path and challenged it. A second challenge follows, which is the
    /// first MTU probe, and padding up to the budget that the gateway needs to answer with data.
    pub(crate) fn send_first_flight(&mut self, cx: &mut Context<'_>, id: PathId) {
        if let Some(path) = self.paths.list.get_mut(id)
            && let Some(size) = path.mtu.probe(cx.now)
        {
            path.set_mtu_due(Some(cx.now + path.rtt.timeout() * 2));
            self.challenge(cx, id, size);
        }
        self.pad_first_flight(cx, id);
    }

    /// Client: the rest of a first flight, which is the gateway's budget until it has the answer to
    /// a challenge of its own.
    pub(crate) fn pad_first_flight(&mut self, cx: &mut Context<'_>, id: PathId) {
        for _ in 2..FLIGHT {
            let sent = self.send_on(cx, id, Load::Quiet, |draft| {
                let padding = FLIGHT_SIZE.saturating_sub(draft.len());
                frame::emit_padding(draft.frames(), padding);
            });
            if let Err(reason) = sent {
                cx.drops.count(reason);
            }
        }
    }

    /// A path has answered: what it owed before is forgiven; but for data on one that carries a
    /// share: where as much is on its way as may be, nothing more leaves that would be missed.
    pub(crate) fn forgive(&mut self, id: PathId) {
        let is_shared = self.paths.list.is_shared(id);
        if let Some(epoch) = self.epoch_id() {
            self.recovery.forgive(epoch, id, is_shared);
        }
    }
}
