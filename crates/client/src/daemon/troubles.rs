//! Faults beside a working tunnel: name servers that are not asked, hosts of other networks that
//! cannot be reached, a packet filter that is missing.
//!
//! It decides which faults there are and how a person reads them. Others mend a fault, and decide
//! when it is logged.

use ipnet::IpNet;
use rove_host::problems::Finding;
use rove_os::error::Error;
use rove_os::plan::Applier;
use rove_proto::wire::control::Lease;

use super::link_order::LinkOrder;
use super::{hidden, lease};
use crate::config::Config;
use crate::families;

/// The part of the node, and a line for people.
pub(super) type Trouble = (&'static str, String);

/// The faults, one line each: names, hosts of other networks, the packet filter. `reachable` are
/// the private networks that the gateway leads to.
pub(super) fn find(
    config: &Config,
    lease: &Lease,
    reachable: &[IpNet],
    applier: &Applier,
    links: &LinkOrder,
) -> Vec<Trouble> {
    let outside = applier.outside_servers();
    let names = lease::no_names(config, lease, &outside, applier.dns_refused());
    let unreached = hidden::told(config, lease, reachable, links.all()).into_iter();
    let unreached = unreached.chain(hidden::displaced(applier.displaced()));
    let has_guard = applier.has_guard();
    let unguarded = applier.unguarded().map(|why| lease::unguarded(why, has_guard));
    let ipv6_off = applier.ipv6_off().map(|why| format!("no IPv6 in the tunnel: {why}"));
    let unanswered = applier.unanswered().map(lease::unanswered);
    let of = |part| move |line| (part, line);
    let found = names.into_iter().map(of("dns"));
    let found = found.chain(unreached.map(of("routing")));
    let found = found.chain(unguarded.map(of("filter"))).chain(ipv6_off.map(of("interface")));
    found.chain(unanswered.map(of("filter"))).collect()
}

/// The address families that should use the tunnel and cannot, a line each. This is no fault: the
/// gateway was set up so.
pub(super) fn not_carried(
    config: &Config,
    lease: Option<&Lease>,
    links: &LinkOrder,
) -> Vec<String> {
    lease.map_or_else(Vec::new, |it| families::not_carried(config, it, links.all()))
}

/// Name servers that this process cannot change or restore, for people.
pub(super) fn stuck_resolver(applier: &Applier) -> Option<Finding> {
    let fault = applier.dns_fault()?;
    if let Error::ResolverStopped { process } = fault {
        return Some(Finding {
            part: "dns",
            what: format!("the process rove-resolver (process {process}) is stopped"),
            cause: "a person or a program stopped it, so Rove cannot repair or restore name \
                    servers"
                .to_owned(),
            cure: format!("let it go on with `kill -CONT {process}`"),
        });
    }
    Some(Finding {
        part: "dns",
        what: "the process rove-resolver has ended".to_owned(),
        cause: "it was killed, by a person or for want of memory; Rove gave up the rights to \
                start it again, so it cannot repair or restore name servers"
            .to_owned(),
        cure: "as root run `rove down`, which restores the name servers, then `rove up`".to_owned(),
    })
}
