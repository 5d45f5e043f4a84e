//! The wires: datagrams leave a node, pass the attacker, and reach a machine. Each on its way meets
//! the laws that look at datagrams.

use std::net::SocketAddr;

use rove_engine::memory::MemoryEngine;
use rove_proto::id::{SocketId, Transport};
use rove_proto::node::{Meta, PeerStatus};
use rove_proto::time::Duration;
use rove_proto::wire::Kind;
use rove_proto::wire::handshake::MAC_LEN;

use super::World;
use crate::emu::{self, Datagram};
use crate::world::agenda::Task;
use crate::world::attacker::Fate;
use crate::world::connections::in_parts;
use crate::world::hash::hash;
use crate::world::host::{Host, Outgoing, Power, Received};
use crate::world::host_id::HostId;
use crate::world::laws::{Breach, Law};
use crate::world::op::Way;
use crate::world::parcel::{Input, Origin, Parcel};
use crate::world::traffic::Passed;

/// Inputs of one turn.
const TURN_MAX: usize = 16;

/// A datagram that may have to leave everything as it is.
struct Suspect {
    mark: u64,
    new: bool,
    kind: Option<Kind>,
    remote: SocketAddr,
}

/// What a datagram that is not authentic, or not new, must leave as it is.
#[derive(Debug, PartialEq)]
struct View {
    statuses: Vec<(HostId, PeerStatus)>,
    peers: usize,
    indices: usize,
    told: u64,
    delivered: u32,
}

impl World {
    /// A node sends a datagram over UDP.
    pub(in crate::world) fn transmit(
        &mut self,
        host: HostId,
        outgoing: Outgoing,
    ) -> Result<(), Breach> {
        let Outgoing { link, access, from, to, payload, segment } = outgoing;
        let datagram = Datagram { source: from, destination: to, payload };
        let client = self.leaves(host, Some(access), &datagram)?;
        let way = if host.is_gateway() { Way::Down } else { Way::Up };
        let parcel =
            Parcel { datagram, origin: Origin::Host(host), to, segment: None, is_open: false };
        let len = emu::Frame::wire_len(&parcel);
        self.bytes[host] += len as u64;
        self.packets += 1;
        if let Some(standby) = &mut self.by_standby {
            standby.count(&self.place, client, (host, access), to.ip(), len as u64);
        }
        self.overhear(way, true, &parcel.datagram.payload);
        let mtu = host.client().map(|client| self.place.access(client, access).mtu);
        if mtu.is_some_and(|mtu| len > mtu) || self.offload.loses(host, segment) {
            return Ok(());
        }
        self.watch.tell(self.now_ns, || {
            let Datagram { source, payload, .. } = &parcel.datagram;
            format!("{host}: {source} -> {to}, {:?}, {} B", Kind::of(payload), payload.len())
        });
        match self.attacker.sees(self.now_ns, client, way, &parcel.datagram) {
            Fate::Vanishes => {}
            Fate::Passes => self.place.net.push(self.now_ns, self.place.hosts[host], link, parcel),
            Fate::Held { by_ns } => self.schedule(by_ns, Task::Release { host, link, parcel }),
            Fate::Redirected { copy, original_after_ns } => {
                self.inject(copy);
                if let Some(after_ns) = original_after_ns {
                    self.schedule(after_ns, Task::Release { host, link, parcel });
                }
            }
        }
        Ok(())
    }

