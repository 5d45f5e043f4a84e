//! Networks past the tunnel: a plan's `exclude`, up to all prefixes of a country.
//!
//! Decides which networks get a route past the tunnel, makes and removes these routes in batches,
//! and spells the list in the journal. Routes of one family are one item of a plan: an item for
//! each would be compared with every other.
//!
//! Limits: a route past the tunnel that another program adds to Rove's table stays until the next
//! change of the list.

use ipnet::IpNet;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage;
use serde::{Deserialize, Deserializer, Serializer};

use super::{TABLE, item::Target, present, routing};
use crate::{error::Error, netlink::Netlink};

/// The excluded networks without those that others contain, and with neighbours made one. Inside a
/// destination of the tunnel nothing is left out: there, the longer prefix decides. Neighbours do
/// not become such a destination, whose own route would have the same place.
pub(super) fn merged(exclude: &[IpNet], routes: &[IpNet]) -> Vec<IpNet> {
    let exclude: Vec<IpNet> = exclude.iter().map(IpNet::trunc).collect();
    let mut nets = IpNet::aggregate(&exclude);
    let routes: Vec<IpNet> = routes.iter().map(IpNet::trunc).collect();
    let is_held = |route: &&IpNet| nets.iter().any(|net| net.contains(*route));
    for route in routes.iter().filter(is_held).collect::<Vec<_>>() {
        nets.extend(exclude.iter().filter(|net| route.contains(*net)));
    }
    nets.retain(|net| !routes.contains(net) || exclude.contains(net));
    nets.sort();
    nets.dedup();
    nets
}

/// Makes the routes to `nets`, which are sorted, and removes others past the tunnel.
pub(super) fn install(netlink: &mut Netlink, v6: bool, nets: &[IpNet]) -> Result<(), Error> {
    let there = there(netlink, v6)?;
    let missing = nets.iter().filter(|net| there.binary_search(net).is_err());
    let missing: Vec<RouteNetlinkMessage> = missing
        .map(|net| routing::route_to(*net, &Target::Throw).map(RouteNetlinkMessage::NewRoute))
        .collect::<Result<_, _>>()?;
    netlink
        .change_all(missing, NLM_F_CREATE | NLM_F_REPLACE, Err)
        .map_err(|error| Error::os("add the routes to excluded networks", error))?;
    remove_all(netlink, there.into_iter().filter(|net| nets.binary_search(net).is_err()))
}

/// Removes all routes past the tunnel.
pub(super) fn remove(netlink: &mut Netlink, v6: bool) -> Result<(), Error> {
    let there = there(netlink, v6)?;
    remove_all(netlink, there.into_iter())
}

fn remove_all(netlink: &mut Netlink, nets: impl Iterator<Item = IpNet>) -> Result<(), Error> {
    let delete = |net| RouteNetlinkMessage::DelRoute(routing::route_past(net));
    netlink
        .change_all(nets.map(delete), 0, routing::unless_absent)
        .map_err(|error| Error::os("remove the routes to excluded networks", error))
}

/// The networks that have a route past the tunnel now, sorted.
fn there(netlink: &mut Netlink, v6: bool) -> Result<Vec<IpNet>, Error> {
    let failed = |error| Error::os("read the routes to excluded networks", error);
    netlink.dump_strictly();
    let table = present::unless_unknown(present::table(netlink, v6, TABLE)).map_err(failed)?;
    let past = table.into_iter().filter_map(present::Seen::past_tunnel);
    let mut nets: Vec<IpNet> = past.collect();
    nets.sort();
    Ok(nets)
}

/// Spells a list as one text: for thousands of networks a third of what an array takes.
pub(super) fn serialize<S: Serializer>(nets: &[IpNet], to: S) -> Result<S::Ok, S::Error> {
    let nets: Vec<String> = nets.iter().map(ToString::to_string).collect();
    to.serialize_str(&nets.join(" "))
}

/// Reads such a text, or the array of earlier versions.
pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<IpNet>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Spelt {
        Text(String),
        Array(Vec<IpNet>),
    }
    match Spelt::deserialize(from)? {
        Spelt::Array(nets) => Ok(nets),
        Spelt::Text(text) => {
            let nets = text.split_ascii_whitespace().map(str::parse);
            nets.collect::<Result<_, _>>().map_err(serde::de::Error::custom)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::merged;
    use ipnet::IpNet;

    fn nets(texts: &[&str]) -> Vec<IpNet> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn neighbours_become_one_and_what_others_contain_goes() {
        let list = nets(&["192.0.2.0/25", "192.0.2.128/25", "192.0.2.7/32", "2001:db8::/32"]);
        assert_eq!(merged(&list, &nets(&["0.0.0.0/0"])), nets(&["192.0.2.0/24", "2001:db8::/32"]));
    }

    #[test]
    fn inside_a_destination_of_the_tunnel_the_longer_prefix_still_decides() {
        let list = nets(&["10.0.0.0/8", "10.77.1.0/24"]);
        // Without the longer prefix 10.77.1.0/24 would lead into the tunnel, by its wider route.
        assert_eq!(merged(&list, &nets(&["10.77.0.0/16"])), list);
        let halves = nets(&["10.0.0.0/9", "10.128.0.0/9"]);
        assert_eq!(merged(&halves, &nets(&["10.0.0.0/8"])), halves);
        let halves = nets(&["0.0.0.0/1", "128.0.0.0/1"]);
        assert_eq!(merged(&halves, &nets(&["0.0.0.0/0"])), halves);
        let both = nets(&["10.0.0.0/8"]);
        assert_eq!(merged(&both, &both), both);
    }
}
