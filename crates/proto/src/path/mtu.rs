//! Path MTU discovery by acknowledged probes alone, no ICMP needed (RFC 8899,
//! docs/spec/wire.md#mtu).
//!
//! A new path is assumed to carry `BASE_DATAGRAM`. Probes are challenges padded to a candidate
//! size; the first ride in the challenge flight. A path that may have shrunk (large data vanishes
//! while small datagrams arrive) is doubted first: what it carried is probed again, and only when
//! that is lost the search goes on below. A burst of loss, or a minute in a tunnel, looks the same
//! at first, and to cut every packet in two is what an overloaded path can bear least. What was
//! measured a while before data comes to a path is doubted as well.
//!
//! Data that arrives is a probe of its own size (RFC 8899, 4.1), and where a queue is full perhaps
//! the only one: that has room for the size that goes by it all the time, seldom for a larger one.

use crate::time::{Duration, Instant};
use crate::wire::data::{BASE_DATAGRAM, MAX_DATAGRAM};

/// Candidate sizes of UDP payload, largest first. The first carries an inner packet of 1,420 bytes
/// with any framing and fits 1,500 bytes with IPv6. The rest are steps down through common
/// encapsulations. The seventh fits the 1,280 bytes that every IPv6 path carries.
pub(crate) const CANDIDATES: [u16; 9] =
    [1_452, 1_412, 1_372, 1_332, 1_292, 1_262, 1_232, 1_192, 1_144];
/// Losses of one size before it counts as too large.
const TRIES: u8 = 3;
/// A search that ended below the largest size is repeated after this long, while bulk data flows;
/// the pause doubles with each,
pub(crate) const AGAIN_FIRST: Duration = Duration::from_secs(10);
/// up to this (RFC 8899, 5.1.1).
pub(crate) const AGAIN_MAX: Duration = Duration::from_secs(600);

/// A size that was acknowledged within this time is trusted to be carried still.
const MEASURED: Duration = Duration::from_secs(20);

/// What is known of one path's MTU.
#[derive(Clone, Copy, Debug)]
pub struct MtuSearch {
    confirmed: usize,
    /// When the confirmed size was last acknowledged.
    measured: Instant,
    state: State,
    /// The pause after the next search that ends below the largest size.
    pause: Duration,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// `CANDIDATES[candidate]` is being tried.
    Searching { candidate: usize, tries: u8 },
    /// Nothing larger than the confirmed size works; looked at again at this time.
    Settled { again: Instant },
    /// The path may no longer carry the confirmed size, which is tested again. `arrived` is the
    /// largest data size that arrived since. `vanishes`: large datagrams were lost while small ones
    /// arrived.
    Doubted { tries: u8, arrived: usize, vanishes: bool },
}

impl Default for MtuSearch {
    fn default() -> Self {
        Self {
            confirmed: BASE_DATAGRAM,
            measured: Instant::ZERO,
            state: State::Searching { candidate: 0, tries: 0 },
            pause: AGAIN_FIRST,
        }
    }
}

impl MtuSearch {
    /// A stream carries every datagram that there is.
    pub(crate) fn of_stream() -> Self {
        let state = State::Settled { again: Instant::ZERO };
        Self { confirmed: MAX_DATAGRAM, state, ..Self::default() }
    }

    /// The UDP payload that the path is known to carry, in bytes.
    pub(crate) const fn datagram(&self) -> usize {
        self.confirmed
    }

    /// The UDP payload that the path probably carries, in bytes: what its first probe has, until
    /// that is answered or lost. Connections that open with a session keep their segment size, and
    /// most paths carry the largest.
    pub(crate) fn expected(&self) -> usize {
        match self.state {
            State::Searching { candidate: 0, tries: 0..=1 } if self.pause == AGAIN_FIRST => {
                CANDIDATES[0].into()
            }
            State::Searching { .. } | State::Settled { .. } | State::Doubted { .. } => {
                self.confirmed
            }
        }
    }

    /// Whether the loss of a datagram of `size` bytes says something about the path, and nothing
    /// about its MTU.
    pub(crate) const fn surely_carries(&self, size: usize) -> bool {
        match self.state {
            State::Doubted { .. } => size <= BASE_DATAGRAM,
            State::Searching { .. } | State::Settled { .. } => size <= self.confirmed,
        }
    }

    /// Whether the search has ended; another one is for when data flows.
    pub(crate) const fn is_settled(&self) -> bool {
        matches!(self.state, State::Settled { .. })
    }

