//! What two programs say to each other by UDP: datagrams by the clock, or a stream over QUIC.
//!
//! Decides what leaves when, and what is made of what comes. What it refuses to know: what carries
//! it, and whose clock it is. Ends are told the time, in nanoseconds of one clock for both, and
//! take and give UDP payloads, so that real programs and those of virtual time are the same.

mod delays;
mod flood;
mod quic;

pub use delays::Delays;
pub use flood::{Sink, Source};
pub use quic::{Quic, Side};

use serde::{Deserialize, Serialize};

/// Bytes of IPv4 and UDP header in front of each payload.
pub const HEADERS: u16 = 28;
/// How far apart the notes of what had come are at least.
const NOTED_EVERY_NS: u64 = 5_000_000;

/// One of the two ends.
#[derive(Debug)]
pub enum End {
    /// Sends by the clock.
    Source(Source),
    /// Hears that.
    Sink(Box<Sink>),
    /// One of a QUIC connection.
    Quic(Box<Quic>),
}

/// What an end has heard.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Heard {
    /// When there was something to be heard first: the connection was open, or data came.
    pub opened_ns: Option<u64>,
    /// Bytes so far, each counted once.
    pub bytes: u64,
    /// How many there were, and when, to five milliseconds.
    pub progress: Vec<(u64, u64)>,
    /// Datagrams that came after one that was sent later.
    pub overtaken: u64,
    /// How long datagrams took, where that can be told.
    pub delays: Delays,
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

    /// Appends what leaves now.
    ///
    /// # Errors
    /// Why it goes on no more, or what it heard that nobody said.
    pub fn leaving(&mut self, now_ns: u64, out: &mut Vec<Vec<u8>>) -> Result<(), String> {
        match self {
            Self::Source(source) => source.leaving(now_ns, out),
            Self::Sink(sink) => sink.leaving(now_ns, out),
            Self::Quic(quic) => return quic.leaving(now_ns, out),
        }
        Ok(())
    }

    /// A payload has come.
    ///
    /// # Errors
    /// What is not as it was sent.
    pub fn arrives(&mut self, now_ns: u64, payload: &[u8]) -> Result<(), String> {
        match self {
            Self::Source(source) => source.arrives(now_ns),
            Self::Sink(sink) => return sink.arrives(now_ns, payload),
            Self::Quic(quic) => quic.arrives(now_ns, payload),
        }
        Ok(())
    }

    /// What it has heard, if it hears.
    pub fn heard(&self) -> Option<&Heard> {
        match self {
            Self::Source(_) => None,
            Self::Sink(sink) => Some(sink.heard()),
            Self::Quic(quic) => Some(quic.heard()),
        }
    }
}

impl Heard {
    /// So many bytes more have come.
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
