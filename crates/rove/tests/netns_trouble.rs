//! A failure around a node: of its output, of its disk, of a program that it needs. None of them
//! ends a node, and each has a true line with its cure.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

mod support;

use std::fs::{self, File, OpenOptions};
use std::io::{self, PipeReader, Write};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use support::Ran;
use support::netns::{
    Lab, Running, download, edit, in_namespace, need_program, own_etc, pattern, reaches,
    serve_pattern, sh, wait_until,
};

const WEB: &str = "198.51.100.80:80";

/// Where a node prints to in vain. The reader keeps a pipe open that nobody reads.
fn useless_outputs() -> Vec<(&'static str, File, Option<PipeReader>)> {
    let (reader, closed) = io::pipe().unwrap();
    drop(reader);
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let (reader, mut unread) = io::pipe().unwrap();
    rustix::fs::fcntl_setfl(&unread, OFlags::NONBLOCK).unwrap();
    while unread.write(&[b'x'; 512]).is_ok() {}
    rustix::fs::fcntl_setfl(&unread, OFlags::empty()).unwrap();
    let file = |pipe: io::PipeWriter| File::from(std::os::fd::OwnedFd::from(pipe));
    vec![
        ("a closed pipe", file(closed), None),
        ("a full disk", full, None),
        ("a pipe that nobody reads", file(unread), Some(reader)),
    ]
}

fn start_on(lab: &Lab, host: &str, line: &str, output: &File) -> Running {
    let mut command = lab.command(host, line);
    command.stdin(Stdio::null()).stdout(output.try_clone().unwrap());
    Running { child: command.stderr(output.try_clone().unwrap()).spawn().unwrap() }
}

fn status(lab: &Lab) -> String {
    lab.rove("client", "status").out
}

/// Whether all items of the client's plan are in place.
fn is_whole(lab: &Lab) -> bool {
    let status = status(lab);
    !["is missing", "was changed", "not guarded"].iter().any(|word| status.contains(word))
}

#[test]
fn no_process_ends_for_a_line_that_cannot_be_printed() {
    in_namespace("no_process_ends_for_a_line_that_cannot_be_printed", || {
        need_program("a terminal that closes", "script");
        let lab = Lab::new("lost lines");
        let gateway = lab.gateway();
        serve_pattern("server", WEB, 1_000);
        let invite = lab.invite("laptop");
        lab.rove("client", &format!("up {invite}")).ok();
        lab.rove("client", "down").ok();
        assert_eq!(gateway.terminate(), Some(0));
        for (what, output, _reader) in useless_outputs() {
            let mut gateway = start_on(&lab, "gateway", "gateway run", &output);
            let mut client = start_on(&lab, "client", "up --foreground", &output);
            wait_until(what, || status(&lab).contains("carrying     yes"));
            for node in [&client, &gateway] {
                // A reload that succeeds or fails is logged.
                sh(&format!("kill -HUP {}", node.child.id()));
            }
            sh("ip -n client rule del pref 5191");
            wait_until(what, || sh("ip -n client rule").contains("5191:"));
            assert_eq!(download("client", WEB).unwrap(), pattern(1_000), "{what}");
            for node in [&mut client, &mut gateway] {
                assert_eq!(node.child.try_wait().unwrap(), None, "{what}");
            }
            assert_eq!(client.terminate(), Some(0), "{what}");
            assert_eq!(gateway.terminate(), Some(0), "{what}");
        }
        // Commands whose reader has gone away, or whose disk is full.
        let commands = ["--help", "completions bash", "status", "paths", "check", "gateway status"];
        for (what, output, _reader) in useless_outputs().into_iter().take(2) {
            for line in commands {
                let mut command = lab.command("client", line);
                let ran = command.stdin(Stdio::null()).stdout(output.try_clone().unwrap());
                let ran = Ran::of(ran.output().unwrap());
                assert!(matches!(ran.code, Some(0 | 1)), "{line}, {what}: {ran:?}");
                assert!(!ran.err.contains("panicked"), "{line}, {what}: {ran:?}");
            }
        }
        // The guide's gateway, whose terminal closes: the kernel sends SIGHUP.
        let home = lab.home("gateway");
        let line = format!("{} gateway run --dir {}", support::binary(), home.display());
        let mut terminal = support::netns::on("gateway", "script");
        terminal.args(["-q", "-c", &line, "/dev/null"]).stdin(Stdio::piped());
        let mut terminal = terminal.stdout(Stdio::null()).spawn().unwrap();
        let status = || lab.rove("gateway", "gateway status").out;
        let is_running = || status().contains("state         running");
        wait_until("the gateway runs", is_running);
        let pid = fs::read_to_string(home.join("gateway.state/lock")).unwrap();
        terminal.kill().unwrap();
        terminal.wait().unwrap();
        // Its log lines have nowhere to go from now on.
        lab.rove("gateway", "reload").ok();
        assert!(is_running() && fs::exists(format!("/proc/{}", pid.trim())).unwrap());
        sh(&format!("kill -TERM {}", pid.trim()));
        wait_until("it ends", || !fs::exists(format!("/proc/{}", pid.trim())).unwrap());
    });
}

