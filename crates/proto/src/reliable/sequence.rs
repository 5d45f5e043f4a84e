//! Sequences of inner packets that may arrive by several paths: numbered per flow bucket, so that
//! one flow's gap never concerns another's, and delivered once.

/// Flow buckets in one direction of a session.
pub const BUCKETS: usize = 16;
/// Numbers behind the newest of a bucket that are remembered.
const WINDOW: u32 = 128;

/// The sending side: the next number of each bucket.
#[derive(Clone, Debug, Default)]
pub struct SequenceSender {
    next: [u32; BUCKETS],
}

impl SequenceSender {
    /// The bucket of a flow with this hash, and the number of its next packet.
    pub const fn take(&mut self, flow_hash: u32) -> (u8, u32) {
        #[expect(clippy::cast_possible_truncation, reason = "below BUCKETS")]
        let bucket = (flow_hash % BUCKETS as u32) as u8;
        let next = &mut self.next[bucket as usize];
        let sequence = *next;
        *next = next.wrapping_add(1);
        (bucket, sequence)
    }
}

/// The receiving side: which numbers of each bucket were delivered.
#[derive(Clone, Debug, Default)]
pub struct SequenceReceiver {
    buckets: [Bucket; BUCKETS],
}

#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    newest: Option<u32>,
    /// Bit `i`: `newest - i` was delivered.
    delivered: u128,
}

impl SequenceReceiver {
    /// Whether the packet is to be delivered: seen for the first time, of a known bucket.
    pub fn accept(&mut self, bucket: u8, sequence: u32) -> bool {
        let Some(bucket) = self.buckets.get_mut(usize::from(bucket)) else { return false };
        let Some(newest) = bucket.newest else {
            *bucket = Bucket { newest: Some(sequence), delivered: 1 };
            return true;
        };
        let ahead = sequence.wrapping_sub(newest);
        if ahead != 0 && ahead <= u32::MAX / 2 {
            bucket.newest = Some(sequence);
            bucket.delivered = bucket.delivered.checked_shl(ahead).unwrap_or(0) | 1;
            return true;
        }
        let behind = newest.wrapping_sub(sequence);
        if behind >= WINDOW || bucket.delivered & (1 << behind) != 0 {
            return false;
        }
        bucket.delivered |= 1 << behind;
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn unknown_buckets_are_refused() {
        assert!(!SequenceReceiver::default().accept(16, 0));
    }

    proptest! {
        #[test]
        fn each_is_delivered_once(
            start in any::<u32>(),
            order in proptest::collection::vec(0u32..100, 1..300),
        ) {
            let mut receiver = SequenceReceiver::default();
            let mut seen = std::collections::BTreeSet::new();
            for offset in order {
                let accepted = receiver.accept(3, start.wrapping_add(offset));
                prop_assert_eq!(accepted, seen.insert(offset));
            }
        }
    }
}
