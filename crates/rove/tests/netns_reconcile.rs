//! Settings of the host that other programs remove are restored automatically, and status reports
//! the present state, not the configured one.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

mod support;

use std::time::{Duration, Instant};

use serde_json::Value;
use support::netns::{
    Lab, hide_nft, in_namespace, in_namespace_of_root, need_program, on, output, own_etc, reaches,
    serve_pattern, sh, wait_until,
};

const WEB: &str = "198.51.100.80:80";
/// The time within which everything must be restored.
const BACK_WITHIN: Duration = Duration::from_secs(1);

/// A gateway that translates addresses and names a name server, which clients write into an /etc of
/// this test's own.
fn init(lab: &Lab) {
    own_etc();
    let line = "gateway init --endpoint 192.0.2.1:4500 --network 10.77.0.0/24,fd77::/64";
    lab.rove("gateway", &format!("{line} --dns 10.77.0.1")).ok();
}

fn status(lab: &Lab, host: &str, command: &str) -> Value {
    serde_json::from_str(&lab.rove(host, &format!("{command} --json")).ok()).unwrap()
}

/// The problems that status names, one line each.
fn problems(status: &Value) -> Vec<String> {
    let problems = status["problems"].as_array().unwrap();
    let line = |problem: &Value| {
        for key in ["what", "cause", "cure"] {
            assert!(!problem[key].as_str().unwrap().is_empty(), "{problem}");
        }
        assert!(problem["since"].as_u64().unwrap() > 1_600_000_000, "{problem}");
        format!("{}: {}: {}", problem["what"], problem["cause"], problem["cure"])
    };
    problems.iter().map(line).collect()
}

/// Whether a command on a host says a word.
fn says(host: &str, command: &str, word: &str) -> bool {
    let words: Vec<&str> = command.split(' ').collect();
    let mut run = on(host, words[0]);
    run.args(&words[1..]);
    String::from_utf8_lossy(&output(run).stdout).contains(word)
}

/// After each change by another program, the removed item is restored soon and the tunnel works.
#[track_caller]
fn comes_back(lab: &Lab, host: &str, taken: &str, (command, word): (&str, &str)) {
    assert!(says(host, command, word), "before: {command}");
    sh(&format!("nsenter --net=/run/netns/{host} sh -ec '{taken}'"));
    let since = Instant::now();
    wait_until(&format!("{taken}: `{command}` says {word} again"), || says(host, command, word));
    let took = since.elapsed();
    // A starved machine is slow to start the programs that check.
    assert!(took < BACK_WITHIN * 3, "{taken}: {took:?}\n{}", lab.log(host));
    wait_until("the tunnel carries", || reaches("client", WEB));
}

#[test]
fn all_that_others_take_from_a_client_comes_back() {
    in_namespace("all_that_others_take_from_a_client_comes_back", || {
        need_program("packet filters", "nft");
        let lab = Lab::new("a client's host");
        init(&lab);
        let _gateway = lab.gateway();
        serve_pattern("server", WEB, 1_000);
        let invite = lab.invite("laptop");
        let _client = lab.start("client", &format!("up {invite} --foreground --kill-switch"));
        wait_until("it carries", || lab.log("client").contains("up: 10.77.0.2"));
        assert_eq!(problems(&status(&lab, "client", "status")), [""; 0]);
        for (taken, (command, word)) in [
            ("ip rule del pref 5191", ("ip rule", "5191")),
            ("ip -6 rule del pref 5191", ("ip -6 rule", "5191")),
            ("ip route flush table 29295", ("ip route show table 29295", "default dev rove0")),
            ("ip -6 route flush table 29295", ("ip -6 route show table 29295", "default dev")),
            ("ip addr flush dev rove0", ("ip addr show dev rove0", "10.77.0.2/")),
            ("ip link set rove0 down", ("ip link show dev rove0", "UP")),
            ("nft flush ruleset", ("nft list tables", "rove_kill_switch")),
        ] {
            comes_back(&lab, "client", taken, (command, word));
        }
        // A DHCP client writes the file anew.
        std::fs::write("/etc/resolv.conf.new", "nameserver 192.168.7.1\n").unwrap();
        std::fs::rename("/etc/resolv.conf.new", "/etc/resolv.conf").unwrap();
        wait_until("the resolver's file is ours again", || {
            let text = std::fs::read_to_string("/etc/resolv.conf").unwrap();
            text.starts_with("# Written by rove")
        });
        assert_eq!(problems(&status(&lab, "client", "status")), [""; 0]);
        let log = lab.log("client");
        assert!(log.contains("kill switch") && log.contains("put back"), "{log}");
        lab.rove("client", "down").ok();
        let text = std::fs::read_to_string("/etc/resolv.conf").unwrap();
        assert_eq!(text, "nameserver 192.168.7.1\n", "the newer original comes back");
    });
}

