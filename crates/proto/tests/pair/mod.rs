//! A client and a gateway joined by a link with a delay and nothing else, in virtual time.

#![allow(clippy::unwrap_used, reason = "a test harness: a panic is the report")]
#![allow(dead_code, reason = "each test uses a part of it")]

pub(crate) mod bulk;

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use rove_proto::codec::SavingConfig;
use rove_proto::crypto::{Features, Floor, Profile, SeededRng, StaticSecret, Token};
use rove_proto::flow::Hold;
use rove_proto::id::{LinkId, PeerKey, SocketId};
use rove_proto::multipath::scheduler::Scheduler;
use rove_proto::multipath::{Mode, Recovery, Spread};
use rove_proto::node::{
    Command, Config, Event, Link, Meta, Node, PeerConfig, PeerState, SideConfig,
};
use rove_proto::outbox::{Outbox, Run, Sending};
use rove_proto::policy::Sealing;
use rove_proto::role::Access;
use rove_proto::time::{Duration, Instant};
use rove_proto::wire::Kind;
use rove_proto::wire::checksum::Sum;
use rove_proto::wire::control::{Lease, Prefix};
use rove_proto::wire::inner::Pieces;

/// One way.
pub(crate) const DELAY: Duration = Duration::from_millis(20);
pub(crate) const GATEWAY: &str = "192.0.2.1:4433";
pub(crate) const ELSEWHERE: &str = "192.0.2.77:4433";
const SERVER: [u8; 4] = [198, 51, 100, 7];
const INNER: [u8; 4] = [10, 9, 0, 2];

/// The ports of a client's streams, which carry datagrams as its UDP sockets do.
pub(crate) const STREAM_PORTS: u16 = 50_000;

#[derive(Clone)]
pub(crate) struct Datagram {
    pub(crate) at: Instant,
    pub(crate) from: SocketAddr,
    pub(crate) to: SocketAddr,
    pub(crate) bytes: Vec<u8>,
}

pub(crate) struct Pair {
    pub(crate) now: Instant,
    pub(crate) client: Node,
    pub(crate) gateway: Node,
    pub(crate) client_key: PeerKey,
    pub(crate) gateway_key: PeerKey,
    /// The addresses that the gateway has; the first is where it sends from unless told otherwise.
    pub(crate) gateway_at: Vec<SocketAddr>,
    /// The client's sockets and the addresses that they are bound to.
    sockets: Vec<(SocketId, SocketAddr)>,
    wire: VecDeque<Datagram>,
    pub(crate) client_inner: Vec<(Instant, Vec<u8>)>,
    pub(crate) gateway_inner: Vec<(Instant, Vec<u8>)>,
    /// Length and profile of each datagram that the client sealed.
    pub(crate) client_sealed: Vec<(usize, Profile)>,
    pub(crate) client_events: Vec<Event>,
    pub(crate) gateway_events: Vec<Event>,
    /// Whether a datagram gets through.
    pub(crate) filter: Box<dyn FnMut(&Datagram) -> bool>,
    /// An address of the client's that is farther than the others, and by how much one way.
    pub(crate) farther: Option<(IpAddr, Duration)>,
    /// Datagrams sent by either.
    pub(crate) sent: usize,
    /// The same by the address that they left from.
    pub(crate) sent_from: BTreeMap<IpAddr, usize>,
    /// Their bytes at layer 3.
    pub(crate) bytes: usize,
    /// What stands in front of the client.
    pub(crate) nat: Option<Nat>,
    /// What the hosts lose of segmented sends, by which of their addresses if not by all, and how
    /// many such sends there were.
    pub(crate) mangled: Option<Mangled>,
    pub(crate) mangled_from: Option<IpAddr>,
    pub(crate) segmented: u32,
}

/// Segmented sends that a host mangles.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mangled {
    /// Those with a full last segment are lost whole.
    EqualRuns,
    /// Those lose their last segment.
    FullLast,
    /// Each send of so many is lost whole.
    EveryNth(u32),
}

