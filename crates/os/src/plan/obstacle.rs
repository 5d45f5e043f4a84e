//! Configuration of other programs that keeps a plan from working, although all of its items are in
//! place.
//!
//! This module changes nothing: rules and filters of other programs are theirs to keep or remove.
//! Limits: it sees only nftables, which includes iptables-nft. A chain with a drop policy counts as
//! an obstacle unless its table names the tunnel's interface.

use std::{collections::BTreeSet, net::IpAddr};

use ipnet::IpNet;
use serde_json::Value;

use super::{
    FILTER_TABLE_PREFIX,
    item::{Item, Opening, Target},
    present::{ForeignRule, MarkRule, Present, Users, own_user, way_out},
};
use crate::{error::Error, links, netlink::Netlink, nft};

/// Documentation addresses (RFC 5737, RFC 3849) that stand for the whole Internet: no host has a
/// specific route to all of them.
const ANY_V4: [[u8; 4]; 3] = [[203, 0, 113, 1], [198, 51, 100, 1], [192, 0, 2, 1]];
const ANY_V6: [[u16; 8]; 2] =
    [[0x2001, 0xdb8, 0, 0, 0, 0, 0, 1], [0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, 1]];
/// Destinations of other programs' rules that are looked at. More on one host add no information.
const SINGLED_OUT_MAX: usize = 64;
/// Ranges of users in other programs' rules that are looked at.
const USERS_MAX: usize = 8;

/// Configuration of another program that is in the way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Obstacle {
    /// Packets to networks of the tunnel would leave on another link.
    Bypass {
        /// The networks, of one family.
        to: Vec<IpNet>,
        /// The link's name.
        link: String,
        /// Other programs' rules that precede the tunnel's and may lead there.
        rules: Vec<ForeignRule>,
        /// A packet filter of the plan blocks these packets.
        is_blocked: bool,
        /// Only packets of these users; `None` for all.
        users: Option<Users>,
    },
    /// A rule of another program refuses packets to networks of the tunnel.
    Refusal {
        /// The networks, of one family.
        to: Vec<IpNet>,
        /// The rule's priority.
        priority: u32,
        /// Its action: `blackhole`, `unreachable` or `prohibit`.
        action: &'static str,
    },
    /// Marked packets would leave on another link, and a packet filter of the plan refused them in
    /// the last minutes.
    Marked {
        /// Other programs' rules that precede the tunnel's and are for their marks.
        rules: Vec<MarkRule>,
        /// How many packets with any mark the filter has refused since it was set.
        packets: u64,
    },
    /// A packet filter drops forwarded packets by default, and does not know the tunnel.
    Forward {
        /// Its family, table and chain: `ip filter FORWARD`.
        chain: String,
        /// Whether its table looks at the state of connections, so that it may accept replies.
        is_stateful: bool,
    },
    /// The kernel cannot limit how many connections a client of this gateway has.
    NoShares,
}

/// The obstacles that keep `items` from working, although they are in place.
pub(super) fn of(items: &[&Item]) -> Result<Vec<Obstacle>, Error> {
    let present = Present::read(items.iter().copied())?;
    let mut found = bypasses(items, &present)?;
    found.extend(marked(items, &present)?);
    let forwards = items
        .iter()
        .any(|item| matches!(item, Item::Sysctl { key, .. } if key.ends_with("/forwarding")));
    let device = items.iter().find(|item| matches!(item, Item::Device { .. }));
    if let Some(device) = device.and_then(|item| item.device()).filter(|_| forwards) {
        match nft::ruleset() {
            // Without nft, assume that there is no nftables filter in the way.
            Err(error) if error.is_without_nft() => {}
            ruleset => {
                let ruleset = ruleset?;
                found.extend(drops_forwarded(&ruleset, device));
                found.extend(lacks_shares(items, &ruleset).then_some(Obstacle::NoShares));
            }
        }
    }
    Ok(found)
}

