//! What an operator does to a running gateway, and what it means on a real host.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

mod support;

use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;
use support::binary;
use support::netns::{
    Lab, Running, edit, in_namespace, need_program, on, reaches, serve_pattern, sh, wait_until,
};

const WEB: &str = "198.51.100.80:80";

/// Connects the gateway to one more network.
fn plug_lan(network: &str) {
    sh(&format!(
        "ip -n gateway link add lan type veth peer name nal
         ip -n gateway link set nal up && ip -n gateway link set lan up
         ip -n gateway addr add {network} dev lan"
    ));
}

fn routes() -> String {
    sh("ip -n gateway -4 route show table all dev rove-gw")
}

#[test]
fn a_full_disk_does_not_keep_whom_the_operator_revokes() {
    in_namespace("a_full_disk_does_not_keep_whom_the_operator_revokes", || {
        need_program("a full disk", "prlimit");
        let lab = Lab::new("a full disk");
        assert_eq!(lab.gateway().terminate(), Some(0));
        // A process that may write no file longer than a byte is told what a full disk tells it, at
        // any page of any file. The signal that comes along would end it.
        let mut command = on("gateway", "sh");
        command.args([
            "-c",
            "trap '' XFSZ; exec \"$0\" \"$@\"",
            binary(),
            "gateway",
            "run",
            "--dir",
        ]);
        command.arg(lab.home("gateway")).stdin(Stdio::null()).stderr(Stdio::null());
        let gateway = Running { child: command.spawn().unwrap() };
        let limit = |bytes: &str| {
            sh(&format!("prlimit --pid {} --fsize={bytes}:", gateway.child.id()));
        };
        wait_until("the gateway runs", || {
            lab.rove("gateway", "gateway status").out.contains("state         running")
        });
        serve_pattern("server", WEB, 1_000);
        let invite = lab.invite("laptop");
        lab.rove("client", &format!("up {invite}")).ok();
        assert!(reaches("client", WEB));

        limit("1");
        let error = lab.rove("gateway", "gateway revoke laptop").fails();
        assert!(error.contains("it ended now, and is forgotten when the gateway ends"), "{error}");
        assert!(!reaches("client", WEB), "a stolen laptop waits for no disk");
        let error = lab.rove("gateway", "gateway revoke laptop").fails();
        assert!(error.contains("it is still not stored"), "{error}");

        let error = lab.rove("gateway", "gateway invite phone").fails();
        assert!(error.contains("check the disk's space"), "what is given waits: {error}");

        limit("unlimited");
        lab.rove("gateway", "gateway revoke laptop").ok();
        gateway.kill();
        let _gateway = lab.gateway();
        lab.rove("client", "down").ok();
        let error = lab.rove("client", "up").fails();
        assert!(error.contains("revoked this client"), "{error}");
    });
}

#[test]
fn an_interface_gets_another_name_and_goes_when_told_to() {
    in_namespace("an_interface_gets_another_name_and_goes_when_told_to", || {
        let lab = Lab::new("an interface's name");
        let before = lab.state_of("gateway");
        let gateway = lab.gateway();
        let error = lab.rove("gateway", "gateway down").fails();
        assert!(error.contains("the gateway runs: stop it first"), "{error}");
        assert_eq!(gateway.terminate(), Some(0));
        assert!(routes().contains("10.77.0.0/24"), "for the next one");

        let config = lab.home("gateway").join("gateway.toml");
        edit(&config, "# interface = \"rove-gw\"", "interface = \"rove-other\"");
        let gateway = lab.gateway();
        let links = sh("ip -n gateway -brief addr");
        assert!(links.contains("rove-other") && !links.contains("rove-gw"), "{links}");
        let invite = lab.invite("laptop");
        lab.rove("client", &format!("up {invite}")).ok();
        lab.rove("client", "down").ok();

        assert_eq!(gateway.terminate(), Some(0));
        lab.rove("gateway", "gateway down").ok();
        lab.becomes("gateway", &before);
        let again = lab.rove("gateway", "gateway down").ok();
        assert_eq!(again, "nothing of it is left\n");
        // Its files are still a gateway.
        let _gateway = lab.gateway();
        lab.rove("client", "up").ok();
        lab.rove("client", "down").ok();
    });
}

