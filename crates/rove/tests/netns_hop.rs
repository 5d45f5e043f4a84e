//! A gateway that hops, and clients that lose nothing by it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

mod support;

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use serde_json::Value;
use support::netns::{Lab, SOON, in_namespace, inside, pattern, sh, wait_until};

const ECHO: &str = "198.51.100.80:7000";
const WEB: &str = "198.51.100.80:80";
/// Five hops and a little more.
const LASTS: Duration = Duration::from_millis(6_300);
const PACE: Duration = Duration::from_millis(10);
const PIECE: usize = 20_000;

fn json(lab: &Lab, host: &str, line: &str) -> Value {
    serde_json::from_str(&lab.rove(host, line).ok()).unwrap()
}

/// Makes the gateway, told to hop by `lines`.
fn hopping(lab: &Lab, lines: &str) {
    lab.gateway().kill();
    let config = lab.home("gateway").join("gateway.toml");
    let mut text = std::fs::read_to_string(&config).unwrap();
    text.push_str(&format!("\n[gateway.hop]\ninterval = \"1s\"\n{lines}\n"));
    std::fs::write(config, text).unwrap();
}

/// Addresses that the gateway's cable has from a hop.
fn hopped() -> usize {
    let addresses = sh("ip -n gateway -brief addr show to-router");
    addresses.split_whitespace().filter(|net| net.ends_with("/32")).count()
}

/// Sends a datagram every [`PACE`] from the client; how many came back of how many.
fn echoes() -> JoinHandle<(usize, usize)> {
    let server = inside("server", || UdpSocket::bind(ECHO).unwrap()).join().unwrap();
    std::thread::spawn(move || {
        let mut datagram = [0; 1_500];
        while let Ok((length, from)) = server.recv_from(&mut datagram) {
            if length == 0 || server.send_to(&datagram[..length], from).is_err() {
                return;
            }
        }
    });
    inside("client", || {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        socket.connect(ECHO).unwrap();
        let reader = socket.try_clone().unwrap();
        reader.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        let read = std::thread::spawn(move || {
            let mut seen = BTreeSet::new();
            let mut datagram = [0; 1_500];
            while reader.recv(&mut datagram).is_ok() {
                seen.insert(u32::from_be_bytes(datagram[..4].try_into().unwrap()));
            }
            seen.len()
        });
        let (mut sent, started) = (0u32, Instant::now());
        while started.elapsed() < LASTS {
            let mut datagram = [0; 300];
            datagram[..4].copy_from_slice(&sent.to_be_bytes());
            socket.send(&datagram).unwrap();
            sent += 1;
            sleep(PACE);
        }
        (read.join().unwrap(), sent as usize)
    })
}

/// A download that lasts as long, of pieces of the pattern.
fn steady_download() -> JoinHandle<Vec<u8>> {
    let listener = inside("server", || TcpListener::bind(WEB).unwrap()).join().unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let pieces = usize::try_from(LASTS.as_millis() / PACE.as_millis()).unwrap();
        for piece in pattern(pieces * PIECE).chunks(PIECE) {
            stream.write_all(piece).unwrap();
            sleep(PACE);
        }
    });
    inside("client", || {
        let mut stream = TcpStream::connect(WEB).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        let mut content = Vec::new();
        stream.read_to_end(&mut content).unwrap();
        content
    })
}

