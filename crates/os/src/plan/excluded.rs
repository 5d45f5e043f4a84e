//! Networks past the tunnel: a plan's `exclude`, up to all prefixes of a country.
//!
//! Makes and removes their routes in batches. The list is for [`super::networks`].
//!
//! Limits: a route past the tunnel that another program adds to Rove's table stays until the next
//! change of the list.

use ipnet::IpNet;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage;

use super::{TABLE, item::Target, present, routing};
use crate::{error::Error, netlink::Netlink};

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
