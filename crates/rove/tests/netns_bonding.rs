//! Several links at once: which of them carry, that what is meant for one goes by it and no other,
//! and what the rules say of them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

mod support;

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, sleep};
use std::time::Duration;

use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, eth, recv, socket_with};
use serde_json::Value;
use support::managers::Managers;
use support::netns::{
    Lab, ask_until, download, echo, in_namespace, inside, pattern, second_cable, serve_pattern, sh,
    wait_until,
};

const FILE: &str = "198.51.100.80:80";
const ECHO: &str = "198.51.100.80:7";
const LEN: usize = 3_000_000;
/// Each cable's name, and the address on it.
const FIRST: (&str, Ipv4Addr) = ("to-router", Ipv4Addr::new(203, 0, 113, 2));
const SECOND: (&str, Ipv4Addr) = ("second", Ipv4Addr::new(203, 0, 115, 2));
const TWIN: (&str, Ipv4Addr) = ("second", Ipv4Addr::new(203, 0, 113, 3));

/// A second cable of the client's into the network of the first.
fn twin_cable() {
    sh("ip -n router link add hub type bridge
        ip -n router link set hub up
        ip -n router addr flush dev to-client
        ip -n router link set to-client master hub
        ip -n router addr add 203.0.113.254/24 dev hub
        ip -n router addr add 2001:db8:c::1/64 dev hub nodad
        ip link add second netns client type veth peer name to-second netns router
        ip -n router link set to-second master hub
        ip -n router link set to-second up
        ip -n client addr add 203.0.113.3/24 dev second
        ip -n client link set second up
        ip -n client route add default via 203.0.113.254 dev second metric 600");
}

fn paths(lab: &Lab) -> Vec<Value> {
    let paths: Value = serde_json::from_str(&lab.rove("client", "paths --json").ok()).unwrap();
    paths.as_array().unwrap().clone()
}

fn status(lab: &Lab) -> Value {
    serde_json::from_str(&lab.rove("client", "status --json").ok()).unwrap()
}

/// By which links data goes, each as often as there are such paths.
fn carrying(lab: &Lab) -> Vec<String> {
    let in_use = paths(lab).into_iter().filter(|path| path["state"] == "in use");
    let mut links: Vec<String> =
        in_use.map(|path| path["link"].as_str().unwrap().to_owned()).collect();
    links.sort_unstable();
    links
}

/// What the client is told to do, and that it is up.
fn up(lab: &Lab, config: &str) {
    let home = lab.home("client");
    std::fs::create_dir_all(&home).unwrap();
    std::fs::write(home.join("client.toml"), config).unwrap();
    let invite = lab.invite("laptop");
    lab.rove("client", &format!("up {invite} --route 198.51.100.0/24")).ok();
}

fn fetch() {
    let came = download("client", FILE).unwrap();
    assert!(came == pattern(LEN), "{} bytes of {LEN}, or not those", came.len());
}

/// Which hardware addresses were seen with which of the client's addresses, on their way to the
/// gateway's port and back.
#[derive(Clone)]
struct Wires(Arc<Mutex<BTreeSet<(String, Ipv4Addr)>>>);

impl Wires {
    fn watch() -> Self {
        let seen = Self(Arc::default());
        let noted = seen.0.clone();
        let open = || {
            let (family, flags) = (AddressFamily::PACKET, SocketFlags::empty());
            socket_with(family, SocketType::RAW, flags, Some(eth::ALL)).unwrap()
        };
        let socket = inside("router", open).join().unwrap();
        thread::spawn(move || {
            let mut frame = vec![0; 1 << 16];
            loop {
                let (got, _) = recv(&socket, &mut frame[..], RecvFlags::empty()).unwrap();
                noted.lock().unwrap().extend(of_client(&frame[..got]));
            }
        });
        seen
    }

    fn take(&self) -> BTreeSet<(String, Ipv4Addr)> {
        sleep(Duration::from_millis(100));
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// The client's end of a frame with a datagram of the tunnel.
fn of_client(frame: &[u8]) -> Option<(String, Ipv4Addr)> {
    let packet = frame.get(14..)?;
    if packet.len() < 28 || packet[0] >> 4 != 4 || packet[9] != 17 {
        return None;
    }
    let port = |at: usize| u16::from_be_bytes([packet[at], packet[at + 1]]);
    let address = |at: usize| Ipv4Addr::from(*packet[at..].first_chunk::<4>().unwrap());
    let name = |hardware: &[u8]| hardware.iter().map(|b| format!("{b:02x}")).collect::<String>();
    let of_client = |address: &Ipv4Addr| matches!(address.octets(), [203, 0, 113 | 115, 2 | 3]);
    let seen = match (port(20), port(22)) {
        (_, 4_500) => (name(&frame[6..12]), address(12)),
        (4_500, _) => (name(&frame[..6]), address(16)),
        _ => return None,
    };
    of_client(&seen.1).then_some(seen)
}

fn hardware(link: &str) -> String {
    let text = sh(&format!("ip -n client -o link show {link}"));
    let found = text.split_whitespace().skip_while(|word| *word != "link/ether").nth(1);
    found.unwrap().replace(':', "")
}

/// Both cables carry, and what is for one goes by that.
fn each_by_its_own(lab: &Lab, cables: [(&str, Ipv4Addr); 2]) {
    wait_until("both links carry", || carrying(lab) == ["second", "to-router"]);
    let at_gateway = || sh("ip -n router neigh flush dev hub 2>/dev/null || true");
    at_gateway();
    let wires = Wires::watch();
    for _ in 0..4 {
        fetch();
    }
    let seen = wires.take();
    // The router's own side of a frame that it passes on has other hardware addresses.
    let ours: BTreeSet<String> = cables.iter().map(|(name, _)| hardware(name)).collect();
    let seen: BTreeSet<_> = seen.into_iter().filter(|(mac, _)| ours.contains(mac)).collect();
    let meant: BTreeSet<_> = cables.iter().map(|(name, at)| (hardware(name), *at)).collect();
    assert_eq!(seen, meant);
}

#[test]
fn what_is_meant_for_a_link_goes_by_it() {
    in_namespace("what_is_meant_for_a_link_goes_by_it", || {
        let lab = Lab::new("two links");
        second_cable();
        let _gateway = lab.gateway();
        serve_pattern("server", FILE, LEN);
        up(&lab, ""); // nobody has to say that all carry
        each_by_its_own(&lab, [FIRST, SECOND]);
        lab.rove("client", "down").ok();
    });
}

#[test]
fn two_links_of_one_network_are_told_apart() {
    in_namespace("two_links_of_one_network_are_told_apart", || {
        let lab = Lab::new("two links of one network");
        twin_cable();
        let before = lab.state_of("client");
        let _gateway = lab.gateway();
        serve_pattern("server", FILE, LEN);
        up(&lab, "[paths]\nmode = \"full\"\n");
        each_by_its_own(&lab, [FIRST, TWIN]);
        for (link, _) in [FIRST, TWIN] {
            let answers = format!("cat /proc/sys/net/ipv4/conf/{link}/arp_ignore");
            let answers = sh(&format!("nsenter --net=/run/netns/client {answers}"));
            assert_eq!(answers.trim(), "1", "{link} answers for both");
        }
        lab.rove("client", "down").ok();
        lab.becomes("client", &before);
    });
}

#[test]
fn the_first_link_and_the_first_address_may_be_dead() {
    in_namespace("the_first_link_and_the_first_address_may_be_dead", || {
        let lab = Lab::new("dead ways");
        second_cable();
        // Nothing is at the first address, and the first cable leads nowhere.
        let endpoints = "--endpoint 192.0.2.9:4500 --endpoint 192.0.2.1:4500";
        let line = format!("gateway init {endpoints} --network 10.77.0.0/24,fd77::/64");
        lab.rove("gateway", &line).ok();
        let config = lab.home("gateway").join("gateway.toml");
        support::netns::edit(&config, "nat = true", "nat = false");
        let _gateway = lab.gateway();
        serve_pattern("server", FILE, LEN);
        sh("ip -n router rule add iif to-client priority 9 blackhole
            ip -n router -6 rule add iif to-client priority 9 blackhole");
        up(&lab, "[paths]\nmode = \"full\"\nmanager = \"full-mesh\"\n");
        wait_until("one link carries", || carrying(&lab) == ["second"]);
        fetch();
        sh("ip -n router rule del priority 9; ip -n router -6 rule del priority 9");
        wait_until("it carries as soon as it can", || {
            fetch();
            // Whether by one address of the gateway or by both.
            BTreeSet::from_iter(carrying(&lab)).len() == 2
        });
        lab.rove("client", "down").ok();
    });
}

#[test]
fn links_come_and_go_and_carry_within_two_seconds() {
    in_namespace("links_come_and_go_and_carry_within_two_seconds", || {
        let lab = Lab::new("links that come and go");
        let _gateway = lab.gateway();
        serve_pattern("server", FILE, LEN);
        up(&lab, "[paths]\nmode = \"full\"\nsubflows = 2\n");
        wait_until("two paths", || carrying(&lab) == ["to-router"; 2]);
        let fetching = thread::spawn(|| (0..12).for_each(|_| fetch()));
        second_cable();
        let all = ["second", "second", "to-router", "to-router"];
        wait_until("the new link carries", || carrying(&lab) == all);
        sh("ip -n client link set to-router down");
        wait_until("the other carries alone", || carrying(&lab) == ["second"; 2]);
        fetching.join().unwrap();
        sh("ip -n client link set to-router up
            ip -n client route add default via 203.0.113.254");
        wait_until("it is back", || carrying(&lab) == all);
        assert_eq!(lab.rove("client", "set subflows 1").ok(), "subflows 1\n");
        wait_until("fewer", || carrying(&lab) == ["second", "to-router"]);
        assert_eq!(lab.rove("client", "set mode single").ok(), "mode single\n");
        wait_until("one", || paths(&lab).len() == 1);
        fetch();
        lab.rove("client", "down").ok();
    });
}

#[test]
fn rules_say_which_links_carry() {
    in_namespace("rules_say_which_links_carry", || {
        let lab = Lab::new("rules");
        second_cable();
        let _gateway = lab.gateway();
        serve_pattern("server", FILE, LEN);
        let rule = "[[link]]\nname = \"sec*\"\nuse = \"never\"\n";
        up(&lab, rule);
        let wires = Wires::watch();
        fetch();
        assert!(wires.take().iter().all(|(_, at)| *at == FIRST.1), "nothing goes by the other");
        assert_eq!(paths(&lab).len(), 1);
        let links = |lab: &Lab| status(lab)["links"].clone();
        assert_eq!(links(&lab)[1]["use"], "never", "{}", links(&lab));
        lab.rove("client", "set link.second.use backup").ok();
        wait_until("it stands by", || {
            let paths = paths(&lab);
            let other = paths.iter().find(|path| path["link"] == "second");
            other.is_some_and(|path| path["state"] == "standby" && path["link_use"] == "backup")
        });
        fetch();
        assert_eq!(carrying(&lab), ["to-router"]);
        lab.rove("client", "set link.second.use always").ok();
        wait_until("both", || carrying(&lab) == ["second", "to-router"]);
        lab.rove("client", "set link.to-router.cost 5").ok();
        wait_until("the cheaper is the first", || links(&lab)[0]["name"] == "second");
        lab.rove("client", "set link.to-router.metered yes").ok();
        wait_until("metered is for backup", || carrying(&lab) == ["second"]);
        assert_eq!(links(&lab)[1]["why"], "it is metered");
        lab.rove("client", "reload").ok();
        wait_until("as the file says", || carrying(&lab) == ["to-router"]);
        for wrong in ["link.second.use sometimes", "link.second.speed 1", "second.use never"] {
            assert_eq!(lab.rove("client", &format!("set {wrong}")).code, Some(2), "{wrong}");
        }
        lab.rove("client", "down").ok();
    });
}

#[test]
fn what_the_network_manager_says_of_a_link_counts() {
    in_namespace("what_the_network_manager_says_of_a_link_counts", || {
        let [metered, free, at_home, roaming] = [1, 2, 1, 5];
        let lab = Lab::new("what managers say");
        let managers = Managers::start("second", metered, at_home);
        second_cable();
        let _gateway = lab.gateway();
        up(&lab, "[[link]]\nroaming = true\nuse = \"never\"\n");
        let second = || {
            let links = status(&lab)["links"].clone();
            let link = links.as_array().unwrap().iter().find(|link| link["name"] == "second");
            link.map(|link| (link["use"].clone(), link["metered"].clone(), link["why"].clone()))
        };
        let is = |told: (&str, bool, Value)| Some((told.0.into(), told.1.into(), told.2));
        let stands_by = is(("backup", true, "it is metered".into()));
        wait_until("what is metered stands by", || second() == stands_by);
        wait_until("and does not carry", || carrying(&lab) == ["to-router"]);
        // They are asked again when the links change.
        let replugged = || {
            sh("ip -n client link set second down
                ip -n client link set second up
                ip -n client route replace default via 203.0.115.254 metric 600");
        };
        managers.metered.store(free, Ordering::Release);
        replugged();
        wait_until("it costs nothing", || second() == is(("always", false, Value::Null)));
        wait_until("and carries", || carrying(&lab) == ["second", "to-router"]);
        managers.registration.store(roaming, Ordering::Release);
        replugged();
        let ruled = is(("never", false, "a rule says so".into()));
        wait_until("what roams obeys its rule", || second() == ruled);
        wait_until("and carries nothing", || carrying(&lab) == ["to-router"]);
        lab.rove("client", "down").ok();
    });
}

/// What an end says of its connection with this port at the far end: which level it has, and how
/// its way was chosen.
fn told_of(lab: &Lab, host: &str, command: &str, port: u16) -> Option<(u64, String)> {
    let told: Value = serde_json::from_str(&lab.rove(host, command).ok()).unwrap();
    let of = |end: &Value| end.as_str().is_some_and(|end| end.ends_with(&format!(":{port}")));
    let flows = told["flows"].as_array().unwrap();
    let flow = flows.iter().find(|flow| of(&flow["local"]) || of(&flow["remote"]))?;
    Some((flow["level"].as_u64().unwrap(), flow["chosen"].as_str().unwrap_or_default().to_owned()))
}

#[test]
fn what_is_wanted_early_and_what_is_preferred_is_read_and_read_again() {
    in_namespace("what_is_wanted_early_and_what_is_preferred_is_read_and_read_again", || {
        let lab = Lab::new("early and preferred");
        second_cable();
        let _gateway = lab.gateway();
        let early = "[qos]\nlow_latency = [\"198.51.100.80:7\"]\n";
        up(&lab, &format!("{early}priority = {{ \"198.51.100.80\" = 1 }}\n"));
        wait_until("two paths", || carrying(&lab) == ["second", "to-router"]);
        let enough = Arc::new(AtomicBool::new(false));
        echo("server", ECHO);
        let asks = ask_until(&enough, ECHO, Duration::from_millis(10));
        // Both ends are to know: what comes back goes by the same path.
        let ends = [("client", "flows --json"), ("gateway", "gateway flows --json")];
        for (host, command) in ends {
            wait_until(&format!("it is early at the {host}"), || {
                told_of(&lab, host, command, 7).is_some_and(|(_, chosen)| {
                    chosen == "the path that has it there first, whatever the scheduler"
                })
            });
        }
        assert_eq!(told_of(&lab, "client", "flows --json", 7).unwrap().0, 1);
        let config = "[qos]\npriority = { \"198.51.100.80:7\" = 3 }\n";
        std::fs::write(lab.home("client").join("client.toml"), config).unwrap();
        lab.rove("client", "reload").ok();
        for (host, command) in ends {
            wait_until(&format!("it is not any more at the {host}"), || {
                told_of(&lab, host, command, 7)
                    .is_some_and(|(_, chosen)| chosen.starts_with("scheduler earliest"))
            });
        }
        assert_eq!(told_of(&lab, "client", "flows --json", 7).unwrap().0, 3);
        enough.store(true, Ordering::Release);
        asks.join().unwrap();
        lab.rove("client", "down").ok();
    });
}

#[test]
fn a_cap_ends_the_use_of_a_link_and_survives_a_crash() {
    in_namespace("a_cap_ends_the_use_of_a_link_and_survives_a_crash", || {
        let lab = Lab::new("a cap");
        second_cable();
        let _gateway = lab.gateway();
        serve_pattern("server", FILE, LEN);
        let cap = "[[link]]\nname = \"to-router\"\ncap = \"2MB/day\"\n";
        up(&lab, &format!("[paths]\nmode = \"backup\"\n{cap}"));
        assert_eq!(carrying(&lab), ["to-router"]);
        fetch();
        wait_until("its cap is reached", || carrying(&lab) == ["second"]);
        let told = status(&lab)["links"].clone();
        let of_first = told.as_array().unwrap().iter().find(|link| link["name"] == "to-router");
        let of_first = of_first.unwrap();
        assert_eq!(
            (&of_first["use"], &of_first["why"]),
            (&"never".into(), &"its cap is reached".into())
        );
        assert!(of_first["used_bytes"].as_u64().unwrap() >= 2_000_000, "{of_first}");
        let text = lab.rove("client", "status").ok();
        assert!(text.contains("to-router (never, ") && text.contains("of 2MB/day"), "{text}");
        fetch();
        let (is_up, state) = (lab.rove("client", "up --route 198.51.100.0/24"), "process ");
        let said = is_up.fails();
        let process = said.split_once(state).unwrap().1.split(')').next().unwrap();
        sh(&format!("kill -9 {process}"));
        lab.rove("client", "up --route 198.51.100.0/24").ok();
        wait_until("it is remembered", || carrying(&lab) == ["second"]);
        lab.rove("client", "set link.to-router.at-cap backup").ok();
        let by_first = |path: &Value| path["link"] == "to-router";
        wait_until("it stands by", || paths(&lab).iter().any(by_first));
        assert_eq!(carrying(&lab), ["second"]);
        lab.rove("client", "set link.to-router.cap none").ok();
        wait_until("no cap", || carrying(&lab) == ["to-router"]);
        lab.rove("client", "down").ok();
    });
}
