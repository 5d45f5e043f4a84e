//! What goes wrong has its own line, and leaves nothing behind.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

mod support;

use std::time::{Duration, Instant};

use serde_json::Value;
use support::netns::{
    Lab, download, edit, in_namespace, in_namespace_of_root, need_program, on, own_etc, pattern,
    reaches, serve_pattern, sh, wait_until,
};
use support::{Ran, binary};

const WEB: &str = "198.51.100.80:80";

#[test]
fn an_invite_that_is_no_good_says_why() {
    in_namespace("an_invite_that_is_no_good_says_why", || {
        let lab = Lab::new("invites");
        let gateway = lab.gateway();
        let used = lab.invite("laptop");
        lab.rove("client", &format!("up {used}")).ok();
        lab.rove("client", "down").ok();
        let before = lab.state_of("phone");
        let error = lab.rove("phone", &format!("up {used}")).fails();
        assert!(error.contains("the invite was used before, by another client"), "{error}");

        let expired = lab.invite("tablet --expires 1s");
        std::thread::sleep(Duration::from_millis(1_200));
        let error = lab.rove("phone", &format!("up {expired}")).fails();
        assert!(error.contains("the invite has expired"), "{error}");

        let withdrawn = lab.invite("watch");
        lab.rove("gateway", "gateway revoke watch").ok();
        let error = lab.rove("phone", &format!("up {withdrawn}")).fails();
        assert!(error.contains("the invite has expired or was withdrawn"), "{error}");
        assert_eq!(lab.state_of("phone"), before, "nothing is left of a refusal");

        // The good membership of another invite is not lost by a bad one.
        let error = lab.rove("client", &format!("up {expired}")).fails();
        assert!(error.contains("the invite has expired"), "{error}");
        lab.rove("client", "up").ok();
        lab.rove("client", "down").ok();

        // Somebody restored an older store: the gateway does not know the token any more.
        let unknown = lab.invite("radio");
        assert_eq!(gateway.terminate(), Some(0));
        std::fs::remove_dir_all(lab.home("gateway").join("gateway.state")).unwrap();
        let home = lab.home("gateway");
        std::fs::remove_file(home.join("gateway.redb")).unwrap();
        std::fs::rename(&home, lab.home("old")).unwrap();
        let line = "gateway init --endpoint 192.0.2.1:4500 --network 10.77.0.0/24,fd77::/64";
        lab.rove("gateway", line).ok();
        for name in ["gateway.key", "gateway.record", "gateway.toml"] {
            std::fs::copy(lab.home("old").join(name), home.join(name)).unwrap();
        }
        let _gateway = lab.gateway();
        let error = lab.rove("phone", &format!("up {unknown}")).fails();
        assert!(error.contains("did not issue this invite, or withdrew it"), "{error}");
        let error = lab.rove("client", "up").fails();
        assert!(error.contains("the gateway does not know this client"), "{error}");
        let status: Value =
            serde_json::from_str(&lab.rove("gateway", "gateway status --json").ok()).unwrap();
        let whys: Vec<&str> =
            status["recent"].as_array().unwrap().iter().filter_map(|e| e["why"].as_str()).collect();
        assert_eq!(whys, ["invite unknown", "not enrolled"]);
    });
}

#[test]
fn a_revocation_ends_a_live_session_within_a_second() {
    in_namespace("a_revocation_ends_a_live_session_within_a_second", || {
        let lab = Lab::new("a revocation");
        let _gateway = lab.gateway();
        serve_pattern("server", WEB, 1_000);
        let invite = lab.invite("laptop");
        lab.rove("client", &format!("up {invite}")).ok();
        assert!(reaches("client", WEB));
        let began = Instant::now();
        lab.rove("gateway", "gateway revoke laptop").ok();
        assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
        assert!(!reaches("client", WEB), "at once");
        wait_until("the client knows", || lab.rove("client", "status").out.contains("closed: "));
        lab.rove("client", "down").ok();
        let error = lab.rove("client", "up").fails();
        assert!(error.contains("revoked this client"), "{error}");
        // A restart of the gateway does not forget it.
        drop(_gateway);
        let _gateway = lab.gateway();
        let error = lab.rove("client", "up").fails();
        assert!(error.contains("revoked this client"), "{error}");
        // A new invite lets the same person in again.
        let invite = lab.invite("laptop");
        lab.rove("client", &format!("up {invite}")).ok();
        assert!(reaches("client", WEB));
        lab.rove("client", "down").ok();
    });
}