/// Whether a packet filter of `items` keeps packets of this host to `address` off `link`.
pub(super) fn blocks(items: &[&Item], address: IpAddr, link: &str) -> bool {
    items.iter().any(|item| {
        let is_shut = |opening| passes(opening, address, link).is_none();
        // Of networks in one another the smallest counts.
        let is_inside = |routes: &[IpNet], opening| {
            longest(routes.iter(), address) > passes(opening, address, link)
        };
        matches!(item, Item::KillSwitch(opening) if is_shut(opening))
            || matches!(item, Item::Guard(guard) if is_inside(&guard.routes, &guard.opening))
    })
}

/// The prefix length of the smallest network with `address` that the filter opens on `link`.
fn passes(opening: &Opening, address: IpAddr, link: &str) -> Option<u8> {
    if opening.device == link || opening.own_links.iter().any(|own| own == link) {
        return Some(u8::MAX);
    }
    let lan = opening.lan.iter().filter(|_| opening.allow_lan);
    let near = lan.chain(&opening.tunnels).filter(|near| near.link == link).map(|near| &near.net);
    let group = (opening.allow_lan && address.is_multicast()).then_some(u8::MAX);
    group.or_else(|| longest(opening.destinations.iter().chain(near), address))
}

fn longest<'a>(nets: impl Iterator<Item = &'a IpNet>, address: IpAddr) -> Option<u8> {
    nets.filter(|net| net.contains(&address)).map(IpNet::prefix_len).max()
}

/// The networks of the tunnel whose packets would leave on another link: those of this process, and
/// those of users for whom other programs have rules.
fn bypasses(items: &[&Item], present: &Present) -> Result<Vec<Obstacle>, Error> {
    let mut found = bypasses_of(items, present, None)?;
    for users in present.users().into_values().take(USERS_MAX) {
        for obstacle in bypasses_of(items, present, Some(users))? {
            // What holds for every user is said once.
            let is_known = found.iter().any(|known| known.is_same(&obstacle));
            found.extend((!is_known).then_some(obstacle));
        }
    }
    Ok(found)
}

/// Marked packets that a filter of `items` refused lately, if another program's rule for their mark
/// led them past the tunnel. Without such a rule nft is not asked.
fn marked(items: &[&Item], present: &Present) -> Result<Option<Obstacle>, Error> {
    let rules = present.rules_for_marks();
    let filters = items.iter().filter(|it| matches!(it, Item::Guard(_) | Item::KillSwitch(_)));
    let tables = filters.filter_map(|item| item.filter_tables().first());
    let (mut marks, mut packets) = (BTreeSet::new(), 0u64);
    for &(_, table) in tables.filter(|_| !rules.is_empty()) {
        match nft::refused_marks(table) {
            Err(error) if error.is_without_nft() => {}
            found => {
                let nft::Marked { marks: of_table, packets: count } = found?;
                marks.extend(of_table);
                packets = packets.saturating_add(count);
            }
        }
    }
    let is_used = |rule: &MarkRule| marks.iter().any(|mark| rule.fits(*mark));
    let rules: Vec<MarkRule> = rules.into_iter().filter(is_used).collect();
    Ok((!rules.is_empty()).then_some(Obstacle::Marked { rules, packets }))
}

fn bypasses_of(
    items: &[&Item],
    present: &Present,
    users: Option<Users>,
) -> Result<Vec<Obstacle>, Error> {
    let user = users.map_or_else(own_user, |users| users.first);
    let links = links::snapshot()?;
    let mut netlink = Netlink::open()?;
    let is_blocked = items.iter().any(|item| matches!(item, Item::Guard(_) | Item::KillSwitch(_)));
    let mut found = Vec::new();
    for item in items {
        let Item::Route { net, target: Target::Device(device) } = item else { continue };
        // A rule for a part of the network catches no address of the rest.
        let parts = present.singled_out(net);
        let rest = (*net, representative(net, &parts));
        let parts = parts.iter().take(SINGLED_OUT_MAX);
        let parts = parts.map(|part| (*part, representative(part, &BTreeSet::new())));
        for (net, address) in parts.chain([rest]) {
            if items.iter().any(|item| is_exception(item, address)) {
                continue;
            }
            let way = way_out(&mut netlink, address, user);
            let way =
                way.map_err(|error| Error::os(format!("ask for the route to {net}"), error))?;
            let Some((index, table)) = way else {
                // A route that refuses is an exception of the plan, or somebody's wish.
                if let Some((priority, action)) = present.refused_by(address, user) {
                    note_refusal(&mut found, net, priority, action);
                }
                continue;
            };
            let link = links.iter().find(|link| link.index == index);
            if let Some(link) = link.filter(|link| link.name != *device) {
                let (link, rules) = (link.name.clone(), present.rules_before(address, table, user));
                let to = vec![net];
                note(&mut found, Obstacle::Bypass { to, link, rules, is_blocked, users });
            }
        }
    }
    Ok(found)
}

