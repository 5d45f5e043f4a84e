//! The world itself: time, wires, hosts, and the laws at every step of them.
//!
//! Nothing here decides what happens (that is `apply`); it carries out and watches. One event at a
//! time: a datagram arrives, a timer rings, a task of the agenda is due. After each, every law that
//! it could have broken is checked.
//!
//! The parts beside this folder own their state and do not know the world. The files in it are what
//! the world does with them: `apply` (an operation), `agenda` (what is due), `wire` (datagrams),
//! `streams` and `proxy`, `connections`, `talks` and `exchange` (what runs behind the tunnel),
//! `directory` and `owed` (what shells keep). `rest` checks the laws that hold once trouble is
//! over. It drives a world and is no part of it.

mod agenda;
mod apply;
mod connections;
mod directory;
mod exchange;
mod owed;
mod portrait;
mod proxy;
pub(super) mod rest;
mod streams;
mod talks;
mod wire;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use rove_engine::memory::MemoryEngine;
use rove_proto::crypto::{Floor, StaticSecret, Token};
use rove_proto::id::{PeerKey, SocketId, Transport};
use rove_proto::node::{Command, Event, PeerStatus};

use crate::emu::{self, Rng};
use crate::world::addresses::GATEWAYS_MAX;
use crate::world::agenda::{Agenda, Task};
use crate::world::attacker::Attacker;
use crate::world::ciphers::Ciphers;
use crate::world::client::Client;
use crate::world::connections::Connections;
use crate::world::crowd::Crowd;
use crate::world::exchange::Exchange;
use crate::world::gateway::Gateways;
use crate::world::hash::{TraceHash, hash};
use crate::world::host::{Holding, Host, Power, Turn};
use crate::world::host_id::{CLIENT, HostId, PerHost};
use crate::world::inner::Body;
use crate::world::laws::{
    Amplification, Breach, Delivery, Hijack, Law, Nonces, Unlinkable, check_floor, check_held,
    check_indices, check_status,
};
use crate::world::marks::{MarkSet, Marks};
use crate::world::offload::Offload;
use crate::world::op::{ACCESSES, CARDS, CLIENTS_MAX, Quality, Way};
use crate::world::owed::Owed;
use crate::world::place::Place;
use crate::world::standby::Standby;
use crate::world::streams::Streams;
use crate::world::traffic::{Arrival, Passed};
use crate::world::wakes::Wakes;
use crate::world::watch::Watch;
use crate::world::{Saves, Start};

/// Events in one stretch of time, after which the world counts as never resting.
const EVENTS_MAX: u32 = 400_000;
/// Sessions of a gateway that are looked at after each of its turns, in turn: all of them in a
/// world of random operations, and none for long unseen in a crowd.
const INSPECTED: usize = 8;
/// What a node of a world of random operations may keep of open connections, in bytes, by seed:
/// little makes nodes stop to promise, or push out what they hold.
const HOLD_MEMORIES: [usize; 4] = [Holding::USUAL.memory, Holding::USUAL.memory, 1 << 18, 1 << 15];

