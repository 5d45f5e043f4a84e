//! Streams of the world: what a host's shell does with them (as `crates/host/src/data/sockets.rs`
//! does), and TCP under it ([`crate::tcp::End`]).
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

pub(super) mod end;
pub(super) mod proxy;

use std::collections::{BTreeMap, BTreeSet};

use rove_proto::id::SocketId;

use super::host_id::HostId;
use proxy::GRANTED;
pub(super) use proxy::LISTENS;

use end::{Ends, Step, Stream};

/// The port that networks leave open when they leave nothing else open.
pub(super) const HTTPS: u16 = 443;
/// Bytes that the proxy holds for a connection before it reads no more of the other one.
const HELD_MAX: usize = 64 << 10;
/// The first port of the proxy's own connections.
const PROXY_PORT: u16 = 10_000;

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
    pub(super) const fn next_port(&mut self) -> u16 {
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
        self.by_socket.range((host, SocketId(0))..=(host, SocketId(u32::MAX))).count()
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
        self.of_host(host).into_iter().for_each(|id| self.remove(id));
        self.failed.retain(|failed, _| failed.0 != host);
    }

    pub(super) fn insert(&mut self, stream: Stream) -> StreamId {
        self.began += 1;
        let id = StreamId(self.began);
        self.by_ends.insert(stream.ends, id);
        self.by_socket.extend(stream.socket.map(|socket| ((stream.ends.0, socket), id)));
        self.all.insert(id, stream);
        id
    }

    pub(super) fn remove(&mut self, id: StreamId) {
        let Some(stream) = self.all.remove(&id) else { return };
        self.by_ends.remove(&stream.ends);
        if let Some(due_ns) = stream.due_ns {
            self.due.remove(&(due_ns, id));
        }
        if let Some(socket) = stream.socket {
            self.by_socket.remove(&(stream.ends.0, socket));
        }
    }

    pub(super) fn rearm(&mut self, id: StreamId, due_ns: Option<u64>) {
        let Some(stream) = self.all.get_mut(&id) else { return };
        if let Some(before_ns) = std::mem::replace(&mut stream.due_ns, due_ns) {
            self.due.remove(&(before_ns, id));
        }
        self.due.extend(due_ns.map(|due_ns| (due_ns, id)));
    }

    /// Of which streams clients know.
    pub(super) const fn known(&self) -> Known {
        self.known
    }

    /// A stream's end.
    pub(super) fn get(&self, id: StreamId) -> Option<&Stream> {
        self.all.get(&id)
    }

    /// The same, to change it.
    pub(super) fn get_mut(&mut self, id: StreamId) -> Option<&mut Stream> {
        self.all.get_mut(&id)
    }

    /// The end that a segment reaches.
    pub(super) fn at(&self, ends: Ends) -> Option<StreamId> {
        self.by_ends.get(&ends).copied()
    }

    /// The end that is a node's socket.
    pub(super) fn of_socket(&self, host: HostId, socket: SocketId) -> Option<StreamId> {
        self.by_socket.get(&(host, socket)).copied()
    }

    /// A node is done with a socket, whose stream this is.
    pub(super) fn close(&mut self, host: HostId, socket: SocketId) -> Option<StreamId> {
        let id = self.by_socket.remove(&(host, socket))?;
        if let Some(stream) = self.all.get_mut(&id) {
            stream.closed = true;
        }
        Some(id)
    }

    /// A stream that came to a gateway is one of its sockets now. Returns where it ends.
    pub(super) fn admit(&mut self, id: StreamId) -> Option<Ends> {
        let stream = self.all.get_mut(&id)?;
        let number = SocketId(SocketId::STREAMS | self.accepted);
        self.accepted = (self.accepted + 1) % SocketId::STREAMS;
        stream.socket = Some(number);
        self.by_socket.insert((stream.ends.0, number), id);
        Some(stream.ends)
    }

    /// A stream failed, which its node has to be told.
    pub(super) fn fail(&mut self, host: HostId, socket: SocketId) {
        self.failed.insert((host, socket), false);
    }

    /// Whether a node is to be told now that a stream failed; once.
    pub(super) fn tells_failed(&mut self, host: HostId, socket: SocketId) -> bool {
        let told = self.failed.get_mut(&(host, socket));
        told.is_some_and(|told| !std::mem::replace(told, true))
    }

    /// The streams that failed and whose node was not told.
    pub(super) fn untold(&self, host: HostId) -> Vec<SocketId> {
        let untold = self.failed.iter().filter(|((at, _), told)| *at == host && !**told);
        untold.map(|((_, socket), _)| *socket).collect()
    }

    /// One that has something to do now, and no more after this.
    pub(super) fn pop_due(&mut self, now_ns: u64) -> Option<StreamId> {
        let &(_, id) = self.due.first().filter(|due| due.0 <= now_ns)?;
        self.rearm(id, None);
        Some(id)
    }

    /// What a client's socket is, if it is a stream: whether TLS is in it.
    pub(super) fn has_tls(&self, host: HostId, socket: SocketId) -> Option<bool> {
        let id = self.of_socket(host, socket)?;
        self.get(id).map(|stream| stream.tls)
    }

    /// The proxy has reached where a client asked it to, and says so by the client's connection.
    pub(super) fn tell_granted(&mut self, id: StreamId) {
        if let Some(stream) = self.get_mut(id)
            && stream.step == Step::Reaching
        {
            stream.step = Step::Relaying;
            stream.tcp.write(GRANTED);
        }
    }

    /// What has come by one connection goes on by the other, as far as there is room.
    pub(super) fn pass_on(&mut self, from: StreamId, to: StreamId) {
        let room = self.get(to).map_or(0, |to| HELD_MAX.saturating_sub(to.tcp.unsent()));
        let from = self.get_mut(from);
        let Some(bytes) = from.map(|from| from.tcp.read(room)) else { return };
        if let Some(to) = self.get_mut(to) {
            to.tcp.write(&bytes);
        }
    }

    /// The streams of a host.
    pub(super) fn of_host(&self, host: HostId) -> Vec<StreamId> {
        let of_host = |one: &(&StreamId, &Stream)| one.1.ends.0 == host;
        self.all.iter().filter(of_host).map(|(id, _)| *id).collect()
    }

    /// The streams of a client, at both ends.
    pub(super) fn of_client(&self, client: usize) -> Vec<StreamId> {
        let of_client = |one: &(&StreamId, &Stream)| one.1.client == client;
        self.all.iter().filter(of_client).map(|(id, _)| *id).collect()
    }
}

#[cfg(test)]
#[path = "streams_tests.rs"]
mod tests;
