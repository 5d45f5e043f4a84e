//! A gateway ends and comes back: what its clients had through it goes on.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

mod support;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use aws_lc_rs::digest::{SHA256, digest};
use serde_json::{Value, json};
use support::capture::Capture;
use support::netns::{
    Lab, Running, SOON, edit, find, in_namespace, inside, need_program, pattern, reaches,
    serve_pattern, sh, wait_until,
};

const WEB: &str = "198.51.100.80:80";
/// More than the core's queue of commands holds, so that the last of them have to wait.
const PEERS: u32 = 1_100;
/// What the server sends at once.
const PIECE: usize = 200_000;

#[test]
fn a_gateway_of_many_peers_ends_when_it_is_told_to() {
    in_namespace("a_gateway_of_many_peers_ends_when_it_is_told_to", || {
        let lab = Lab::new("a large gateway");
        with_many_peers(&lab).kill();
        for _ in 0..2 {
            let gateway = lab.gateway();
            let status = lab.rove("gateway", "gateway status --json").ok();
            let status: Value = serde_json::from_str(&status).unwrap();
            assert_eq!(status["enrolled"], PEERS, "{status}");
            assert_eq!(gateway.terminate(), Some(0));
            assert!(lab.log("gateway").contains("the gateway has ended"), "{}", lab.log("gateway"));
        }
    });
}

#[test]
fn an_idle_client_is_called_back_after_a_crash_and_after_an_orderly_end() {
    in_namespace("an_idle_client_is_called_back_after_a_crash_and_after_an_orderly_end", || {
        let lab = Lab::new("an idle client");
        let gateway = lab.gateway();
        let invite = lab.invite("laptop");
        lab.rove("client", &format!("up {invite} --route 198.51.100.0/24")).ok();
        let inner = client_status(&lab)["inner"].clone();
        // Where it is reached is written down within two seconds.
        std::thread::sleep(Duration::from_secs(3));
        let capture = Capture::start("client");
        gateway.kill();
        let gateway = lab.start("gateway", "gateway run");
        wait_until("the client is back", || session(&lab) == "up");
        let said = capture.take();
        assert!(!said.is_empty() && said.iter().all(|to| to == "udp 192.0.2.1:4500"), "{said:?}");
        assert_eq!(client_status(&lab)["inner"], inner);

        std::thread::sleep(Duration::from_secs(3));
        assert_eq!(gateway.terminate(), Some(0));
        let _gateway = lab.start("gateway", "gateway run");
        wait_until("the client is back", || session(&lab) == "up");
        assert_eq!(client_status(&lab)["inner"], inner);
        lab.rove("client", "down").ok();
    });
}

/// The shortest time for which a session is kept; the rest takes a few seconds.
#[test]
fn who_rests_sends_nothing_and_is_called() {
    in_namespace("who_rests_sends_nothing_and_is_called", || {
        let lab = Lab::new("a client that rests");
        let line = "gateway init --endpoint 192.0.2.1:4500 --network 10.77.0.0/24,fd77::/64";
        lab.rove("gateway", line).ok();
        let config = lab.home("gateway").join("gateway.toml");
        edit(&config, "nat = true", "nat = false");
        edit(&config, "# timeout = \"1d\"", "timeout = \"1m\"");
        let _gateway = lab.gateway();
        let invite = lab.invite("laptop");
        std::fs::create_dir_all(lab.home("client")).unwrap();
        let config = lab.home("client").join("client.toml");
        std::fs::write(config, "[persistence]\ntimeout = \"1m\"\n").unwrap();
        lab.rove("client", &format!("up {invite} --route 198.51.100.0/24")).ok();
        let inner = client_status(&lab)["inner"][0].as_str().unwrap().to_owned();
        let at = format!("{}:9999", inner.split('/').next().unwrap());
        let bound = at.clone();
        let socket = inside("client", || UdpSocket::bind(bound).unwrap()).join().unwrap();
        socket.set_read_timeout(Some(SOON)).unwrap();

        std::thread::sleep(Duration::from_secs(5));
        let capture = Capture::start("client");
        let rests = || client_status(&lab)["doing"].as_str().unwrap().starts_with("idle for so");
        let began = Instant::now();
        while !rests() {
            assert!(began.elapsed() < Duration::from_secs(75), "{}", client_status(&lab));
            std::thread::sleep(Duration::from_millis(500));
        }
        let said = capture.take();
        assert!(said.is_empty(), "{said:?}");

        let word = Instant::now();
        let say = move || UdpSocket::bind("0.0.0.0:0").unwrap().send_to(b"here", at).unwrap();
        inside("gateway", say).join().unwrap();
        let mut bytes = [0; 16];
        assert_eq!(socket.recv(&mut bytes).unwrap(), 4);
        assert!(word.elapsed() < Duration::from_secs(1), "{:?}", word.elapsed());
        assert_eq!(client_status(&lab)["state"], "up");
        lab.rove("client", "down").ok();
    });
}

