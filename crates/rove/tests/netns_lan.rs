//! The local network around the tunnel: routes that a person types.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

mod support;

use support::netns::{Lab, download, in_namespace, pattern, serve_pattern, sh};

const WEB: &str = "198.51.100.80:80";

/// A next hop without `dev` is looked up by the kernel, and must not be found in the tunnel.
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