#[test]
fn a_killed_client_leaves_nothing_after_its_next_start() {
    in_namespace("a_killed_client_leaves_nothing_after_its_next_start", || {
        let lab = Lab::new("a killed client");
        let _gateway = lab.gateway();
        serve_pattern("server", WEB, 100_000);
        let before = lab.state_of("client");
        let invite = lab.invite("laptop");
        for round in 0..3 {
            let line = if round == 0 {
                format!("up {invite} --foreground")
            } else {
                "up --foreground".into()
            };
            let client = lab.start("client", &line);
            wait_until("it carries", || lab.log("client").contains("up: 10.77.0.2"));
            let arguments = std::fs::read(format!("/proc/{}/cmdline", client.child.id())).unwrap();
            let arguments = String::from_utf8_lossy(&arguments);
            assert!(arguments.contains("--foreground"), "{arguments}");
            assert!(!arguments.contains("rove://"), "everybody can read the invite: {arguments}");
            client.kill();
        }
        assert_ne!(lab.state_of("client"), before, "a crash cannot clean up");
        lab.rove("client", "up").ok();
        assert_eq!(download("client", WEB).unwrap(), pattern(100_000));
        lab.rove("client", "down").ok();
        assert_eq!(lab.state_of("client"), before);
        // `down` alone sweeps, too.
        let client = lab.start("client", "up --foreground");
        wait_until("it carries", || lab.log("client").contains("up: 10.77.0.2"));
        client.kill();
        let left = "down; a client that was killed left routes, rules and a packet filter. Traffic \
                    that belongs in the tunnel is blocked: `rove up`, or `rove down`";
        let status = || lab.rove("client", "status").ok();
        assert!(status().contains(left), "{}", status());
        assert_eq!(lab.rove("client", "down").ok(), "down\n");
        assert_eq!(lab.state_of("client"), before);
        assert_eq!(lab.rove("client", "down").ok(), "not up\n");
        assert!(!status().contains(left), "{}", status());
    });
}

#[test]
fn a_killed_gateway_comes_back_and_so_do_its_clients() {
    in_namespace("a_killed_gateway_comes_back_and_so_do_its_clients", || {
        let lab = Lab::new("a killed gateway");
        let gateway = lab.gateway();
        serve_pattern("server", WEB, 100_000);
        let invite = lab.invite("laptop");
        lab.rove("client", &format!("up {invite}")).ok();
        assert_eq!(download("client", WEB).unwrap(), pattern(100_000));
        let running = lab.state_of("gateway");
        gateway.kill();
        let gateway = lab.gateway();
        // An interface has its carrier back a moment after its process.
        lab.becomes("gateway", &running);
        // The client was not told to do anything.
        wait_until("the client is back", || reaches("client", WEB));
        assert_eq!(download("client", WEB).unwrap(), pattern(100_000));

        // A gateway that ends in order says so, and loses less.
        assert_eq!(gateway.terminate(), Some(0));
        let kept = lab.state_of("gateway").iter().any(|line| line.contains("inet 10.77.0.1/24"));
        assert!(kept, "for the next one");
        let _gateway = lab.gateway();
        lab.becomes("gateway", &running);
        wait_until("the client is back", || reaches("client", WEB));
        lab.rove("client", "down").ok();
    });
}

