//! Buffers to read into, which somebody may keep for a while.
//!
//! The kernel writes a super-packet into a buffer, and a part that keeps its payload keeps the
//! buffer in place of a copy. A free buffer is found by a look at the oldest ones.

use std::collections::VecDeque;
use std::sync::Arc;

use super::vnet::{PACKET_LEN_MAX, VNET_LEN};

/// How many of the oldest are looked at before there is one more.
const LOOKS: usize = 4;
/// Bytes of a line of the processor's cache.
#[cfg(target_arch = "x86_64")]
const LINE: usize = 64;

/// A place in a buffer.
#[derive(Clone, Copy, Debug)]
pub struct Home<'a> {
    /// The buffer; a clone of it keeps it.
    pub buffer: &'a Arc<[u8]>,
    /// Where in it.
    pub at: usize,
}

/// The buffer that will probably be taken next, if it lay idle for a while.
#[derive(Clone, Copy, Debug)]
pub(super) struct Next<'a>(&'a [u8]);

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

    /// What comes after the one that was taken.
    pub(super) fn next(&self) -> Next<'_> {
        let idle = self.list.front().filter(|buffer| Arc::strong_count(buffer) == 1);
        Next(idle.map_or(&[], |buffer| buffer))
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

impl Next<'_> {
    /// Brings a part of it into the processor's cache, in the shadow of other work: the kernel
    /// would wait for each line of it when it writes there. Where more is kept than that cache
    /// holds, its copying takes 9 % of a sending process's time so, and 15 % without (perf, 4
    /// Gbit/s).
    pub(super) fn fetch(self, at: usize, len: usize) {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
            let part = self.0.get(at..(at + len).min(self.0.len())).unwrap_or_default();
            for line in part.chunks(LINE) {
                // SAFETY: a hint without effect on memory; the address lies in the buffer.
                unsafe { _mm_prefetch::<_MM_HINT_ET0>(line.as_ptr().cast()) };
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = (self.0, at, len);
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

    #[test]
    fn only_one_that_lies_idle_is_fetched() {
        let mut buffers = Buffers::default();
        let taken = [buffers.take(), buffers.take()];
        assert!(buffers.next().0.is_empty(), "all are taken");
        let place = taken[0].as_ptr();
        let kept = taken[0].clone();
        taken.into_iter().for_each(|buffer| buffers.put_back(buffer));
        assert_ne!(buffers.next().0.as_ptr(), place);
        let second = buffers.take();
        assert!(buffers.next().0.is_empty(), "somebody keeps it");
        drop(kept);
        assert_eq!(buffers.next().0.as_ptr(), place);
        buffers.next().fetch(PACKET_LEN_MAX - 1, 1_400); // beyond its end there is nothing
        buffers.put_back(second);
    }
}
