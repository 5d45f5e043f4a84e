//! The links of this host in their order, and what is known of each: signals, tariffs, and how much
//! has gone by those that have a cap.
//!
//! It decides which links carry, and in which order. [`crate::ranking`] has the rules of the order,
//! [`crate::caps`] when a cap is reached. It does not know paths, nor what follows from another
//! order: its answers tell whether there is one.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::sync::mpsc::SyncSender;
use std::time::Instant;

use ipnet::IpNet;
use rove_host::time::wall_clock;
use rove_host::values::Cap;
use rove_os::calendar::Day;
use rove_os::links::{Link, traffic};
use rove_os::tariff::Tariff;

use crate::caps::{Caps, Moment};
use crate::config::{LinkRules, LinkSeen, LinkTerms, LinkUse};
use crate::message::Message;
use crate::radio::Radios;
use crate::ranking::{Ranked, Ranking, Standing};
use crate::search::Unused;
use crate::tariffs::Tariffs;

/// The links and their order.
pub(super) struct LinkOrder {
    all: Vec<Link>,
    ranking: Ranking,
    /// The usable links as they were ordered last, best first.
    ranked: Vec<Ranked>,
    /// Those that are not to be used.
    unused: Vec<Ranked>,
    /// How much has gone by the links that have a cap.
    caps: Caps,
    /// When their order changes without news.
    due: Option<Instant>,
    radios: Radios,
    tariffs: Tariffs,
    /// What the host's network manager knows of links, by name.
    known_tariffs: BTreeMap<String, Tariff>,
}

/// What differs after the links of this host changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Relinked {
    /// The addresses from which this host may send, or the links with a way out.
    pub(super) starts: bool,
    /// The surroundings of the tunnel: links, and the networks that they are in.
    pub(super) places: bool,
    /// The order, or what a link is used for.
    pub(super) uses: bool,
}

impl LinkOrder {
    /// The links of a client with this state directory. News of them goes to `inbox`.
    pub(super) fn new(all: Vec<Link>, state: &Path, inbox: &SyncSender<Message>) -> Self {
        Self {
            all,
            ranking: Ranking::default(),
            ranked: Vec::new(),
            unused: Vec::new(),
            caps: Caps::open(state),
            due: None,
            radios: Radios::new(inbox.clone()),
            tariffs: Tariffs::new(inbox.clone()),
            known_tariffs: BTreeMap::new(),
        }
    }

    /// All links of this host.
    pub(super) fn all(&self) -> &[Link] {
        &self.all
    }

    /// The usable links, best first.
    pub(super) fn ranked(&self) -> &[Ranked] {
        &self.ranked
    }

    /// The links that are not to be used.
    pub(super) fn unused(&self) -> &[Ranked] {
        &self.unused
    }

    /// Takes the links that are there now. `gateway` are its addresses, `tunnel` is the name of the
    /// tunnel's interface.
    pub(super) fn replace(
        &mut self,
        all: Vec<Link>,
        gateway: impl Iterator<Item = IpAddr>,
        tunnel: &str,
        rules: &LinkRules,
    ) -> Relinked {
        let places = places(&self.all) != places(&all);
        self.all = all;
        let before = self.ranked.clone();
        self.note(gateway, tunnel, rules);
        Relinked {
            starts: !starts(&before).eq(starts(&self.ranked)),
            places,
            uses: uses(&before) != uses(&self.ranked),
        }
    }

    /// Takes what is known of the links into account. Returns whether they stand otherwise now.
    pub(super) fn note(
        &mut self,
        gateway: impl Iterator<Item = IpAddr>,
        tunnel: &str,
        rules: &LinkRules,
    ) -> bool {
        let (now, before) = (Instant::now(), std::mem::take(&mut self.ranked));
        self.ranking.set_gateway(gateway);
        self.ranking.links(&self.all, tunnel, now);
        self.count(rules);
        self.judge(now, rules);
        self.radios.ask(self.ranking.radios(now));
        let usable = self.all.iter().filter(|link| link.usable());
        self.tariffs.ask(usable.map(|link| link.name.clone()).collect());
        self.ranked != before
    }

