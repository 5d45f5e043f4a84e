//! A client and a gateway, each in an engine, joined by a link with nothing but a delay.

#![allow(clippy::unwrap_used, reason = "a panic is the report")]

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

use rove_proto::codec::SavingConfig;
use rove_proto::crypto::{Features, Floor, SeededRng, StaticSecret};
use rove_proto::error::DropReason;
use rove_proto::id::PeerKey;
use rove_proto::node::{Config, Link, PeerConfig, PeerState, SideConfig};
use rove_proto::outbox::{DATAGRAM_BYTES_MAX, INNER_BYTES_MAX};
use rove_proto::policy::Sealing;
use rove_proto::role::Access;
use rove_proto::time::Duration;
use rove_proto::wire::control::{Lease, Prefix};

mod route;

use super::memory::{MemoryEngine, Sent};
use super::*;

/// In each direction.
const DELAY: Duration = Duration::from_millis(20);
const LISTENING: SocketId = SocketId(0);
const INNER: [u8; 4] = [10, 9, 0, 2];
const SERVER: [u8; 4] = [198, 51, 100, 7];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Client,
    Gateway,
}

struct Pair {
    client: MemoryEngine,
    gateway: MemoryEngine,
    gateway_key: PeerKey,
    /// Datagrams on their way, and when and where they arrive.
    wire: VecDeque<(Instant, End, Meta, Vec<u8>)>,
    /// The client's sockets, by port.
    ports: BTreeMap<u16, (IpAddr, SocketId)>,
    /// The datagrams that the client sent by each socket.
    sent: BTreeMap<SocketId, usize>,
}

fn gateway_address() -> SocketAddr {
    "192.0.2.1:4433".parse().unwrap()
}

fn engine(secret: &StaticSecret, seed: u64, listening: Option<(SocketId, IpAddr)>) -> MemoryEngine {
    let config = Config {
        secret: secret.clone(),
        floor: Floor::BITS_128,
        sealing: Sealing::default(),
        has_aes: true,
        keepalive: Some(Duration::from_secs(25)),
        persistence_timeout: Duration::from_secs(86_400),
        hold: Default::default(),
        hold_memory: 1 << 24,
        mode: Default::default(),
        scheduler: Default::default(),
        recovery: Default::default(),
        spread: Default::default(),
        couples: true,
        competes: true,
        reorders: true,
        saving: SavingConfig::default(),
        judges_offload: true,
        features: Features::CONTENT,
        ablation: Default::default(),
    };
    let now = Instant::from_nanos(1_000_000_000);
    let node = Node::new(now, config, Box::new(SeededRng::new(seed)), 100);
    MemoryEngine::in_memory(node, now, listening)
}

/// A UDP packet of `len` bytes with this number, from the client to the server or back.
fn packet(len: usize, number: u32, back: bool) -> Vec<u8> {
    let mut packet = vec![0u8; len];
    packet[0] = 0x45;
    packet[2..4].copy_from_slice(&u16::try_from(len).unwrap().to_be_bytes());
    packet[9] = 17;
    let (source, destination) = if back { (SERVER, INNER) } else { (INNER, SERVER) };
    packet[12..16].copy_from_slice(&source);
    packet[16..20].copy_from_slice(&destination);
    packet[24..26].copy_from_slice(&u16::try_from(len - 20).unwrap().to_be_bytes());
    packet[28..32].copy_from_slice(&number.to_be_bytes());
    packet
}

impl Pair {
    /// Both with a session.
    fn up() -> Self {
        let mut rng = SeededRng::new(7);
        let secrets = (StaticSecret::generate(&mut rng), StaticSecret::generate(&mut rng));
        let (client_key, gateway_key) = (secrets.0.public(), secrets.1.public());
        let mut pair = Self {
            client: engine(&secrets.0, 1, None),
            gateway: engine(&secrets.1, 2, Some((LISTENING, gateway_address().ip()))),
            gateway_key,
            wire: VecDeque::new(),
            ports: BTreeMap::new(),
            sent: BTreeMap::new(),
        };
        let addresses = vec![Prefix { address: INNER.into(), bits: 24 }];
        let lease = Lease { addresses, gateway: vec![[10, 9, 0, 1].into()], dns: vec![] };
        let access = Access::Restricted {
            own: vec![Prefix::host(INNER.into())],
            gateway: vec![[10, 9, 0, 1].into()],
            internet: true,
            local: vec![],
            allow: vec![],
        };
        let side = SideConfig::Client { lease };
        let config = PeerConfig { key: client_key, psk: None, access, side };
        pair.gateway.command(Command::AddPeer(Box::new(config)));
        let remotes = vec![gateway_address()];
        let side = SideConfig::Gateway { remotes, counter: 1, token: None, advertise: vec![] };
        let access = Access::Unrestricted;
        let config = PeerConfig { key: gateway_key, psk: None, access, side };
        pair.client.command(Command::AddPeer(Box::new(config)));
        pair.move_client([203, 0, 113, 5]);
        pair.client.command(Command::Connect(gateway_key));
        pair.run(Duration::from_millis(200));
        assert_eq!(pair.state(), PeerState::Up);
        pair
    }