/// The whole world.
#[derive(Debug)]
pub(in crate::world) struct World {
    pub(in crate::world) now_ns: u64,
    pub(in crate::world) place: Place,
    pub(in crate::world) hosts: PerHost<Host>,
    pub(in crate::world) clients: Vec<Client>,
    pub(in crate::world) gateways: Gateways,
    pub(in crate::world) attacker: Attacker,
    pub(in crate::world) delivery: Delivery,
    pub(in crate::world) trace: TraceHash,
    pub(in crate::world) datagrams: u64,
    /// Layer-3 bytes that each host sent: for the law of silence.
    pub(in crate::world) bytes: PerHost<u64>,
    /// Packets of the tunnel that all hosts sent.
    pub(in crate::world) packets: u64,
    /// The same by a link that stands by, while that is watched.
    pub(in crate::world) by_standby: Option<Standby>,
    pub(in crate::world) worst_back_ns: u64,
    /// Events that nodes told their shells.
    pub(in crate::world) told: u64,
    /// Of these, that a session goes on by another path.
    pub(in crate::world) moves: u64,
    /// Idle hours so far.
    pub(in crate::world) quiet: u32,
    /// What processes that have ended threw away, by reason.
    dropped: BTreeMap<&'static str, u64>,
    pub(in crate::world) watch: Watch,
    /// What came out of the tunnel, if anybody asks.
    pub(in crate::world) arrivals: Option<Vec<Arrival>>,
    /// What passed the clients' cards, while somebody listens.
    pub(in crate::world) overheard: Option<Vec<Passed>>,
    pub(in crate::world) offload: Offload,
    pub(in crate::world) wakes: Wakes,
    pub(in crate::world) streams: Streams,
    pub(in crate::world) connections: Connections,
    pub(in crate::world) exchange: Exchange,
    pub(in crate::world) owed: Owed,
    agenda: Agenda,
    pub(in crate::world) amplification: Amplification,
    pub(in crate::world) hijack: Hijack,
    pub(in crate::world) unlinkable: Unlinkable,
    nonces: Nonces,
    /// The floor of all sessions.
    floor: Floor,
    /// Hashes of everything that a host sent: who did, and when.
    pub(in crate::world) genuine: Marks<(HostId, u64)>,
    /// Hashes of what each running process received.
    pub(in crate::world) taken: PerHost<MarkSet>,
    starts: u64,
    seed: Rng,
}

impl World {
    /// A world in which everybody was just switched on; so many gateways with a client or more
    /// each, one to three in all if there is one gateway, that know of no streams, and perhaps
    /// little memory for open connections.
    pub(in crate::world) fn new(start: Start, watch: Watch) -> Result<Self, Breach> {
        let Start { seed, saves, gateways } = start;
        let gateways = usize::from(gateways.clamp(1, GATEWAYS_MAX as u8));
        let saves = saves == Saves::All;
        let clients = 1 + Rng::new(seed).fork(0x776f).below(CLIENTS_MAX.into()) as usize;
        let memory = HOLD_MEMORIES[Rng::new(seed).fork(0x686f).below(4) as usize];
        let ciphers = Ciphers::weak(Rng::new(seed).fork(0x6369).below(Ciphers::COUNT));
        let holding =
            Holding { memory, elides: saves, compresses: saves, ciphers, ..Holding::USUAL };
        let crowd = Crowd { gateways, ..Crowd::usual(clients.max(gateways), holding) };
        Self::gathering(crowd, seed, watch)
    }

    /// The same with so many clients and much memory.
    #[cfg(test)]
    pub(in crate::world) fn of(clients: usize, seed: u64, watch: Watch) -> Result<Self, Breach> {
        Self::gathering(Crowd::usual(clients, Holding::USUAL), seed, watch)
    }

    /// The same with these clients.
    pub(in crate::world) fn gathering(
        crowd: Crowd,
        seed: u64,
        watch: Watch,
    ) -> Result<Self, Breach> {
        let Crowd { gateways, clients: count, apart_ns, streams, beside, .. } = crowd;
        let rng = Rng::new(seed).fork(0x776f);
        let secrets = crowd.secrets();
        let hosts = PerHost::of(gateways, count, |id| machine(id, &crowd, secrets[id].clone()));
        let (place, links) = Place::new(seed, (gateways, count), beside);
        let keys = (0..gateways).map(|number| secrets[HostId::Gateway(number)].public());
        let mut world = Self {
            now_ns: emu::SECOND,
            place,
            hosts,
            clients: Vec::new(),
            gateways: Gateways::new(keys.zip(links), count),
            attacker: Attacker::new(),
            delivery: Delivery::default(),
            trace: TraceHash::default(),
            datagrams: 0,
            bytes: PerHost::of(gateways, count, |_| 0),
            packets: 0,
            by_standby: None,
            worst_back_ns: 0,
            told: 0,
            moves: 0,
            quiet: 0,
            dropped: BTreeMap::new(),
            watch,
            arrivals: None,
            overheard: None,
            offload: Offload::default(),
            wakes: Wakes::new(gateways, count),
            streams: Streams::new(streams),
            connections: Connections::new(seed),
            exchange: Exchange::default(),
            owed: Owed::default(),
            agenda: Agenda::default(),
            amplification: Amplification::default(),
            hijack: Hijack::default(),
            unlinkable: Unlinkable::default(),
            nonces: Nonces::default(),
            floor: crowd.holding.ciphers.floor(),
            genuine: Marks::default(),
            taken: PerHost::of(gateways, count, |_| MarkSet::default()),
            starts: 0,
            seed: rng,
        };
        for client in 0..count {
            let token = world.invite(client, 0);
            let key = secrets[HostId::Client(client)].public();
            world.clients.push(Client::invited(world.now_ns, key, token));
        }
        for gateway in world.gateways.hosts() {
            world.move_gateway(gateway, 0)?;
            world.rename(gateway);
            world.power_on(gateway, true)?;
        }
        for client in 0..count {
            for access in 0..usize::from(ACCESSES) {
                world.place.set_quality(world.now_ns, client, access, Quality::CLEAN);
            }
            world.plug(client, 0, Some(client % usize::from(ACCESSES)))?;
            world.power_on(HostId::Client(client), true)?;
            world.advance(apart_ns)?;
        }
        Ok(world)
    }