    /// A datagram leaves a node, by whatever transport; `access` is the client's network that sees
    /// it, if one does. Returns the client that it comes from or goes to.
    pub(in crate::world) fn leaves(
        &mut self,
        host: HostId,
        access: Option<usize>,
        datagram: &Datagram,
    ) -> Result<Option<HostId>, Breach> {
        let Datagram { source, destination: to, payload } = datagram;
        let mark = mark(payload);
        self.trace.add(&[self.now_ns, host.number(), mark]);
        self.datagrams += 1;
        let sealed = Kind::of(payload) == Some(Kind::Data);
        self.amplification.sent(host, *to, payload.len(), sealed)?;
        let new = self.genuine.insert(mark, (host, self.now_ns)).is_none();
        if !new && sealed {
            return Err(Breach::new(Law::Nonces, format!("{host} sent a datagram twice")));
        }
        if !new && Kind::of(payload) == Some(Kind::KeepaliveAnswer) {
            // Its proof has 4 bytes: in days of keepalives two are alike by chance.
            for taken in self.taken.values_mut() {
                taken.remove(&mark);
            }
        }
        self.hijack.sent(host, *source);
        let client = if host.is_gateway() { self.client_at(host, *to) } else { Some(host) };
        if client.is_none() && sealed {
            self.delivery.sent_to_nobody(*to)?;
        }
        if let Some(access) = access.filter(|_| !host.is_gateway()) {
            self.unlinkable.seen(host, access, source.ip(), payload)?;
        }
        Ok(client)
    }

    /// The attacker sends.
    pub(in crate::world) fn inject(&mut self, datagram: Datagram) {
        let (host, link) = self.place.attacker;
        let to = datagram.destination;
        let parcel =
            Parcel { datagram, origin: Origin::Attacker, to, segment: None, is_open: false };
        self.place.net.push(self.now_ns, host, link, parcel);
    }

    /// The client that a gateway reaches at `remote`, as far as it thinks.
    pub(in crate::world) fn client_at(
        &mut self,
        gateway: HostId,
        remote: SocketAddr,
    ) -> Option<HostId> {
        let there = |client: usize| {
            let status = self.hosts[gateway].node().status(self.clients[client].key);
            status.is_some_and(|status| status.paths.iter().any(|p| p.remote() == remote))
        };
        self.gateways.of_mut(gateway).client_at(remote, there).map(HostId::Client)
    }

    /// A packet reaches a machine.
    pub(in crate::world) fn arrive(
        &mut self,
        delivery: emu::Delivery<Parcel>,
    ) -> Result<(), Breach> {
        let emu::Delivery { host: place, link, frame: parcel, .. } = delivery;
        if parcel.is_open {
            self.takes_open(place, parcel.datagram.payload);
            return Ok(());
        }
        if place == self.place.attacker.0 {
            if parcel.segment.is_none() {
                self.attacker.catches(parcel.datagram);
            }
            return Ok(());
        }
        if place == self.place.proxy.0 {
            let is_segment = parcel.segment.is_some();
            return if is_segment {
                self.segment_arrives(HostId::Proxy, link, parcel)
            } else {
                Ok(())
            };
        }
        let Some(host) = self.place.host_at(place) else { return Ok(()) };
        let access = self.hosts[host].access_by(link).filter(|_| !host.is_gateway());
        if let Some(client) = host.client() {
            let mtu = access.map(|access| self.place.access(client, access).mtu);
            if mtu.is_none_or(|mtu| emu::Frame::wire_len(&parcel) > mtu) {
                return Ok(());
            }
        }
        if parcel.segment.is_some() {
            self.overhear_at(host, &[]);
            return self.segment_arrives(host, link, parcel);
        }
        let Parcel { datagram, origin, to, .. } = parcel;
        let Some(received) = self.hosts[host].receive(link, datagram.destination) else {
            return Ok(());
        };
        self.overhear_at(host, &datagram.payload);
        let Received { socket, local } = received;
        let meta =
            Meta { socket, local: Some(local), remote: datagram.source, waited: Duration::ZERO };
        self.reaches(host, access, (meta, to), origin, datagram)
    }

    /// A datagram reaches a node's shell, by whatever transport and through the client's network
    /// `access`; `to` is where it was sent to.
    pub(in crate::world) fn reaches(
        &mut self,
        host: HostId,
        access: Option<usize>,
        (meta, to): (Meta, SocketAddr),
        origin: Origin,
        datagram: Datagram,
    ) -> Result<(), Breach> {
        // What an attacker repeats, he has seen already.
        if let Some(access) = access
            && matches!(origin, Origin::Host(_))
            && Kind::of(&datagram.payload) == Some(Kind::Data)
        {
            self.unlinkable.seen(host, access, datagram.destination.ip(), &datagram.payload)?;
        }
        // Seen from the Internet side, a NAT box has given it another source.
        let datagram = Datagram { destination: to, ..datagram };
        self.witness(host, &datagram, origin);
        let (at_ns, payload) = (self.now_ns, datagram.payload);
        self.put(host, Input::Datagram { meta, to, at_ns, payload });
        Ok(())
    }

