//! What carries the tunnel by several links: MPTCP, with the kernel's subflows, and what is there
//! where an end has none; a stream by each link; and UDP by one beside a stream by another.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

mod support;

use std::thread;

use serde_json::Value;
use support::netns::{
    Lab, Running, download, in_namespace, pattern, second_cable, serve_pattern, sh, wait_until,
};

const FILE: &str = "198.51.100.80:80";
const LEN: usize = 20_000_000;
/// What a link has to carry of it to be one of those that carry.
const PART: u64 = 200_000;
const MPTCP: &str = "[paths]\nmode = \"full\"\ntransport = \"mptcp\"\n";

fn paths(lab: &Lab) -> Vec<Value> {
    let paths: Value = serde_json::from_str(&lab.rove("client", "paths --json").ok()).unwrap();
    paths.as_array().unwrap().clone()
}

fn status(lab: &Lab) -> Value {
    serde_json::from_str(&lab.rove("client", "status --json").ok()).unwrap()
}

/// By which links each stream has subflows. There may be several streams: in mode `full` each link
/// has one of its own, and a link with IPv6 one more that stands by.
fn subflows(lab: &Lab) -> Vec<Vec<String>> {
    let of_path = |path: &Value| {
        let subflows = path["subflows"].as_array().into_iter().flatten();
        let link = |it: &Value| it["link"].as_str().unwrap_or("unknown").to_owned();
        let mut links: Vec<String> = subflows.map(link).collect();
        links.sort_unstable();
        links
    };
    paths(lab).iter().map(of_path).collect()
}

/// Whether a stream has subflows by both links.
fn goes_by_both(lab: &Lab) -> bool {
    subflows(lab).iter_mut().any(|links| {
        links.dedup();
        *links == ["second", "to-router"]
    })
}

/// Whether no stream has a subflow by any other link.
fn goes_by_alone(lab: &Lab, link: &str) -> bool {
    let subflows = subflows(lab);
    !subflows.is_empty() && subflows.iter().flatten().all(|by| by == link)
}

/// What the client's card has received, in bytes.
fn received(card: &str) -> u64 {
    let file = format!("/sys/class/net/{card}/statistics/rx_bytes");
    sh(&format!("ip netns exec client cat {file}")).trim().parse().unwrap()
}

/// The endpoints and limits of the client's kernel.
fn of_kernel() -> String {
    sh("ip -n client mptcp endpoint show; ip -n client mptcp limits show")
}

/// What the client is told to do, and the command that does it.
fn command(lab: &Lab, config: &str) -> String {
    let home = lab.home("client");
    std::fs::create_dir_all(&home).unwrap();
    std::fs::write(home.join("client.toml"), config).unwrap();
    format!("up {} --route 198.51.100.0/24", lab.invite("laptop"))
}

fn up(lab: &Lab, config: &str) {
    lab.rove("client", &command(lab, config)).ok();
}

/// The same in the foreground, which tells what there is to tell.
fn up_and_tell(lab: &Lab, config: &str) -> Running {
    let running = lab.start("client", &format!("{} --foreground", command(lab, config)));
    wait_until("it carries", || lab.log("client").contains("up: 10.77.0.2"));
    running
}

fn fetch() {
    let came = download("client", FILE).unwrap();
    assert!(came == pattern(LEN), "{} bytes of {LEN}, or not those", came.len());
}

