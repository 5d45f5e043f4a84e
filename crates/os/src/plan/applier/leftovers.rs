//! What an earlier process left on this host, compared with the kernel.
//!
//! The journal alone does not tell: it cannot be written on a read-only file system, and a reboot
//! removes what the kernel had. This module changes nothing. Limit: settings of the kernel that
//! were left are not told from values that somebody else set.

use super::Applier;
use crate::{
    dns,
    error::Error,
    nft,
    plan::{
        item::{Item, RuleKind, Target},
        journal::Before,
        present::{Present, Standing},
    },
};

/// What an earlier process left on this host, but for a kill switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Leftovers {
    /// A packet filter: the guard of a client, or a gateway's firewall. `None` if this process may
    /// not look.
    pub filter: Option<bool>,
    /// A rule into Rove's table and an unreachable route there. Together they block the traffic
    /// that belongs in the tunnel.
    pub barrier: bool,
    /// Anything else, for example routes, rules or name servers.
    pub other: bool,
}

impl Applier {
    /// What an earlier process left, as far as this one sees it: the journal may name what is gone,
    /// if it could not be written.
    ///
    /// # Errors
    /// [`Error::Os`] where the host cannot be looked at.
    pub fn leftovers(&self) -> Result<Leftovers, Error> {
        let left = || self.entries.iter().filter(|held| !held.confirmed && !held.is_kill_switch());
        let present = Present::read(left().map(|held| &held.entry.item))?;
        let mut found = Leftovers { filter: Some(false), barrier: false, other: false };
        let (mut leads, mut ends) = (false, false);
        for held in left() {
            match (&held.entry.item, &held.entry.before) {
                // Not told from values that somebody else set.
                (Item::Sysctl { .. } | Item::MptcpLimit(..) | Item::Subflow(_), _) => {}
                (Item::Dns { dns, .. }, Before::Dns(way)) => {
                    found.other |= *way == dns::Way::Resolved
                        || self.names.is_in_place(dns, *way).unwrap_or(true);
                }
                (item, _) if !item.filter_tables().is_empty() => {
                    let listing = nft::listing(item.filter_tables(), nft::Sets::Left);
                    let is_there = listing.ok().map(|listing| listing.is_some());
                    found.filter = found.filter.zip(is_there).map(|(one, other)| one || other);
                }
                (item, _) => {
                    let is_there = present.standing(item) != Standing::Missing;
                    found.other |= is_there;
                    let is_rule = matches!(item, Item::Rule { kind: RuleKind::Tunnel, .. });
                    leads |= is_there && is_rule;
                    let is_end = matches!(item, Item::Route { target: Target::Barrier, .. });
                    ends |= is_there && is_end;
                }
            }
        }
        found.barrier = leads && ends;
        Ok(found)
    }
}