#[test]
fn nobody_is_refused_by_a_gateway_that_is_just_starting() {
    in_namespace("nobody_is_refused_by_a_gateway_that_is_just_starting", || {
        let lab = Lab::new("a gateway that starts");
        let gateway = with_many_peers(&lab);
        let invite = lab.invite("laptop");
        lab.rove("client", &format!("up {invite} --route 198.51.100.0/24")).ok();
        assert_eq!(gateway.terminate(), Some(0));
        // The client asks in vain for a while, and once more while the ledger is being read.
        std::thread::sleep(Duration::from_millis(500));
        let _gateway = lab.start("gateway", "gateway run");
        wait_until("the client is back", || client_status(&lab)["state"] == "up");
        lab.rove("client", "down").ok();
    });
}

fn client_status(lab: &Lab) -> Value {
    serde_json::from_str(&lab.rove("client", "status --json").ok()).unwrap()
}

/// The state of the only session.
fn session(lab: &Lab) -> String {
    let peers = lab.rove("gateway", "gateway peers --json").out;
    let peers = serde_json::from_str::<Value>(&peers).unwrap_or_default();
    peers["peers"][0]["session"].as_str().unwrap_or_default().to_owned()
}

/// A gateway with [`PEERS`] peers that never come.
fn with_many_peers(lab: &Lab) -> Running {
    let line = "gateway init --endpoint 192.0.2.1:4500 --network 10.77.0.0/16,fd77::/64";
    lab.rove("gateway", line).ok();
    edit(&lab.home("gateway").join("gateway.toml"), "nat = true", "nat = false");
    let file = lab.dir.path().join("backup");
    lab.rove("gateway", &format!("gateway backup {}", file.display())).ok();
    edit_backup(&file, |backup| backup["ledger"]["peers"] = (0..PEERS).map(peer).collect());
    lab.rove("gateway", &format!("gateway restore {}", file.display())).ok();
    lab.gateway()
}

/// One of many who enrolled, as a ledger keeps it.
fn peer(number: u32) -> Value {
    let bytes = |what: &str| text(digest(&SHA256, format!("{what} {number}").as_bytes()).as_ref());
    json!({
        "key": bytes("key"),
        "name": format!("peer-{number}"),
        "host": number + 2,
        "enrolled": 1_700_000_000,
        "invite": bytes("invite"),
        "standing": { "is": "enrolled" },
    })
}

/// Changes a backup and signs for it again.
fn edit_backup(file: &std::path::Path, change: impl FnOnce(&mut Value)) {
    let before = std::fs::read_to_string(file).unwrap();
    let (head, body) = before.split_once('\n').unwrap();
    let mut backup: Value = serde_json::from_str(body).unwrap();
    change(&mut backup);
    let body = backup.to_string();
    let label = head.split(' ').next().unwrap();
    let sum = text(digest(&SHA256, body.as_bytes()).as_ref());
    std::fs::write(file, format!("{label} {sum}\n{body}\n")).unwrap();
}

fn text(bytes: &[u8]) -> String {
    data_encoding::BASE32_NOPAD.encode(bytes).to_lowercase()
}

#[test]
fn a_connection_through_nat_outlives_a_crash_and_a_restart() {
    in_namespace("a_connection_through_nat_outlives_a_crash_and_a_restart", || {
        need_program("NAT", "nft");
        let lab = Lab::new("NAT");
        let line = "gateway init --endpoint 192.0.2.1:4500 --network 10.77.0.0/24,fd77::/64";
        lab.rove("gateway", line).ok();
        sh("ip -n router route del 10.77.0.0/24 && ip -n router -6 route del fd77::/64");
        let gateway = lab.gateway();
        let (send, callers) = pieces();
        let invite = lab.invite("laptop");
        lab.rove("client", &format!("up {invite}")).ok();

        let fetched = read_everything();
        assert_eq!(callers.recv_timeout(SOON).unwrap(), "192.0.2.1", "it is translated");
        send.send(()).unwrap();
        gateway.kill();
        // The server speaks first: whoever forgot the connection answers it with a reset.
        let gateway = comes_back(&lab, &send);
        assert_eq!(gateway.terminate(), Some(0));
        let _gateway = comes_back(&lab, &send);
        drop(send);
        let (content, ended) = fetched.join().unwrap();
        ended.unwrap();
        // One piece before the first end, and three around each return.
        assert!(content == pattern(7 * PIECE), "it came whole: {} bytes", content.len());
        assert!(callers.try_recv().is_err(), "it was one connection");
        lab.rove("client", "down").ok();
    });
}

