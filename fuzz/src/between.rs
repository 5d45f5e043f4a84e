//! A client and a gateway, and between them whoever the target wants to be: every datagram waits
//! here until it is delivered, changed, kept or forgotten. Virtual time, no delay of its own.
//!
//! The laws that hold whatever happens are checked here, after every step.

use std::collections::{BTreeMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};

use rove_engine::memory::{MemoryEngine, Sent};
use rove_proto::codec::SavingConfig;
use rove_proto::crypto::{Features, Floor, SeededRng, StaticSecret};
use rove_proto::flow::Hold;
use rove_proto::id::{LinkId, PeerKey, SocketId};
use rove_proto::multipath::scheduler::Scheduler;
use rove_proto::multipath::{Mode, Recovery, Spread};
use rove_proto::node::{Command, Config, Event, Link, Meta, Node, PeerConfig, SideConfig};
use rove_proto::policy::Sealing;
use rove_proto::role::Access;
use rove_proto::time::{Duration, Instant};
use rove_proto::wire::control::{Lease, Prefix};

/// Datagrams that wait; more are lost, as in any queue.
const WAITING_MAX: usize = 128;
/// Bytes that an end may keep of connections.
pub(crate) const HOLD_MEMORY: usize = 1 << 20;
/// The socket on which the gateway listens.
pub(crate) const LISTENING: SocketId = SocketId(0);
/// Where that is.
const GATEWAY_PORT: u16 = 4_433;
/// Ports of the client's sockets, by the number of the socket.
const CLIENT_PORT: u16 = 40_000;
/// How far a rebinding of the NAT moves a port.
const NAT_STEP: u16 = 1_000;
/// The client's address inside.
const INNER: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);
/// A server beyond the gateway.
const SERVER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);

/// One of the two ends.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum End {
    /// Who asks.
    Client,
    /// Who answers.
    Gateway,
}

/// A datagram under way.
#[derive(Clone, Debug)]
pub(crate) struct Datagram {
    pub(crate) from: SocketAddr,
    pub(crate) to: SocketAddr,
    pub(crate) bytes: Vec<u8>,
}

/// Both ends and what is between them.
pub(crate) struct Between {
    now: Instant,
    client: MemoryEngine,
    gateway: MemoryEngine,
    keys: (StaticSecret, StaticSecret),
    /// How often the client's NAT has rebound.
    nat: u16,
    pub(crate) waiting: VecDeque<Datagram>,
    /// Inner packets by serial number: who sent it, how often it came out.
    inner: BTreeMap<u32, (End, u32)>,
}

impl Between {
    /// Both ends; the gateway knows the client, and the client was told to connect.
    pub(crate) fn new() -> Self {
        let mut rng = SeededRng::new(7);
        let keys = (StaticSecret::generate(&mut rng), StaticSecret::generate(&mut rng));
        let now = Instant::from_nanos(1_000_000_000);
        let mut between = Self {
            now,
            client: engine(End::Client, now, &keys.0, 1),
            gateway: engine(End::Gateway, now, &keys.1, 2),
            keys,
            nat: 0,
            waiting: VecDeque::new(),
            inner: BTreeMap::new(),
        };
        between.admit_client();
        let remotes = vec![gateway_address()];
        let side = SideConfig::Gateway { remotes, counter: 1, token: None, advertise: Vec::new() };
        let key = between.keys.1.public();
        let config = PeerConfig { key, psk: None, access: Access::Unrestricted, side };
        between.command(End::Client, Command::AddPeer(Box::new(config)));
        between.move_client(0);
        between.command(End::Client, Command::Connect(key));
        between
    }

    /// The client has one link, with the address of this number.
    pub(crate) fn move_client(&mut self, number: u8) {
        let address = Ipv4Addr::new(203, 0, 113, number).into();
        let link =
            Link { id: LinkId(u32::from(number) + 1), addresses: vec![address], stands_by: false };
        self.command(End::Client, Command::SetLinks(vec![link]));
    }

    /// The client's NAT forgets its mappings and makes new ones.
    pub(crate) fn rebind_nat(&mut self) {
        self.nat = (self.nat + 1) % 8;
    }

    /// The gateway's process starts anew, without its sessions.
    pub(crate) fn restart_gateway(&mut self, seed: u64) {
        self.gateway = engine(End::Gateway, self.now, &self.keys.1, seed.wrapping_add(3));
        self.admit_client();
    }