#[test]
fn a_network_of_the_gateways_own_lies_behind_no_peer() {
    in_namespace("a_network_of_the_gateways_own_lies_behind_no_peer", || {
        let lab = Lab::new("subnets");
        let gateway = lab.gateway();
        let invite = lab.invite("office --subnet 192.168.1.0/24 --subnet 192.168.7.0/24");
        lab.rove("client", &format!("up {invite}")).ok();
        wait_until("both are routed", || {
            routes().contains("192.168.1.0/24") && routes().contains("192.168.7.0/24")
        });
        plug_lan("192.168.1.9/24");
        wait_until("the gateway's own wins", || !routes().contains("192.168.1.0/24"));
        assert!(routes().contains("192.168.7.0/24"));

        let refused = "subnet 192.168.0.0/20 overlaps 192.168.1.0/24 on lan";
        let line = "gateway invite home --subnet 192.168.0.0/20";
        // The other network behind the office is not the cause.
        lab.rove("gateway", "gateway revoke office").ok();
        let error = lab.rove("gateway", line).fails();
        assert!(error.contains(refused), "{error}");
        lab.rove("client", "down").ok();

        let invite = lab.invite("office --subnet 192.168.32.0/24");
        lab.rove("client", &format!("up {invite}")).ok();
        lab.rove("client", "down").ok();
        assert_eq!(gateway.terminate(), Some(0));
        let error = lab.rove("gateway", line).fails();
        assert!(error.contains(refused), "without a running gateway: {error}");
        // Between two starts a network came that is behind a peer, too.
        sh("ip -n gateway addr add 192.168.32.9/24 dev lan");
        let _gateway = lab.gateway();
        assert!(!routes().contains("192.168.32.0/24"));
        assert!(lab.log("gateway").contains("subnets behind peers are not routed to them"));
        lab.rove("client", "up").ok();
        lab.rove("client", "down").ok();
    });
}

