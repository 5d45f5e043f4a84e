//! Networks that were reached before the tunnel and are not any more: local networks that overlap
//! the tunnel's addresses, as in hotels that use 10.0.0.0/8, networks of other programs' tunnels,
//! and machines for which this host is the router.
//!
//! The tunnel works on such networks: its own addresses lead into the tunnel, and its datagrams
//! leave on the link whatever their destination. This module finds the hosts of the link that are
//! unreachable meanwhile. It does not know how the kernel routes. Limit: it names such hosts only
//! if somebody could expect to reach them. With a tunnel for all traffic and without `allow-lan`,
//! nobody can.

use ipnet::IpNet;
use rove_host::inner;
use rove_os::links::Link;
use rove_os::plan::{Cause, Displaced};
use rove_proto::wire::control::Lease;

use crate::config::Config;

/// Overlaps that are reported at most. Further ones on one host add no information.
const TOLD_MAX: usize = 8;

/// One line for each overlap: the unreachable hosts, the cause and the cure.
pub(super) fn told(
    config: &Config,
    lease: &Lease,
    reachable: &[IpNet],
    links: &[Link],
) -> Vec<String> {
    let networks = lease.addresses.iter().filter_map(inner::network).map(|net| net.trunc());
    let everything = config.route.is_empty() && config.allow_lan;
    let drawn = crate::plan::drawn(config, reachable).filter(|_| everything);
    let inside = networks.chain(config.route.iter().map(IpNet::trunc)).chain(drawn);
    let inside: Vec<IpNet> = inside.collect();
    let mut told = Vec::new();
    for link in links.iter().filter(|link| link.usable() && is_foreign(link, config)) {
        for local in link.addresses.iter().map(IpNet::trunc).filter(is_network) {
            for by in &inside {
                let Some(part) = common(local, *by).filter(|part| is_missed(config, *part, *by))
                else {
                    continue;
                };
                let name = &link.name;
                let line = format!(
                    "hosts of {part} on {name} cannot be reached: the tunnel uses {by}: \
                     `--exclude ADDRESS` keeps one of them out of the tunnel"
                );
                if !told.contains(&line) && told.len() < TOLD_MAX {
                    told.push(line);
                }
            }
        }
    }
    told
}

/// One line for each network of another tunnel, or of guests, that the plan does not leave alone.
pub(super) fn displaced(found: &[Displaced]) -> Vec<String> {
    let line = |Displaced { net, link, cause }: &Displaced| match cause {
        Cause::KillSwitch => format!(
            "hosts of {net} cannot be reached on {link}: the kill switch lets nothing out beside \
             the tunnel: `--exclude {net}` lets these packets out on {link}"
        ),
        Cause::Route(by) => format!(
            "hosts of {net} cannot be reached on {link}: the tunnel uses {by}: `--exclude {net}` \
             keeps them on {link}"
        ),
        Cause::Guests => format!(
            "machines of {net} on {link} cannot use this host as their router: `--allow-lan` lets \
             them, and they use the tunnel"
        ),
    };
    found.iter().take(TOLD_MAX).map(line).collect()
}

fn is_foreign(link: &Link, config: &Config) -> bool {
    link.name != config.interface.as_str()
}

/// The single address of a point-to-point link is no network.
fn is_network(net: &IpNet) -> bool {
    net.prefix_len() < net.max_prefix_len()
}

/// The overlap of two networks: the narrower of them, or none.
fn common(one: IpNet, other: IpNet) -> Option<IpNet> {
    match (one.contains(&other), other.contains(&one)) {
        (true, _) => Some(other),
        (false, true) => Some(one),
        (false, false) => None,
    }
}

/// Whether somebody could expect to reach `part`, which the tunnel's `by` covers.
fn is_missed(config: &Config, part: IpNet, by: IpNet) -> bool {
    let touches = |net: &IpNet| net.contains(&part) || part.contains(net);
    let is_expected =
        config.allow_lan || !config.route.is_empty() || config.exclude.iter().any(touches);
    // The longer prefix of route and exclusion decides. If they are equal, the exclusion does.
    let is_kept_out = |net: &IpNet| net.contains(&part) && net.prefix_len() >= by.prefix_len();
    is_expected && !config.exclude.iter().any(is_kept_out)
}

