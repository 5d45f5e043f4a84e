//! TCP connections with real or modelled ends, the data over them, and their results.
//!
//! This module defines what a scenario may ask for: the amount and pace of data, the behaviour of
//! each end, and what counts as an outage. It does not know the backend.

use super::{Receiver, Route, Transfer};
use crate::emu::{MS, SECOND};
use crate::tcp::Content;

/// TCP connections of one kind, which the client opens to the server at the same time.
#[derive(Clone, Copy, Debug)]
pub struct Connections {
    /// The route.
    pub route: Route,
    /// The server's address, below [`Self::SERVERS`]; on the open route there is one.
    pub server: u8,
    /// The version of IP that both ends use. Version 6 in virtual time only, through the tunnel.
    pub version: Version,
    /// Number of connections.
    pub count: u32,
    /// The receiver; the other side sends.
    pub to: Receiver,
    /// Bytes over each.
    pub length: u64,
    /// The pace of the sender's program.
    pub pace: Pace,
    /// The congestion control of both ends.
    pub congestion: Congestion,
    /// When the server gives up.
    pub patience: Patience,
    /// The bytes that the sender sends. Other content than random bytes in virtual time only.
    pub content: Content,
}

/// A version of IP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    /// IPv4.
    #[default]
    V4,
    /// IPv6.
    V6,
}

/// The pace of the sender's program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// As fast as TCP takes it.
    Full,
    /// This number of bytes at a time. Bytes that TCP did not take in time follow at once.
    Pieces {
        /// Bytes.
        bytes: u32,
        /// Time between two pieces, in nanoseconds.
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
    /// BBR, in the kernel's version.
    Bbr,
}

/// When the server gives up a silent client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Patience {
    /// After this number of retransmissions (`tcp_retries2`); by default the kernel's 15. Holds for
    /// all connections of the server at that time.
    pub retries: Option<u32>,
    /// After unanswered keepalives as in [`KeepAlive::THESIS`]; otherwise it sends none.
    pub keeps_alive: bool,
}

/// Keepalives of one end (RFC 9293, section 3.8.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepAlive {
    /// Silence before the first one, in seconds.
    pub time_s: u64,
    /// Time between two, in seconds.
    pub interval_s: u64,
    /// Number of unanswered keepalives that ends the connection.
    pub probes: u32,
}

/// An interactive session over one connection. The client types lines and sees each come back, and
/// the server sends lines of its own. Both know exactly which bytes to expect.
#[derive(Clone, Copy, Debug)]
pub struct Session {
    /// Lines typed before the pause.
    pub before: u32,
    /// Pause without typing, in nanoseconds.
    pub pause_ns: u64,
    /// Lines typed after it.
    pub after: u32,
    /// Time between two typed lines, in nanoseconds.
    pub typed_every_ns: u64,
    /// Lines that the server sends by itself.
    pub said: u32,
    /// Time between two of them, in nanoseconds.
    pub said_every_ns: u64,
    /// When the server gives up.
    pub patience: Patience,
}

/// The result of an interactive session.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SessionRun {
    /// Everything that the client received; intact if every line arrived once, whole and in order.
    pub transfer: Transfer,
    /// For each line that came back: when it was typed, and the time until it was seen, in
    /// nanoseconds.
    pub echoes: Vec<(u64, u64)>,
}

impl Connections {
    /// Addresses of the server; the first is that of all other traffic.
    pub const SERVERS: u8 = 3;
    /// The longest time that a connection may take to open before its time counts, in nanoseconds.
    pub const OPENING_NS: u64 = 5 * SECOND;

    /// One connection through the tunnel, as fast as possible, with CUBIC.
    pub const fn bulk(to: Receiver, length: u64) -> Self {
        let patience = Patience { retries: None, keeps_alive: false };
        let (route, congestion) = (Route::Tunnelled, Congestion::Cubic);
        let (pace, content, version) = (Pace::Full, Content::Random, Version::V4);
        Self {
            route,
            server: 0,
            version,
            count: 1,
            to,
            length,
            pace,
            congestion,
            patience,
            content,
        }
    }

    /// The same, with more data than links of this rate carry in this time, however long it takes
    /// to open. Its end says nothing; only the rate until then counts.
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
    /// The values of Alshalan's thesis, Table 4.1.
    pub const THESIS: Self = Self { time_s: 10, interval_s: 5, probes: 3 };
}

impl Session {
    /// Its length if nothing fails, in nanoseconds.
    pub const fn length_ns(&self) -> u64 {
        let typed_ns = (self.before + self.after) as u64 * self.typed_every_ns + self.pause_ns;
        let said_ns = self.said as u64 * self.said_every_ns;
        if typed_ns > said_ns { typed_ns } else { said_ns }
    }
}