impl Obstacle {
    /// Whether both are about the same packets, but for their users.
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::Bypass { to, link, rules, .. },
                Self::Bypass { to: other_to, link: other_link, rules: other_rules, .. },
            ) => (to, link, rules) == (other_to, other_link, other_rules),
            (one, other) => one == other,
        }
    }
}

/// Adds a bypass to the one by the same link and the same rules, or as a new one.
fn note(found: &mut Vec<Obstacle>, new: Obstacle) {
    let Obstacle::Bypass { to: nets, link, rules, .. } = &new else { return };
    let same = found.iter_mut().find_map(|known| match known {
        Obstacle::Bypass { to, link: by, rules: of, .. } if by == link && of == rules => Some(to),
        Obstacle::Bypass { .. }
        | Obstacle::Refusal { .. }
        | Obstacle::Marked { .. }
        | Obstacle::Forward { .. }
        | Obstacle::NoShares => None,
    });
    match same {
        Some(to) => nets.iter().for_each(|net| add(to, *net)),
        None => found.push(new),
    }
}

/// The same for packets that a rule refuses.
fn note_refusal(found: &mut Vec<Obstacle>, net: IpNet, priority: u32, action: &'static str) {
    let same = found.iter_mut().find_map(|known| match known {
        Obstacle::Refusal { to, priority: of, .. } if *of == priority => Some(to),
        Obstacle::Bypass { .. }
        | Obstacle::Refusal { .. }
        | Obstacle::Marked { .. }
        | Obstacle::Forward { .. }
        | Obstacle::NoShares => None,
    });
    match same.filter(|to| to.iter().all(|known| known.addr().is_ipv6() == net.addr().is_ipv6())) {
        Some(to) => add(to, net),
        None => found.push(Obstacle::Refusal { to: vec![net], priority, action }),
    }
}

/// Adds a network to a list, in which none contains another.
fn add(to: &mut Vec<IpNet>, net: IpNet) {
    if !to.iter().any(|known| known.contains(&net)) {
        to.retain(|known| !net.contains(known));
        to.push(net);
    }
}

/// An address that represents a network without these `parts` of it, as far as there is one.
fn representative(net: &IpNet, parts: &BTreeSet<IpNet>) -> IpAddr {
    let any: Vec<IpAddr> = match (net, net.prefix_len()) {
        (IpNet::V4(_), 0) => ANY_V4.map(IpAddr::from).to_vec(),
        (IpNet::V6(_), 0) => ANY_V6.map(IpAddr::from).to_vec(),
        _ => {
            let first = net.hosts().next().unwrap_or_else(|| net.addr());
            vec![first, net.broadcast()]
        }
    };
    let is_in_part = |address: &IpAddr| parts.iter().any(|part| part.contains(address));
    let outside = any.iter().find(|address| !is_in_part(address));
    outside.or_else(|| any.first()).copied().unwrap_or_else(|| net.addr())
}

/// Whether the plan itself routes the address outside the tunnel.
fn is_exception(item: &Item, address: IpAddr) -> bool {
    matches!(item, Item::Excluded { nets, .. } if nets.iter().any(|net| net.contains(&address)))
}

