//! Which flows send so much that their order is kept, with all that is small of it.
//!
//! What is small leaves before all that waits, but not before what its own flow sent: QUIC takes
//! what three datagrams overtook for lost (RFC 9002, 6.1.1), and there a whole queue is overtaken;
//! ESP drops what comes later than 64 others (RFC 4303, 3.4.3). TCP has numbers of its own for what
//! it acknowledges, so an acknowledgement may be early.
//!
//! For each bucket of hashes, the flow that sends the most in its turn is remembered. Flows without
//! ports have no record, but an order as well.

use super::tuple::bucket;
use crate::multipath::BUCKETS;
use crate::time::{Duration, Instant};

/// Who sent so many bytes keeps its order: what QUIC may send at first (RFC 9002, 7.2), and more
/// than a handshake pads or the search for the longest datagram takes.
const MUCH: u32 = 16_000;
/// And counts for as many at most, so that another flow takes its place in the bucket.
const MOST: u32 = 4 * MUCH;
/// Who sent nothing for so long has nothing left that could be overtaken: what waits at the entry
/// does so for less, if its sender listens, and so does a gap by most paths.
const REMEMBERED: Duration = Duration::from_secs(1);

/// The flow that sends most, by bucket.
#[derive(Clone, Debug, Default)]
pub(super) struct Order {
    /// One for each bucket, or none yet.
    senders: Vec<Sender>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sender {
    /// The hash of the flow.
    flow: u32,
    /// How many bytes it sent more than the others of its bucket.
    bytes: u32,
    /// When it sent the last of them.
    at: Instant,
}

impl Order {
    /// Whether what is small of the flow with this hash has to follow what is not.
    pub(super) fn is_kept(&self, now: Instant, flow: u32) -> bool {
        self.senders.get(usize::from(bucket(flow))).is_some_and(|sender| {
            sender.flow == flow && sender.bytes >= MUCH && !sender.is_forgotten(now)
        })
    }

    /// `len` bytes of the flow with this hash leave in their turn.
    pub(super) fn note(&mut self, now: Instant, flow: u32, len: usize) {
        self.senders.resize(BUCKETS, Sender::default());
        let sender = &mut self.senders[usize::from(bucket(flow))];
        let len = u32::try_from(len).unwrap_or(MOST);
        if sender.flow == flow && !sender.is_forgotten(now) {
            *sender = Sender { flow, bytes: sender.bytes.saturating_add(len).min(MOST), at: now };
        } else if sender.bytes <= len || sender.is_forgotten(now) {
            *sender = Sender { flow, bytes: len, at: now };
        } else {
            sender.bytes -= len; // majority vote (Boyer and Moore 1981)
        }
    }
}

impl Sender {
    fn is_forgotten(&self, now: Instant) -> bool {
        now.saturating_since(self.at) > REMEMBERED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORDERED: u32 = 0x1234_5607;
    const OTHER: u32 = 0x2345_6707;

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    /// So many full packets of a flow, one a millisecond.
    fn sent(order: &mut Order, flow: u32, from_ms: u64, count: u64) {
        (0..count).for_each(|one| order.note(at(from_ms + one), flow, 1_400));
    }

    #[test]
    fn the_order_of_who_sends_much_is_kept_for_as_long_as_it_does() {
        let mut order = Order::default();
        assert!(!order.is_kept(at(0), ORDERED));
        sent(&mut order, ORDERED, 0, 11);
        assert!(!order.is_kept(at(11), ORDERED), "a handshake");
        sent(&mut order, ORDERED, 11, 1);
        assert!(order.is_kept(at(12), ORDERED));
        assert!(!order.is_kept(at(12), OTHER), "its neighbour sends nothing else");
        assert!(order.is_kept(at(1_011), ORDERED));
        assert!(!order.is_kept(at(1_012), ORDERED), "all of it has arrived");
        sent(&mut order, ORDERED, 1_012, 1);
        assert!(!order.is_kept(at(1_012), ORDERED), "it begins anew");
    }

    #[test]
    fn who_sends_little_does_not_take_the_place_of_who_sends_much() {
        let mut order = Order::default();
        sent(&mut order, ORDERED, 0, 30);
        for ms in 30..100 {
            order.note(at(ms), if ms % 3 == 0 { OTHER } else { ORDERED }, 1_400);
            assert!(order.is_kept(at(ms), ORDERED), "{ms}");
        }
        sent(&mut order, OTHER, 100, 60);
        assert!(order.is_kept(at(160), OTHER) && !order.is_kept(at(160), ORDERED));
    }
}