    /// Something waits for a host's shell: for the end of this instant, or for its turn.
    pub(in crate::world) fn put(&mut self, host: HostId, input: Input) {
        let Host { inbox, late_ns, turn_ns, .. } = &mut self.hosts[host];
        let (first, after_ns) = (inbox.is_empty(), *late_ns);
        inbox.push(input);
        self.wakes.put(host);
        if first && after_ns > 0 {
            *turn_ns = Some(self.now_ns + after_ns);
            self.schedule(after_ns, Task::Turn { host });
        }
    }

    /// An inner packet of a connection or a flow reaches a host's tunnel device. On a busy machine
    /// it waits there for the shell.
    pub(in crate::world) fn put_inner(
        &mut self,
        host: HostId,
        packet: Vec<u8>,
    ) -> Result<(), Breach> {
        if self.hosts[host].busy.is_some() {
            self.put(host, Input::Bytes(packet));
            return Ok(());
        }
        self.act(host, |engine| {
            let (packet, head) = in_parts(packet);
            engine.device.push_cut(packet, head);
            engine.read_tun();
        })
    }

    /// Runs a turn of a busy host's shell, which reads all arrived packets and handles all due
    /// timers.
    pub(in crate::world) fn turn_busy(&mut self, host: HostId) -> Result<(), Breach> {
        self.hosts[host].turn_ns = None;
        self.take_in(host)?;
        if self.hosts[host].wake_ns().is_some_and(|due_ns| due_ns <= self.now_ns) {
            self.wake(host, MemoryEngine::timeout)?;
        }
        self.hosts[host].draw_late();
        self.rearm(host);
        Ok(())
    }

    /// A host's shell hands its node what has arrived: as much in one turn as the laws can tell
    /// apart, as the real shell does.
    pub(in crate::world) fn take_in(&mut self, host: HostId) -> Result<(), Breach> {
        let inbox = std::mem::take(&mut self.hosts[host].inbox);
        if self.hosts[host].power != Power::On {
            return Ok(()); // the kernel has dropped it
        }
        let mut turn = Vec::new();
        for input in inbox {
            let suspect = match &input {
                Input::Packet(_) | Input::Bytes(_) => None,
                Input::Datagram { meta, to, payload, .. } => self.suspect(host, meta, *to, payload),
            };
            if suspect.is_some() || turn.len() >= TURN_MAX {
                self.take(host, &mut turn)?;
            }
            turn.push(input);
            if let Some(suspect) = suspect {
                self.take_suspect(host, suspect, &mut turn)?;
            }
        }
        self.take(host, &mut turn)
    }

    /// One turn of a host's shell.
    fn take(&mut self, host: HostId, inputs: &mut Vec<Input>) -> Result<(), Breach> {
        // A socket that was closed meanwhile has taken its queue along.
        inputs.retain(|input| match input {
            Input::Packet(_) | Input::Bytes(_) => true,
            Input::Datagram { meta, .. } => self.is_open(host, meta.socket),
        });
        if inputs.is_empty() {
            return Ok(());
        }
        let now_ns = self.now_ns;
        self.act(host, |engine| {
            // Packets and datagrams keep their order of arrival.
            for input in inputs.drain(..) {
                let (packet, head) = match input {
                    Input::Packet(inner) => inner.parts(),
                    Input::Bytes(packet) => in_parts(packet),
                    Input::Datagram { meta, at_ns, payload, .. } => {
                        engine.read_tun();
                        let waited = Duration::from_nanos(now_ns - at_ns);
                        engine.sockets.push(Meta { waited, ..meta }, payload);
                        continue;
                    }
                };
                engine.receive();
                engine.device.push_cut(packet, head);
            }
            engine.receive();
            engine.read_tun();
        })
    }

