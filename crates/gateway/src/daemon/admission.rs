//! Who comes in, and what each peer may do: the ledger's decisions as commands for the core.

use std::collections::BTreeSet;

use ipnet::IpNet;
use rove_host::inner;
use rove_host::invite::TokenHash;
use rove_host::time::wall_clock;
use rove_host::values::Lease;
use rove_proto::crypto::Status;
use rove_proto::id::PeerKey;
use rove_proto::node::{Command, PeerConfig, SideConfig};
use rove_proto::role::Access;
use rove_proto::wire::control::Prefix;

use super::Daemon;
use super::plan;
use crate::ledger::{Enrolment, Peer, Refusal};

impl Daemon {
    /// Tells the core what the ledger and the configuration say of peers and flows.
    pub(super) fn introduce_everybody(&mut self) {
        self.data.command(Command::SetLocals(self.locals()));
        self.data.command(Command::SetOverrides(self.gateway.config.rules.core()));
        for peer in self.gateway.ledger.registry().peers() {
            if peer.is_enrolled() {
                self.admit(peer);
            } else {
                self.data.command(Command::RevokePeer(peer.key.into()));
            }
        }
        for (peer, highest) in self.gateway.ledger.counters().unwrap_or_default() {
            self.data.command(Command::SetCounter { peer, highest });
        }
        self.break_off();
    }

    /// Tells the ends of connections whose bytes an earlier process could not deliver.
    fn break_off(&mut self) {
        let registry = self.gateway.ledger.registry();
        let enrolled = registry.peers().filter(|peer| peer.is_enrolled());
        let known: BTreeSet<PeerKey> = enrolled.map(|peer| peer.key.into()).collect();
        for break_off in self.owed.inherited(|peer| known.contains(&peer)) {
            self.data.command(break_off);
        }
    }

    pub(super) fn admit(&self, peer: &Peer) {
        let Some(lease) = self.gateway.ledger.registry().lease(peer) else {
            tracing::warn!("a peer has no address in the networks any more and is left out");
            return;
        };
        let dns = &self.gateway.config.dns;
        let side = SideConfig::Client { lease: plan::core_lease(&lease, &self.own, dns) };
        let access = self.access(peer, &lease);
        let config = PeerConfig { key: peer.key.into(), psk: None, access, side };
        self.data.command(Command::AddPeer(Box::new(config)));
    }

    pub(super) fn access(&self, peer: &Peer, lease: &Lease) -> Access {
        let none = Vec::new();
        let advertised = self.advertised.get(&peer.key.into()).unwrap_or(&none);
        let behind = plan::behind(&self.gateway.config, peer, advertised, &self.links);
        plan::access(&self.gateway.config, peer, lease, &self.own, &behind, &self.links)
    }

    /// A peer says what lies behind it: as far as its invite grants that, it is routed there.
    pub(super) fn take_routes(&mut self, key: PeerKey, routes: &[Prefix]) {
        let Some(peer) = self.gateway.ledger.registry().peer(key) else { return };
        let routes: Vec<IpNet> = routes.iter().filter_map(inner::network).collect();
        let granted = |net: &IpNet| peer.subnets.iter().any(|subnet| subnet.contains(net));
        if let Some(net) = routes.iter().find(|net| !granted(net)) {
            let name = &peer.name;
            tracing::warn!(%name, %net, "a peer advertises what no invite of its grants");
        }
        let before = if routes.is_empty() {
            self.advertised.remove(&key).unwrap_or_default()
        } else {
            self.advertised.insert(key, routes.clone()).unwrap_or_default()
        };
        if before != routes {
            self.permit(key);
        }
    }

    /// Tells the core what a peer may do by now.
    pub(super) fn permit(&self, key: PeerKey) {
        let registry = self.gateway.ledger.registry();
        let Some(peer) = registry.peer(key) else { return };
        let Some(lease) = registry.lease(peer) else { return };
        let access = self.access(peer, &lease);
        self.data.command(Command::SetAccess { peer: key, access });
    }

    /// A stranger with a token: durable first, admitted after.
    pub(super) fn enrol(&mut self, key: PeerKey, token: TokenHash) {
        let now = wall_clock();
        let time = self.gateway.ledger.time(now);
        let refusal = match self.gateway.ledger.registry().enrol(key, Some(token), time) {
            Ok(Enrolment::Known) => None,
            Ok(Enrolment::New(change)) => match self.gateway.ledger.make(change, now) {
                Ok(()) => None,
                Err(error) => {
                    tracing::error!(%error, "an enrolment could not be stored");
                    Some(Status::Busy)
                }
            },
            Err(refusal) => {
                let status = status_of(refusal);
                self.remember_refusal(key, refusal);
                Some(status)
            }
        };
        if let Some(status) = refusal {
            return self.data.command(Command::RefuseEnrolment { peer: key, status });
        }
        if let Some(peer) = self.gateway.ledger.registry().peer(key).cloned() {
            tracing::info!("a peer enrolled");
            self.admit(&peer);
            if !peer.subnets.is_empty() || !peer.allowed.is_empty() {
                self.replan();
            }
        }
    }

    pub(super) fn note_refusal(&mut self, key: PeerKey, status: Status) {
        match status {
            Status::NotEnrolled => self.remember_refusal(key, Refusal::NotEnrolled),
            Status::Revoked => self.remember_refusal(key, Refusal::Revoked),
            // What this thread refused itself is written down already.
            Status::Accepted
            | Status::TokenUsed
            | Status::TokenExpired
            | Status::TokenUnknown
            | Status::StaleCounter { .. }
            | Status::Busy
            | Status::Unsupported
            | Status::Other(_) => {}
        }
    }

    pub(super) fn remember_refusal(&mut self, key: PeerKey, refusal: Refusal) {
        tracing::debug!(peer = ?key, %refusal, "refused");
        if let Err(error) = self.gateway.ledger.note_refusal(key, refusal, wall_clock()) {
            tracing::error!(%error, "a refusal could not be written down");
        }
    }
}

const fn status_of(refusal: Refusal) -> Status {
    match refusal {
        Refusal::NotEnrolled => Status::NotEnrolled,
        Refusal::Used => Status::TokenUsed,
        Refusal::Expired => Status::TokenExpired,
        Refusal::Unknown => Status::TokenUnknown,
        Refusal::Revoked => Status::Revoked,
        Refusal::Full => Status::Busy,
    }
}
