//! Streams of the world: what a host's shell does with them (as `crates/host/src/data/sockets.rs`
//! does), and TCP under it ([`super::tcp`]).
//!
//! A stream is a socket to its node. It carries frames (docs/spec/wire.md#8-streams) in segments
//! that pass the same links, NAT boxes, filters and attacker as datagrams do. A client begins one
//! when its node asks; the gateway takes all that come to its two ports, numbers them, and lets go
//! of those that its node never answers.
//!
//! TLS is its round trip and its first bytes, which is what middleboxes see; a record costs
//! nothing. Limits: a process that ends says nothing (its host answers segments as soon as it runs
//! again); nobody but hosts begins a stream; the attacker injects datagrams only, but it cuts
//! streams ([`World::cut_streams`]).

mod end;
mod proxy;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use rove_proto::id::{LinkId, SocketId};
use rove_proto::node::{Command, Meta, StreamTo};
use rove_proto::time::Duration;

use super::agenda::Task;
use super::attacker::Fate;
use super::engine::{GATEWAY, World};
use super::hash::hash;
use super::host::{PORT, Power};
use super::laws::Breach;
use super::op;
use super::parcel::{HostId, Origin, Parcel};
use super::tcp::{Header, Kind, TCP_HEADER, Tcp};
use crate::emu::{self, Datagram};
pub(super) use proxy::{LISTENS, PROXY};

use end::{Ends, KEEPALIVE_NS, Step, Stream, Way};

/// The port that networks leave open when they leave nothing else open.
pub(super) const HTTPS: u16 = 443;
/// The ways to make a stream, as nodes number them.
const WAYS: [Way; 3] = [Way::Tls, Way::Plain, Way::ByProxy];
/// Addresses of the gateway's that streams are tried to, each by both ways: the daemon's.
const REMOTES_MAX: usize = 2;
/// The first port of the proxy's own connections.
const PROXY_PORT: u16 = 10_000;
/// The longest packet where no access network is narrower.
const MTU: usize = 1_500;

/// A stream's number in the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct StreamId(u64);

/// Of which streams clients know when their process begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Known {
    /// Of none: they do without.
    #[default]
    None,
    /// Of those to the gateway.
    Direct,
    /// Of those by the proxy as well.
    Proxy,
}

/// All streams of all hosts, each end by itself.
#[derive(Debug, Default)]
pub(super) struct Streams {
    /// What clients know of.
    known: Known,
    all: BTreeMap<StreamId, Stream>,
    by_ends: BTreeMap<Ends, StreamId>,
    by_socket: BTreeMap<(HostId, SocketId), StreamId>,
    due: BTreeSet<(u64, StreamId)>,
    /// Those that failed, and whether their node was told.
    failed: BTreeMap<(HostId, SocketId), bool>,
    began: u64,
    accepted: u32,
    proxied: u16,
}

impl Streams {
    /// None yet.
    pub(super) fn new(known: Known) -> Self {
        Self { known, ..Self::default() }
    }

    /// From now on clients that begin know of these.
    pub(super) const fn set_known(&mut self, known: Known) {
        self.known = known;
    }

    /// A port of the proxy's.
    const fn next_port(&mut self) -> u16 {
        self.proxied = (self.proxied + 1) % (u16::MAX - PROXY_PORT);
        PROXY_PORT + self.proxied
    }

    /// Whether `socket` is a stream of `host`, as far as its node can know.
    pub(super) fn has(&self, host: HostId, socket: SocketId) -> bool {
        let untold = self.failed.get(&(host, socket)) == Some(&false);
        untold || self.by_socket.contains_key(&(host, socket))
    }

    /// How many streams a host's node has.
    pub(super) fn count(&self, host: HostId) -> usize {
        self.by_socket.range((host, SocketId(0))..(host + 1, SocketId(0))).count()
    }

    /// How many came to the gateway so far.
    pub(super) const fn accepted(&self) -> u32 {
        self.accepted
    }