    /// Orders the links anew, for another reason than news of them. Returns whether the order
    /// differs.
    pub(super) fn reorder(&mut self, rules: &LinkRules) -> bool {
        let now = Instant::now();
        let before = uses(&self.ranked);
        self.judge(now, rules);
        let after = uses(&self.ranked);
        if after == before {
            return false;
        }
        tracing::debug!(order = ?after, "the links have another order");
        for ranked in &self.unused {
            if before.iter().any(|(index, ..)| *index == ranked.link.index) {
                tracing::info!(link = ranked.link.name, "not used any more");
            }
        }
        self.radios.ask(self.ranking.radios(now));
        true
    }

    /// Orders the links, and leaves out those that are not to be used.
    fn judge(&mut self, now: Instant, rules: &LinkRules) {
        let terms = self.all.iter().map(|link| {
            let terms = self.terms(link, rules);
            let is_full = self.caps.is_reached(&link.name, terms.cap);
            (link.name.clone(), (terms, if is_full { terms.at_cap } else { terms.usage }))
        });
        let terms = terms.collect();
        self.ranking.set_terms(terms);
        let is_used = |ranked: &Ranked| ranked.usage != LinkUse::Never;
        (self.ranked, self.unused) = self.ranking.order(now).into_iter().partition(is_used);
        self.due = self.ranking.due(now);
    }

    /// Whether the link of this index is metered.
    pub(super) fn is_metered(&self, index: u32, rules: &LinkRules) -> bool {
        let link = self.all.iter().find(|link| link.index == index);
        link.is_some_and(|link| self.terms(link, rules).metered)
    }

    /// What the user says of a link.
    fn terms(&self, link: &Link, rules: &LinkRules) -> LinkTerms {
        let Link { name, kind, .. } = link;
        let Tariff { metered, roaming } = self.known_tariffs.get(name).copied().unwrap_or_default();
        rules.terms(LinkSeen { name, kind: *kind, roaming, metered })
    }

    /// Radios told how strong their signals are.
    pub(super) fn take_signals(&mut self, signals: Vec<(u32, Option<i8>)>) {
        let now = Instant::now();
        for (link, dbm) in signals {
            self.ranking.signal(link, dbm, now);
        }
    }

    /// The host's network manager told what it knows of links.
    pub(super) fn take_tariffs(&mut self, known: BTreeMap<String, Tariff>) {
        self.known_tariffs = known;
    }

    /// When something is due without news.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due.into_iter().chain(self.caps.due()).min()
    }

    /// Counts again if it is time. Returns whether the order may differ.
    pub(super) fn count_when_due(&mut self, now: Instant, rules: &LinkRules) -> bool {
        let must_count = self.caps.due().is_some_and(|due| due <= now);
        if must_count {
            self.count(rules);
        }
        must_count || self.due.is_some_and(|due| due <= now)
    }

    /// Looks at how much has gone by the links that have a cap: of those that are ranked, since a
    /// rule for every link means neither the tunnel nor this host's own.
    pub(super) fn count(&mut self, rules: &LinkRules) {
        let now = Instant::now();
        let there = self.ranking.order(now);
        let capped = with_cap(&there, |link| self.terms(link, rules).cap);
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

    /// The links that are not to be used, each with the reason.
    pub(super) fn why_unused(&self) -> Vec<Unused> {
        let unused = self.unused.iter().map(|Ranked { link, terms, .. }| {
            let is_reached = self.caps.is_reached(&link.name, terms.cap);
            let is_capped = terms.usage != LinkUse::Never && is_reached;
            Unused { name: link.name.clone(), is_capped }
        });
        unused.collect()
    }

    /// A line for a link that was set, if none of that name is there.
    pub(super) fn unknown(&self, name: &str) -> Option<String> {
        let here = self.all.iter().filter(|link| link.name == name || link.usable());
        let here: Vec<&str> = here.map(|link| link.name.as_str()).collect();
        (!here.contains(&name)).then(|| {
            let here = here.join(", ");
            format!("no link here is called {name}: it counts when one is (here are {here})")
        })
    }

    /// Writes the counts, at the end.
    pub(super) fn write_counts(&mut self) {
        self.caps.write();
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

/// The links that have a cap, with it.
fn with_cap(ranked: &[Ranked], cap: impl Fn(&Link) -> Option<Cap>) -> Vec<(&Link, Cap)> {
    let links = ranked.iter().map(|ranked| &ranked.link);
    links.filter_map(|link| Some((link, cap(link)?))).collect()
}

#[cfg(test)]
mod tests {
    use rove_host::values::Period;
    use rove_os::links::LinkKind;

    use super::*;

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
            routes: Vec::new(),
            attached: Vec::new(),
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
