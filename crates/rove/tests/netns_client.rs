//! What a client says, waits for and refuses: the real binary against gateways good and bad.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

mod support;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use serde_json::Value;
use support::netns::{
    Lab, edit, hide_nft, in_namespace, in_namespace_of_root, need_program, on, output, own_etc,
    reaches, second_cable, serve_pattern, sh, wait_until,
};
use support::{Ran, binary};

const WEB: &str = "198.51.100.80:80";

fn status(lab: &Lab) -> Value {
    serde_json::from_str(&lab.rove("client", "status --json").ok()).unwrap()
}

fn doing(lab: &Lab) -> String {
    status(lab)["doing"].as_str().unwrap().to_owned()
}

#[test]
fn a_relative_directory_is_the_same_one_in_the_background() {
    in_namespace("a_relative_directory_is_the_same_one_in_the_background", || {
        let lab = Lab::new("a relative directory");
        let _gateway = lab.gateway();
        let invite = lab.invite("laptop");
        let rove = |line: &str| {
            let mut command = on("client", binary());
            command.args(line.split_whitespace()).args(["--dir", "client"]);
            command.current_dir(lab.dir.path());
            Ran::of(output(command))
        };
        rove(&format!("up {invite}")).ok();
        for name in ["client.key", "client.redb", "client.sock", "client.log"] {
            assert!(lab.home("client").join(name).exists(), "{name}");
        }
        assert!(rove("status").ok().contains("state        up"));
        rove("down").ok();
        assert!(!std::path::Path::new("/client").exists());
    });
}

