//! What a client says of itself is so: a tunnel that carries nothing is not called up.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

mod support;

use std::collections::BTreeSet;
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::netns::{Lab, ask_until, echo, in_namespace, inside, sh, wait_until};

const ECHO: &str = "198.51.100.80:7";

/// Of `rove status --json`; keys are only ever added.
const STATUS: [&str; 28] = [
    "state",
    "carrying",
    "since",
    "gateway",
    "inner",
    "path_in_use",
    "transport",
    "transport_wanted",
    "link",
    "doing",
    "kill_switch",
    "mode",
    "scheduler",
    "recovery",
    "manager",
    "subflows",
    "links",
    "rehearsal",
    "dns",
    "dns_domains",
    "portals",
    "route",
    "exclude",
    "excluded",
    "allow_lan",
    "data",
    "saves_data",
    "saved",
];
/// Of every path of `rove paths --json`.
const PATH: [&str; 31] = [
    "id",
    "link",
    "local",
    "remote",
    "transport",
    "state",
    "rtt_us",
    "rate_mbps",
    "loss",
    "queue_ms",
    "share",
    "tx_bytes",
    "rx_bytes",
    "rx_rate_mbps",
    "last_heard_ms",
    "mtu",
    "split",
    "retransmitted",
    "copied_bytes",
    "feedback_datagrams",
    "feedback_bytes",
    "link_rank",
    "link_state",
    "link_use",
    "scheduler",
    "repairs",
    "controller",
    "signal_dbm",
    "portal",
    "subflows",
    "saved",
];
/// A client notices within two seconds; the rest is for a busy machine.
const NOTICED_WITHIN: Duration = Duration::from_secs(4);

fn asked(lab: &Lab, command: &str) -> Value {
    serde_json::from_str(&lab.rove("client", &format!("{command} --json")).ok()).unwrap()
}

fn doing(status: &Value) -> &str {
    status["doing"].as_str().unwrap()
}

#[test]
fn a_path_that_carries_nothing_is_told_of_within_seconds() {
    in_namespace("a_path_that_carries_nothing_is_told_of_within_seconds", || {
        let lab = Lab::new("a dead path");
        let _gateway = lab.gateway();
        let invite = lab.invite("laptop");
        lab.rove("client", &format!("up {invite}")).ok();
        let enough = Arc::<AtomicBool>::default();
        echo("server", ECHO);
        let waits = ask_until(&enough, ECHO, Duration::from_millis(100));
        wait_until("it carries", || doing(&asked(&lab, "status")) == "carrying");

        // The client knows the gateway's IPv6 address, too.
        let blackhole = |verb: &str| {
            sh(&format!(
                "ip -n router route {verb} blackhole 192.0.2.1/32
                 ip -n router route {verb} blackhole 2001:db8:a::2/128"
            ));
        };
        blackhole("add");
        let began = Instant::now();
        wait_until("it is noticed", || asked(&lab, "status")["carrying"] == false);
        assert!(began.elapsed() < NOTICED_WITHIN, "{:?}", began.elapsed());
        let status = asked(&lab, "status");
        for word in ["carrying", "connected", "idle"] {
            assert!(!doing(&status).starts_with(word), "{status}");
        }
        blackhole("del");
        wait_until("it carries again", || doing(&asked(&lab, "status")) == "carrying");

        // Nothing is sent any more: what is told is when it last was so.
        enough.store(true, Ordering::Release);
        waits.join().unwrap();
        wait_until("it idles", || doing(&asked(&lab, "status")).starts_with("idle, last proven "));
        assert_eq!(asked(&lab, "status")["state"], "up");
        lab.rove("client", "down").ok();
    });
}

