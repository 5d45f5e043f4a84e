//! Open connections while there is no way to their other end.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

mod support;

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::Value;
use support::netns::{Lab, Running, SOON, edit, in_namespace, inside, pattern, sh, wait_until};

const WEB: &str = "198.51.100.80:80";
/// What the server sends at once.
const PIECE: usize = 100_000;

#[test]
fn what_was_acknowledged_for_another_is_delivered() {
    in_namespace("what_was_acknowledged_for_another_is_delivered", || {
        let lab = Lab::new("a held connection");
        let gateway = held(&lab);
        let (send, sent) = pieces();
        let fetched = read_everything();
        send.send(()).unwrap();
        sent.recv_timeout(SOON).unwrap().unwrap();
        for _ in 0..2 {
            // What is written has not arrived.
            wait_until("all has arrived", || flow(&lab, "gateway")["held_bytes"] == 0);
            swallow(true);
            send.send(()).unwrap();
            // The server takes what the gateway says for what the client says.
            wait_until("the gateway owes", || owed(&lab) > 0);
            std::thread::sleep(Duration::from_secs(1));
            is_told_as_held(&lab);
            swallow(false);
            wait_until("nothing is owed", || owed(&lab) == 0);
            sent.recv_timeout(SOON).unwrap().unwrap();
            wait_until("it is told as any other", || {
                let flow = flow(&lab, "gateway");
                flow["state"] == "normal" && flow["held_bytes"] == 0 && flow["owed_bytes"] == 0
            });
        }
        drop(send);
        let (content, ended) = fetched.join().unwrap();
        ended.unwrap();
        assert!(content == pattern(3 * PIECE), "it came whole: {} bytes", content.len());
        lab.rove("client", "down").ok();
        assert_eq!(gateway.terminate(), Some(0));
    });
}

#[test]
fn rules_that_are_read_again_are_for_connections_that_begin_afterwards() {
    in_namespace("rules_that_are_read_again_are_for_connections_that_begin_afterwards", || {
        let lab = Lab::new("rules");
        let gateway = held(&lab);
        let listener = inside("server", || TcpListener::bind(WEB).unwrap()).join().unwrap();
        let connect = || inside("client", || TcpStream::connect(WEB).unwrap()).join().unwrap();
        let before = connect();
        let rule = "\n[[persistence.rules]]\nto = \"198.51.100.80/32:80\"\nhold = \"off\"\n";
        let configs = [("client", "client.toml"), ("gateway", "gateway.toml")];
        for (host, name) in configs {
            let config = lab.home(host).join(name);
            let text = std::fs::read_to_string(&config).unwrap();
            std::fs::write(config, format!("{text}{rule}")).unwrap();
            assert!(lab.rove(host, "reload").ok().ends_with("reloaded\n"));
        }
        let after = connect();
        for (host, _) in configs {
            for (stream, why) in [
                (&before, "carried; kept when its path is lost"),
                (&after, "left alone: as rule 1 says"),
            ] {
                let port = stream.local_addr().unwrap().port();
                let end = format!(":{port}");
                let flows = flows(&lab, host);
                let of = |flow: &&Value| {
                    ["local", "remote"]
                        .iter()
                        .any(|key| flow[key].as_str().unwrap().ends_with(&end))
                };
                assert_eq!(flows.iter().find(of).unwrap()["why"], why, "{host}: {flows:?}");
            }
        }
        let config = lab.home("client").join("client.toml");
        edit(&config, "hold = \"full\"", "hold = \"full\"\ntimeout = \"1h\"");
        let refused = lab.rove("client", "reload").fails();
        assert!(refused.contains("persistence.timeout and persistence.memory_mb cannot change"));
        drop((before, after, listener));
        lab.rove("client", "down").ok();
        assert_eq!(gateway.terminate(), Some(0));
    });
}

#[test]
fn what_a_crash_made_undeliverable_is_told_to_both_ends() {
    in_namespace("what_a_crash_made_undeliverable_is_told_to_both_ends", || {
        let lab = Lab::new("a crash");
        let gateway = held(&lab);
        // Where the client is reached is written down within two seconds.
        std::thread::sleep(Duration::from_secs(3));
        let (send, sent) = pieces();
        let fetched = read_everything();
        send.send(()).unwrap();
        sent.recv_timeout(SOON).unwrap().unwrap();
        swallow(true);
        send.send(()).unwrap();
        wait_until("the gateway owes", || owed(&lab) > 0);
        sent.recv_timeout(SOON).unwrap().unwrap();
        gateway.kill();
        swallow(false);
        let _gateway = lab.start("gateway", "gateway run");
        let (content, ended) = fetched.join().unwrap();
        assert_eq!(ended.unwrap_err().kind(), ErrorKind::ConnectionReset);
        assert!(content == pattern(content.len()) && content.len() < 2 * PIECE);
        wait_until("nothing is owed", || owed(&lab) == 0);
        // The server learns it, too.
        send.send(()).unwrap();
        let error = sent.recv_timeout(SOON).unwrap().unwrap_err();
        let expected = [ErrorKind::ConnectionReset, ErrorKind::BrokenPipe];
        assert!(expected.contains(&error.kind()), "{error}");
        lab.rove("client", "down").ok();
    });
}

