//! The links of a client in their order: what changes it, and whom that concerns.

use std::time::Instant;

use ipnet::IpNet;
use rove_os::links::Link;

use super::Client;
use super::rehearsal::Rehearsal;
use crate::daemon::data::Order;
use crate::daemon::ranking::{Ranked, Standing};

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
        }
    }

    /// Takes what is known of the links into account.
    pub(super) fn note_links(&mut self) {
        let now = Instant::now();
        self.ranking.links(&self.links, self.config.interface.as_str(), now);
        self.ranked = self.ranking.order(now);
        self.order_due = self.ranking.due(now);
        self.radios.ask(self.ranking.radios(now));
    }

    /// Tells the core of the links, best first, but for one that is away on purpose.
    pub(super) fn tell_links(&self) {
        let away = self.rehearsal.as_ref().and_then(Rehearsal::unplugged);
        let there = self.ranked.iter().filter(|ranked| Some(ranked.link.name.as_str()) != away);
        let links = there.map(|ranked| ranked.link.clone()).collect();
        self.data.order(Order::Links(links));
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
        let ranked = self.ranking.order(now);
        let indices =
            |order: &[Ranked]| order.iter().map(|ranked| ranked.link.index).collect::<Vec<_>>();
        let moved = indices(&ranked) != indices(&self.ranked);
        self.ranked = ranked;
        self.order_due = self.ranking.due(now);
        if moved {
            tracing::debug!(order = ?indices(&self.ranked), "the links have another order");
            self.tell_links();
            self.radios.ask(self.ranking.radios(now));
        }
    }
}

/// From where this host sends: by link, by which more than its neighbours may be reached, and
/// address.
fn starts(ranked: &[Ranked]) -> impl Iterator<Item = (u32, bool, &[IpNet])> {
    ranked.iter().map(|Ranked { link, standing, .. }| {
        (link.index, *standing != Standing::NoRoute, link.addresses.as_slice())
    })
}