#[test]
fn a_full_disk_ends_no_client() {
    in_namespace("a_full_disk_ends_no_client", || {
        own_etc();
        let lab = Lab::new("a full disk");
        let line = "gateway init --endpoint 192.0.2.1:4500 --network 10.77.0.0/24,fd77::/64";
        lab.rove("gateway", &format!("{line} --dns 10.77.0.1")).ok();
        edit(&lab.home("gateway").join("gateway.toml"), "nat = true", "nat = false");
        let _gateway = lab.gateway();
        serve_pattern("server", WEB, 1_000);
        let home = lab.home("client");
        fs::create_dir(&home).unwrap();
        sh(&format!("mount -t tmpfs -o size=16m,mode=711 none {}", home.display()));
        let before = lab.state_of("client");
        let invite = lab.invite("laptop");
        let full = home.join("full");
        let fill = || {
            let _ = Command::new("dd")
                .args(["if=/dev/zero", "bs=4k", &format!("of={}", full.display())])
                .output()
                .unwrap();
            assert!(fs::write(home.join("more"), [1; 8_192]).is_err(), "the disk is full");
            let _ = fs::remove_file(home.join("more"));
        };
        // The first start, with room for nothing or for a part of the files.
        for room in [0, 4_096, 65_536, 262_144] {
            fill();
            let file = fs::OpenOptions::new().write(true).open(&full).unwrap();
            file.set_len(file.metadata().unwrap().len() - room).unwrap();
            let started = lab.rove("client", &format!("up {invite}"));
            let is_told = started.err.contains("disk");
            assert!(started.code == Some(0) || is_told, "{room}: {started:?}");
            fs::remove_file(&full).unwrap();
            lab.rove("client", "down");
            let again = lab.rove("client", "up --timeout 2s").err;
            let is_broken = ["damaged", "no store", "holds no"].iter().any(|it| again.contains(it));
            assert!(!is_broken, "{room}: {again}");
            lab.rove("client", "down");
        }
        lab.rove("client", &format!("up {invite}")).ok();
        fill();
        // Another link: its settings are part of the plan, and so of the journal.
        support::netns::second_cable();
        let setting = "cat /proc/sys/net/ipv4/conf/second/accept_redirects";
        let refuses = || sh(&format!("nsenter --net=/run/netns/client {setting}")).trim() == "0";
        wait_until("the new link is part of the plan", refuses);
        // Others change the host: what is put back is logged.
        sh("ip -n client rule del pref 5191");
        wait_until("the rule is back", || sh("ip -n client rule").contains("5191:"));
        fs::write("/etc/resolv.conf", "nameserver 192.0.2.99\n").unwrap();
        wait_until("the name server is back", || {
            fs::read_to_string("/etc/resolv.conf").unwrap().contains("10.77.0.1")
        });
        sh("ip -n client link set to-router down");
        wait_until("it moved", || download("client", WEB).is_ok());
        lab.rove("client", "reload").ok();
        assert!(status(&lab).contains("carrying     yes"), "{}", status(&lab));
        assert_eq!(lab.rove("client", "down").ok(), "down\n");
        assert_eq!(fs::read_to_string("/etc/resolv.conf").unwrap(), "nameserver 192.0.2.99\n");
        // The kernel forgot IPv6 addresses and routes with the link.
        sh("ip -n client link del second
            ip -n client link set to-router up
            ip -n client addr add 2001:db8:c::2/64 dev to-router nodad
            ip -n client route add default via 203.0.113.254
            ip -n client route add default via 2001:db8:c::1");
        // A start on a full disk works, or says why and leaves nothing.
        let started = lab.rove("client", "up --kill-switch");
        if started.code != Some(0) {
            assert!(started.err.contains("the disk is full: make room"), "{started:?}");
        }
        lab.rove("client", "down").ok();
        fs::remove_file(&full).unwrap();
        fs::write("/etc/resolv.conf", "nameserver 192.0.2.53\n").unwrap();
        lab.becomes("client", &before);
        lab.rove("client", "up").ok();
        lab.rove("client", "down").ok();
    });
}

/// Gives this test an nft of its own, which it may change.
fn own_nft() {
    sh("mkdir /run/sbin && cp -r /usr/sbin/. /run/sbin/ && mount --bind /run/sbin /usr/sbin");
}

#[test]
fn a_program_that_cannot_be_started_is_named_and_leaves_nothing() {
    in_namespace("a_program_that_cannot_be_started_is_named_and_leaves_nothing", || {
        need_program("the packet filter", "nft");
        own_nft();
        let lab = Lab::new("a program that cannot be started");
        let _gateway = lab.gateway();
        let invite = lab.invite("laptop");
        let before = lab.state_of("client");
        sh("chmod 644 /usr/sbin/nft");
        let why = "needs the program nft, but /usr/sbin/nft cannot be started";
        let error = lab.rove("client", &format!("up {invite} --kill-switch")).fails();
        assert!(error.contains(&format!("the kill switch {why}")), "{error}");
        assert!(error.contains("chmod 755") && !error.contains("run as root"), "{error}");
        assert_eq!(lab.rove("client", "down").ok(), "not up\n");
        // A tunnel without the packet filter is better than none.
        let up = lab.rove("client", "up");
        assert!(up.err.contains("not guarded") && up.err.contains(why), "{up:?}");
        assert!(status(&lab).contains(why), "{}", status(&lab));
        assert_eq!(lab.rove("client", "down").ok(), "down\n");
        sh("chmod 755 /usr/sbin/nft");
        lab.becomes("client", &before);
        // A program for another machine: the kernel says so when it is started.
        sh("mv /usr/sbin/nft /usr/sbin/nft.kept && printf 'no program' > /usr/sbin/nft
            chmod 755 /usr/sbin/nft");
        let error = lab.rove("client", "up --kill-switch").fails();
        assert!(error.contains("nft") && !error.contains("run as root"), "{error}");
        lab.rove("client", "up").ok();
        assert_eq!(lab.rove("client", "down").ok(), "down\n");
        sh("mv /usr/sbin/nft.kept /usr/sbin/nft");
        lab.becomes("client", &before);

        // A crash, and what is left cannot be taken away without the program.
        lab.rove("client", "up --kill-switch").ok();
        let pid = fs::read_to_string(lab.home("client").join("client.state/lock")).unwrap();
        sh(&format!("kill -KILL {}", pid.trim()));
        sh("chmod 644 /usr/sbin/nft");
        let error = lab.rove("client", "down").fails();
        assert!(error.contains(why), "{error}");
        assert!(status(&lab).contains("cannot be seen"), "{}", status(&lab));
        sh("chmod 755 /usr/sbin/nft");
        assert!(status(&lab).contains("the kill switch lets nothing out"), "{}", status(&lab));
        sh("nsenter --net=/run/netns/client nft flush ruleset");
        // The command that failed has taken the routes away.
        let told = "a kill switch is on record but not in place, so packets leave in clear";
        assert!(status(&lab).contains(told), "{}", status(&lab));
        assert_eq!(lab.rove("client", "down").ok(), "down\n");
        lab.becomes("client", &before);
    });
}

#[test]
fn ipv6_that_is_off_keeps_no_tunnel_down() {
    in_namespace("ipv6_that_is_off_keeps_no_tunnel_down", || {
        let lab = Lab::new("IPv6 that is off");
        let _gateway = lab.gateway();
        serve_pattern("server", WEB, 1_000);
        let invite = lab.invite("laptop");
        let set = |name: &str, value: u8| {
            let file = format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6");
            sh(&format!("nsenter --net=/run/netns/client sh -c 'echo {value} > {file}'"));
        };
        // Somebody turns it off everywhere: the tunnel's own address is put back.
        lab.rove("client", &format!("up {invite}")).ok();
        let has_address = || sh("ip -n client -6 addr show dev rove0").contains("fd77::2/");
        assert!(has_address());
        set("all", 1);
        wait_until("the address is back", has_address);
        wait_until("nothing is wrong", || is_whole(&lab));
        lab.rove("client", "down").ok();
        // A container: it is off, and nothing can turn it on.
        set("default", 1);
        sh("mount --bind /proc/sys /proc/sys && mount -o remount,ro,bind /proc/sys");
        let before = lab.state_of("client");
        let up = lab.rove("client", "up");
        assert_eq!(up.code, Some(0), "{up:?}");
        let told = "no IPv6 in the tunnel: IPv6 is off on rove0";
        assert!(up.err.contains(told) && up.err.contains("--sysctl"), "{up:?}");
        let problem = "IPv6 is off on rove0 (disable_ipv6 is 1)";
        assert!(status(&lab).contains(problem), "{}", status(&lab));
        assert_eq!(download("client", WEB).unwrap(), pattern(1_000));
        assert!(!reaches("client", "[2001:db8:b::80]:80"), "no IPv6 leaves in clear");
        assert_eq!(lab.rove("client", "down").ok(), "down\n");
        lab.becomes("client", &before);
    });
}

/// Networks of a list, of many lengths, none of which another contains or continues.
const EXCLUDED: usize = 20_000;
/// Memory of a client with such a list.
const RESIDENT_KB_MAX: u64 = 40 << 10;

fn prefixes() -> Vec<String> {
    // Every second /24 of 20.0.0.0/8 to 90.0.0.0/8, some of them shorter by their last bits.
    let net =
        |n: usize| format!("{}.{}.{}.0/{}", 20 + n / 16_384, n / 64 % 256, n % 64 * 4, 23 + n % 2);
    (0..EXCLUDED).map(net).collect()
}

/// The peak of a process's memory, and the processor time of it and its ended children.
fn used_by(pid: &str) -> (u64, f64) {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    // utime, stime, cutime and cstime of proc_pid_stat(5), in hundredths.
    let ticks: f64 = fields[11..15].iter().map(|ticks| ticks.parse::<f64>().unwrap()).sum();
    (peak.trim().trim_end_matches(" kB").parse().unwrap(), ticks / 100.0)
}

#[test]
fn a_countrys_prefixes_are_excluded_at_once() {
    in_namespace("a_countrys_prefixes_are_excluded_at_once", || {
        need_program("the packet filter", "nft");
        let lab = Lab::new("a long list");
        let _gateway = lab.gateway();
        let callers = serve_pattern("server", WEB, 1_000);
        let invite = lab.invite("laptop");
        let before = lab.state_of("client");
        lab.rove("client", &format!("up {invite}")).ok();
        lab.rove("client", "down").ok();
        lab.becomes("client", &before);
        let (list, config) =
            (lab.home("client").join("list"), lab.home("client").join("client.toml"));
        let mut nets = prefixes();
        nets.push("198.51.100.0/24 # the server".to_owned());
        fs::write(&list, nets.join("\n")).unwrap();
        fs::write(&config, "[client]\nexclude-file = \"list\"\n").unwrap();
        let routes = || sh("ip -n client route show table 29295 | grep -c throw || true");
        let from = || {
            assert_eq!(download("client", WEB).unwrap(), pattern(1_000));
            callers.last()
        };
        for options in ["", "--kill-switch"] {
            let began = std::time::Instant::now();
            lab.rove("client", &format!("up {options}")).ok();
            let up = began.elapsed();
            assert_eq!(routes().trim(), (EXCLUDED + 1).to_string());
            assert_eq!(from(), "203.0.113.2", "past the tunnel");
            let pid = fs::read_to_string(lab.home("client").join("client.state/lock")).unwrap();
            // Others take away routes and tables: they are put back.
            sh("ip -n client route del throw 198.51.100.0/24 table 29295
                nsenter --net=/run/netns/client nft flush ruleset");
            wait_until("it is put back", || routes().trim() == (EXCLUDED + 1).to_string());
            wait_until("nothing is wrong", || is_whole(&lab));
            assert_eq!(from(), "203.0.113.2", "put back with its sets");
            let journal = lab.home("client").join("client.state/plan.json");
            let journal = fs::metadata(journal).unwrap().len();
            assert!(journal < 500_000, "{journal} bytes");
            // Another list: the server's network is not on it any more.
            fs::write(&list, nets[..EXCLUDED - 1].join("\n")).unwrap();
            let began = std::time::Instant::now();
            lab.rove("client", "reload").ok();
            let reload = began.elapsed();
            assert_eq!(routes().trim(), (EXCLUDED - 1).to_string());
            assert_eq!(from(), "10.77.0.2", "in the tunnel");
            fs::write(&list, nets.join("\n")).unwrap();
            lab.rove("client", "reload").ok();
            assert_eq!(from(), "203.0.113.2", "past the tunnel again");
            let (peak_kb, seconds) = used_by(pid.trim());
            assert!(peak_kb < RESIDENT_KB_MAX, "{peak_kb} KB");
            let began = std::time::Instant::now();
            assert_eq!(lab.rove("client", "down").ok(), "down\n");
            let down = began.elapsed();
            eprintln!(
                "{options}: up {up:.2?}, reload {reload:.2?}, down {down:.2?}, peak {peak_kb} KB, \
                 processor {seconds:.2} s, journal {journal} bytes"
            );
            lab.becomes("client", &before);
        }
        // A crash: the journal has no list, and everything goes all the same.
        lab.rove("client", "up").ok();
        let pid = fs::read_to_string(lab.home("client").join("client.state/lock")).unwrap();
        sh(&format!("kill -KILL {}", pid.trim()));
        assert_eq!(lab.rove("client", "down").ok(), "down\n");
        lab.becomes("client", &before);
        lists_that_are_no_good_say_why(&lab, &list);
    });
}

fn lists_that_are_no_good_say_why(lab: &Lab, list: &std::path::Path) {
    let many = "192.0.2.1\n".repeat(32_769);
    fs::write(list, many).unwrap();
    let error = lab.rove("client", "up").fails();
    let told = "client.toml:2: client.exclude-file: has more than 32768 networks: leave some out";
    assert!(error.contains(told), "{error}");
    fs::write(list, "198.51.100.0/24\n\nnonsense\n").unwrap();
    let error = lab.rove("client", "up").fails();
    assert!(error.contains("client.exclude-file: ") && error.contains("list:3: "), "{error}");
}

/// The process of the client that runs, or ran last.
fn client_pid(lab: &Lab) -> String {
    let lock = lab.home("client").join("client.state/lock");
    fs::read_to_string(lock).unwrap().trim().to_owned()
}

#[test]
fn down_takes_everything_back_on_a_read_only_file_system() {
    in_namespace("down_takes_everything_back_on_a_read_only_file_system", || {
        need_program("the kill switch", "nft");
        let lab = Lab::new("a read-only file system");
        let _gateway = lab.gateway();
        let before = lab.state_of("client");
        let invite = lab.invite("laptop");
        let home = lab.home("client");
        let freeze =
            || sh(&format!("mount --bind {0} {0}; mount -o remount,ro,bind {0}", home.display()));
        let thaw = || sh(&format!("umount {}", home.display()));
        let down = || {
            let down = lab.rove("client", "down");
            assert_eq!((down.code, &*down.out), (Some(0), "down\n"), "{down:?}");
            lab.becomes("client", &before);
            down.err
        };
        lab.rove("client", &format!("up --kill-switch {invite}")).ok();
        for is_killed in [false, true] {
            if is_killed {
                sh(&format!("kill -KILL {}", client_pid(&lab)));
                let told = "the kill switch lets nothing out";
                wait_until("the process is gone", || status(&lab).contains(told));
                // Without a lock, nobody has it.
                fs::remove_file(home.join("client.state/lock")).unwrap();
            }
            freeze();
            let warning = down();
            assert_eq!(warning.matches("read-only: mount it read-write").count(), 1, "{warning}");
            assert!(warning.contains("returns at the next boot"), "{warning}");
            let told = "a kill switch is on record but not in place, so packets leave in clear";
            assert!(status(&lab).contains(told), "{}", status(&lab));
            thaw();
            assert_eq!(down(), "");
            assert!(status(&lab).contains("down: connect with `rove up`"), "{}", status(&lab));
            lab.rove("client", if is_killed { "up" } else { "up --kill-switch" }).ok();
        }
        // The same without a kill switch: what is gone is not said to be left.
        freeze();
        down();
        assert!(status(&lab).contains("down: connect with `rove up`"), "{}", status(&lab));
        thaw();
        // A log that cannot be written keeps no tunnel down.
        down();
        sh(&format!("rm {0}/client.log && mkdir {0}/client.log", home.display()));
        let up = lab.rove("client", "up");
        assert!(up.code == Some(0) && up.err.contains("writes no log"), "{up:?}");
        assert_eq!(down(), "");
    });
}

/// The lines of `rove check` that failed, without the name of the check.
fn failures(lab: &Lab) -> (String, Vec<String>) {
    let out = lab.rove("client", "check").out;
    let failed = out.lines().filter_map(|line| line.strip_prefix("failed  "));
    (out.clone(), failed.map(|line| line[13..].to_owned()).collect())
}

/// Waits until the session is idle. On a busy machine this took more than 10 s.
fn wait_until_idle(lab: &Lab) {
    let begun = Instant::now();
    while !status(lab).contains("doing        idle, last proven ") {
        assert!(begun.elapsed() < Duration::from_secs(40), "busy: {}", status(lab));
        thread::sleep(Duration::from_millis(500));
    }
}

#[test]
fn check_and_status_say_alike_what_is_wrong_and_blame_nothing_else() {
    let name = "check_and_status_say_alike_what_is_wrong_and_blame_nothing_else";
    in_namespace(name, || {
        need_program("the guard", "nft");
        own_etc();
        fs::write("/etc/resolv.conf", "nameserver 9.9.9.9\n").unwrap();
        let lab = Lab::new("check and status");
        let _gateway = lab.gateway();
        let invite = lab.invite("laptop");
        lab.rove("client", &format!("up {invite}")).ok();
        let (out, failed) = failures(&lab);
        assert!(failed.is_empty(), "{out}");
        // The time since when differs by a second where it is worked out from the last answer.
        let without_time = |line: &str| line.split(" (since ").next().unwrap().to_owned();
        let alike = |what: &str| {
            let (out, failed) = failures(&lab);
            let [line] = &*failed else { panic!("{what}: {out}") };
            assert!(
                status(&lab).contains(&format!("problem      {}", without_time(line))),
                "{line}"
            );
            for test in ["names", "mtu"] {
                let line =
                    format!("unknown {test:13}not tested, because the tunnel does not carry");
                assert!(out.contains(&line), "{out}");
            }
            line.clone()
        };
        sh("ip -n client link set to-router down");
        wait_until("it is noticed", || status(&lab).contains("carrying     no"));
        let line = alike("no link");
        assert!(line.contains("to-router is down. Cure: connect this host to a network"), "{line}");
        sh("ip -n client link set to-router up
            ip -n client route replace default via 203.0.113.254 dev to-router");
        wait_until("it carries again", || status(&lab).contains("carrying     yes"));

        what_takes_answers_away_is_named(&lab);

        // Nobody says no. A check asks, although nothing else does.
        wait_until_idle(&lab);
        sh("ip -n router route add blackhole 192.0.2.1/32");
        let (out, failed) = failures(&lab);
        let [line] = &*failed else { panic!("{out}") };
        let is_told = ["the tunnel does not carry", "nothing comes through the tunnel"];
        assert!(is_told.iter().any(|what| line.contains(what)), "{out}");
        for test in ["names", "mtu"] {
            assert!(out.contains(&format!("unknown {test:13}not ")), "{out}");
        }
        wait_until("it is noticed", || {
            lab.rove("client", "check");
            status(&lab).contains("carrying     no")
        });
        let line = alike("no answer");
        assert!(line.contains("the gateway does not answer at "), "{line}");
        assert!(
            line.contains("Cure: try another network; if none helps, run `rove gateway"),
            "{line}"
        );
        sh("ip -n router route del blackhole 192.0.2.1/32");
        wait_until("it carries again", || status(&lab).contains("carrying     yes"));

        // The traffic of a revoked client is blocked, and so is that of one that was killed.
        lab.rove("gateway", "gateway revoke laptop").ok();
        wait_until("it is told", || status(&lab).contains("closed: "));
        let line = alike("revoked");
        assert!(line.contains("so traffic of the tunnel is blocked"), "{line}");
        assert!(line.contains("revoked this client"), "{line}");
        assert!(status(&lab).contains("blocked until `rove down`"), "{}", status(&lab));
        sh(&format!("kill -KILL {}", client_pid(&lab)));
        let told = "Traffic that belongs in the tunnel is blocked: `rove up`, or `rove down`";
        wait_until("the process is gone", || status(&lab).contains(told));
        assert!(lab.rove("client", "check").fails().contains(told));
        lab.rove("client", "down").ok();
    });
}

/// The session lives, and what programs send gets no answer, because something of this host takes
/// it away. Nothing at the gateway is blamed for that.
fn what_takes_answers_away_is_named(lab: &Lab) {
    let on_client = |line: &str| sh(&format!("nsenter --net=/run/netns/client {line}"));
    let nothing = |cure: &str| {
        let (out, _) = failures(lab);
        let line = format!("failed  session      nothing comes through the tunnel. Cure: {cure}");
        assert!(out.contains(&line), "{out}");
        for test in ["names", "mtu", "internet"] {
            let line = format!("unknown {test:13}not asked: nothing comes through the tunnel");
            assert!(out.contains(&line), "{out}");
        }
        out
    };
    on_client("nft add table inet other");
    on_client("nft 'add chain inet other in { type filter hook input priority 0; }'");
    on_client("nft add rule inet other in iifname rove0 drop");
    nothing("look for a filter on rove0 of this host");
    on_client("nft delete table inet other");

    // First for one family: the other still comes through.
    on_client("ip rule add pref 100 lookup main");
    let (out, failed) = failures(lab);
    assert!(matches!(&*failed, [line] if line.starts_with("routing sends packets")), "{out}");
    assert!(out.contains("unknown mtu          not tested: see the line `leaks`"), "{out}");
    sh("ip -n client addr add 2001:db8:c::2/64 dev to-router nodad
        ip -n client route replace default via 2001:db8:c::1
        ip -n client -6 rule add pref 100 lookup main");
    nothing("first that of the line `leaks`");
    sh("ip -n client rule del pref 100
        ip -n client -6 rule del pref 100
        ip -n client addr del 2001:db8:c::2/64 dev to-router");

    // Rules without a table. The one for all addresses stops the tunnel's own datagrams too.
    for action in ["blackhole", "prohibit", "unreachable"] {
        on_client(&format!("ip rule add pref 100 to 198.51.100.0/24 {action}"));
        let (out, failed) = failures(lab);
        let [line] = &*failed else { panic!("{out}") };
        let cause = format!(
            "another program's rule at priority 100 comes first ({action}). Cure: remove it (`ip \
             rule del priority 100`)"
        );
        let what = "routing refuses packets for 198.51.100.0/24 (since ";
        assert!(line.starts_with(what) && line.contains(&cause), "{line}");
        on_client("ip rule del pref 100");
    }
    on_client("ip rule add pref 100 blackhole");
    let (out, _) = failures(lab);
    assert!(out.contains("routing refuses packets for 0.0.0.0/0"), "{out}");
    on_client("ip rule del pref 100");
    wait_until("it carries again", || status(lab).contains("carrying     yes"));
}

/// Other programs' routing rules, and the words about single addresses beside them.
fn foreign_rules_are_named(lab: &Lab) {
    let explained = |address: &str| lab.rove("client", &format!("explain {address}")).ok();
    let uses = "198.51.100.80 uses the tunnel (rove0)";
    assert!(explained("198.51.100.80:443").contains(uses), "{}", explained("198.51.100.80"));
    // A rule for a part of the Internet is not one for all of it.
    for net in ["198.51.100.0/24", "203.0.113.0/24"] {
        sh(&format!("ip -n client rule add pref 100 to {net} lookup main"));
        let status = status(lab);
        let what = format!(
            "routing sends packets for {net} to to-router, not to the tunnel; Rove blocks them \
             there"
        );
        assert!(status.contains(&what) && !status.contains("0.0.0.0/0"), "{status}");
        assert!(
            status.contains(&format!("`rove down`, then `rove up --exclude {net}`")),
            "{status}"
        );
        let blocked = "does not use the tunnel: routing sends its packets to to-router, and \
                       Rove blocks them there";
        let address = net.replace("0/24", "80");
        assert!(explained(&address).contains(blocked), "{}", explained(&address));
        sh("ip -n client rule del pref 100");
    }
    assert_eq!(explained("127.0.0.1"), "127.0.0.1 is an address of this host\n");
    lab.rove("client", "down").ok();
    lab.rove("client", "up --route 198.51.100.0/24").ok();
    let split = "traffic      only 198.51.100.0/24 uses the tunnel";
    assert!(status(lab).contains(split), "{}", status(lab));
    let passes = "203.0.113.80 does not use the tunnel: its packets leave on to-router";
    assert!(explained("203.0.113.80").contains(passes), "{}", explained("203.0.113.80"));
    lab.rove("client", "down").ok();
}

#[test]
fn what_others_do_to_packets_is_named_as_it_is() {
    in_namespace("what_others_do_to_packets_is_named_as_it_is", || {
        need_program("the guard", "nft");
        let lab = Lab::new("what others do");
        let _gateway = lab.gateway();
        let invite = lab.invite("laptop");
        lab.rove("client", &format!("up {invite}")).ok();
        foreign_rules_are_named(&lab);

        // IPv6 that the gateway's host does not have.
        let up = lab.rove("client", "up");
        assert_eq!(up.code, Some(0), "{up:?}");
        let internet = || lab.rove("client", "check").out;
        let both = "internet     the gateway's host has a route for IPv4 and IPv6";
        assert!(internet().contains(both), "{}", internet());
        sh("ip -n gateway -6 route del default");
        let one = "a route for IPv4 and none for IPv6: programs use IPv4";
        assert!(internet().contains(one), "{}", internet());
        let at_gateway = lab.rove("gateway", "gateway status").ok();
        let told = "IPv4 yes, IPv6 no: clients reach no IPv6 destinations";
        assert!(at_gateway.contains(told), "{at_gateway}");

        // A firewall of this host, and of the gateway's.
        let close = |host: &str, port: &str| {
            for rule in [
                "add table inet other",
                "'add chain inet other out { type filter hook output priority 0; }'",
                &format!("add rule inet other out udp {port} 4500 drop"),
            ] {
                sh(&format!("nsenter --net=/run/netns/{host} nft {rule}"));
            }
        };
        close("client", "dport");
        let told = "this host does not let UDP datagrams out to ";
        wait_until("it is told", || {
            lab.rove("client", "check");
            status(&lab).contains(told)
        });
        lab.rove("client", "down").ok();
        let error = lab.rove("client", "up --transport udp --timeout 4s").fails();
        assert!(error.contains("the kernel answers EPERM"), "{error}");
        // A stream that cannot connect does not hide it.
        sh("nsenter --net=/run/netns/client nft add rule inet other out tcp dport 4500 drop");
        let error = lab.rove("client", "up --timeout 6s").fails();
        assert!(error.contains("the kernel answers EPERM"), "{error}");
        sh("nsenter --net=/run/netns/client nft delete table inet other");
        lab.rove("client", "up").ok();
        close("gateway", "sport");
        let at_gateway = || lab.rove("gateway", "gateway status").ok();
        wait_until("the gateway tells it", || {
            reaches("client", WEB);
            at_gateway().contains(told)
        });
        let checks = lab.rove("gateway", "gateway check").out;
        assert!(checks.contains("failed  firewall") && checks.contains(told), "{checks}");
        lab.rove("client", "down").ok();
    });
}