#[test]
fn no_key_goes_away() {
    in_namespace("no_key_goes_away", || {
        let lab = Lab::new("keys");
        let _gateway = lab.gateway();
        let invite = lab.invite("laptop");
        let keys = |value: &Value| -> BTreeSet<String> {
            value.as_object().unwrap().keys().cloned().collect()
        };
        let expected =
            |keys: &[&str]| keys.iter().map(|&key| key.to_owned()).collect::<BTreeSet<_>>();
        assert_eq!(keys(&asked(&lab, "status")), expected(&STATUS), "while it is down");
        assert_eq!(lab.rove("client", "paths --json").ok(), "[]\n");
        lab.rove("client", &format!("up {invite}")).ok();
        let added = ["beside", "drops", "inner_gateway", "mtu", "not_carried", "problems"];
        let while_up = expected(&[&STATUS[..], &added].concat());
        assert_eq!(keys(&asked(&lab, "status")), while_up);
        let paths = asked(&lab, "paths");
        assert_eq!(paths.as_array().unwrap().len(), 1, "{paths}");
        assert_eq!(keys(&paths[0]), expected(&PATH));
        let of_peer = lab.rove("gateway", "gateway paths laptop --json").ok();
        let of_peer: Value = serde_json::from_str(&of_peer).unwrap();
        let [path] = &of_peer["paths"].as_array().unwrap()[..] else { panic!("{of_peer}") };
        let only_client = ["link", "link_rank", "link_state", "link_use", "portal", "signal_dbm"];
        let either_end: Vec<&str> =
            PATH.into_iter().filter(|key| !only_client.contains(key)).collect();
        assert_eq!(keys(path), expected(&[&either_end[..], &["peer"]].concat()));
        assert_eq!((&path["peer"], &path["state"]), (&json!("laptop"), &json!("in use")));
        assert!(lab.rove("gateway", "gateway paths").ok().contains("laptop"));
        let error = lab.rove("gateway", "gateway paths phone").fails();
        assert!(error.contains("no peer is called phone"), "{error}");
        lab.rove("client", "down").ok();
    });
}

/// How soon all reports show that two hosts use one key. In virtual time it takes 6 s.
const TOLD_WITHIN: Duration = Duration::from_secs(60);

#[test]
fn a_copied_directory_is_told_to_both_users_and_the_operator() {
    in_namespace("a_copied_directory_is_told_to_both_users_and_the_operator", || {
        let lab = Lab::new("copy");
        let _gateway = lab.gateway();
        echo("server", ECHO);
        lab.rove("client", &format!("up {}", lab.invite("laptop"))).ok();
        lab.rove("client", "down").ok();
        let copied = std::process::Command::new("cp")
            .arg("-r")
            .args([lab.home("client"), lab.home("phone")])
            .status();
        assert!(copied.unwrap().success());
        let enough = Arc::new(AtomicBool::new(false));
        let talkers = ["client", "phone"].map(|host| {
            lab.rove(host, "up").ok();
            let told = Arc::clone(&enough);
            inside(host, move || {
                let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
                while !told.load(Ordering::Acquire) {
                    let _ = socket.send_to(b"anybody there?", ECHO);
                    thread::sleep(Duration::from_millis(200));
                }
            })
        });
        let begun = Instant::now();
        let users = ["client", "phone"];
        let is_told = |host: &&str| {
            lab.rove(host, "status").ok().contains("another host uses the key of this client")
        };
        while !users.iter().all(is_told) {
            assert!(begun.elapsed() < TOLD_WITHIN, "{}", lab.rove("client", "status").ok());
            thread::sleep(Duration::from_millis(200));
        }
        eprintln!("both users were told after {:?}", begun.elapsed());
        let since = || {
            let status = lab.rove("client", "status --json").ok();
            let status: Value = serde_json::from_str(&status).unwrap();
            let problems = status["problems"].as_array().unwrap().clone();
            let is_shared = |problem: &Value| problem["what"].to_string().contains("uses the key");
            problems.into_iter().find(is_shared).map(|problem| problem["since"].clone())
        };
        let before = since();
        thread::sleep(Duration::from_secs(3));
        lab.rove("client", "down").ok();
        lab.rove("client", "up").ok();
        wait_until("it is told again", || since().is_some());
        assert_eq!(since(), before, "the trouble is as old as before");
        let peers = lab.rove("gateway", "gateway peers").ok();
        assert!(peers.contains("key on two hosts"), "{peers}");
        let status = lab.rove("gateway", "gateway status --json").ok();
        let status: Value = serde_json::from_str(&status).unwrap();
        assert_eq!(status["problems"][0]["what"], "two hosts use the key of laptop");
        assert!(lab.log("gateway").contains("two hosts use the key of laptop"));
        enough.store(true, Ordering::Release);
        talkers.into_iter().for_each(|talker| talker.join().unwrap());
    });
}