#[test]
fn the_kill_switch_outlives_everything_but_down() {
    in_namespace("the_kill_switch_outlives_everything_but_down", || {
        need_program("the kill switch", "nft");
        let lab = Lab::new("the kill switch");
        let _gateway = lab.gateway();
        let callers = serve_pattern("server", WEB, 100_000);
        let before = lab.state_of("client");
        assert!(reaches("client", WEB));
        let invite = lab.invite("laptop");
        let client = lab.start("client", &format!("up {invite} --foreground --kill-switch"));
        wait_until("it carries", || lab.log("client").contains("up: 10.77.0.2"));
        assert_eq!(download("client", WEB).unwrap(), pattern(100_000));
        assert_eq!(callers.last(), "10.77.0.2");
        let status: Value =
            serde_json::from_str(&lab.rove("client", "status --json").ok()).unwrap();
        assert_eq!(status["kill_switch"], true);

        client.kill();
        assert!(!reaches("client", WEB), "a crash lets nothing out");
        let status = lab.rove("client", "status").ok();
        assert!(status.contains("the kill switch lets nothing out"), "{status}");

        let client = lab.start("client", "up --foreground --kill-switch");
        wait_until("it carries again", || lab.log("client").contains("up: 10.77.0.2"));
        assert_eq!(client.terminate(), Some(0));
        assert!(!reaches("client", WEB), "nor does a stop");

        // At boot, before the network: the rules are gone with the kernel, the promise is not.
        sh("nsenter --net=/run/netns/client nft flush ruleset");
        assert!(reaches("client", WEB));
        lab.rove("client", "stand-kill-switch").ok();
        assert!(!reaches("client", WEB));

        assert_eq!(lab.rove("client", "down").ok(), "down\n");
        assert!(reaches("client", WEB));
        assert_eq!(lab.state_of("client"), before);
    });
}

