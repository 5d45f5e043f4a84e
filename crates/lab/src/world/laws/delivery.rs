//! What is delivered was sent by that peer, unaltered, from its own address to where it may send,
//! and is delivered once. And from the moment of its revocation a client gets nothing through (a
//! second would be allowed; here the operator's word reaches the gateway at once).

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use rove_proto::wire::icmp::{Unreachable, Unreached};
use rove_proto::wire::inner::InnerPacket;

use super::{Breach, Law};
use crate::emu::MS;
use crate::world::host_id::HostId;
use crate::world::inner::{Body, GATEWAY, Inner, id_of};
use crate::world::op::{Overreach, Way};

/// What was sent and what came of it.
#[derive(Debug, Default)]
pub(in crate::world) struct Delivery {
    sent: BTreeMap<u32, Entry>,
    next: u32,
    arrived: u32,
    revoked: BTreeMap<usize, Revoked>,
    refused: BTreeSet<u32>,
}

#[derive(Debug)]
struct Revoked {
    since_ns: u64,
    /// Where it was reached until then.
    remotes: BTreeSet<SocketAddr>,
}

#[derive(Debug)]
struct Entry {
    inner: Inner,
    /// Where it may come out.
    end: HostId,
    at_ns: u64,
    /// As which of all that arrived it did.
    place: Option<u32>,
}

impl Delivery {
    /// A packet of `client` or for it is handed to its tunnel, which ends at `gateway`; returns it.
    pub(in crate::world) fn send(
        &mut self,
        at_ns: u64,
        gateway: HostId,
        client: usize,
        way: Way,
        body: Body,
    ) -> Inner {
        self.next += 1;
        let inner = Inner { id: self.next, client, way, body };
        let end = if way == Way::Up { gateway } else { HostId::Client(client) };
        self.sent.insert(inner.id, Entry { inner, end, at_ns, place: None });
        inner
    }

    /// A packet came out at a host.
    pub(in crate::world) fn arrived(
        &mut self,
        now_ns: u64,
        at: HostId,
        packet: &[u8],
    ) -> Result<(Inner, u64), Breach> {
        let breach = |what: String| Breach::new(Law::Delivery, what);
        let id = id_of(packet).ok_or_else(|| breach(format!("{} bytes", packet.len())))?;
        let entry = self.sent.get_mut(&id);
        let entry = entry.ok_or_else(|| breach(format!("packet {id} was never sent")))?;
        let inner = entry.inner;
        if entry.end != at {
            return Err(breach(format!("{inner:?} came out at {at}")));
        }
        if !inner.body.may_arrive() {
            return Err(breach(format!("{inner:?} was let through")));
        }
        if !inner.may_arrive_as(packet) {
            return Err(breach(format!("{inner:?} was altered: {} bytes", packet.len())));
        }
        if entry.place.replace(self.arrived).is_some() && !inner.body.may_come_again() {
            return Err(breach(format!("{inner:?} was delivered twice")));
        }
        self.arrived += 1;
        // What the gateway sent before may still be on its way to the client.
        let late = |revoked: &&Revoked| match inner.way {
            Way::Up => now_ns > revoked.since_ns,
            Way::Down => entry.at_ns > revoked.since_ns,
        };
        if let Some(revoked) = self.revoked.get(&inner.client).filter(late) {
            let ms = (now_ns - revoked.since_ns) / MS;
            let what = format!("{inner:?} got through {ms} ms after the revocation");
            return Err(Breach::new(Law::Revocation, what));
        }
        Ok((inner, entry.at_ns))
    }

    /// Whether a packet that came out at a client is the gateway's word that it refuses another.
    /// That is one which the client may not send, is told of once, and whose source is its own.
    pub(in crate::world) fn is_refusal(
        &mut self,
        client: usize,
        packet: &[u8],
    ) -> Result<bool, Breach> {
        let told = InnerPacket::whole(packet).ok().and_then(|packet| Unreached::parse(&packet));
        let Some(told) = told else { return Ok(false) };
        let about = id_of(told.quoted).and_then(|id| self.sent.get(&id)).map(|entry| entry.inner);
        let is_right = about.is_some_and(|inner| {
            let is_own = inner.body != Body::Forbidden(Overreach::Source);
            let is_whole = inner.bytes().starts_with(told.quoted);
            let by = told.by == GATEWAY && told.why == Unreachable::Prohibited;
            !inner.body.may_arrive() && is_own && is_whole && by && inner.client == client
        });
        match about {
            Some(inner) if is_right && self.refused.insert(inner.id) => Ok(true),
            Some(_) | None => {
                let what = format!("client {client} is told that {about:?} is refused");
                Err(Breach::new(Law::Delivery, what))
            }
        }
    }

    /// How many packets clients were told of that the gateway refused.
    pub(in crate::world) fn refused(&self) -> usize {
        self.refused.len()
    }

    /// Whether packet `id` was delivered.
    pub(in crate::world) fn has_arrived(&self, id: u32) -> bool {
        self.sent.get(&id).is_some_and(|entry| entry.place.is_some())
    }

    /// The first packet from `from` on that came before another of its flow that was sent sooner.
    pub(in crate::world) fn first_early(&self, from: u32) -> Option<Inner> {
        let mut last = BTreeMap::new();
        let arrived = self.sent.range(from..).filter_map(|(_, entry)| Some((entry, entry.place?)));
        let mut last_place = |flow, place| last.insert(flow, place);
        let mut early = arrived.filter(|(entry, place)| {
            last_place(entry.inner.flow(), *place).is_some_and(|before| before > *place)
        });
        early.next().map(|(entry, _)| entry.inner)
    }

    /// What packet `id` is, and when it was handed to the tunnel.
    pub(in crate::world) fn sent(&self, id: u32) -> Option<(Inner, u64)> {
        self.sent.get(&id).map(|entry| (entry.inner, entry.at_ns))
    }

    /// The client is revoked from now on; until now it was reached at `remotes`.
    pub(in crate::world) fn revoke(
        &mut self,
        now_ns: u64,
        client: usize,
        remotes: BTreeSet<SocketAddr>,
    ) {
        self.revoked.entry(client).or_insert(Revoked { since_ns: now_ns, remotes });
    }

    /// Somebody who is welcome is reached at `remotes`: they are nobody else's any more, even if a
    /// revoked client was reached there too (an attacker repeats the datagrams of both).
    pub(in crate::world) fn reached_at(&mut self, remotes: &BTreeSet<SocketAddr>) {
        for revoked in self.revoked.values_mut() {
            revoked.remotes.retain(|remote| !remotes.contains(remote));
        }
    }

    /// The gateway sends data to `remote`, where it knows nobody.
    pub(in crate::world) fn sent_to_nobody(&self, remote: SocketAddr) -> Result<(), Breach> {
        let who = self.revoked.iter().find(|(_, revoked)| revoked.remotes.contains(&remote));
        let Some((client, _)) = who else { return Ok(()) };
        let what = format!("data to {remote}, where the revoked client {client} was");
        Err(Breach::new(Law::Revocation, what))
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
