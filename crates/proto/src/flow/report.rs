//! What is told of every connection that is known, and of every flow of datagrams, for people: how
//! far it is, what is kept of it, and why no more.
//!
//! Told page by page: a gateway knows more connections than anybody reads, and whoever asks must
//! not keep packets waiting. Changes nothing, and says nothing that the machine itself does not go
//! by.

use std::fmt;

use super::classify::Class;
use super::overrides::Decided;
use super::priority::Level;
use super::rules::By;
use super::tuple::Tuple;
use crate::multipath::codel::Bound;
use crate::path::PathId;
use crate::time::Duration;

/// One connection at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowReport {
    /// Its two ends.
    pub tuple: Tuple,
    /// What it was recognised as.
    pub class: Class,
    /// How much it is preferred to others; only a client knows of more than one level.
    pub level: Level,
    /// What the user's rules say of it.
    pub decided: Decided,
    /// The window that the other end is shown so that others have their part, in bytes; `None`
    /// where that is this end's own.
    pub narrowed_to: Option<u32>,
    /// Who speaks for its other end.
    pub state: FlowState,
    /// How far it is.
    pub stage: Stage,
    /// What is kept of it here, in bytes: on a connection that is held in full, also what is on its
    /// way while all is well.
    pub held_bytes: usize,
    /// Bytes of these that were acknowledged in the other end's place, and that it does not have.
    pub owed_bytes: u32,
    /// How long ago anything came or went.
    pub idle: Duration,
    /// Where in its stream the other end has acknowledged this one's bytes, modulo 2^32; of
    /// datagrams, bytes of inner packets that were to leave.
    pub sent: u32,
    /// Where in its stream this end has acknowledged the other one's, modulo 2^32; of datagrams,
    /// bytes of inner packets that came.
    pub received: u32,
    /// The path that was chosen for it alone, if one was.
    pub path: Option<PathId>,
    /// What waits of it at the tunnel's entry; `None` where nothing waited there lately.
    pub queue: Option<Queue>,
    /// Why it is treated as it is.
    pub why: Why,
}

/// What waits at the tunnel's entry of a connection, and of others that share its bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Queue {
    /// Bytes of inner packets.
    pub bytes: usize,
    /// How long it may stand.
    pub bound: Bound,
}

/// Who speaks for the other end of a connection (Alshalan 2017, Figure 4.4).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum FlowState {
    /// It does itself, or nobody has to.
    Normal,
    /// There is no path: this node does, as far as it can.
    Suspended,
    /// There is a path again, and what did not arrive is being sent.
    Resuming,
    /// What this node owed is gone: both ends are told that the connection is over.
    Broken,
    /// There is a path, and this node answers ahead of it.
    Assisted,
}

/// How far a connection is (RFC 9293, 3.3.2, as it is seen from outside). What is missed least, if
/// there is no room for it, comes first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Stage {
    /// Reset, or ended by both ends: TIME-WAIT and CLOSED.
    Closed,
    /// One end has not answered yet: SYN-SENT and SYN-RECEIVED.
    Opening,
    /// One end has said its last word: FIN-WAIT and CLOSE-WAIT, or CLOSING and LAST-ACK.
    Closing,
    /// Both ends may send: ESTABLISHED.
    Established,
}

/// Why a connection is treated as it is; its text is a sentence for people.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Why {
    /// Its ends hear each other; all of it is kept when the path is lost.
    Carried,
    /// Its ends hear each other; when the path is lost no more than its oldest segments is kept.
    CarriedInPart(Because),
    /// Nothing is done for it.
    LeftAlone(By),
    /// There is no path, and nothing of this side's is on its way.
    Quiet,
    /// Kept; to be acknowledged as soon as that is written down.
    Recording,
    /// Kept, as nothing has to be acknowledged (yet).
    Kept,
    /// Kept and acknowledged in the other end's place.
    Acknowledged,
    /// Not all of it is kept, and so nothing is acknowledged; its oldest segments are.
    KeptInPart(Because),
    /// It has ended, and the other end has not heard yet.
    Ended,
    /// What was acknowledged in the other end's place is being sent to it.
    Delivering,
    /// What may not have arrived is being sent again.
    SentAgain,
    /// Acknowledged at the tunnel's entry, and delivered from there.
    Assisted,
    /// What was acknowledged in the other end's place is gone.
    Lost,
    /// Datagrams of somebody who speaks or is seen: of no use late, by what they look like.
    Spoken,
    /// Datagrams that are of no use late, by what the user says.
    Wanted,
    /// Datagrams that leave by every path.
    Raced,
    /// Datagrams that wait their turn among several paths.
    InTurn,
    /// They would leave early, and are too much for that.
    TooMuch,
    /// Datagrams that leave by the one path that there is.
    AtOnce,
    /// The gateway said that this peer may not send there.
    Refused,
    /// Somebody beyond the gateway said that nobody may.
    RefusedOnTheWay,
    /// Somebody said that there is no way.
    NoWay,
}