/// Chains of other programs that drop packets which a gateway forwards between `device` and other
/// interfaces.
fn drops_forwarded(ruleset: &Value, device: &str) -> Vec<Obstacle> {
    let entries = ruleset.get("nftables").and_then(Value::as_array).map(Vec::as_slice);
    let entries = entries.unwrap_or_default();
    let text = |value: &Value, key: &str| {
        value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let place = |value: &Value| (text(value, "family"), text(value, "table"));
    let rules = |table: (String, String)| {
        let rules = entries.iter().filter_map(|entry| entry.get("rule"));
        rules.filter(move |rule| place(rule) == table)
    };
    let knows_device = |table| rules(table).any(|rule| mentions(rule, device));
    // Statements of iptables are not always translated.
    let looks_at_state = |rule: &Value| nft::has_key(rule, &|key| key == "ct" || key == "xt");
    let chains = entries.iter().filter_map(|entry| entry.get("chain"));
    let dropping = chains.filter(|chain| {
        text(chain, "type") == "filter"
            && text(chain, "hook") == "forward"
            && text(chain, "policy") == "drop"
            && matches!(&*text(chain, "family"), "ip" | "ip6" | "inet")
            && !text(chain, "table").starts_with(FILTER_TABLE_PREFIX)
            && !knows_device(place(chain))
    });
    let named = dropping.map(|chain| {
        let (family, table) = place(chain);
        let chain = format!("{family} {table} {}", text(chain, "name"));
        Obstacle::Forward { chain, is_stateful: rules((family, table)).any(looks_at_state) }
    });
    named.collect()
}

/// Whether a gateway's firewall should limit connections and does not: see
/// [`nft::install_gateway`].
fn lacks_shares(items: &[&Item], ruleset: &Value) -> bool {
    let wanted = |item: &&Item| matches!(item, Item::Gateway(gate) if gate.share.is_some());
    items.iter().any(wanted) && !nft::has_key(ruleset, &|key| key == "ct count")
}

fn mentions(value: &Value, word: &str) -> bool {
    match value {
        Value::String(text) => text == word,
        Value::Array(values) => values.iter().any(|value| mentions(value, word)),
        Value::Object(fields) => fields.values().any(|value| mentions(value, word)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::plan::{item::Guard, local_network::LocalNetwork};

    fn chain(table: &str, name: &str, policy: &str) -> Value {
        json!({ "chain": {
            "family": "ip", "table": table, "name": name, "type": "filter", "hook": "forward",
            "prio": 0, "policy": policy,
        } })
    }

    fn rule(table: &str, device: &str) -> Value {
        let device =
            json!({ "match": { "left": { "meta": { "key": "iifname" } }, "right": device } });
        json!({ "rule": { "family": "ip", "table": table, "chain": "FORWARD", "expr": [device] } })
    }

    #[test]
    fn only_a_foreign_chain_that_drops_and_does_not_know_the_tunnel_is_in_the_way() {
        let found = |entries: &[Value]| drops_forwarded(&json!({ "nftables": entries }), "rove0");
        let docker = chain("filter", "FORWARD", "drop");
        assert_eq!(
            found(&[docker.clone(), rule("filter", "docker0"), rule("other", "rove0")]),
            [Obstacle::Forward { chain: "ip filter FORWARD".to_owned(), is_stateful: false }]
        );
        let state = json!({ "rule": {
            "family": "ip", "table": "filter", "chain": "FORWARD",
            "expr": [{ "match": { "left": { "ct": { "key": "state" } }, "right": "established" } }],
        } });
        let stateful = found(&[docker.clone(), state]);
        assert!(matches!(&stateful[..], [Obstacle::Forward { is_stateful: true, .. }]));
        assert_eq!(found(&[docker, rule("filter", "rove0")]), []);
        assert_eq!(found(&[chain("filter", "FORWARD", "accept")]), []);
        assert_eq!(found(&[chain("rove_gateway", "forward", "drop")]), []);
        assert_eq!(drops_forwarded(&json!({ "nftables": "?" }), "rove0"), []);
    }

    #[test]
    fn what_a_filter_blocks_is_known_by_destination_and_link() {
        let nets = |nets: &[&str]| nets.iter().map(|net| net.parse().unwrap()).collect();
        let near = |link: &str, net: &str| LocalNetwork {
            link: link.to_owned(),
            net: net.parse().unwrap(),
        };
        let opening = Opening {
            device: "rove0".to_owned(),
            destinations: nets(&["203.0.113.0/24"]),
            lan: vec![near("eth0", "192.0.2.0/24")],
            own_links: vec!["docker0".to_owned()],
            ..Opening::default()
        };
        let guard = |opening: &Opening| {
            Item::Guard(Guard {
                opening: opening.clone(),
                routes: nets(&["0.0.0.0/1", "192.0.0.0/2", "203.0.113.128/25"]),
                addresses: Vec::new(),
                shared_addresses: Vec::new(),
                translated: Vec::new(),
                keep_incoming: false,
                strict_links: Vec::new(),
            })
        };
        let open = Opening { allow_lan: true, ..opening.clone() };
        let blocked =
            |item: &Item, address: &str, link| blocks(&[item], address.parse().unwrap(), link);
        for (address, link, of_guard, of_switch) in [
            ("198.51.100.80", "eth0", true, true),
            ("198.51.100.80", "rove0", false, false),
            ("198.51.100.80", "docker0", false, false),
            ("203.0.113.80", "eth0", false, false),
            ("203.0.113.180", "eth0", true, false),
            ("128.0.0.1", "eth0", false, true),
            ("2001:db8::1", "eth0", false, true),
        ] {
            assert_eq!(blocked(&guard(&opening), address, link), of_guard, "{address} {link}");
            let switch = Item::KillSwitch(opening.clone());
            assert_eq!(blocked(&switch, address, link), of_switch, "{address} {link}");
        }
        assert!(blocked(&guard(&opening), "192.0.2.9", "eth0"));
        assert!(!blocked(&guard(&open), "192.0.2.9", "eth0"));
        assert!(blocked(&guard(&open), "192.0.2.9", "wlan0"));
        assert!(!blocks(&[], "198.51.100.80".parse().unwrap(), "eth0"));
    }

    #[test]
    fn a_network_is_tried_by_an_address_of_its_own() {
        for (net, address) in [
            ("0.0.0.0/0", "203.0.113.1"),
            ("::/0", "2001:db8::1"),
            ("10.0.0.0/8", "10.0.0.1"),
            ("192.0.2.7/32", "192.0.2.7"),
        ] {
            let net: IpNet = net.parse().unwrap();
            let none = BTreeSet::new();
            assert_eq!(representative(&net, &none), address.parse::<IpAddr>().unwrap());
        }
        let all: IpNet = "0.0.0.0/0".parse().unwrap();
        let parts = BTreeSet::from(["203.0.113.0/24".parse().unwrap()]);
        let outside: IpAddr = "198.51.100.1".parse().unwrap();
        assert_eq!(representative(&all, &parts), outside, "another program's rule names that");
    }

    #[test]
    fn a_bypass_names_each_network_once() {
        let net = |text: &str| -> IpNet { text.parse().unwrap() };
        let mut found = Vec::new();
        let bypass = |part: &str| Obstacle::Bypass {
            to: vec![net(part)],
            link: "eth0".to_owned(),
            rules: Vec::new(),
            is_blocked: true,
            users: None,
        };
        for part in ["203.0.113.0/24", "198.51.100.0/24", "203.0.113.128/25"] {
            note(&mut found, bypass(part));
        }
        let [Obstacle::Bypass { to, .. }] = &*found else { panic!("{found:?}") };
        assert_eq!(*to, [net("203.0.113.0/24"), net("198.51.100.0/24")]);
        note(&mut found, bypass("0.0.0.0/0"));
        let [Obstacle::Bypass { to, .. }] = &*found else { panic!("{found:?}") };
        assert_eq!(*to, [net("0.0.0.0/0")]);
    }
}
