//! Applies a plan to this host, and undoes it.

mod leftovers;
mod reconcile;
mod undo;

use std::{
    borrow::Cow,
    io,
    net::{IpAddr, SocketAddr},
};

use ipnet::IpNet;

pub use self::{leftovers::Leftovers, reconcile::Scope};
use super::{
    Displaced, Places, Plan,
    change::install,
    flows::{self, Beside, Older},
    former::{self, Connections},
    held::Held,
    item::{self, Item, Opening},
    journal::{Before, Entry, Journal, Left},
    obstacle::{self, Obstacle},
    present, redirects, routing, sender, setting,
    surroundings::Surroundings,
    sysctl,
};
use crate::{
    dns::{self, NameServers},
    error::Error,
    links::{self, Link},
    mptcp::PathManager,
    netlink::Netlink,
    nft,
    tun::{Tun, TunOptions},
};

/// Applies plans to this host, one after the other.
///
/// Dropping it changes nothing: what is in place stays, as a restart of a gateway wants it, and
/// the next applier with the same directory takes over. What the next plan wants, too, is kept
/// without a moment's absence.
#[derive(Debug)]
pub struct Applier {
    names: NameServers,
    journal: Journal,
    /// Everything that may be in place, in the order in which it was put there.
    entries: Vec<Held>,
    /// The machine was started anew since the journal was written, and the rules of its kill
    /// switch, which went with the kernel, are not back yet.
    rebooted: bool,
    /// Why the name servers of the last plan are not set.
    dns_refused: Option<Error>,
    /// Why the journal could not be read. The next plan then sweeps everything that it may have
    /// named.
    damaged: Option<String>,
    /// Why the last plan has no guard, if it should have one.
    unguarded: Option<Error>,
    /// The surroundings for which the last plan was applied.
    around: Surroundings,
    /// Why the last plan has no IPv6 addresses, if it should have some.
    ipv6_off: Option<Error>,
    /// The connections that are older than the guard.
    older: Older,
    /// Why the journal does not say what was taken back last.
    unwritten: Option<Error>,
}

impl Applier {
    /// Takes over the changes of an earlier process, according to its journal. Changes nothing yet:
    /// [`Applier::apply`] keeps the changes that its plan wants, [`Applier::undo`] removes all. If
    /// the journal is damaged and a kill switch was wanted, the kill switch is installed again
    /// without exceptions.
    ///
    /// # Errors
    /// [`Error::Os`] when the journal may not be read.
    pub fn open(places: Places) -> Result<Self, Error> {
        let journal = Journal::new(&places.state);
        let Left { entries, rebooted, damaged, wants_kill_switch } = journal.load()?;
        let mut entries: Vec<_> =
            entries.into_iter().map(|entry| Held::new(entry, false)).collect();
        if wants_kill_switch && !entries.iter().any(Held::is_kill_switch) {
            let closed = Item::KillSwitch(Opening::closed());
            entries.insert(0, Held::new(Entry { item: closed, before: Before::Nothing }, false));
        }
        Ok(Self {
            names: NameServers::new(places),
            journal,
            entries,
            rebooted,
            dns_refused: None,
            unguarded: None,
            around: Surroundings::default(),
            ipv6_off: None,
            older: Older::default(),
            unwritten: None,
            damaged,
        })
    }

    /// Why the journal of the last process could not be read, until a plan is applied or undone.
    pub fn damaged(&self) -> Option<&str> {
        self.damaged.as_deref()
    }

    /// Opens the TUN of `plan`, with offloads. One that outlives the process is in the journal
    /// before it is in the kernel, so that whenever this process dies, the next one knows whose
    /// it is.
    ///
    /// # Errors
    /// Those of [`Tun::open`], and [`Error::Os`] when the journal cannot be written.
    pub fn open_device(&mut self, plan: &Plan) -> Result<Tun, Error> {
        if plan.persistent {
            let device = self.prepare(item::device(plan))?;
            let known = |held: &Held| held.entry.item.same_place(&device.entry.item);
            if !self.entries.iter().any(known) {
                self.entries.push(Held { tried: true, ..device });
                self.store()?;
            }
        }
        let (name, persistent) = (&*plan.device, plan.persistent);
        Tun::open(TunOptions { name, persistent, offload: true })
    }

