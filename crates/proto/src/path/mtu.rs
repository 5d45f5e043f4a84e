//! Path MTU discovery by acknowledged probes alone, no ICMP needed (RFC 8899).
//!
//! A new path is assumed to carry [`BASE_DATAGRAM`]. Probes are challenges padded to a candidate
//! size; the first ride in the challenge flight. A path that shrinks shows as a small probe that
//! is answered while large data is not: the search begins again from the base.

use crate::time::{Duration, Instant};
use crate::wire::data::BASE_DATAGRAM;

/// Candidate sizes of UDP payload, largest first. The first carries an inner packet of 1,420 bytes
/// with any framing and fits 1,500 bytes with IPv6; the rest are steps down through common
/// encapsulations.
pub const CANDIDATES: [u16; 6] = [1_452, 1_412, 1_372, 1_332, 1_292, 1_262];
/// Losses of one size before it counts as too large.
const TRIES: u8 = 3;
/// A search that ended below the largest size is repeated after this long, while data flows.
pub const AGAIN: Duration = Duration::from_secs(600);

/// What is known of one path's MTU.
#[derive(Clone, Copy, Debug)]
pub struct MtuSearch {
    confirmed: usize,
    state: State,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// `CANDIDATES[candidate]` is being tried.
    Searching { candidate: usize, tries: u8 },
    /// Nothing larger than the confirmed size works; looked at again at this time.
    Settled { again: Instant },
}

impl Default for MtuSearch {
    fn default() -> Self {
        Self { confirmed: BASE_DATAGRAM, state: State::Searching { candidate: 0, tries: 0 } }
    }
}

impl MtuSearch {
    /// The UDP payload that the path is known to carry, in bytes.
    pub const fn datagram(&self) -> usize {
        self.confirmed
    }

    /// Whether probes are wanted now.
    pub const fn is_searching(&self) -> bool {
        matches!(self.state, State::Searching { .. })
    }

    /// The size of the next probe; `None` while none is wanted. Each call counts as one try.
    pub fn probe(&mut self, now: Instant) -> Option<usize> {
        if let State::Settled { again } = self.state {
            if now < again || self.confirmed >= usize::from(CANDIDATES[0]) {
                return None;
            }
            self.state = State::Searching { candidate: 0, tries: 0 };
        }
        let State::Searching { mut candidate, mut tries } = self.state else { return None };
        if tries >= TRIES {
            (candidate, tries) = (candidate + 1, 0);
        }
        let size = CANDIDATES.get(candidate).map(|&size| usize::from(size));
        if size.is_none_or(|size| size <= self.confirmed) {
            self.state = State::Settled { again: now + AGAIN };
            return None;
        }
        self.state = State::Searching { candidate, tries: tries + 1 };
        size
    }

    /// A datagram of `size` bytes was acknowledged.
    pub fn confirm(&mut self, now: Instant, size: usize) {
        if size <= self.confirmed {
            return;
        }
        self.confirmed = size;
        if size >= usize::from(CANDIDATES[0]) {
            self.state = State::Settled { again: now + AGAIN };
        }
    }

    /// Large datagrams vanish while small ones arrive, or the path changed underneath.
    pub fn restart(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a search over a path that carries at most `mtu`; returns what it finds.
    fn search(mtu: usize) -> (usize, u32) {
        let (mut search, mut probes) = (MtuSearch::default(), 0);
        while let Some(size) = search.probe(Instant::ZERO) {
            probes += 1;
            if size <= mtu {
                search.confirm(Instant::ZERO, size);
            }
        }
        (search.datagram(), probes)
    }

    #[test]
    fn finds_the_largest_size_that_fits() {
        assert_eq!(search(1_472), (1_452, 1));
        assert_eq!(search(1_400).0, 1_372);
        assert_eq!(search(1_300).0, 1_292);
        assert_eq!(search(1_232), (1_232, 18));
    }

    #[test]
    fn looks_again_later() {
        let mut search = MtuSearch::default();
        while search.probe(Instant::ZERO).is_some() {}
        assert_eq!(search.probe(Instant::ZERO + AGAIN - Duration::from_secs(1)), None);
        assert_eq!(search.probe(Instant::ZERO + AGAIN), Some(1_452));
    }

    #[test]
    fn a_shrunk_path_falls_to_the_base() {
        let mut search = MtuSearch::default();
        search.confirm(Instant::ZERO, 1_452);
        assert!(!search.is_searching());
        search.restart();
        assert_eq!(search.datagram(), BASE_DATAGRAM);
        assert!(search.is_searching());
    }
}