    /// When any of them has something to do.
    pub(super) fn next_ns(&self) -> Option<u64> {
        self.due.first().map(|due| due.0)
    }

    /// A host's process is gone, and all its streams.
    pub(super) fn forget(&mut self, host: HostId) {
        let of_host = |one: &&StreamId| self.all.get(one).is_some_and(|one| one.ends.0 == host);
        let gone: Vec<_> = self.all.keys().filter(of_host).copied().collect();
        gone.into_iter().for_each(|id| self.remove(id));
        self.failed.retain(|failed, _| failed.0 != host);
    }

    fn insert(&mut self, stream: Stream) -> StreamId {
        self.began += 1;
        let id = StreamId(self.began);
        self.by_ends.insert(stream.ends, id);
        self.by_socket.extend(stream.socket.map(|socket| ((stream.ends.0, socket), id)));
        self.all.insert(id, stream);
        id
    }

    fn remove(&mut self, id: StreamId) {
        let Some(stream) = self.all.remove(&id) else { return };
        self.by_ends.remove(&stream.ends);
        if let Some(due_ns) = stream.due_ns {
            self.due.remove(&(due_ns, id));
        }
        if let Some(socket) = stream.socket {
            self.by_socket.remove(&(stream.ends.0, socket));
        }
    }

    fn rearm(&mut self, id: StreamId, due_ns: Option<u64>) {
        let Some(stream) = self.all.get_mut(&id) else { return };
        if let Some(before_ns) = std::mem::replace(&mut stream.due_ns, due_ns) {
            self.due.remove(&(before_ns, id));
        }
        self.due.extend(due_ns.map(|due_ns| (due_ns, id)));
    }

    /// The streams of a client, at both ends.
    fn of_client(&self, client: HostId) -> Vec<StreamId> {
        let of_client = |one: &(&StreamId, &Stream)| one.1.client == client;
        self.all.iter().filter(of_client).map(|(id, _)| *id).collect()
    }
}

impl World {
    /// Tells a client's node by which streams the gateway may be reached, as the daemon does.
    pub(super) fn tell_streams(&mut self, client: usize) -> Result<(), Breach> {
        let mut streams = match self.streams.known {
            Known::None => return Ok(()),
            Known::Direct => Vec::new(),
            Known::Proxy => vec![StreamTo { remote: LISTENS, method: 2 }],
        };
        for remote in self.clients[client].directory.entrances().into_iter().take(REMOTES_MAX) {
            let https = SocketAddr::new(remote.ip(), HTTPS);
            for (remote, method) in [(https, 0), (remote, 1)] {
                streams.push(StreamTo { remote, method });
            }
        }
        let ends: Vec<_> = streams.iter().map(|stream| stream.remote).collect();
        self.trust(client, &ends);
        self.command(
            client + 1,
            Command::SetStreams { peer: self.gateway_key, streams, alone: false },
        )
    }

    /// From now on clients know of these streams as well.
    pub(super) fn learn_of_streams(&mut self, known: Known) -> Result<(), Breach> {
        if known <= self.streams.known {
            return Ok(());
        }
        self.streams.known = known;
        (0..self.clients.len()).try_for_each(|client| self.tell_streams(client))
    }

    /// What a client's socket is, if it is a stream: whether TLS is in it.
    pub(super) fn has_tls(&self, host: HostId, socket: SocketId) -> Option<bool> {
        let id = self.streams.by_socket.get(&(host, socket))?;
        self.streams.all.get(id).map(|stream| stream.tls)
    }

