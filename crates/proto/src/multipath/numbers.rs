//! The sender's half of the sequences: which number a packet gets. [`super::reorder`] is the other.

use super::bucket::BUCKETS;
use crate::wire::frame::Framing;

/// The next numbers of each bucket, in one direction of an epoch.
#[derive(Clone, Debug, Default)]
pub struct Numbers {
    once: Vec<u32>,
    in_order: Vec<u32>,
}

impl Numbers {
    /// Numbers the bucket's next packet that is delivered as it arrives.
    pub fn once(&mut self, bucket: u8) -> Framing {
        Framing::Once { bucket, sequence: take(&mut self.once, bucket) }
    }

    /// The number of the bucket's next packet that is delivered in order.
    pub fn in_order(&mut self, bucket: u8) -> u32 {
        take(&mut self.in_order, bucket)
    }

    /// How many of those the bucket took; wraps.
    pub fn taken(&self, bucket: u8) -> u32 {
        self.in_order.get(usize::from(bucket)).copied().unwrap_or(0)
    }
}

fn take(sequences: &mut Vec<u32>, bucket: u8) -> u32 {
    sequences.resize(BUCKETS, 0);
    let next = &mut sequences[usize::from(bucket)];
    let number = *next;
    *next = number.wrapping_add(1);
    number
}
