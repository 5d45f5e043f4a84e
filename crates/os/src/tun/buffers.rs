//! What is read into: buffers that somebody may keep for a while.
//!
//! A super-packet is written by the kernel, and not copied again for whoever keeps its payload.
//! Which buffers are kept no longer is found by looking at the oldest.

use std::collections::VecDeque;
use std::sync::Arc;

use super::PACKET_LEN_MAX;
use super::vnet::VNET_LEN;

/// How many of the oldest are looked at before there is one more.
const LOOKS: usize = 4;

/// A place in a buffer.
#[derive(Clone, Copy, Debug)]
pub struct Home<'a> {
    /// The buffer; a clone of it keeps it.
    pub buffer: &'a Arc<[u8]>,
    /// Where in it.
    pub at: usize,
}

/// Buffers that are kept, or were.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    list: VecDeque<Arc<[u8]>>,
}

impl Buffers {
    /// A buffer that nobody keeps.
    pub(super) fn take(&mut self) -> Arc<[u8]> {
        for _ in 0..LOOKS.min(self.list.len()) {
            if let Some(mut oldest) = self.list.pop_front() {
                if Arc::get_mut(&mut oldest).is_some() {
                    return oldest;
                }
                self.list.push_back(oldest);
            }
        }
        Arc::from(vec![0; VNET_LEN + PACKET_LEN_MAX])
    }

    /// One that was taken, kept by somebody now or not.
    pub(super) fn put_back(&mut self, mut buffer: Arc<[u8]>) {
        if Arc::get_mut(&mut buffer).is_some() {
            self.list.push_front(buffer); // and taken first: it is in the processor's cache
        } else {
            self.list.push_back(buffer);
        }
    }

    /// Forgets those that nobody keeps, but one.
    pub(super) fn rest(&mut self) {
        let mut spare = 0;
        self.list.retain_mut(|buffer| {
            spare += usize::from(Arc::get_mut(buffer).is_some());
            Arc::strong_count(buffer) > 1 || spare <= 1
        });
        self.list.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_not_written_to_and_comes_back() {
        let mut buffers = Buffers::default();
        let first = buffers.take();
        let place = first.as_ptr();
        buffers.put_back(first);
        let first = buffers.take();
        assert_eq!(first.as_ptr(), place, "nobody kept it");
        let kept = first.clone();
        buffers.put_back(first);
        let second = buffers.take();
        assert_ne!(second.as_ptr(), place);
        buffers.put_back(second);
        drop(kept);
        buffers.put_back(Arc::from(vec![0; 8]));
        buffers.rest();
        assert_eq!(buffers.list.len(), 1);
    }

    #[test]
    fn one_that_is_kept_for_long_hides_no_others() {
        let mut buffers = Buffers::default();
        let mut kept = Vec::new();
        for _ in 0..20 {
            let buffer = buffers.take();
            kept.push(buffer.clone());
            buffers.put_back(buffer);
        }
        kept.truncate(1);
        for _ in 0..100 {
            let buffer = buffers.take();
            let last = buffer.clone();
            buffers.put_back(buffer);
            drop(last);
        }
        assert_eq!(buffers.list.len(), 20);
    }
}
