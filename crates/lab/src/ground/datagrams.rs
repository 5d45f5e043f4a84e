//! One flow of datagrams that sends as much as the network carries or more: at a constant rate, or
//! by QUIC.
//!
//! This module defines the request and its result. It does not know the backend.

use super::{Congestion, Receiver, Transfer, enclosed};
use crate::udp::{self, Heard, Quic, Side, Sink, Source};

/// A flow of datagrams through the tunnel.
#[derive(Clone, Copy, Debug)]
pub struct Datagrams {
    /// The receiver; the other side sends.
    pub to: Receiver,
    /// The content.
    pub what: What,
    /// Its length from the first datagram that arrives, in nanoseconds.
    pub length_ns: u64,
    /// Delays within this time after the first datagram do not count, in nanoseconds.
    pub skip_ns: u64,
}

/// The content of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Datagrams at a constant rate.
    Clock {
        /// Kilobits a second, with IPv4 and UDP header.
        kbps: u64,
    },
    /// A stream over a QUIC connection that the client opens.
    Quic {
        /// The congestion control of both ends.
        congestion: Congestion,
    },
}

/// The result.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DatagramsRun {
    /// Received data, each byte counted once. It never ends by itself, so it is not complete.
    pub transfer: Transfer,
    /// Median, 99th percentile and maximum of the delay in milliseconds; `None` for QUIC, whose
    /// packets do not tell when they were sent.
    pub delays_ms: Option<[f64; 3]>,
    /// Datagrams that arrived after one that was sent later.
    pub overtaken: u64,
    /// UDP payload of the longest datagram that arrived, in bytes; 0 if none did.
    pub longest: usize,
}

impl Datagrams {
    /// Bytes of payload of datagrams at a constant rate.
    pub const BYTES: u16 = 1_200;
    /// The longest time until the first datagram arrives, in nanoseconds.
    pub const OPENING_NS: u64 = 10_000_000_000;

    /// The client's end and the server's, which begin now.
    ///
    /// # Errors
    /// Why QUIC cannot begin.
    pub fn ends(&self, seed: u64, now_ns: u64) -> anyhow::Result<[udp::End; 2]> {
        Ok([self.end(Side::Client, seed, now_ns)?, self.end(Side::Server, seed, now_ns)?])
    }

    /// One of the two ends, which begins now.
    ///
    /// # Errors
    /// Why QUIC cannot begin.
    pub fn end(&self, side: Side, seed: u64, now_ns: u64) -> anyhow::Result<udp::End> {
        let receives = (self.to == Receiver::Client) == (side == Side::Client);
        // The client always sends first.
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
    /// The result of the packets until then, and of the error that ended it early, if any.
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
        Self { transfer, delays_ms, overtaken: heard.overtaken, longest: heard.longest }
    }
}
