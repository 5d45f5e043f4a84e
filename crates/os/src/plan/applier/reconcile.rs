//! Comparing this host with the last plan, and putting back what other programs removed or changed.

use std::time::Instant;

use super::Applier;
use crate::{
    error::Error,
    netlink::Netlink,
    nft,
    plan::{
        change::with_manager,
        contest::Loss,
        deviation::{Deviation, Outcome},
        item::Item,
        journal::Before,
        present::{Present, Standing},
    },
};

/// What is compared with the plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// Everything.
    All,
    /// Everything but packet filters. To read them, `nft` is started several times.
    AllButFilters,
}

impl Applier {
    /// Compares the host with the plan now: items that differ, and obstacles by other programs.
    /// Changes nothing.
    ///
    /// # Errors
    /// [`Error::Os`], or nft's errors, where the host cannot be looked at.
    pub fn look(&mut self) -> Result<Vec<Deviation>, Error> {
        let present = Present::read(self.entries.iter().map(|held| &held.entry.item))?;
        let mut found = Vec::new();
        for at in 0..self.entries.len() {
            let standing = match self.standing(at, &present) {
                Err(error) if error.is_of_packet_filter() => {
                    found.extend(self.unknown(at, &error));
                    continue;
                }
                standing => standing?,
            };
            // Name servers that could never be set are a fault of their own: `dns_refused`.
            if standing != Standing::InPlace && !self.dns_waits(at) {
                let item = &self.entries[at].entry.item;
                found.push(Deviation::new(item, standing, Outcome::Found));
            }
        }
        Ok(found)
    }

    /// Restores every item of the last plan that somebody else removed or changed. If another
    /// program wrote resolv.conf, its text becomes the new original. Reports the differences, and
    /// continues after a failure. An item that is removed again and again is restored less and less
    /// often.
    ///
    /// A missing interface is only reported. The owner opens it again with
    /// [`Applier::open_device`], reports that with [`Applier::device_is_new`], and calls this
    /// again.
    ///
    /// # Errors
    /// [`Error::Os`], or nft's errors, where the host cannot be looked at.
    pub fn reconcile(&mut self, now: Instant, scope: Scope) -> Result<Vec<Deviation>, Error> {
        let mut found = self.look_and_put_back(now, scope)?;
        found.sort_by_key(|deviation| deviation.part);
        Ok(found)
    }

    fn look_and_put_back(&mut self, now: Instant, scope: Scope) -> Result<Vec<Deviation>, Error> {
        let present = Present::read(self.entries.iter().map(|held| &held.entry.item))?;
        let mut netlink = Netlink::open()?;
        let (mut found, mut lost_device) = (Vec::new(), None);
        for at in 0..self.entries.len() {
            if !self.entries[at].confirmed && !self.dns_waits(at) {
                continue;
            }
            let is_filter = !self.entries[at].entry.item.filter_tables().is_empty();
            if is_filter && scope == Scope::AllButFilters {
                continue;
            }
            let standing = match self.standing(at, &present) {
                // Routes and name servers are restored all the same.
                Err(error) if error.is_of_packet_filter() => {
                    found.extend(self.unknown(at, &error));
                    continue;
                }
                standing => standing?,
            };
            if standing == Standing::InPlace {
                self.answer_again(at, &mut netlink)?;
                continue;
            }
            let item = self.entries[at].entry.item.clone();
            if let (Item::Device { name, .. }, Standing::Missing) = (&item, standing) {
                lost_device = Some(name.clone());
            }
            let outcome = if lost_device.is_some() && item.device() == lost_device.as_deref() {
                Outcome::Found
            } else {
                self.put_back(at, &mut netlink, now)
            };
            if self.dns_waits(at) && !self.entries[at].confirmed {
                continue;
            }
            found.push(Deviation::new(&item, standing, outcome));
        }
        Ok(found)
    }

    /// A packet filter that cannot be looked at. Of a guard [`Applier::unguarded`] says so, if its
    /// plan met the same obstacle.
    fn unknown(&self, at: usize, why: &Error) -> Option<Deviation> {
        let item = &self.entries[at].entry.item;
        let is_said = matches!(item, Item::Guard(_)) && self.unguarded.is_some();
        (!is_said).then(|| Deviation::unknown(item, why))
    }

