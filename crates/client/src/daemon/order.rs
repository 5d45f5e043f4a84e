//! What follows from another order of the links, for the core, the plan and the gateway's
//! addresses.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Instant;

use rove_host::data::Order;
use rove_os::links::Link;
use rove_os::watch::{Area, Change};

use super::Client;
use super::rehearsal::Rehearsal;
use crate::ranking::{Ranked, but_for};

impl Client<'_> {
    /// The links changed: the core takes other paths, and what others removed is put back.
    pub(super) fn relink(&mut self, links: Vec<Link>) {
        let reached = self.gateway_at.reached();
        let gateway = self.gateway_at.remotes().iter().map(SocketAddr::ip);
        let tunnel = self.config.interface.as_str();
        let changed = self.links.replace(links, gateway, tunnel, &self.config.links);
        self.gateway_at.note_links(self.links.ranked().iter().map(|ranked| &ranked.link));
        self.tell_links();
        self.suspect_portals();
        self.tell_troubles();
        // With another network the name may be found that was not, or the gateway by another. Asked
        // even if the core says that something carries: of this change it knows nothing yet.
        if changed.starts {
            self.lookups.moved(Instant::now());
            self.tell_remotes(&reached);
        }
        // When the local networks changed, or two links are in one network, the plan differs.
        if changed.places {
            self.host.owe_plan();
        } else {
            self.host.owe(BTreeSet::from([Change { area: Area::Routing, by: None }]));
        }
        if !changed.places && changed.uses {
            self.apply_subflows();
        }
    }

    /// Takes what is known of the links into account. Returns whether they stand otherwise now.
    pub(super) fn note_links(&mut self) -> bool {
        let gateway = self.gateway_at.remotes().iter().map(SocketAddr::ip);
        let tunnel = self.config.interface.as_str();
        let is_changed = self.links.note(gateway, tunnel, &self.config.links);
        self.gateway_at.note_links(self.links.ranked().iter().map(|ranked| &ranked.link));
        is_changed
    }

    /// The links that may carry, best first, but for one that is away on purpose.
    pub(super) fn there(&self) -> impl Iterator<Item = &Ranked> {
        let away = self.rehearsal.as_ref().and_then(Rehearsal::unplugged);
        but_for(self.links.ranked(), away)
    }

    /// Tells the core of the links, best first.
    pub(super) fn tell_links(&self) {
        let links = self.there().map(|ranked| (ranked.link.clone(), ranked.stands_by()));
        self.data.order(Order::Links(links.collect()));
    }

    /// Orders the links anew, for another reason than news of them.
    pub(super) fn rerank(&mut self) {
        if self.links.reorder(&self.config.links) {
            self.apply_subflows();
            self.tell_links();
        }
    }

    /// The same if it is time.
    pub(super) fn rerank_when_due(&mut self) {
        if self.links.count_when_due(Instant::now(), &self.config.links) {
            self.rerank();
        }
    }
}
