//! A destination that the gateway refuses: it says so to who sent the packet, and the other end
//! knows whose word that is.
//!
//! Without an answer an application waits for a minute or two; by this one (RFC 1812, 5.2.7.1;
//! RFC 4443, 3.1) its system tells it at once. The rate is limited (RFC 1812, 4.3.2.8; RFC 4443,
//! 2.4 f), and nothing is said of packets that the peer may not send at all: they may not be its
//! own.

use super::{Context, Peer, Role};
use crate::time::{Duration, Instant};
use crate::wire::icmp::{self, Unreached};
use crate::wire::inner::InnerPacket;

/// Answers in a row: those that a browser's many questions at once want.
const BURST: u32 = 16;
/// Time between two of them in the long run.
const EVERY: Duration = Duration::from_millis(50);

/// How often somebody was told.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    /// When nothing of the last ones would count any more: a bucket of tokens, told as the time at
    /// which it is full (ATM Forum TM 4.1, the virtual scheduling algorithm).
    full_at: Option<Instant>,
}

impl Refusals {
    /// Whether one more may be said now; it is.
    fn take(&mut self, now: Instant) -> bool {
        let full_at = self.full_at.map_or(now, |at| at.max(now));
        let allowed = full_at <= now + EVERY * (BURST - 1);
        if allowed {
            self.full_at = Some(full_at + EVERY);
        }
        allowed
    }
}

impl Peer {
    /// Gateway: a packet may not go where it wants to. Its sender is told.
    pub(super) fn refuse(&mut self, cx: &mut Context<'_>, packet: &InnerPacket<'_>) {
        let Some(from) = self.access.refuses_from(&packet.headers) else { return };
        let may_be_said = self.epochs.current.is_some() && icmp::may_be_answered(packet);
        if !may_be_said || !self.refusals.take(cx.now) {
            return;
        }
        let mut answer = Vec::new();
        icmp::prohibit(from, packet, &mut answer);
        let sent = InnerPacket::whole(&answer).and_then(|answer| self.send_inner(cx, &answer));
        if let Err(reason) = sent {
            cx.drops.count(reason);
        }
    }

    /// Client: somebody may say that a packet did not get where it should. What the connection that
    /// it is of has to say of that is told to people, and nothing else follows from it: their
    /// system judges by itself.
    pub(super) fn hear_refusal(&mut self, packet: &InnerPacket<'_>) {
        if !matches!(packet.headers.protocol, icmp::ICMP | icmp::ICMPV6) {
            return;
        }
        let Role::Client(connector) = &self.role else { return };
        let gateway = connector.lease.as_ref().map_or(&[][..], |lease| &lease.gateway);
        if let Some(unreached) = Unreached::parse(packet) {
            self.flows.hear_unreached(&unreached, gateway.contains(&unreached.by));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_at_once_and_then_so_many_a_second() {
        let mut refusals = Refusals::default();
        let start = Instant::from_nanos(7_000_000_000);
        let mut said = 0;
        for ms in 0..10_000 {
            said += u32::from(refusals.take(start + Duration::from_millis(ms)));
        }
        assert_eq!(said, BURST + 9_999 / 50);
        let later = start + Duration::from_secs(60);
        assert_eq!((0..100).filter(|_| refusals.take(later)).count(), BURST as usize);
    }
}
