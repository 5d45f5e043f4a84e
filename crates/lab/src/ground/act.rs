//! The acts of a scenario, when each is due, and what followed.

use super::ms;
use std::net::IpAddr;

/// The number of the client's first link.
pub const FIRST_LINK: usize = 0;

/// An act: a change of the network, the hosts or the programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// The client is in another network, with another address. Unless a fault was set, that network
    /// carries traffic.
    Relocate,
    /// The client's other interface is connected to a network: a spare link beside the one in use.
    PlugSpare,
    /// The client's link in use announces its departure: its routes are gone, and it still carries.
    AnnounceDeparture,
    /// The client's link in use is gone, and the spare one is in use. Done when the client's kernel
    /// knows it.
    Depart,
    /// The client's link that is not in use is gone.
    UnplugSpare,
    /// The client's link in use is gone. Then its other interface is connected to a new network,
    /// and is the link in use.
    ChangeCard,
    /// The network of one of the client's links drops all packets from now on, without a sign to
    /// either end. [`FIRST_LINK`] is the link of its first interface; the links beside it follow.
    Swallow(usize),
    /// It carries again, without a sign.
    Return(usize),
    /// One of the client's links, by the same numbers, loses its carrier, and its kernel knows it.
    /// The addresses stay.
    Unplug(usize),
    /// The carrier is back, in the same network.
    Replug(usize),
    /// The client is suspended, and its first interface loses its carrier.
    CloseLid,
    /// It resumes, and the carrier is back. Only its clock tells how long it slept.
    OpenLid,
    /// The NAT of the client's first network gives every mapping another port.
    RebindNat,
    /// The NAT restarts: it has lost all mappings, and its outside address is another.
    RebootNat,
    /// The gateway has another address in its network, and the old one is gone, without notice.
    MoveGateway,
    /// The gateway has another address beside its present one, and announces it to every client.
    AnnounceGateway,
    /// The gateway's address before that one is gone.
    RetireGateway,
    /// The gateway's address that was removed last is there again, before the others.
    ReviveGateway,
    /// The gateway is back at the address that was removed last, and has no other.
    ReturnGateway,
    /// The client's networks block some packets from now on.
    Block(Blockade),
    /// They block nothing any more.
    Unblock,
    /// The gateway's process is killed, as a crash would end it.
    KillGateway,
    /// The gateway's process is asked to stop, and does.
    StopGateway,
    /// The gateway's process is started again. Done when it is ready.
    StartGateway,
}

/// The packets that a network lets through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blockade {
    /// Everything except UDP.
    NoUdp,
    /// TCP to port 443, and nothing else.
    Only443,
    /// The same, and only TLS.
    OnlyTls,
    /// TCP to an HTTP proxy, and nothing else.
    OnlyProxy,
}

/// The transport of a client's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// UDP.
    Udp,
    /// TCP, or MPTCP.
    Tcp,
    /// TLS over either.
    Tls,
}

/// An act and when it is due: after this time or these bytes of a download, whichever is first.
#[derive(Clone, Copy, Debug)]
pub struct Cue {
    /// Nanoseconds.
    pub at_ns: u64,
    /// Bytes.
    pub at_bytes: u64,
    /// The act.
    pub act: Act,
}

/// An act that was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// The act.
    pub act: Act,
    /// When it began: the old address carries no more.
    pub began_ns: u64,
    /// When it was done: the new address is usable.
    pub done_ns: u64,
    /// The client's address after it.
    pub address: Option<IpAddr>,
    /// When the first tunnel packet left the new address before the next act, if any did.
    pub left_ns: Option<u64>,
    /// When the first arrived there.
    pub came_ns: Option<u64>,
    /// After [`Act::Swallow`] of the first link: when either end first reacted, as seen from
    /// outside. A tunnel packet then left on another link.
    pub noticed_ns: Option<u64>,
    /// When the client's own status reported it: after [`Act::Swallow`] of the first link, that
    /// this link does not carry; after [`Act::Unblock`], that data uses UDP.
    pub told_ns: Option<u64>,
}

impl Act {
    /// The number of the link that it concerns, if it may be any of them.
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
    /// An act that began at one moment and was done at another.
    pub const fn new(act: Act, began_ns: u64, done_ns: u64) -> Self {
        let (left_ns, came_ns, noticed_ns, told_ns) = (None, None, None, None);
        Self { act, began_ns, done_ns, address: None, left_ns, came_ns, noticed_ns, told_ns }
    }

    /// Time until either end reacted, in milliseconds.
    pub fn noticed_ms(&self) -> Option<f64> {
        Some(ms(self.noticed_ns?.saturating_sub(self.done_ns)))
    }

    /// Time until the status reported it, in milliseconds.
    pub fn told_ms(&self) -> Option<f64> {
        Some(ms(self.told_ns?.saturating_sub(self.done_ns)))
    }
}

impl Cue {
    /// An act after this time.
    pub const fn at(at_ns: u64, act: Act) -> Self {
        Self { at_ns, at_bytes: u64::MAX, act }
    }
}
