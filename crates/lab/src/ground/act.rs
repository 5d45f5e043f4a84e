//! What is done in a story, when it is due, and what followed.

use super::ms;
use std::net::IpAddr;

/// The number of the client's first link.
pub const FIRST_LINK: usize = 0;

/// What is done in the middle of something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// The client is in another network, with another address; unless it was broken on purpose,
    /// that network carries.
    Relocate,
    /// The client's other card is plugged into a network: a spare link, known beside the one in
    /// use.
    PlugSpare,
    /// The client's link in use is about to go: its routes are gone, it still carries.
    AnnounceDeparture,
    /// The client's link in use is gone, and the spare one is the one in use. Done when the
    /// client's kernel knows it.
    Depart,
    /// The client's link that is not in use is gone.
    UnplugSpare,
    /// The client's link in use is gone; then its other card is plugged into a network in which it
    /// was not yet, and that is the link in use.
    ChangeCard,
    /// The network of one of the client's links swallows everything from now on; no end can see
    /// it. [`FIRST_LINK`] is that of its first card, then come those beside it from the beginning.
    Swallow(usize),
    /// It carries again, as silently.
    Return(usize),
    /// The carrier of one of the client's links, by the same numbers, is gone, and its kernel knows
    /// it; the addresses stay.
    Unplug(usize),
    /// It is back, in the same network.
    Replug(usize),
    /// The client is put to sleep, and the carrier of its first card goes with it.
    CloseLid,
    /// It wakes up, and the carrier comes back: how long it slept it learns from its clock only.
    OpenLid,
    /// The NAT box of the client's first network gives every mapping another port.
    RebindNat,
    /// It starts anew: it has forgotten every mapping, and its outside address is another.
    RebootNat,
    /// The gateway has another address in its network, and the old one is gone; nobody was told.
    MoveGateway,
    /// The gateway has another address beside the one that it had, and tells every client.
    AnnounceGateway,
    /// The address that the gateway had before that one is gone.
    RetireGateway,
    /// The address of the gateway's that was retired last is there again, before the others.
    ReviveGateway,
    /// The gateway is back at the address that was retired last, and has no other.
    ReturnGateway,
    /// The client's networks let only some packets by from now on.
    Block(Blockade),
    /// They let everything by again.
    Unblock,
    /// The gateway's process is killed, as a crash would end it.
    KillGateway,
    /// The gateway's process is asked to end, and does.
    StopGateway,
    /// The gateway's process is started again. Done when it is ready.
    StartGateway,
}

/// What a network lets by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blockade {
    /// Everything but UDP.
    NoUdp,
    /// TCP to port 443, and nothing else.
    Only443,
    /// The same, and only where it is TLS.
    OnlyTls,
    /// TCP to an HTTP proxy, and nothing else.
    OnlyProxy,
}

/// What a client's data goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// UDP.
    Udp,
    /// TCP, or MPTCP.
    Tcp,
    /// TLS over either.
    Tls,
}

/// An act and when it is due.
#[derive(Clone, Copy, Debug)]
pub struct Cue {
    /// After so many nanoseconds,
    pub at_ns: u64,
    /// or so many bytes of a download, whichever comes first.
    pub at_bytes: u64,
    /// What is done.
    pub act: Act,
}

/// Something that was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// What.
    pub act: Act,
    /// When it began: the old address carries no more.
    pub began_ns: u64,
    /// When it was done: the new address can be used.
    pub done_ns: u64,
    /// The client's address after it.
    pub address: Option<IpAddr>,
    /// When the first packet of the tunnel left from there, and when the first came, if any did
    /// before the next act.
    pub left_ns: Option<u64>,
    /// See `left_ns`.
    pub came_ns: Option<u64>,
    /// After [`Act::Swallow`] of the first link: when either end first did something about it, seen
    /// from outside: a packet of the tunnel left by another link than the one that was swallowed.
    pub noticed_ns: Option<u64>,
    /// When the client's own status told of it: after [`Act::Swallow`] of the first link, that this
    /// link does not carry; after [`Act::Unblock`], that data goes by UDP.
    pub told_ns: Option<u64>,
}

impl Act {
    /// The link that it is about, by its number, if it may be any of them.
    pub const fn link(self) -> Option<usize> {
        match self {
            Self::Swallow(link) | Self::Return(link) | Self::Unplug(link) | Self::Replug(link) => {
                Some(link)
            }
            Self::Relocate
            | Self::PlugSpare
            | Self::AnnounceDeparture
            | Self::Depart
            | Self::UnplugSpare
            | Self::ChangeCard
            | Self::CloseLid
            | Self::OpenLid
            | Self::RebindNat
            | Self::RebootNat
            | Self::MoveGateway
            | Self::AnnounceGateway
            | Self::RetireGateway
            | Self::ReviveGateway
            | Self::ReturnGateway
            | Self::Block(_)
            | Self::Unblock
            | Self::KillGateway
            | Self::StopGateway
            | Self::StartGateway => None,
        }
    }

    /// Whether one of the client's links carries nothing from then on, until the next act.
    pub const fn begins_outage(self) -> bool {
        matches!(self, Self::Swallow(_) | Self::Unplug(_) | Self::CloseLid)
    }
}

impl Moment {
    /// Something that began at one moment and was done at another.
    pub const fn new(act: Act, began_ns: u64, done_ns: u64) -> Self {
        let (left_ns, came_ns, noticed_ns, told_ns) = (None, None, None, None);
        Self { act, began_ns, done_ns, address: None, left_ns, came_ns, noticed_ns, told_ns }
    }

    /// How long after it either end did something about it, in milliseconds.
    pub fn noticed_ms(&self) -> Option<f64> {
        Some(ms(self.noticed_ns?.saturating_sub(self.done_ns)))
    }

    /// How long after it the status told of it, in milliseconds.
    pub fn told_ms(&self) -> Option<f64> {
        Some(ms(self.told_ns?.saturating_sub(self.done_ns)))
    }
}

impl Cue {
    /// An act after so many nanoseconds.
    pub const fn at(at_ns: u64, act: Act) -> Self {
        Self { at_ns, at_bytes: u64::MAX, act }
    }
}
