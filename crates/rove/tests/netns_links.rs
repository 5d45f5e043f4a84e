//! Links that lead nowhere beside working links: container bridges do not count as links, and
//! modems without coverage delay nothing.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;
use support::netns::{Lab, ask_until, echo, in_namespace, second_cable, sh, wait_until};

const ECHO: &str = "198.51.100.80:7";
/// Container bridges, each with one running container.
const BRIDGES: u32 = 14;
/// The delay that a busy machine may add to two round trips and 50 ms.
const BUSY: Duration = Duration::from_millis(900);
/// Starts with and without such links, in turns.
const STARTS: usize = 7;
/// How long the kernel reports new interfaces, since it checks their addresses.
const SETTLED: Duration = Duration::from_secs(2);
/// The allowed delay of the median start on a busy machine. On an idle one it is 20 ms.
const LATER: Duration = Duration::from_millis(100);

/// Bridges as container engines create them: with an address, carrier from a running container, and
/// no route out.
fn bridges() {
    for n in 0..BRIDGES {
        sh(&format!(
            "ip -n client link add br-{n} type bridge
             ip -n client addr add 172.{subnet}.0.1/16 dev br-{n}
             ip -n client link set br-{n} up
             ip -n client link add v{n} type veth peer name w{n}
             ip -n client link set v{n} master br-{n} up
             ip -n client link set w{n} up",
            subnet = 18 + n
        ));
    }
}

fn remove_bridges() {
    for n in 0..BRIDGES {
        sh(&format!("ip -n client link del v{n}; ip -n client link del br-{n}"));
    }
}

/// Two modems that the kernel prefers and that never answer.
fn dead_modems() {
    sh("ip -n client route replace default via 203.0.113.254 metric 100
        ip -n client route del default via 203.0.113.254 metric 0");
    for n in 1..=2 {
        sh(&format!(
            "ip netns add void{n}
             ip link add modem{n} netns client type veth peer name to-client netns void{n}
             ip -n client addr add 10.20{n}.0.2/24 dev modem{n}
             ip -n void{n} addr add 10.20{n}.0.254/24 dev to-client
             ip -n client link set modem{n} up
             ip -n void{n} link set to-client up
             ip -n client route add default via 10.20{n}.0.254 metric {n}"
        ));
    }
}

fn remove_modems() {
    sh("ip -n client link del modem1; ip -n client link del modem2
        ip netns del void1; ip netns del void2");
}

/// The links of the paths that carry data.
fn carrying(lab: &Lab) -> Vec<String> {
    let paths: Value = serde_json::from_str(&lab.rove("client", "paths --json").ok()).unwrap();
    let carries = |path: &&Value| path["state"] == "in use" || path["state"] == "carrying";
    let carrying = paths.as_array().unwrap().iter().filter(carries);
    carrying.map(|path| path["link"].as_str().unwrap_or_default().to_owned()).collect()
}

/// How long until a link carries data.
fn until_by(lab: &Lab, link: &str) -> Duration {
    let since = Instant::now();
    wait_until(&format!("data goes by {link}"), || carrying(lab).iter().any(|by| by == link));
    since.elapsed()
}

#[test]
fn bridges_of_containers_are_not_listed_and_the_one_that_is_the_uplink_is() {
    in_namespace("bridges_of_containers_are_not_listed_and_the_one_that_is_the_uplink_is", || {
        let lab = Lab::new("bridges");
        let _gateway = lab.gateway();
        let invite = lab.invite("laptop");
        bridges();
        // As on a hypervisor: the cable is a member of a bridge that has the address.
        sh("ip -n client link add br0 type bridge
            ip -n client addr flush dev to-router
            ip -n client link set to-router master br0
            ip -n client addr add 203.0.113.2/24 dev br0
            ip -n client link set br0 up
            ip -n client route replace default via 203.0.113.254 dev br0");
        lab.rove("client", &format!("up {invite} --route 198.51.100.0/24")).ok();
        let listed = lab.rove("client", "paths").ok() + &lab.rove("client", "status").ok();
        assert!(listed.contains("br0"), "{listed}");
        assert!(!listed.contains("br-"), "{listed}");
        lab.rove("client", "down").ok();
    });
}

#[test]
fn a_link_that_comes_is_used_at_once_beside_dead_ones() {
    in_namespace("a_link_that_comes_is_used_at_once_beside_dead_ones", || {
        let lab = Lab::new("dead links");
        let _gateway = lab.gateway();
        let invite = lab.invite("laptop");
        bridges();
        dead_modems();
        echo("server", ECHO);
        lab.rove("client", &format!("up {invite} --route 198.51.100.0/24")).ok();
        let enough = Arc::new(AtomicBool::new(false));
        let asking = ask_until(&enough, ECHO, Duration::from_millis(10));
        std::thread::sleep(Duration::from_secs(3));
        second_cable();
        let came = until_by(&lab, "second");
        assert!(came < BUSY, "used after {came:?}");
        // The first one goes and comes back, then the second.
        for (link, other) in [("to-router", "second"), ("second", "to-router")] {
            sh(&format!("ip -n client link set {link} down"));
            wait_until("the other carries", || carrying(&lab) == [other]);
            std::thread::sleep(Duration::from_secs(2));
            let (gateway, metric) = match link {
                "second" => ("203.0.115.254", 600),
                _ => ("203.0.113.254", 100),
            };
            sh(&format!(
                "ip -n client link set {link} up
                 ip -n client route replace default via {gateway} dev {link} metric {metric}"
            ));
            let returned = until_by(&lab, link);
            assert!(returned < BUSY, "{link} is used after {returned:?}");
        }
        // A move: for a while only dead links are left.
        for link in ["to-router", "second"] {
            sh(&format!("ip -n client link set {link} down"));
        }
        std::thread::sleep(Duration::from_secs(3));
        sh("ip -n client link set second up
            ip -n client route replace default via 203.0.115.254 dev second metric 600");
        let moved = until_by(&lab, "second");
        assert!(moved < BUSY, "moved after {moved:?}");
        enough.store(true, Ordering::Release);
        asking.join().unwrap();
        lab.rove("client", "down").ok();
    });
}

#[test]
fn the_start_takes_no_longer_beside_bridges_and_dead_modems() {
    in_namespace("the_start_takes_no_longer_beside_bridges_and_dead_modems", || {
        let lab = Lab::new("a crowded host");
        let _gateway = lab.gateway();
        let invite = lab.invite("laptop");
        lab.rove("client", &format!("up {invite} --route 198.51.100.0/24")).ok();
        lab.rove("client", "down").ok();
        let start = || {
            let since = Instant::now();
            lab.rove("client", "up --route 198.51.100.0/24").ok();
            let took = since.elapsed();
            lab.rove("client", "down").ok();
            took
        };
        let (mut alone, mut beside) = (Vec::new(), Vec::new());
        for _ in 0..STARTS {
            alone.push(start());
            bridges();
            dead_modems();
            std::thread::sleep(SETTLED);
            beside.push(start());
            remove_modems();
            remove_bridges();
            sh("ip -n client route replace default via 203.0.113.254");
            std::thread::sleep(SETTLED);
        }
        let median = |times: &mut Vec<Duration>| {
            times.sort_unstable();
            times[STARTS / 2]
        };
        let (alone, beside) = (median(&mut alone), median(&mut beside));
        eprintln!("up within {alone:?} alone, {beside:?} beside dead links");
        assert!(beside < alone + LATER, "{alone:?} alone, {beside:?} beside");
    });
}
