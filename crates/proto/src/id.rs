//! The names of things: peers, sessions, paths, sockets, links. Numbers without behaviour.

use std::fmt;
use std::num::NonZeroU32;

/// A peer's X25519 public key: its identity.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerKey(pub [u8; 32]);

impl fmt::Debug for PeerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, ..] = self.0;
        write!(f, "peer:{a:02x}{b:02x}{c:02x}{d:02x}")
    }
}

/// The name by which a datagram's receiver finds (peer, epoch, path); random, issued by the
/// receiver, never an address. Big-endian on the wire. Zero is never issued.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionIndex(pub u32);

impl fmt::Debug for SessionIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "index:{:08x}", self.0)
    }
}

/// The ordinal of a session index among those that its receiver issued within one epoch, and so
/// the path part of every nonce under it. Only grows, never reused within an epoch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct PathSerial(pub u32);

/// An epoch of a peer, as this node counts them; a handshake under way has one already.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub(crate) struct EpochId(pub u32);

/// Names a path within its peer; never reused within a session, never on the wire.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PathId(pub u32);

/// Names an inner flow within the table of its session: the index of its place and a generation, as
/// the key of a slot map. The next flow in that place has another generation, so an old name finds
/// no flow. A name comes again after 65,535 flows in one place; a packet keeps it for 3 s at most.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct FlowId(NonZeroU32);

impl FlowId {
    const GENERATION: u32 = u16::MAX as u32;

    /// The name of the first flow in a place.
    pub(crate) const fn first(index: u16) -> Self {
        Self(NonZeroU32::MIN.saturating_add((index as u32) << 16))
    }

    /// The name of the next flow in the same place.
    pub(crate) const fn next(self) -> Self {
        match self.0.get() & Self::GENERATION {
            Self::GENERATION => Self::first((self.0.get() >> 16) as u16),
            _ => Self(self.0.saturating_add(1)),
        }
    }

    /// The index of its place.
    pub(crate) const fn index(self) -> usize {
        (self.0.get() >> 16) as usize
    }
}

/// The number of a datagram on one path in one direction, from 0. 64 bits, of which the low 32
/// travel.
pub type PacketNumber = u64;

/// The one-byte name of a profile on the wire, which only the two ends understand.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ProfileId(pub u8);

/// A local link (interface) as the shell numbers it: the kernel's interface index.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LinkId(pub u32);

/// A local socket: one that sends UDP datagrams to anywhere, or, numbered from
/// [`SocketId::STREAMS`] up, a stream that carries datagrams to one place. A gateway's are numbered
/// by the shell, below the number that the node was given as its first; a client's are opened at
/// the core's request and numbered by it. A gateway's streams are numbered by the shell.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SocketId(pub u32);

impl SocketId {
    /// The number of the first stream.
    pub const STREAMS: u32 = 1 << 31;

    /// What carries its datagrams.
    pub const fn transport(self) -> Transport {
        if self.0 >= Self::STREAMS { Transport::Stream } else { Transport::Udp }
    }
}

/// What carries datagrams between two addresses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Transport {
    /// Each by itself: may be lost, and none waits for another.
    Udp,
    /// A byte stream (TCP, MPTCP, TLS in either): in order, and all of them late when one is.
    Stream,
}