    /// Changes the host as `plan` says: first adds missing items, then removes surplus ones. An
    /// installed kill switch stays, even if the plan has none, and returns after a boot.
    ///
    /// If name servers cannot be set, this is no error, because a tunnel without them is better
    /// than none: [`Applier::dns_refused`] gives the reason.
    ///
    /// This does not check whether the tunnel's networks overlap local ones. A gateway calls
    /// [`Plan::check`] for that before its first plan.
    ///
    /// # Errors
    /// [`Error::BadPlan`] before anything is changed. After any other error the host is between two
    /// plans: apply again, or call [`Applier::undo`]. A first kill switch that was refused is then
    /// not installed.
    pub fn apply(&mut self, plan: &Plan) -> Result<(), Error> {
        plan.check(&[])?;
        let fitting = fitting(plan);
        let is_changed = matches!(fitting, Cow::Owned(_));
        self.ipv6_off = is_changed.then(|| Error::Ipv6Off { interface: plan.device.clone() });
        let plan = &*fitting;
        self.unguarded = None;
        if plan.guard.is_none() {
            self.older = Older::default();
        }
        if plan.guard.is_some() {
            self.unguarded = nft::check(nft::GUARD).err();
        }
        let stood = self.kill_switch_stands();
        let keep = self.enter(plan)?;
        self.store()?;
        let mut netlink = Netlink::open()?;
        let mut redirects_taken = false;
        self.sweep_if_damaged(&mut netlink)?;
        for at in 0..keep {
            if !self.entries[at].confirmed && !self.stands_untouched(at, plan) {
                if matches!(self.entries[at].entry.item, Item::Guard(_)) {
                    // Then no program gets another connection past the tunnel that the guard does
                    // not know. Those that resist are tried again at the end.
                    let _ = self.remove_those(&mut netlink, keep, |held| held.leads_past());
                }
                let was_tried = std::mem::replace(&mut self.entries[at].tried, true);
                if let Err(error) = self.install(&mut netlink, at, keep) {
                    // A table of this boot stays as it was.
                    let was_there = was_tried && !self.rebooted;
                    self.entries[at].tried = was_there || !error.is_of_packet_filter();
                    self.do_without(at, error, stood)?;
                    continue;
                }
                redirects_taken |= entry_took_redirects(&self.entries[at].entry);
            }
            self.entries[at].confirmed = true;
        }
        if redirects_taken {
            redirects::forget(&mut netlink);
        }
        if self.kill_switch_stands() {
            routing::reopen(&mut netlink)?;
        }
        self.rebooted = false;
        let former = self.own_addresses(keep);
        self.remove_from(&mut netlink, keep)?;
        if !plan.addresses.is_empty() {
            let present: Vec<IpAddr> = plan.addresses.iter().map(IpNet::addr).collect();
            former::settle(&mut netlink, &former, &present, Connections::End)?;
        }
        // A first guard that was refused is not installed.
        let is_guard = |held: &Held| matches!(held.entry.item, Item::Guard(_));
        self.entries.retain(|held| held.confirmed || held.tried || !is_guard(held));
        self.store()
    }

    /// Enters the items of a plan and, behind them, the items to remove. Returns how many stay.
    fn enter(&mut self, plan: &Plan) -> Result<usize, Error> {
        let (wanted, around) = self.wanted(plan)?;
        self.around = around;
        let mut next = Vec::with_capacity(wanted.len());
        self.dns_refused = None;
        for item in wanted {
            let is_dns = matches!(item, Item::Dns { .. });
            match self.prepare(item) {
                Ok(held) => next.push(held),
                Err(error) if is_dns => self.dns_refused = Some(error),
                Err(error) => return Err(error),
            }
        }
        let stale = |held: &&Held| {
            let replaced =
                next.iter().any(|new: &Held| new.entry.item.same_place(&held.entry.item));
            !replaced
        };
        let (standing, obsolete): (Vec<_>, Vec<_>) = self
            .entries
            .iter()
            .filter(stale)
            .cloned()
            .partition(|held| matches!(held.entry.item, Item::KillSwitch(_)));
        next.splice(0..0, standing);
        let keep = next.len();
        next.extend(obsolete);
        self.entries = next;
        Ok(keep)
    }