#[test]
fn clients_of_a_gateway_that_hops_lose_nothing() {
    in_namespace("clients_of_a_gateway_that_hops_lose_nothing", || {
        let lab = Lab::new("hops");
        let before = lab.state_of("gateway");
        let list = (11..=17).map(|n| format!("\"192.0.2.{n}\"")).collect::<Vec<_>>().join(", ");
        hopping(&lab, &format!("addresses = [{list}]"));
        let gateway = lab.gateway();
        let invite = lab.invite("laptop");
        lab.rove("client", &format!("up {invite} --route 198.51.100.0/24")).ok();
        let (echoes, download) = (echoes(), steady_download());
        let mut seen = BTreeSet::new();
        while !echoes.is_finished() {
            let paths = json(&lab, "client", "paths --json");
            seen.insert(paths[0]["remote"].as_str().unwrap_or_default().to_owned());
            assert!(hopped() <= 3, "those of two intervals, and the newest");
            sleep(Duration::from_millis(100));
        }
        let (came, sent) = echoes.join().unwrap();
        assert_eq!(came, sent, "nothing was lost in {seen:?}");
        let content = download.join().unwrap();
        assert!(content == pattern(content.len()) && content.len() > 100 * PIECE);
        assert!(seen.len() >= 5, "it hopped: {seen:?}");

        // Whoever comes anew finds it wherever it is; an idle client is called back from there.
        lab.rove("client", "down").ok();
        lab.rove("client", "up").ok();
        sleep(Duration::from_secs(5));
        gateway.kill();
        assert!(hopped() > 0, "a crash leaves them");
        let gateway = lab.gateway();
        wait_until("the client is back", || {
            json(&lab, "client", "status --json")["state"] == "up"
                && json(&lab, "gateway", "gateway peers --json")["peers"][0]["session"] == "up"
        });
        lab.rove("client", "down").ok();
        assert_eq!(gateway.terminate(), Some(0));
        assert_eq!(hopped(), 0, "an orderly end leaves none");
        lab.rove("gateway", "gateway down").ok();
        lab.becomes("gateway", &before);
    });
}

#[test]
fn a_crash_between_hops_leaves_nothing_that_is_not_swept() {
    in_namespace("a_crash_between_hops_leaves_nothing_that_is_not_swept", || {
        let lab = Lab::new("a crash between hops");
        let before = lab.state_of("gateway");
        hopping(&lab, "prefix = \"192.0.2.128/26\"\nlink = \"to-router\"");
        let gateway = lab.gateway();
        wait_until("it hopped", || hopped() >= 2);
        gateway.kill();
        lab.rove("gateway", "gateway down").ok();
        lab.becomes("gateway", &before);
        let config = lab.home("gateway").join("gateway.toml");
        support::netns::edit(&config, "link = \"to-router\"", "link = \"nowhere\"");
        let error = lab.rove("gateway", "gateway run").fails();
        assert!(error.contains("there is no link nowhere"), "{error}");
    });
}

/// Where UDP is blocked as well as the address that the gateway always has, the hops are all there
/// is, and a stream goes to each.
#[test]
fn a_client_that_comes_by_streams_follows_the_hops() {
    in_namespace("a_client_that_comes_by_streams_follows_the_hops", || {
        support::netns::need_program("hops without UDP", "nft");
        let lab = Lab::new("hops without UDP");
        let list = (11..=17).map(|n| format!("\"192.0.2.{n}\"")).collect::<Vec<_>>().join(", ");
        hopping(&lab, &format!("addresses = [{list}]"));
        let _gateway = lab.gateway();
        let invite = lab.invite("laptop");
        lab.rove("client", &format!("up {invite} --route 198.51.100.0/24")).ok();
        sh("nsenter --net=/run/netns/router nft 'add table inet block; \
            add chain inet block way { type filter hook forward priority 0; }; \
            add rule inet block way ip daddr 192.0.2.1 drop; \
            add rule inet block way meta l4proto udp drop; \
            add rule inet block way meta nfproto ipv6 drop'");
        let download = steady_download();
        let (mut seen, began) = (BTreeSet::new(), Instant::now());
        while !download.is_finished() {
            let paths = json(&lab, "client", "paths --json");
            let word = |key: &str| paths[0][key].as_str().unwrap_or_default().to_owned();
            let told = format!("{} {} {}", word("remote"), word("state"), word("transport"));
            if seen.insert(told.clone()) {
                eprintln!("{:?}: {told}", began.elapsed());
            }
            sleep(Duration::from_millis(100));
        }
        let content = download.join().unwrap();
        assert!(content == pattern(content.len()) && content.len() > 100 * PIECE);
        let by_stream = |told: &&String| told.contains("in use") && told.contains("tcp");
        let places = seen.iter().filter(by_stream).count();
        assert!(places >= 2, "no address was there all the time: {seen:?}");
        // It goes along while the stream before still carries.
        let is_silent = |told: &String| told.contains("silent") && told.contains("tcp");
        assert!(!seen.iter().any(is_silent), "{seen:?}");
        lab.rove("client", "down").ok();
    });
}
