//! The record of one inner packet on its way out: what the tunnel knows of it, in 12 bytes.
//!
//! `flow` decides it once, where the packet enters. The queues, the scheduler and the datagram
//! carry it, and none of them reads the packet's headers or looks for its flow. A packet in flight
//! keeps the name of its flow and the number of kept bytes. Each flow keeps
//! the record that its packets have in common, and changes it when its class or level changes.
//!
//! Decides nothing. A property by which packets are treated differently is a field here
//! (docs/decisions/0078-one-packet-record.md).

use crate::id::FlowId;

/// What the tunnel knows of an inner packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PacketRecord {
    /// Its flow, if that is known. A flow that is forgotten meanwhile is not found by this name.
    pub flow: Option<FlowId>,
    /// Bytes at its end that its TCP connection keeps until they have arrived.
    pub kept: u16,
    /// The bucket of its flow: those of a bucket share a queue and a sequence of numbers.
    pub bucket: u8,
    /// The class of its flow.
    pub class: Class,
    /// The level of its flow.
    pub level: Level,
    /// Which of its copies this one is.
    pub instance: Instance,
    /// Whether its flow is RTP, and what the user's rules say of it.
    pub marks: Marks,
    /// How bytes are saved on it.
    pub saving: Saving,
}

const _: () = assert!(size_of::<PacketRecord>() <= 12);

impl PacketRecord {
    /// A packet of a bucket of which nothing else is known.
    pub const fn of_bucket(bucket: u8) -> Self {
        let (class, level) = (Class::Bulk, Level::Second);
        let (instance, saving) = (Instance::Only, Saving::NONE);
        Self { flow: None, kept: 0, bucket, class, level, instance, marks: Marks::NONE, saving }
    }

    /// The same packet as this one of its copies.
    #[must_use]
    pub const fn copied(self, instance: Instance) -> Self {
        Self { instance, ..self }
    }
}

/// Small properties of a packet's flow, in one byte.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Marks(u8);

impl Marks {
    /// Not RTP, and no rule says anything.
    pub const NONE: Self = Self(0);
    const RTP: u8 = 0x01;
    const STRONG: u8 = 0x02;
    /// Two bits: 0 if no rule says anything of copies.
    const COPIES: u32 = 2;
    /// Three bits: 0 if no rule gives a goal.
    const GOAL: u32 = 4;

    /// The same, of a flow that is RTP or not.
    #[must_use]
    pub const fn with_rtp(self, is_rtp: bool) -> Self {
        Self(self.0 & !Self::RTP | if is_rtp { Self::RTP } else { 0 })
    }

    /// The same, of a flow that asks for this strength.
    #[must_use]
    pub const fn with_strength(self, strength: Strength) -> Self {
        let bits = match strength {
            Strength::Bits128 => 0,
            Strength::Bits256 => Self::STRONG,
        };
        Self(self.0 & !Self::STRONG | bits)
    }

    /// The same, of a flow whose rule says this of copies.
    #[must_use]
    pub const fn with_copies(self, copies: Option<Copies>) -> Self {
        let bits = match copies {
            None => 0,
            Some(Copies::Never) => 1,
            Some(Copies::Always) => 2,
        };
        Self(self.0 & !(3 << Self::COPIES) | bits << Self::COPIES)
    }

    /// The same, of a flow whose rule gives this goal.
    #[must_use]
    pub const fn with_goal(self, goal: Option<Goal>) -> Self {
        let bits = match goal {
            None => 0,
            Some(Goal::Throughput) => 1,
            Some(Goal::Latency) => 2,
            Some(Goal::Data) => 3,
            Some(Goal::Power) => 4,
        };
        Self(self.0 & !(7 << Self::GOAL) | bits << Self::GOAL)
    }

    /// What a rule says of copies.
    pub const fn copies(self) -> Option<Copies> {
        match self.0 >> Self::COPIES & 3 {
            1 => Some(Copies::Never),
            2 => Some(Copies::Always),
            _ => None,
        }
    }

    /// The goal that a rule gives.
    pub const fn goal(self) -> Option<Goal> {
        match self.0 >> Self::GOAL & 7 {
            1 => Some(Goal::Throughput),
            2 => Some(Goal::Latency),
            3 => Some(Goal::Data),
            4 => Some(Goal::Power),
            _ => None,
        }
    }

    /// Whether the flow is RTP.
    pub const fn is_rtp(self) -> bool {
        self.0 & Self::RTP != 0
    }

    /// The least strength that the flow asks for.
    pub const fn strength(self) -> Strength {
        if self.0 & Self::STRONG == 0 { Strength::Bits128 } else { Strength::Bits256 }
    }
}

/// The least strength of the suite that seals a packet, as its flow asks for it. The session's
/// floor and what the end wants may raise it, and nothing lowers it (`policy`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub enum Strength {
    /// Keys of 128 bits or more: every suite. So this asks for nothing.
    #[default]
    Bits128,
    /// Keys of 256 bits.
    Bits256,
}

