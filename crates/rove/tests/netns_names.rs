//! Names: the gateway's own, and those that are asked for through the tunnel.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

mod support;

use std::fs;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use support::names::{serve_names, serve_zone};
use support::netns::{
    Lab, Running, download, edit, in_namespace, inside, own_etc, pattern, serve_pattern, sh,
    wait_until,
};

const WEB: &str = "198.51.100.80:80";

const HOSTS: &str = "127.0.0.1 localhost\n192.0.2.1 vpn.example.org\n";

const RESOLV_CONF: &str = "/etc/resolv.conf";

fn resolv_conf() -> String {
    fs::read_to_string(RESOLV_CONF).unwrap()
}

/// A gateway that is reached by name.
fn init(lab: &Lab, more: &str) {
    let line = "gateway init --endpoint vpn.example.org:4500 --network 10.77.0.0/24,fd77::/64";
    lab.rove("gateway", &format!("{line} {more}")).ok();
    edit(&lab.home("gateway").join("gateway.toml"), "nat = true", "nat = false");
}

#[test]
fn the_tunnels_name_servers_are_asked_while_it_is_up() {
    in_namespace("the_tunnels_name_servers_are_asked_while_it_is_up", || {
        own_etc();
        fs::write("/etc/hosts", HOSTS).unwrap();
        let lab = Lab::new("DNS");
        init(&lab, "--dns 10.77.0.1 fd77::1");
        let _gateway = lab.gateway();
        let before = resolv_conf();
        let invite = lab.invite("laptop");
        lab.rove("client", &format!("up {invite}")).ok();
        let inside = resolv_conf();
        assert!(inside.contains("nameserver 10.77.0.1\nnameserver fd77::1\n"), "{inside}");
        assert!(!inside.contains("\nnameserver 192.0.2.53"), "{inside}");
        let status = lab.rove("client", "status").ok();
        assert!(status.contains("dns          10.77.0.1,fd77::1"), "{status}");
        lab.rove("client", "down").ok();
        assert_eq!(resolv_conf(), before);

        // With chosen routes every name is asked where it was asked before.
        lab.rove("client", "up --route 198.51.100.0/24").ok();
        assert_eq!(resolv_conf(), before);
        lab.rove("client", "down").ok();

        // A crash leaves the tunnel's servers, and the next start, or `down`, sweeps them.
        let client = lab.start("client", "up --foreground");
        wait_until("it carries", || lab.log("client").contains("up: 10.77.0.2"));
        client.kill();
        assert_eq!(resolv_conf(), inside);
        lab.rove("client", "down").ok();
        assert_eq!(resolv_conf(), before);
    });
}

/// The first address that a program on the client finds for a name.
fn lookup(name: &str) -> String {
    sh(&format!(
        "nsenter --net=/run/netns/client timeout 20 getent ahostsv4 {name} |
            awk 'NR == 1 {{ print $1 }}'"
    ))
    .trim()
    .to_owned()
}

const CORP: [(&str, &str); 2] =
    [("intranet.corp.example", "10.20.0.9"), ("long.corp.example", "10.20.0.10")];

/// A client whose local network has a name server at 203.0.113.254, and a gateway with another.
fn split_lab(what: &str) -> (Lab, Running, String, PathBuf) {
    own_etc();
    fs::write("/etc/hosts", HOSTS).unwrap();
    let options = "options timeout:1 attempts:2";
    fs::write(RESOLV_CONF, format!("nameserver 203.0.113.254\nsearch lan.example\n{options}\n"))
        .unwrap();
    let lab = Lab::new(what);
    init(&lab, "--dns 10.77.0.1");
    let gateway = lab.gateway();
    let invite = lab.invite("laptop");
    let config = lab.home("client").join("client.toml");
    fs::create_dir(lab.home("client")).unwrap();
    let route = "[client]\nroute = [\"198.51.100.0/24\"]\n";
    fs::write(&config, format!("{route}domains = [\"corp.example\"]\n")).unwrap();
    (lab, gateway, invite, config)
}

