//! A client whose uplink is a bridge with other machines on it, as virtual machines have it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

mod support;

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use support::capture::Capture;
use support::netns::{
    Lab, Running, download, in_namespace, inside, need_program, pattern, serve_pattern, sh, skip,
    wait_until,
};

const WEB: [&str; 2] = ["198.51.100.80:80", "[2001:db8:b::2]:80"];
const TUNNEL: [&str; 2] = ["udp 192.0.2.1:4500", "udp [2001:db8:a::2]:4500"];

/// The machine on the bridge, as if it were for other peers.
const ADVERTISED: &str = "--advertise 203.0.113.9/32 --advertise 2001:db8:c::9/128";

/// Whether the server's fragmented datagrams reach the machine.
fn fragments_arrive() -> bool {
    ["203.0.113.9:9", "[2001:db8:c::9]:9"].into_iter().all(|to| {
        let to: SocketAddr = to.parse().unwrap();
        let receiver = inside("machine", move || UdpSocket::bind(to).unwrap()).join().unwrap();
        receiver.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        let from = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let sender = inside("server", move || UdpSocket::bind(from).unwrap()).join().unwrap();
        (0..10).any(|_| {
            sender.send_to(&[7; 4_000], to).unwrap();
            receiver.recv(&mut [0; 5_000]).is_ok_and(|len| len == 4_000)
        })
    })
}

fn set(name: &str, value: &str) {
    let file = format!("/proc/sys/net/{name}");
    sh(&format!("nsenter --net=/run/netns/client sh -c 'echo {value} > {file}'"));
}

/// Makes the client's cable a port of a bridge, beside a machine with an address of the LAN. The
/// kernel's packet filters see what the bridge passes on, as container engines set it.
fn bridge() {
    sh("mac=$(ip -n client -o link show to-router | sed 's/.*ether \\([^ ]*\\).*/\\1/')
        ip -n client link add br0 address $mac type bridge
        ip -n client addr flush dev to-router
        ip -n client link set to-router master br0
        ip -n client addr add 203.0.113.2/24 dev br0
        ip -n client addr add 2001:db8:c::2/64 dev br0 nodad
        ip -n client link set br0 up
        ip -n client route add default via 203.0.113.254
        ip -n client -6 route replace default via 2001:db8:c::1 dev br0
        ip netns add machine && ip -n machine link set lo up
        ip link add eth0 netns machine type veth peer name vnet0 netns client
        ip -n client link set vnet0 master br0 up
        ip -n machine addr add 203.0.113.9/24 dev eth0
        ip -n machine addr add 2001:db8:c::9/64 dev eth0 nodad
        ip -n machine link set eth0 up
        ip -n machine route add default via 203.0.113.254
        ip -n machine route add default via 2001:db8:c::1");
    set("bridge/bridge-nf-call-iptables", "1");
    set("bridge/bridge-nf-call-ip6tables", "1");
}

/// The machine sends by this host instead of the router.
fn by_this_host(routed: bool) {
    let via =
        if routed { ["203.0.113.2", "2001:db8:c::2"] } else { ["203.0.113.254", "2001:db8:c::1"] };
    for via in via {
        sh(&format!("ip -n machine route replace default via {via}"));
    }
    for setting in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
        set(setting, if routed { "1" } else { "0" });
    }
}

fn up(lab: &Lab, options: &str) -> Running {
    let client = lab.start("client", &format!("up --foreground {options}"));
    wait_until("it carries", || lab.log("client").contains("up: 10.77.0.2"));
    client
}

#[test]
fn machines_on_the_uplink_bridge_keep_their_network() {
    in_namespace("machines_on_the_uplink_bridge_keep_their_network", || {
        need_program("the guard", "nft");
        if !std::path::Path::new("/proc/sys/net/bridge/bridge-nf-call-iptables").exists() {
            return skip("an uplink bridge", "this kernel has no br_netfilter");
        }
        let lab = Lab::new("an uplink bridge");
        let _gateway = lab.gateway();
        WEB.iter().for_each(|web| drop(serve_pattern("server", web, 100_000)));
        let cable = Capture::start("client");
        bridge();
        let works = |host: &str| {
            WEB.iter().all(|web| download(host, web).is_ok_and(|got| got == pattern(100_000)))
        };
        wait_until("the machine has a network", || works("machine"));
        let invite = lab.invite("laptop");
        lab.rove("client", &format!("up {invite}")).ok();
        lab.rove("client", "down").ok();
        for (options, strict) in
            [(ADVERTISED, "0"), ("", "1"), ("--kill-switch", "1"), ("--allow-lan", "0")]
        {
            set("ipv4/conf/br0/rp_filter", strict);
            let client = up(&lab, options);
            assert!(works("machine"), "{options:?}, rp_filter {strict}");
            assert!(works("client"), "{options:?}");
            assert!(fragments_arrive(), "{options:?}");
            // What this host routes, not bridges, does not leave if the rules are gone.
            by_this_host(true);
            drop(cable.take());
            sh("ip -n client rule del pref 5191; ip -n client -6 rule del pref 5191");
            works("machine");
            let mut leaked = cable.take();
            leaked.retain(|what| !TUNNEL.contains(&what.as_str()));
            assert_eq!(leaked, [""; 0], "{options:?}");
            by_this_host(false);
            assert_eq!(client.terminate(), Some(0));
            lab.rove("client", "down");
        }
    });
}
