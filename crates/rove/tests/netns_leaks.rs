//! Nothing leaves beside the tunnel that should not: captured at the other end of the cable.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

mod support;

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep};
use std::time::Duration;

use rustix::net::{
    AddressFamily, SendFlags, SocketAddrAny, SocketFlags, SocketType, ipproto, sendto, socket_with,
};
use support::Ran;
use support::capture::Capture;
use support::names::serve_names;
use support::netns::{
    Lab, edit, in_namespace, inside, need_program, on, output, own_etc, sh, wait_until,
};

/// The one destination that stays open.
const GATEWAY: &str = "udp 192.0.2.1:4500";
const OUTSIDE_SERVER: &str = "192.0.2.53:53";

/// Where an ordinary program would like to send to: the world, the gateway's host, name servers,
/// the local network.
const UDP: [&str; 10] = [
    "198.51.100.80:9",
    "192.0.2.1:4500",
    "192.0.2.1:53",
    "9.9.9.9:53",
    "203.0.113.254:53",
    "203.0.113.254:5353",
    "[2001:db8:b::2]:9",
    "[2001:db8:b::2]:53",
    "[2001:db8:c::1]:53",
    "[2001:db8:c::1]:5353",
];
const TCP: [&str; 4] =
    ["198.51.100.80:80", "203.0.113.254:80", "[2001:db8:b::2]:80", "[2001:db8:c::1]:80"];
const PING: [&str; 4] =
    ["198.51.100.80:0", "203.0.113.254:0", "[2001:db8:b::2]:0", "[2001:db8:c::1]:0"];

/// Sends once to everybody, as programs do that know nothing of a tunnel. Refusals are welcome.
fn speak() {
    for to in UDP.map(|to| to.parse::<SocketAddr>().unwrap()) {
        let from = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let _ = UdpSocket::bind(from).unwrap().send_to(b"secret", to);
    }
    for to in PING.map(|to| to.parse::<SocketAddr>().unwrap()) {
        let (family, protocol, echo) = match to {
            SocketAddr::V4(_) => (AddressFamily::INET, ipproto::ICMP, 8),
            SocketAddr::V6(_) => (AddressFamily::INET6, ipproto::ICMPV6, 128),
        };
        let (kind, flags) = (SocketType::RAW, SocketFlags::empty());
        let socket = socket_with(family, kind, flags, Some(protocol)).unwrap();
        let checksum = if to.is_ipv4() { 0xf7u8 } else { 0 };
        let ping = [echo, 0, checksum, !0, 0, 0, 0, 0];
        let _ = sendto(&socket, &ping, SendFlags::empty(), &SocketAddrAny::from(to));
    }
    for to in TCP.map(|to| to.parse().unwrap()) {
        let _ = TcpStream::connect_timeout(&to, Duration::from_millis(5));
    }
}

/// What [`speak`] says, as a capture tells it.
fn everything() -> Vec<String> {
    let all = UDP.map(|to| format!("udp {to}")).into_iter();
    let all = all.chain(TCP.map(|to| format!("tcp {to}")));
    let pinged = PING.map(|to| to.parse::<SocketAddr>().unwrap().ip());
    all.chain(pinged.map(|to| format!("icmp {to}"))).collect()
}

/// A program that does not stop speaking until it is told to; it returns how often it did.
struct Talker {
    enough: Arc<AtomicBool>,
    thread: JoinHandle<u32>,
}

impl Talker {
    fn start() -> Self {
        let enough = Arc::<AtomicBool>::default();
        let told = Arc::clone(&enough);
        let talk = move || {
            let mut spoken = 0;
            while !told.load(Ordering::Acquire) {
                speak();
                spoken += 1;
                sleep(Duration::from_millis(2));
            }
            spoken
        };
        Self { enough, thread: inside("client", talk) }
    }

    fn stop(self) -> u32 {
        self.enough.store(true, Ordering::Release);
        self.thread.join().unwrap()
    }
}

#[test]
fn behind_a_kill_switch_nothing_leaves_whatever_happens_to_the_client() {
    in_namespace("behind_a_kill_switch_nothing_leaves_whatever_happens_to_the_client", || {
        need_program("the kill switch", "nft");
        let lab = Lab::new("the kill switch");
        let _gateway = lab.gateway();
        let invite = lab.invite("laptop");
        let capture = Capture::start("client");
        let speak_once = || inside("client", speak).join().unwrap();
        let assert_open = || {
            let mut missing = everything();
            // Right after a change the kernel may not have found its neighbours again.
            wait_until("the capture sees everything", || {
                speak_once();
                let seen = capture.take();
                missing.retain(|what| !seen.contains(what));
                missing.is_empty()
            });
        };
        assert_open();

        let up = |line: &str| {
            let client = lab.start("client", &format!("up {line} --foreground --kill-switch"));
            wait_until("it carries", || lab.log("client").contains("up: 10.77.0.2"));
            client
        };
        let client = up(&invite);
        capture.take();
        let talker = Talker::start();
        let leaked = || -> Vec<String> {
            let seen = capture.take().into_iter();
            seen.filter(|what| what != GATEWAY).collect()
        };
        sleep(Duration::from_millis(300));
        assert_eq!(leaked(), [""; 0], "while it is up");
        client.kill();
        sleep(Duration::from_millis(300));
        assert_eq!(leaked(), [""; 0], "while it is dead");
        let client = up("");
        assert_eq!(leaked(), [""; 0], "when it is back");
        assert_eq!(client.terminate(), Some(0));
        assert_eq!(leaked(), [""; 0], "when it was stopped");
        let times = talker.stop();
        assert!(times > 10, "it spoke {times} times: too little to show anything");
        // Not even to the gateway, except for the tunnel itself.
        capture.take();
        speak_once();
        assert_eq!(capture.take(), [""; 0]);

        lab.rove("client", "down").ok();
        assert_open();
    });
}