    fn state(&self) -> PeerState {
        self.client.node().status(self.gateway_key).unwrap().state
    }

    fn move_client(&mut self, address: [u8; 4]) {
        let id = LinkId(u32::from(address[3]));
        let link = Link { id, addresses: vec![address.into()], stands_by: false };
        self.client.command(Command::SetLinks(vec![link]));
    }

    /// Lets time pass. Both have a turn whenever a timer is due or a datagram arrives.
    fn run(&mut self, time: Duration) {
        let end = self.now() + time;
        for _ in 0..1_000_000 {
            self.arrive();
            self.turn(End::Client);
            self.turn(End::Gateway);
            if self.now() == end {
                return;
            }
            let due = [self.client.due(), self.gateway.due()].map(|due| due.map(|(at, _)| at));
            let arrival = self.wire.front().map(|(at, ..)| *at);
            let next = due.into_iter().chain([arrival]).flatten().min().unwrap_or(end).min(end);
            (self.client.clock.now, self.gateway.clock.now) = (next, next);
        }
        panic!("the two never rest");
    }

    const fn now(&self) -> Instant {
        self.client.clock.now
    }

    fn engine(&mut self, end: End) -> &mut MemoryEngine {
        match end {
            End::Client => &mut self.client,
            End::Gateway => &mut self.gateway,
        }
    }

    /// A turn of one of them. Returns the bytes that it sent.
    fn turn(&mut self, end: End) -> usize {
        let at = self.now() + DELAY;
        let engine = self.engine(end);
        engine.turn();
        assert_eq!(engine.overdue(), None, "{end:?}: a timer is due after a turn");
        let sent = std::mem::take(&mut engine.sockets.sent);
        let bytes = sent.iter().map(|sent| sent.datagram.len()).sum();
        for Sent { route, bound, datagram, .. } in sent {
            let bound = bound.expect("a socket is open while datagrams use it");
            let (to, socket, local, remote) = if end == End::Client {
                *self.sent.entry(route.socket).or_default() += 1;
                let port = 40_000 + u16::try_from(route.socket.0).unwrap();
                self.ports.insert(port, (bound, route.socket));
                (End::Gateway, LISTENING, route.remote.ip(), SocketAddr::new(bound, port))
            } else {
                let (address, socket) = self.ports[&route.remote.port()];
                (End::Client, socket, address, gateway_address())
            };
            let meta = Meta { socket, local: Some(local), remote, waited: Duration::ZERO };
            self.wire.push_back((at, to, meta, datagram));
        }
        bytes
    }

    /// Puts the datagrams whose time has come into the queues of open sockets.
    fn arrive(&mut self) {
        let now = self.now();
        let count = self.wire.partition_point(|(at, ..)| *at <= now);
        for (_, end, meta, datagram) in self.wire.drain(..count).collect::<Vec<_>>() {
            let sockets = &mut self.engine(end).sockets;
            if sockets.bound().contains_key(&meta.socket) {
                sockets.push(meta, datagram);
            }
        }
    }

    fn client_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.client.events)
    }
}

/// Puts datagrams for the gateway into the client's outbox until it has `left` bytes of room.
fn fill(client: &mut MemoryEngine, socket: SocketId, left: usize) {
    let route = Route { socket, local: None, remote: gateway_address() };
    let mut bytes = 0;
    while bytes + 1_000 + left <= DATAGRAM_BYTES_MAX {
        assert!(client.out.push_clear(route, &[0; 1_000]));
        bytes += 1_000;
    }
}

#[test]
fn sockets_are_open_before_the_first_datagram_and_until_the_last() {
    let mut pair = Pair::up();
    pair.move_client([203, 0, 113, 6]);
    pair.run(Duration::from_secs(30));
    assert_eq!(pair.state(), PeerState::Up);
    let count =
        |events: &[Event], what: fn(&Event) -> bool| events.iter().filter(|e| what(e)).count();
    let events = pair.client_events();
    assert_eq!(count(&events, |event| matches!(event, Event::OpenSocket { .. })), 2);
    assert_eq!(count(&events, |event| matches!(event, Event::CloseSocket { .. })), 1);
    assert_eq!(pair.sent.len(), 2, "both were used, and open: Pair::turn checks it");

    let sockets: Vec<_> = pair.client.sockets.bound().keys().copied().collect();
    let [socket] = sockets[..] else { panic!("{sockets:?} instead of the last one") };
    fill(&mut pair.client, socket, DATAGRAM_BYTES_MAX / 2);
    pair.client.closing.push(socket);
    pair.client.hand_over();
    let bound = Some(IpAddr::from([203, 0, 113, 6]));
    assert!(pair.client.sockets.sent.iter().all(|sent| sent.bound == bound));
    assert!(pair.client.sockets.bound().is_empty());
}

