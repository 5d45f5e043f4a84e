//! Removes everything in the kernel that is marked as Rove's, when no journal can be trusted.
//!
//! Routes and rules carry Rove's table and originator, and packet filters its names. Kernel
//! settings and the resolver's file carry no such mark, so they stay as they are. Rules that stop
//! all traffic stay until a kill switch is in place or is removed, and rules for former addresses
//! of the tunnel until no socket has these.

use netlink_packet_route::RouteNetlinkMessage;

use super::{
    former,
    present::{self, Seen},
    routing,
};
use crate::{error::Error, netlink::Netlink};

/// Removes every route in Rove's tables and every rule that Rove made.
pub(super) fn routing(netlink: &mut Netlink) -> Result<(), Error> {
    netlink.dump_strictly();
    let failed = |error| Error::os("remove routes and rules that an earlier process left", error);
    for v6 in [false, true] {
        for rule in present::unless_unknown(present::rules(netlink, v6)).map_err(failed)? {
            let stays = routing::is_closing(&rule) || former::is_of_former(&rule);
            if rule.attributes.contains(&routing::originator()) && !stays {
                netlink
                    .change(RouteNetlinkMessage::DelRule(rule), 0)
                    .or_else(routing::unless_absent)
                    .map_err(failed)?;
            }
        }
        let table = present::tables(netlink, v6).map_err(failed)?;
        let routes = table.into_iter().map(|seen| match seen {
            Seen::PastTunnel(net) => RouteNetlinkMessage::DelRoute(routing::route_past(net)),
            Seen::Other(route) => RouteNetlinkMessage::DelRoute(route),
        });
        netlink.change_all(routes, 0, routing::unless_absent).map_err(failed)?;
    }
    Ok(())
}
