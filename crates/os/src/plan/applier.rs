//! Making a host what a plan says, and taking it back.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
};

use super::{
    Plan,
    item::{self, Item},
    journal::{Before, Entry, Journal},
    redirects,
    routing::{self, Present},
    sysctl,
};
use crate::{
    dns,
    error::Error,
    links,
    mptcp::PathManager,
    netlink::Netlink,
    nft,
    tun::{Tun, TunOptions},
};

/// Where the host keeps what a plan changes besides the kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Places {
    /// Directory of ours, for the journal. It must exist, and be ours alone.
    pub state: PathBuf,
    /// The resolver's configuration, usually `/etc/resolv.conf`.
    pub resolv_conf: PathBuf,
    /// Whether systemd-resolved may be asked. Tests and containers say no.
    pub resolved: bool,
}

impl Places {
    /// The usual ones, with the journal in `state`.
    pub fn usual(state: &Path) -> Self {
        Self {
            state: state.to_owned(),
            resolv_conf: PathBuf::from("/etc/resolv.conf"),
            resolved: true,
        }
    }

    /// Where plans with DNS write on this host as it is now: nowhere while systemd-resolved
    /// resolves, else the directory in which the resolver's file is replaced, and the file itself
    /// where a link leads to it.
    pub fn resolver_files(&self) -> Vec<PathBuf> {
        dns::written(self)
    }
}

/// Applies plans to this host, one after the other.
///
/// Dropping it changes nothing: what is in place stays, as a restart of a gateway wants it, and
/// the next applier with the same directory takes over. What the next plan wants, too, is kept
/// without a moment's absence.
#[derive(Debug)]
pub struct Applier {
    places: Places,
    journal: Journal,
    /// Everything that may be in place, in the order in which it was put there.
    entries: Vec<Held>,
    /// The machine was started anew since the journal was written, and the rules of its kill
    /// switch, which went with the kernel, are not back yet.
    rebooted: bool,
    /// Why the name servers of the last plan are not set.
    dns_refused: Option<Error>,
}

/// An entry of the journal, and what this process knows about it.
#[derive(Clone, Debug)]
struct Held {
    entry: Entry,
    /// This process put it in place; what an earlier one left may be half there.
    confirmed: bool,
}