/// Setting rules takes seconds here, so that what comes before them is seen.
#[test]
fn standing_rules_stay_and_nobody_is_answered_without_rules() {
    let name = "standing_rules_stay_and_nobody_is_answered_without_rules";
    in_namespace(name, || {
        need_program("NAT", "nft");
        let lab = Lab::new("a slow packet filter");
        let gateway = lab.gateway();
        let invite = lab.invite("laptop");
        lab.rove("client", &format!("up {invite}")).ok();
        slow_down_rules();
        let _server = serve_pattern("server", WEB, 1);
        let is_carried = || reaches("client", WEB);

        // A rule that is set again has another handle.
        let handles = || {
            let list = sh("nsenter --net=/run/netns/gateway nft -a list table inet rove_gateway");
            let handle = |line: &str| line.split_once("# handle ").map(|(_, it)| it.to_owned());
            list.lines().filter_map(handle).collect::<Vec<_>>()
        };
        let before = handles();
        gateway.kill();
        let gateway = lab.start("gateway", "gateway run");
        wait_until("a connection is carried", is_carried);
        wait_until("it runs", || lab.log("gateway").contains("the gateway runs"));
        assert_eq!(handles(), before, "the rules stay");
        gateway.kill();
        sh("nsenter --net=/run/netns/gateway nft delete table inet rove_gateway");
        let gateway = lab.start("gateway", "gateway run");
        wait_until("a connection is carried", is_carried);
        let rules = || sh("nsenter --net=/run/netns/gateway nft list table inet rove_gateway");
        assert!(rules().contains("dport 53 return"), "{}", rules());
        // The table alone is no firewall.
        gateway.kill();
        sh("nsenter --net=/run/netns/gateway nft flush table inet rove_gateway");
        let _gateway = lab.start("gateway", "gateway run");
        wait_until("a connection is carried", is_carried);
        assert!(rules().contains("dport 53 return"), "{}", rules());
        lab.rove("client", "down").ok();
    });
}

/// From now on nft takes a second longer for each change.
fn slow_down_rules() {
    let nft = find("nft").unwrap();
    let script = "#!/bin/sh\ncase \"$*\" in *-f*) sleep 1;; esac\nexec /run/nft \"$@\"\n";
    std::fs::copy(&nft, "/run/nft").unwrap();
    std::fs::write("/run/slow", script).unwrap();
    sh(&format!("chmod 755 /run/slow && mount --bind /run/slow {}", nft.display()));
}

/// The server says something while there is no gateway, the gateway comes back, and once the client
/// has a session again the server goes on.
fn comes_back(lab: &Lab, send: &Sender<()>) -> Running {
    send.send(()).unwrap();
    let gateway = lab.gateway();
    send.send(()).unwrap();
    wait_until("the client is back", || {
        let peers = lab.rove("gateway", "gateway peers --json").ok();
        serde_json::from_str::<Value>(&peers).unwrap()["peers"][0]["session"] == "up"
    });
    send.send(()).unwrap();
    gateway
}

/// A server that sends its only caller another piece of the pattern whenever it is told to, and
/// ends when nobody can tell it any more.
fn pieces() -> (Sender<()>, Receiver<String>) {
    let (send, told) = channel();
    let (accepted, callers) = channel();
    let (ready, is_ready) = channel();
    inside("server", move || {
        let listener = TcpListener::bind(WEB).unwrap();
        ready.send(()).unwrap();
        let (mut stream, caller) = listener.accept().unwrap();
        accepted.send(caller.ip().to_string()).unwrap();
        for (number, ()) in told.into_iter().enumerate() {
            let content = pattern((number + 1) * PIECE);
            stream.write_all(&content[number * PIECE..]).unwrap();
        }
    });
    is_ready.recv_timeout(SOON).unwrap();
    (send, callers)
}

/// Everything that comes over one connection from the client, and how it ended.
fn read_everything() -> JoinHandle<(Vec<u8>, std::io::Result<usize>)> {
    inside("client", || {
        let mut stream = TcpStream::connect(WEB).unwrap();
        stream.set_read_timeout(Some(SOON + Duration::from_secs(5))).unwrap();
        let mut content = Vec::new();
        let ended = stream.read_to_end(&mut content);
        (content, ended)
    })
}
