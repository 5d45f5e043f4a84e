//! What is delivered was sent by that peer, unaltered, and is delivered once. And from the moment
//! of its revocation a client gets nothing through, and nothing is sent to it (a second would be
//! allowed; here the operator's word reaches the gateway at once).

use std::collections::BTreeMap;

use super::{Breach, Law};
use crate::emu::MS;
use crate::world::inner::{Body, Inner, id_of};
use crate::world::op::Way;

/// What was sent and what came of it.
#[derive(Debug, Default)]
pub(in crate::world) struct Delivery {
    sent: BTreeMap<u32, Entry>,
    next: u32,
    arrived: u32,
    revoked: BTreeMap<usize, u64>,
}

#[derive(Debug)]
struct Entry {
    inner: Inner,
    at_ns: u64,
    arrived: bool,
}

impl Delivery {
    /// A packet is handed to the tunnel; returns it.
    pub(in crate::world) fn send(
        &mut self,
        at_ns: u64,
        client: usize,
        way: Way,
        body: Body,
    ) -> Inner {
        self.next += 1;
        let inner = Inner { id: self.next, client, way, body };
        self.sent.insert(inner.id, Entry { inner, at_ns, arrived: false });
        inner
    }

    /// A packet came out: at the gateway, or at a client.
    pub(in crate::world) fn arrived(
        &mut self,
        now_ns: u64,
        at: Option<usize>,
        packet: &[u8],
    ) -> Result<(Inner, u64), Breach> {
        let breach = |what: String| Breach::new(Law::Delivery, what);
        let id = id_of(packet).ok_or_else(|| breach(format!("{} bytes", packet.len())))?;
        let entry = self.sent.get_mut(&id);
        let entry = entry.ok_or_else(|| breach(format!("packet {id} was never sent")))?;
        let inner = entry.inner;
        let right = match (inner.way, at) {
            (Way::Up, None) => true,
            (Way::Down, Some(client)) => client == inner.client,
            (Way::Up, Some(_)) | (Way::Down, None) => false,
        };
        if !right {
            return Err(breach(format!("{inner:?} came out at {at:?}")));
        }
        if !inner.may_arrive_as(packet) {
            return Err(breach(format!("{inner:?} was altered: {} bytes", packet.len())));
        }
        if std::mem::replace(&mut entry.arrived, true) {
            return Err(breach(format!("{inner:?} was delivered twice")));
        }
        self.arrived += 1;
        // What the gateway sent before may still be on its way to the client.
        let late = |since: &&u64| match inner.way {
            Way::Up => now_ns > **since,
            Way::Down => entry.at_ns > **since,
        };
        if let Some(since_ns) = self.revoked.get(&inner.client).filter(late) {
            let ms = (now_ns - since_ns) / MS;
            let what = format!("{inner:?} got through {ms} ms after the revocation");
            return Err(Breach::new(Law::Revocation, what));
        }
        Ok((inner, entry.at_ns))
    }

    /// Whether packet `id` was delivered.
    pub(in crate::world) fn has_arrived(&self, id: u32) -> bool {
        self.sent.get(&id).is_some_and(|entry| entry.arrived)
    }

    /// The client is revoked from now on.
    pub(in crate::world) fn revoke(&mut self, now_ns: u64, client: usize) {
        self.revoked.entry(client).or_insert(now_ns);
    }

    /// The client is welcome again.
    pub(in crate::world) fn readmit(&mut self, client: usize) {
        self.revoked.remove(&client);
    }

    /// Packets handed in and delivered so far.
    pub(in crate::world) const fn totals(&self) -> (u32, u32) {
        (self.next, self.arrived)
    }
}