/// However often another program removes an item: filters are back at once, and the rest soon after
/// the other program has stopped.
#[test]
fn a_fight_does_not_keep_a_repair_away() {
    in_namespace("a_fight_does_not_keep_a_repair_away", || {
        need_program("packet filters", "nft");
        let lab = Lab::new("a fight");
        init(&lab);
        let _gateway = lab.gateway();
        serve_pattern("server", WEB, 1_000);
        let invite = lab.invite("laptop");
        let _client = lab.start("client", &format!("up {invite} --foreground --kill-switch"));
        wait_until("it carries", || lab.log("client").contains("up: 10.77.0.2"));
        let started = Instant::now();
        // The guard is written after the kill switch, but the flush may come between the two.
        for _ in 0..20 {
            comes_back(&lab, "client", "nft flush ruleset", ("nft list tables", "rove_guard"));
            let since = Instant::now();
            let is_back = || says("client", "nft list tables", "rove_kill_switch");
            wait_until("the kill switch is back", is_back);
            assert!(since.elapsed() < BACK_WITHIN * 3, "{}", lab.log("client"));
        }
        eprintln!("20 flushes were repaired in {:?}", started.elapsed());
        for _ in 0..11 {
            comes_back(&lab, "client", "ip rule del pref 5191", ("ip rule", "5191"));
        }
        wait_until("nothing is left to say", || {
            problems(&status(&lab, "client", "status")).is_empty()
        });
        let lines = lab.log("client").matches("put back").count();
        assert!(lines <= 20, "{lines} lines about repairs");
        lab.rove("client", "down").ok();
    });
}

#[test]
fn a_deleted_interface_costs_no_session() {
    in_namespace("a_deleted_interface_costs_no_session", || {
        need_program("packet filters", "nft");
        let lab = Lab::new("a deleted interface");
        init(&lab);
        let _gateway = lab.gateway();
        serve_pattern("server", WEB, 1_000);
        let invite = lab.invite("laptop");
        let _client = lab.start("client", &format!("up {invite} --foreground"));
        wait_until("it carries", || lab.log("client").contains("up: 10.77.0.2"));
        let since = || status(&lab, "client", "status")["since"].as_u64().unwrap();
        let before = since();
        for (host, device, address) in
            [("client", "rove0", "10.77.0.2/"), ("gateway", "rove-gw", "10.77.0.1/24")]
        {
            for _ in 0..2 {
                let taken = format!("ip link del {device}");
                comes_back(&lab, host, &taken, ("ip addr show", address));
            }
            assert!(lab.log(host).contains("interface was deleted"), "{}", lab.log(host));
        }
        // Computed from how long ago it was, so rounding may move it by a second.
        assert!(since().abs_diff(before) <= 1, "it is the same session");
    });
}

#[test]
fn all_that_others_take_from_a_gateway_comes_back() {
    in_namespace("all_that_others_take_from_a_gateway_comes_back", || {
        need_program("packet filters", "nft");
        let lab = Lab::new("a gateway's host");
        init(&lab);
        let _gateway = lab.gateway();
        serve_pattern("server", WEB, 1_000);
        let invite = lab.invite("laptop");
        lab.rove("client", &format!("up {invite}")).ok();
        assert!(reaches("client", WEB));
        for (taken, (command, word)) in [
            ("nft flush ruleset", ("nft list tables", "rove_")),
            ("sysctl -qw net.ipv4.ip_forward=0", ("sysctl net.ipv4.ip_forward", "= 1")),
            ("ip addr flush dev rove-gw", ("ip addr show dev rove-gw", "10.77.0.1/24")),
        ] {
            comes_back(&lab, "gateway", taken, (command, word));
        }
        let now = status(&lab, "gateway", "gateway status");
        assert_eq!((&now["nat"], &now["forwarding"]), (&Value::from(true), &Value::from(true)));
        assert_eq!(problems(&now), [""; 0]);
        // As Docker leaves a host.
        sh("nsenter --net=/run/netns/gateway sh -ec '
            nft add table ip filter
            nft add chain ip filter FORWARD \
                \"{ type filter hook forward priority 0; policy drop; }\"'");
        let found = problems(&status(&lab, "gateway", "gateway status"));
        assert!(found.len() == 1 && found[0].contains("ip filter FORWARD"), "{found:?}");
        assert!(found[0].contains("iptables -I FORWARD -i rove-gw -j ACCEPT"), "{found:?}");
        let text = lab.rove("gateway", "gateway status").ok();
        assert!(text.contains("problem ") && text.contains("Cure: "), "{text}");
        lab.rove("client", "down").ok();
    });
}