#[test]
fn after_a_turn_no_timer_is_due() {
    let mut pair = Pair::up();
    for number in 0..200 {
        let from_client = packet(100, number, false);
        let from_server = packet(1_000, number, true);
        pair.client.device.push(from_client.clone());
        pair.gateway.device.push(from_server.clone());
        // Pair::turn checks it at every moment at which a timer is due.
        pair.run(Duration::from_millis(1_700));
        assert_eq!(std::mem::take(&mut pair.gateway.device.written), [from_client]);
        assert_eq!(std::mem::take(&mut pair.client.device.written), [from_server]);
    }
    let established = |event: &Event| matches!(event, Event::Established { .. });
    let handshakes = pair.client_events().into_iter().filter(established).count();
    assert!(handshakes > 1, "timers were due, such as those that replace keys");
}

#[test]
fn more_than_an_outbox_holds_comes_in_with_one_turn() {
    let mut pair = Pair::up();
    // The path becomes fast enough for that.
    let mut next = 0;
    let mut read = |pair: &mut Pair, count: u32| {
        for number in next..next + count {
            pair.client.device.push(packet(1_300, number, false));
        }
        next += count;
        (next - count..next).map(|number| packet(1_300, number, false))
    };
    for _ in 0..20 {
        drop(read(&mut pair, 5_000));
        pair.run(Duration::from_millis(50));
    }
    let drops = |engine: &MemoryEngine| engine.node().drops().iter().collect::<Vec<_>>();
    assert_eq!(drops(&pair.gateway), []);
    pair.gateway.device.written.clear();
    let before = drops(&pair.client);
    // The gateway is late while twice as much leaves as its outbox holds.
    let expected: Vec<_> = read(&mut pair, 1_700).collect();
    assert!(expected.iter().map(Vec::len).sum::<usize>() > 2 * INNER_BYTES_MAX);
    while pair.wire.len() < expected.len() {
        pair.turn(End::Client);
        let (due, _) = pair.client.due().unwrap();
        pair.client.clock.now = due;
    }
    pair.gateway.clock.now = pair.client.clock.now + DELAY;
    pair.client.clock.now = pair.gateway.clock.now;
    pair.arrive();
    pair.turn(End::Gateway);
    assert!(pair.gateway.device.written == expected, "all come out, in order");
    assert_eq!(drops(&pair.gateway), []);
    assert_eq!(drops(&pair.client), before);
}

#[test]
fn a_full_outbox_is_handed_over_before_more_comes_in() {
    let mut pair = Pair::up();
    let (&socket, _) = pair.client.sockets.bound().first_key_value().unwrap();
    for stage in [
        |client: &mut MemoryEngine| client.read_tun(),
        |client: &mut MemoryEngine| client.command(Command::Announce(Vec::new())),
    ] {
        for (left, is_sent) in [(DATAGRAM_BYTES_MAX / 2, false), (100_000, true)] {
            fill(&mut pair.client, socket, left);
            pair.client.device.push(packet(100, 1, false));
            stage(&mut pair.client);
            assert_eq!(!pair.client.sockets.sent.is_empty(), is_sent, "{left} bytes of room");
            pair.turn(End::Client);
        }
    }
}

#[test]
fn reads_of_one_turn_have_a_bound() {
    let mut pair = Pair::up();
    for number in 0..2_000 {
        pair.client.device.push(packet(1_300, number, false));
    }
    pair.client.turn();
    assert_eq!(pair.client.device.unread(), 2_000 - READS_MAX * (65_535 / 1_300));
    pair.client.turn();
    assert_eq!(pair.client.device.unread(), 0);
}

#[test]
fn a_socket_that_fails_is_reported_and_replaced() {
    let mut pair = Pair::up();
    let (&failed, _) = pair.client.sockets.bound().first_key_value().unwrap();
    pair.client.sockets.fail(failed);
    pair.client_events();
    pair.run(Duration::from_secs(5));
    let opened = pair.client.sockets.bound().keys().copied().collect::<Vec<_>>();
    assert_ne!(opened, [failed]);
    assert_eq!(opened.len(), 1);
    pair.client.device.push(packet(100, 1, false));
    pair.run(DELAY);
    assert_eq!(pair.gateway.device.written, [packet(100, 1, false)]);
}

#[test]
fn an_empty_datagram_is_counted() {
    let mut pair = Pair::up();
    let meta =
        Meta { socket: LISTENING, local: None, remote: gateway_address(), waited: Duration::ZERO };
    pair.gateway.sockets.push(meta, Vec::new());
    pair.turn(End::Gateway);
    let drops: Vec<_> = pair.gateway.node().drops().iter().collect();
    assert_eq!(drops, [(DropReason::UnknownKind, 1)]);
}