    /// The operator makes an invite for a client.
    pub(in crate::world) fn invite(&mut self, client: usize, number: u32) -> Token {
        let token = self.token(client, number);
        self.gateways.of_mut(HostId::Client(client)).invite(self.now_ns, &token);
        token
    }

    /// What stands in an invite for a client.
    pub(in crate::world) fn token(&self, client: usize, number: u32) -> Token {
        let mut bytes = [0; 16];
        self.seed.fork(0x1_0000 + client as u64 * 0x1_0000 + u64::from(number)).fill(&mut bytes);
        // Sixteen bytes are a token, always.
        Token::new(&bytes).unwrap_or_else(|| unreachable!("a token of 16 bytes"))
    }

    /// Lets time pass.
    pub(in crate::world) fn advance(&mut self, by_ns: u64) -> Result<(), Breach> {
        let end_ns = self.now_ns + by_ns;
        for _ in 0..EVENTS_MAX {
            let Some(next) = self.next_ns().filter(|&next| next <= end_ns) else {
                self.now_ns = end_ns;
                return Ok(());
            };
            self.now_ns = self.now_ns.max(next);
            self.step()?;
        }
        let portraits: Vec<_> = (0..self.clients.len()).map(|i| self.portrait(i)).collect();
        Err(Breach::new(Law::Timeout, format!("it never rests\n{}", portraits.join("\n"))))
    }

    /// When anything happens next.
    pub(in crate::world) fn next_ns(&self) -> Option<u64> {
        let task = self.agenda.next_ns();
        let (net, streams) = (self.place.net.poll_timeout(), self.streams.next_ns());
        let connections = self.connections.next_ns();
        let exchange = self.exchange.next_ns();
        emu::earliest([self.wakes.next_ns(), task, net, streams, connections, exchange])
    }

    /// Everything that is due now.
    fn step(&mut self) -> Result<(), Breach> {
        while let Some(delivery) = self.place.net.poll_delivery(self.now_ns) {
            self.arrive(delivery)?;
        }
        self.keep_streams()?;
        self.keep_connections()?;
        self.keep_exchange()?;
        while let Some(task) = self.agenda.pop_due(self.now_ns) {
            self.perform(task)?;
        }
        for host in self.wakes.take_busy() {
            if self.hosts[host].late_ns == 0 {
                self.take_in(host)?;
            }
        }
        for host in self.wakes.due(self.now_ns) {
            let rings = self.hosts[host].rings_ns().is_some_and(|at| at <= self.now_ns);
            if rings && self.hosts[host].busy.is_some() {
                self.turn_busy(host)?;
            } else if rings {
                self.wake(host, MemoryEngine::timeout)?;
            } else {
                self.rearm(host);
            }
        }
        Ok(())
    }

    /// A host wants to be woken at another time, perhaps.
    pub(in crate::world) fn rearm(&mut self, host: HostId) {
        self.wakes.set(host, self.hosts[host].rings_ns());
    }