impl Applier {
    /// Takes over what an earlier process left, according to its journal. Nothing is changed yet:
    /// [`Applier::apply`] keeps what its plan wants, [`Applier::undo`] sweeps.
    ///
    /// # Errors
    /// [`Error::JournalDamaged`] or [`Error::Os`].
    pub fn open(places: Places) -> Result<Self, Error> {
        let journal = Journal::new(&places.state);
        let left = journal.load()?;
        let rebooted = left.rebooted;
        let held = |entry| Held { entry, confirmed: false };
        let entries = left.entries.into_iter().map(held).collect();
        Ok(Self { places, journal, entries, rebooted, dns_refused: None })
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
                self.entries.push(device);
                self.store()?;
            }
        }
        let (name, persistent) = (&*plan.device, plan.persistent);
        Tun::open(TunOptions { name, persistent, offload: true })
    }

    /// Makes the host what `plan` says: first what is missing, then what is too much. A kill
    /// switch that stands stays, also when the plan has none, and comes back after a boot.
    ///
    /// Name servers that cannot be set are no error, as a tunnel without them is worth more than
    /// none: [`Applier::dns_refused`] says why.
    ///
    /// Whether the tunnel's networks collide with local ones is a question for
    /// [`Plan::check`], which a gateway asks before its first plan.
    ///
    /// # Errors
    /// [`Error::BadPlan`] before anything is touched. Any other error leaves the host between two
    /// plans: apply again, or [`Applier::undo`]. A first kill switch that was refused does not
    /// stand then.
    pub fn apply(&mut self, plan: &Plan) -> Result<(), Error> {
        plan.check(&[])?;
        let stood = self.kill_switch_stands();
        let wanted = self.wanted(plan)?;
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
        self.store()?;
        let mut netlink = Netlink::open()?;
        let mut redirects_taken = false;
        for at in 0..keep {
            if !self.entries[at].confirmed && !self.stands_untouched(at, plan) {
                let entry = &self.entries[at].entry;
                let installed = install(&mut netlink, entry, &self.places, Present::Replace);
                if let Err(error) = installed {
                    if matches!(self.entries[at].entry.item, Item::Dns { .. }) {
                        self.dns_refused = Some(error);
                        continue;
                    }
                    if !stood {
                        self.forget_refused_switch(at, &error)?;
                    }
                    return Err(error);
                }
                redirects_taken |= entry_took_redirects(&self.entries[at].entry);
            }
            self.entries[at].confirmed = true;
        }
        if redirects_taken {
            redirects::forget(&mut netlink);
        }
        self.rebooted = false;
        self.remove_from(&mut netlink, keep)?;
        for held in self.entries.iter_mut().filter(|held| held.confirmed) {
            if let Before::Dns(saved) = &mut held.entry.before {
                saved.settle();
            }
        }
        self.store()
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

    /// A kill switch that the plan does not speak of is left exactly as it is, if it is there.
    fn stands_untouched(&self, at: usize, plan: &Plan) -> bool {
        plan.kill_switch.is_none() && self.entries[at].is_kill_switch() && !self.rebooted
    }

    /// Puts back what somebody else removed: the tunnel set up, its addresses, routes and rules,
    /// and its servers in resolv.conf, where what was written there since is the new original.
    /// Where nothing is missing nothing is changed, and no [`links::Monitor`] hears of it; so it
    /// may be called on every change of the network, and now and then.
    ///
    /// # Errors
    /// [`Error::NoInterface`] when the TUN is gone; [`Error::Os`].
    pub fn reassert(&mut self) -> Result<(), Error> {
        let mut netlink = Netlink::open()?;
        for at in 0..self.entries.len() {
            let held = &self.entries[at];
            if !held.confirmed {
                continue;
            }
            match &held.entry.item {
                Item::Device { .. }
                | Item::Address { .. }
                | Item::Route { .. }
                | Item::Rule { .. } => {
                    install(&mut netlink, &held.entry, &self.places, Present::Leave)?;
                }
                Item::Dns { .. } => self.reassert_dns(at)?,
                Item::KillSwitch(_)
                | Item::Sysctl { .. }
                | Item::MptcpLimit(..)
                | Item::Subflow(_)
                | Item::Gateway(_) => {}
            }
        }
        Ok(())
    }

    fn reassert_dns(&mut self, at: usize) -> Result<(), Error> {
        let entry = &self.entries[at].entry;
        let (Item::Dns { device, dns }, Before::Dns(saved)) = (&entry.item, &entry.before) else {
            return Ok(());
        };
        if dns::is_in_place(saved, &self.places)? {
            return Ok(());
        }
        let saved = dns::save(dns, Some(saved), &self.places)?;
        let (device, dns) = (device.clone(), dns.clone());
        self.entries[at].entry.before = Before::Dns(saved.clone());
        self.store()?;
        dns::install(&device, &dns, &saved, &self.places)
    }

    /// Takes everything back, what an earlier process left included, but for the kill switch. Goes
    /// on after a failure.
    ///
    /// # Errors
    /// The first failure. What could not be taken back stays in the journal.
    pub fn undo(&mut self) -> Result<(), Error> {
        self.entries.sort_by(|one, other| one.entry.item.cmp(&other.entry.item));
        let standing = self.entries.iter().filter(|held| held.is_kill_switch()).count();
        let mut netlink = Netlink::open()?;
        let removed = self.remove_from(&mut netlink, standing);
        self.store()?;
        removed
    }

    /// Takes the kill switch away, if one stands.
    ///
    /// # Errors
    /// [`Error::NftMissing`], [`Error::NftRefused`], [`Error::NftSilent`] or [`Error::Os`]; then
    /// it still stands.
    pub fn remove_kill_switch(&mut self) -> Result<(), Error> {
        if self.kill_switch_stands() {
            match nft::remove_kill_switch() {
                // Its rules went with the last life of the machine; none came since.
                Err(Error::NftMissing { .. }) if self.rebooted => {}
                result => result?,
            }
            self.entries.retain(|held| !held.is_kill_switch());
            self.store()?;
        }
        Ok(())
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
            // The journal is of this life of the machine from now on.
            self.store()?;
            self.rebooted = false;
        }
        Ok(stands)
    }

    /// Whether a kill switch was applied and not removed since, by any process.
    pub fn kill_switch_stands(&self) -> bool {
        self.entries.iter().any(Held::is_kill_switch)
    }

    /// Whether an earlier process left anything but a kill switch.
    pub fn has_leftovers(&self) -> bool {
        self.entries.iter().any(|held| !held.confirmed && !held.is_kill_switch())
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
        let entry =
            self.entries.iter().find_map(|held| match (&held.entry.item, &held.entry.before) {
                (Item::Dns { dns, .. }, Before::Dns(saved)) => Some((dns, saved)),
                _ => None,
            });
        dns::outside_servers(entry, &self.places)
    }

    /// The items of the plan, in order, less what this kernel cannot have.
    fn wanted(&self, plan: &Plan) -> Result<Vec<Item>, Error> {
        let original = |key: &str| {
            let known = self.entries.iter().find_map(|held| match &held.entry {
                Entry { item: Item::Sysctl { key: known, .. }, before: Before::Sysctl(value) }
                    if known == key =>
                {
                    Some(value.clone())
                }
                _ => None,
            });
            known.map_or_else(|| sysctl::read(key), Ok)
        };
        let mut items = item::items(plan);
        items.extend(sysctl::items(plan, &links::snapshot()?, original));
        items.sort();
        items.dedup();
        if !sysctl::has_ipv6() {
            items.retain(|item| !item.is_ipv6());
        }
        if !plan.subflows.is_empty() {
            self.leave_out_foreign(&mut items)?;
        }
        Ok(items)
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
    fn prepare(&self, item: Item) -> Result<Held, Error> {
        let old = self.entries.iter().find(|held| held.entry.item.same_place(&item));
        let confirmed = old.is_some_and(|old| old.confirmed && old.entry.item == item);
        let before = match (&item, old.map(|old| &old.entry.before)) {
            (Item::Dns { dns, .. }, Some(Before::Dns(saved))) if !confirmed => {
                Before::Dns(dns::save(dns, Some(saved), &self.places)?)
            }
            (_, Some(before)) => before.clone(),
            (Item::Dns { dns, .. }, None) => Before::Dns(dns::save(dns, None, &self.places)?),
            (Item::Sysctl { key, .. }, None) => Before::Sysctl(
                sysctl::read(key)
                    .map_err(|error| Error::os(format!("read the setting {key}"), error))?,
            ),
            (Item::MptcpLimit(which, limit), None) => {
                let manager = PathManager::open()?;
                let before = manager.map(|mut manager| manager.limit(*which)).transpose()?;
                Before::Limit(before.unwrap_or(*limit))
            }
            (_, None) => Before::Nothing,
        };
        Ok(Held { entry: Entry { item, before }, confirmed })
    }

    /// Removes the entries from `keep` on, the last first; those that resist stay.
    fn remove_from(&mut self, netlink: &mut Netlink, keep: usize) -> Result<(), Error> {
        let mut result = Ok(());
        for at in (keep..self.entries.len()).rev() {
            match remove(netlink, &self.entries[at].entry, &self.places) {
                Ok(()) => drop(self.entries.remove(at)),
                Err(error) => result = result.and(Err(error)),
            }
        }
        result
    }

    fn store(&self) -> Result<(), Error> {
        let entries: Vec<Entry> = self.entries.iter().map(|held| held.entry.clone()).collect();
        self.journal.store(&entries)
    }
}