#[test]
fn status_tells_what_was_heard_and_reload_what_was_taken() {
    in_namespace("status_tells_what_was_heard_and_reload_what_was_taken", || {
        let lab = Lab::new("what an operator reads");
        let _gateway = lab.secluded_gateway();
        // A network of the gateway's own, which a client reaches only if it is allowed by name.
        let inside = "192.0.2.254:8080";
        serve_pattern("router", inside, 1_000);
        for (host, name) in [("client", "laptop"), ("phone", "phone")] {
            let invite = lab.invite(name);
            if name == "laptop" {
                lab.rove("gateway", "gateway allow laptop 192.0.2.254:8080").ok();
            }
            lab.rove(host, &format!("up {invite}")).ok();
        }
        assert!(reaches("client", inside), "it was allowed before it enrolled");
        assert!(!reaches("phone", inside));
        let status = lab.rove("gateway", "gateway status").ok();
        assert!(status.contains("heard         2 of 2 sessions in the last 60 s\n"), "{status}");
        let peers = lab.rove("gateway", "gateway peers").ok();
        assert!(peers.lines().skip(1).all(|line| line.contains(" s ago ")), "{peers}");
        lab.rove("phone", "down").ok();
        lab.rove("client", "down").ok();
        let status = || -> Value {
            serde_json::from_str(&lab.rove("gateway", "gateway status --json").ok()).unwrap()
        };
        wait_until("both have left", || status()["sessions"] == 0 && status()["heard"] == 0);

        let config = lab.home("gateway").join("gateway.toml");
        assert_eq!(lab.rove("gateway", "reload").ok(), "gateway reloaded\n");
        edit(&config, "# assist = \"on\"", "assist = \"off\"");
        assert_eq!(lab.rove("gateway", "reload").ok(), "gateway reloaded\n");
        edit(&config, "dns = []", "dns = [\"9.9.9.9\"]");
        let reloaded = lab.rove("gateway", "reload").ok();
        let rest = "gateway reloaded: nat, hold, assist and rules. Restart the gateway for other \
                    changes\n";
        assert_eq!(reloaded, rest);
        edit(&config, "dns = [", "dms = [");
        let error = lab.rove("gateway", "reload").fails();
        assert!(error.contains("gateway.toml:16: gateway.dms"), "{error}");

        // What the host refuses is told, and the old configuration holds.
        edit(&config, "dms = [", "dns = [");
        edit(&config, "nat = false", "nat = true");
        sh("for nft in $(command -v nft) /usr/sbin/nft /sbin/nft /usr/bin/nft; do
                [ ! -e $nft ] || mount --bind /bin/false $nft
            done");
        let error = lab.rove("gateway", "reload").fails();
        assert!(error.contains("nft"), "{error}");
        lab.rove("client", "up").ok();
        assert!(reaches("client", inside));
        lab.rove("client", "down").ok();
    });
}

#[test]
fn who_is_refused_is_told_at_once_and_may_ask_why() {
    in_namespace("who_is_refused_is_told_at_once_and_may_ask_why", || {
        let lab = Lab::new("a destination that is refused");
        let _gateway = lab.secluded_gateway();
        let within = "192.0.2.254:8080";
        serve_pattern("router", within, 1_000);
        let invite = lab.invite("laptop");
        lab.rove("client", &format!("up {invite}")).ok();
        let asked = Instant::now();
        assert!(!reaches("client", within));
        assert!(asked.elapsed() < Duration::from_millis(700), "it has an answer");
        let why = "refused by the gateway: not among this peer's destinations";
        let explained = lab.rove("client", &format!("explain {within}")).ok();
        assert!(explained.contains(why), "{explained}");
        let flows = lab.rove("client", "flows").ok();
        assert!(flows.contains(why), "{flows}");

        lab.rove("gateway", &format!("gateway allow laptop {within}")).ok();
        wait_until("it may go there now", || reaches("client", within));
        lab.rove("client", "down").ok();
    });
}

#[test]
fn a_command_does_the_same_with_a_running_gateway_and_without() {
    in_namespace("a_command_does_the_same_with_a_running_gateway_and_without", || {
        let lab = Lab::new("commands");
        let gateway = lab.secluded_gateway();
        let inside = "192.0.2.254:8080";
        serve_pattern("router", inside, 1_000);
        let invite = lab.invite("laptop");
        lab.rove("client", &format!("up {invite}")).ok();
        assert!(!reaches("client", inside));
        let file = lab.dir.path().join("backup");
        let backup = format!("gateway backup {}", file.display());
        let restore = format!("gateway restore {}", file.display());
        lab.rove("gateway", &backup).ok();
        assert!(lab.rove("gateway", &backup).fails().contains("exists already"));
        let error = lab.rove("gateway", &restore).fails();
        assert!(error.contains("the gateway runs: stop it before you restore"), "{error}");
        assert!(lab.rove("client", "status").ok().contains("state        up"), "nobody noticed");

        // Who is enrolled is allowed something while nothing runs.
        assert_eq!(gateway.terminate(), Some(0));
        let offline = "gateway allow laptop 192.0.2.254:8080";
        let allowed = lab.rove("gateway", offline).ok();
        assert_eq!(allowed, "laptop may reach the Internet and 192.0.2.254/32:8080\n");
        let gateway = lab.gateway();
        assert_eq!(lab.rove("gateway", offline).ok(), allowed);
        wait_until("the client is back, and may", || reaches("client", inside));

        // A backup that a running gateway wrote holds who had enrolled. It was less then.
        assert_eq!(gateway.terminate(), Some(0));
        let store = lab.home("gateway").join("gateway.redb");
        std::fs::remove_file(store).unwrap();
        lab.rove("gateway", &restore).ok();
        let gateway = lab.gateway();
        wait_until("the client is back", || {
            lab.rove("gateway", "gateway status").out.contains("heard         1 of 1")
        });
        assert!(!reaches("client", inside), "what was allowed later is gone with the store");
        assert_eq!(gateway.terminate(), Some(0));
        lab.rove("gateway", "gateway revoke laptop").ok();
        let _gateway = lab.gateway();
        lab.rove("client", "down").ok();
        assert!(lab.rove("client", "up").fails().contains("revoked this client"));
    });
}

#[test]
fn a_log_for_machines_is_json_to_the_last_line() {
    in_namespace("a_log_for_machines_is_json_to_the_last_line", || {
        let lab = Lab::new("logs");
        assert_eq!(lab.gateway().terminate(), Some(0));
        let gateway = lab.start("gateway", "gateway run --log-format json");
        wait_until("the gateway runs", || lab.log("gateway").contains("the gateway runs"));
        let invite = lab.invite("laptop");
        let line = format!("up {invite} --foreground --log-format json");
        let client = lab.start("client", &line);
        wait_until("it carries", || lab.log("client").contains("up: 10.77.0.2"));
        assert_eq!(client.terminate(), Some(0));
        // What goes wrong is a line as well.
        edit(&lab.home("gateway").join("gateway.toml"), "dns = [", "dms = [");
        sh(&format!("kill -HUP {}", gateway.child.id()));
        wait_until("it says so", || lab.log("gateway").contains("gateway.dms"));
        assert_eq!(gateway.terminate(), Some(0));
        for host in ["gateway", "client"] {
            let log = lab.log(host);
            // Its answer to whoever typed the command is none of the log.
            let lines: Vec<&str> = log.lines().filter(|line| !line.starts_with("up: ")).collect();
            assert!(!lines.is_empty(), "{log}");
            for line in lines {
                let line: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"));
                for key in ["timestamp", "level", "message"] {
                    assert!(line.get(key).is_some(), "{key} is not in {line}");
                }
            }
        }
    });
}
