//! The handshake: SYN, SYN that acknowledges, acknowledgment (RFC 9293, 3.5), and how often the
//! first two leave again (`tcp_syn_retries`, `tcp_synack_retries`, `tcp_syn_linear_timeouts`).

use super::rtt::RTO_FIRST_NS;
use super::wheel::fires_ns;

/// Timeouts of a SYN that are not doubled (`tcp_syn_linear_timeouts`).
pub(super) const LINEAR: u32 = 4;

/// A SYN that is not acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Opening {
    /// When it left last, and how often.
    sent_ns: u64,
    pub(super) sent: u32,
    /// When it leaves again.
    pub(super) again_ns: u64,
}

impl Opening {
    /// One that leaves now.
    pub(super) const fn new(now_ns: u64) -> Self {
        Self { sent_ns: now_ns, sent: 0, again_ns: now_ns }
    }

    /// The round trip, if it left once only (Karn).
    pub(super) fn rtt_ns(self, now_ns: u64) -> Option<u64> {
        (self.sent == 1).then(|| now_ns.saturating_sub(self.sent_ns))
    }

    /// It left more than twice (`tcp_init_transfer`).
    pub(super) const fn was_hard(self) -> bool {
        self.sent > 2
    }

    /// Leaves now; the first `linear` timeouts are alike, and none is longer than `rto_max_ns`.
    pub(super) fn sends(&mut self, now_ns: u64, linear: u32, rto_max_ns: u64) {
        let doubled = self.sent.saturating_sub(linear).min(16);
        self.sent_ns = now_ns;
        self.sent += 1;
        self.again_ns = fires_ns(now_ns, (RTO_FIRST_NS << doubled).min(rto_max_ns));
    }
}
