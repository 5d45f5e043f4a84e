//! The links of a client in their order: what changes it, and whom that concerns.

use std::collections::BTreeMap;
use std::time::Instant;

use ipnet::IpNet;
use rove_os::calendar::Day;
use rove_os::links::{Link, traffic};
use rove_os::tariff::Tariff;

use super::Client;
use super::rehearsal::Rehearsal;
use crate::config::{LinkSeen, LinkTerms, LinkUse};
use crate::daemon::caps::Moment;
use crate::daemon::data::Order;
use crate::daemon::ranking::{Ranked, Standing, but_for};
use crate::ledger::wall_clock;
use crate::values::Cap;

impl Client<'_> {
    /// The links changed: the core takes other paths, and what others removed is put back.
    pub(super) fn relink(&mut self, links: Vec<Link>) {
        self.links = links;
        let before = std::mem::take(&mut self.ranked);
        self.note_links();
        self.tell_links();
        self.suspect_portals();
        if let Err(error) = self.applier.reassert() {
            tracing::error!(%error, "the tunnel's addresses or routes could not be put back");
        }
        // With another network the name may be found that was not, or the gateway by another. Asked
        // even if the core says that something carries: of this change it knows nothing yet.
        if !starts(&before).eq(starts(&self.ranked)) {
            self.lookups.hurry(Instant::now());
            // Two links may be in one network now.
            if let Err(error) = self.apply() {
                tracing::error!("the settings of links cannot be changed: {error:#}");
            }
        } else if uses(&before) != uses(&self.ranked) {
            self.apply_subflows();
        }
    }

    /// Takes what is known of the links into account.
    pub(super) fn note_links(&mut self) {
        let now = Instant::now();
        self.ranking.links(&self.links, self.config.interface.as_str(), now);
        self.count_data();
        self.judge(now);
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
    fn terms(&self, link: &Link) -> LinkTerms {
        let Link { name, kind, .. } = link;
        let Tariff { metered, roaming } = self.known_tariffs.get(name).copied().unwrap_or_default();
        self.config.links.terms(LinkSeen { name, kind: *kind, roaming, metered })
    }

    /// Looks at how much has gone by the links that have a cap: of those that are ranked, since a
    /// rule for every link means neither the tunnel nor this host's own.
    pub(super) fn count_data(&mut self) {
        let now = Instant::now();
        let there = self.ranking.order(now);
        let capped = with_cap(&there, |link| self.terms(link).cap);
        let traffic = if capped.is_empty() { Ok(BTreeMap::new()) } else { traffic() };
        let error = traffic.as_ref().err().map(|error| error as &dyn std::fmt::Display);
        self.caps.note_blind(error);
        let traffic = traffic.unwrap_or_default();
        let counted = capped
            .iter()
            .map(|(link, cap)| (link.name.as_str(), *cap, traffic.get(&link.index).copied()));
        let counted: Vec<_> = counted.collect();
        self.caps.look(&counted, Moment { now, at: wall_clock().0, today: Day::today() });
    }

    /// How much has gone by each link that has a cap, by name, in bytes.
    pub(super) fn data_used(&self) -> BTreeMap<String, u64> {
        let used = self.ranked.iter().chain(&self.unused).filter_map(|ranked| {
            let used = self.caps.used(&ranked.link.name, ranked.terms.cap?)?;
            Some((ranked.link.name.clone(), used))
        });
        used.collect()
    }

    /// Looks at it again, when it is time, and acts on a cap that was reached.
    pub(super) fn count_when_due(&mut self) {
        if self.caps.due().is_some_and(|due| due <= Instant::now()) {
            self.count_data();
            self.rerank();
        }
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

/// The links that have a cap, with it.
fn with_cap(ranked: &[Ranked], cap: impl Fn(&Link) -> Option<Cap>) -> Vec<(&Link, Cap)> {
    let links = ranked.iter().map(|ranked| &ranked.link);
    links.filter_map(|link| Some((link, cap(link)?))).collect()
}

/// The links in their order, what each is used for, and whether it is for when no other carries.
fn uses(ranked: &[Ranked]) -> Vec<(u32, LinkUse, bool)> {
    ranked.iter().map(|ranked| (ranked.link.index, ranked.usage, ranked.stands_by())).collect()
}

/// From where this host sends: by link, by which more than its neighbours may be reached, and
/// address.
fn starts(ranked: &[Ranked]) -> impl Iterator<Item = (u32, bool, &[IpNet])> {
    ranked.iter().map(|Ranked { link, standing, .. }| {
        (link.index, *standing != Standing::NoRoute, link.addresses.as_slice())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    use rove_os::links::LinkKind;

    use crate::daemon::ranking::Ranking;
    use crate::values::Period;

    #[test]
    fn a_rule_for_every_link_means_those_that_could_carry() {
        let link = |index: u32, name: &str, kind, addresses: &[&str]| Link {
            index,
            name: name.to_owned(),
            kind,
            up: true,
            carrier: true,
            carrier_ups: 0,
            dormant: false,
            mtu: 1_500,
            addresses: addresses.iter().map(|net| net.parse().unwrap()).collect(),
            deprecated: false,
            default_v4: None,
            default_v6: None,
        };
        let ethernet = LinkKind::Ethernet;
        let unplugged = Link { carrier: false, ..link(5, "docker0", ethernet, &["172.17.0.1/16"]) };
        let links = [
            link(1, "lo", LinkKind::Loopback, &["127.0.0.1/8"]),
            Link { default_v4: Some(100), ..link(2, "eth0", ethernet, &["192.0.2.1/24"]) },
            link(3, "rove0", LinkKind::Other, &["10.77.0.2/24"]),
            link(4, "veth7", ethernet, &[]),
            unplugged,
            link(6, "wg0", LinkKind::Tunnel, &["10.9.0.1/24"]),
        ];
        let (mut ranking, now) = (Ranking::default(), Instant::now());
        ranking.links(&links, "rove0", now);
        let cap = Cap { bytes: 1, period: Period::Day };
        let ranked = ranking.order(now);
        let counted = with_cap(&ranked, |link| (link.name != "eth1").then_some(cap));
        let names: Vec<&str> = counted.iter().map(|(link, _)| link.name.as_str()).collect();
        assert_eq!(names, ["eth0"]);
        assert_eq!(with_cap(&ranked, |_| None), []);
    }
}
