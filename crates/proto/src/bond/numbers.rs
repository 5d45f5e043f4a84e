//! The sender's half of a sequence: which number a packet gets. [`super::reorder`] is the other.

use super::BUCKETS;

/// The next number of each bucket's sequence, in one direction of an epoch.
#[derive(Clone, Debug, Default)]
pub struct Numbers {
    next: Vec<u32>,
}

impl Numbers {
    /// The number of the bucket's next packet.
    pub fn take(&mut self, bucket: u8) -> u32 {
        self.next.resize(BUCKETS, 0);
        let next = &mut self.next[usize::from(bucket)];
        let number = *next;
        *next = number.wrapping_add(1);
        number
    }

    /// How many numbers of the bucket were taken; wraps.
    pub fn taken(&self, bucket: u8) -> u32 {
        self.next.get(usize::from(bucket)).copied().unwrap_or(0)
    }
}
