//! The programs' reports to the lab, one JSON object a line.

use crate::arrivals::Gap;
use crate::udp;
use serde::{Deserialize, Serialize};
use std::io::Write;

/// One line of a program's output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Report {
    /// A server accepts.
    Ready,
    /// A download is connected and has sent its request.
    Connected {
        /// When, on the shared clock, in nanoseconds.
        at_ns: u64,
    },
    /// A download continues.
    Progress {
        /// When this was reported, in nanoseconds.
        at_ns: u64,
        /// Bytes of content so far.
        bytes: u64,
        /// When the latest bytes arrived, in nanoseconds.
        latest_ns: u64,
        /// Pauses that ended since the last report.
        gaps: Vec<Gap>,
    },
    /// A download is complete.
    Downloaded(Download),
    /// A connection of many is open, at its receiver.
    Opened {
        /// Its number.
        connection: u32,
        /// When, on the shared clock, in nanoseconds.
        at_ns: u64,
    },
    /// A connection of many continues, at its receiver.
    Carried(Carried),
    /// A connection of many broke, as one of its ends reports.
    Broken {
        /// Its number.
        connection: u32,
        /// When, in nanoseconds.
        at_ns: u64,
        /// The kernel's error.
        error: String,
    },
    /// A line that was typed has come back.
    Echoed {
        /// When it was typed, in nanoseconds.
        typed_ns: u64,
        /// When it was seen, in nanoseconds.
        at_ns: u64,
    },
    /// A ping is over.
    Pinged(EchoStats),
    /// The called host has answered, or never did.
    Reached {
        /// When, on the shared clock, in nanoseconds.
        at_ns: Option<u64>,
    },
    /// Nobody answered a subscription.
    Unanswered,
    /// A flow is over.
    Flowed(FlowStats),
    /// A call is over, with the delays at one end.
    Heard(Heard),
    /// A flow of datagrams is over, with its result.
    Poured(Poured),
}

/// The report in a line of a program, if it is one.
pub fn report(line: &str) -> Option<Report> {
    serde_json::from_str(line).ok()
}

/// News of a connection, from its receiver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Carried {
    /// Its number.
    pub connection: u32,
    /// Bytes so far.
    pub bytes: u64,
    /// When the latest of them arrived, in nanoseconds.
    pub latest_ns: u64,
    /// Pauses that ended since the last report.
    pub gaps: Vec<Gap>,
    /// Whether all of it is correct.
    pub intact: bool,
    /// Whether that is all.
    pub complete: bool,
}

/// A complete download.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Download {
    /// When the last byte arrived, in nanoseconds.
    pub end_ns: u64,
    /// Bytes of content.
    pub bytes: u64,
    /// SHA-256 of the content, in lowercase hexadecimal.
    pub sha256: String,
    /// Pauses that ended since the last report.
    pub gaps: Vec<Gap>,
}

/// The result of a series of pings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EchoStats {
    /// Round trips in nanoseconds, in the order of sending; none where a datagram never came back.
    pub round_trips_ns: Vec<Option<u64>>,
}

/// The result of a flow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowStats {
    /// Datagrams that never arrived.
    pub lost: u64,
    /// When the first arrived, in nanoseconds; 0 if none did.
    pub first_ns: u64,
    /// When the last one arrived, in nanoseconds.
    pub last_ns: u64,
    /// All pauses of a millisecond and more.
    pub gaps: Vec<Gap>,
}

/// The delay of each datagram at one end, in nanoseconds; `None` if it never arrived.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Heard {
    /// In the order of sending.
    pub delays_ns: Vec<Option<u64>>,
}

/// The data of a flow until its time was over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Poured {
    /// The received data.
    pub heard: udp::Heard,
    /// When that was, in nanoseconds.
    pub end_ns: u64,
    /// The error that ended it early.
    pub broke: Option<String>,
}

/// Writes reports.
#[derive(Debug, Default)]
pub struct Reporter(());

impl Reporter {
    /// One that writes to the standard output.
    pub const fn new() -> Self {
        Self(())
    }

    /// Writes one line and flushes it, because the lab waits for it.
    ///
    /// # Errors
    /// If nobody reads any more, which ends the program.
    pub fn tell(&self, report: &Report) -> anyhow::Result<()> {
        let mut line = serde_json::to_string(report)?;
        line.push('\n');
        let mut out = std::io::stdout().lock();
        out.write_all(line.as_bytes())?;
        out.flush()?;
        Ok(())
    }
}
