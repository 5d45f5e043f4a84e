//! Links in their order: which one is preferred, and what moves it behind.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

mod support;

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep};
use std::time::Duration;

use serde_json::Value;
use support::netns::{Lab, echo, in_namespace, inside, second_cable, sh, wait_until};

const ECHO: &str = "198.51.100.80:7";

/// Where data goes, and how the first cable stands: its place, and what speaks against it.
fn order(lab: &Lab) -> (String, u64, String) {
    let paths: Value = serde_json::from_str(&lab.rove("client", "paths --json").ok()).unwrap();
    let text = |path: &Value, name: &str| path[name].as_str().unwrap_or_default().to_owned();
    let paths = paths.as_array().unwrap();
    let in_use = paths.iter().find(|path| path["state"] == "in use");
    let first = paths.iter().find(|path| path["link"] == "to-router").unwrap_or(&Value::Null);
    let rank = first["link_rank"].as_u64().unwrap_or_default();
    (in_use.map(|path| text(path, "link")).unwrap_or_default(), rank, text(first, "link_state"))
}

/// Asks an echo server behind the tunnel a hundred times a second until told to stop; how many
/// questions there were, and how many answers.
fn ask_until(enough: &Arc<AtomicBool>) -> JoinHandle<(u32, usize)> {
    echo("server", ECHO);
    let told = Arc::clone(enough);
    inside("client", move || {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        socket.connect(ECHO).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        let (mut sent, mut seen, mut late) = (0u32, BTreeSet::new(), 0);
        while late < 100 {
            if told.load(Ordering::Acquire) {
                late += 1;
            } else {
                socket.send(&sent.to_be_bytes()).unwrap();
                sent += 1;
            }
            let mut answer = [0; 4];
            while socket.recv(&mut answer).is_ok() {
                seen.insert(u32::from_be_bytes(answer));
            }
            sleep(Duration::from_millis(9));
        }
        (sent, seen.len())
    })
}

#[test]
fn what_is_made_of_links_can_be_said_at_any_time() {
    in_namespace("what_is_made_of_links_can_be_said_at_any_time", || {
        let lab = Lab::new("modes");
        let _gateway = lab.gateway();
        let invite = lab.invite("laptop");
        let config = lab.home("client").join("client.toml");
        std::fs::create_dir_all(lab.home("client")).unwrap();
        std::fs::write(&config, "[paths]\nmode = \"single\"\n").unwrap();
        let mode = || {
            let status = lab.rove("client", "status --json").ok();
            let status: Value = serde_json::from_str(&status).unwrap();
            (status["mode"].as_str().unwrap().to_owned(), status["state"] == "up")
        };
        let is = |word: &str| (word.to_owned(), true);
        lab.rove("client", &format!("up {invite} --route 198.51.100.0/24 --mode full")).ok();
        assert_eq!(mode(), is("full"), "what is typed overrules the file");
        assert_eq!(lab.rove("client", "set mode backup").ok(), "mode backup\n");
        assert_eq!(mode(), is("backup"));
        let scheduler = || {
            let status = lab.rove("client", "status --json").ok();
            let status: Value = serde_json::from_str(&status).unwrap();
            status["scheduler"].as_str().unwrap().to_owned()
        };
        assert_eq!(scheduler(), "earliest");
        assert_eq!(lab.rove("client", "set scheduler redundant").ok(), "scheduler redundant\n");
        assert_eq!(scheduler(), "redundant");
        assert!(lab.rove("client", "reload").ok().ends_with("reloaded\n"));
        assert_eq!(mode(), is("full"), "as it was started");
        lab.rove("client", "down").ok();
        lab.rove("client", "up --route 198.51.100.0/24").ok();
        assert_eq!(mode(), is("single"), "as the file says");
        std::fs::write(&config, "[paths]\nscheduler = \"rate\"\n").unwrap();
        lab.rove("client", "reload").ok();
        assert_eq!((mode(), scheduler()), (is("full"), "rate".to_owned()));
        let error = lab.rove("gateway", "set mode full").fails();
        assert!(error.contains("not up"), "{error}");
        lab.rove("client", "down").ok();
    });
}