/// Why no more of a connection is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Because {
    /// It is not wanted.
    Chosen(By),
    /// It is not open yet.
    Opening,
    /// Its beginning was not seen.
    Midst,
    /// Nobody but its ends can make segments of it.
    ClosedToOthers,
    /// Its share of the memory is used up.
    Share,
    /// Its peer's share of the memory is used up, and other peers need the rest.
    PeerShare,
    /// The memory is used up.
    Memory,
    /// The memory is nearly used up, and it would gain little (Alshalan 2017, Equation 4.5).
    Worth,
    /// Something of it was not seen, or came damaged.
    Missing,
}

impl FlowReport {
    /// One path carries all there is: nothing was chosen for a flow.
    pub(crate) const fn leaves_alone(&mut self) {
        self.path = None;
        if matches!(self.why, Why::Spoken | Why::Wanted | Why::Raced | Why::InTurn | Why::TooMuch) {
            self.why = Why::AtOnce;
        }
    }
}

impl FlowState {
    /// The word for it.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Suspended => "suspended",
            Self::Resuming => "resuming",
            Self::Broken => "broken",
            Self::Assisted => "assisted",
        }
    }
}

impl Stage {
    /// The word for it.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Opening => "opening",
            Self::Established => "established",
            Self::Closing => "closing",
            Self::Closed => "closed",
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Carried => "carried; kept when its path is lost",
            Self::CarriedInPart(because) => {
                return write!(f, "carried; only sent again when its path is lost: {because}");
            }
            Self::LeftAlone(by) => return write!(f, "left alone: {by}"),
            Self::Quiet => "no path carries; nothing is on its way from this side",
            Self::Recording => "kept: no path carries; acknowledged once that is written down",
            Self::Kept => "kept: no path carries",
            Self::Acknowledged => "kept and acknowledged in the other end's place: no path carries",
            Self::KeptInPart(because) => {
                return write!(
                    f,
                    "no path carries; only its oldest segments are sent again: {because}"
                );
            }
            Self::Ended => "it has ended; no path carries its last words",
            Self::Delivering => "a path carries again; what was acknowledged here is on its way",
            Self::SentAgain => "a path carries again; what may be lost is sent again",
            Self::Assisted => "assisted: acknowledged here, and delivered from here",
            Self::Lost => "what was acknowledged here is gone: both ends are told that it is over",
            Self::Spoken => "it is RTP: leaves at once by the path that is earliest",
            Self::Wanted => "leaves at once by the path that is earliest, as qos.low_latency says",
            Self::Raced => "leaves by every path: the first answer counts",
            Self::InTurn => "waits its turn, and leaves as the scheduler says",
            Self::TooMuch => "too much to leave at once: waits its turn",
            Self::AtOnce => "leaves at once: one path carries",
            Self::Refused => "refused by the gateway: not among this peer's destinations",
            Self::RefusedOnTheWay => "refused beyond the gateway",
            Self::NoWay => "no way leads there, says a router",
        })
    }
}

impl fmt::Display for Because {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Chosen(by) => return by.fmt(f),
            Self::Opening => "it is not open yet",
            Self::Midst => "its beginning was not seen",
            Self::ClosedToOthers => "MPTCP, TCP-AO and MD5 let nobody in",
            Self::Share => "it has its share of the memory",
            Self::PeerShare => "this client has its share of the memory",
            Self::Memory => "the memory is full",
            Self::Worth => "memory is short, and it gains little",
            Self::Missing => "a part is missing",
        })
    }
}

impl fmt::Display for By {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Setting => f.write_str("as persistence.hold says"),
            Self::Rule(number) => write!(f, "as rule {number} says"),
            Self::Names => f.write_str("names are asked again"),
        }
    }
}