impl Held {
    fn is_kill_switch(&self) -> bool {
        matches!(self.entry.item, Item::KillSwitch(_))
    }
}

/// Whether redirects may have been taken until this entry was in place.
fn entry_took_redirects(entry: &Entry) -> bool {
    match &entry.before {
        Before::Sysctl(before) => redirects::were_taken(&entry.item, before),
        Before::Nothing | Before::Limit(_) | Before::Dns(_) => false,
    }
}

fn install(
    netlink: &mut Netlink,
    entry: &Entry,
    places: &Places,
    present: Present,
) -> Result<(), Error> {
    match &entry.item {
        Item::KillSwitch(opening) => nft::install_kill_switch(opening),
        Item::Device { name, mtu, persistent: _ } => routing::set_up(netlink, name, *mtu),
        Item::Sysctl { key, value } => sysctl::write(key, value),
        Item::Address { device, net } => routing::add_address(netlink, device, *net),
        Item::Route { net, target } => routing::add_route(netlink, *net, target, present),
        Item::MptcpLimit(which, limit) => {
            with_subflows(|manager| manager.set_limit(*which, *limit))
        }
        // A link that has gone since comes with the next plan, or not at all.
        Item::Subflow(endpoint) => match routing::index_of(&endpoint.link) {
            Ok(index) => with_subflows(|manager| manager.add(endpoint, index)),
            Err(Error::NoInterface { .. }) => Ok(()),
            Err(error) => Err(error),
        },
        Item::Gateway(gate) => nft::install_gateway(gate),
        Item::Rule { v6, kind } => routing::add_rule(netlink, *v6, *kind),
        Item::Dns { device, dns } => match &entry.before {
            Before::Dns(saved) => dns::install(device, dns, saved, places),
            Before::Nothing | Before::Sysctl(_) | Before::Limit(_) => Ok(()),
        },
    }
}

