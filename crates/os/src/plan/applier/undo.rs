//! Taking a plan back, so that packets have a route at every moment.
//!
//! The order is not that of [`crate::plan::item`] backwards. While the guard stands and the rules
//! are gone, it would refuse everything. Without the guard and with the tunnel's addresses, open
//! connections would go on outside the tunnel. So the guard is eased first and removed last, and
//! the tunnel's addresses are blocked ([`former`]) before anything is removed.

use std::net::IpAddr;

use super::Applier;
use crate::{
    error::Error,
    netlink::Netlink,
    nft,
    plan::{
        change::remove,
        former::{self, Connections},
        held::Held,
        item::Item,
        routing, sweep,
    },
};

impl Applier {
    /// Leads new packets past the tunnel. What is in the tunnel stays there, so this comes before
    /// the tunnel ends, and [`Applier::undo`] after that.
    ///
    /// # Errors
    /// The first failure. What could not be taken back stays in the journal. A journal that cannot
    /// be written is none: see [`Applier::unwritten`].
    pub fn release(&mut self) -> Result<(), Error> {
        self.sort_for_removal();
        let mut netlink = Netlink::open()?;
        self.ease_guard(0);
        self.block_former(&mut netlink, 0)?;
        let leads_in =
            |held: &Held| matches!(held.entry.item, Item::Rule { .. } | Item::Dns { .. });
        let removed = self.remove_those(&mut netlink, 0, leads_in);
        self.note_down();
        removed
    }

    /// The same as [`Applier::undo`], for good: the tunnel's connections end. Returns how many
    /// sockets stay that have an IPv6 address of the tunnel. What they send is blocked.
    ///
    /// # Errors
    /// The first failure. What could not be taken back stays in the journal.
    pub fn leave(&mut self) -> Result<usize, Error> {
        let former = self.own_addresses(0);
        let undone = self.undo();
        let left = former::settle(&mut Netlink::open()?, &former, &[], Connections::End);
        undone.and(left)
    }

    /// Takes everything back, what an earlier process left included, but for the kill switch. Goes
    /// on after a failure. Connections of the tunnel wait for its return.
    ///
    /// # Errors
    /// The first failure. What could not be taken back stays in the journal. A journal that cannot
    /// be written is none: see [`Applier::unwritten`].
    pub fn undo(&mut self) -> Result<(), Error> {
        self.sort_for_removal();
        let standing = self.entries.iter().filter(|held| held.is_kill_switch()).count();
        let mut netlink = Netlink::open()?;
        let swept = self.sweep_if_damaged(&mut netlink);
        let removed = self.remove_from(&mut netlink, standing);
        self.note_down();
        let settled = former::settle(&mut netlink, &[], &[], Connections::Wait).map(drop);
        swept.and(removed).and(settled)
    }

    /// Removes the kill switch if there is one, by the name of its table and regardless of the
    /// journal.
    ///
    /// # Errors
    /// [`Error::NftMissing`], [`Error::NftRefused`], [`Error::NftSilent`] or [`Error::Os`]; then it
    /// is still in place.
    pub fn remove_kill_switch(&mut self) -> Result<(), Error> {
        let stood = self.kill_switch_stands();
        match nft::remove_kill_switch() {
            // The reboot removed its rules.
            Err(error) if error.is_without_nft() && self.rebooted => {}
            // No kill switch was wanted, and without a working nft there is none.
            Err(error) if error.is_of_packet_filter() && !stood => {}
            result => result?,
        }
        let has_guard = |held: &Held| matches!(held.entry.item, Item::Guard(_));
        if !self.entries.iter().any(has_guard) {
            // The guard may be unknown to the journal. Without a working nft there is none.
            let _ = nft::remove_guard();
        }
        self.entries.retain(|held| !held.is_kill_switch());
        routing::reopen(&mut Netlink::open()?)?;
        if stood {
            self.note_down();
        }
        Ok(())
    }

    /// Writes the journal after something was taken back. If that fails, the host is as it should
    /// be all the same, and only the next process believes otherwise.
    fn note_down(&mut self) {
        self.unwritten = self.store().err();
    }

    /// Removes everything that an unreadable journal may have named.
    pub(super) fn sweep_if_damaged(&mut self, netlink: &mut Netlink) -> Result<(), Error> {
        if self.damaged.is_some() {
            sweep::routing(netlink)?;
            self.damaged = None;
        }
        Ok(())
    }

    /// Removes the entries from `keep` on, the last first; those that resist stay.
    pub(super) fn remove_from(&mut self, netlink: &mut Netlink, keep: usize) -> Result<(), Error> {
        self.ease_guard(keep);
        let blocked = self.block_former(netlink, keep);
        self.remove_those(netlink, keep, |_| true).and(blocked)
    }

    /// Blocks the tunnel's addresses among the entries from `from` on.
    fn block_former(&self, netlink: &mut Netlink, from: usize) -> Result<(), Error> {
        self.own_addresses(from).into_iter().try_for_each(|own| former::block(netlink, own))
    }

    /// The addresses of the tunnel's interface among the entries from `from` on.
    pub(super) fn own_addresses(&self, from: usize) -> Vec<IpAddr> {
        let is_own = |device: &str| self.holds(device);
        let address = |held: &Held| {
            let Item::Address { device, net } = &held.entry.item else { return None };
            is_own(device).then(|| net.addr())
        };
        self.entries[from..].iter().filter_map(address).collect()
    }

    pub(super) fn remove_those(
        &mut self,
        netlink: &mut Netlink,
        from: usize,
        is_meant: impl Fn(&Held) -> bool,
    ) -> Result<(), Error> {
        let mut result = Ok(());
        for at in (from..self.entries.len()).rev() {
            if !is_meant(&self.entries[at]) {
                continue;
            }
            let entry = &self.entries[at].entry;
            // A change that was never made may need a program that is missing to be undone.
            let is_made = self.entries[at].tried;
            match if is_made { remove(netlink, entry, &mut self.names) } else { Ok(()) } {
                Ok(()) => drop(self.entries.remove(at)),
                Err(error) => result = result.and(Err(error)),
            }
        }
        result
    }

    /// Eases a guard among the entries from `from` on that this process installed. It is removed
    /// soon: where it cannot be changed, that says why.
    fn ease_guard(&mut self, from: usize) {
        let is_guard = |held: &Held| matches!(held.entry.item, Item::Guard(_));
        for held in self.entries.iter_mut().skip(from).filter(|held| is_guard(held)) {
            if std::mem::take(&mut held.confirmed) {
                let _ = nft::ease_guard();
            }
        }
    }

    /// The kill switch first and the guard behind it, as both are removed last.
    fn sort_for_removal(&mut self) {
        let is_guard = |held: &Held| matches!(held.entry.item, Item::Guard(_));
        self.entries.sort_by(|one, other| {
            let rank = |held: &Held| (!held.is_kill_switch(), !is_guard(held));
            rank(one).cmp(&rank(other)).then_with(|| one.entry.item.cmp(&other.entry.item))
        });
    }
}
