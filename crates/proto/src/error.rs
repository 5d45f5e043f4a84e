//! Errors by audience: a [`DropReason`] is counted and forgotten, a [`PeerError`] ends one session.

use std::fmt;

macro_rules! drop_reasons {
    ($($(#[doc = $doc:literal])+ $name:ident => $label:literal,)+) => {
        /// Why a datagram, frame or inner packet was thrown away. Counted, never answered.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        #[repr(u8)]
        pub enum DropReason { $($(#[doc = $doc])+ $name,)+ }

        impl DropReason {
            /// Every reason, in the order of the counters.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// The name by which status and metrics show it.
            pub const fn label(self) -> &'static str {
                match self { $(Self::$name => $label,)+ }
            }
        }
    };
}

drop_reasons! {
    /// Shorter than its kind needs, or longer than a datagram may be.
    Malformed => "malformed",
    /// A kind that this version does not know.
    UnknownKind => "unknown_kind",
    /// No session has this index.
    UnknownIndex => "unknown_index",
    /// The tag does not verify.
    BadTag => "bad_tag",
    /// The number was seen before, or is older than the window remembers.
    Replay => "replay",
    /// A profile ID without a meaning: noise, or something that a peer wants to be dropped.
    Decoy => "decoy",
    /// A profile ID that means a suite below the session's floor: a peer that breaks the agreement,
    /// or noise.
    BelowFloor => "below_floor",
    /// A handshake message whose MAC does not verify.
    BadMac => "bad_mac",
    /// A handshake message without the cookie that the load demands.
    NoCookie => "no_cookie",
    /// A handshake message that does not decrypt, or speaks of no known exchange.
    BadHandshake => "bad_handshake",
    /// A handshake counter that is not above the last one accepted from this peer.
    StaleCounter => "stale_counter",
    /// A first handshake message from a network that exceeded its budget.
    OverBudget => "over_budget",
    /// A table with a fixed size is full.
    TableFull => "table_full",
    /// An inner packet that is no valid IP packet.
    BadInner => "bad_inner",
    /// An inner packet for which there was no peer, or for too long no path that carried.
    NoRoute => "no_route",
    /// An inner packet whose source or destination the peer may not use.
    NotAllowed => "not_allowed",
    /// An inner packet that found its queue full, or waited there for too long.
    QueueFull => "queue_full",
    /// More data than an unproven address may be sent.
    Amplification => "amplification",
    /// A fragment whose siblings did not arrive in time, or that fits no packet.
    Fragment => "fragment",
    /// A frame that breaks its own format.
    BadFrame => "bad_frame",
    /// A compact packet whose context was never defined, was refused, or is forgotten.
    UnknownContext => "unknown_context",
}

/// Counters of drops, one per [`DropReason`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drops([u64; DropReason::ALL.len()]);

impl Default for Drops {
    fn default() -> Self {
        Self([0; DropReason::ALL.len()])
    }
}

impl Drops {
    /// Counts one drop.
    pub fn count(&mut self, reason: DropReason) {
        let slot = &mut self.0[reason as usize];
        *slot = slot.saturating_add(1);
    }

    /// Counts so many drops.
    pub(crate) fn count_many(&mut self, reason: DropReason, drops: usize) {
        let slot = &mut self.0[reason as usize];
        *slot = slot.saturating_add(drops as u64);
    }

    /// How often `reason` was counted.
    pub fn of(&self, reason: DropReason) -> u64 {
        self.0[reason as usize]
    }

    /// Every reason that was counted at least once, with its count.
    pub fn iter(&self) -> impl Iterator<Item = (DropReason, u64)> + '_ {
        DropReason::ALL.iter().map(|&reason| (reason, self.of(reason))).filter(|&(_, n)| n > 0)
    }
}

/// What ends one session. The peer may start a new one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PeerError {
    /// The peer closed it.
    Closed(CloseCode),
    /// The peer sent a frame that must be understood and is not.
    UnknownFrame(u8),
    /// 2^30 datagrams were sealed under one epoch and no rekey succeeded.
    EpochExhausted,
    /// Nothing was heard for the whole of the persistence timeout.
    TimedOut,
}

impl fmt::Display for PeerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed(code) => write!(f, "closed by the peer: {code}"),
            Self::UnknownFrame(kind) => write!(f, "the peer sent an unknown frame {kind:#04x}"),
            Self::EpochExhausted => f.write_str("keys exhausted and no rekey succeeded"),
            Self::TimedOut => f.write_str("nothing heard for the whole persistence timeout"),
        }
    }
}

/// Why a session is closed, as one byte on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CloseCode {
    /// The user or operator asked for it.
    Requested,
    /// The peer's key was revoked.
    Revoked,
    /// The node is shutting down and will come back.
    Restarting,
    /// The peer broke the protocol.
    Protocol,
    /// A code of a later version.
    Other(u8),
}

impl CloseCode {
    /// The byte on the wire.
    pub(crate) const fn to_byte(self) -> u8 {
        match self {
            Self::Requested => 0,
            Self::Revoked => 1,
            Self::Restarting => 2,
            Self::Protocol => 3,
            Self::Other(code) => code,
        }
    }

    /// The code that a byte on the wire means.
    pub(crate) const fn from_byte(byte: u8) -> Self {
        match byte {
            0 => Self::Requested,
            1 => Self::Revoked,
            2 => Self::Restarting,
            3 => Self::Protocol,
            code => Self::Other(code),
        }
    }
}

impl fmt::Display for CloseCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Requested => f.write_str("on request"),
            Self::Revoked => f.write_str("this peer was revoked"),
            Self::Restarting => f.write_str("the node is restarting"),
            Self::Protocol => f.write_str("protocol violation"),
            Self::Other(code) => write!(f, "code {code}"),
        }
    }
}