    /// A client's node wants a stream.
    pub(super) fn open_stream(
        &mut self,
        host: HostId,
        socket: SocketId,
        (link, local): (LinkId, IpAddr),
        to: StreamTo,
    ) -> Result<(), Breach> {
        let card = (link.0 as usize).saturating_sub(1);
        let local = SocketAddr::new(local, self.hosts[host].next_port());
        if self.hosts[host].source(card, local, None, to.remote).is_none() {
            self.streams.failed.insert((host, socket), false);
            self.schedule(0, Task::SocketFailed { host, socket });
            return Ok(());
        }
        let way = WAYS[usize::from(to.method) % WAYS.len()];
        let step = Step::Connecting(way);
        let ends = (host, local, to.remote);
        let mut stream = Stream::new(ends, host, Tcp::connect(self.now_ns), step, self.now_ns);
        (stream.card, stream.socket, stream.tls) = (card, Some(socket), way != Way::Plain);
        let id = self.streams.insert(stream);
        self.pump(id)
    }

    /// A node sends a datagram by one of its streams.
    pub(super) fn send_by_stream(
        &mut self,
        host: HostId,
        socket: SocketId,
        payload: Vec<u8>,
    ) -> Result<(), Breach> {
        let Some(&id) = self.streams.by_socket.get(&(host, socket)) else { return Ok(()) };
        let Some(stream) = self.streams.all.get_mut(&id) else { return Ok(()) };
        let (_, from, to) = stream.ends;
        stream.send(&payload);
        // A bystander sees it only if it can leave at all.
        let source = self.hosts[host].source(stream.card, from, None, to);
        let datagram = Datagram { source: from, destination: to, payload };
        self.leaves(host, source.map(|(_, access, _)| access), &datagram)?;
        self.attacker.record(host, &datagram);
        self.pump(id)
    }