impl Strength {
    /// All of them, the lowest first.
    pub const ALL: [Self; 2] = [Self::Bits128, Self::Bits256];
}

/// Which packets of a realtime flow leave twice. Without a rule, those that would probably be lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Copies {
    /// None.
    Never,
    /// All: one copy at least, also where the session saves data.
    Always,
}

/// What a flow is to have above all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Goal {
    /// As many bytes per second as possible.
    Throughput,
    /// As little delay as possible.
    Latency,
    /// As few bytes on the links as possible.
    Data,
    /// As little energy of this device as possible.
    Power,
}

impl Copies {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Never, Self::Always];

    /// The word for it.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::Always => "always",
        }
    }
}

impl Goal {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Throughput, Self::Latency, Self::Data, Self::Power];

    /// The word for it.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Throughput => "throughput",
            Self::Latency => "latency",
            Self::Data => "data",
            Self::Power => "power",
        }
    }
}

/// What is known of the checksum of a packet's transport. It goes with the packet's bytes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Checksum {
    /// Nothing: it is as the packet's sender wrote it, right or wrong.
    #[default]
    Unchecked,
    /// It is right: it was just made from the bytes that it covers.
    Right,
    /// It was left out, and its field means nothing: whoever hands the packet to its receiver makes
    /// it.
    LeftOut,
}

/// How bytes are saved on a packet of a flow that its user named, in one byte. Packets of all other
/// flows have [`Self::NONE`].
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Saving(u8);

impl Saving {
    /// No bytes are saved: the packet has nothing to do with those that wait for others.
    pub const NONE: Self = Self(0);
    /// It waits for others that share its datagram.
    pub const JOINED: Self = Self(0x04);
    /// It leaves at once, but not before packets of its flow that wait.
    pub const DIRECT: Self = Self(0x08);

    /// It is compressed by the coding of this byte, and waits for others. The low four bits of such
    /// a byte are 1 or 2.
    pub const fn compressed(coding: u8) -> Self {
        Self(coding)
    }

    /// Whether it waits for others that share its datagram.
    pub const fn waits(self) -> bool {
        self.0 != Self::NONE.0 && self.0 != Self::DIRECT.0
    }

    /// The byte of the coding by which it is compressed.
    pub const fn coding(self) -> Option<u8> {
        match self.0 & 0x0f {
            1 | 2 => Some(self.0),
            _ => None,
        }
    }
}

/// One of the copies of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Instance {
    /// There is no other.
    Only,
    /// A duplicate left by another path, so this one is not repaired when its path dies.
    Original,
    /// The duplicate: nothing of it is kept for repair.
    Duplicate,
}

/// What a flow was recognised as.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Class {
    /// Somebody waits for each answer.
    Interactive,
    /// Questions for names.
    Names,
    /// Anything else: as much as there is room for.
    Bulk,
    /// Of no use when it is late: somebody speaks, or is seen, or has said that it is so.
    RealTime,
}

impl Class {
    /// Every class.
    pub const ALL: [Self; 4] = [Self::Interactive, Self::Names, Self::Bulk, Self::RealTime];

    /// The name by which status shows it.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Interactive => "interactive",
            Self::Names => "names",
            Self::Bulk => "bulk",
            Self::RealTime => "real-time",
        }
    }
}

/// How much a flow is preferred to others.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub enum Level {
    /// Before all others.
    First,
    /// As everything of which nobody said anything.
    #[default]
    Second,
    /// After all others.
    Third,
}

impl Level {
    /// All of them, the one that is preferred first.
    pub const ALL: [Self; 3] = [Self::First, Self::Second, Self::Third];

    /// The level of this number, 1 to 3; `None` for any other.
    pub const fn numbered(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::First),
            2 => Some(Self::Second),
            3 => Some(Self::Third),
            _ => None,
        }
    }

    /// Its number: 1 is preferred to 2, and 2 to 3.
    pub const fn number(self) -> u8 {
        self as u8 + 1
    }

    /// The weight of a flow of this level where flows compete. The third level has weight 1.
    pub const fn weight(self) -> u16 {
        match self {
            Self::First => 16,
            Self::Second => 4,
            Self::Third => 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mark_is_one_of_its_own() {
        let copies = Copies::ALL.map(Some).into_iter().chain([None]);
        let goals: Vec<_> = Goal::ALL.map(Some).into_iter().chain([None]).collect();
        for (copies, goal) in copies.flat_map(|copies| goals.iter().map(move |it| (copies, *it))) {
            for (strength, is_rtp) in
                Strength::ALL.into_iter().flat_map(|s| [(s, true), (s, false)])
            {
                let marks = Marks(u8::MAX >> 1).with_rtp(is_rtp).with_strength(strength);
                let marks = marks.with_copies(copies).with_goal(goal);
                assert_eq!((marks.is_rtp(), marks.strength()), (is_rtp, strength));
                assert_eq!((marks.copies(), marks.goal()), (copies, goal));
            }
        }
        let none = Marks::NONE;
        assert_eq!((none.copies(), none.goal(), none.strength()), (None, None, Strength::Bits128));
    }
}