#[test]
fn another_programs_rule_before_ours_is_named() {
    in_namespace("another_programs_rule_before_ours_is_named", || {
        let lab = Lab::new("another's rule");
        init(&lab);
        let _gateway = lab.gateway();
        let invite = lab.invite("laptop");
        lab.rove("client", &format!("up {invite}")).ok();
        assert_eq!(problems(&status(&lab, "client", "status")), [""; 0]);
        sh("ip -n client rule add pref 100 lookup main");
        let found = problems(&status(&lab, "client", "status"));
        assert!(found.len() == 1 && found[0].contains("0.0.0.0/0"), "{found:?}");
        assert!(found[0].contains("ip rule del priority 100"), "{found:?}");
        sh("ip -n client rule del pref 100");
        assert_eq!(problems(&status(&lab, "client", "status")), [""; 0]);
        lab.rove("client", "down").ok();
    });
}

#[test]
fn a_check_names_what_a_person_would_look_for() {
    in_namespace("a_check_names_what_a_person_would_look_for", || {
        need_program("packet filters", "nft");
        let lab = Lab::new("checks");
        init(&lab);
        let _gateway = lab.gateway();
        let invite = lab.invite("laptop");
        let before = lab.rove("gateway", "gateway check").out;
        let told = "unknown clients      no client has been heard since the gateway started. If \
                    clients cannot connect, let this host's firewall, and those in front of it, \
                    accept UDP port 4500";
        assert!(before.contains(told), "{before}");
        lab.rove("client", &format!("up {invite} --kill-switch")).ok();
        let checks = |host: &str, command: &str| -> Vec<Value> {
            serde_json::from_str(&lab.rove(host, &format!("{command} --json")).out).unwrap()
        };
        let state_of = |checks: &[Value], name: &str| -> Vec<String> {
            let found = checks.iter().filter(|one| one["check"] == name);
            found.map(|one| one["state"].as_str().unwrap().to_owned()).collect()
        };
        let all = checks("gateway", "gateway check");
        assert_eq!(state_of(&all, "clients"), ["ok"], "{all:?}");
        // Nobody serves names on 10.77.0.1 yet.
        let failed = lab.rove("client", "check");
        assert!(failed.out.contains("failed  names        no answer from the name server 10.77"));
        let all = checks("client", "check");
        let expected = format!("1 of {} checks failed", all.len());
        let failed = failed.fails();
        assert!(failed.contains(&expected), "{failed}");
        for name in ["session", "transport", "routes", "leaks", "kill switch", "mtu", "clock"] {
            assert_eq!(state_of(&all, name), ["ok"], "{name}: {all:?}");
        }
        sh("ip -n client rule add pref 100 lookup main");
        assert_eq!(state_of(&checks("client", "check"), "leaks"), ["failed"]);
        sh("ip -n client rule del pref 100");
        let all = checks("gateway", "gateway check");
        for name in ["interface", "routes", "nat", "forwarding", "firewall", "endpoint"] {
            assert_eq!(state_of(&all, name), ["ok"], "{name}: {all:?}");
        }
        sh("nsenter --net=/run/netns/gateway sh -ec '
            nft add table ip filter
            nft add chain ip filter FORWARD \
                \"{ type filter hook forward priority 0; policy drop; }\"'");
        assert_eq!(state_of(&checks("gateway", "gateway check"), "firewall"), ["failed"]);
        lab.rove("client", "down").ok();
        let error = lab.rove("client", "check").fails();
        assert!(error.contains("rove up"), "{error}");
    });
}

#[test]
fn a_rule_for_some_users_is_named() {
    in_namespace_of_root("a_rule_for_some_users_is_named", || {
        let lab = Lab::new("a rule for some users");
        init(&lab);
        let _gateway = lab.gateway();
        let invite = lab.invite("laptop");
        lab.rove("client", &format!("up {invite}")).ok();
        sh("ip -n client rule add pref 100 uidrange 1000-1002 lookup main");
        let found = problems(&status(&lab, "client", "status"));
        let told = "routing sends packets of users 1000 to 1002 for 0.0.0.0/0 to to-router";
        assert!(found.len() == 1 && found[0].contains(told), "{found:?}");
        assert!(found[0].contains("ip rule del priority 100"), "{found:?}");
        // A rule for everybody is told once.
        sh("ip -n client rule add pref 101 lookup main");
        let found = problems(&status(&lab, "client", "status"));
        assert!(found.iter().any(|one| one.contains("sends packets for 0.0.0.0/0")), "{found:?}");
        lab.rove("client", "down").ok();
    });
}