    /// An end's host sends an inner packet of `len` bytes.
    pub(crate) fn send(&mut self, end: End, len: usize) -> u32 {
        let serial = u32::try_from(self.inner.len()).unwrap_or(u32::MAX);
        self.inner.insert(serial, (end, 0));
        self.engine(end).device.push(inner_packet(end, serial, len));
        self.turn(end);
        serial
    }

    /// Whether the inner packet of this number came out.
    pub(crate) fn arrived(&self, serial: u32) -> bool {
        self.inner.get(&serial).is_some_and(|(_, times)| *times > 0)
    }

    /// A datagram reaches the end that it is addressed to, if there is one.
    pub(crate) fn deliver(&mut self, datagram: Datagram) {
        let Datagram { from: remote, to, bytes } = datagram;
        let mut sockets = self.client.sockets.bound().iter().map(|(socket, ip)| (*socket, *ip));
        let is_at = |(socket, ip)| SocketAddr::new(ip, client_port(socket, self.nat)) == to;
        let (end, socket, local) = if to == gateway_address() {
            (End::Gateway, LISTENING, None)
        } else if let Some((socket, ip)) = sockets.find(|&bound| is_at(bound)) {
            (End::Client, socket, Some(ip))
        } else {
            return;
        };
        let meta = Meta { socket, local, remote, waited: Duration::ZERO };
        self.engine(end).sockets.push(meta, bytes);
        self.turn(end);
    }

    /// Time passes; what falls due on the way is done at its time.
    pub(crate) fn advance(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            let due = [self.client.due(), self.gateway.due()];
            let next = due.into_iter().flatten().map(|(at, _)| at).min();
            self.now = next.map_or(end, |next| next.clamp(self.now, end));
            self.turn(End::Client);
            self.turn(End::Gateway);
        }
    }

    /// Nobody is between them any more: all is delivered, in order, for this long.
    pub(crate) fn at_peace(&mut self, time: Duration, step: Duration) {
        let end = self.now + time;
        while self.now < end {
            for _ in 0..WAITING_MAX {
                let Some(datagram) = self.waiting.pop_front() else { break };
                self.deliver(datagram);
            }
            self.advance(step);
        }
    }

    /// The addresses of both ends, for who wants to be taken for one of them.
    pub(crate) fn addresses(&self) -> (SocketAddr, SocketAddr) {
        let client = self.client.sockets.bound().last_key_value();
        let client =
            client.map(|(socket, ip)| SocketAddr::new(*ip, client_port(*socket, self.nat)));
        (client.unwrap_or_else(gateway_address), gateway_address())
    }

    fn admit_client(&mut self) {
        let access = Access::Restricted {
            own: vec![Prefix::host(INNER.into())],
            gateway: vec![Ipv4Addr::new(10, 9, 0, 1).into()],
            internet: true,
            local: Vec::new(),
            allow: Vec::new(),
        };
        let addresses = vec![Prefix { address: INNER.into(), bits: 24 }];
        let gateway = vec![Ipv4Addr::new(10, 9, 0, 1).into()];
        let lease = Lease { addresses, gateway, dns: Vec::new() };
        let side = SideConfig::Client { lease };
        let config = PeerConfig { key: self.keys.0.public(), psk: None, access, side };
        self.command(End::Gateway, Command::AddPeer(Box::new(config)));
    }

    fn command(&mut self, end: End, command: Command) {
        self.engine(end).command(command);
        self.turn(end);
    }

    fn engine(&mut self, end: End) -> &mut MemoryEngine {
        match end {
            End::Client => &mut self.client,
            End::Gateway => &mut self.gateway,
        }
    }

    /// A turn of an end, and everything that it leads to: events, datagrams, inner packets.
    fn turn(&mut self, end: End) {
        let (now, peer) = (self.now, self.peer_of(end));
        let engine = self.engine(end);
        engine.clock.now = now;
        engine.turn();
        assert_eq!(engine.overdue(), None, "{end:?} still has a timer that is due");
        let (events, sent, written) = take(engine);
        for event in events {
            if let Event::OpenSocket { .. } = event {
                assert_eq!(end, End::Client, "a gateway listens and opens nothing");
            } else if let Event::Established { peer: other, .. } = event {
                assert_eq!(other, peer, "a session with a stranger");
            }
        }
        for Sent { route, bound, datagram: bytes, .. } in sent {
            let bound = bound.expect("a socket is open while datagrams use it");
            let from = match end {
                End::Gateway => gateway_address(),
                End::Client => SocketAddr::new(bound, client_port(route.socket, self.nat)),
            };
            if self.waiting.len() < WAITING_MAX {
                self.waiting.push_back(Datagram { from, to: route.remote, bytes });
            }
        }
        for packet in written {
            self.came_out(end, &packet);
        }
    }

    /// An inner packet came out of the tunnel: it must be one that the other end sent, whole, and
    /// not have come out before.
    fn came_out(&mut self, end: End, packet: &[u8]) {
        let serial = packet.get(20..24).and_then(|bytes| bytes.try_into().ok());
        let serial = u32::from_be_bytes(serial.unwrap_or_default());
        let Some((sender, times)) = self.inner.get_mut(&serial) else {
            panic!("a packet that nobody sent came out at {end:?}")
        };
        assert_ne!(*sender, end, "a packet came back to who sent it");
        assert_eq!(packet, inner_packet(*sender, serial, packet.len()), "a packet was changed");
        *times += 1;
        assert_eq!(*times, 1, "packet {serial} came out twice at {end:?}");
    }

    fn peer_of(&self, end: End) -> PeerKey {
        match end {
            End::Client => self.keys.1.public(),
            End::Gateway => self.keys.0.public(),
        }
    }
}