/// Asks the way every program does, by the C library and resolv.conf.
fn getent(name: &str) -> Ran {
    let mut command = on("client", "getent");
    command.args(["ahostsv4", name]);
    Ran::of(output(command))
}

#[test]
fn no_query_leaves_beside_the_tunnel() {
    in_namespace("no_query_leaves_beside_the_tunnel", || {
        need_program("names", "getent");
        own_etc();
        let lab = Lab::new("names");
        let line = "gateway init --endpoint 192.0.2.1:4500 --network 10.77.0.0/24,fd77::/64";
        lab.rove("gateway", &format!("{line} --dns 10.77.0.1")).ok();
        let config = lab.home("gateway").join("gateway.toml");
        edit(&config, "nat = true", "nat = false");
        sh("ip -n router addr add 192.0.2.53/32 dev lo");
        let mut gateway = lab.gateway();
        let outside = serve_names("router", OUTSIDE_SERVER, Ipv4Addr::new(192, 0, 2, 66));
        let capture = Capture::start("client");
        let queries = || -> Vec<String> {
            let seen = capture.take().into_iter();
            seen.filter(|what| what.ends_with(":53")).collect()
        };
        // Without a tunnel it is the outside server, and the capture sees it.
        assert!(getent("before.example").ok().contains("192.0.2.66"));
        assert_eq!(outside.take(), ["before.example"]);
        assert_eq!(queries(), [format!("udp {OUTSIDE_SERVER}")]);

        let invite = lab.invite("laptop");
        let mut up = format!("up {invite}");
        for server in ["10.77.0.1", "fd77::1"] {
            if server == "fd77::1" {
                assert_eq!(gateway.terminate(), Some(0));
                edit(&config, "10.77.0.1", server);
                gateway = lab.gateway();
            }
            let at = if server.contains(':') {
                format!("[{server}]:53")
            } else {
                format!("{server}:53")
            };
            let asked = serve_names("gateway", &at, Ipv4Addr::new(198, 51, 100, 7));
            lab.rove("client", &up).ok();
            assert!(getent("inside.example").ok().contains("198.51.100.7"));
            assert_eq!(asked.take(), ["inside.example"], "{server}");
            // A program with servers of its own does not get past the tunnel either.
            inside("client", speak).join().unwrap();
            assert_eq!(queries(), [""; 0], "{server}");
            assert_eq!(outside.take(), [""; 0], "{server}");
            lab.rove("client", "down").ok();
            up = "up".to_owned();
        }
        drop(gateway);
    });
}

#[test]
fn behind_a_kill_switch_only_the_gateways_name_is_asked_for_outside() {
    in_namespace("behind_a_kill_switch_only_the_gateways_name_is_asked_for_outside", || {
        need_program("the kill switch", "nft");
        need_program("names", "getent");
        own_etc();
        fs::write("/etc/hosts", "127.0.0.1 localhost\n").unwrap();
        let lab = Lab::new("names behind a kill switch");
        let line = "gateway init --endpoint vpn.example.org:4500 --network 10.77.0.0/24,fd77::/64";
        lab.rove("gateway", line).ok();
        edit(&lab.home("gateway").join("gateway.toml"), "nat = true", "nat = false");
        let gateway = lab.gateway();
        sh("ip -n router addr add 192.0.2.53/32 dev lo");
        let server = serve_names("router", OUTSIDE_SERVER, Ipv4Addr::new(192, 0, 2, 1));
        let invite = lab.invite("laptop");
        assert_eq!(gateway.terminate(), Some(0));

        // The gateway asks for its own name, too.
        server.take();
        // The client has never been there, so it knows no address.
        let client = lab.start("client", &format!("up {invite} --foreground --kill-switch"));
        wait_until("its gateway is asked for", || {
            server.take().contains(&"vpn.example.org".into())
        });
        assert_eq!(getent("other.example").code, Some(2), "an ordinary query is refused");
        assert!(!server.take().contains(&"other.example".into()));
        let _gateway = lab.gateway();
        wait_until("it carries", || lab.log("client").contains("up: 10.77.0.2"));
        client.kill();
        assert_eq!(getent("other.example").code, Some(2), "nor while it is dead");
        assert!(!server.take().contains(&"other.example".into()));
        let client = lab.start("client", "up --foreground --kill-switch");
        wait_until("it carries", || lab.log("client").contains("up: 10.77.0.2"));
        assert_eq!(client.terminate(), Some(0));
        lab.rove("client", "down").ok();
        assert!(getent("other.example").ok().contains("192.0.2.1"));
    });
}