#[test]
fn a_rehearsal_does_without_a_link_and_tells_what_that_was_like() {
    in_namespace("a_rehearsal_does_without_a_link_and_tells_what_that_was_like", || {
        let lab = Lab::new("a rehearsal");
        let _gateway = lab.gateway();
        let invite = lab.invite("laptop");
        lab.rove("client", &format!("up {invite} --route 198.51.100.0/24")).ok();
        let alone = lab.rove("client", "rehearse --unplug to-router").fails();
        assert!(alone.contains("to-router is the only working link"), "{alone}");
        assert!(alone.contains("--force"), "{alone}");
        second_cable();
        wait_until("there are two paths, and both were heard of", || {
            let paths: Value =
                serde_json::from_str(&lab.rove("client", "paths --json").ok()).unwrap();
            let heard = paths.as_array().unwrap().iter().filter(|p| p["last_heard_ms"].is_u64());
            heard.map(|path| path["link"].to_string()).collect::<BTreeSet<_>>().len() == 2
        });
        let in_use = order(&lab).0;
        let enough = Arc::new(AtomicBool::new(false));
        let talk = talk_until(&enough);
        let line = format!("rehearse --unplug {in_use} --for 2s --json");
        let report = std::thread::scope(|scope| {
            let report = scope.spawn(|| lab.rove("client", &line).ok());
            let doing = format!("doing without {in_use}, to see what comes of it");
            // Which of two equals carries may change by itself, so that alone says nothing.
            wait_until("it is done without", || {
                let status: Value =
                    serde_json::from_str(&lab.rove("client", "status --json").ok()).unwrap();
                status["rehearsal"] == doing
            });
            wait_until("it goes by the other", || order(&lab).0 != in_use);
            let again = lab.rove("client", &format!("rehearse --unplug {in_use}")).fails();
            assert!(again.contains(&doing), "{again}");
            report.join().unwrap()
        });
        let words = lab.rove("client", "explain tcp 198.51.100.80").ok();
        assert!(words.contains(":7\n") && words.contains("because    carried"), "{words}");
        enough.store(true, Ordering::Release);
        talk.join().unwrap();
        let report: Value = serde_json::from_str(&report).unwrap();
        assert_eq!((&report["link"], &report["over"]), (&in_use.clone().into(), &true.into()));
        let flow = &report["flows"][0];
        assert_eq!((&flow["open"], report["flows"].as_array().unwrap().len()), (&true.into(), 1));
        for stage in ["before", "without", "after"] {
            let felt = &flow[stage];
            assert!(felt["rx_bytes"].as_u64().unwrap() > 0, "{report}");
            assert!(felt["pause_ms"].as_u64().unwrap() < 1_500, "{report}");
        }
        wait_until("it is used again", || order(&lab).0 == in_use);
        let unknown = lab.rove("client", "rehearse --unplug eth77").fails();
        assert!(unknown.contains("no link eth77 is in use: there are"), "{unknown}");
        lab.rove("client", "down").ok();
    });
}

/// Sends a hundred pieces a second to an echo server behind the tunnel, and reads what comes back,
/// by one connection, until told to stop.
fn talk_until(enough: &Arc<AtomicBool>) -> JoinHandle<()> {
    let server = inside("server", || TcpListener::bind(ECHO).unwrap()).join().unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = server.accept().unwrap();
        let mut piece = [0; 1_000];
        while let Ok(length @ 1..) = stream.read(&mut piece) {
            stream.write_all(&piece[..length]).unwrap();
        }
    });
    let told = Arc::clone(enough);
    inside("client", move || {
        let mut stream = TcpStream::connect(ECHO).unwrap();
        let mut piece = [7; 1_000];
        while !told.load(Ordering::Acquire) {
            stream.write_all(&piece).unwrap();
            stream.read_exact(&mut piece).unwrap();
            sleep(Duration::from_millis(10));
        }
    })
}

#[test]
fn a_departure_that_is_announced_moves_a_link_behind() {
    in_namespace("a_departure_that_is_announced_moves_a_link_behind", || {
        let lab = Lab::new("links in their order");
        // One way out for each link, so that there is one metric to change.
        sh("ip -n client -6 route del default
            ip -n client -6 addr flush dev to-router scope global
            ip -n client route replace default via 203.0.113.254 dev to-router metric 100
            ip -n client route del default via 203.0.113.254 dev to-router metric 0");
        let _gateway = lab.gateway();
        let invite = lab.invite("laptop");
        lab.rove("client", &format!("up {invite} --route 198.51.100.0/24")).ok();
        let first = ("to-router".to_owned(), 1, String::new());
        assert_eq!(order(&lab), first);
        second_cable();
        let route = |verb: &str, metric: u32| {
            let route = "default via 203.0.113.254 dev to-router";
            format!("ip -n client route {verb} {route} metric {metric}")
        };
        let address = "ip -n client addr change 203.0.113.2/24 dev to-router valid_lft";
        let both = |one: String, other: String| format!("{one}\n{other}");
        let leaving = [
            (
                both(route("add", 20_100), route("del", 100)),
                "leaving",
                both(route("add", 100), route("del", 20_100)),
            ),
            (format!("{address} 99 preferred_lft 0"), "leaving", format!("{address} forever")),
            (route("del", 100), "no route", route("add", 100)),
        ];
        let enough = Arc::<AtomicBool>::default();
        let mut asking = Some(ask_until(&enough));
        for (departure, standing, arrival) in leaving {
            if standing == "no route" {
                // Until here the links carried all the time, and nothing may be lost.
                enough.store(true, Ordering::Release);
                let (sent, answered) = asking.take().unwrap().join().unwrap();
                assert!(sent > 200 && answered == sent as usize, "{answered} of {sent}");
            }
            sh(&departure);
            let behind = |standing: &str| ("second".to_owned(), 2, standing.to_owned());
            wait_until(&departure, || order(&lab) == behind(standing));
            sh(&arrival);
            wait_until(&arrival, || order(&lab) == behind("just back"));
            wait_until("it is sound", || order(&lab) == first);
        }
        let status = lab.rove("client", "status").ok();
        assert!(status.contains("\nlink         to-router\n"), "{status}");
        let table = lab.rove("client", "paths").ok();
        assert!(table.starts_with("LINK       RANK  STATE"), "{table}");
        lab.rove("client", "down").ok();
    });
}