/// A NAT that remembers who spoke for a while: each mapping has an outside port of its own, and
/// lets in what comes from the gateway. Before IPv6 it is a firewall, which maps nothing.
pub(crate) struct Nat {
    forgets: Duration,
    mappings: Vec<(SocketAddr, SocketAddr, Instant)>,
    /// Whether what it has forgotten gets the same port again.
    pub(crate) keeps_ports: bool,
    /// What it has forgotten, and lets nothing in for.
    shut: Vec<SocketAddr>,
}

impl Nat {
    pub(crate) const fn new(forgets: Duration) -> Self {
        Self { forgets, mappings: Vec::new(), keeps_ports: false, shut: Vec::new() }
    }

    /// From now on it maps to other ports, or lets in nothing before something left.
    pub(crate) fn forget(&mut self) {
        if self.keeps_ports {
            self.shut = self.mappings.iter().map(|mapping| mapping.1).collect();
            return;
        }
        for mapping in &mut self.mappings {
            mapping.0 = SocketAddr::from(([0; 4], 0));
        }
    }

    /// The outside of what `inside` sends.
    fn out(&mut self, now: Instant, inside: SocketAddr) -> SocketAddr {
        let outside = self.map(now, inside);
        self.shut.retain(|shut| *shut != outside);
        outside
    }

    fn map(&mut self, now: Instant, inside: SocketAddr) -> SocketAddr {
        let forgets = self.forgets;
        let alive = |m: &&mut (SocketAddr, SocketAddr, Instant)| {
            m.0 == inside && now.saturating_since(m.2) < forgets
        };
        if let Some(mapping) = self.mappings.iter_mut().find(alive) {
            mapping.2 = now;
            return mapping.1;
        }
        let port = 20_000 + u16::try_from(self.mappings.len()).unwrap();
        let outside = match inside {
            SocketAddr::V4(_) => SocketAddr::new([198, 51, 100, 1].into(), port),
            SocketAddr::V6(_) => inside,
        };
        self.mappings.push((inside, outside, now));
        outside
    }

    /// The inside of what comes for `outside`, while it is remembered.
    fn back(&self, now: Instant, outside: SocketAddr) -> Option<SocketAddr> {
        let open = |mapping: &&(SocketAddr, SocketAddr, Instant)| mapping.1 == outside;
        let mapping = self.mappings.iter().rev().find(open)?;
        if self.shut.contains(&outside) {
            return None;
        }
        (now.saturating_since(mapping.2) < self.forgets).then_some(mapping.0)
    }
}

pub(crate) fn lease() -> Lease {
    Lease {
        addresses: vec![Prefix { address: INNER.into(), bits: 24 }],
        gateway: vec![[10, 9, 0, 1].into()],
        dns: vec![],
    }
}

pub(crate) fn config(secret: &StaticSecret) -> Config {
    Config {
        secret: secret.clone(),
        floor: Floor::BITS_128,
        sealing: Sealing::default(),
        has_aes: true,
        keepalive: Some(Duration::from_secs(25)),
        persistence_timeout: Duration::from_secs(86_400),
        hold: Hold::Full.into(),
        hold_memory: 1 << 24,
        mode: Mode::Backup,
        scheduler: Scheduler::default(),
        recovery: Recovery::default(),
        spread: Spread::default(),
        couples: true,
        competes: true,
        reorders: true,
        saving: SavingConfig::default(),
        judges_offload: true,
        features: Features::COMPACT | Features::COMPRESSED,
        ablation: Default::default(),
    }
}

/// The client's links are these, one address each.
pub(crate) fn links(addresses: &[[u8; 4]]) -> Command {
    let link = |(i, a): (usize, &[u8; 4])| Link {
        id: LinkId(u32::try_from(i).unwrap() + 1),
        addresses: vec![IpAddr::from(*a)],
        stands_by: false,
    };
    Command::SetLinks(addresses.iter().enumerate().map(link).collect())
}