    /// Whether the search has ended, and so long ago that the path may have shrunk since.
    pub(crate) fn is_stale(&self, now: Instant) -> bool {
        self.is_settled() && self.measured + MEASURED <= now
    }

    /// Whether a probe is wanted now.
    pub(crate) fn wants_probe(&self, now: Instant) -> bool {
        match self.state {
            State::Searching { .. } | State::Doubted { .. } => true,
            State::Settled { again } => now >= again && !self.is_largest(),
        }
    }

    /// The size of the next probe; `None` while none is wanted. Each call counts as one try.
    pub(crate) fn probe(&mut self, now: Instant) -> Option<usize> {
        match self.state {
            State::Settled { .. } if !self.wants_probe(now) => return None,
            State::Settled { .. } => self.search_below(usize::MAX),
            State::Doubted { tries, arrived, vanishes } if tries < TRIES => {
                self.state = State::Doubted { tries: tries + 1, arrived, vanishes };
                return Some(self.confirmed);
            }
            State::Doubted { arrived, .. } => {
                let lost = std::mem::replace(&mut self.confirmed, arrived);
                self.search_below(lost);
            }
            State::Searching { candidate, tries: TRIES.. } => {
                self.state = State::Searching { candidate: candidate + 1, tries: 0 };
            }
            State::Searching { .. } => {}
        }
        let State::Searching { candidate, tries } = self.state else { return None };
        match CANDIDATES.get(candidate).map(|&size| usize::from(size)) {
            Some(size) if size > self.confirmed => {
                self.state = State::Searching { candidate, tries: tries + 1 };
                Some(size)
            }
            Some(_) | None => {
                self.settle(now);
                None
            }
        }
    }

    /// The largest datagram that feedback told of as arrived had `size` bytes.
    pub(crate) fn confirm_by_data(&mut self, now: Instant, size: usize) {
        if size >= self.confirmed {
            self.confirm(now, size);
        } else if let State::Doubted { arrived, .. } = &mut self.state {
            *arrived = size.max(*arrived);
        }
    }

    /// A challenge of `size` bytes was answered.
    pub(crate) fn confirm(&mut self, now: Instant, size: usize) {
        let answers_doubt = matches!(self.state, State::Doubted { .. }) && size >= self.confirmed;
        if size >= self.confirmed {
            (self.confirmed, self.measured) = (size, now);
        }
        if self.is_largest() {
            self.pause = AGAIN_FIRST;
        }
        if answers_doubt || (self.is_largest() && size >= self.confirmed) {
            self.settle(now);
        }
    }

    /// Marks the confirmed size as doubtful: it was measured long ago or, with `vanishes`,
    /// datagrams of this size are lost while small ones arrive. Returns whether the doubt is new.
    pub(crate) const fn doubt(&mut self, vanishes: bool) -> bool {
        let news = self.confirmed > BASE_DATAGRAM && !matches!(self.state, State::Doubted { .. });
        if news {
            self.state = State::Doubted { tries: 0, arrived: BASE_DATAGRAM, vanishes };
        }
        news
    }

    /// Whether data is now lost because of its size, as far as this end can know.
    pub(crate) const fn vanishes(&self) -> bool {
        matches!(self.state, State::Doubted { vanishes: true, .. })
    }

    fn is_largest(&self) -> bool {
        self.confirmed >= usize::from(CANDIDATES[0])
    }

    fn search_below(&mut self, size: usize) {
        let candidate = CANDIDATES.iter().position(|&candidate| usize::from(candidate) < size);
        self.state =
            State::Searching { candidate: candidate.unwrap_or(CANDIDATES.len()), tries: 0 };
    }

