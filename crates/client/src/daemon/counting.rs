//! What has gone by the links of a client whose data is capped: counted when it is time, and acted
//! on where a cap was reached. When that is, `caps` says; what becomes of the link, `order`.

use std::collections::BTreeMap;
use std::time::Instant;

use rove_host::time::wall_clock;
use rove_host::values::Cap;
use rove_os::calendar::Day;
use rove_os::links::{Link, traffic};

use super::Client;
use crate::caps::Moment;
use crate::ranking::Ranked;

impl Client<'_> {
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
}

/// The links that have a cap, with it.
fn with_cap(ranked: &[Ranked], cap: impl Fn(&Link) -> Option<Cap>) -> Vec<(&Link, Cap)> {
    let links = ranked.iter().map(|ranked| &ranked.link);
    links.filter_map(|link| Some((link, cap(link)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    use rove_host::values::Period;
    use rove_os::links::LinkKind;

    use crate::ranking::Ranking;

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
