//! A client and a gateway, and between them whoever the target wants to be: every datagram waits
//! here until it is delivered, changed, kept or forgotten. Virtual time, no delay of its own.
//!
//! The laws that hold whatever happens are checked here, after every step.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use rove_proto::bond::scheduler::Scheduler;
use rove_proto::bond::{Mode, Recovery, Spread};
use rove_proto::crypto::{Floor, SeededRng, StaticSecret};
use rove_proto::flow::Hold;
use rove_proto::id::{LinkId, PeerKey, SocketId};
use rove_proto::node::{Command, Config, Event, Link, Meta, Node, PeerConfig, SideConfig};
use rove_proto::outbox::Outbox;
use rove_proto::role::Access;
use rove_proto::time::{Duration, Instant};
use rove_proto::wire::control::{Lease, Prefix};
use rove_proto::wire::inner::Pieces;

/// Datagrams that wait; more are lost, as in any queue.
const WAITING_MAX: usize = 128;
/// Calls of `handle_timeout` at one moment before it counts as a loop.
pub(crate) const TIMEOUTS_MAX: usize = 64;
/// Bytes that an end may keep of connections.
pub(crate) const HOLD_MEMORY: usize = 1 << 20;
/// Where the gateway listens.
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
    client: Node,
    gateway: Node,
    keys: (StaticSecret, StaticSecret),
    /// The client's sockets by number, and the addresses that they are bound to.
    sockets: BTreeMap<SocketId, IpAddr>,
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
            client: node(now, &keys.0, 1),
            gateway: node(now, &keys.1, 2),
            keys,
            sockets: BTreeMap::new(),
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
        self.gateway = node(self.now, &self.keys.1, seed.wrapping_add(3));
        self.admit_client();
    }

    /// An end's host sends an inner packet of `len` bytes.
    pub(crate) fn send(&mut self, end: End, len: usize) -> u32 {
        let serial = u32::try_from(self.inner.len()).unwrap_or(u32::MAX);
        self.inner.insert(serial, (end, 0));
        let packet = inner_packet(end, serial, len);
        let (now, mut out) = (self.now, Outbox::new());
        self.node(end).handle_tun(now, Pieces::whole(&packet), &mut out);
        self.take(end, out);
        serial
    }

    /// Whether the inner packet of this number came out.
    pub(crate) fn arrived(&self, serial: u32) -> bool {
        self.inner.get(&serial).is_some_and(|(_, times)| *times > 0)
    }

    /// A datagram reaches who it is addressed to, if anybody.
    pub(crate) fn deliver(&mut self, mut datagram: Datagram) {
        let (now, mut out) = (self.now, Outbox::new());
        let remote = datagram.from;
        if datagram.to == gateway_address() {
            let meta = Meta { socket: SocketId(0), local: None, remote, waited: Duration::ZERO };
            self.gateway.handle_datagram(now, meta, &mut datagram.bytes, &mut out);
            self.take(End::Gateway, out);
            return;
        }
        let bound = self.sockets.iter().map(|(socket, ip)| (*socket, *ip));
        let found = bound.into_iter().find(|(socket, ip)| {
            SocketAddr::new(*ip, client_port(*socket, self.nat)) == datagram.to
        });
        if let Some((socket, local)) = found {
            let meta = Meta { socket, local: Some(local), remote, waited: Duration::ZERO };
            self.client.handle_datagram(now, meta, &mut datagram.bytes, &mut out);
            self.take(End::Client, out);
        }
    }

    /// Time passes; what falls due on the way is done at its time.
    pub(crate) fn advance(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            let due = [self.client.poll_timeout(), self.gateway.poll_timeout()];
            let next = due.into_iter().flatten().map(|(at, _)| at).min();
            self.now = next.map_or(end, |next| next.clamp(self.now, end));
            self.timeouts();
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
        let client = self
            .sockets
            .iter()
            .next_back()
            .map(|(socket, ip)| SocketAddr::new(*ip, client_port(*socket, self.nat)));
        (client.unwrap_or_else(gateway_address), gateway_address())
    }

    fn timeouts(&mut self) {
        for end in [End::Client, End::Gateway] {
            for round in 0.. {
                assert!(round < TIMEOUTS_MAX, "{end:?} never rests");
                let now = self.now;
                let due = self.node(end).poll_timeout();
                let Some((_, reason)) = due.filter(|(at, _)| *at <= now) else { break };
                let mut out = Outbox::new();
                self.node(end).handle_timeout(now, &mut out);
                self.take(end, out);
                let next = self.node(end).poll_timeout();
                assert!(next.is_none_or(|(at, _)| at > now), "{end:?}: {reason:?} is still due");
            }
        }
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
        let (now, mut out) = (self.now, Outbox::new());
        self.node(end).handle_command(now, command, &mut out);
        self.take(end, out);
    }

    fn node(&mut self, end: End) -> &mut Node {
        match end {
            End::Client => &mut self.client,
            End::Gateway => &mut self.gateway,
        }
    }

    /// What an end has to say after a call: events, datagrams, inner packets.
    fn take(&mut self, end: End, mut out: Outbox) {
        let peer = self.peer_of(end);
        while let Some(event) = self.node(end).poll_event() {
            self.heed(end, peer, event);
        }
        out.seal();
        for (run, bytes) in out.runs() {
            let local = match end {
                End::Gateway => Some(gateway_address()),
                End::Client => self
                    .sockets
                    .get(&run.route.socket)
                    .map(|ip| SocketAddr::new(*ip, client_port(run.route.socket, self.nat))),
            };
            // A socket that was closed again before its datagrams were taken sends nothing.
            let Some(from) = local else { continue };
            for datagram in bytes.chunks(run.segment) {
                if self.waiting.len() < WAITING_MAX {
                    let (to, bytes) = (run.route.remote, datagram.to_vec());
                    self.waiting.push_back(Datagram { from, to, bytes });
                }
            }
        }
        for packet in out.inner() {
            self.came_out(end, packet);
        }
    }

    fn heed(&mut self, end: End, peer: PeerKey, event: Event) {
        match event {
            Event::OpenSocket { socket, local, .. } => {
                assert_eq!(end, End::Client, "a gateway listens and opens nothing");
                self.sockets.insert(socket, local);
            }
            Event::CloseSocket { socket } => drop(self.sockets.remove(&socket)),
            Event::Established { peer: other, .. } => {
                assert_eq!(other, peer, "a session with a stranger");
            }
            Event::HandshakeCounter { .. }
            | Event::EnrolmentRequested { .. }
            | Event::PeerRefused { .. }
            | Event::Refused { .. }
            | Event::Leased { .. }
            | Event::Routes { .. }
            | Event::Announced { .. }
            | Event::Reached { .. }
            | Event::Owing { .. }
            | Event::Settled { .. }
            | Event::State { .. }
            | Event::Moved { .. }
            | Event::KeyIsShared { .. }
            | Event::Ended { .. } => {}
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

pub(crate) fn node(now: Instant, secret: &StaticSecret, seed: u64) -> Node {
    let config = Config {
        secret: secret.clone(),
        floor: Floor::BITS_128,
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
        ablation: Default::default(),
    };
    Node::new(now, config, Box::new(SeededRng::new(seed)), 100)
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
