//! A flood of first messages from unknown peers with real addresses and valid cookies delays no
//! newcomer elsewhere by more than [`DELAY_MAX`], and no known client at all.
//!
//! The gateway's processor is not modelled here. A test between namespaces measures its cost of a
//! flood.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::eve::{Eve, at, pass};
use crate::pair::{GATEWAY, Pair};
use rove_proto::crypto::{
    Cookie, Features, Floor, Hello, Initiator, SeededRng, StaticSecret, Status, Token,
};
use rove_proto::error::{CloseCode, DropReason};
use rove_proto::id::{PeerKey, SessionIndex};
use rove_proto::node::{Command, Event, PeerState};
use rove_proto::time::Duration;
use rove_proto::wire::Kind;

/// The allowed delay of a newcomer.
const DELAY_MAX: Duration = Duration::from_secs(3);
/// How long an attack lasts before the newcomer comes.
const BEFORE: Duration = Duration::from_secs(3);
const MS: Duration = Duration::from_millis(1);
/// Different exchanges that an attacker prepares: more than a gateway keeps waiting at once.
const EXCHANGES: usize = 3_000;

/// The halves of each exchange that an attacker sends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sends {
    /// The first half, which then waits for its second.
    FirstHalves,
    /// Both halves, with a token that nobody issued.
    Both,
}

/// An attacker with real addresses and a valid cookie for each.
struct Attacker {
    eve: Eve,
    exchanges: Vec<Initiator>,
    sources: Vec<(SocketAddr, Cookie)>,
    sends: Sends,
    /// Exchanges a second.
    rate: u32,
    sent: usize,
    /// Exchanges that are due, in thousandths.
    due: u32,
    events: usize,
}

impl Attacker {
    /// Asks for a cookie from each of `sources`.
    fn new(pair: &mut Pair, sources: Vec<SocketAddr>, rate: u32, sends: Sends) -> Self {
        let mut rng = SeededRng::new(66);
        let gateway = pair.gateway_key;
        let exchanges = (0..EXCHANGES).map(|_| exchange(&mut rng, gateway)).collect();
        let eve = Eve::listen_to_strangers(pair, pass);
        let mut attacker =
            Self { eve, exchanges, sources: vec![], sends, rate, sent: 0, due: 0, events: 0 };
        for source in sources {
            let cookie = attacker.cookie(pair, source);
            attacker.sources.push((source, cookie));
        }
        attacker
    }

    fn cookie(&mut self, pair: &mut Pair, source: SocketAddr) -> Cookie {
        for _ in 0..EXCHANGES {
            let exchange = &self.exchanges[self.sent % EXCHANGES];
            self.sent += 1;
            self.eve.take();
            self.eve.send(pair, source, at(GATEWAY), &exchange.messages().a);
            let seen = self.eve.take();
            let reply = seen.iter().find(|s| s.to == source && kind(&s.bytes) == Kind::CookieReply);
            if let Some(reply) = reply {
                return exchange.open_cookie_reply(&reply.bytes).unwrap();
            }
        }
        panic!("no cookie was ever demanded");
    }

    /// Runs one millisecond of the attack and of all other traffic.
    fn millisecond(&mut self, pair: &mut Pair) {
        self.due += self.rate;
        while self.due >= 1_000 {
            self.due -= 1_000;
            let (source, cookie) = &self.sources[self.sent % self.sources.len()];
            let messages = self.exchanges[self.sent % EXCHANGES].add_cookie(cookie);
            self.eve.send(pair, *source, at(GATEWAY), &messages.a);
            if self.sends == Sends::Both {
                self.eve.send(pair, *source, at(GATEWAY), &messages.b);
            }
            self.sent += 1;
        }
        self.eve.take();
        pair.run(MS);
        self.decide(pair);
    }

    /// Answers the enrolment requests, as the gateway's shell does.
    fn decide(&mut self, pair: &mut Pair) {
        for place in self.events..pair.gateway_events.len() {
            if let Event::EnrolmentRequested { peer, .. } = pair.gateway_events[place] {
                if peer == pair.client_key {
                    pair.admit_client();
                } else {
                    let status = Status::TokenUnknown;
                    pair.tell_gateway(Command::RefuseEnrolment { peer, status });
                }
            }
        }
        self.events = pair.gateway_events.len();
    }

    fn attack(&mut self, pair: &mut Pair, time: Duration) {
        for _ in 0..time.as_millis() {
            self.millisecond(pair);
        }
    }

    /// How long the client takes, from now, until its session is up.
    fn client_comes(&mut self, pair: &mut Pair) -> Duration {
        let begun = pair.now;
        pair.tell_client(Command::Connect(pair.gateway_key));
        while pair.state() != PeerState::Up && pair.now.saturating_since(begun) < DELAY_MAX * 4 {
            self.millisecond(pair);
        }
        pair.now.saturating_since(begun)
    }
}