    /// A host's timer rings: afterwards nothing may be due.
    pub(in crate::world) fn wake(
        &mut self,
        host: HostId,
        stage: impl FnOnce(&mut MemoryEngine),
    ) -> Result<(), Breach> {
        self.act(host, stage)?;
        match self.hosts[host].still_due() {
            Some(due) => Err(Breach::new(Law::Timeout, format!("{host}: {due}"))),
            None => Ok(()),
        }
    }

    /// An inner packet is handed to the node at its origin. Returns its number; `None` when the
    /// machine does not run.
    pub(in crate::world) fn send_now(
        &mut self,
        client: usize,
        way: Way,
        body: Body,
    ) -> Result<Option<u32>, Breach> {
        let gateway = self.gateways.serving(client).host;
        let host = if way == Way::Up { HostId::Client(client) } else { gateway };
        if self.hosts[host].power != Power::On {
            return Ok(None);
        }
        let inner = self.delivery.send(self.now_ns, gateway, client, way, body);
        self.act(host, |engine| {
            let (packet, head) = inner.parts();
            engine.device.push_cut(packet, head);
            engine.read_tun();
        })?;
        Ok(Some(inner.id))
    }

    /// Tells a node something.
    pub(in crate::world) fn command(
        &mut self,
        host: HostId,
        command: Command,
    ) -> Result<(), Breach> {
        if self.hosts[host].power != Power::On {
            return Ok(()); // it is told when it runs again
        }
        self.act(host, |engine| engine.command(command))
    }

    /// Runs stages of a host's engine and does all that follows.
    pub(in crate::world) fn act(
        &mut self,
        host: HostId,
        stages: impl FnOnce(&mut MemoryEngine),
    ) -> Result<(), Breach> {
        let turn = self.hosts[host].turn(self.now_ns, stages);
        self.rearm(host);
        let Turn { events, sealed, inner, sends, by_streams, not_open } = turn;
        for (seal, number, profile) in &sealed {
            self.nonces.sealed(seal, *number)?;
            check_floor(*profile, self.floor)?;
        }
        let mut closed = Vec::new();
        for event in events {
            if let Event::CloseSocket { socket } = event {
                closed.push(socket);
            }
            self.react(host, event)?;
        }
        let unknown = |(socket, _): &&(SocketId, _)| !self.streams.has(host, *socket);
        let by_no_stream = by_streams.iter().find(unknown).map(|(socket, _)| socket);
        if let Some(socket) = not_open.first().or(by_no_stream) {
            return Err(Breach::new(Law::Sockets, format!("{host} sends from {socket:?}")));
        }
        for packet in &inner {
            self.deliver(host, packet)?;
        }
        for outgoing in sends {
            self.transmit(host, outgoing)?;
        }
        for (socket, payload) in by_streams {
            self.send_by_stream(host, socket, payload)?;
        }
        for socket in closed {
            self.close_stream(host, socket)?;
        }
        self.inspect(host)
    }

    /// Every peer of a host, by host number, with its status.
    pub(in crate::world) fn statuses(&self, host: HostId) -> Vec<(HostId, PeerStatus)> {
        let node = self.hosts[host].node();
        let gateway = self.gateways.of(host);
        if !host.is_gateway() {
            let status = node.status(gateway.key);
            return status.into_iter().map(|status| (gateway.host, status)).collect();
        }
        let with = |&client: &usize| {
            Some((HostId::Client(client), node.status(self.clients[client].key)?))
        };
        gateway.clients.iter().filter_map(with).collect()
    }

    /// The laws that look at a node's status.
    fn inspect(&mut self, host: HostId) -> Result<(), Breach> {
        let node = self.hosts[host].node();
        check_indices(node.indices_issued(), node.peers().len())?;
        check_held(node.held_bytes(), self.hosts[host].hold_memory())?;
        let gateway = self.gateways.of(host);
        if !host.is_gateway() {
            return self.inspect_session(host, gateway.host, gateway.key);
        }
        if node.peers().len() > gateway.store.enrolled_count() {
            return self.knows_everybody(host);
        }
        for _ in 0..INSPECTED.min(gateway.clients.len()) {
            let Some(client) = self.gateways.of_mut(host).next_inspected() else { break };
            self.inspect_session(host, HostId::Client(client), self.clients[client].key)?;
        }
        Ok(())
    }