/// A UDP packet of `len` bytes from the client to the server, or back.
pub(crate) fn packet(len: usize, back: bool) -> Vec<u8> {
    let mut packet = vec![0u8; len];
    packet[0] = 0x45;
    packet[2..4].copy_from_slice(&u16::try_from(len).unwrap().to_be_bytes());
    packet[9] = 17;
    let (source, destination) = if back { (SERVER, INNER) } else { (INNER, SERVER) };
    packet[12..16].copy_from_slice(&source);
    packet[16..20].copy_from_slice(&destination);
    packet
}

/// A UDP packet with that payload from one port to another, from the client to the server or back.
pub(crate) fn udp(ports: (u16, u16), payload: &[u8], back: bool) -> Vec<u8> {
    let mut packet = packet(28, back);
    packet[20..22].copy_from_slice(&ports.0.to_be_bytes());
    packet[22..24].copy_from_slice(&ports.1.to_be_bytes());
    packet[24..26].copy_from_slice(&u16::try_from(8 + payload.len()).unwrap().to_be_bytes());
    packet.extend_from_slice(payload);
    let length = u16::try_from(packet.len()).unwrap();
    packet[2..4].copy_from_slice(&length.to_be_bytes());
    complete(&mut packet);
    packet
}

/// Writes the checksums of a UDP packet.
pub(crate) fn complete(packet: &mut [u8]) {
    packet[10..12].fill(0);
    packet[26..28].fill(0);
    let sum = Sum::default().bytes(&packet[..20]).checksum();
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    let address = |at: usize| <[u8; 4]>::try_from(&packet[at..at + 4]).unwrap().into();
    let length = u16::try_from(packet.len() - 20).unwrap();
    let sum = Sum::default().pseudo(address(12), address(16), 17, length).bytes(&packet[20..]);
    packet[26..28].copy_from_slice(&sum.checksum().to_be_bytes());
}

/// The first segment of a TCP connection from the client to the server, or back.
pub(crate) fn syn(back: bool) -> Vec<u8> {
    let mut packet = packet(40, back);
    packet[9] = 6;
    packet[20..24].copy_from_slice(&[0x9c, 0x40, 0x01, 0xbb]);
    packet[32..34].copy_from_slice(&[5 << 4, 2]);
    packet[36..38].copy_from_slice(&[0; 2]);
    let address = |at: usize| <[u8; 4]>::try_from(&packet[at..at + 4]).unwrap().into();
    let sum = Sum::default().pseudo(address(12), address(16), 6, 20).bytes(&packet[20..40]);
    packet[36..38].copy_from_slice(&sum.checksum().to_be_bytes());
    packet
}

/// Those of the client and of the gateway.
pub(crate) fn secrets() -> (StaticSecret, StaticSecret) {
    let mut rng = SeededRng::new(7);
    (StaticSecret::generate(&mut rng), StaticSecret::generate(&mut rng))
}

impl Datagram {
    /// Whether it travels by itself.
    pub(crate) fn is_udp(&self) -> bool {
        self.from.port().max(self.to.port()) < STREAM_PORTS
    }
}

impl Pair {
    /// Both ends, which have not spoken yet. The gateway does not know the client.
    pub(crate) fn new(token: Option<Token>) -> Self {
        let (client, gateway) = secrets();
        let now = Instant::from_nanos(1_000_000_000);
        let (client_key, gateway_key) = (client.public(), gateway.public());
        let node =
            |secret, seed| Node::new(now, config(secret), Box::new(SeededRng::new(seed)), 100);
        let mut pair = Self {
            now,
            client: node(&client, 1),
            gateway: node(&gateway, 2),
            client_key,
            gateway_key,
            gateway_at: vec![GATEWAY.parse().unwrap()],
            sockets: Vec::new(),
            wire: VecDeque::new(),
            client_inner: Vec::new(),
            gateway_inner: Vec::new(),
            client_sealed: Vec::new(),
            client_events: Vec::new(),
            gateway_events: Vec::new(),
            filter: Box::new(|_| true),
            farther: None,
            sent: 0,
            sent_from: BTreeMap::new(),
            bytes: 0,
            nat: None,
            mangled: None,
            mangled_from: None,
            segmented: 0,
        };
        pair.add_gateway(token, 1);
        pair
    }

