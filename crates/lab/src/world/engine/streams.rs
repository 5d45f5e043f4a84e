//! What shells do with streams (as `crates/host/src/data/sockets.rs` does): they open, accept, use
//! and end them, and their segments leave and arrive.

use std::net::{IpAddr, SocketAddr};

use rove_proto::id::{LinkId, SocketId};
use rove_proto::node::{Command, Meta, StreamTo};
use rove_proto::time::Duration;

use super::World;
use crate::emu::{self, Datagram, IpPacket};
use crate::tcp::{End, Segment};
use crate::world::agenda::Task;
use crate::world::attacker::Fate;
use crate::world::hash::hash;
use crate::world::host::{PORT, Power};
use crate::world::host_id::HostId;
use crate::world::laws::Breach;
use crate::world::op;
use crate::world::parcel::{Origin, Parcel};
use crate::world::place::MTU;
use crate::world::streams::end::{Ends, Step, Stream, Way, config};
use crate::world::streams::{HTTPS, Known, LISTENS, StreamId};

/// The ways to make a stream, as nodes number them.
const WAYS: [Way; 3] = [Way::Tls, Way::Plain, Way::ByProxy];
/// Addresses of the gateway's that streams are tried to, each by both ways: the daemon's.
const REMOTES_MAX: usize = 2;