    /// Installs a guard once more that did not know the host's sockets, if they can be read now. It
    /// answers nobody until then.
    fn answer_again(&mut self, at: usize, netlink: &mut Netlink) -> Result<(), Error> {
        let is_guard = matches!(self.entries[at].entry.item, Item::Guard(_));
        if is_guard && self.older.unread().is_some() {
            self.read_older(at, self.entries.len());
            if self.older.unread().is_none() {
                self.install(netlink, at, self.entries.len())?;
                self.entries[at].listing = None;
            }
        }
        Ok(())
    }

    /// Whether this item is name servers that could not be set so far.
    fn dns_waits(&self, at: usize) -> bool {
        matches!(self.entries[at].entry.item, Item::Dns { .. }) && self.dns_refused.is_some()
    }

    fn put_back(&mut self, at: usize, netlink: &mut Netlink, now: Instant) -> Outcome {
        let item = &self.entries[at].entry.item;
        let filters = !item.filter_tables().is_empty();
        let loss = if filters { Loss::Protection } else { Loss::Service };
        let due = self.entries[at].contest.may_act(now, loss);
        if due > now {
            return Outcome::Waits(due);
        }
        self.entries[at].contest.acted(now);
        let put = self.find_dns_way(at).and_then(|()| {
            self.install(netlink, at, self.entries.len())?;
            let held = &mut self.entries[at];
            (held.listing, held.is_stale, held.confirmed) = (None, false, true);
            Ok(())
        });
        if put.is_ok() && matches!(self.entries[at].entry.item, Item::Dns { .. }) {
            self.dns_refused = None;
        }
        put.map_or_else(|error| Outcome::Failed(error.to_string()), |()| Outcome::PutBack)
    }

    /// Finds out in which way name servers are set now.
    fn find_dns_way(&mut self, at: usize) -> Result<(), Error> {
        let entry = &self.entries[at].entry;
        if let (Item::Dns { dns, .. }, &Before::Dns(before)) = (&entry.item, &entry.before) {
            let way = self.names.way(dns)?;
            if way != before {
                self.entries[at].entry.before = Before::Dns(way);
                self.store()?;
            }
        }
        Ok(())
    }

    /// Whether an item is in place now.
    fn standing(&mut self, at: usize, present: &Present) -> Result<Standing, Error> {
        let names = &self.names;
        let held = &mut self.entries[at];
        let tables = held.entry.item.filter_tables();
        if !tables.is_empty() {
            let contents =
                if held.entry.item.has_sets() { nft::Sets::Left } else { nft::Sets::Shown };
            let now = nft::listing(tables, contents)?;
            return Ok(match (now, &held.listing) {
                (None, _) => Standing::Missing,
                (Some(now), Some(known)) if now != *known => Standing::Changed,
                (Some(now), _) => {
                    held.listing = Some(now);
                    Standing::InPlace
                }
            });
        }
        Ok(match (&held.entry.item, &held.entry.before) {
            (Item::Dns { dns, .. }, Before::Dns(way))
                if held.is_stale || !names.is_in_place(dns, *way)? =>
            {
                Standing::Changed
            }
            (Item::Subflow(endpoint), _) => {
                let is_there = with_manager(|manager| manager.has(endpoint.address))?;
                if is_there.unwrap_or(true) { Standing::InPlace } else { Standing::Missing }
            }
            (Item::MptcpLimit(which, limit), _) => {
                let now = with_manager(|manager| manager.limit(*which))?;
                if now.is_none_or(|now| now >= *limit) {
                    Standing::InPlace
                } else {
                    Standing::Changed
                }
            }
            (item, _) => present.standing(item),
        })
    }

    /// Notes that the interface was deleted and opened again, so everything configured on it is
    /// gone.
    pub fn device_is_new(&mut self, device: &str) {
        for held in &mut self.entries {
            if let Item::Dns { device: own, .. } = &held.entry.item
                && own == device
            {
                held.is_stale = true;
            }
        }
    }
}
