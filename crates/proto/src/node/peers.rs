//! Access to one peer of a node: every verb of a peer is called through here.

use super::{Event, Node};
use crate::error::DropReason;
use crate::id::PeerKey;
use crate::outbox::Outbox;
use crate::peer::Peer;
use crate::session::index::Slot;
use crate::time::Instant;
use crate::tunnel::Context;

impl Node {
    /// Calls a verb of one peer. Its timer is seen to when it matters, or when another peer is
    /// called: packets come in runs, and to work out when a peer wants to be woken takes as long as
    /// to send one.
    pub(super) fn with_peer<T>(
        &mut self,
        now: Instant,
        slot: Slot,
        out: &mut Outbox,
        verb: impl FnOnce(&mut Peer, &mut Context<'_>) -> Result<T, DropReason>,
    ) -> Result<T, DropReason> {
        let peer = self.peers.get_mut(slot.0 as usize).and_then(Option::as_mut);
        let peer = peer.ok_or(DropReason::NoRoute)?;
        let mut cx = Context {
            now,
            config: &self.config,
            announced: &self.announced,
            restart_key: self.notices.key(),
            rng: self.rng.as_mut(),
            indices: &mut self.indices,
            next_socket: &mut self.next_socket,
            out,
            events: &mut self.events,
            drops: &mut self.drops,
            memory: &mut self.memory,
            coder: &mut self.coder,
        };
        cx.memory.serve(&mut peer.account);
        let result = verb(peer, &mut cx);
        cx.memory.serve(&mut peer.account);
        if self.touched != Some(slot) {
            self.settle_timer();
            self.touched = Some(slot);
        }
        result
    }

    /// Ends a batch of datagrams or a run of packets: does once for each peer what they gave cause
    /// for.
    pub fn settle(&mut self, now: Instant, out: &mut Outbox) {
        if self.unsettled.is_empty() {
            return;
        }
        for place in 0..self.unsettled.len() {
            let settled = self.with_peer(now, self.unsettled[place], out, |peer, cx| {
                peer.end_run(cx);
                peer.settle(cx);
                Ok(())
            });
            self.count(settled);
        }
        self.unsettled.clear();
    }

    /// Sets the timer of the peer that was called last.
    pub(super) fn settle_timer(&mut self) {
        if let Some(slot) = self.touched.take()
            && let Some(peer) = self.peer(slot)
        {
            let wanted = peer.poll_timeout(&self.config);
            self.timers.set(slot, wanted);
            self.let_go(slot);
        }
    }

    /// Forgets a peer that was revoked, once there is nobody left to be told.
    pub(super) fn let_go(&mut self, slot: Slot) {
        let Some(place) = self.leaving.iter().position(|&leaving| leaving == slot) else { return };
        let memory = &mut self.memory;
        let leaves = |peer: &mut Peer| {
            memory.serve(&mut peer.account);
            let has_left = peer.leave(memory);
            memory.serve(&mut peer.account);
            has_left
        };
        if let Some(peer) = self.peers.get_mut(slot.0 as usize)
            && peer.as_mut().is_none_or(leaves)
        {
            *peer = None;
            self.leaving.swap_remove(place);
            self.routes.remove(slot);
            self.timers.stop(slot);
        }
    }

    pub(super) fn peer(&self, slot: Slot) -> Option<&Peer> {
        self.peers.get(slot.0 as usize)?.as_ref()
    }

    pub(super) fn count(&mut self, result: Result<(), DropReason>) {
        if let Err(reason) = result {
            self.drops.count(reason);
        }
    }

    pub(super) fn tell(&mut self, event: Event) {
        if self.events.len() < crate::tunnel::EVENTS_MAX {
            self.events.push_back(event);
        } else {
            self.drops.count(DropReason::QueueFull);
        }
    }

    /// Every peer, in the order of their keys.
    pub fn peers(&self) -> impl ExactSizeIterator<Item = PeerKey> + '_ {
        self.by_key.keys().copied()
    }
}
