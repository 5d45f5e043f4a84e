//! The real binary, gateway and clients, in namespaces: what a person does with it works.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

mod support;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;

use serde_json::Value;
use support::netns::{
    Lab, SOON, download, in_namespace, inside, need_program, own_etc, pattern, reaches,
    serve_pattern, sh, wait_until,
};

const WEB: &str = "198.51.100.80:80";
const WEB_V6: &str = "[2001:db8:b::2]:80";

fn status(lab: &Lab, host: &str) -> Value {
    serde_json::from_str(&lab.rove(host, "status --json").ok()).unwrap()
}

#[test]
fn everything_goes_through_and_everything_is_taken_back() {
    in_namespace("everything_goes_through_and_everything_is_taken_back", || {
        let lab = Lab::new("a tunnel");
        let _gateway = lab.gateway();
        let callers = serve_pattern("server", WEB, 3_000_000);
        let callers_v6 = serve_pattern("server", WEB_V6, 100_000);
        let before = lab.state_of("client");
        let invite = lab.invite("laptop");
        let up = lab.rove("client", &format!("up {invite}")).ok();
        assert_eq!(up, "up: 10.77.0.2 and fd77::2 on rove0\n");

        let error = lab.rove("client", "up").fails();
        assert!(error.contains("already up (process ") && error.contains("`rove down`"), "{error}");

        let told = status(&lab, "client");
        assert_eq!(told["state"], "up");
        assert_eq!(told["carrying"], true);
        assert_eq!(told["kill_switch"], false);
        assert_eq!(told["inner"], serde_json::json!(["10.77.0.2", "fd77::2"]));
        let paths: Value = serde_json::from_str(&lab.rove("client", "paths --json").ok()).unwrap();
        assert_eq!(paths[0]["link"], "to-router");
        assert_eq!(paths[0]["remote"], "192.0.2.1:4500");
        let peers: Value =
            serde_json::from_str(&lab.rove("gateway", "gateway peers --json").ok()).unwrap();
        assert_eq!(peers["peers"][0]["name"], "laptop");
        assert_eq!(peers["peers"][0]["session"], "up");

        assert_eq!(download("client", WEB).unwrap(), pattern(3_000_000));
        assert_eq!(download("client", WEB_V6).unwrap(), pattern(100_000));
        assert_eq!((callers.last(), callers_v6.last()), ("10.77.0.2".into(), "fd77::2".into()));

        assert_eq!(lab.rove("client", "down").ok(), "down\n");
        assert_eq!(lab.state_of("client"), before, "nothing is left of it");
        // The second time needs no invite.
        let up = lab.rove("client", "up").ok();
        assert_eq!(up, "up: 10.77.0.2 and fd77::2 on rove0\n");
        assert_eq!(download("client", WEB).unwrap(), pattern(3_000_000));
        assert_eq!(callers.last(), "10.77.0.2");
        lab.rove("client", "down").ok();
        assert_eq!(download("client", WEB).unwrap(), pattern(3_000_000));
        assert_eq!(callers.last(), "203.0.113.2", "without the tunnel it is another way");
    });
}

#[test]
fn chosen_routes_leave_the_rest_alone() {
    in_namespace("chosen_routes_leave_the_rest_alone", || {
        let lab = Lab::new("chosen routes");
        let _gateway = lab.gateway();
        let source = |of: &'static str| {
            let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
            socket.connect(of).unwrap();
            socket.local_addr().unwrap().ip().to_string()
        };
        let source_of = |address| inside("client", move || source(address)).join().unwrap();
        let invite = lab.invite("laptop");
        lab.rove("client", &format!("up {invite} --route 198.51.100.0/24")).ok();
        assert_eq!(source_of("198.51.100.80:80"), "10.77.0.2");
        assert_eq!(source_of("192.0.2.254:80"), "203.0.113.2");
        lab.rove("client", "down").ok();
        lab.rove("client", "up --exclude 198.51.100.0/24").ok();
        assert_eq!(source_of("198.51.100.80:80"), "203.0.113.2");
        assert_eq!(source_of("192.0.2.254:80"), "10.77.0.2");
        lab.rove("client", "down").ok();
    });
}

#[test]
fn the_foreground_says_one_line_and_ends_cleanly() {
    in_namespace("the_foreground_says_one_line_and_ends_cleanly", || {
        own_etc();
        let lab = Lab::new("a foreground client");
        let gateway = lab.gateway();
        let before = lab.state_of("client");
        let invite = lab.invite("laptop");
        let client = lab.start("client", &format!("up {invite} --foreground"));
        wait_until("it says so", || lab.log("client").contains("up: 10.77.0.2"));
        let lines = lab.log("client");
        let said: Vec<&str> = lines.lines().filter(|line| !line.contains("INFO")).collect();
        assert_eq!(said, ["up: 10.77.0.2 and fd77::2 on rove0"]);
        assert_eq!(client.terminate(), Some(0));
        assert_eq!(lab.state_of("client"), before);
        assert_eq!(gateway.terminate(), Some(0));
    });
}

