//! Addresses that the tunnel had: no packet leaves this host with one of them.
//!
//! The guard sees to that while it stands. Behind it, and without `nft`, a routing rule makes every
//! destination outside the tunnel unreachable from the address. Once the address is gone, IPv4
//! needs no rule: the kernel finds no route for a source address that no interface has
//! (`ip_route_output_key_hash_rcu` in net/ipv4/route.c). For IPv6 it does not look at the source
//! address of an open socket.
//!
//! The rules are in no journal, because they outlive a plan. They are found by their priority, and
//! are removed when the tunnel has the address again, or no socket has it. Limits: sockets for
//! protocols other than TCP and UDP are not looked for, so they do not keep a rule. Packets whose
//! header a program writes itself (`CAP_NET_RAW`) may have any address.

use std::net::IpAddr;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::{
    RouteNetlinkMessage,
    rule::{RuleAction, RuleAttribute, RuleMessage},
};

use super::{RULE_PRIORITY_FORMER, present, routing};
use crate::{
    error::Error,
    netlink::{Netlink, family, sockets},
};

/// Makes every destination outside the tunnel unreachable from this address.
pub(super) fn block(netlink: &mut Netlink, address: IpAddr) -> Result<(), Error> {
    let mut message = rule(address);
    message.header.action = RuleAction::Unreachable;
    netlink
        .change(RouteNetlinkMessage::NewRule(message), NLM_F_CREATE | NLM_F_EXCL)
        .or_else(routing::unless_present)
        // Without IPv6, none is sent.
        .or_else(routing::unless_absent)
        .map_err(|error| Error::os("block the tunnel's former address", error))
}

/// What becomes of the connections of a former address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Connections {
    /// They go on when the address returns.
    Wait,
    /// They end, so that programs notice at once and connect again.
    End,
}

/// Ends connections of `former` addresses, and removes the rules that nobody needs any more.
/// `present` are those that the tunnel has. Returns how many sockets keep a rule.
pub(super) fn settle(
    netlink: &mut Netlink,
    former: &[IpAddr],
    present: &[IpAddr],
    connections: Connections,
) -> Result<usize, Error> {
    let (returned, blocked): (Vec<_>, Vec<_>) =
        blocked(netlink)?.into_iter().partition(|address| present.contains(address));
    let mut all = [former, &blocked].concat();
    all.retain(|address| !present.contains(address));
    if connections == Connections::End && !all.is_empty() {
        sockets::end(&all)?;
    }
    let (v6, v4): (Vec<_>, Vec<_>) = blocked.into_iter().partition(IpAddr::is_ipv6);
    let senders = if v6.is_empty() { Vec::new() } else { sockets::senders(&v6)? };
    let unused = v6.iter().filter(|address| !senders.contains(address));
    let obsolete = returned.iter().chain(&v4).chain(unused);
    obsolete.copied().try_for_each(|address| unblock(netlink, address))?;
    Ok(senders.len())
}

fn unblock(netlink: &mut Netlink, address: IpAddr) -> Result<(), Error> {
    netlink
        .change(RouteNetlinkMessage::DelRule(rule(address)), 0)
        .or_else(routing::unless_absent)
        .map_err(|error| Error::os("remove the rule for the tunnel's former address", error))
}

/// The addresses with a rule.
fn blocked(netlink: &mut Netlink) -> Result<Vec<IpAddr>, Error> {
    let mut rules = Vec::new();
    for v6 in [false, true] {
        let of_family = present::unless_unknown(present::rules(netlink, v6));
        rules.extend(of_family.map_err(|error| Error::os("read the kernel's rules", error))?);
    }
    let of_former = |rule: RuleMessage| {
        let source = |attribute: &RuleAttribute| {
            if let RuleAttribute::Source(address) = attribute { Some(*address) } else { None }
        };
        is_of_former(&rule).then(|| rule.attributes.iter().find_map(source)).flatten()
    };
    Ok(rules.into_iter().filter_map(of_former).collect())
}

/// Whether a rule blocks a former address.
pub(super) fn is_of_former(rule: &RuleMessage) -> bool {
    rule.attributes.contains(&routing::originator())
        && rule.attributes.contains(&RuleAttribute::Priority(RULE_PRIORITY_FORMER))
}

/// What names the rule of an address.
fn rule(address: IpAddr) -> RuleMessage {
    let mut message = RuleMessage::default();
    message.header.family = family(address.is_ipv6());
    message.header.src_len = if address.is_ipv6() { 128 } else { 32 };
    message.attributes.push(routing::originator());
    message.attributes.push(RuleAttribute::Priority(RULE_PRIORITY_FORMER));
    message.attributes.push(RuleAttribute::Source(address));
    message
}