    /// The client knows the gateway from now on; its next handshake has this counter.
    fn add_gateway(&mut self, token: Option<Token>, counter: u64) {
        let remotes = vec![GATEWAY.parse().unwrap()];
        let side = SideConfig::Gateway { remotes, counter, token, advertise: vec![] };
        let access = Access::Unrestricted;
        let config = PeerConfig { key: self.gateway_key, psk: None, access, side };
        self.tell_client(Command::AddPeer(Box::new(config)));
        self.tell_client(links(&[[203, 0, 113, 5]]));
    }

    /// The client's process starts anew, with its store and without its session, and connects.
    pub(crate) fn restart_client(&mut self) {
        let (secret, _) = secrets();
        self.client = Node::new(self.now, config(&secret), Box::new(SeededRng::new(4)), 100);
        self.add_gateway(None, 1_000);
        self.tell_client(Command::Connect(self.gateway_key));
        self.run(Duration::from_millis(200));
    }

    /// Both ends with a session that carries.
    pub(crate) fn up() -> Self {
        let mut pair = Self::new(None);
        pair.admit_client();
        pair.tell_client(Command::Connect(pair.gateway_key));
        pair.run(Duration::from_millis(200));
        assert_eq!(pair.state(), PeerState::Up);
        pair
    }

    /// The same with other settings of both ends.
    pub(crate) fn up_as(
        client: impl FnOnce(&mut Config),
        gateway: impl FnOnce(&mut Config),
    ) -> Self {
        let (ours, theirs) = secrets();
        let (mut ours, mut theirs) = (config(&ours), config(&theirs));
        client(&mut ours);
        gateway(&mut theirs);
        let mut pair = Self::new(None);
        let now = pair.now;
        let node = |config, seed| Node::new(now, config, Box::new(SeededRng::new(seed)), 100);
        (pair.client, pair.gateway) = (node(ours, 1), node(theirs, 2));
        pair.add_gateway(None, 1);
        pair.admit_client();
        pair.tell_client(Command::Connect(pair.gateway_key));
        pair.run(Duration::from_millis(200));
        assert_eq!(pair.state(), PeerState::Up);
        pair
    }

    /// The gateway knows the client from now on.
    pub(crate) fn admit_client(&mut self) {
        let access = Access::Restricted {
            own: vec![Prefix::host(INNER.into())],
            gateway: vec![[10, 9, 0, 1].into()],
            internet: true,
            local: vec![],
            allow: vec![],
        };
        let side = SideConfig::Client { lease: lease() };
        let config = PeerConfig { key: self.client_key, psk: None, access, side };
        self.tell_gateway(Command::AddPeer(Box::new(config)));
    }

    /// The gateway's host has these addresses now.
    pub(crate) fn move_gateway(&mut self, to: &[&str]) {
        self.gateway_at = to.iter().map(|at| at.parse().unwrap()).collect();
        let locals = self.gateway_at.iter().map(SocketAddr::ip).collect();
        self.tell_gateway(Command::SetLocals(locals));
    }

    /// The gateway's process starts anew, with its store and without its sessions.
    pub(crate) fn restart_gateway(&mut self) {
        let (_, secret) = secrets();
        self.gateway = Node::new(self.now, config(&secret), Box::new(SeededRng::new(3)), 100);
        self.admit_client();
    }

    pub(crate) fn tell_client(&mut self, command: Command) {
        let mut out = Outbox::new();
        self.client.handle_command(self.now, command, &mut out);
        self.flush_client(out);
    }

    pub(crate) fn tell_gateway(&mut self, command: Command) {
        let mut out = Outbox::new();
        self.gateway.handle_command(self.now, command, &mut out);
        self.flush_gateway(out);
    }