#[cfg(test)]
mod tests {
    use rove_os::links::LinkKind;
    use rove_proto::wire::control::Prefix;

    use super::*;

    fn link(name: &str, addresses: &[&str]) -> Link {
        Link {
            index: 2,
            name: name.to_owned(),
            kind: LinkKind::Ethernet,
            up: true,
            carrier: true,
            carrier_ups: 0,
            dormant: false,
            mtu: 1_500,
            addresses: addresses.iter().map(|net| net.parse().unwrap()).collect(),
            deprecated: false,
            default_v4: None,
            default_v6: None,
            routes: Vec::new(),
            attached: Vec::new(),
        }
    }

    fn lease() -> Lease {
        let address = |text: &str, bits| Prefix { address: text.parse().unwrap(), bits };
        Lease {
            addresses: vec![address("10.77.0.2", 24), address("fd77::2", 64)],
            gateway: Vec::new(),
            dns: Vec::new(),
        }
    }

    fn nets(nets: &[&str]) -> Vec<IpNet> {
        nets.iter().map(|net| net.parse().unwrap()).collect()
    }

    /// The networks and links in the reported lines.
    fn parts(config: &Config, links: &[Link]) -> Vec<String> {
        let told = told(config, &lease(), &[], links);
        let part = |line: &String| {
            line.strip_prefix("hosts of ").unwrap().split(" cannot").next().unwrap().to_owned()
        };
        told.iter().map(part).collect()
    }

    #[test]
    fn only_hosts_that_would_be_reached_otherwise_are_told_of() {
        let links = [
            link("wlan0", &["10.1.2.3/8", "fd77::5/64"]),
            link("rove0", &["10.77.0.2/32"]),
            link("ppp0", &["10.77.0.9/32"]),
        ];
        let full = Config::default();
        assert_eq!(parts(&full, &links), Vec::<String>::new());
        let both = ["10.77.0.0/24 on wlan0", "fd77::/64 on wlan0"];
        let lan = Config { allow_lan: true, ..full.clone() };
        assert_eq!(parts(&lan, &links), both);
        let split = Config { route: nets(&["198.51.100.0/24"]), ..full.clone() };
        assert_eq!(parts(&split, &links), both);
        let kept_out = Config { exclude: nets(&["10.0.0.0/8"]), ..full };
        assert_eq!(parts(&kept_out, &links), both[..1]);
        let exact = Config { exclude: nets(&["10.77.0.0/24"]), ..lan };
        assert_eq!(parts(&exact, &links), both[1..]);
        assert_eq!(parts(&split, &[link("wlan0", &["192.168.7.2/24"])]), Vec::<String>::new());
    }

    #[test]
    fn other_tunnels_and_guests_are_told_with_the_cure() {
        let net = nets(&["100.64.0.0/10"])[0];
        let lost = |cause| Displaced { net, link: "mesh0".to_owned(), cause };
        let by = nets(&["100.0.0.0/8"])[0];
        for (cause, cure) in [
            (Cause::KillSwitch, "--exclude 100.64.0.0/10"),
            (Cause::Route(by), "the tunnel uses 100.0.0.0/8: `--exclude 100.64.0.0/10`"),
            (Cause::Guests, "--allow-lan"),
        ] {
            let lines = displaced(&vec![lost(cause); 2 * TOLD_MAX]);
            assert!(lines.len() == TOLD_MAX && lines[0].contains(cure), "{lines:?}");
        }
    }

    #[test]
    fn a_chosen_route_hides_what_it_has_in_common_with_a_link() {
        let config =
            Config { route: nets(&["10.0.0.0/8", "192.168.7.128/25"]), ..Config::default() };
        let links = [link("eth0", &["10.1.2.3/24"]), link("wlan0", &["192.168.7.2/24"])];
        assert_eq!(parts(&config, &links), ["10.1.2.0/24 on eth0", "192.168.7.128/25 on wlan0"]);
        let kept_out = Config { exclude: nets(&["10.1.2.0/24"]), ..config };
        assert_eq!(parts(&kept_out, &links), ["192.168.7.128/25 on wlan0"]);
    }
}