#[test]
fn both_links_carry_and_what_is_the_kernels_is_as_before() {
    in_namespace("both_links_carry_and_what_is_the_kernels_is_as_before", || {
        let lab = Lab::new("MPTCP");
        second_cable();
        let _gateway = lab.gateway();
        serve_pattern("server", FILE, LEN);
        // Another program has an endpoint here, which is left alone.
        sh("ip -n client mptcp endpoint add 203.0.115.77 signal
             ip -n client mptcp limits set subflow 1");
        let before = of_kernel();
        up(&lab, MPTCP);
        assert_eq!(status(&lab)["transport"], "mptcp");
        wait_until("a subflow by each link", || goes_by_both(&lab));
        let meant = of_kernel();
        assert!(meant.contains("203.0.115.77") && meant.contains("203.0.115.2 "), "{meant}");
        both_carry();
        let told = lab.rove("client", "paths").ok();
        assert!(told.contains("subflow by second to 192.0.2.1:4500: "), "{told}");
        lab.rove("client", "down").ok();
        assert_eq!(of_kernel(), before);
        // What a crash leaves is taken away by whoever comes next.
        let client = lab.start("client", "up --foreground");
        wait_until("it carries", || lab.log("client").contains("up: 10.77.0.2"));
        client.kill();
        assert_ne!(of_kernel(), before, "a crash cannot clean up");
        lab.rove("client", "down").ok();
        assert_eq!(of_kernel(), before);
    });
}

#[test]
fn a_mesh_has_a_subflow_to_each_address_of_the_gateway() {
    in_namespace("a_mesh_has_a_subflow_to_each_address_of_the_gateway", || {
        let lab = Lab::new("MPTCP, and a gateway with two addresses");
        second_cable();
        sh("ip -n gateway addr add 192.0.2.8/24 dev to-router
            ip -n gateway mptcp limits set subflow 8
            ip -n gateway mptcp endpoint add 192.0.2.8 signal");
        let _gateway = lab.gateway();
        serve_pattern("server", FILE, LEN);
        let before = of_kernel();
        up(&lab, &format!("{MPTCP}manager = \"full-mesh\"\n"));
        let all = ["second", "second", "to-router", "to-router"];
        wait_until("a subflow by each link to each address", || {
            subflows(&lab).iter().any(|links| *links == all)
        });
        let told = lab.rove("client", "paths").ok();
        for link in ["second", "to-router"] {
            for address in ["192.0.2.1", "192.0.2.8"] {
                let subflow = format!("subflow by {link} to {address}:");
                assert!(told.contains(&subflow), "{subflow} is missing: {told}");
            }
        }
        both_carry();
        lab.rove("client", "down").ok();
        assert_eq!(of_kernel(), before);
    });
}

#[test]
fn a_connection_goes_on_when_either_link_dies() {
    in_namespace("a_connection_goes_on_when_either_link_dies", || {
        let lab = Lab::new("MPTCP, and a link that dies");
        second_cable();
        let _gateway = lab.gateway();
        serve_pattern("server", FILE, LEN);
        up(&lab, MPTCP);
        wait_until("a subflow by each link", || goes_by_both(&lab));
        let fetching = thread::spawn(|| (0..4).for_each(|_| fetch()));
        wait_until("it has begun", || received("second") > PART);
        // Nobody is told of it: what is on its way by this one is lost.
        sh("ip -n router rule add iif to-second priority 9 blackhole");
        fetching.join().unwrap();
        sh("ip -n router rule del priority 9");
        let fetching = thread::spawn(|| (0..4).for_each(|_| fetch()));
        sh("ip -n client link set to-router down");
        fetching.join().unwrap();
        wait_until("it goes by the other", || goes_by_alone(&lab, "second"));
        sh("ip -n client link set to-router up
            ip -n client route add default via 203.0.113.254");
        wait_until("it comes back", || goes_by_both(&lab));
        lab.rove("client", "down").ok();
    });
}

#[test]
fn a_rehearsal_does_without_the_subflows_of_its_link() {
    in_namespace("a_rehearsal_does_without_the_subflows_of_its_link", || {
        let lab = Lab::new("MPTCP, and a rehearsal");
        second_cable();
        let _gateway = lab.gateway();
        serve_pattern("server", FILE, LEN);
        up(&lab, MPTCP);
        wait_until("a subflow by each link", || goes_by_both(&lab));
        for (unplugged, other) in [("second", "to-router"), ("to-router", "second")] {
            let line = format!("rehearse --unplug {unplugged} --for 3s --json");
            thread::scope(|scope| {
                let rehearsing = scope.spawn(|| lab.rove("client", &line).ok());
                wait_until("it goes by the other alone", || goes_by_alone(&lab, other));
                let counted = received(unplugged);
                fetch();
                let carried = received(unplugged) - counted;
                assert!(carried < PART, "{carried} bytes by what was unplugged");
                rehearsing.join().unwrap();
            });
            wait_until("it is back", || goes_by_both(&lab));
        }
        lab.rove("client", "down").ok();
    });
}

#[test]
fn where_an_end_has_no_mptcp_one_connection_carries() {
    in_namespace("where_an_end_has_no_mptcp_one_connection_carries", || {
        let lab = Lab::new("no MPTCP");
        second_cable();
        sh("ip netns exec client sysctl -q net.mptcp.enabled=0");
        let _gateway = lab.gateway();
        serve_pattern("server", FILE, LEN);
        let _client = up_and_tell(&lab, MPTCP);
        assert_eq!(status(&lab)["transport"], "tcp");
        assert_eq!(paths(&lab)[0]["subflows"], Value::Null);
        fetch();
        let log = lab.log("client");
        assert!(log.contains("this kernel has no MPTCP"), "{log}");
        lab.rove("client", "down").ok();
    });
}

#[test]
fn a_gateway_without_mptcp_is_told_of() {
    in_namespace("a_gateway_without_mptcp_is_told_of", || {
        let lab = Lab::new("a gateway without MPTCP");
        sh("ip netns exec gateway sysctl -q net.mptcp.enabled=0");
        let _gateway = lab.gateway();
        serve_pattern("server", FILE, LEN);
        let _client = up_and_tell(&lab, MPTCP);
        assert_eq!(status(&lab)["transport"], "tcp");
        fetch();
        let log = lab.log("client");
        assert!(log.contains("no MPTCP with the gateway"), "{log}");
        lab.rove("client", "down").ok();
    });
}

#[test]
fn tcp_is_tcp_and_udp_is_never_asked() {
    in_namespace("tcp_is_tcp_and_udp_is_never_asked", || {
        let lab = Lab::new("TCP alone");
        second_cable();
        let _gateway = lab.gateway();
        serve_pattern("server", FILE, LEN);
        sh("ip netns exec router nft 'add table inet count; \
            add chain inet count way { type filter hook forward priority 0; }; \
            add rule inet count way udp dport 4500 counter'");
        up(&lab, "[paths]\ntransport = \"tcp\"\n");
        assert_eq!(status(&lab)["transport"], "tcp");
        fetch();
        let counted = sh("ip netns exec router nft list table inet count");
        assert!(counted.contains("packets 0 bytes 0"), "{counted}");
        lab.rove("client", "down").ok();
    });
}

/// The links that carry, and what carries there.
fn carrying(lab: &Lab) -> Vec<(String, String)> {
    let in_use = paths(lab).into_iter().filter(|path| path["state"] == "in use");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut told: Vec<_> =
        in_use.map(|path| (text(&path["link"]), text(&path["transport"]))).collect();
    told.sort_unstable();
    told
}

/// What is fetched comes by both cards.
fn both_carry() {
    let counted = [received("to-router"), received("second")];
    fetch();
    let carried = [received("to-router") - counted[0], received("second") - counted[1]];
    assert!(carried.iter().all(|&bytes| bytes > PART), "{carried:?}");
}

#[test]
fn a_stream_by_each_link_carries_its_share() {
    in_namespace("a_stream_by_each_link_carries_its_share", || {
        let lab = Lab::new("TCP by two links");
        second_cable();
        let _gateway = lab.gateway();
        serve_pattern("server", FILE, LEN);
        // Without a limit of their own links carry no more together than the first does alone.
        let paths = "[paths]\nmode = \"full\"\nscheduler = \"round-robin\"\n";
        up(&lab, &format!("{paths}transport = \"tcp\"\n"));
        let tcp = |link: &str| (link.to_owned(), "tcp".to_owned());
        let both = [tcp("second"), tcp("to-router")];
        wait_until("both carry", || carrying(&lab) == both);
        both_carry();
        let fetching = thread::spawn(|| (0..4).for_each(|_| fetch()));
        wait_until("it has begun", || received("second") > 2 * PART);
        sh("ip -n client link set to-router down");
        fetching.join().unwrap();
        assert_eq!(carrying(&lab), both[..1]);
        sh("ip -n client link set to-router up
            ip -n client route add default via 203.0.113.254");
        wait_until("it is back", || carrying(&lab) == both);
        both_carry();
        lab.rove("client", "down").ok();
    });
}

#[test]
fn a_link_that_blocks_udp_carries_beside_one_that_does_not() {
    in_namespace("a_link_that_blocks_udp_carries_beside_one_that_does_not", || {
        let lab = Lab::new("a hotel and a modem");
        second_cable();
        let _gateway = lab.gateway();
        serve_pattern("server", FILE, LEN);
        sh("ip netns exec router nft 'add table inet hotel; \
            add chain inet hotel way { type filter hook forward priority 0; }; \
            add rule inet hotel way iifname to-second meta l4proto udp drop'");
        up(&lab, "[paths]\nmode = \"full\"\nscheduler = \"round-robin\"\n");
        let link = |link: &str, by: &str| (link.to_owned(), by.to_owned());
        let both = [link("second", "mptcp"), link("to-router", "udp")];
        wait_until("both carry", || {
            fetch();
            carrying(&lab) == both
        });
        both_carry();
        sh("ip netns exec router nft 'flush table inet hotel'");
        sh("ip -n client link set to-router down");
        wait_until("it goes on, and by UDP", || {
            fetch();
            carrying(&lab) == [link("second", "udp")]
        });
        lab.rove("client", "down").ok();
    });
}
