//! TCP connections whose ends are real or modelled, what is said over them, and what became of it.
//!
//! Decides what a story may ask for: who says how much how fast, how each end behaves, and what
//! counts as an outage. What it refuses to know: who carries it out.

use super::{Receiver, Route, Transfer};
use crate::emu::{MS, SECOND};

/// TCP connections of one kind, which the client opens to the server at the same time.
#[derive(Clone, Copy, Debug)]
pub struct Connections {
    /// Over which route.
    pub route: Route,
    /// To which of the server's addresses, below [`Self::SERVERS`]; by the open route there is
    /// one.
    pub server: u8,
    /// How many.
    pub count: u32,
    /// Who receives; the other one sends.
    pub to: Receiver,
    /// Bytes over each.
    pub length: u64,
    /// How fast they are said.
    pub pace: Pace,
    /// By what both ends control their rate.
    pub congestion: Congestion,
    /// When the server gives up.
    pub patience: Patience,
}

/// How fast the sender's program speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// As fast as TCP takes it.
    Full,
    /// So many bytes every so many nanoseconds; what TCP did not take in time follows at once.
    Pieces {
        /// Bytes.
        bytes: u32,
        /// Nanoseconds.
        every_ns: u64,
    },
}

/// Congestion control, by the kernel's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Congestion {
    /// NewReno (RFC 6582).
    Reno,
    /// CUBIC (RFC 9438).
    Cubic,
    /// BBR, of the version that the kernel has.
    Bbr,
}

/// When the server's end gives a silent client up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Patience {
    /// After so many retransmissions (`tcp_retries2`); the kernel's 15 where nothing is said. Holds
    /// for all connections of the server at that time.
    pub retries: Option<u32>,
    /// After keep-alives as in [`KeepAlive::THESIS`] that were not answered; otherwise it asks
    /// never.
    pub keeps_alive: bool,
}

/// Keep-alives of one end (RFC 9293, section 3.8.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepAlive {
    /// Silence before the first one, in seconds.
    pub time_s: u64,
    /// Between two, in seconds.
    pub interval_s: u64,
    /// How many without an answer end the connection.
    pub probes: u32,
}

/// An interactive session over one connection: the client types lines and sees each come back, the
/// server says something of its own every so often. Both know exactly what is to come.
#[derive(Clone, Copy, Debug)]
pub struct Session {
    /// Lines typed before the pause.
    pub before: u32,
    /// How long nothing is typed, in nanoseconds.
    pub pause_ns: u64,
    /// Lines typed after it.
    pub after: u32,
    /// Between two lines typed, in nanoseconds.
    pub typed_every_ns: u64,
    /// Lines that the server says by itself.
    pub said: u32,
    /// Between two of them, in nanoseconds.
    pub said_every_ns: u64,
    /// When the server gives up.
    pub patience: Patience,
}

/// How an interactive session went.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SessionRun {
    /// Everything that came to the client; intact where every line came once, whole and in order.
    pub transfer: Transfer,
    /// From typing each line to seeing it, for those that were seen: when it was typed, and how
    /// long that took, in nanoseconds.
    pub echoes: Vec<(u64, u64)>,
}

impl Connections {
    /// Addresses of the server, of which the first is that of everything else.
    pub const SERVERS: u8 = 3;
    /// How long one may take to open before its time counts, in nanoseconds.
    pub const OPENING_NS: u64 = 5 * SECOND;

    /// One through the tunnel that is as fast as can be, by CUBIC.
    pub const fn bulk(to: Receiver, length: u64) -> Self {
        let patience = Patience { retries: None, keeps_alive: false };
        let (route, congestion) = (Route::Tunnelled, Congestion::Cubic);
        Self { route, server: 0, count: 1, to, length, pace: Pace::Full, congestion, patience }
    }

    /// The same with more than links of so many Mbit/s let through in so many nanoseconds, however
    /// long it takes to open: its end says nothing, the rate until then does.
    pub const fn outlasting(to: Receiver, mbps: u64, length_ns: u64) -> Self {
        let milliseconds = (length_ns + Self::OPENING_NS).div_ceil(MS);
        Self::bulk(to, mbps * 1_000 / 8 * milliseconds)
    }
}

impl Congestion {
    /// The kernel's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reno => "reno",
            Self::Cubic => "cubic",
            Self::Bbr => "bbr",
        }
    }
}

impl KeepAlive {
    /// Those of Alshalan's thesis, Table 4.1.
    pub const THESIS: Self = Self { time_s: 10, interval_s: 5, probes: 3 };
}

impl Session {
    /// How long it lasts where nothing goes wrong, in nanoseconds.
    pub const fn length_ns(&self) -> u64 {
        let typed_ns = (self.before + self.after) as u64 * self.typed_every_ns + self.pause_ns;
        let said_ns = self.said as u64 * self.said_every_ns;
        if typed_ns > said_ns { typed_ns } else { said_ns }
    }
}