    /// The client's host sends an inner packet.
    pub(crate) fn send(&mut self, packet: &[u8]) {
        let mut out = Outbox::new();
        self.client.handle_tun(self.now, Pieces::whole(packet), &mut out);
        self.flush_client(out);
    }

    /// The gateway's host sends an inner packet to the client.
    pub(crate) fn send_back(&mut self, packet: &[u8]) {
        let mut out = Outbox::new();
        self.gateway.handle_tun(self.now, Pieces::whole(packet), &mut out);
        self.flush_gateway(out);
    }

    /// A host sends so many inner packets at once, the gateway's if they go `back`.
    pub(crate) fn burst(&mut self, packet: &[u8], count: usize, back: bool) {
        let mut out = Outbox::new();
        let node = if back { &mut self.gateway } else { &mut self.client };
        for _ in 0..count {
            node.send(self.now, Pieces::whole(packet), &mut out);
        }
        node.settle(self.now, &mut out);
        if back { self.flush_gateway(out) } else { self.flush_client(out) }
    }

    /// How many datagrams of a run leave its host from this address.
    fn kept(&mut self, from: SocketAddr, run: &Run) -> usize {
        let count = run.datagrams();
        if count < 2 || run.sending == Sending::Single {
            return count;
        }
        self.segmented += 1;
        if self.mangled_from.is_some_and(|by| by != from.ip()) {
            return count;
        }
        let is_full = run.sending == Sending::Segmented && run.span.len() == count * run.segment;
        match self.mangled {
            Some(Mangled::EqualRuns) if is_full => 0,
            Some(Mangled::FullLast) if is_full => count - 1,
            Some(Mangled::EveryNth(every)) if self.segmented.is_multiple_of(every) => 0,
            Some(_) | None => count,
        }
    }

    /// The state of the session as the client sees it.
    pub(crate) fn state(&self) -> PeerState {
        self.client.status(self.gateway_key).unwrap().state
    }

    /// Handshakes that the client completed.
    pub(crate) fn epochs(&self) -> usize {
        self.client_events.iter().filter(|e| matches!(e, Event::Established { .. })).count()
    }

    /// What is on its way from or to that address will not arrive.
    pub(crate) fn cut(&mut self, address: [u8; 4]) {
        let gone = IpAddr::from(address);
        self.wire.retain(|datagram| datagram.from.ip() != gone && datagram.to.ip() != gone);
    }

    /// What leaves from or for that address from now on is held up.
    pub(crate) fn hold(&mut self, address: [u8; 4]) -> Rc<RefCell<Vec<Datagram>>> {
        let held = Rc::new(RefCell::new(Vec::new()));
        let (kept, by) = (Rc::clone(&held), IpAddr::from(address));
        self.filter = Box::new(move |datagram| {
            let held_up = datagram.from.ip() == by || datagram.to.ip() == by;
            if held_up {
                kept.borrow_mut().push(datagram.clone());
            }
            !held_up
        });
        held
    }

    /// Lets time pass.
    pub(crate) fn run(&mut self, time: Duration) {
        let end = self.now + time;
        for _ in 0..100_000 {
            let arrival = self.wire.front().map(|datagram| datagram.at);
            let timers = [self.client.poll_timeout(), self.gateway.poll_timeout()];
            let timers = timers.into_iter().flatten().map(|(at, _)| at);
            let next = timers.chain(arrival).min().unwrap_or(end);
            if next > end {
                self.now = end;
                return;
            }
            self.now = self.now.max(next);
            if arrival == Some(next)
                && let Some(datagram) = self.wire.pop_front()
            {
                self.arrive(datagram);
            }
            let (mut client, mut gateway) = (Outbox::new(), Outbox::new());
            self.client.handle_timeout(self.now, &mut client);
            self.gateway.handle_timeout(self.now, &mut gateway);
            self.flush_client(client);
            self.flush_gateway(gateway);
            for node in [&self.client, &self.gateway] {
                if let Some((at, reason)) = node.poll_timeout() {
                    assert!(at > self.now, "{reason:?} is still due");
                }
            }
            if next == end && self.wire.is_empty() {
                return;
            }
        }
        panic!("it never rests");
    }