    /// What the laws learn from a datagram that a host takes; tells if it may change nothing.
    fn suspect(
        &mut self,
        host: HostId,
        meta: &Meta,
        to: SocketAddr,
        payload: &[u8],
    ) -> Option<Suspect> {
        let mark = mark(payload);
        // Whoever brings it: it is a word of the host's, from where the host may be.
        let (sender, sent_ns) = self.genuine.get(&mark).copied().unzip();
        let is_strange = sender.is_some_and(|sender| !self.gateways.share(host, sender));
        if let Some(sender) = sender.filter(|_| !is_strange) {
            self.amplification.reached(self.now_ns, sender, to);
        }
        let new = sent_ns.is_some() && !is_strange && !self.taken[host].contains(&mark);
        let authentic = sent_ns.filter(|_| new);
        self.amplification.received(host, meta.remote, payload.len(), authentic);
        // A second half that came before its first is as new the next time. And a gateway that
        // lost a session says so in the same words for as long as it is spoken to.
        let early = new && Kind::of(payload) == Some(Kind::HandshakeB);
        let is_honest = sent_ns.is_some() && !is_strange;
        if is_honest && Kind::of(payload) == Some(Kind::RestartNotice) {
            return None;
        }
        if new && !early {
            self.taken[host].insert(mark);
            return None;
        }
        let (kind, remote) = (Kind::of(payload), meta.remote);
        Some(Suspect { mark, new, kind, remote })
    }

    /// A turn with one datagram alone that is not authentic or not new, or may be too early.
    fn take_suspect(
        &mut self,
        host: HostId,
        suspect: Suspect,
        turn: &mut Vec<Input>,
    ) -> Result<(), Breach> {
        let Suspect { mark, new, kind, remote } = suspect;
        let before = self.view(host);
        self.take(host, turn)?;
        if before == self.view(host) {
            return Ok(());
        }
        if new {
            self.taken[host].insert(mark);
            return Ok(());
        }
        let after = self.view(host);
        let what = format!("{host} by {kind:?} from {remote}: {before:?} -> {after:?}");
        Err(Breach::new(Law::Unauthenticated, what))
    }

    /// Whether a host's node has this socket.
    fn is_open(&self, host: HostId, socket: SocketId) -> bool {
        match socket.transport() {
            Transport::Udp => self.hosts[host].is_open(socket),
            Transport::Stream => self.streams.has(host, socket),
        }
    }

    /// Everything that can be seen of a host's node.
    fn view(&self, host: HostId) -> View {
        let node = self.hosts[host].node();
        View {
            statuses: self.statuses(host),
            peers: node.peers().count(),
            indices: node.indices_issued(),
            told: self.told,
            delivered: self.delivery.totals().1,
        }
    }

    fn overhear_at(&mut self, host: HostId, payload: &[u8]) {
        if !host.is_gateway() {
            self.overhear(Way::Down, false, payload);
        }
    }

    pub(in crate::world) fn overhear(&mut self, way: Way, leaves: bool, payload: &[u8]) {
        if let Some(overheard) = &mut self.overheard {
            let (at_ns, kind, len) = (self.now_ns, Kind::of(payload), payload.len());
            overheard.push(Passed { at_ns, leaves, way, kind, len });
        }
    }

    /// What the laws and the attacker learn from an arrival.
    fn witness(&mut self, at: HostId, datagram: &Datagram, origin: Origin) {
        let Origin::Host(host) = origin else { return };
        self.hijack.honest(at, host, datagram.source);
        if at.is_gateway() {
            self.attacker.record(datagram);
        }
    }
}

/// What a datagram is known by: its bytes, but for the cookie field of a handshake message, which
/// is nobody's word until the load demands it (docs/spec/handshake.md#4-macs-and-cookies).
fn mark(payload: &[u8]) -> u64 {
    match Kind::of(payload) {
        Some(Kind::HandshakeA | Kind::HandshakeB) => {
            hash(&payload[..payload.len().saturating_sub(MAC_LEN)])
        }
        _ => hash(payload),
    }
}