#[test]
fn names_are_split_without_systemd_resolved() {
    in_namespace("names_are_split_without_systemd_resolved", || {
        let (lab, gateway, invite, _) = split_lab("split DNS");
        let inside = serve_zone("gateway", "10.77.0.1:53", &CORP);
        let outside = [("www.example.com", "192.0.2.80"), ("long.example.com", "192.0.2.81")];
        let local = serve_zone("router", "203.0.113.254:53", &outside);
        // Another resolver of this host, which keeps its address.
        let other = serve_zone("client", "127.0.0.77:53", &[("mine.example.com", "192.0.2.82")]);
        let before = resolv_conf();
        let up = lab.rove("client", &format!("up {invite}"));
        assert_eq!(up.err, "");
        up.ok();
        let text = resolv_conf();
        let kept = "nameserver 127.0.0.78\nsearch lan.example\noptions timeout:1 attempts:2\n";
        assert!(text.contains(kept), "{text}");
        let status = lab.rove("client", "status").ok();
        assert!(status.contains("dns          10.77.0.1"), "{status}");

        // Long names are asked for twice, over UDP and over TCP.
        for (name, address) in CORP.into_iter().chain([("INTRANET.Corp.example", "10.20.0.9")]) {
            assert_eq!(lookup(name), address);
        }
        assert!(inside.take().iter().all(|name| name.ends_with("corp.example")));
        let is_leaked = |name: &String| name.ends_with("corp.example");
        assert!(!local.take().iter().any(is_leaked));
        for (name, address) in outside {
            assert_eq!(lookup(name), address);
        }
        assert_eq!(lookup("printer"), "");
        assert!(local.take().contains(&"printer.lan.example".to_owned()));
        assert_eq!(inside.take(), [""; 0], "the gateway hears no other name");
        assert_eq!(other.take(), [""; 0]);

        // Without the gateway, its names are not asked for elsewhere.
        gateway.kill();
        assert_eq!(lookup("intranet.corp.example"), "");
        assert_eq!(lookup("www.example.com"), "192.0.2.80");
        assert!(!local.take().iter().any(is_leaked));
        lab.rove("client", "down").ok();
        assert_eq!(resolv_conf(), before);
    });
}

