//! The gateway's end moves, and its clients with it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

mod support;

use std::time::Duration;

use serde_json::Value;
use support::netns::{
    Lab, download, in_namespace, inside, on, output, pattern, serve_pattern, sh, wait_until,
};

const WEB: &str = "198.51.100.80:80";
/// Long enough to be under way during a move.
const BYTES: usize = 40_000_000;

fn json(lab: &Lab, host: &str, line: &str) -> Value {
    serde_json::from_str(&lab.rove(host, line).ok()).unwrap()
}

/// Where a host's path in use leads.
fn remote(lab: &Lab, host: &str) -> String {
    let paths = json(lab, host, "paths --json");
    paths[0]["remote"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn clients_follow_to_another_port_and_find_it_again() {
    in_namespace("clients_follow_to_another_port_and_find_it_again", || {
        let lab = Lab::new("another port");
        let gateway = lab.gateway();
        serve_pattern("server", WEB, BYTES);
        for (host, name) in [("client", "laptop"), ("phone", "phone")] {
            let invite = lab.invite(name);
            lab.rove(host, &format!("up {invite} --route 198.51.100.0/24")).ok();
        }
        let fetched = std::thread::spawn(|| download("client", WEB).unwrap());
        std::thread::sleep(Duration::from_millis(200));
        let moved = lab.rove("gateway", "gateway move 192.0.2.1:4600").ok();
        let expected = "moved to 192.0.2.1:4600: 2 of 2 sessions follow; 192.0.2.1:4500 stays open";
        assert!(moved.starts_with(expected), "{moved}");
        assert!(fetched.join().unwrap() == pattern(BYTES), "nothing is missing");
        for host in ["client", "phone"] {
            assert_eq!(remote(&lab, host), "192.0.2.1:4600", "{host}");
        }
        let status = json(&lab, "gateway", "gateway status --json");
        assert_eq!(status["endpoints"][0], "192.0.2.1:4600");
        assert_eq!(status["announced"][0], "192.0.2.1:4600");

        // The old port is not there any more, and whoever comes anew knows the new one.
        lab.rove("client", "down").ok();
        std::thread::sleep(Duration::from_secs(3));
        assert_eq!(gateway.terminate(), Some(0));
        let _gateway = lab.gateway();
        assert!(!sh("nsenter --net=/run/netns/gateway cat /proc/net/udp6").contains(":1194 "));
        lab.rove("client", "up").ok();
        wait_until("who was there is back", || {
            json(&lab, "phone", "status --json")["state"] == "up"
        });
        let invite = lab.invite("tablet");
        lab.rove("client", "down").ok();
        lab.rove("client", &format!("up {invite}")).ok();
        lab.rove("client", "down").ok();
        lab.rove("phone", "down").ok();
    });
}

#[test]
fn another_address_of_the_gateways_link_is_found_by_idle_clients() {
    in_namespace("another_address_of_the_gateways_link_is_found_by_idle_clients", || {
        let lab = Lab::new("another address");
        let _gateway = lab.gateway();
        let invite = lab.invite("laptop");
        lab.rove("client", &format!("up {invite} --route 198.51.100.0/24")).ok();
        let in_gateway = |line: &str| sh(&format!("nsenter --net=/run/netns/gateway {line}"));
        in_gateway("sh -c 'echo 1 > /proc/sys/net/ipv4/conf/all/promote_secondaries'");
        in_gateway("ip addr add 192.0.2.7/24 dev to-router");
        wait_until("the new address is announced", || {
            let status = json(&lab, "gateway", "gateway status --json");
            status["announced"].to_string().contains("192.0.2.7:4500")
        });
        assert_eq!(remote(&lab, "client"), "192.0.2.1:4500", "the operator's comes first");
        in_gateway("ip addr del 192.0.2.1/24 dev to-router");
        wait_until("the client follows", || remote(&lab, "client") == "192.0.2.7:4500");
        serve_pattern("server", WEB, 1_000_000);
        assert!(download("client", WEB).unwrap() == pattern(1_000_000));
        // It knows that address from now on, although its invite does not.
        lab.rove("client", "down").ok();
        lab.rove("client", "up").ok();
        lab.rove("client", "down").ok();
    });
}

#[test]
fn a_move_that_cannot_be_changes_nothing() {
    in_namespace("a_move_that_cannot_be_changes_nothing", || {
        let lab = Lab::new("a move that cannot be");
        let _gateway = lab.gateway();
        let config = lab.home("gateway").join("gateway.toml");
        let record = lab.home("gateway").join("gateway.record");
        let files = || [&config, &record].map(|path| std::fs::read(path).unwrap());
        let before = files();
        let error = lab.rove("gateway", "gateway move 192.0.2.1:4500").fails();
        assert!(error.contains("is where the gateway is already"), "{error}");
        let taken = inside("gateway", || std::net::UdpSocket::bind("[::]:4600").unwrap());
        let _taken = taken.join().unwrap();
        let error = lab.rove("gateway", "gateway move 192.0.2.1:4600").fails();
        assert!(error.contains("4600"), "{error}");
        let key = lab.home("gateway").join("operator.key");
        let away = lab.home("gateway").join("operator.away");
        std::fs::rename(&key, &away).unwrap();
        let error = lab.rove("gateway", "gateway move 192.0.2.1:4700").fails();
        assert!(error.contains("operator.key is not in"), "{error}");
        assert!(files() == before, "nothing was written");
        std::fs::rename(&away, &key).unwrap();

        // Something in front of it may have that address.
        let moved = lab.rove("gateway", "gateway move 198.51.100.9:4500");
        assert!(moved.err.contains("198.51.100.9 is no address of this host"), "{}", moved.err);
        let text = moved.ok();
        assert!(text.contains("0 of 0 sessions follow"), "{text}");
        let usage = output({
            let mut command = on("gateway", support::binary());
            command.args(["gateway", "move", "nowhere"]);
            command
        });
        assert_eq!(usage.status.code(), Some(2));
    });
}

#[test]
fn a_gateway_that_does_not_run_will_be_elsewhere() {
    in_namespace("a_gateway_that_does_not_run_will_be_elsewhere", || {
        let lab = Lab::new("a gateway that does not run");
        lab.gateway().kill();
        let said = lab.rove("gateway", "gateway move 192.0.2.1:4600").ok();
        assert_eq!(said, "the gateway will be at 192.0.2.1:4600 when it starts\n");
        let _gateway = lab.gateway();
        let invite = lab.invite("laptop");
        lab.rove("client", &format!("up {invite}")).ok();
        assert_eq!(remote(&lab, "client"), "192.0.2.1:4600");
        lab.rove("client", "down").ok();
    });
}
