//! UDP traffic between two programs: datagrams at a constant rate, or a stream over QUIC.
//!
//! This module decides when a datagram leaves, and evaluates received ones. It knows neither the
//! network nor the clock. Both ends get the time in nanoseconds of one clock, and take and return
//! UDP payloads, so that real programs and those of virtual time are the same.

mod delays;
mod flood;
mod quic;

pub use delays::Delays;
pub use flood::{Sink, Source};
pub use quic::{Quic, Side};

use serde::{Deserialize, Serialize};

/// Bytes of IPv4 and UDP header in front of each payload.
pub const HEADERS: u16 = 28;
/// The least time between two notes of progress.
const NOTED_EVERY_NS: u64 = 5_000_000;

/// One of the two ends.
#[derive(Debug)]
pub enum End {
    /// Sends at a constant rate.
    Source(Source),
    /// Receives that.
    Sink(Box<Sink>),
    /// One of a QUIC connection.
    Quic(Box<Quic>),
}

/// What an end has received.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Heard {
    /// The first event: the connection was open, or data arrived.
    pub opened_ns: Option<u64>,
    /// Bytes so far, each byte counted once.
    pub bytes: u64,
    /// Time and number of bytes, every five milliseconds at most.
    pub progress: Vec<(u64, u64)>,
    /// Datagrams that arrived after one that was sent later.
    pub overtaken: u64,
    /// Delays of datagrams, if they are known.
    pub delays: Delays,
    /// Bytes of the longest payload; 0 if none arrived.
    pub longest: usize,
}

impl End {
    /// When it has something to do next.
    pub fn due_ns(&mut self) -> Option<u64> {
        match self {
            Self::Source(source) => source.due_ns(),
            Self::Sink(sink) => sink.due_ns(),
            Self::Quic(quic) => quic.due_ns(),
        }
    }

    /// Appends the payloads that leave now.
    ///
    /// # Errors
    /// Why it does not continue, or data that nobody sent.
    pub fn leaving(&mut self, now_ns: u64, out: &mut Vec<Vec<u8>>) -> Result<(), String> {
        match self {
            Self::Source(source) => source.leaving(now_ns, out),
            Self::Sink(sink) => sink.leaving(now_ns, out),
            Self::Quic(quic) => return quic.leaving(now_ns, out),
        }
        Ok(())
    }

    /// A payload has arrived.
    ///
    /// # Errors
    /// Data that differs from what was sent.
    pub fn arrives(&mut self, now_ns: u64, payload: &[u8]) -> Result<(), String> {
        match self {
            Self::Source(source) => source.arrives(now_ns),
            Self::Sink(sink) => return sink.arrives(now_ns, payload),
            Self::Quic(quic) => quic.arrives(now_ns, payload),
        }
        Ok(())
    }

    /// What it has received, if it receives.
    pub fn heard(&self) -> Option<&Heard> {
        match self {
            Self::Source(_) => None,
            Self::Sink(sink) => Some(sink.heard()),
            Self::Quic(quic) => Some(quic.heard()),
        }
    }
}

impl Heard {
    /// Notes the length of a payload.
    fn note_length(&mut self, payload: &[u8]) {
        self.longest = self.longest.max(payload.len());
    }

    /// Notes received bytes.
    fn note(&mut self, now_ns: u64, bytes: u64) {
        self.bytes += bytes;
        match self.progress.last_mut() {
            Some((at_ns, so_far)) if now_ns < *at_ns + NOTED_EVERY_NS => *so_far = self.bytes,
            Some(_) | None => self.progress.push((now_ns, self.bytes)),
        }
    }
}

#[cfg(test)]
mod tests;