    /// The session of `host` with `peer`, whose key this is, if there is one.
    fn inspect_session(&self, host: HostId, peer: HostId, key: PeerKey) -> Result<(), Breach> {
        let Some(status) = self.hosts[host].node().status(key) else { return Ok(()) };
        if host.is_gateway() && !self.gateways.of(host).store.is_enrolled(key) {
            let what = format!("{peer} is known and not enrolled");
            return Err(Breach::new(Law::Enrolment, what));
        }
        let streams = if host.is_gateway() { 0 } else { self.streams.count(host) };
        check_status(&status, self.hosts[host].sockets() + streams)?;
        self.hijack.check(host, peer, &status)
    }

    /// Whoever is enrolled at a gateway is known to it.
    pub(in crate::world) fn knows_everybody(&self, gateway: HostId) -> Result<(), Breach> {
        let known = self.hosts[gateway].node().peers().len();
        let enrolled = self.gateways.of(gateway).store.enrolled_count();
        if known == enrolled {
            return Ok(());
        }
        let what = format!("{gateway}: {known} peers are known and {enrolled} enrolled");
        Err(Breach::new(Law::Enrolment, what))
    }

    /// What a shell does when its core tells it something.
    pub(in crate::world) fn react(&mut self, host: HostId, event: Event) -> Result<(), Breach> {
        self.trace.add(&[host.number(), hash(format!("{event:?}").as_bytes())]);
        self.watch.tell(self.now_ns, || format!("{host}: {event:?}"));
        // Anybody may ask to be let in, and a refusal is for the audit log: no state of a session.
        let asked = matches!(event, Event::PeerRefused { .. } | Event::EnrolmentRequested { .. });
        self.told += u64::from(!asked);
        match (event, host.client()) {
            (Event::EnrolmentRequested { peer, token }, _) => {
                self.put_on_desk(host, peer, token)?;
            }
            // The gateway tells what it accepted; its store in this world keeps sessions only.
            (Event::HandshakeCounter { .. }, None) => {}
            (Event::HandshakeCounter { counter, .. }, Some(client)) => {
                let client = &mut self.clients[client];
                client.store.reserve(counter);
                client.handshakes.begin(self.now_ns, counter)?;
            }
            (Event::Established { .. }, Some(client)) => {
                self.clients[client].store.token = None;
                self.clients[client].refused = None;
                self.note_where(client);
            }
            // By a stream nobody can be called back: it is gone with the process.
            (Event::Reached { peer, route, index }, _)
                if route.socket.transport() == Transport::Udp =>
            {
                self.gateways.of_mut(host).store.journal.insert(peer, (route, index));
            }
            (Event::Moved { .. }, Some(client)) => {
                self.moves += 1;
                self.clients[client].moved_ns.0 = Some(self.now_ns);
                self.note_where(client);
            }
            (Event::Moved { peer, .. }, None) => {
                self.moves += 1;
                if let Some(client) = self.clients.iter_mut().find(|c| c.key == peer) {
                    client.moved_ns.1 = Some(self.now_ns);
                }
            }
            (Event::State { state, .. }, Some(client)) => self.note_state(client, state),
            (Event::Announced { addresses, .. }, Some(client)) => {
                self.schedule(0, Task::Announced { client, addresses });
            }
            (Event::Refused { status, .. }, Some(it)) => self.clients[it].refused = Some(status),
            (Event::OpenSocket { socket, link, local, stream: Some(to) }, Some(client)) => {
                self.open_stream(client, socket, (link, local), to)?;
            }
            (Event::Owing { peer, tuple }, _) => {
                self.schedule(0, Task::Recorded { host, peer, tuple });
            }
            (Event::Settled { peer, tuple }, _) => self.owed.strike_out(host, peer, tuple),
            (Event::KeyIsShared { .. }, _) => {
                let what = format!("{host} says that two hosts use one key");
                return Err(Breach::new(Law::Alarm, what));
            }
            (
                Event::Established { .. }
                | Event::Reached { .. }
                | Event::Announced { .. }
                | Event::Refused { .. }
                | Event::OpenSocket { .. }
                | Event::CloseSocket { .. }
                | Event::PeerRefused { .. }
                | Event::WhoseFlow { .. }
                | Event::Leased { .. }
                | Event::Networks { .. }
                | Event::Routes { .. }
                | Event::State { .. }
                | Event::Ended { .. },
                _,
            ) => {}
        }
        Ok(())
    }

