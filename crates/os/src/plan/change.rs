//! How each change of a plan is applied and undone.
//!
//! One match arm for each kind of item, and no decisions: [`super::Applier`] decides which change
//! is applied when.

use super::{
    Flows, excluded,
    item::Item,
    journal::{Before, Entry},
    routing, setting,
};
use crate::{dns::NameServers, error::Error, mptcp::PathManager, netlink::Netlink, nft};

/// Makes the change. `flows` are those from before the guard.
pub(super) fn install(
    netlink: &mut Netlink,
    entry: &Entry,
    names: &mut NameServers,
    flows: Option<&Flows>,
) -> Result<(), Error> {
    match &entry.item {
        Item::KillSwitch(opening) => nft::install_kill_switch(opening),
        Item::Guard(guard) => nft::install_guard(guard, flows),
        Item::Device { name, mtu, persistent: _ } => routing::set_up(netlink, name, *mtu),
        Item::Sysctl { key, value } => setting::write(key, value),
        Item::Address { device, net } => routing::add_address(netlink, device, *net),
        Item::Route { net, target } => routing::add_route(netlink, *net, target),
        Item::Excluded { v6, nets } => excluded::install(netlink, *v6, nets),
        Item::MptcpLimit(which, limit) => {
            with_subflows(|manager| manager.set_limit(*which, *limit))
        }
        // If the link is gone, the next plan adds the subflow when the link returns.
        Item::Subflow(endpoint) => match routing::index_of(&endpoint.link) {
            Ok(index) => with_subflows(|manager| manager.add(endpoint, index)),
            Err(Error::NoInterface { .. }) => Ok(()),
            Err(error) => Err(error),
        },
        Item::Gateway(gate) => nft::install_gateway(gate),
        Item::Rule { v6, kind } => routing::add_rule(netlink, *v6, *kind),
        Item::Dns { device, dns } => match &entry.before {
            Before::Dns(way) => names.install(device, dns, *way),
            Before::Nothing | Before::Sysctl(_) | Before::Limit(_) => Ok(()),
        },
    }
}

/// Runs a request to MPTCP's path manager; `None` if the kernel has none.
pub(super) fn with_manager<T>(
    ask: impl FnOnce(&mut PathManager) -> Result<T, Error>,
) -> Result<Option<T>, Error> {
    PathManager::open()?.as_mut().map(ask).transpose()
}

fn with_subflows(ask: impl FnOnce(&mut PathManager) -> Result<(), Error>) -> Result<(), Error> {
    with_manager(ask).map(|_| ())
}

/// Undoes the change, but no value that somebody else changed since.
pub(super) fn remove(
    netlink: &mut Netlink,
    entry: &Entry,
    names: &mut NameServers,
) -> Result<(), Error> {
    match (&entry.item, &entry.before) {
        (Item::KillSwitch(_), _) => nft::remove_kill_switch(),
        (Item::Guard(_), _) => nft::remove_guard(),
        (Item::Device { name, persistent: true, .. }, _) => routing::remove_device(netlink, name),
        // The interface disappears with the process that holds it.
        (Item::Device { .. }, _) => Ok(()),
        (Item::Sysctl { key, value }, Before::Sysctl(before)) => {
            // Restored only if nobody else has set it since.
            match setting::read(key) {
                Ok(now) if now == *value => setting::write(key, before),
                Ok(_) | Err(_) => Ok(()),
            }
        }
        (Item::Address { device, net }, _) => routing::remove_address(netlink, device, *net),
        (Item::Route { net, target }, _) => routing::remove_route(netlink, *net, target),
        (Item::Excluded { v6, .. }, _) => excluded::remove(netlink, *v6),
        (Item::Subflow(endpoint), _) => with_subflows(|manager| manager.remove(endpoint.address)),
        // Restored only if nobody else has set it since.
        (Item::MptcpLimit(which, limit), Before::Limit(before)) => with_subflows(|manager| {
            let is_ours = manager.limit(*which)? == *limit;
            if is_ours { manager.set_limit(*which, *before) } else { Ok(()) }
        }),
        (Item::Gateway(_), _) => nft::remove_gateway(),
        (Item::Rule { v6, kind }, _) => routing::remove_rule(netlink, *v6, *kind),
        (Item::Dns { device, .. }, Before::Dns(way)) => names.remove(device, *way),
        (Item::Sysctl { .. } | Item::MptcpLimit(..) | Item::Dns { .. }, _) => Ok(()),
    }
}
