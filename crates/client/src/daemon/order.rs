//! The links of a client in their order: what changes it, and whom that concerns.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Instant;

use ipnet::IpNet;
use rove_host::data::Order;
use rove_os::links::Link;
use rove_os::tariff::Tariff;
use rove_os::watch::{Area, Change};

use super::Client;
use super::rehearsal::Rehearsal;
use crate::config::{LinkSeen, LinkTerms, LinkUse};
use crate::ranking::{Ranked, Standing, but_for};

impl Client<'_> {
    /// The links changed: the core takes other paths, and what others removed is put back.
    pub(super) fn relink(&mut self, links: Vec<Link>) {
        let reached = self.reached_at();
        let around = places(&self.links) != places(&links);
        self.links = links;
        let before = std::mem::take(&mut self.ranked);
        self.note_links();
        self.tell_links();
        self.suspect_portals();
        self.tell_troubles();
        // With another network the name may be found that was not, or the gateway by another. Asked
        // even if the core says that something carries: of this change it knows nothing yet.
        if !starts(&before).eq(starts(&self.ranked)) {
            self.lookups.moved(Instant::now());
            self.tell_remotes(&reached);
        }
        // When the local networks changed, or two links are in one network, the plan differs.
        if around {
            self.host.owe_plan();
        } else {
            self.host.owe(BTreeSet::from([Change { area: Area::Routing, by: None }]));
        }
        if !around && uses(&before) != uses(&self.ranked) {
            self.apply_subflows();
        }
    }

    /// Takes what is known of the links into account.
    pub(super) fn note_links(&mut self) {
        let now = Instant::now();
        self.ranking.set_gateway(self.remotes.iter().map(SocketAddr::ip));
        self.ranking.links(&self.links, self.config.interface.as_str(), now);
        self.count_data();
        self.judge(now);
        self.nat64.note_links(self.ranked.iter().map(|ranked| &ranked.link));
        self.radios.ask(self.ranking.radios(now));
        let usable = self.links.iter().filter(|link| link.usable());
        self.tariffs.ask(usable.map(|link| link.name.clone()).collect());
    }

    /// Orders the links, and leaves out those that are not to be used.
    fn judge(&mut self, now: Instant) {
        let terms = self.links.iter().map(|link| {
            let terms = self.terms(link);
            let is_full = self.caps.is_reached(&link.name, terms.cap);
            (link.name.clone(), (terms, if is_full { terms.at_cap } else { terms.usage }))
        });
        let terms = terms.collect();
        self.ranking.set_terms(terms);
        let is_used = |ranked: &Ranked| ranked.usage != LinkUse::Never;
        (self.ranked, self.unused) = self.ranking.order(now).into_iter().partition(is_used);
        self.order_due = self.ranking.due(now);
    }

    /// What the user says of a link.
    pub(super) fn terms(&self, link: &Link) -> LinkTerms {
        let Link { name, kind, .. } = link;
        let Tariff { metered, roaming } = self.known_tariffs.get(name).copied().unwrap_or_default();
        self.config.links.terms(LinkSeen { name, kind: *kind, roaming, metered })
    }

    /// The links that may carry, best first, but for one that is away on purpose.
    pub(super) fn there(&self) -> impl Iterator<Item = &Ranked> {
        let away = self.rehearsal.as_ref().and_then(Rehearsal::unplugged);
        but_for(&self.ranked, away)
    }

    /// Tells the core of the links, best first.
    pub(super) fn tell_links(&self) {
        let links = self.there().map(|ranked| (ranked.link.clone(), ranked.stands_by()));
        self.data.order(Order::Links(links.collect()));
    }

    /// Radios told how strong their signals are.
    pub(super) fn take_signals(&mut self, signals: Vec<(u32, Option<i8>)>) {
        let now = Instant::now();
        for (link, dbm) in signals {
            self.ranking.signal(link, dbm, now);
        }
        self.rerank();
    }

    /// Orders the links anew, for another reason than news of them.
    pub(super) fn rerank(&mut self) {
        let now = Instant::now();
        let before = uses(&self.ranked);
        self.judge(now);
        if uses(&self.ranked) != before {
            tracing::debug!(order = ?uses(&self.ranked), "the links have another order");
            for ranked in &self.unused {
                if before.iter().any(|(index, ..)| *index == ranked.link.index) {
                    tracing::info!(link = ranked.link.name, "not used any more");
                }
            }
            self.apply_subflows();
            self.tell_links();
            self.radios.ask(self.ranking.radios(now));
        }
    }
}

/// The links in their order, what each is used for, and whether it is for when no other carries.
fn uses(ranked: &[Ranked]) -> Vec<(u32, LinkUse, bool)> {
    ranked.iter().map(|ranked| (ranked.link.index, ranked.usage, ranked.stands_by())).collect()
}

/// The surroundings of the tunnel: links, and the networks that they are in.
fn places(links: &[Link]) -> Vec<(u32, &str, bool, &[IpNet])> {
    let is_there = |link: &Link| link.up && link.carrier;
    links
        .iter()
        .map(|link| (link.index, link.name.as_str(), is_there(link), link.addresses.as_slice()))
        .collect()
}

/// From where this host sends: by link, by which more than its neighbours may be reached, and
/// address.
fn starts(ranked: &[Ranked]) -> impl Iterator<Item = (u32, bool, &[IpNet])> {
    ranked.iter().map(|Ranked { link, standing, .. }| {
        (link.index, *standing != Standing::NoRoute, link.addresses.as_slice())
    })
}