    /// Handles an item that could not be installed. A tunnel without name servers or guard is
    /// better than none; any other failure is an error.
    fn do_without(&mut self, at: usize, error: Error, stood: bool) -> Result<(), Error> {
        let item = &self.entries[at].entry.item;
        if matches!(item, Item::Dns { .. }) {
            self.dns_refused = Some(error);
        } else if matches!(item, Item::Guard(_)) && error.is_of_packet_filter() {
            self.unguarded = Some(error);
        } else {
            if !stood {
                self.forget_refused_switch(at, &error)?;
            }
            return Err(error);
        }
        Ok(())
    }

    /// Its rules are one transaction: refused, nothing of them is there, and an entry that stayed
    /// would be a promise that nobody keeps and nobody can take back.
    fn forget_refused_switch(&mut self, at: usize, error: &Error) -> Result<(), Error> {
        let may_be_in_place = matches!(error, Error::NftSilent { .. });
        if self.entries[at].is_kill_switch() && !may_be_in_place {
            self.entries.remove(at);
            self.store()?;
        }
        Ok(())
    }

    /// Whether an item of an earlier process is left exactly as it is, if it is there: a kill
    /// switch that the plan does not speak of, and the firewall that a gateway wants. If that were
    /// replaced, the kernel would count the connections of each client from zero.
    fn stands_untouched(&self, at: usize, plan: &Plan) -> bool {
        let held = &self.entries[at];
        let is_meant = plan.kill_switch.is_some();
        let mut is_counting = false;
        if let Item::Gateway(gate) = &held.entry.item {
            is_counting = held.tried && nft::has_gateway(gate);
        }
        !self.rebooted && (!is_meant && held.is_kill_switch() || is_counting)
    }

    /// Configuration of other programs that keeps the plan from working. This is routing that
    /// bypasses the tunnel and, if this host forwards, packet filters that drop forwarded packets.
    ///
    /// # Errors
    /// [`Error::Os`], or nft's errors, where the host cannot be looked at.
    pub fn obstacles(&self) -> Result<Vec<Obstacle>, Error> {
        obstacle::of(&self.items())
    }

    /// Whether the guard or the kill switch keeps packets of this host to `address` off `link`.
    /// Limit: single connections and ports are not looked at.
    pub fn blocks(&self, address: IpAddr, link: &str) -> bool {
        obstacle::blocks(&self.items(), address, link)
    }

    /// Makes the change of the entry `at`. The first `count` entries are those of the plan.
    fn install(&mut self, netlink: &mut Netlink, at: usize, count: usize) -> Result<(), Error> {
        self.read_older(at, count);
        install(netlink, &self.entries[at].entry, &mut self.names, self.older.flows())
    }

    /// Reads the host's sockets, if the entry `at` is a guard that does not know them.
    fn read_older(&mut self, at: usize, count: usize) {
        if let Item::Guard(guard) = &self.entries[at].entry.item {
            let of_plan = self.entries[..count].iter().map(|held| &held.entry.item);
            self.older.take(guard, &of_plan.collect::<Vec<_>>());
        }
    }

    fn items(&self) -> Vec<&Item> {
        self.entries.iter().map(|held| &held.entry.item).collect()
    }