#[test]
fn an_invite_on_standard_input_is_in_no_argument() {
    in_namespace("an_invite_on_standard_input_is_in_no_argument", || {
        let lab = Lab::new("an invite on standard input");
        let _gateway = lab.gateway();
        let invite = lab.invite("laptop");
        let mut command = on("client", binary());
        command.args(["up", "-", "--dir"]).arg(lab.home("client"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // The terminal stays open behind the line.
        let mut input = child.stdin.take().unwrap();
        writeln!(input, "{invite}").unwrap();
        let up = Ran::of(child.wait_with_output().unwrap()).ok();
        assert!(up.starts_with("up: 10.77.0.2"), "{up}");
        let pid = fs::read_to_string(lab.home("client").join("client.state/lock")).unwrap();
        let arguments = fs::read_to_string(format!("/proc/{}/cmdline", pid.trim())).unwrap();
        assert!(arguments.contains("--detached") && !arguments.contains("rove://"), "{arguments}");
        lab.rove("client", "down").ok();
        // Nor when it was an argument of the command that started it.
        let invite = lab.invite("tablet");
        lab.rove("phone", &format!("up {invite}")).ok();
        let pid = fs::read_to_string(lab.home("phone").join("client.state/lock")).unwrap();
        let arguments = fs::read_to_string(format!("/proc/{}/cmdline", pid.trim())).unwrap();
        assert!(arguments.contains("--detached") && !arguments.contains("rove://"), "{arguments}");
        lab.rove("phone", "down").ok();
    });
}

#[test]
fn a_kill_switch_without_nft_does_not_stand() {
    in_namespace("a_kill_switch_without_nft_does_not_stand", || {
        let lab = Lab::new("a missing nft");
        let _gateway = lab.gateway();
        let invite = lab.invite("laptop");
        hide_nft();
        let before = lab.state_of("client");
        let error = lab.rove("client", &format!("up {invite} --kill-switch")).fails();
        let cure = "the kill switch needs the program nft, which is not installed: install the";
        assert!(error.contains(cure) && !error.contains("stands"), "{error}");
        assert_eq!(status(&lab)["kill_switch"], false);
        assert_eq!(lab.rove("client", "down").ok(), "not up\n");
        lab.rove("client", "stand-kill-switch").ok();
        assert_eq!(lab.state_of("client"), before);
        // Without one, nothing of a client needs nft. The check says what is missing.
        lab.rove("client", "up").ok();
        let checks = lab.rove("client", "check");
        assert!(checks.out.contains("failed  filters"), "{checks:?}");
        assert!(checks.out.contains("the guard needs the program nft"), "{checks:?}");
        lab.rove("client", "down").ok();
    });
}

#[test]
fn a_guard_that_nft_cannot_change_any_more_is_not_forgotten() {
    in_namespace("a_guard_that_nft_cannot_change_any_more_is_not_forgotten", || {
        need_program("the guard", "nft");
        let lab = Lab::new("nft that goes away");
        let _gateway = lab.gateway();
        serve_pattern("server", WEB, 1_000);
        let invite = lab.invite("laptop");
        let before = lab.state_of("client");
        lab.rove("client", &format!("up {invite}")).ok();
        hide_nft();
        // The plan changes, and with it the guard.
        second_cable();
        let told = "the packet filter that is in place cannot be changed, checked or removed";
        wait_until("it is told", || lab.rove("client", "status").ok().contains(told));
        let status = lab.rove("client", "status").ok();
        assert!(!status.contains("not guarded"), "{status}");
        let log = fs::read_to_string(lab.home("client").join("client.log")).unwrap();
        assert!(!log.contains("the settings of links cannot be changed"), "{log}");
        let error = lab.rove("client", "down").fails();
        assert!(error.contains("needs the program nft"), "{error}");
        let told = "left a packet filter";
        sh("umount /usr/sbin");
        let status = lab.rove("client", "status").ok();
        assert!(status.contains(told), "{status}");
        sh("ip -n client link del second");
        assert_eq!(lab.rove("client", "down").ok(), "down\n");
        lab.becomes("client", &before);
    });
}

#[test]
fn a_failure_behind_a_kill_switch_says_that_it_stands() {
    in_namespace("a_failure_behind_a_kill_switch_says_that_it_stands", || {
        need_program("the kill switch", "nft");
        let lab = Lab::new("a kill switch");
        let gateway = lab.gateway();
        let invite = lab.invite("laptop");
        drop(gateway);
        let line = format!("up {invite} --kill-switch --timeout 1s");
        let error = lab.rove("client", &line).fails();
        assert!(error.contains("no answer from 192.0.2.1:4500"), "{error}");
        assert!(error.ends_with("; the kill switch stands: `rove down` lifts it"), "{error}");
        fs::write(lab.home("client").join("client.toml"), "[client]\nnonsense = 1\n").unwrap();
        let error = lab.rove("client", "up").fails();
        assert!(error.contains("client.toml:2: client.nonsense"), "{error}");
        assert!(error.ends_with("; the kill switch stands: `rove down` lifts it"), "{error}");
        fs::remove_file(lab.home("client").join("client.toml")).unwrap();
        assert_eq!(lab.rove("client", "down").ok(), "down\n");
        let error = lab.rove("client", "up --timeout 1s").fails();
        assert!(!error.contains("kill switch"), "{error}");
    });
}

#[test]
fn the_guides_kill_switch_stands_from_the_next_boot_on() {
    in_namespace("the_guides_kill_switch_stands_from_the_next_boot_on", || {
        need_program("the kill switch", "nft");
        let guide = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/kill-switch-and-dns.md");
        let guide = fs::read_to_string(guide).unwrap();
        let step = guide.lines().find(|line| line.contains("> /etc/rove/client.toml")).unwrap();
        let step = step.trim_start_matches("# ");
        let lab = Lab::new("the guide");
        let _gateway = lab.gateway();
        serve_pattern("server", WEB, 1_000);
        let invite = lab.invite("laptop");
        lab.rove("client", &format!("up {invite}")).ok();
        let home = lab.home("client").display().to_string();
        let rove = format!("nsenter --net=/run/netns/client {} reload --dir {home}", binary());
        sh(&step.replace("/etc/rove", &home));
        sh(&rove);
        assert_eq!(status(&lab)["kill_switch"], true);
        // The host goes down, and comes up without its rules and routes.
        let pid = fs::read_to_string(lab.home("client").join("client.state/lock")).unwrap();
        sh(&format!("kill -KILL {}", pid.trim()));
        let journal = lab.home("client").join("client.state/plan.json");
        assert!(fs::read_to_string(&journal).unwrap().contains("kill-switch"));
        sh("nsenter --net=/run/netns/client nft flush ruleset
            ip -n client route flush table 29295; ip -n client -6 route flush table 29295");
        wait_until("nothing holds it back", || reaches("client", WEB));
        lab.rove("client", "stand-kill-switch").ok();
        assert!(!reaches("client", WEB));
        lab.rove("client", "down").ok();
        assert!(reaches("client", WEB));
    });
}

#[test]
fn the_guides_commands_open_a_host_without_rove() {
    in_namespace("the_guides_commands_open_a_host_without_rove", || {
        need_program("the kill switch", "nft");
        let guide = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/kill-switch-and-dns.md");
        let guide = fs::read_to_string(guide).unwrap();
        let (_, chapter) = guide.split_once("## If you are locked out").unwrap();
        let block = chapter.split("```").nth(1).unwrap();
        let steps: Vec<&str> = block.lines().filter_map(|line| line.strip_prefix("# ")).collect();
        assert!(!steps.is_empty(), "{chapter}");
        let lab = Lab::new("a host without rove");
        let _gateway = lab.gateway();
        serve_pattern("server", WEB, 1_000);
        let invite = lab.invite("laptop");
        for line in ["up", "up --kill-switch"] {
            lab.rove("client", &format!("{line} {invite}")).ok();
            let pid = fs::read_to_string(lab.home("client").join("client.state/lock")).unwrap();
            sh(&format!("kill -KILL {}", pid.trim()));
            wait_until("the process is gone", || {
                let status = lab.rove("client", "status").out;
                status.contains("blocked") || status.contains("lets nothing out")
            });
            assert!(!reaches("client", WEB), "{line}");
            // Without the tables, routes still block most traffic.
            sh("nsenter --net=/run/netns/client nft flush ruleset");
            let doing = status(&lab)["doing"].as_str().unwrap().to_owned();
            let told =
                if line == "up" { "is blocked: " } else { "routes still block most traffic" };
            assert!(doing.contains(told), "{line}: {doing}");
            assert!(!reaches("client", WEB), "{line}");
            lab.rove("client", "up").ok();
            let pid = fs::read_to_string(lab.home("client").join("client.state/lock")).unwrap();
            sh(&format!("kill -KILL {}", pid.trim()));
            for step in &steps {
                sh(&format!("nsenter --net=/run/netns/client bash -c '{step}'"));
            }
            wait_until("the host is open", || reaches("client", WEB));
            lab.rove("client", "down").ok();
        }
    });
}

#[test]
fn a_gateway_without_room_is_told_of() {
    in_namespace("a_gateway_without_room_is_told_of", || {
        let lab = Lab::new("a full gateway");
        let line = "gateway init --endpoint 192.0.2.1:4500 --network 10.77.0.0/29";
        lab.rove("gateway", line).ok();
        let config = lab.home("gateway").join("gateway.toml");
        edit(&config, "nat = true", "nat = false");
        let gateway = lab.gateway();
        let (first, second) = (lab.invite("laptop"), lab.invite("phone"));
        lab.rove("client", &format!("up {first}")).ok();
        lab.rove("client", "down").ok();
        // No invite promises an address that there is not, but a network may shrink after it.
        assert_eq!(gateway.terminate(), Some(0));
        edit(&config, "10.77.0.0/29", "10.77.0.0/30");
        lab.rove("gateway", "gateway sign").ok();
        let _gateway = lab.gateway();
        let error = lab.rove("phone", &format!("up {second} --timeout 3s")).fails();
        assert!(error.contains("the gateway cannot take another client now"), "{error}");
    });
}

#[test]
fn a_lease_that_the_operator_did_not_sign_is_refused() {
    in_namespace("a_lease_that_the_operator_did_not_sign_is_refused", || {
        let lab = Lab::new("an unsigned lease");
        let gateway = lab.gateway();
        let before = lab.state_of("client");
        let invite = lab.invite("laptop");
        assert_eq!(gateway.terminate(), Some(0));
        // The client holds what was signed when it was invited.
        edit(&lab.home("gateway").join("gateway.toml"), "10.77.0.0/24", "10.99.0.0/24");
        lab.rove("gateway", "gateway sign").ok();
        let _gateway = lab.gateway();
        let error = lab.rove("client", &format!("up {invite}")).fails();
        assert!(error.contains("the gateway gave 10.99.0.2/24, which is not of 10.77"), "{error}");
        assert!(error.contains("ask the operator for a new invite"), "{error}");
        assert_eq!(lab.state_of("client"), before);
        let invite = lab.invite("tablet");
        lab.rove("client", &format!("up {invite}")).ok();
        lab.rove("client", "down").ok();
    });
}

#[test]
fn a_chosen_route_into_a_local_network_wins_and_says_what_it_hides() {
    in_namespace("a_chosen_route_into_a_local_network_wins_and_says_what_it_hides", || {
        let lab = Lab::new("an overlap");
        let _gateway = lab.gateway();
        let invite = lab.invite("laptop");
        // The router of the link is in either route, and stays the next hop.
        for (route, hidden) in
            [("203.0.113.128/25", "203.0.113.128/25"), ("203.0.0.0/16", "203.0.113.0/24")]
        {
            let up = lab.rove("client", &format!("up {invite} --route {route}"));
            let line = format!(
                "hosts of {hidden} on to-router cannot be reached: the tunnel uses {route}: \
                 `--exclude ADDRESS` keeps one"
            );
            assert!(up.err.contains(&line), "{}", up.err);
            up.ok();
            let way = sh("ip -n client route get 203.0.113.254");
            assert!(way.contains("dev rove0"), "{way}");
            lab.rove("client", "down").ok();
        }
        let up = lab.rove("client", "up --route 203.0.0.0/16 --exclude 203.0.113.0/24");
        assert!(!up.err.contains("cannot be reached"), "{}", up.err);
        up.ok();
        lab.rove("client", "down").ok();
    });
}

#[test]
fn without_a_round_trip_it_is_not_up() {
    in_namespace("without_a_round_trip_it_is_not_up", || {
        need_program("a gateway's firewall", "nft");
        let lab = Lab::new("a round trip");
        let _gateway = lab.gateway();
        let before = lab.state_of("client");
        sh("nsenter --net=/run/netns/gateway nft -f - <<'RULES'
            table inet firewall { chain input {
                type filter hook input priority 0
                iifname \"rove-gw\" meta l4proto { icmp, icmpv6 } drop
            }
            }
RULES");
        let invite = lab.invite("laptop");
        let error = lab.rove("client", &format!("up {invite} --timeout 4s")).fails();
        assert!(error.contains("answers, but no ping came back through the tunnel"), "{error}");
        assert!(error.contains("within 4s: let the gateway's firewall answer"), "{error}");
        assert_eq!(lab.state_of("client"), before);
        sh("nsenter --net=/run/netns/gateway nft flush ruleset");
        lab.rove("client", "up").ok();
        lab.rove("client", "down").ok();
    });
}

#[test]
fn a_client_that_cannot_prove_its_tunnel_says_what_it_lacks() {
    in_namespace("a_client_that_cannot_prove_its_tunnel_says_what_it_lacks", || {
        need_program("a missing capability", "setpriv");
        let lab = Lab::new("a missing capability");
        let _gateway = lab.gateway();
        let before = lab.state_of("client");
        let invite = lab.invite("laptop");
        let mut command = on("client", "setpriv");
        command.args(["--bounding-set=-net_raw", "--inh-caps=-net_raw", "--", binary(), "up"]);
        command.args([&invite, "--dir"]).arg(lab.home("client"));
        let error = Ran::of(output(command)).fails();
        assert!(error.contains("no ping can be sent through the tunnel"), "{error}");
        assert!(error.contains("grant CAP_NET_RAW to this program"), "{error}");
        assert_eq!(lab.state_of("client"), before);
    });
}

#[test]
fn a_second_client_on_one_interface_is_told_of_the_first() {
    in_namespace("a_second_client_on_one_interface_is_told_of_the_first", || {
        let lab = Lab::new("an interface in use");
        let _gateway = lab.gateway();
        let (first, second) = (lab.invite("laptop"), lab.invite("tablet"));
        lab.rove("client", &format!("up {first}")).ok();
        let during = lab.state_of("client");
        let mut command = on("client", binary());
        command.args(["up", &second, "--dir"]).arg(lab.dir.path().join("other"));
        let error = Ran::of(output(command)).fails();
        assert!(
            error.contains("the interface rove0 is in use by another process: stop"),
            "{error}"
        );
        assert_eq!(lab.state_of("client"), during, "the first does not notice");
        assert_eq!(status(&lab)["state"], "up");
        lab.rove("client", "down").ok();
    });
}

#[test]
fn down_while_up_waits_is_told_as_such() {
    in_namespace("down_while_up_waits_is_told_as_such", || {
        let lab = Lab::new("an early down");
        let gateway = lab.gateway();
        let invite = lab.invite("laptop");
        drop(gateway);
        let down = |line: String| {
            let mut up = lab.start("client", &line);
            wait_until("it asks", || doing(&lab).contains("asking the gateway"));
            assert_eq!(lab.rove("client", "down").ok(), "down\n");
            up.child.wait().unwrap().code()
        };
        assert_eq!(down(format!("up {invite}")), Some(1), "it is not up");
        let said = lab.log("client");
        assert_eq!(said, "rove: taken down by `rove down` before the tunnel carried\n");
        // Whoever supervises one in the foreground must not start it again.
        assert_eq!(down("up --foreground".to_owned()), Some(0));
    });
}

#[test]
fn a_refusal_after_the_start_is_in_the_status_with_its_cure() {
    in_namespace("a_refusal_after_the_start_is_in_the_status_with_its_cure", || {
        let lab = Lab::new("a refusal");
        serve_pattern("server", WEB, 1_000);
        let gateway = lab.gateway();
        let invite = lab.invite("laptop");
        let store = lab.home("gateway").join("gateway.redb");
        assert_eq!(gateway.terminate(), Some(0));
        fs::copy(&store, lab.dir.path().join("older")).unwrap();
        let gateway = lab.gateway();
        lab.rove("client", &format!("up {invite}")).ok();
        assert_eq!(gateway.terminate(), Some(0));
        fs::copy(lab.dir.path().join("older"), &store).unwrap();
        let _gateway = lab.gateway();
        wait_until("the client is refused", || status(&lab)["state"] == "down");
        let cure = "the gateway does not know this client: ask its operator for a new invite";
        let blocked = "traffic that belongs in the tunnel is blocked until `rove down`";
        assert_eq!(doing(&lab), format!("closed: {cure}; {blocked}"));
        assert!(!reaches("client", WEB));
        lab.rove("client", "down").ok();
        assert!(reaches("client", WEB));
    });
}

#[test]
fn who_loses_name_servers_is_told() {
    in_namespace("who_loses_name_servers_is_told", || {
        own_etc();
        let lab = Lab::new("name servers");
        let _gateway = lab.gateway();
        let invite = lab.invite("laptop");
        fs::write("/etc/resolv.conf", "nameserver 192.168.1.1\n").unwrap();
        let up = lab.rove("client", &format!("up {invite}"));
        assert!(up.err.starts_with("rove: names may not resolve: the gateway gives"), "{}", up.err);
        assert!(up.err.contains("192.168.1.1") && up.err.lines().count() == 1, "{}", up.err);
        assert_eq!(up.ok(), "up: 10.77.0.2 and fd77::2 on rove0\n");
        lab.rove("client", "down").ok();
        let up = lab.rove("client", "up --route 198.51.100.0/24");
        assert_eq!(up.err, "");
        lab.rove("client", "down").ok();
    });
}

#[test]
fn who_asks_in_the_wrong_place_or_may_not_is_told() {
    in_namespace_of_root("who_asks_in_the_wrong_place_or_may_not_is_told", || {
        need_program("other users", "setpriv");
        need_program("the kill switch", "nft");
        own_etc();
        let lab = Lab::new("other users");
        // A client that this test leaves behind when it fails is ended with the others.
        std::os::unix::fs::symlink("/etc/rove", lab.home("client")).unwrap();
        let program = lab.dir.path().join("rove");
        fs::copy(binary(), &program).unwrap();
        sh(&format!("chmod 0711 {}", lab.dir.path().display()));
        let ask = |line: &str| {
            let mut command = on("client", "setpriv");
            command.args("--reuid 65534 --regid 65534 --clear-groups --".split_whitespace());
            command.arg(&program).args(line.split_whitespace()).env("HOME", "/nonexistent");
            command.env_remove("XDG_STATE_HOME");
            Ran::of(output(command))
        };
        assert_eq!(ask("down").ok(), "not up\n");
        let _gateway = lab.gateway();
        let invite = lab.invite("laptop");
        sh(&format!("nsenter --net=/run/netns/client {} up {invite} --kill-switch", binary()));
        let hint = "this host's client is asked with --dir /etc/rove";
        assert_eq!(ask("down").ok(), format!("not up here: {hint}\n"));
        assert!(ask("status").ok().contains(&format!("down: connect with `rove up`; {hint}")));
        let error = ask("status --dir /etc/rove").fails();
        assert!(error.contains("only root and members of the group `rove` may ask"), "{error}");
        // After a crash only root can read whether the kill switch stands.
        let pid = fs::read_to_string("/etc/rove/client.state/lock").unwrap();
        sh(&format!("kill -KILL {}", pid.trim()));
        wait_until("it is gone", || ask("status --dir /etc/rove").code == Some(0));
        let status = ask("status --dir /etc/rove").ok();
        assert!(status.contains("kill switch  unknown"), "{status}");
        assert!(status.contains("is not known: ") && status.contains("run as root"), "{status}");
        sh(&format!("nsenter --net=/run/netns/client {} down", binary()));
    });
}

#[test]
fn requests_that_are_none_get_an_error_and_disturb_nobody() {
    in_namespace("requests_that_are_none_get_an_error_and_disturb_nobody", || {
        let lab = Lab::new("bad requests");
        let _gateway = lab.gateway();
        let invite = lab.invite("laptop");
        lab.rove("client", &format!("up {invite}")).ok();
        let ask = |line: &[u8]| {
            let mut stream = UnixStream::connect(lab.home("client").join("client.sock")).unwrap();
            // The node may hang up before all of it is written.
            let _ = stream.write_all(line);
            let mut reply = String::new();
            let _ = BufReader::new(stream).read_line(&mut reply);
            reply
        };
        let long = [&vec![b'x'; 100_000][..], b"\n"].concat();
        for line in [&b"nonsense\n"[..], b"{\"do\":\"fly\"}\n", b"\xff\xfe\n", b"{}\n"] {
            assert!(ask(line).starts_with("{\"error\":\"not a request of this version"));
        }
        let reply = ask(&long);
        assert!(reply.is_empty() || reply.contains("too long"), "{reply}");
        assert!(ask(b"{\"do\":\"peers\"}\n").contains("a client has no such command"));
        assert_eq!(status(&lab)["state"], "up");
        lab.rove("client", "down").ok();
    });
}

#[test]
fn a_dead_first_address_costs_little() {
    in_namespace("a_dead_first_address_costs_little", || {
        let lab = Lab::new("two addresses");
        // What is sent to the first one is lost without a word.
        sh("ip -n router route add blackhole 198.18.0.1/32");
        let endpoints = "--endpoint 198.18.0.1:4500 192.0.2.1:4500";
        let networks = "--network 10.77.0.0/24,fd77::/64";
        lab.rove("gateway", &format!("gateway init {endpoints} {networks}")).ok();
        edit(&lab.home("gateway").join("gateway.toml"), "nat = true", "nat = false");
        let _gateway = lab.gateway();
        let invite = lab.invite("laptop");
        for line in [format!("up {invite} --timeout 4s"), "up --timeout 4s".to_owned()] {
            lab.rove("client", &line).ok();
            let paths = lab.rove("client", "paths --json").ok();
            let paths: Value = serde_json::from_str(&paths).unwrap();
            assert_eq!(paths[0]["remote"], "192.0.2.1:4500", "{paths}");
            assert_eq!(paths[0]["state"], "in use", "{paths}");
            lab.rove("client", "down").ok();
        }
    });
}

#[test]
fn a_family_that_the_gateway_does_not_give_is_named() {
    in_namespace("a_family_that_the_gateway_does_not_give_is_named", || {
        let lab = Lab::new("a gateway with IPv6 alone");
        lab.rove("gateway", "gateway init --endpoint 192.0.2.1:4500 --network fd77::/64").ok();
        edit(&lab.home("gateway").join("gateway.toml"), "nat = true", "nat = false");
        let _gateway = lab.gateway();
        serve_pattern("server", WEB, 1_000);
        let invite = lab.invite("laptop");
        let says = "IPv4 does not use this tunnel, because the gateway gives no IPv4 address";
        let (blocked, cure) = ("IPv4 packets are blocked", "`--exclude 0.0.0.0/0`");
        let up = lab.rove("client", &format!("up {invite}"));
        assert!([says, blocked, cure].iter().all(|part| up.err.contains(part)), "{up:?}");
        up.ok();
        assert!(!reaches("client", WEB), "as it says");
        let check = lab.rove("client", "check").out;
        let line = check.lines().find(|line| line.contains(says));
        assert!(line.is_some_and(|line| line.starts_with("ok      families")), "{check}");
        lab.rove("client", "down").ok();
        let up = lab.rove("client", "up --exclude 0.0.0.0/0");
        assert!(!up.err.contains("does not use this tunnel"), "{up:?}");
        up.ok();
        assert!(reaches("client", WEB), "as the cure says");
        lab.rove("client", "down").ok();
    });
}

#[test]
fn a_client_that_hangs_is_named() {
    in_namespace("a_client_that_hangs_is_named", || {
        let lab = Lab::new("a client that hangs");
        let _gateway = lab.gateway();
        let invite = lab.invite("laptop");
        let client = lab.start("client", &format!("up --foreground {invite}"));
        wait_until("it carries", || lab.log("client").contains("up: 10.77.0.2"));
        let process = client.child.id();
        sh(&format!("kill -STOP {process}"));
        let ask = |line: &str| {
            let said = std::fs::File::create(lab.dir.path().join(line)).unwrap();
            lab.command("client", line).stderr(said).stdout(std::process::Stdio::null()).spawn()
        };
        let (mut status, mut down) = (ask("status").unwrap(), ask("down").unwrap());
        for line in ["status", "down"] {
            let said = || std::fs::read_to_string(lab.dir.path().join(line)).unwrap();
            let cure = format!("process {process} is stopped; let it go on with `kill -CONT");
            wait_until(line, || said().contains(&cure));
        }
        sh(&format!("kill -CONT {process}"));
        assert_eq!(down.wait().unwrap().code(), Some(0));
        status.wait().unwrap();
    });
}