/// The output of an engine so far: events, datagrams, inner packets.
pub(crate) fn take(engine: &mut MemoryEngine) -> (Vec<Event>, Vec<Sent>, Vec<Vec<u8>>) {
    engine.sockets.sealed.clear();
    let sent = std::mem::take(&mut engine.sockets.sent);
    (std::mem::take(&mut engine.events), sent, std::mem::take(&mut engine.device.written))
}

/// The engine of an end, which knows nobody.
pub(crate) fn engine(end: End, now: Instant, secret: &StaticSecret, seed: u64) -> MemoryEngine {
    let config = Config {
        secret: secret.clone(),
        floor: Floor::BITS_256,
        sealing: Sealing::default(),
        has_aes: true,
        keepalive: Some(Duration::from_secs(25)),
        persistence_timeout: Duration::from_secs(86_400),
        hold: Hold::Full.into(),
        hold_memory: HOLD_MEMORY,
        mode: Mode::default(),
        scheduler: Scheduler::default(),
        recovery: Recovery::default(),
        spread: Spread::default(),
        couples: true,
        competes: true,
        reorders: true,
        saving: SavingConfig::default(),
        judges_offload: true,
        features: Features::COMPACT | Features::COMPRESSED | Features::PROFILES,
        ablation: Default::default(),
    };
    let node = Node::new(now, config, Box::new(SeededRng::new(seed)), 100);
    let listening = (end == End::Gateway).then(|| (LISTENING, gateway_address().ip()));
    MemoryEngine::in_memory(node, now, listening)
}

pub(crate) fn gateway_address() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(192, 0, 2, 1), GATEWAY_PORT))
}

fn client_port(socket: SocketId, nat: u16) -> u16 {
    let number = u16::try_from(socket.0 % 500).unwrap_or(0);
    CLIENT_PORT + nat * NAT_STEP + number
}

/// An IPv4 packet whose first bytes of payload are its serial number and whose length is `len`, or
/// the least that holds that.
fn inner_packet(sender: End, serial: u32, len: usize) -> Vec<u8> {
    let mut packet = vec![0; len.max(24)];
    let length = u16::try_from(packet.len()).unwrap_or(u16::MAX);
    let (source, destination) = match sender {
        End::Client => (INNER, SERVER),
        End::Gateway => (SERVER, INNER),
    };
    packet[0] = 0x45;
    packet[2..4].copy_from_slice(&length.to_be_bytes());
    packet[9] = 253; // for experiments: RFC 3692, section 2.1
    packet[12..16].copy_from_slice(&source.octets());
    packet[16..20].copy_from_slice(&destination.octets());
    packet[20..24].copy_from_slice(&serial.to_be_bytes());
    packet
}
