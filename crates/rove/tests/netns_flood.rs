//! A flood of handshakes disturbs no session and keeps no new client out, whether it comes from
//! forged addresses or from a real one with valid cookies.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

mod support;

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use rove_proto::crypto::{Features, Floor, Hello, Initiator, SeededRng, StaticSecret, Token};
use rove_proto::id::{PeerKey, SessionIndex};
use serde_json::Value;
use support::netns::{Lab, SOON, in_namespace, inside, sh};

const SEED: u64 = 1;
const GATEWAY: &str = "192.0.2.1:4500";
const ECHO: &str = "198.51.100.80:7";
/// Datagrams a second, and for how long.
const RATE: u32 = 10_000;
const SECONDS: u32 = 7;
/// How many go out together.
const BURST: u32 = 100;
/// Sources that the flood claims, each an address of its own.
const SOURCES: usize = 250;
/// Handshakes that it repeats: each passes the gateway's first check.
const HANDSHAKES: usize = 100;
/// Exchanges that an attacker with a cookie repeats.
const PROVEN: usize = 1_000;

#[test]
fn a_flood_of_handshakes_disturbs_no_session_and_keeps_nobody_out() {
    in_namespace("a_flood_of_handshakes_disturbs_no_session_and_keeps_nobody_out", || {
        let lab = Lab::new("flood");
        let _gateway = lab.gateway();
        lab.rove("client", &format!("up {}", lab.invite("laptop"))).ok();
        let newcomer = lab.invite("phone");
        // The server's host claims a network that nobody has, and the router believes it.
        sh("ip -n server route add local 10.66.0.0/16 dev lo
            ip -n router route add 10.66.0.0/16 via 198.51.100.80");
        echo();
        let before = session_of(&lab);

        let halves = halves(&key_of_gateway(&lab));
        let flood = inside("server", move || flood(&halves));
        let talk = inside("client", talk);
        // While it lasts, somebody new comes: only cookies tell him from the flood.
        sleep(Duration::from_secs(1));
        lab.rove("phone", &format!("up {newcomer} --timeout 5s")).ok();
        let (sent, took) = flood.join().unwrap();
        assert!(took < Duration::from_secs(SECONDS.into()) * 2, "{sent} took {took:?}: no flood");

        let (asked, answered) = talk.join().unwrap();
        assert_eq!(answered, asked, "answers through the tunnel during the flood");
        // The whole seconds of two clocks, one taken from the other, differ by one at times.
        let after = session_of(&lab);
        assert!(after.abs_diff(before) <= 1, "another session: since {after}, not {before}");
        let status = lab.rove("gateway", "gateway status --json").ok();
        let status: Value = serde_json::from_str(&status).unwrap();
        let drops = status["drops"].as_object().unwrap();
        let dropped: u64 = drops.values().filter_map(Value::as_u64).sum();
        assert!(dropped > u64::from(sent) / 2, "{dropped} of {sent} were dropped: {drops:?}");
    });
}

/// Exchanges a second of an attacker with a real address, without the second halves and with them.
const PROVEN_RATES: [(u32, bool); 3] = [(300, false), (300, true), (10_000, false)];
/// The allowed delay of a newcomer.
const DELAY_MAX: Duration = Duration::from_secs(3);

#[test]
fn who_has_a_real_address_and_a_cookie_keeps_nobody_out() {
    in_namespace("who_has_a_real_address_and_a_cookie_keeps_nobody_out", || {
        let lab = Lab::new("cookies");
        let _gateway = lab.gateway();
        let key = key_of_gateway(&lab);
        // The first time without an attack, to measure a start on this machine.
        let alone = enrols_within(&lab, "first", SOON);
        for (number, (rate, both)) in PROVEN_RATES.into_iter().enumerate() {
            let stop = Arc::new(AtomicBool::new(false));
            let (told, began) = (Arc::clone(&stop), channel());
            let attack = inside("server", move || attack(key, rate, both, &told, &began.0));
            began.1.recv_timeout(SOON).unwrap();
            sleep(Duration::from_secs(2));
            let took = enrols_within(&lab, &format!("newcomer-{number}"), alone + DELAY_MAX);
            stop.store(true, Ordering::Release);
            let sent = attack.join().unwrap();
            eprintln!("{rate}/s: {sent} sent; alone {alone:?}, with them {took:?}");
        }
        let status = lab.rove("gateway", "gateway status --json").ok();
        let status: Value = serde_json::from_str(&status).unwrap();
        let dropped = status["drops"]["over_budget"].as_u64().unwrap_or_default();
        assert!(dropped > 1_000, "the attack had cookies: {}", status["drops"]);
    });
}

/// Enrols a client with its own key on the phone and disconnects it. Returns how long the enrolment
/// took.
fn enrols_within(lab: &Lab, name: &str, time: Duration) -> Duration {
    let invite = lab.invite(name);
    let begun = Instant::now();
    let seconds = time.as_secs() + 1;
    lab.rove("phone", &format!("up {invite} --timeout {seconds}s")).ok();
    let took = begun.elapsed();
    lab.rove("phone", "down").ok();
    assert!(took <= time, "{name} took {took:?}");
    took
}

/// Sends exchanges at the given rate with a valid cookie from one real address, until it must stop.
/// Reports when it has the cookie, and returns how many it sent.
fn attack(
    gateway: PeerKey,
    rate: u32,
    both: bool,
    stop: &AtomicBool,
    began: &std::sync::mpsc::Sender<()>,
) -> u32 {
    let socket = UdpSocket::bind("198.51.100.80:0").unwrap();
    socket.connect(GATEWAY).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
    let mut exchanges = exchanges(&gateway, PROVEN, Token::new(&[6; 16]));
    let mut reply = [0; 1_500];
    let mut tried = exchanges.iter().cycle();
    // The gateway requires cookies under load.
    let cookie = std::iter::from_fn(|| {
        let exchange = tried.next()?;
        socket.send(&exchange.messages().a).unwrap();
        let len = socket.recv(&mut reply).unwrap_or(0);
        Some(exchanges.iter().find_map(|e| e.open_cookie_reply(&reply[..len]).ok()))
    });
    let cookie = cookie.take(PROVEN * 10).flatten().next().expect("a cookie");
    began.send(()).unwrap();
    let (begin, mut sent) = (Instant::now(), 0);
    while !stop.load(Ordering::Acquire) && begin.elapsed() < SOON * 3 {
        let exchange = &mut exchanges[sent as usize % PROVEN];
        let messages = exchange.add_cookie(&cookie);
        let _ = socket.send(&messages.a);
        if both {
            let _ = socket.send(&messages.b);
        }
        sent += 1;
        let due = begin + Duration::from_secs(1) * sent / rate;
        sleep(due.saturating_duration_since(Instant::now()));
    }
    sent
}

/// When the client's session began.
fn session_of(lab: &Lab) -> u64 {
    let status = lab.rove("client", "status --json").ok();
    let status: Value = serde_json::from_str(&status).unwrap();
    assert_eq!(status["state"], "up");
    status["since"].as_u64().unwrap()
}

fn key_of_gateway(lab: &Lab) -> PeerKey {
    let status = lab.rove("gateway", "gateway status --json").ok();
    let status: Value = serde_json::from_str(&status).unwrap();
    let text = status["gateway"].as_str().unwrap().to_uppercase();
    PeerKey(data_encoding::BASE32_NOPAD.decode(text.as_bytes()).unwrap().try_into().unwrap())
}

/// Both halves of handshakes with the gateway by nobody that it knows.
fn halves(gateway: &PeerKey) -> Vec<Vec<u8>> {
    let exchanges = exchanges(gateway, HANDSHAKES, None);
    let messages = exchanges.iter().map(Initiator::messages);
    messages.flat_map(|messages| [messages.a.to_vec(), messages.b.to_vec()]).collect()
}

/// `count` handshakes with the gateway, each with another key that it does not know.
fn exchanges(gateway: &PeerKey, count: usize, token: Option<Token>) -> Vec<Initiator> {
    let mut rng = SeededRng::new(SEED);
    let exchange = |_| {
        let secret = StaticSecret::generate(&mut rng);
        let hello = Hello {
            counter: 1,
            features: Features::NONE,
            floor: Floor::BITS_128,
            has_aes: true,
            token: token.clone(),
            indices: std::array::from_fn(|n| SessionIndex(n as u32 + 1)),
        };
        Initiator::start(&mut rng, &secret, *gateway, None, &hello).unwrap().0
    };
    (0..count).map(exchange).collect()
}

/// Sends at the rate, from everywhere; returns how many datagrams, and in what time.
fn flood(halves: &[Vec<u8>]) -> (u32, Duration) {
    let socket =
        |n: usize| UdpSocket::bind(format!("10.66.{}.{}:0", n / 250, n % 250 + 1)).unwrap();
    let sockets: Vec<_> = (0..SOURCES).map(socket).collect();
    let (begin, mut sent) = (Instant::now(), 0);
    // Sources and halves have no common divisor, so every half comes from every source.
    let mut next = sockets.iter().cycle().zip(halves.iter().cycle().skip(SEED as usize));
    while sent < RATE * SECONDS {
        for (socket, half) in next.by_ref().take(BURST as usize) {
            // A full buffer is the flood's own loss.
            sent += u32::from(socket.send_to(half, GATEWAY).is_ok());
        }
        let due = begin + Duration::from_secs(1) * sent / RATE;
        sleep(due.saturating_duration_since(Instant::now()));
    }
    (sent, begin.elapsed())
}

/// Answers every datagram on the server, in a thread of its own.
fn echo() {
    let (ready, is_ready) = channel();
    inside("server", move || {
        let socket = UdpSocket::bind(ECHO).unwrap();
        ready.send(()).unwrap();
        let mut datagram = [0; 1_500];
        while let Ok((len, from)) = socket.recv_from(&mut datagram) {
            let _ = socket.send_to(&datagram[..len], from);
        }
    });
    is_ready.recv_timeout(SOON).unwrap();
}

/// Asks through the tunnel a hundred times a second, a little longer than the flood lasts, and
/// returns how often, and how many answers came.
fn talk() -> (u32, u32) {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.connect(ECHO.parse::<SocketAddr>().unwrap()).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let hears = socket.try_clone().unwrap();
    let answers = thread::spawn(move || {
        let mut answered = 0;
        while hears.recv(&mut [0; 1_500]).is_ok() {
            answered += 1;
        }
        answered
    });
    let asked = (SECONDS + 1) * 100;
    for _ in 0..asked {
        socket.send(&[7; 200]).unwrap();
        sleep(Duration::from_millis(10));
    }
    (asked, answers.join().unwrap())
}