    /// Somebody asks a gateway to be enrolled; its desk takes its time.
    fn put_on_desk(&mut self, gateway: HostId, peer: PeerKey, token: Token) -> Result<(), Breach> {
        if self.gateways.of(gateway).store.is_enrolled(peer) {
            let what = format!("{peer:?} is enrolled and has to ask");
            return Err(Breach::new(Law::Enrolment, what));
        }
        let client = self.clients.iter().position(|client| client.key == peer);
        let after_ns = self.seed.below(200) * emu::MS;
        self.schedule(after_ns, Task::Decide { gateway, peer, client, token });
        Ok(())
    }

    /// An inner packet comes out of the tunnel.
    fn deliver(&mut self, host: HostId, packet: &[u8]) -> Result<(), Breach> {
        if self.takes_segment(host, packet) || self.takes_datagram(host, packet) {
            return Ok(());
        }
        if let Some(client) = host.client()
            && self.delivery.is_refusal(client, packet)?
        {
            return Ok(());
        }
        let (inner, _) = self.delivery.arrived(self.now_ns, host, packet)?;
        self.clients[inner.client].carried_ns = self.now_ns;
        self.trace.add(&[self.now_ns, u64::from(inner.id)]);
        if let Some(arrivals) = &mut self.arrivals {
            arrivals.push(Arrival { at_ns: self.now_ns, id: inner.id });
        }
        Ok(())
    }

    /// A new process of `host` begins: what its predecessor took is nothing to it.
    pub(in crate::world) fn begin_process(&mut self, host: HostId, reboot: bool) {
        self.starts += 1;
        if let Some(client) = host.client().filter(|_| reboot) {
            self.connections.begins_anew(client);
        }
        let mut seed = self.seed.fork(self.starts);
        self.taken[host].clear();
        self.streams.forget(host);
        self.amplification.restarted(host);
        self.hijack.restarted(host);
        for (reason, count) in self.hosts[host].node().drops().iter() {
            *self.dropped.entry(reason.label()).or_default() += count;
        }
        self.hosts[host].start(self.now_ns, seed.next_u64(), reboot);
    }

    /// What all nodes threw away so far, by reason.
    pub(in crate::world) fn drops(&self) -> BTreeMap<&'static str, u64> {
        let mut drops = self.dropped.clone();
        for (reason, count) in self.hosts.values().flat_map(|host| host.node().drops().iter()) {
            *drops.entry(reason.label()).or_default() += count;
        }
        drops
    }

    /// A client may be reached at, or was told of, `remotes`.
    pub(in crate::world) fn trust(&mut self, client: usize, remotes: &[SocketAddr]) {
        let (host, gateway) = (HostId::Client(client), self.gateways.serving(client).host);
        for &remote in remotes {
            self.amplification.chosen(host, remote);
            self.hijack.honest(host, gateway, remote);
        }
    }
}

/// The machine of a host.
fn machine(id: HostId, crowd: &Crowd, secret: StaticSecret) -> Host {
    let cards = match id {
        HostId::Gateway(_) | HostId::Proxy => 1,
        HostId::Client(CLIENT) => usize::from(CARDS) + crowd.beside,
        HostId::Client(_) => CARDS.into(),
    };
    let host = Host::new(id, secret, cards, crowd.holding);
    match id {
        HostId::Client(_) => host.bonding(crowd.mode, crowd.scheduler, crowd.spread),
        HostId::Gateway(_) | HostId::Proxy => host,
    }
}

#[cfg(test)]
#[path = "broken_tests.rs"]
mod broken_tests;
