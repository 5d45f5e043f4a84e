//! One packet from the moment it is sent until it is acknowledged or sent again: what recovery is
//! told of it, why it is lost, and what is left of it then.

use super::rtt::Rtt;
use crate::id::{EpochId, FlowId, PacketNumber, PathSerial};
use crate::packet::{Instance, PacketRecord, Strength};
use crate::time::Instant;

/// Frames and datagrams up to this length, if they are not TCP's, are questions, answers or voice:
/// they wait for no others.
pub(crate) const SMALL: usize = 300;

/// Names a packet number space of this end: a path under the keys of one epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct SpaceId {
    pub(crate) epoch: EpochId,
    pub(crate) serial: PathSerial,
}

/// What a datagram carries, as far as recovery goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Load {
    /// Nothing that the peer owes feedback for.
    Quiet,
    /// Feedback, and nothing else.
    Report,
    /// A probe of the path's MTU: its loss says nothing of congestion (RFC 9000, section 14.4).
    Probe,
    /// Frames that elicit feedback.
    Eliciting,
    /// A piece of a packet without a number, or a packet that is of no use late: no copy is kept.
    /// It asks for this strength.
    Unkept(Strength),
    /// One inner packet. Unless it is a duplicate, it is kept until it is acknowledged.
    Packet(PacketRecord),
    /// One that is sent again.
    Repair {
        /// Its flow, if that is known.
        flow: Option<FlowId>,
        /// When it left for the first time,
        first_at: Instant,
        /// and how often paths lost it since.
        attempts: u8,
        /// The strength that its flow asks for.
        strength: Strength,
    },
}

impl Load {
    pub(crate) const fn of(eliciting: bool) -> Self {
        if eliciting { Self::Eliciting } else { Self::Quiet }
    }

    /// Whether it carries an inner packet, or a piece of one.
    pub(crate) const fn is_data(self) -> bool {
        matches!(self, Self::Unkept(_) | Self::Packet(_) | Self::Repair { .. })
    }

    /// The strength that its packet asks for.
    pub(crate) const fn strength(self) -> Strength {
        match self {
            Self::Packet(record) => record.marks.strength(),
            Self::Repair { strength, .. } | Self::Unkept(strength) => strength,
            Self::Quiet | Self::Report | Self::Probe | Self::Eliciting => Strength::Bits128,
        }
    }

    /// Whether the peer owes feedback for it.
    pub(super) const fn elicits(self) -> bool {
        !matches!(self, Self::Quiet | Self::Report | Self::Probe)
    }

    /// The flow of a packet that is kept, and how many bytes at its end the flow keeps.
    pub(super) const fn keeps(self) -> Option<(Option<FlowId>, u16)> {
        match self {
            Self::Packet(PacketRecord { instance: Instance::Duplicate, .. }) => None,
            Self::Packet(PacketRecord { flow, kept, .. }) => Some((flow, kept)),
            Self::Repair { flow, .. } => Some((flow, 0)),
            Self::Quiet | Self::Report | Self::Probe | Self::Eliciting | Self::Unkept(_) => None,
        }
    }

    /// When it left for the first time, and how often paths lost it since.
    pub(super) const fn history(self, now: Instant) -> (Instant, u8) {
        if let Self::Repair { first_at, attempts, .. } = self {
            (first_at, attempts)
        } else {
            (now, 0)
        }
    }
}

/// Why packets are lost.
#[derive(Clone, Copy, Debug)]
pub(super) enum Cause<'a> {
    /// Feedback told of later packets. Either three were counted (RFC 9002, section 6.1.1), the
    /// newest of which left at `newest_at`, later by the reordering window (RFC 8985, section 6.2).
    /// Or one was, and this packet is late.
    Overtaken { rtt: &'a Rtt, newest_at: Option<Instant> },
    /// Later packets arrived, and this one did not in time (RFC 9002, section 6.1.2).
    Late { rtt: &'a Rtt },
    /// The path was silent, or never answered before, and answers a challenge of this moment. No
    /// feedback would tell of older packets if they fill the congestion window.
    Silence { asked_at: Instant },
    /// The path carries nothing. Its packets may have arrived, so that this is no measured loss.
    DeadPath,
}

impl Cause<'_> {
    /// Whether the path carried all the time, so that the next sending is one attempt more.
    pub(super) const fn counts_as_attempt(self) -> bool {
        matches!(self, Self::Overtaken { .. } | Self::Late { .. })
    }
}

/// A lost packet that may be sent again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct LostPacket {
    /// Where it was lost,
    pub(crate) space: SpaceId,
    /// and the number of the datagram that carried it.
    pub(crate) number: PacketNumber,
    /// When it left.
    pub(crate) at: Instant,
    /// When it left for the first time,
    pub(crate) first_at: Instant,
    /// and how often a path lost it since that carried.
    pub(crate) attempts: u8,
    /// Its flow, if that is known.
    pub(crate) flow: Option<FlowId>,
    /// How many bytes at its end its connection keeps,
    pub(crate) kept: u16,
    /// and the rest of the frame, with its type.
    pub(crate) frame: Vec<u8>,
}

impl LostPacket {
    /// Whether it is small and leaves at once, also where others keep a pace.
    pub(crate) const fn is_small(&self) -> bool {
        self.frame.len() + self.kept as usize <= SMALL
    }
}