fn kind(bytes: &[u8]) -> Kind {
    Kind::of(bytes).unwrap()
}

fn exchange(rng: &mut SeededRng, gateway: PeerKey) -> Initiator {
    let secret = StaticSecret::generate(rng);
    let hello = Hello {
        counter: 1,
        features: Features::NONE,
        floor: Floor::BITS_128,
        has_aes: true,
        token: Token::new(&[6; 16]),
        indices: std::array::from_fn(|n| SessionIndex(n as u32 + 1)),
    };
    Initiator::start(rng, &secret, gateway, None, &hello).unwrap().0
}

/// How long a newcomer takes to enrol during the attack.
#[track_caller]
fn newcomer(sources: Vec<SocketAddr>, rate: u32, sends: Sends) -> Duration {
    let mut pair = Pair::new(Token::new(&[9; 16]));
    let mut attacker = Attacker::new(&mut pair, sources, rate, sends);
    attacker.attack(&mut pair, BEFORE);
    attacker.client_comes(&mut pair)
}

/// How long a known client, that had a session before, takes to get one anew during the attack.
#[track_caller]
fn known_client(sources: Vec<SocketAddr>, rate: u32, sends: Sends) -> Duration {
    let mut pair = Pair::up();
    pair.tell_client(Command::Close { peer: pair.gateway_key, code: CloseCode::Requested });
    pair.run(Duration::from_secs(1));
    let mut attacker = Attacker::new(&mut pair, sources, rate, sends);
    attacker.attack(&mut pair, BEFORE);
    attacker.client_comes(&mut pair)
}

fn one() -> Vec<SocketAddr> {
    vec![at("198.51.100.66:666")]
}

/// `count` hosts, each in a network of its own that has nothing to do with the others'.
fn everywhere(count: u32) -> Vec<SocketAddr> {
    let host = |n: u32| SocketAddr::new(Ipv4Addr::from((n + 1) << 18 | 66).into(), 666);
    (0..count).map(host).collect()
}

/// Hosts of one IPv4 network of 256 addresses.
fn neighbours() -> Vec<SocketAddr> {
    (0..=255).map(|n| SocketAddr::from(([198, 51, 100, n], 666))).collect()
}

/// Networks of 64 bits in one of `prefix` bits.
fn networks(prefix: u32, count: u128) -> Vec<SocketAddr> {
    let first = u128::from("2001:db8::".parse::<Ipv6Addr>().unwrap());
    let step = (1u128 << (128 - prefix)) / count;
    let host = |n| Ipv6Addr::from(first + n * step + 1);
    (0..count).map(|n| SocketAddr::new(host(n).into(), 666)).collect()
}

#[test]
fn one_address_delays_no_newcomer_elsewhere() {
    for sends in [Sends::FirstHalves, Sends::Both] {
        for rate in [60, 300, 1_000, 10_000] {
            let took = newcomer(one(), rate, sends);
            assert!(took < Duration::from_millis(500), "{rate}/s: {took:?}");
        }
    }
}

#[test]
fn one_network_delays_no_newcomer_elsewhere() {
    let sources = [neighbours(), networks(64, 64), networks(48, 1_024), networks(32, 1_024)];
    for sources in sources {
        for rate in [300, 5_000] {
            let took = newcomer(sources.clone(), rate, Sends::FirstHalves);
            assert!(took < Duration::from_millis(500), "{rate}/s: {took:?}");
        }
    }
}

#[test]
fn many_addresses_at_once_delay_a_newcomer_by_seconds_at_most() {
    for rate in [500, 2_000, 5_000] {
        let took = newcomer(everywhere(2_000), rate, Sends::FirstHalves);
        assert!(took < DELAY_MAX, "{rate}/s: {took:?}");
    }
}

#[test]
fn who_is_slow_keeps_no_places() {
    for (sources, rate) in [(one(), 15), (everywhere(300), 150), (networks(32, 300), 300)] {
        let took = newcomer(sources, rate, Sends::FirstHalves);
        assert!(took < Duration::from_millis(500), "{rate}/s: {took:?}");
    }
}

#[test]
fn a_known_client_is_not_delayed_by_newcomers() {
    for (sources, rate) in [
        (one(), 300),
        (one(), 10_000),
        (networks(48, 1_024), 5_000),
        (everywhere(2_000), 500),
        (everywhere(2_000), 5_000),
    ] {
        let took = known_client(sources, rate, Sends::FirstHalves);
        assert!(took < Duration::from_millis(150), "{rate}/s: {took:?}");
    }
}

#[test]
fn what_exceeds_the_budget_of_its_source_is_counted() {
    let mut pair = Pair::new(None);
    let mut attacker = Attacker::new(&mut pair, one(), 1_000, Sends::FirstHalves);
    attacker.attack(&mut pair, Duration::from_secs(2));
    let dropped = pair.gateway.drops().of(DropReason::OverBudget);
    assert!(dropped > 1_500, "{dropped} of 2000");
}