/// The C library gives up after two seconds here, as `options timeout:1 attempts:2` asks.
#[test]
fn split_names_reach_ipv6_servers_and_the_next_one_after_a_lost_answer() {
    in_namespace("split_names_reach_ipv6_servers_and_the_next_one_after_a_lost_answer", || {
        let (lab, _gateway, invite, _) = split_lab("split DNS over IPv6");
        let _inside = serve_zone("gateway", "10.77.0.1:53", &CORP);
        let outside = [("www.example.com", "192.0.2.80"), ("long.example.com", "192.0.2.81")];
        sh("ip -n router addr add fe80::53/64 dev to-client nodad
            ip -n router addr add 2001:db8:c::53/64 dev to-client nodad");
        let link = sh("ip -n router -o link show to-client | cut -d: -f1");
        let at_link = format!("[fe80::53%{}]:53", link.trim());
        let reached = ["[2001:db8:c::53]:53", &at_link];
        let reached = reached.map(|address| serve_zone("router", address, &outside));
        // A server that hears every query and whose answers are lost.
        let lost = "nft 'add table ip lost; add chain ip lost out { type filter hook output \
            priority 0; }; add rule ip lost out ip saddr 203.0.113.254 udp sport 53 drop'";
        sh(&format!("nsenter --net=/run/netns/router {lost}"));
        let silent = serve_zone("router", "203.0.113.254:53", &outside);
        lab.rove("client", &format!("up {invite}")).ok();
        let options = "options timeout:1 attempts:2\n";
        for servers in [
            "nameserver 203.0.113.254\nnameserver 2001:db8:c::53\n",
            "nameserver 2001:db8:c::53\n",
            "nameserver fe80::53%to-router\n",
        ] {
            fs::write(RESOLV_CONF, format!("{servers}{options}")).unwrap();
            wait_until("it is ours again", || resolv_conf().contains("nameserver 127.0.0.77\n"));
            wait_until("the new servers are asked", || lookup("long.example.com") == "192.0.2.81");
            for (name, address) in outside {
                let began = Instant::now();
                assert_eq!(lookup(name), address, "{servers}");
                assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
            }
            let is_asked = reached.iter().any(|server| !server.take().is_empty());
            assert!(is_asked, "{servers}");
        }
        assert!(!silent.take().is_empty(), "the first server was asked first");

        // A program asks what nobody answers, until the forwarder has no room for more.
        fs::write(RESOLV_CONF, format!("nameserver 203.0.113.254\n{options}")).unwrap();
        wait_until("it is ours again", || resolv_conf().contains("nameserver 127.0.0.77\n"));
        std::thread::sleep(Duration::from_secs(1));
        silent.take();
        inside("client", || {
            let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            for number in 0..1_000 {
                let head = b"\x00\x07\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x05";
                let name = format!("a{number:04}");
                let query = [&head[..], name.as_bytes(), b"\x00\x00\x01\x00\x01"].concat();
                socket.send_to(&query, "127.0.0.77:53").unwrap();
                if number % 50 == 0 {
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
        })
        .join()
        .unwrap();
        assert_eq!(lookup("intranet.corp.example"), "10.20.0.9");
        assert!(silent.take().len() > 256, "there was room for all of them");
        lab.rove("client", "down").ok();
    });
}

#[test]
fn split_names_follow_a_move_and_a_crash() {
    in_namespace("split_names_follow_a_move_and_a_crash", || {
        let (lab, _gateway, invite, config) = split_lab("split DNS that moves");
        let _inside = serve_zone("gateway", "10.77.0.1:53", &CORP);
        sh("ip -n router addr add 203.0.113.253/24 dev to-client");
        let _here = serve_names("router", "203.0.113.254:53", Ipv4Addr::new(192, 0, 2, 80));
        let _there = serve_names("router", "203.0.113.253:53", Ipv4Addr::new(192, 0, 2, 90));
        lab.rove("client", &format!("up {invite}")).ok();
        assert_eq!(lookup("www.example.com"), "192.0.2.80");
        // A DHCP client writes the server of another network.
        let moved = "nameserver 203.0.113.253\noptions timeout:1\n";
        fs::write(RESOLV_CONF, moved).unwrap();
        let is_ours = || resolv_conf().contains("nameserver 127.0.0.77\noptions timeout:1\n");
        wait_until("it is ours again", is_ours);
        wait_until("the new server is asked", || lookup("www.example.com") == "192.0.2.90");
        assert_eq!(lookup("intranet.corp.example"), "10.20.0.9");
        lab.rove("client", "down").ok();
        assert_eq!(resolv_conf(), moved);

        // After a crash, `up` takes the forwarder over, and `down` restores the file.
        for next in ["up", "down"] {
            lab.rove("client", "up").ok();
            let pid = fs::read_to_string(lab.home("client").join("client.state/lock")).unwrap();
            sh(&format!("kill -KILL {}", pid.trim()));
            lab.rove("client", next).ok();
            assert_eq!(lookup("www.example.com"), "192.0.2.90", "after {next}");
            lab.rove("client", "down").ok();
            assert_eq!(resolv_conf(), moved);
        }

        // Without domains nothing is split, and the file stays.
        fs::write(&config, "[client]\nroute = [\"198.51.100.0/24\"]\n").unwrap();
        lab.rove("client", "up").ok();
        assert_eq!(resolv_conf(), moved);
        fs::write(&config, "[client]\nroute = [\"::1/128\"]\ndomains = [\"corp example\"]\n")
            .unwrap();
        let error = lab.rove("client", "reload").fails();
        assert!(error.contains("client.toml:3: client.domains: \"corp example\" is no"), "{error}");
        lab.rove("client", "down").ok();
    });
}

#[test]
fn names_are_not_split_if_another_server_has_every_address() {
    in_namespace("names_are_not_split_if_another_server_has_every_address", || {
        let (lab, _gateway, invite, _) = split_lab("no room for split DNS");
        let _other = serve_names("client", "0.0.0.0:53", Ipv4Addr::new(192, 0, 2, 80));
        let before = resolv_conf();
        let up = lab.rove("client", &format!("up {invite}"));
        assert!(up.err.contains("Rove cannot listen for DNS queries"), "{}", up.err);
        up.ok();
        assert_eq!(resolv_conf(), before);
        let status = lab.rove("client", "status --json").ok();
        let status: serde_json::Value = serde_json::from_str(&status).unwrap();
        assert_eq!(status["dns"], serde_json::json!([]));
        let way = |to: &str| sh(&format!("ip -n client route get {to}"));
        assert!(way("10.77.0.1").contains("dev rove0"), "the way to it is the tunnel");
        lab.rove("client", "down").ok();
    });
}

#[test]
fn a_gateway_is_found_by_name_and_without_it_where_it_was_last() {
    in_namespace("a_gateway_is_found_by_name_and_without_it_where_it_was_last", || {
        own_etc();
        fs::write("/etc/hosts", HOSTS).unwrap();
        let lab = Lab::new("the gateway's name");
        init(&lab, "");
        // A gateway tells all its addresses, and its IPv6 one does not move here.
        sh("ip -n client -6 addr flush dev to-router scope global");
        let _gateway = lab.gateway();
        let invite = lab.invite("laptop");
        lab.rove("client", &format!("up {invite}")).ok();
        lab.rove("client", "down").ok();

        // No name server answers any more; nobody waits for it.
        fs::write("/etc/hosts", "127.0.0.1 localhost\n").unwrap();
        let began = Instant::now();
        lab.rove("client", "up").ok();
        assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
        lab.rove("client", "down").ok();

        // The gateway moved, and the name knows it while the last good address is dead.
        sh("ip -n gateway addr del 192.0.2.1/24 dev to-router
            ip -n gateway addr add 192.0.2.7/24 dev to-router
            ip -n gateway route replace default via 192.0.2.254 dev to-router");
        fs::write("/etc/hosts", "127.0.0.1 localhost\n192.0.2.7 vpn.example.org\n").unwrap();
        lab.rove("client", "up").ok();
        let paths = lab.rove("client", "paths").ok();
        assert!(paths.contains("192.0.2.7:4500"), "{paths}");
        lab.rove("client", "down").ok();
    });
}

#[test]
fn both_ends_move_at_once_and_the_name_brings_them_together() {
    in_namespace("both_ends_move_at_once_and_the_name_brings_them_together", || {
        own_etc();
        fs::write("/etc/hosts", HOSTS).unwrap();
        let lab = Lab::new("both ends");
        init(&lab, "");
        sh("ip -n client -6 addr flush dev to-router scope global");
        let _gateway = lab.gateway();
        serve_pattern("server", WEB, 100_000);
        let invite = lab.invite("laptop");
        lab.rove("client", &format!("up {invite} --route 198.51.100.0/24")).ok();
        let inner = |lab: &Lab| lab.rove("client", "status").ok();
        let before = inner(&lab);

        sh("ip -n client addr del 203.0.113.2/24 dev to-router
            ip -n gateway addr del 192.0.2.1/24 dev to-router
            ip -n gateway addr add 192.0.2.7/24 dev to-router
            ip -n gateway route replace default via 192.0.2.254 dev to-router");
        wait_until("it is told", || inner(&lab).contains("no link can be used: "));
        sh("ip -n client addr add 203.0.113.3/24 dev to-router
            ip -n client route replace default via 203.0.113.254 dev to-router");
        // The name does not know yet: the client goes on asking, and says where.
        wait_until("it asks", || inner(&lab).contains("asking the gateway at "));
        fs::write("/etc/hosts", HOSTS.replace("192.0.2.1", "192.0.2.7")).unwrap();
        wait_until("they found each other", || {
            lab.rove("client", "paths").ok().contains("192.0.2.7:4500")
                && inner(&lab).contains("state        up")
        });
        assert!(download("client", WEB).unwrap() == pattern(100_000));
        let line = |status: &str| {
            status.lines().find(|line| line.starts_with("inner")).unwrap().to_owned()
        };
        assert_eq!(line(&inner(&lab)), line(&before), "the inner addresses stay");
        lab.rove("client", "down").ok();
    });
}

/// The name was asked for a moment ago, when the client started; a move is a reason to ask again.
#[test]
fn a_move_asks_for_the_name_again_however_short_ago_it_was_asked_for() {
    in_namespace("a_move_asks_for_the_name_again_however_short_ago_it_was_asked_for", || {
        own_etc();
        fs::write("/etc/hosts", HOSTS).unwrap();
        let lab = Lab::new("both ends, at once");
        init(&lab, "");
        sh("ip -n client -6 addr flush dev to-router scope global
            ip -n gateway -6 addr flush dev to-router scope global");
        let _gateway = lab.gateway();
        let invite = lab.invite("laptop");
        lab.rove("client", &format!("up {invite} --route 198.51.100.0/24")).ok();
        fs::write("/etc/hosts", HOSTS.replace("192.0.2.1", "192.0.2.7")).unwrap();
        sh("ip -n gateway addr del 192.0.2.1/24 dev to-router
            ip -n gateway addr add 192.0.2.7/24 dev to-router
            ip -n gateway route replace default via 192.0.2.254 dev to-router
            printf '%s\\n' 'addr del 203.0.113.2/24 dev to-router' \
                'addr add 203.0.113.3/24 dev to-router' \
                'route replace default via 203.0.113.254' | ip -n client -batch -");
        let moved = Instant::now();
        wait_until("they found each other", || {
            let paths = lab.rove("client", "paths").ok();
            paths.contains("192.0.2.7:4500")
                && lab.rove("client", "status").ok().contains("state        up")
        });
        // Not when five seconds are over since the start.
        assert!(moved.elapsed() < Duration::from_millis(2_500), "{:?}", moved.elapsed());
        lab.rove("client", "down").ok();
    });
}

#[test]
fn a_gateway_whose_name_does_not_resolve_tells_what_it_stood_for() {
    in_namespace("a_gateway_whose_name_does_not_resolve_tells_what_it_stood_for", || {
        own_etc();
        // Something in front of the gateway has the address that the name stands for.
        fs::write("/etc/hosts", HOSTS.replace("192.0.2.1", "203.0.113.99")).unwrap();
        let lab = Lab::new("a name that is lost");
        init(&lab, "");
        let _gateway = lab.gateway();
        let announced = || {
            let status = lab.rove("gateway", "gateway status --json").ok();
            let status: serde_json::Value = serde_json::from_str(&status).unwrap();
            status["announced"].to_string()
        };
        wait_until("the name resolves", || announced().starts_with("[\"203.0.113.99:4500\""));
        fs::write("/etc/hosts", "127.0.0.1 localhost\n").unwrap();
        sh("ip -n gateway addr add 192.0.2.8/24 dev to-router");
        wait_until("the link is told of", || announced().contains("192.0.2.8:4500"));
        wait_until("the name is asked for", || lab.log("gateway").contains("does not resolve"));
        assert!(announced().starts_with("[\"203.0.113.99:4500\""), "{}", announced());
        fs::write("/etc/hosts", HOSTS.replace("192.0.2.1", "203.0.113.98")).unwrap();
        sh("ip -n gateway addr del 192.0.2.8/24 dev to-router");
        wait_until("it is asked for again", || announced().contains("203.0.113.98:4500"));
        assert!(!announced().contains("203.0.113.99"), "{}", announced());
    });
}