/// A gateway and a client that hold connections in full.
fn held(lab: &Lab) -> Running {
    let line = "gateway init --endpoint 192.0.2.1:4500 --network 10.77.0.0/24,fd77::/64";
    lab.rove("gateway", line).ok();
    let config = lab.home("gateway").join("gateway.toml");
    edit(&config, "nat = true", "nat = false");
    let gateway = lab.gateway();
    let invite = lab.invite("laptop");
    std::fs::create_dir_all(lab.home("client")).unwrap();
    let config = lab.home("client").join("client.toml");
    std::fs::write(config, "[persistence]\nhold = \"full\"\n").unwrap();
    lab.rove("client", &format!("up {invite} --route 198.51.100.0/24")).ok();
    gateway
}

/// While the path is silent the gateway tells that it holds the only connection.
fn is_told_as_held(lab: &Lab) {
    let held = flow(lab, "gateway");
    assert_eq!((&held["state"], &held["stage"]), (&"suspended".into(), &"established".into()));
    assert_eq!((&held["local"], &held["peer"]), (&WEB.into(), &"laptop".into()));
    let why = "kept and acknowledged in the other end's place: no path carries";
    assert_eq!(held["why"], why);
    let (bytes, owed) =
        (held["held_bytes"].as_u64().unwrap(), held["owed_bytes"].as_u64().unwrap());
    assert!(owed > 0 && bytes >= owed && bytes <= PIECE as u64, "{held}");
    let all: Value =
        serde_json::from_str(&lab.rove("gateway", "gateway flows --json").ok()).unwrap();
    assert!(all["held_bytes"].as_u64().unwrap() >= bytes, "{all}");
    assert_eq!((&all["node"], &all["memory_bytes"]), (&"gateway".into(), &(64 << 20).into()));
    let text = lab.rove("gateway", "flows").ok();
    assert!(text.lines().any(|line| line.starts_with("suspended")), "{text}");
    assert!(text.contains(why) && text.lines().all(|line| line.chars().count() <= 100), "{text}");
    // The client may not have noticed: it sends nothing.
    let waiting = flow(lab, "client");
    assert_eq!((&waiting["remote"], &waiting["held_bytes"]), (&WEB.into(), &0.into()));
}

/// The connections that a node tells of.
fn flows(lab: &Lab, host: &str) -> Vec<Value> {
    let told: Value = serde_json::from_str(&lab.rove(host, "flows --json").ok()).unwrap();
    told["flows"].as_array().unwrap().clone()
}

/// The only connection that a node tells of.
fn flow(lab: &Lab, host: &str) -> Value {
    let flows = flows(lab, host);
    assert_eq!(flows.len(), 1, "{flows:?}");
    flows[0].clone()
}

/// The router swallows everything between the two from now on, or nothing any more.
fn swallow(swallows: bool) {
    let verb = if swallows { "add" } else { "del" };
    for end in ["192.0.2.1/32", "203.0.113.2/32"] {
        sh(&format!("ip -n router route {verb} blackhole {end}"));
    }
    for end in ["2001:db8:a::2/128", "2001:db8:c::2/128"] {
        sh(&format!("ip -n router -6 route {verb} blackhole {end}"));
    }
}

/// Lines of the book in which the gateway says what it owes.
fn owed(lab: &Lab) -> usize {
    let book = lab.home("gateway").join("gateway.state").join("owed");
    std::fs::read_to_string(book).map_or(0, |text| text.lines().count())
}

/// A server that sends its only caller another piece of the pattern whenever it is told to, says
/// how that went, and ends when nobody can tell it any more.
fn pieces() -> (Sender<()>, Receiver<std::io::Result<()>>) {
    let (send, told) = channel();
    let (say, said) = channel();
    let (ready, is_ready) = channel();
    inside("server", move || {
        let listener = TcpListener::bind(WEB).unwrap();
        ready.send(()).unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        for (number, ()) in told.into_iter().enumerate() {
            let content = pattern((number + 1) * PIECE);
            if say.send(stream.write_all(&content[number * PIECE..])).is_err() {
                return;
            }
        }
    });
    is_ready.recv_timeout(SOON).unwrap();
    (send, said)
}

/// Everything that comes over one connection from the client, and how it ended.
fn read_everything() -> JoinHandle<(Vec<u8>, std::io::Result<usize>)> {
    inside("client", || {
        let mut stream = TcpStream::connect(WEB).unwrap();
        stream.set_read_timeout(Some(SOON + Duration::from_secs(20))).unwrap();
        let mut content = Vec::new();
        let ended = stream.read_to_end(&mut content);
        (content, ended)
    })
}