#[test]
fn what_is_missing_or_taken_is_named() {
    in_namespace("what_is_missing_or_taken_is_named", || {
        let lab = Lab::new("faults");
        let gateway = lab.gateway();
        let invite = lab.invite("laptop");

        let error = lab.rove("gateway", "gateway run").fails();
        assert!(error.contains("another rove (process ") && error.contains("stop it"), "{error}");
        assert_eq!(gateway.terminate(), Some(0));

        // Somebody else has the port.
        let taken =
            support::netns::inside("gateway", || std::net::UdpSocket::bind("[::]:4500").unwrap());
        let taken = taken.join().unwrap();
        let error = lab.rove("gateway", "gateway run").fails();
        assert!(error.contains("UDP port 4500 of :: is in use: stop the other program"), "{error}");
        drop(taken);

        // The service's network is one of the gateway's own.
        sh("ip -n gateway link add lan type veth peer name nal
            ip -n gateway link set nal up && ip -n gateway link set lan up
            ip -n gateway addr add 10.77.0.99/16 dev lan");
        let error = lab.rove("gateway", "gateway run").fails();
        assert!(error.contains("10.77.0.0/24 overlaps 10.77.0.0/16 on lan"), "{error}");
        sh("ip -n gateway link del lan");

        // Nobody is there.
        let before = lab.state_of("client");
        let began = Instant::now();
        let error = lab.rove("client", &format!("up {invite} --timeout 2s")).fails();
        assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
        assert!(error.contains("no answer from 192.0.2.1:4500 within 2s: check that"), "{error}");
        assert_eq!(lab.state_of("client"), before);

        // No network at all.
        sh("ip -n client link set to-router down");
        let error = lab.rove("client", &format!("up {invite} --timeout 1s")).fails();
        assert!(error.contains("no network: connect this host to one"), "{error}");

        // A name that nobody knows.
        edit(&lab.home("gateway").join("gateway.toml"), "192.0.2.1:4500", "vpn.invalid:4500");
        lab.rove("gateway", "gateway sign").ok();
        let invite = lab.invite("tablet");
        sh("ip -n client link set to-router up
            ip -n client route add default via 203.0.113.254");
        let error = lab.rove("client", &format!("up {invite} --timeout 2s")).fails();
        assert!(
            error.contains(" does not resolve: check the name, and this host's DNS"),
            "{error}"
        );
    });
}

#[test]
fn without_device_or_privilege_the_cure_is_named() {
    in_namespace("without_device_or_privilege_the_cure_is_named", || {
        let lab = Lab::new("privileges");
        let gateway = lab.gateway();
        let invite = lab.invite("laptop");
        drop(gateway);

        // A user namespace inside this one owns no network here.
        let mut command = on("client", "unshare");
        command.args(["--user", "--map-root-user", "--", binary(), "up", &invite, "--dir"]);
        command.arg(lab.home("client"));
        let error = Ran::of(support::netns::output(command)).fails();
        assert!(error.contains("no permission to ") && error.contains("CAP_NET_ADMIN"), "{error}");

        sh("mount -t tmpfs none /dev/net");
        for (host, line) in [("client", format!("up {invite}")), ("gateway", "gateway run".into())]
        {
            let error = lab.rove(host, &line).fails();
            assert!(error.contains("no TUN device (/dev/net/tun): load it with"), "{error}");
        }
    });
}

#[test]
fn only_those_who_may_ask_get_an_answer() {
    in_namespace_of_root("only_those_who_may_ask_get_an_answer", || {
        need_program("the control socket", "setpriv");
        let lab = Lab::new("the control socket");
        let _gateway = lab.gateway();
        // Where another user can get at it.
        let program = lab.dir.path().join("rove");
        std::fs::copy(binary(), &program).unwrap();
        sh(&format!("chmod 0711 {}", lab.dir.path().display()));
        let ask = |who: &str| {
            let mut command = on("gateway", "setpriv");
            command.args(who.split_whitespace()).arg("--").arg(&program);
            command.args(["gateway", "peers", "--dir"]).arg(lab.home("gateway"));
            Ran::of(support::netns::output(command))
        };
        let nobody = "--reuid 65534 --regid 65534 --clear-groups";
        let error = ask(nobody).fails();
        assert!(error.contains("only root and members of the group `rove` may ask"), "{error}");
        // In this namespace's own copy of the group file.
        std::fs::copy("/etc/group", "/run/group").unwrap();
        sh("mount --bind /run/group /etc/group && echo 'rove:x:4711:' >> /etc/group");
        ask("--reuid 65534 --regid 4711 --clear-groups").ok();
        ask(nobody).fails();
        // What others may not ask they may not read either.
        drop(_gateway);
        let error = ask(nobody).fails();
        assert!(error.contains("gateway.toml: permission denied: run as root"), "{error}");
    });
}

#[test]
fn a_client_killed_at_any_moment_leaves_nothing_that_down_does_not_take_back() {
    in_namespace(
        "a_client_killed_at_any_moment_leaves_nothing_that_down_does_not_take_back",
        || {
            need_program("the kill switch", "nft");
            own_etc();
            let lab = Lab::new("kills");
            let line = "gateway init --endpoint 192.0.2.1:4500 --network 10.77.0.0/24,fd77::/64";
            lab.rove("gateway", &format!("{line} --dns 10.77.0.1")).ok();
            edit(&lab.home("gateway").join("gateway.toml"), "nat = true", "nat = false");
            let _gateway = lab.gateway();
            let before = lab.state_of("client");
            let invite = lab.invite("laptop");
            lab.rove("client", &format!("up {invite}")).ok();
            let plain = lab.state_of("client");
            lab.rove("client", "down").ok();
            lab.becomes("client", &before);
            let chosen = "--route 198.51.100.0/24 --advertise 192.168.7.0/24";
            let plans = ["--kill-switch", chosen, "--exclude 203.0.112.0/20"];
            let moments = [0, 2, 4, 6, 8, 10, 13, 16, 20, 25, 30, 40, 60, 90, 150];
            for (ms, plan) in moments.into_iter().zip(plans.into_iter().cycle()) {
                let client = lab.start("client", &format!("up --foreground {plan}"));
                std::thread::sleep(Duration::from_millis(ms));
                client.kill();
                if plan != "--kill-switch" {
                    // Another plan than the one that was begun leaves nothing of it either.
                    lab.rove("client", "up").ok();
                    lab.becomes("client", &plain);
                }
                lab.rove("client", "down").ok();
                lab.becomes("client", &before);
            }
        },
    );
}

#[test]
fn a_gateway_killed_at_any_moment_starts_again() {
    in_namespace("a_gateway_killed_at_any_moment_starts_again", || {
        let lab = Lab::new("kills");
        let gateway = lab.gateway();
        let invite = lab.invite("laptop");
        lab.rove("client", &format!("up {invite}")).ok();
        lab.rove("client", "down").ok();
        let running = lab.state_of("gateway");
        gateway.kill();
        for ms in [0, 2, 4, 6, 8, 10, 13, 16, 20, 25, 30, 40, 60, 90] {
            let gateway = lab.start("gateway", "gateway run");
            std::thread::sleep(Duration::from_millis(ms));
            gateway.kill();
        }
        let _gateway = lab.gateway();
        lab.becomes("gateway", &running);
        lab.rove("client", "up").ok();
        lab.rove("client", "down").ok();
    });
}

#[test]
fn a_configuration_is_read_again_or_refused_as_a_whole() {
    in_namespace("a_configuration_is_read_again_or_refused_as_a_whole", || {
        let lab = Lab::new("reload");
        let gateway = lab.gateway();
        let callers = serve_pattern("server", WEB, 1_000);
        let invite = lab.invite("laptop");
        lab.rove("client", &format!("up {invite}")).ok();
        let from = || {
            // Whoever has the whole of it was accepted, and so counted, before.
            assert_eq!(download("client", WEB).unwrap(), pattern(1_000));
            callers.last()
        };
        assert_eq!(from(), "10.77.0.2");
        let path = lab.home("client").join("client.toml");
        std::fs::write(&path, "[client]\nroute = [\"10.77.0.0/24\"]\n").unwrap();
        lab.rove("client", "reload").ok();
        assert_eq!(from(), "203.0.113.2");
        std::fs::write(&path, "[client]\nroute = [\"10.77.0.1/24\"]\n").unwrap();
        let error = lab.rove("client", "reload").fails();
        assert!(error.contains("client.toml:2: client.route: "), "{error}");
        assert_eq!(from(), "203.0.113.2", "the old one stays");
        // A running node has given up root's right to read every file.
        sh(&format!("chmod 000 {}", path.display()));
        let error = lab.rove("client", "reload").fails();
        let cure = "permission denied (mode 000): let its owner read it with `chmod u+rw ";
        assert!(error.contains(cure), "{error}");
        sh(&format!("chmod 600 {}", path.display()));
        std::fs::write(&path, "").unwrap();
        lab.rove("client", "reload").ok();
        assert_eq!(from(), "10.77.0.2");
        lab.rove("client", "down").ok();

        let config = lab.home("gateway").join("gateway.toml");
        edit(&config, "dns = []", "dns = [\"10.77.0.1\"]");
        sh(&format!("kill -HUP {}", gateway.child.id()));
        wait_until("it says so", || lab.log("gateway").contains("configuration read again"));
        edit(&config, "dns = [", "dms = [");
        sh(&format!("kill -HUP {}", gateway.child.id()));
        wait_until("it says so", || lab.log("gateway").contains("gateway.toml:16: gateway.dms"));
        assert_eq!(gateway.terminate(), Some(0));
    });
}
