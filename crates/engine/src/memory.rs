//! A device, sockets and a clock in memory, for tests and simulations in virtual time. Input waits
//! in queues until a stage of the [`Engine`] takes it, output is collected.
//!
//! Limits: the queues are as long as their user makes them, and nothing is ever late, refused or
//! changed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;

use rove_proto::crypto::Profile;
use rove_proto::id::{LinkId, PacketNumber, SocketId};
use rove_proto::node::{Event, Meta, Node, StreamTo};
use rove_proto::outbox::{Outbox, Route, RunSeal, Sending};
use rove_proto::time::Instant;
use rove_proto::wire::inner::Pieces;

use crate::{BATCH_BYTES_MAX, Engine, Queue};

/// Bytes of the packets that one read takes: those of the largest super-packet of a real device.
const READ_BYTES_MAX: usize = 65_535;

/// An engine with nothing but memory around it.
pub type MemoryEngine = Engine<Clock, Device, Sockets, Vec<Event>>;

impl MemoryEngine {
    /// Drives `node` from `now` on. It listens on the sockets `listening`.
    pub fn in_memory(
        node: Node,
        now: Instant,
        listening: impl IntoIterator<Item = (SocketId, IpAddr)>,
    ) -> Self {
        let open = listening.into_iter().collect();
        let sockets = Sockets { open, ..Sockets::default() };
        Self::new(node, Clock { now }, Device::default(), sockets, Vec::new())
    }
}

/// A clock that shows the time that it was set to.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// The time that it shows.
    pub now: Instant,
}

impl crate::Clock for Clock {
    fn now(&self) -> Instant {
        self.now
    }
}

/// A tunnel device.
#[derive(Debug, Default)]
pub struct Device {
    waiting: VecDeque<Packet>,
    /// Packets that the engine wrote.
    pub written: Vec<Vec<u8>>,
}

/// A packet that waits, and the length of the first of the two pieces that it is read in.
#[derive(Debug)]
struct Packet {
    bytes: Vec<u8>,
    head: usize,
}

impl Device {
    /// Packets that were not read yet.
    pub fn unread(&self) -> usize {
        self.waiting.len()
    }

    /// Adds a packet, to be read in one piece.
    pub fn push(&mut self, packet: Vec<u8>) {
        let head = packet.len();
        self.push_cut(packet, head);
    }

    /// Adds a packet, to be read in two pieces, of which the first has `head` bytes.
    ///
    /// # Panics
    /// If the packet is shorter than that, or longer than a device carries.
    pub fn push_cut(&mut self, bytes: Vec<u8>, head: usize) {
        assert!(head <= bytes.len(), "a head of {head} of {} bytes", bytes.len());
        assert!(bytes.len() <= READ_BYTES_MAX, "a packet of {} bytes", bytes.len());
        self.waiting.push_back(Packet { bytes, head });
    }
}

impl crate::Device for Device {
    fn read(&mut self, mut each: impl FnMut(Pieces<'_>)) -> Queue {
        let mut len = 0;
        let fits = |packet: &&Packet| {
            len += packet.bytes.len();
            len <= READ_BYTES_MAX
        };
        let count = self.waiting.iter().take_while(fits).count();
        for Packet { bytes, head } in self.waiting.drain(..count) {
            let (head, tail) = bytes.split_at(head);
            each(Pieces::cut(head, tail));
        }
        if count == 0 { Queue::Empty } else { Queue::Unknown }
    }

    fn write<'a>(&mut self, packets: impl Iterator<Item = Pieces<'a>>) {
        self.written.extend(packets.map(Pieces::to_vec));
    }
}

/// A datagram that the engine sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sent {
    /// By which socket and to whom.
    pub route: Route,
    /// The address of that socket; `None` if it was not open.
    pub bound: Option<IpAddr>,
    /// The datagram.
    pub datagram: Vec<u8>,
    /// Its place in the call that sent it with others; `None` if it was sent alone.
    pub segment: Option<Segment>,
}

/// The place of a datagram in a segmented send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// Datagrams before it.
    pub at: usize,
    /// Datagrams of the send.
    pub count: usize,
    /// Whether the last segment is as long as the others.
    pub is_last_full: bool,
}

/// Sockets.
#[derive(Debug, Default)]
pub struct Sockets {
    open: BTreeMap<SocketId, IpAddr>,
    waiting: VecDeque<(Meta, Vec<u8>)>,
    failed: BTreeSet<SocketId>,
    /// Datagrams that the engine sent, in order.
    pub sent: Vec<Sent>,
    /// The key, the number and the profile of each sealed datagram, in the same order.
    pub sealed: Vec<(RunSeal, PacketNumber, Profile)>,
}

impl Sockets {
    /// The open sockets and their addresses.
    pub const fn bound(&self) -> &BTreeMap<SocketId, IpAddr> {
        &self.open
    }

    /// Adds a datagram that has arrived.
    pub fn push(&mut self, meta: Meta, datagram: Vec<u8>) {
        self.waiting.push_back((meta, datagram));
    }

    /// Lets a socket fail.
    pub fn fail(&mut self, socket: SocketId) {
        self.open.remove(&socket);
        self.failed.insert(socket);
    }
}

impl crate::Sockets for Sockets {
    fn open(
        &mut self,
        _: Instant,
        socket: SocketId,
        _: LinkId,
        local: IpAddr,
        _: Option<StreamTo>,
    ) {
        self.open.insert(socket, local);
    }

    fn receive(&mut self, mut each: impl FnMut(Meta, usize, &mut [u8])) -> Queue {
        let mut bytes = 0;
        let fits = |(_, datagram): &&(Meta, Vec<u8>)| {
            bytes += datagram.len();
            bytes <= BATCH_BYTES_MAX
        };
        let count = self.waiting.iter().take_while(fits).count();
        for (meta, mut datagram) in self.waiting.drain(..count) {
            let stride = datagram.len().max(1);
            each(meta, stride, &mut datagram);
        }
        if count == 0 { Queue::Empty } else { Queue::Unknown }
    }

    fn before_send(&mut self, out: &Outbox) {
        let sealed = out.sealed();
        self.sealed.extend(sealed.map(|(seal, number, profile)| (seal.clone(), number, profile)));
    }

    fn send(&mut self, route: Route, sending: Sending, segment: usize, run: &[u8]) {
        let bound = self.open.get(&route.socket).copied();
        let datagrams = run.chunks(segment.max(1));
        let count = datagrams.len();
        let is_last_full = sending == Sending::Segmented && run.len() == count * segment;
        let is_segmented = count > 1 && sending != Sending::Single;
        let place = |at| is_segmented.then_some(Segment { at, count, is_last_full });
        self.sent.extend(datagrams.enumerate().map(|(at, datagram)| {
            let datagram = datagram.to_vec();
            Sent { route, bound, datagram, segment: place(at) }
        }));
    }

    fn close(&mut self, socket: SocketId) {
        self.open.remove(&socket);
    }

    fn take_failed(&mut self) -> BTreeSet<SocketId> {
        std::mem::take(&mut self.failed)
    }
}