    /// A datagram reaches its end.
    pub(crate) fn arrive(&mut self, mut datagram: Datagram) {
        let mut out = Outbox::new();
        if self.gateway_at.contains(&datagram.to) {
            let (local, port) = (Some(datagram.to.ip()), datagram.from.port());
            let stream = port.checked_sub(STREAM_PORTS).map(u32::from);
            let socket = SocketId(stream.map_or(0, |number| SocketId::STREAMS | number));
            let meta = Meta { socket, local, remote: datagram.from, waited: Duration::ZERO };
            self.gateway.handle_datagram(self.now, meta, &mut datagram.bytes, &mut out);
            self.flush_gateway(out);
        } else if let Some(&(socket, at)) = self.sockets.iter().find(|s| s.1 == datagram.to) {
            let meta = Meta {
                socket,
                local: Some(at.ip()),
                remote: datagram.from,
                waited: Duration::ZERO,
            };
            self.client.handle_datagram(self.now, meta, &mut datagram.bytes, &mut out);
            self.flush_client(out);
        }
    }

    fn flush_client(&mut self, mut out: Outbox) {
        while let Some(event) = self.client.poll_event() {
            if let Event::OpenSocket { socket, local, stream, .. } = event {
                let first = if stream.is_some() { STREAM_PORTS } else { 40_000 };
                let port = first + u16::try_from(socket.0 % SocketId::STREAMS).unwrap();
                self.sockets.push((socket, SocketAddr::new(local, port)));
            }
            self.client_events.push(event);
        }
        out.seal();
        let datagrams = out.runs().flat_map(|(run, bytes)| bytes.chunks(run.segment));
        let lengths = datagrams.filter(|it| it[0] == Kind::Data as u8).map(<[u8]>::len);
        let profiles = out.sealed().map(|(_, _, profile)| profile);
        self.client_sealed.extend(lengths.zip(profiles));
        for (run, bytes) in out.runs() {
            let from = self.sockets.iter().find(|s| s.0 == run.route.socket).unwrap().1;
            for datagram in bytes.chunks(run.segment).take(self.kept(from, run)) {
                self.put(from, run.route.remote, datagram);
            }
        }
        self.client_inner.extend(out.inner().map(|packet| (self.now, packet.to_vec())));
    }

    fn flush_gateway(&mut self, mut out: Outbox) {
        while let Some(event) = self.gateway.poll_event() {
            self.gateway_events.push(event);
        }
        out.seal();
        for (run, bytes) in out.runs() {
            let local = run.route.local;
            let bound = self.gateway_at.iter().find(|at| local.is_none_or(|ip| ip == at.ip()));
            let Some(&from) = bound else { continue };
            for datagram in bytes.chunks(run.segment).take(self.kept(from, run)) {
                self.put(from, run.route.remote, datagram);
            }
        }
        self.gateway_inner.extend(out.inner().map(|packet| (self.now, packet.to_vec())));
    }

    fn put(&mut self, mut from: SocketAddr, mut to: SocketAddr, bytes: &[u8]) {
        self.bytes += 28 + bytes.len();
        *self.sent_from.entry(from.ip()).or_default() += 1;
        let outwards = self.gateway_at.contains(&to);
        match &mut self.nat {
            Some(nat) if outwards => from = nat.out(self.now, from),
            // What comes is judged when it comes.
            Some(nat) => match nat.back(self.now + DELAY, to) {
                Some(inside) => to = inside,
                None => return,
            },
            None => {}
        }
        let farther = self.farther.filter(|&(far, _)| far == from.ip() || far == to.ip());
        let at = self.now + DELAY + farther.map_or(Duration::ZERO, |(_, by)| by);
        let datagram = Datagram { at, from, to, bytes: bytes.to_vec() };
        self.sent += 1;
        if (self.filter)(&datagram) {
            let place = self.wire.partition_point(|before| before.at <= at);
            self.wire.insert(place, datagram);
        }
    }
}