impl World {
    /// Tells a client's node by which streams the gateway may be reached, as the daemon does.
    pub(in crate::world) fn tell_streams(&mut self, client: usize) -> Result<(), Breach> {
        let mut streams = match self.streams.known() {
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
        let peer = self.gateways.serving(client).key;
        let command = Command::SetStreams { peer, streams, alone: false };
        self.command(HostId::Client(client), command)
    }

    /// From now on clients know of these streams as well.
    pub(in crate::world) fn learn_of_streams(&mut self, known: Known) -> Result<(), Breach> {
        if known <= self.streams.known() {
            return Ok(());
        }
        self.streams.set_known(known);
        (0..self.clients.len()).try_for_each(|client| self.tell_streams(client))
    }

    /// A client's node wants a stream.
    pub(in crate::world) fn open_stream(
        &mut self,
        client: usize,
        socket: SocketId,
        (link, local): (LinkId, IpAddr),
        to: StreamTo,
    ) -> Result<(), Breach> {
        let host = HostId::Client(client);
        let card = (link.0 as usize).saturating_sub(1);
        let local = SocketAddr::new(local, self.hosts[host].next_port());
        let Some((_, access, _)) = self.hosts[host].source(card, local, None, to.remote) else {
            self.streams.fail(host, socket);
            self.schedule(0, Task::SocketFailed { host, socket });
            return Ok(());
        };
        let way = WAYS[usize::from(to.method) % WAYS.len()];
        let step = Step::Connecting(way);
        let ends = (host, local, to.remote);
        let mtu = self.place.access(client, access).mtu;
        let tcp = End::connect(config(ends, mtu, self.now_ns), self.now_ns);
        let mut stream = Stream::new(ends, client, tcp, step, self.now_ns);
        (stream.card, stream.socket, stream.tls) = (card, Some(socket), way != Way::Plain);
        let id = self.streams.insert(stream);
        self.pump(id)
    }

    /// A node sends a datagram by one of its streams.
    pub(in crate::world) fn send_by_stream(
        &mut self,
        host: HostId,
        socket: SocketId,
        payload: Vec<u8>,
    ) -> Result<(), Breach> {
        let Some(id) = self.streams.of_socket(host, socket) else { return Ok(()) };
        let Some(stream) = self.streams.get_mut(id) else { return Ok(()) };
        let (_, from, to) = stream.ends;
        stream.send(&payload);
        // A bystander sees it only if it can leave at all.
        let source = self.hosts[host].source(stream.card, from, None, to);
        let datagram = Datagram { source: from, destination: to, payload };
        self.leaves(host, source.map(|(_, access, _)| access), &datagram)?;
        self.attacker.record(&datagram);
        self.pump(id)
    }

    /// A node is told that a stream is of no use any more; one that sleeps, when it wakes up.
    pub(in crate::world) fn tell_failed(
        &mut self,
        host: HostId,
        socket: SocketId,
    ) -> Result<(), Breach> {
        let is_on = self.hosts[host].power == Power::On;
        if is_on && self.streams.tells_failed(host, socket) {
            self.command(host, Command::SocketFailed(socket))?;
        }
        Ok(())
    }

    /// A node is done with a stream: what it sent still leaves.
    pub(in crate::world) fn close_stream(
        &mut self,
        host: HostId,
        socket: SocketId,
    ) -> Result<(), Breach> {
        self.streams.close(host, socket).map_or(Ok(()), |id| self.pump(id))
    }

    /// Every stream of a client is cut in the midst of what it carries: a middlebox forgot it, or
    /// somebody forged a reset.
    pub(in crate::world) fn cut_streams(&mut self, client: usize) -> Result<(), Breach> {
        self.streams.of_client(client).into_iter().try_for_each(|id| self.break_off(id))
    }

    fn break_off(&mut self, id: StreamId) -> Result<(), Breach> {
        if let Some(stream) = self.streams.get_mut(id) {
            stream.step = Step::Broken;
        }
        self.pump(id)
    }

    /// A segment reaches a host.
    pub(in crate::world) fn segment_arrives(
        &mut self,
        host: HostId,
        link: emu::LinkId,
        parcel: Parcel,
    ) -> Result<(), Breach> {
        let Parcel { datagram, origin, to, segment, .. } = parcel;
        let Datagram { source, destination, .. } = datagram;
        let card = match host {
            HostId::Proxy => Some(0),
            HostId::Gateway(_) | HostId::Client(_) => {
                self.hosts[host].card_with(link, destination.ip())
            }
        };
        let (Some(card), Some(packet)) = (card, segment) else { return Ok(()) };
        let Ok(segment) = Segment::parse(packet.bytes()) else { return Ok(()) };
        let (ends, now_ns) = ((host, destination, source), self.now_ns);
        let begins = segment.flags.syn && segment.acknowledgment.is_none();
        let id = match (self.streams.at(ends), origin) {
            (Some(id), _) => id,
            (None, Origin::Host(HostId::Client(client)))
                if begins && takes_streams(host, destination) =>
            {
                let tcp = End::listen(config(ends, MTU, now_ns));
                let step = if host == HostId::Proxy { Step::Asked } else { Step::Judging };
                let mut stream = Stream::new(ends, client, tcp, step, now_ns);
                stream.card = card;
                self.streams.insert(stream)
            }
            (None, _) => return self.refuse(ends, card, &packet),
        };
        let Some(stream) = self.streams.get_mut(id) else { return Ok(()) };
        stream.heard_ns = now_ns;
        stream.tcp.arrives(now_ns, packet.bytes());
        if stream.is_accepted() && stream.is_open() && stream.socket.is_none() {
            self.admit(id);
        }
        match host {
            HostId::Proxy => self.relay(id)?,
            HostId::Gateway(_) | HostId::Client(_) => self.take_datagrams(id, origin, to)?,
        }
        self.pump(id)
    }

    /// There is no such connection, or none any more.
    fn refuse(&mut self, ends: Ends, card: usize, packet: &IpPacket) -> Result<(), Breach> {
        let mut nobody = End::listen(config(ends, MTU, self.now_ns));
        nobody.abort(self.now_ns);
        nobody.arrives(self.now_ns, packet.bytes());
        let by = (ends.0, card, Origin::Nobody);
        let resets = nobody.leaving(self.now_ns);
        resets.into_iter().try_for_each(|reset| self.send_segment(by, ends, reset, false))
    }

    /// A stream that came to the gateway is one of its sockets now. Who is at the other end has
    /// answered: there is somebody.
    fn admit(&mut self, id: StreamId) {
        if let Some((gateway, _, remote)) = self.streams.admit(id) {
            self.amplification.reached(self.now_ns, gateway, remote);
        }
    }

    /// Hands over what has come by a stream.
    fn take_datagrams(
        &mut self,
        id: StreamId,
        origin: Origin,
        to: SocketAddr,
    ) -> Result<(), Breach> {
        let Some(stream) = self.streams.get_mut(id) else { return Ok(()) };
        let (host, local, remote) = stream.ends;
        let (card, Some(socket)) = (stream.card, stream.socket) else { return Ok(()) };
        let datagrams = stream.proceed();
        let access = self.hosts[host].cards.get(card).and_then(Option::as_ref);
        let access = access.filter(|_| !host.is_gateway()).map(|card| card.access);
        for payload in datagrams {
            let meta = Meta { socket, local: Some(local.ip()), remote, waited: Duration::ZERO };
            let datagram = Datagram { source: remote, destination: local, payload };
            self.reaches(host, access, (meta, to), origin, datagram)?;
        }
        Ok(())
    }

    /// What is due of streams.
    pub(in crate::world) fn keep_streams(&mut self) -> Result<(), Breach> {
        while let Some(id) = self.streams.pop_due(self.now_ns) {
            self.pump(id)?;
        }
        Ok(())
    }

    /// A host that slept goes on.
    pub(in crate::world) fn wake_streams(&mut self, host: HostId) {
        for socket in self.streams.untold(host) {
            self.schedule(0, Task::SocketFailed { host, socket });
        }
        for id in self.streams.of_host(host) {
            self.streams.rearm(id, Some(self.now_ns));
        }
    }

    /// Lets a stream send what it may, and end if it is over.
    pub(super) fn pump(&mut self, id: StreamId) -> Result<(), Breach> {
        let now_ns = self.now_ns;
        let Some(ends) = self.streams.get(id).map(|stream| stream.ends) else { return Ok(()) };
        let host = ends.0;
        if !self.is_up(host) {
            return Ok(());
        }
        let Some(stream) = self.streams.get_mut(id) else { return Ok(()) };
        let (card, client) = (stream.card, stream.client);
        let leaving = stream.leaving(now_ns);
        let (other, socket) = (stream.other, stream.socket.filter(|_| !stream.closed));
        let is_over = stream.is_over();
        // What kernels ask and say of connections that are gone is no session's.
        let counts = !is_over && !stream.is_probed(now_ns);
        let due_ns = stream.next_ns(now_ns);
        self.streams.rearm(id, due_ns);
        if is_over {
            self.streams.remove(id);
            if let Some(socket) = socket {
                self.streams.fail(host, socket);
                self.schedule(0, Task::SocketFailed { host, socket });
            }
        }
        let by = (host, card, self.speaker(host, client, ends.2));
        for packet in leaving {
            self.send_segment(by, ends, packet, counts)?;
        }
        match other {
            Some(other) if is_over => self.break_off(other),
            Some(_) | None => Ok(()),
        }
    }

    /// A segment leaves a host, unless its address is gone, and meets the attacker. Whether it
    /// `counts` as traffic of the session.
    fn send_segment(
        &mut self,
        (host, card, origin): (HostId, usize, Origin),
        (_, from, to): Ends,
        packet: Vec<u8>,
        counts: bool,
    ) -> Result<(), Breach> {
        let Some((node, link)) = self.way_out((host, card), from, to) else { return Ok(()) };
        self.trace.add(&[self.now_ns, host.number(), hash(&packet)]);
        let len = packet.len();
        self.watch.tell(self.now_ns, || format!("{host}: {from} -> {to}, {len} B of TCP"));
        let datagram = Datagram { source: from, destination: to, payload: Vec::new() };
        let segment = Some(IpPacket::new(packet));
        let parcel = Parcel { datagram, origin, to, segment, is_open: false };
        if host == HostId::Proxy {
            self.place.net.push(self.now_ns, node, link, parcel);
            return Ok(());
        }
        if counts {
            self.bytes[host] += len as u64;
            self.packets += 1;
        }
        let (client, way) = if host.is_gateway() {
            (self.client_at(host, to), op::Way::Down)
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
    let door = host.is_gateway() && matches!(at.port(), PORT | HTTPS);
    door || (host == HostId::Proxy && at == LISTENS)
}