    /// Puts the kill switch of the journal in place, if it has one: at boot, before the network.
    /// Returns whether it has.
    ///
    /// # Errors
    /// [`Error::NftMissing`], [`Error::NftRefused`], [`Error::NftSilent`] or [`Error::Os`].
    pub fn stand_kill_switch(&mut self) -> Result<bool, Error> {
        for held in &self.entries {
            if let Item::KillSwitch(opening) = &held.entry.item {
                nft::install_kill_switch(opening)?;
            }
        }
        let stands = self.kill_switch_stands();
        if stands {
            // The journal is of this life of the machine from now on. Early at boot its file system
            // may be read-only; then the next process installs the kill switch once more.
            self.unwritten = self.store().err();
            self.rebooted = false;
            routing::reopen(&mut Netlink::open()?)?;
        }
        Ok(stands)
    }

    /// Whether the kernel has a kill switch, a guard or closing rules ([`close`](super::close)) of
    /// Rove, regardless of the journal.
    ///
    /// # Errors
    /// [`Error::NftRefused`], [`Error::NftSilent`] or [`Error::Os`].
    pub fn kill_switch_is_there(&self) -> Result<bool, Error> {
        if present::is_closed()? {
            return Ok(true);
        }
        for table in [super::KILL_SWITCH_TABLE, super::GUARD_TABLE] {
            let is_there = match nft::listing(&[("inet", table)], nft::Sets::Left) {
                Err(error) if error.is_of_packet_filter() => false,
                listing => listing?.is_some(),
            };
            if is_there {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether the kernel has the kill switch, or closing rules in its place.
    ///
    /// # Errors
    /// Those of `nft`, if this process cannot look, for want of privilege or of `nft`.
    pub fn kill_switch_is_seen(&self) -> Result<bool, Error> {
        let tables = [("inet", super::KILL_SWITCH_TABLE)];
        Ok(present::is_closed()? || nft::listing(&tables, nft::Sets::Left)?.is_some())
    }

    /// Whether a kill switch was applied and not removed since, by any process.
    pub fn kill_switch_stands(&self) -> bool {
        self.entries.iter().any(Held::is_kill_switch)
    }

    /// Why the last applied plan has no guard, if it should have one.
    pub fn unguarded(&self) -> Option<&Error> {
        self.unguarded.as_ref()
    }

    /// Whether a guard was installed before, which then stays as it was.
    pub fn has_guard(&self) -> bool {
        self.entries.iter().any(|held| matches!(held.entry.item, Item::Guard(_)))
    }

    /// Why the last applied plan has no IPv6 addresses, if it should have some.
    pub fn ipv6_off(&self) -> Option<&Error> {
        self.ipv6_off.as_ref()
    }

    /// How many connections from before the guard ended with it.
    pub fn ended(&self) -> usize {
        self.older.ended()
    }

    /// Why the guard answers no connections from outside, if it does not.
    pub fn unanswered(&self) -> Option<&Error> {
        self.older.unread()
    }

    /// The sockets that pass by the tunnel now. Without a guard there are none: then only routes
    /// count.
    ///
    /// # Errors
    /// [`Error::Os`] if the host's sockets cannot be listed.
    pub fn beside(&self) -> Result<Beside, Error> {
        for held in self.entries.iter().filter(|held| held.confirmed) {
            if let Item::Guard(guard) = &held.entry.item {
                return flows::beside(guard, &self.items(), self.kill_switch_stands());
            }
        }
        Ok(Beside::default())
    }

    /// Why the journal could not be written after something was taken back. The next process then
    /// takes it for something that is still in place.
    pub fn unwritten(&self) -> Option<&Error> {
        self.unwritten.as_ref()
    }

    /// Why this process cannot change or restore name servers: [`Error::ResolverEnded`] or
    /// [`Error::ResolverStopped`].
    pub fn dns_fault(&self) -> Option<Error> {
        let is_dns = |held: &Held| matches!(held.entry.item, Item::Dns { .. });
        dns::fault().filter(|_| self.entries.iter().any(is_dns))
    }

    /// Whether an earlier process left anything but a kill switch.
    pub fn has_leftovers(&self) -> bool {
        self.entries.iter().any(|held| !held.confirmed && !held.is_kill_switch())
    }

    /// Whether the firewall that `plan` wants is what an earlier gateway left, and in the kernel
    /// since this boot: then packets may flow before [`Applier::apply`]. The rules are counted.
    pub fn firewall_stands(&self, plan: &Plan) -> bool {
        let is_left = |item: &Item| {
            let mut left = self.entries.iter().filter(|held| !held.confirmed);
            left.any(|held| held.entry.item == *item)
        };
        let Ok((wanted, _)) = self.wanted(&fitting(plan)) else { return false };
        let stands = |item: &Item| {
            let Item::Gateway(gate) = item else { return false };
            is_left(item) && nft::has_gateway(gate)
        };
        !self.rebooted && wanted.iter().any(stands)
    }

    /// Whether the interface called `device` is a TUN of a plan, also of an earlier process's plan
    /// under another name: [`Applier::apply`] removes that one.
    pub fn holds(&self, device: &str) -> bool {
        self.entries
            .iter()
            .any(|held| matches!(&held.entry.item, Item::Device { name, .. } if name == device))
    }

    /// Why the name servers of the last plan are not set, if they are not.
    pub fn dns_refused(&self) -> Option<&Error> {
        self.dns_refused.as_ref()
    }

    /// The name servers that this host has beside the tunnel, for [`crate::names::resolve`]; none
    /// where they cannot be told, as with a resolver on this host that asks for itself.
    pub fn outside_servers(&self) -> Vec<SocketAddr> {
        let inside = self.entries.iter().find_map(|held| {
            if let Item::Dns { dns, .. } = &held.entry.item { Some(dns) } else { None }
        });
        self.names.outside(inside)
    }

    /// Networks that were reached before the last plan, and are not while it is applied.
    pub fn displaced(&self) -> &[Displaced] {
        &self.around.displaced
    }

    /// Whether `plan`, the last one, would change this host otherwise now: other programs made or
    /// removed tunnels, or serve guests.
    ///
    /// # Errors
    /// [`Error::Os`] where a sandbox forbids netlink.
    pub fn is_elsewhere(&self, plan: &Plan) -> Result<bool, Error> {
        Ok(self.surroundings(&fitting(plan), &links::snapshot()?)? != self.around)
    }

    fn surroundings(&self, plan: &Plan, links: &[Link]) -> Result<Surroundings, Error> {
        let mut around = Surroundings::of(plan, links)?;
        around.sender = sender::sender();
        let original = |key: &str| self.original(key);
        around.strict_links = sysctl::strict_links(plan, links, &around, &original);
        Ok(around)
    }

    /// The value that a setting had before Rove changed it, or has.
    fn original(&self, key: &str) -> io::Result<String> {
        let known = self.entries.iter().find_map(|held| match &held.entry {
            Entry { item: Item::Sysctl { key: known, .. }, before: Before::Sysctl(value) }
                if known == key =>
            {
                Some(value.clone())
            }
            _ => None,
        });
        known.map_or_else(|| setting::read(key), Ok)
    }

    /// The items of the plan, in order, less what this kernel cannot have, and the surroundings.
    fn wanted(&self, plan: &Plan) -> Result<(Vec<Item>, Surroundings), Error> {
        let original = |key: &str| self.original(key);
        let links = links::snapshot()?;
        let around = self.surroundings(plan, &links)?;
        let mut items = item::items(plan, &around);
        items.extend(sysctl::items(plan, &links, &around, original));
        let is_guard = |item: &&Item| matches!(item, Item::Guard(_));
        if items.iter().any(|item| is_guard(&item)) && nft::check(nft::GUARD).is_err() {
            items.retain(|item| !is_guard(&item));
            // Nobody can change one that is in place, so it stays as it is.
            let held = self.entries.iter().map(|held| &held.entry.item).find(is_guard);
            items.extend(held.filter(|_| !self.rebooted).cloned());
        }
        items.sort();
        items.dedup();
        if !setting::has_ipv6() {
            items.retain(|item| !item.is_ipv6());
        }
        if !plan.subflows.is_empty() {
            self.leave_out_foreign(&mut items)?;
        }
        Ok((items, around))
    }

    /// Leaves out of the subflows what others have put there, and all without MPTCP; the limit is
    /// never lower than it was.
    fn leave_out_foreign(&self, items: &mut Vec<Item>) -> Result<(), Error> {
        let mut manager = PathManager::open()?;
        let mut wanted = Vec::with_capacity(items.len());
        for mut item in items.drain(..) {
            let is_ours = self.entries.iter().any(|held| held.entry.item.same_place(&item));
            let is_wanted = match (&mut item, &mut manager) {
                (Item::MptcpLimit(..) | Item::Subflow(_), None) => false,
                (Item::Subflow(endpoint), Some(manager)) => {
                    is_ours || !manager.has(endpoint.address)?
                }
                (Item::MptcpLimit(which, limit), Some(manager)) => {
                    *limit = (*limit).max(manager.limit(*which)?);
                    true
                }
                _ => true,
            };
            if is_wanted {
                wanted.push(item);
            }
        }
        *items = wanted;
        Ok(())
    }

    /// The entry for `item`, with what it replaces: what was there before Rove, not before now.
    fn prepare(&mut self, item: Item) -> Result<Held, Error> {
        let old = self.entries.iter().find(|held| held.entry.item.same_place(&item));
        let confirmed = old.is_some_and(|old| old.confirmed && old.entry.item == item);
        let before = match (&item, old.map(|old| &old.entry.before)) {
            (Item::Dns { dns, .. }, Some(Before::Dns(_))) if !confirmed => {
                Before::Dns(self.names.way(dns)?)
            }
            (_, Some(before)) => before.clone(),
            (Item::Dns { dns, .. }, None) => Before::Dns(self.names.way(dns)?),
            (Item::Sysctl { key, .. }, None) => Before::Sysctl(
                setting::read(key)
                    .map_err(|error| Error::os(format!("read the setting {key}"), error))?,
            ),
            (Item::MptcpLimit(which, limit), None) => {
                let manager = PathManager::open()?;
                let before = manager.map(|mut manager| manager.limit(*which)).transpose()?;
                Before::Limit(before.unwrap_or(*limit))
            }
            (_, None) => Before::Nothing,
        };
        let contest = old.map(|old| old.contest.clone()).unwrap_or_default();
        let listing = old.filter(|_| confirmed).and_then(|old| old.listing.clone());
        let tried = old.is_some_and(|old| old.tried);
        Ok(Held { listing, contest, tried, ..Held::new(Entry { item, before }, confirmed) })
    }

    fn store(&self) -> Result<(), Error> {
        let entry = |held: &Held| {
            let Entry { item, before } = &held.entry;
            Entry { item: item.in_journal(), before: before.clone() }
        };
        let entries: Vec<Entry> = self.entries.iter().map(entry).collect();
        self.journal.store(&entries)
    }
}

/// The plan of a client as this host can have it: if IPv6 is off on the tunnel's interface and
/// cannot be turned on, its IPv6 destinations are refused, and the rest works.
fn fitting(plan: &Plan) -> Cow<'_, Plan> {
    let has_ipv6 = plan.addresses.iter().any(|net| net.addr().is_ipv6());
    if !has_ipv6 || plan.firewall.is_some() || !setting::is_ipv6_locked_off(&plan.device) {
        return Cow::Borrowed(plan);
    }
    let mut plan = plan.clone();
    plan.addresses.retain(|net| net.addr().is_ipv4());
    Cow::Owned(plan)
}

/// Whether the kernel may have accepted ICMP redirects until this entry was in place.
fn entry_took_redirects(entry: &Entry) -> bool {
    match &entry.before {
        Before::Sysctl(before) => redirects::were_taken(&entry.item, before),
        Before::Nothing | Before::Limit(_) | Before::Dns(_) => false,
    }
}