    /// A node is told that a stream is of no use any more; one that sleeps, when it wakes up.
    pub(super) fn tell_failed(&mut self, host: HostId, socket: SocketId) -> Result<(), Breach> {
        match self.streams.failed.get_mut(&(host, socket)) {
            Some(told) if !*told && self.hosts[host].power == Power::On => {
                *told = true;
                self.command(host, Command::SocketFailed(socket))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// A node is done with a stream: what it sent still leaves.
    pub(super) fn close_stream(&mut self, host: HostId, socket: SocketId) -> Result<(), Breach> {
        let Some(id) = self.streams.by_socket.remove(&(host, socket)) else { return Ok(()) };
        if let Some(stream) = self.streams.all.get_mut(&id) {
            stream.closed = true;
        }
        self.pump(id)
    }

    /// Every stream of a client is cut in the midst of what it carries: a middlebox forgot it, or
    /// somebody forged a reset.
    pub(super) fn cut_streams(&mut self, client: usize) -> Result<(), Breach> {
        self.streams.of_client(client + 1).into_iter().try_for_each(|id| self.break_off(id))
    }

    fn break_off(&mut self, id: StreamId) -> Result<(), Breach> {
        if let Some(stream) = self.streams.all.get_mut(&id) {
            stream.step = Step::Broken;
        }
        self.pump(id)
    }

    /// A segment reaches a host.
    pub(super) fn segment_arrives(
        &mut self,
        host: HostId,
        link: emu::LinkId,
        parcel: Parcel,
    ) -> Result<(), Breach> {
        let Parcel { datagram, origin, to, segment, .. } = parcel;
        let Datagram { source, destination, payload } = datagram;
        let card = match host {
            PROXY => Some(0),
            host => self.hosts[host].card_with(link, destination.ip()),
        };
        let (Some(card), Some(header)) = (card, segment.filter(|header| !header.damaged)) else {
            return Ok(());
        };
        let ends = (host, destination, source);
        let known = self.streams.by_ends.get(&ends).copied();
        let id = match (known, header.kind) {
            (Some(id), Kind::Reset) => return self.break_off(id),
            (None, Kind::Reset) => return Ok(()),
            (Some(id), Kind::Open | Kind::Grant | Kind::Data | Kind::Ask) => id,
            (None, Kind::Open) if takes_streams(host, destination) => {
                let Origin::Host(client) = origin else { return Ok(()) };
                let tcp = Tcp::accept();
                let step = if host == PROXY { Step::Asked } else { Step::Judging };
                let mut stream = Stream::new(ends, client, tcp, step, self.now_ns);
                stream.card = card;
                self.streams.insert(stream)
            }
            (None, Kind::Open | Kind::Grant | Kind::Data | Kind::Ask) => {
                let datagram =
                    Datagram { source: destination, destination: source, payload: Vec::new() };
                let by = (host, card, GATEWAY); // nobody's word
                return self.send_segment(by, datagram, Header::of(Kind::Reset));
            }
        };
        let now_ns = self.now_ns;
        let Some(stream) = self.streams.all.get_mut(&id) else { return Ok(()) };
        (stream.heard_ns, stream.asks_ns) = (now_ns, now_ns + KEEPALIVE_NS);
        stream.tcp.arrives(now_ns, &header, payload);
        if stream.is_accepted() && stream.tcp.is_open() && stream.socket.is_none() {
            self.admit(id);
        }
        match host {
            PROXY => self.relay(id)?,
            _ => self.take_datagrams(id, origin, to)?,
        }
        self.pump(id)
    }

    /// A stream that came to the gateway is one of its sockets now. Who is at the other end has
    /// answered: there is somebody.
    fn admit(&mut self, id: StreamId) {
        let Some(stream) = self.streams.all.get_mut(&id) else { return };
        let number = SocketId(SocketId::STREAMS | self.streams.accepted);
        self.streams.accepted = (self.streams.accepted + 1) % SocketId::STREAMS;
        stream.socket = Some(number);
        self.amplification.reached(self.now_ns, GATEWAY, stream.ends.2);
        self.streams.by_socket.insert((GATEWAY, number), id);
    }

    /// Hands over what has come by a stream.
    fn take_datagrams(
        &mut self,
        id: StreamId,
        origin: Origin,
        to: SocketAddr,
    ) -> Result<(), Breach> {
        let Some(stream) = self.streams.all.get_mut(&id) else { return Ok(()) };
        let (host, local, remote) = stream.ends;
        let (card, Some(socket)) = (stream.card, stream.socket) else { return Ok(()) };
        let datagrams = stream.proceed();
        let access = self.hosts[host].cards.get(card).and_then(Option::as_ref);
        let access = access.filter(|_| host != GATEWAY).map(|card| card.access);
        for payload in datagrams {
            let meta = Meta { socket, local: Some(local.ip()), remote, waited: Duration::ZERO };
            let datagram = Datagram { source: remote, destination: local, payload };
            self.reaches(host, access, (meta, to), origin, datagram)?;
        }
        Ok(())
    }

    /// What is due of streams.
    pub(super) fn keep_streams(&mut self) -> Result<(), Breach> {
        while let Some(&(due_ns, id)) = self.streams.due.first()
            && due_ns <= self.now_ns
        {
            self.streams.rearm(id, None);
            self.pump(id)?;
        }
        Ok(())
    }

    /// A host that slept goes on.
    pub(super) fn wake_streams(&mut self, host: HostId) {
        let untold = |failed: &(&(HostId, SocketId), &bool)| failed.0.0 == host && !failed.1;
        let failed = self.streams.failed.iter().filter(untold).map(|(failed, _)| *failed);
        for (_, socket) in failed.collect::<Vec<_>>() {
            self.schedule(0, Task::SocketFailed { host, socket });
        }
        let ids: Vec<_> = self.streams.all.keys().copied().collect();
        for id in ids {
            if self.streams.all.get(&id).is_some_and(|one| one.ends.0 == host) {
                self.streams.rearm(id, Some(self.now_ns));
            }
        }
    }

    /// Lets a stream send what it may, and end if it is over.
    fn pump(&mut self, id: StreamId) -> Result<(), Breach> {
        let now_ns = self.now_ns;
        let Some(stream) = self.streams.all.get(&id) else { return Ok(()) };
        let (host, local, remote) = stream.ends;
        if !self.is_up(host) {
            return Ok(());
        }
        let by = (host, stream.card, stream.client);
        if stream.is_over(now_ns) {
            let (other, socket) = (stream.other, stream.socket.filter(|_| !stream.closed));
            self.streams.remove(id);
            if let Some(socket) = socket {
                self.streams.failed.insert((host, socket), false);
                self.schedule(0, Task::SocketFailed { host, socket });
            }
            let datagram = Datagram { source: local, destination: remote, payload: Vec::new() };
            self.send_segment(by, datagram, Header::of(Kind::Reset))?;
            return other.map_or(Ok(()), |other| self.break_off(other));
        }
        let mss = self.mss(id);
        let Some(stream) = self.streams.all.get_mut(&id) else { return Ok(()) };
        let leaving = stream.leaving(now_ns, mss);
        let due_ns = stream.next_ns(now_ns);
        self.streams.rearm(id, due_ns);
        for (header, payload) in leaving {
            let datagram = Datagram { source: local, destination: remote, payload };
            self.send_segment(by, datagram, header)?;
        }
        Ok(())
    }

    /// The most bytes that a segment has: as many as the client's network carries.
    fn mss(&self, id: StreamId) -> usize {
        let Some(Stream { ends: (host, _, remote), client, card, .. }) = self.streams.all.get(&id)
        else {
            return MTU;
        };
        let at = |access: &usize| self.place.is_of(client - 1, *access, remote.ip());
        let access = if matches!(*host, GATEWAY | PROXY) {
            (0..self.place.networks(client - 1)).find(at)
        } else {
            let card = self.hosts[*host].cards.get(*card).and_then(Option::as_ref);
            card.map(|card| card.access)
        };
        let mtu = access.map_or(MTU, |access| self.place.access(client - 1, access).mtu);
        mtu - TCP_HEADER - if remote.is_ipv4() { 20 } else { 40 }
    }

    /// A segment leaves a host, unless its address is gone, and meets the attacker.
    fn send_segment(
        &mut self,
        (host, card, client): (HostId, usize, HostId),
        datagram: Datagram,
        header: Header,
    ) -> Result<(), Breach> {
        let (from, to) = (datagram.source, datagram.destination);
        let Some((node, link)) = self.way_out((host, card), from, to) else { return Ok(()) };
        let kind = header.kind;
        self.trace.add(&[self.now_ns, host as u64, hash(&datagram.payload)]);
        let origin = self.speaker(host, client, to);
        let parcel = Parcel { datagram, origin, to, segment: Some(header), is_open: false };
        let len = emu::Frame::wire_len(&parcel);
        self.watch
            .tell(self.now_ns, || format!("{host}: {from} -> {to}, {kind:?}, {len} B of TCP"));
        if host == PROXY {
            self.place.net.push(self.now_ns, node, link, parcel);
            return Ok(());
        }
        // What kernels ask and say of connections that are gone is no session's.
        if !matches!(kind, Kind::Ask | Kind::Reset) {
            self.bytes[host] += len as u64;
            self.packets += 1;
        }
        let (client, way) = if host == GATEWAY {
            (self.client_at(to), op::Way::Down)
        } else {
            self.overhear(op::Way::Up, true, &[]);
            (Some(host), op::Way::Up)
        };
        match self.attacker.meets(client, way) {
            Fate::Held { by_ns } => self.schedule(by_ns, Task::Release { host, link, parcel }),
            Fate::Passes => self.place.net.push(self.now_ns, node, link, parcel),
            Fate::Vanishes | Fate::Redirected { .. } => {}
        }
        Ok(())
    }
}

fn takes_streams(host: HostId, at: SocketAddr) -> bool {
    let door = host == GATEWAY && matches!(at.port(), PORT | HTTPS);
    door || (host == PROXY && at == LISTENS)
}

#[cfg(test)]
#[path = "streams_tests.rs"]
mod tests;