/// What is asked of MPTCP's path manager, where the kernel has one.
fn with_subflows(ask: impl FnOnce(&mut PathManager) -> Result<(), Error>) -> Result<(), Error> {
    PathManager::open()?.as_mut().map_or(Ok(()), ask)
}

fn remove(netlink: &mut Netlink, entry: &Entry, places: &Places) -> Result<(), Error> {
    match (&entry.item, &entry.before) {
        (Item::KillSwitch(_), _) => nft::remove_kill_switch(),
        (Item::Device { name, persistent: true, .. }, _) => routing::remove_device(netlink, name),
        // It goes with the process that holds it.
        (Item::Device { .. }, _) => Ok(()),
        (Item::Sysctl { key, value }, Before::Sysctl(before)) => {
            // Restored only where nobody else has set it since.
            match sysctl::read(key) {
                Ok(now) if now == *value => sysctl::write(key, before),
                Ok(_) | Err(_) => Ok(()),
            }
        }
        (Item::Address { device, net }, _) => routing::remove_address(netlink, device, *net),
        (Item::Route { net, .. }, _) => routing::remove_route(netlink, *net),
        (Item::Subflow(endpoint), _) => with_subflows(|manager| manager.remove(endpoint.address)),
        // Restored only where nobody else has set it since.
        (Item::MptcpLimit(which, limit), Before::Limit(before)) => with_subflows(|manager| {
            let is_ours = manager.limit(*which)? == *limit;
            if is_ours { manager.set_limit(*which, *before) } else { Ok(()) }
        }),
        (Item::Gateway(_), _) => nft::remove_gateway(),
        (Item::Rule { v6, kind }, _) => routing::remove_rule(netlink, *v6, *kind),
        (Item::Dns { device, .. }, Before::Dns(saved)) => dns::remove(device, saved, places),
        (Item::Sysctl { .. } | Item::MptcpLimit(..) | Item::Dns { .. }, _) => Ok(()),
    }
}