#[test]
fn two_clients_reach_the_internet_and_not_each_other() {
    in_namespace("two_clients_reach_the_internet_and_not_each_other", || {
        let lab = Lab::new("two clients");
        let _gateway = lab.secluded_gateway();
        serve_pattern("server", WEB, 100_000);
        for host in ["client", "phone"] {
            let invite = lab.invite(host);
            lab.rove(host, &format!("up {invite}")).ok();
            assert_eq!(download(host, WEB).unwrap(), pattern(100_000));
        }
        serve_pattern("phone", "10.77.0.3:8080", 1_000);
        serve_pattern("gateway", "10.77.0.1:22", 1_000);
        // The gateway's own networks are not the Internet.
        serve_pattern("router", "192.0.2.254:22", 1_000);
        for closed in ["10.77.0.3:8080", "10.77.0.1:22", "192.0.2.254:22"] {
            assert!(!reaches("client", closed), "{closed}");
        }
        lab.rove("gateway", "gateway allow client 10.77.0.3:8080 192.0.2.254/32:22").ok();
        assert!(reaches("client", "192.0.2.254:22"));
        assert_eq!(download("client", "10.77.0.3:8080").unwrap(), pattern(1_000));
        assert!(!reaches("client", "10.77.0.1:22"));
        lab.rove("gateway", "gateway allow client --reset").ok();
        assert!(!reaches("client", "10.77.0.3:8080"));
        for host in ["client", "phone"] {
            lab.rove(host, "down").ok();
        }
    });
}

