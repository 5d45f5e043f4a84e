//! One flow of datagrams that has more to carry than there is room for: by the clock, or as much
//! as QUIC finds there is.
//!
//! Decides what may be asked for and what is told of it. What it refuses to know: who carries it
//! out.

use super::{Congestion, Receiver, Transfer, enclosed};
use crate::udp::{self, Heard, Quic, Side, Sink, Source};

/// A flow of datagrams through the tunnel.
#[derive(Clone, Copy, Debug)]
pub struct Datagrams {
    /// Who receives; the other one sends.
    pub to: Receiver,
    /// What is sent.
    pub what: What,
    /// For how long from the first that is heard, in nanoseconds.
    pub length_ns: u64,
    /// Within how long after the first their delays do not count, in nanoseconds.
    pub skip_ns: u64,
}

/// What is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Datagrams by the clock.
    Clock {
        /// How many kilobits a second these are, with IPv4 and UDP header.
        kbps: u64,
    },
    /// A stream over a QUIC connection, which the client opens.
    Quic {
        /// By what both ends control their rate.
        congestion: Congestion,
    },
}

/// How it went.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DatagramsRun {
    /// What came, each byte counted once. It never ends by itself, so it is not complete.
    pub transfer: Transfer,
    /// Within how many milliseconds half of the datagrams came, 99 of 100, and all; `None` for what
    /// QUIC carries, which tells nobody when it was sent.
    pub delays_ms: Option<[f64; 3]>,
    /// Datagrams that came after one that was sent later.
    pub overtaken: u64,
}

impl Datagrams {
    /// Bytes of payload of those that are sent by the clock.
    pub const BYTES: u16 = 1_200;
    /// How long it may take until the first is heard, in nanoseconds.
    pub const OPENING_NS: u64 = 10_000_000_000;

    /// The client's end, and the server's, which begin now.
    ///
    /// # Errors
    /// What keeps QUIC from beginning.
    pub fn ends(&self, seed: u64, now_ns: u64) -> anyhow::Result<[udp::End; 2]> {
        Ok([self.end(Side::Client, seed, now_ns)?, self.end(Side::Server, seed, now_ns)?])
    }

    /// One of the two, which begins now.
    ///
    /// # Errors
    /// What keeps QUIC from beginning.
    pub fn end(&self, side: Side, seed: u64, now_ns: u64) -> anyhow::Result<udp::End> {
        let receives = (self.to == Receiver::Client) == (side == Side::Client);
        // The first word is always the client's.
        let begins_ns = (side == Side::Client).then_some(now_ns);
        Ok(match self.what {
            What::Clock { kbps } if !receives => {
                udp::End::Source(Source::new(kbps, Self::BYTES, begins_ns))
            }
            What::Clock { .. } => {
                udp::End::Sink(Box::new(Sink::new(Self::BYTES, begins_ns, self.skip_ns)))
            }
            What::Quic { congestion } => {
                let end = Quic::new(side, !receives, congestion, seed, now_ns)?;
                udp::End::Quic(Box::new(end))
            }
        })
    }
}

impl DatagramsRun {
    /// What follows from what was heard until then, and from what ended it early, if anything did.
    pub fn of(heard: Heard, end_ns: u64, broke: Option<String>) -> Self {
        let start_ns = heard.opened_ns.unwrap_or(end_ns);
        let span = heard.progress.first().zip(heard.progress.last());
        let arrived = span.map(|(first, last)| (first.0, last.0));
        let delays = [0.5, 0.99, 1.0].map(|share| heard.delays.within_ms(share));
        let delays_ms = match delays {
            [Some(half), Some(most), Some(all)] => Some([half, most, all]),
            _ => None,
        };
        let transfer = Transfer {
            start_ns,
            end_ns,
            complete: false,
            intact: broke.is_none(),
            sha256: None,
            progress: heard.progress,
            gaps: enclosed(start_ns, end_ns, arrived, Vec::new()),
            moments: Vec::new(),
            broke,
            segments: None,
        };
        Self { transfer, delays_ms, overtaken: heard.overtaken }
    }
}
