//! Which settings of the kernel a plan needs. How they are read and written is for
//! [`super::setting`].

use std::io;

use super::{
    Plan,
    item::Item,
    redirects,
    setting::{FORWARDING_V4, has_ipv6},
    surroundings::Surroundings,
};
use crate::links::{Link, LinkKind};

/// Reverse path filter (ip-sysctl.rst): 1 drops what came by another way than its answer would
/// take, which with policy routing are the tunnel's own datagrams; 2 drops what has no way back.
const STRICT: u8 = 1;
const LOOSE: &str = "2";
/// The default of `accept_ra`: accept router advertisements only while the host does not forward.
const ACCEPT_RA_DEFAULT: &str = "1";
const ACCEPT_RA_ALWAYS: &str = "2";

/// Whether the host forwards IPv6.
const FORWARDING_V6: &str = "ipv6/conf/all/forwarding";

/// A link answers for its own addresses alone, and asks in their name (ip-sysctl.rst).
const ARP: [(&str, u8); 2] = [("arp_ignore", 1), ("arp_announce", 2)];

/// The settings that `plan` needs on a host with these links. `original` tells the value that a
/// setting had before Rove changed it, or has.
pub(super) fn items(
    plan: &Plan,
    links: &[Link],
    around: &Surroundings,
    original: impl Fn(&str) -> io::Result<String>,
) -> Vec<Item> {
    let mut items = redirects::items(plan, links);
    let mut set = |key: String, value: &str| {
        items.push(Item::Sysctl { key, value: value.to_owned() });
    };
    let inside = |v6: bool| plan.addresses.iter().any(|net| net.addr().is_ipv6() == v6);
    if plan.forward && inside(false) {
        set(FORWARDING_V4.to_owned(), "1");
    }
    if plan.forward && inside(true) && has_ipv6() {
        // A forwarding host ignores router advertisements unless this setting is 2, and would lose
        // its own default route. A host that forwarded before has no such route to lose.
        let begins = original(FORWARDING_V6).is_ok_and(|value| value == "0");
        for link in links.iter().filter(|link| begins && link.name != plan.device) {
            let key = format!("ipv6/conf/{}/accept_ra", link.name);
            if original(&key).is_ok_and(|value| value == ACCEPT_RA_DEFAULT) {
                set(key, ACCEPT_RA_ALWAYS);
            }
        }
        set(FORWARDING_V6.to_owned(), "1");
    }
    if plan.guard.is_some() && !plan.routes.is_empty() && is_strict(&plan.device, &original) {
        // Connections that come in through a split tunnel come from addresses outside it.
        set(format!("ipv4/conf/{}/rp_filter", plan.device), LOOSE);
    }
    for link in &around.strict_links {
        // The larger of "all" and the link's value counts. Other links keep their value.
        set(format!("ipv4/conf/{link}/rp_filter"), LOOSE);
    }
    if !plan.routes.is_empty() {
        let present = |key: &str| original(key).ok()?.parse::<u8>().ok();
        for (name, (setting, value)) in twins(plan, links).flat_map(|n| ARP.map(|one| (n, one))) {
            let key = format!("ipv4/conf/{name}/{setting}");
            if present(&key).is_some_and(|now| now < value) {
                set(key, &value.to_string());
            }
        }
    }
    items
}

/// The links that paths may use and whose reverse path filter is strict. A strict filter would drop
/// the tunnel's own datagrams on every link except the one that the kernel prefers. With a full
/// tunnel it would drop everything that arrives on a link.
pub(super) fn strict_links(
    plan: &Plan,
    links: &[Link],
    around: &Surroundings,
    original: &impl Fn(&str) -> io::Result<String>,
) -> Vec<String> {
    let carries = |link: &&Link| {
        link.kind != LinkKind::Loopback && link.name != plan.device && !around.is_inside(&link.name)
    };
    let strict = links.iter().filter(|_| !plan.routes.is_empty()).filter(carries);
    strict.map(|link| link.name.clone()).filter(|name| is_strict(name, original)).collect()
}

/// Whether the link's reverse path filter is strict.
fn is_strict(link: &str, original: &impl Fn(&str) -> io::Result<String>) -> bool {
    let value = |name: &str| {
        let value = original(&format!("ipv4/conf/{name}/rp_filter")).ok()?;
        value.parse::<u8>().ok()
    };
    value("all").into_iter().chain(value(link)).max() == Some(STRICT)
}

/// The links that have a network in common with another: each answers for the addresses of both
/// unless it is told not to, and what is for one comes in by the other.
fn twins<'a>(plan: &Plan, links: &'a [Link]) -> impl Iterator<Item = &'a str> {
    let device = plan.device.clone();
    let has_twin = move |link: &&Link| {
        let is_other = |other: &&Link| other.index != link.index && other.name != device;
        let mut others = links.iter().filter(is_other).flat_map(networks_v4);
        link.usable() && others.any(|net| networks_v4(link).any(|own| own == net))
    };
    links.iter().filter(has_twin).map(|link| link.name.as_str())
}

fn networks_v4(link: &Link) -> impl Iterator<Item = ipnet::IpNet> {
    let v4 = link.addresses.iter().filter(|net| net.addr().is_ipv4());
    v4.map(ipnet::IpNet::trunc)
}
