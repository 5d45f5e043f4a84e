//! The local network around the tunnel: addresses that both use, and routes that a person adds.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

mod support;

use support::netns::{
    Lab, Running, download, in_namespace, need_program, pattern, serve_pattern, sh, wait_until,
};

const WEB: &str = "198.51.100.80:80";

/// The kernel looks up a next hop without `dev`, and must not find it in the tunnel.
#[test]
fn routes_typed_without_a_device_lead_to_the_link() {
    in_namespace("routes_typed_without_a_device_lead_to_the_link", || {
        let lab = Lab::new("routes typed by hand");
        let _gateway = lab.gateway();
        serve_pattern("server", WEB, 100_000);
        let invite = lab.invite("laptop");
        let before = lab.state_of("client");
        for options in ["", "--route 198.51.100.0/24", "--allow-lan"] {
            lab.rove("client", &format!("up {invite} {options}")).ok();
            sh("ip -n client route replace default via 203.0.113.254
                ip -n client -6 route replace default via 2001:db8:c::1
                ip -n client route add 10.0.0.0/8 via 203.0.113.254
                ip -n client -6 route add fd00::/8 via 2001:db8:c::1");
            for what in ["-4 route show default", "-4 route show 10.0.0.0/8"] {
                let route = sh(&format!("ip -n client {what}"));
                assert!(route.contains("via 203.0.113.254 dev to-router"), "{options}: {route}");
            }
            for what in ["-6 route show default", "-6 route show fd00::/8"] {
                let route = sh(&format!("ip -n client {what}"));
                assert!(route.contains("via 2001:db8:c::1 dev to-router"), "{options}: {route}");
            }
            assert!(download("client", WEB).unwrap() == pattern(100_000), "{options}");
            sh("ip -n client route del 10.0.0.0/8 && ip -n client -6 route del fd00::/8");
            lab.rove("client", "down").ok();
            lab.becomes("client", &before);
        }
    });
}

/// A network of the client's, its router's address, and the same for IPv6.
struct Lan {
    address: &'static str,
    router: &'static str,
    address_v6: &'static str,
    router_v6: &'static str,
}

/// A network around the tunnel's, as hotels and carriers have.
const WIDE: Lan = Lan {
    address: "10.1.2.3/8",
    router: "10.0.0.1",
    address_v6: "fd00::5/8",
    router_v6: "fd00::1",
};
/// The same network as the tunnel's. This host's address equals its lease, and the router's equals
/// the gateway's.
const SAME: Lan = Lan {
    address: "10.77.0.2/24",
    router: "10.77.0.1",
    address_v6: "fd77::2/64",
    router_v6: "fd77::1",
};
/// The router's address equals this host's lease.
const ROUTER_IS_LEASE: Lan = Lan {
    address: "10.77.0.9/24",
    router: "10.77.0.2",
    address_v6: "fd77::9/64",
    router_v6: "fd77::2",
};

impl Lan {
    /// Moves the client into this network, behind a router with NAT.
    fn take_client(&self) {
        let Self { address, router, address_v6, router_v6 } = self;
        let length = |net: &str| net.split_once('/').unwrap().1.to_owned();
        let (bits, bits_v6) = (length(address), length(address_v6));
        sh(&format!(
            "ip -n client addr flush dev to-router scope global
             ip -n router addr flush dev to-client scope global
             ip -n client addr add {address} dev to-router
             ip -n router addr add {router}/{bits} dev to-client
             ip -n client addr add {address_v6} dev to-router nodad
             ip -n router addr add {router_v6}/{bits_v6} dev to-client nodad
             ip -n client route add default via {router} dev to-router
             ip -n client -6 route replace default via {router_v6} dev to-router"
        ));
    }
}

/// A gateway that translates, so that nobody else has to know the tunnel's networks.
fn gateway_behind_nat(lab: &Lab) -> Running {
    let line = "gateway init --endpoint 192.0.2.1:4500 --network 10.77.0.0/24,fd77::/64";
    lab.rove("gateway", line).ok();
    sh("ip -n router route del 10.77.0.0/24 && ip -n router -6 route del fd77::/64
        nsenter --net=/run/netns/router nft -f - <<'RULES'
        table inet nat { chain postrouting {
            type nat hook postrouting priority srcnat
            oifname \"to-gateway\" masquerade
        }
        }
RULES");
    lab.gateway()
}

/// A local network of 10.0.0.0/8 and fd00::/8 gets no packet for the networks that the gateway
/// leads to: those that it knows from the start, and those that are allowed later.
fn networks_of_the_gateway_are_not_drawn(lab: &Lab, way: &impl Fn(&str) -> String) {
    for outside in ["10.21.0.1", "10.30.0.1", "fd21::1"] {
        assert!(way(outside).contains("dev to-router"), "{}", way(outside));
    }
    for inside in ["10.20.7.7", "fd20::7"] {
        assert!(way(inside).contains("dev rove0"), "{}", way(inside));
    }
    lab.rove("gateway", "gateway allow laptop 10.30.0.0/16").ok();
    wait_until("it is routed", || way("10.30.0.1").contains("dev rove0"));
}

#[test]
fn a_local_network_that_overlaps_the_tunnels_is_no_obstacle() {
    in_namespace("a_local_network_that_overlaps_the_tunnels_is_no_obstacle", || {
        need_program("NAT", "nft");
        let lab = Lab::new("an overlap");
        let _gateway = gateway_behind_nat(&lab);
        let mut is_allowed = false;
        let callers = serve_pattern("server", WEB, 100_000);
        let invite = lab.invite("laptop");
        let wide = ["", "--allow-lan", "--kill-switch", "--route 198.51.100.0/24"];
        let same = ["", "--kill-switch", "--route 198.51.100.0/24", "--exclude 10.0.0.0/8"];
        for (lan, options) in [(WIDE, wide), (SAME, same), (ROUTER_IS_LEASE, same)] {
            lan.take_client();
            let before = lab.state_of("client");
            for options in options {
                let case = format!("{} {options}", lan.address);
                if is_allowed {
                    lab.rove("gateway", "gateway allow laptop 10.20.0.0/16 fd20::/32").ok();
                }
                is_allowed = true;
                let up = lab.rove("client", &format!("up {invite} {options}"));
                assert_eq!(up.code, Some(0), "{case}: {}", up.err);
                let is_told = up.err.contains(" on to-router cannot be reached: the tunnel");
                assert_eq!(is_told, !matches!(options, "" | "--kill-switch"), "{case}: {}", up.err);
                assert!(download("client", WEB).unwrap() == pattern(100_000), "{case}");
                assert_eq!(callers.last(), "192.0.2.1", "{case}");
                let way = |to: &str| sh(&format!("ip -n client route get {to}"));
                for inner in ["10.77.0.7", "fd77::7"] {
                    assert!(way(inner).contains("dev rove0"), "{case}: {}", way(inner));
                }
                if options == "--allow-lan" {
                    networks_of_the_gateway_are_not_drawn(&lab, &way);
                }
                // Marked packets reach the link's router and the gateway only on the link.
                let others = [lan.router, lan.router_v6].into_iter();
                let others = others.filter(|_| lan.router != ROUTER_IS_LEASE.router);
                for outer in others.chain(["192.0.2.1", "2001:db8:a::2"]) {
                    let marked = way(&format!("{outer} mark 0x726f"));
                    assert!(marked.contains("dev to-router"), "{case}: {marked}");
                }
                lab.rove("client", "down").ok();
                lab.becomes("client", &before);
            }
        }
    });
}