#[test]
fn an_interface_that_is_down_is_one_problem() {
    in_namespace("an_interface_that_is_down_is_one_problem", || {
        let lab = Lab::new("an interface that is down");
        init(&lab);
        let _gateway = lab.gateway();
        let invite = lab.invite("laptop");
        lab.rove("client", &format!("up {invite}")).ok();
        // The client repairs it within a moment, so it is looked at many times.
        let mut seen = 0;
        for _ in 0..40 {
            sh("ip -n client link set rove0 down");
            let found = problems(&status(&lab, "client", "status"));
            assert!(found.len() <= 1, "{found:?}");
            seen += found.iter().filter(|one| one.contains("interface rove0")).count();
        }
        assert!(seen > 0, "it was never seen");
        lab.rove("client", "down").ok();
    });
}

#[test]
fn without_nft_a_filter_is_not_called_sound_and_the_rest_is_repaired() {
    let name = "without_nft_a_filter_is_not_called_sound_and_the_rest_is_repaired";
    in_namespace(name, || {
        need_program("packet filters", "nft");
        let lab = Lab::new("a gateway that loses nft");
        init(&lab);
        let _gateway = lab.gateway();
        hide_nft();
        let check = lab.rove("gateway", "gateway check").out;
        let lines = |word: &str| -> Vec<String> {
            check.lines().filter(|line| line.contains(word)).map(str::to_owned).collect()
        };
        let [nat] = &*lines(" nat ") else { panic!("{check}") };
        assert!(nat.starts_with("failed") && nat.contains("cannot be checked"), "{check}");
        assert!(nat.contains("install the package nftables"), "{check}");
        assert_eq!(lines("settings cannot be checked"), [""; 0], "{check}");
        sh("ip -n gateway addr flush dev rove-gw");
        wait_until("it is repaired all the same", || {
            says("gateway", "ip addr show dev rove-gw", "10.77.0.1")
        });
        sh("umount /usr/sbin");
    });
}

#[test]
fn a_lost_journal_leaves_a_way_out() {
    in_namespace("a_lost_journal_leaves_a_way_out", || {
        need_program("packet filters", "nft");
        let lab = Lab::new("a lost journal");
        init(&lab);
        let gateway = lab.gateway();
        let invite = lab.invite("laptop");
        let state = lab.home("client").join("client.state");
        let line = format!("up {invite} --foreground --kill-switch");
        let client = lab.start("client", &line);
        wait_until("it carries", || lab.log("client").contains("up: 10.77.0.2"));
        client.kill();
        for name in ["plan.json", "plan.json.before"] {
            std::fs::write(state.join(name), "garbage").unwrap();
        }
        // The boot unit closes the host.
        sh("nsenter --net=/run/netns/client nft flush ruleset");
        lab.rove("client", "stand-kill-switch").ok();
        assert!(says("client", "nft list tables", "rove_kill_switch"));
        // Another start works, and `down` opens.
        lab.rove("client", "up --kill-switch").ok();
        lab.rove("client", "down").ok();
        assert!(!says("client", "nft list tables", "rove"));
        // With the directory gone, the kernel still knows.
        let client = lab.start("client", "up --foreground --kill-switch");
        wait_until("it carries", || lab.log("client").contains("up: 10.77.0.2"));
        client.kill();
        std::fs::remove_dir_all(&state).unwrap();
        assert!(says("client", "nft list tables", "rove_kill_switch"));
        lab.rove("client", "down").ok();
        assert!(!says("client", "nft list tables", "rove"));
        // The boot unit closes the host without a packet filter, too.
        let client = lab.start("client", "up --foreground --kill-switch");
        wait_until("it carries", || lab.log("client").contains("up: 10.77.0.2"));
        client.kill();
        sh("nsenter --net=/run/netns/client nft flush ruleset
            ip -n client route flush table 29295; ip -n client -6 route flush table 29295");
        serve_pattern("server", WEB, 1_000);
        wait_until("nothing holds it back", || reaches("client", WEB));
        hide_nft();
        let stand = lab.rove("client", "stand-kill-switch");
        assert!(stand.code != Some(0) && stand.err.contains("stop all traffic"), "{}", stand.err);
        assert!(!reaches("client", WEB));
        sh("umount /usr/sbin");
        lab.rove("client", "down").ok();
        assert!(reaches("client", WEB) && !says("client", "ip rule", "5189"));
        // A gateway starts with a damaged journal, too.
        gateway.kill();
        for name in ["plan.json", "plan.json.before"] {
            std::fs::write(lab.home("gateway").join("gateway.state").join(name), "{").unwrap();
        }
        let _gateway = lab.gateway();
        lab.rove("client", "up").ok();
        lab.rove("client", "down").ok();
    });
}
