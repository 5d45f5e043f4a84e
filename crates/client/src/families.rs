//! The address families that a tunnel does not carry, in words: a gateway with networks of one
//! family gives no address of the other.
//!
//! It says what the routes of `rove_os::plan` do then. It does not know which programs need the
//! family.

use std::fmt;

use ipnet::IpNet;
use rove_os::links::Link;
use rove_proto::wire::control::Lease;

use crate::config::Config;

/// A family of addresses.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Family {
    V4,
    V6,
}

impl Family {
    const ALL: [Self; 2] = [Self::V4, Self::V6];

    const fn is_v4(self) -> bool {
        matches!(self, Self::V4)
    }

    fn is_of(self, net: &IpNet) -> bool {
        net.addr().is_ipv4() == self.is_v4()
    }

    /// All addresses of the family, as an argument.
    const fn everywhere(self) -> &'static str {
        match self {
            Self::V4 => "0.0.0.0/0",
            Self::V6 => "::/0",
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        })
    }
}

/// One line for each family that should use the tunnel and cannot: what becomes of its packets, and
/// the cure. A family without a default route on any of the `links` is not missed.
pub(crate) fn not_carried(config: &Config, lease: &Lease, links: &[Link]) -> Vec<String> {
    let is_missing = |family: &Family| {
        let v4 = family.is_v4();
        let mut links_of_host = links.iter().filter(|link| link.name != config.interface.as_str());
        let is_given = lease.addresses.iter().any(|given| given.address.is_ipv4() == v4);
        !is_given && links_of_host.any(|link| link.usable() && link.leads_out(v4))
    };
    Family::ALL.into_iter().filter(is_missing).filter_map(|it| line(config, it)).collect()
}

/// The line for a family without an address. `None` if the user keeps it out of the tunnel.
fn line(config: &Config, family: Family) -> Option<String> {
    let has = |nets: &[IpNet]| nets.iter().any(|net| family.is_of(net));
    let is_everything = |net: &IpNet| family.is_of(net) && net.prefix_len() == 0;
    let is_inside = config.route.is_empty() || has(&config.route);
    if !is_inside || config.exclude.iter().any(is_everything) {
        return None;
    }
    let is_split = !config.route.is_empty() && !config.route.iter().any(is_everything);
    let blocked = if is_split {
        format!("{family} packets to the networks of `route` are blocked, others leave in clear")
    } else {
        format!("{family} packets are blocked")
    };
    let open = match (has(&config.exclude), config.allow_lan) {
        (false, false) => "",
        (true, false) => ", except to excluded networks",
        (false, true) => ", except to local networks",
        (true, true) => ", except to excluded and local networks",
    };
    let everywhere = family.everywhere();
    let cure = if config.kill_switch {
        format!("without the kill switch, `--exclude {everywhere}` lets them leave in clear")
    } else {
        format!("`--exclude {everywhere}` lets them leave in clear")
    };
    Some(format!(
        "{family} does not use this tunnel, because the gateway gives no {family} address; \
         {blocked}{open}: ask the gateway's operator for {family}; {cure}"
    ))
}

#[cfg(test)]
mod tests {
    use rove_proto::wire::control::Prefix;

    use super::*;

    fn lease(addresses: &[(&str, u8)]) -> Lease {
        let given = |&(text, bits): &(&str, u8)| Prefix { address: text.parse().unwrap(), bits };
        Lease { addresses: addresses.iter().map(given).collect(), ..Lease::default() }
    }

    /// A link with a default route of each named family.
    fn link(name: &str, v4: bool, v6: bool) -> Link {
        let everywhere = [(v4, "0.0.0.0/0"), (v6, "::/0")].into_iter();
        let routes = everywhere.filter(|(has, _)| *has).map(|(_, net)| net.parse().unwrap());
        Link { routes: routes.collect(), ..crate::ranking::tests::named(2, name) }
    }

    fn nets(nets: &[&str]) -> Vec<IpNet> {
        nets.iter().map(|net| net.parse().unwrap()).collect()
    }

    #[test]
    fn a_family_without_an_address_is_said_to_be_blocked() {
        let links = [link("eth0", true, true)];
        let only_v6 = lease(&[("fd78::2", 64)]);
        let all = Config::default();
        assert_eq!(
            not_carried(&all, &only_v6, &links),
            ["IPv4 does not use this tunnel, because the gateway gives no IPv4 address; IPv4 \
              packets are blocked: ask the gateway's operator for IPv4; `--exclude 0.0.0.0/0` \
              lets them leave in clear"]
        );
        let only_v4 = lease(&[("10.77.0.2", 24)]);
        let told = not_carried(&all, &only_v4, &links);
        assert!(told.len() == 1 && told[0].starts_with("IPv6 does not"), "{told:?}");
        assert!(told[0].contains("`--exclude ::/0`"), "{told:?}");
        let both = lease(&[("10.77.0.2", 24), ("fd78::2", 64)]);
        assert!(not_carried(&all, &both, &links).is_empty());
    }

    #[test]
    fn a_family_that_nobody_misses_is_not_told_of() {
        let only_v6 = lease(&[("fd78::2", 64)]);
        let all = Config::default();
        let own = link(all.interface.as_str(), true, true);
        assert!(not_carried(&all, &only_v6, &[own, link("eth0", false, true)]).is_empty());
        let links = [link("eth0", true, true)];
        let out = Config { exclude: nets(&["0.0.0.0/0"]), ..all.clone() };
        let split = Config { route: nets(&["fd78::/16"]), ..all };
        for config in [out, split] {
            assert!(not_carried(&config, &only_v6, &links).is_empty());
        }
    }

    #[test]
    fn what_follows_is_told_by_the_rules() {
        let only_v6 = lease(&[("fd78::2", 64)]);
        let links = [link("eth0", true, true)];
        let split = nets(&["10.0.0.0/8", "fd00::/8"]);
        for (config, part) in [
            (
                Config { exclude: nets(&["192.0.2.0/24"]), ..Config::default() },
                "IPv4 packets are blocked, except to excluded networks:",
            ),
            (
                Config { allow_lan: true, ..Config::default() },
                "IPv4 packets are blocked, except to local networks:",
            ),
            (
                Config { route: split, ..Config::default() },
                "to the networks of `route` are blocked, others leave in clear:",
            ),
            (
                Config { kill_switch: true, ..Config::default() },
                "without the kill switch, `--exclude 0.0.0.0/0`",
            ),
        ] {
            let told = not_carried(&config, &only_v6, &links);
            assert!(told.len() == 1 && told[0].contains(part), "{told:?}");
        }
    }
}
