//! What a test sees of an end without changing it.

use super::{Config, End, EndStats, Ending, Phase, State};
use crate::tcp::sender::{Repairing, SEND_BUFFER_MAX, Sender, SenderStats};

impl End {
    /// Where the connection is.
    pub fn state(&self) -> State {
        match self.phase {
            Phase::Listen => State::Listen,
            Phase::SynSent(_) => State::SynSent,
            Phase::SynReceived(_) => State::SynReceived,
            Phase::TimeWait { .. } => State::TimeWait,
            Phase::Closed(_) => State::Closed,
            Phase::Open => {
                let sender = &self.sender;
                match (sender.fin_sent, sender.is_finished(), self.receiver.is_finished()) {
                    (false, _, false) => State::Established,
                    (false, _, true) => State::CloseWait,
                    (true, false, false) => State::FinWait1,
                    (true, true, false) => State::FinWait2,
                    (true, _, true) if self.passive_close => State::LastAck,
                    (true, _, true) => State::Closing,
                }
            }
        }
    }

    /// How it is set up.
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// Why it is closed; `None` while it is not.
    pub const fn ending(&self) -> Option<Ending> {
        match self.phase {
            Phase::Closed(ending) => Some(ending),
            Phase::Listen
            | Phase::SynSent(_)
            | Phase::SynReceived(_)
            | Phase::Open
            | Phase::TimeWait { .. } => None,
        }
    }

    /// Bytes that have arrived in order since the beginning, read or not.
    pub const fn delivered(&self) -> u64 {
        self.receiver.delivered()
    }

    /// Bytes that may be read.
    pub fn unread(&self) -> usize {
        self.receiver.unread()
    }

    /// The other end has closed, and everything before that has arrived.
    pub fn is_read_closed(&self) -> bool {
        self.receiver.is_finished()
    }

    /// Bytes that [`End::write`] would take.
    pub fn writable(&self) -> usize {
        SEND_BUFFER_MAX.saturating_sub(self.sender.bytes.len())
    }

    /// Bytes that were written and are not acknowledged.
    pub fn unacknowledged(&self) -> usize {
        self.sender.bytes.len()
    }

    /// Bytes that were written and never sent.
    pub fn unsent(&self) -> usize {
        let Sender { bytes, una, next, .. } = &self.sender;
        bytes.len().saturating_sub((next - una) as usize)
    }

    /// The congestion window, in segments.
    pub const fn congestion_window(&self) -> u32 {
        self.sender.congestion.segments
    }

    /// The slow start threshold, in segments; `u32::MAX` before anything was lost.
    pub const fn threshold(&self) -> u32 {
        self.sender.congestion.threshold
    }

    /// Segments believed to be on their way.
    pub const fn in_flight(&self) -> u32 {
        self.sender.in_flight()
    }

    /// The window that the other end offered last, in bytes.
    pub const fn peer_window(&self) -> u64 {
        self.sender.window
    }

    /// The longest payload that it sends, in bytes.
    pub const fn mss(&self) -> u32 {
        self.sender.terms.mss
    }

    /// The smoothed round trip in nanoseconds; `None` before the first sample.
    pub const fn srtt_ns(&self) -> Option<u64> {
        self.sender.rtt.smoothed_ns()
    }

    /// The retransmission timeout in nanoseconds, back-off included.
    pub const fn rto_ns(&self) -> u64 {
        self.sender.rtt.rto_ns()
    }

    /// What is being repaired.
    pub const fn repairing(&self) -> Repairing {
        self.sender.recovery.state
    }

    /// What its sender counted.
    pub const fn sender_stats(&self) -> SenderStats {
        self.sender.stats
    }

    /// What it counted beside.
    pub const fn stats(&self) -> EndStats {
        self.stats
    }
}