    fn settle(&mut self, now: Instant) {
        self.state = State::Settled { again: now + self.pause };
        self.pause = (self.pause * 2).min(AGAIN_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets a search go on over a path that carries at most `mtu`; returns what it finds, and by
    /// how many probes.
    fn go_on(search: &mut MtuSearch, now: Instant, mtu: usize) -> (usize, u32) {
        let mut probes = 0;
        while let Some(size) = search.probe(now) {
            probes += 1;
            if size <= mtu {
                search.confirm(now, size);
            }
        }
        (search.datagram(), probes)
    }

    fn search(mtu: usize) -> (usize, u32) {
        go_on(&mut MtuSearch::default(), Instant::ZERO, mtu)
    }

    #[test]
    fn finds_the_largest_size_that_fits() {
        assert_eq!(search(1_472), (1_452, 1));
        assert_eq!(search(1_400).0, 1_372);
        assert_eq!(search(1_300).0, 1_292);
        assert_eq!(search(1_232), (1_232, 19));
        assert_eq!(search(BASE_DATAGRAM), (BASE_DATAGRAM, 27));
    }

    #[test]
    fn the_largest_size_is_expected_until_its_first_probe_is_lost() {
        let mut search = MtuSearch::default();
        assert_eq!(search.expected(), 1_452);
        search.probe(Instant::ZERO);
        assert_eq!(search.expected(), 1_452, "an answer may come");
        search.probe(Instant::ZERO);
        assert_eq!(search.expected(), BASE_DATAGRAM);
        go_on(&mut search, Instant::ZERO, 1_300);
        assert_eq!(search.expected(), 1_292);
        search.probe(Instant::ZERO + AGAIN_FIRST);
        assert_eq!(search.expected(), 1_292, "it was lost before");
    }

    #[test]
    fn looks_again_ever_later_and_finds_what_it_missed() {
        let mut search = MtuSearch::default();
        let mut now = Instant::ZERO;
        for pause in [10, 20, 40, 80, 160, 320, 600, 600] {
            assert_eq!(go_on(&mut search, now, 1_300).0, 1_292);
            now = now + Duration::from_secs(pause);
            assert!(!search.wants_probe(now - Duration::from_nanos(1)));
            assert!(search.wants_probe(now));
        }
        assert_eq!(go_on(&mut search, now, 1_500), (1_452, 1));
        assert!(!search.wants_probe(now + AGAIN_MAX * 100));
    }

    #[test]
    fn a_doubt_that_is_answered_costs_one_probe_and_no_byte_of_room() {
        let mut search = MtuSearch::default();
        search.confirm(Instant::ZERO, 1_452);
        assert!(search.doubt(true) && !search.doubt(true));
        assert_eq!(search.datagram(), 1_452);
        assert!(search.vanishes());
        assert!(search.surely_carries(BASE_DATAGRAM) && !search.surely_carries(1_452));
        assert_eq!(go_on(&mut search, Instant::ZERO, 1_500), (1_452, 1));
        assert!(search.surely_carries(1_452));
    }

    #[test]
    fn a_shrunk_path_is_measured_anew_below_what_it_lost() {
        let mut search = MtuSearch::default();
        search.confirm(Instant::ZERO, 1_452);
        search.doubt(true);
        let sizes: Vec<_> = std::iter::from_fn(|| search.probe(Instant::ZERO)).take(4).collect();
        assert_eq!(sizes, [1_452, 1_452, 1_452, 1_412]);
        assert_eq!(search.datagram(), BASE_DATAGRAM);
        assert_eq!(go_on(&mut search, Instant::ZERO, 1_300).0, 1_292);
    }

    #[test]
    fn what_data_shows_to_be_carried_is_kept_when_all_probes_are_lost() {
        let mut search = MtuSearch::default();
        search.confirm(Instant::ZERO, 1_452);
        search.doubt(true);
        search.confirm_by_data(Instant::ZERO, 1_290);
        search.confirm_by_data(Instant::ZERO, 0);
        assert_eq!(go_on(&mut search, Instant::ZERO, 0), (1_290, 3 + 4 * 3));
        // That was of this doubt: the next one asks for more.
        search.doubt(true);
        assert_eq!(go_on(&mut search, Instant::ZERO, 0).0, BASE_DATAGRAM);
    }

    #[test]
    fn data_of_the_size_in_doubt_ends_the_doubt() {
        let mut search = MtuSearch::default();
        search.confirm(Instant::ZERO, 1_372);
        search.doubt(true);
        search.confirm_by_data(Instant::ZERO, 1_372);
        assert!(search.is_settled() && search.surely_carries(1_372));
    }

    #[test]
    fn what_was_measured_a_while_ago_is_stale_until_it_is_acknowledged_again() {
        let mut search = MtuSearch::default();
        let at = |seconds| Instant::ZERO + Duration::from_secs(seconds);
        assert_eq!(go_on(&mut search, at(0), 1_500), (1_452, 1));
        search.confirm(at(10), 1_200);
        assert!(!search.is_stale(at(19)) && search.is_stale(at(20)));
        search.doubt(true);
        assert_eq!(go_on(&mut search, at(20), 1_500), (1_452, 1));
        assert!(!search.is_stale(at(39)));
    }

    #[test]
    fn the_base_is_not_doubted() {
        assert!(!MtuSearch::default().doubt(true));
    }
}