#[test]
fn a_subnet_behind_a_client_is_reached_if_the_invite_says_so() {
    in_namespace("a_subnet_behind_a_client_is_reached_if_the_invite_says_so", || {
        let lab = Lab::new("a subnet");
        let gateway = lab.gateway();
        sh("ip netns add office && ip -n office link set lo up
            ip link add eth0 netns office type veth peer name to-office netns client
            ip -n office addr add 192.168.7.10/24 dev eth0 && ip -n office link set eth0 up
            ip -n client addr add 192.168.7.1/24 dev to-office && ip -n client link set to-office up
            ip -n office route add default via 192.168.7.1");
        serve_pattern("office", "192.168.7.10:80", 50_000);
        let invite = lab.invite("office --subnet 192.168.7.0/24");
        let advertise = "--advertise 192.168.7.0/24 --advertise 192.168.9.0/24 --allow-lan";
        lab.rove("client", &format!("up {invite} {advertise}")).ok();
        let invite = lab.invite("phone");
        lab.rove("phone", &format!("up {invite}")).ok();
        assert!(!reaches("phone", "192.168.7.10:80"), "nobody allowed it");
        lab.rove("gateway", "gateway allow phone 192.168.7.0/24:80").ok();
        assert_eq!(download("phone", "192.168.7.10:80").unwrap(), pattern(50_000));
        // Only what the client says is behind it is: a new process says it anew, in both ways.
        lab.rove("client", "down").ok();
        lab.rove("client", "up --allow-lan").ok();
        assert!(!reaches("phone", "192.168.7.10:80"), "nobody advertised it");
        lab.rove("client", "down").ok();
        lab.rove("client", &format!("up {advertise}")).ok();
        assert_eq!(download("phone", "192.168.7.10:80").unwrap(), pattern(50_000));
        // A gateway that begins anew is told again.
        assert_eq!(gateway.terminate(), Some(0));
        let _gateway = lab.gateway();
        wait_until("it is advertised again", || reaches("phone", "192.168.7.10:80"));
        assert_eq!(download("phone", "192.168.7.10:80").unwrap(), pattern(50_000));
        lab.rove("phone", "down").ok();
        lab.rove("client", "down").ok();
    });
}

#[test]
fn a_gateway_translates_for_clients_that_the_world_does_not_know() {
    in_namespace("a_gateway_translates_for_clients_that_the_world_does_not_know", || {
        need_program("NAT", "nft");
        let lab = Lab::new("NAT");
        let line = "gateway init --endpoint 192.0.2.1:4500 --network 10.77.0.0/24,fd77::/64";
        lab.rove("gateway", line).ok();
        sh("ip -n router route del 10.77.0.0/24 && ip -n router -6 route del fd77::/64");
        let _gateway = lab.gateway();
        let callers = serve_pattern("server", WEB, 100_000);
        let callers_v6 = serve_pattern("server", WEB_V6, 100_000);
        let invite = lab.invite("laptop");
        lab.rove("client", &format!("up {invite}")).ok();
        assert_eq!(download("client", WEB).unwrap(), pattern(100_000));
        assert_eq!(download("client", WEB_V6).unwrap(), pattern(100_000));
        let seen = (callers.last(), callers_v6.last());
        assert_eq!(seen, ("192.0.2.1".into(), "2001:db8:a::2".into()));
        lab.rove("client", "down").ok();
    });
}

#[test]
fn a_download_survives_a_change_of_address() {
    in_namespace("a_download_survives_a_change_of_address", || {
        let lab = Lab::new("a move");
        let _gateway = lab.gateway();
        serve_for_ever();
        // The gateway announces its IPv6 address too, and would be reached there meanwhile.
        sh("ip -n client -6 addr flush dev to-router scope global");
        let invite = lab.invite("laptop");
        lab.rove("client", &format!("up {invite}")).ok();
        let (read, enough) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        let (count, told) = (Arc::clone(&read), Arc::clone(&enough));
        let reader = inside("client", move || read_until(&told, &count));
        let read_more = |blocks: usize| {
            let before = read.load(Ordering::Acquire);
            wait_until("the download goes on", || read.load(Ordering::Acquire) > before + blocks);
        };
        read_more(5);
        sh("ip -n client addr del 203.0.113.2/24 dev to-router
            ip -n client addr add 203.0.113.77/24 dev to-router
            ip -n client route replace default via 203.0.113.254 dev to-router");
        read_more(20);
        enough.store(true, Ordering::Release);
        reader.join().unwrap();
        let paths: Value = serde_json::from_str(&lab.rove("client", "paths --json").ok()).unwrap();
        assert_eq!(paths[0]["local"], "203.0.113.77");
        lab.rove("client", "down").ok();
    });
}

/// What the endless download repeats.
const BLOCK: usize = 1 << 20;

/// A server that sends its first caller the pattern, over and over.
fn serve_for_ever() {
    let (ready, is_ready) = channel();
    inside("server", move || {
        let listener = TcpListener::bind(WEB).unwrap();
        ready.send(()).unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        let block = pattern(BLOCK);
        while stream.write_all(&block).is_ok() {}
    });
    is_ready.recv_timeout(SOON).unwrap();
}

/// Reads block after block over one connection, each whole and unchanged, and counts them.
fn read_until(enough: &AtomicBool, count: &AtomicUsize) {
    let mut stream = TcpStream::connect(WEB).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    let (expected, mut block) = (pattern(BLOCK), vec![0; BLOCK]);
    while !enough.load(Ordering::Acquire) {
        stream.read_exact(&mut block).unwrap();
        assert!(block == expected, "it came damaged");
        count.fetch_add(1, Ordering::AcqRel);
    }
}

/// The capabilities that the daemons keep (linux/capability.h): NET_BIND_SERVICE, NET_ADMIN and
/// NET_RAW.
const KEPT: u64 = 1 << 10 | 1 << 12 | 1 << 13;

#[test]
fn the_daemons_keep_no_privilege_but_the_networks() {
    in_namespace("the_daemons_keep_no_privilege_but_the_networks", || {
        let lab = Lab::new("privileges");
        let gateway = lab.gateway();
        let invite = lab.invite("laptop");
        lab.rove("client", &format!("up {invite}")).ok();
        let lock = std::fs::read_to_string(lab.home("client").join("client.state/lock")).unwrap();
        for pid in [gateway.child.id().to_string(), lock.trim().to_owned()] {
            let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
            let mut seen = 0;
            for thread in threads {
                let status = thread.unwrap().path().join("status");
                // A thread may end meanwhile.
                let Ok(status) = std::fs::read_to_string(status) else { continue };
                let value = |key: &str| {
                    let value = status.lines().find_map(|line| line.strip_prefix(key)).unwrap();
                    u64::from_str_radix(value.trim_start_matches(':').trim(), 16).unwrap()
                };
                for set in ["CapEff", "CapPrm", "CapBnd", "CapInh"] {
                    assert_eq!(value(set), KEPT, "{set}: {status}");
                }
                assert_eq!(value("NoNewPrivs"), 1, "{status}");
                seen += 1;
            }
            assert!(seen >= 3, "control, packets and links are threads of their own: {seen}");
        }
        lab.rove("client", "down").ok();
    });
}
