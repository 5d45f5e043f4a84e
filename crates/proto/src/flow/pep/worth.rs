//! Which connections are worth keeping (Alshalan 2017, section 4.5.3, Equation 4.5).
//!
//! What is kept of a connection lets it go on at its old rate. That pays where the next network
//! carries as much: the thesis predicts that it does when at least half of those visited before had
//! a shorter round trip than the present one, and keeps nothing when not.
//!
//! Here it decides only where memory is short. To keep costs memory and nothing else: what is owed
//! is paced, and slows down by itself where the next network is worse ([`super::resume`]), while a
//! sender that was not relieved has timed out by then and begins with one segment, whether its
//! congestion control is Reno, CUBIC or BBR. So with memory to spare everything is kept; where more
//! than half of it is taken, what the equation favours, and those that somebody types into, which
//! hold little. A connection of which something is kept stays: half of it is of no use.

use std::collections::VecDeque;
use std::net::IpAddr;

use super::memory::Memory;
use crate::flow::classify::Class;
use crate::time::Duration;

/// Networks that are remembered: some days of commuting.
const NETWORKS_MAX: usize = 32;
/// Of fewer than these nothing is concluded ("after we collect enough samples").
const NETWORKS_MIN: usize = 3;

/// The networks by which a session went, each with its round trip as it was measured last.
#[derive(Debug, Default)]
pub(in crate::flow) struct Networks {
    /// Told by the address that the client has there.
    present: Option<(IpAddr, Duration)>,
    before: VecDeque<Duration>,
}

impl Networks {
    /// Data goes by the network where the client has this address, with this round trip.
    pub(crate) fn visit(&mut self, client: IpAddr, trip: Duration) {
        match &mut self.present {
            Some((known, present)) if *known == client => *present = trip,
            other => {
                if let Some((_, left)) = other.replace((client, trip)) {
                    if self.before.len() >= NETWORKS_MAX {
                        self.before.pop_front();
                    }
                    self.before.push_back(left);
                }
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn visited(&self) -> (Option<(IpAddr, Duration)>, usize) {
        (self.present, self.before.len())
    }

    /// Whether what begins now is to be kept.
    pub(crate) fn are_worth(&self, class: Class, memory: &Memory) -> bool {
        !memory.is_short() || class == Class::Interactive || self.buffering()
    }

    /// Equation 4.5, for the present network; true while too few are known.
    fn buffering(&self) -> bool {
        let Some((_, present)) = self.present else { return true };
        let faster = self.before.iter().filter(|&&visited| visited < present).count();
        self.before.len() < NETWORKS_MIN || faster * 2 >= self.before.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn networks(trips: &[u64]) -> Networks {
        let mut networks = Networks::default();
        for (place, &trip) in trips.iter().enumerate() {
            let client = IpAddr::from([10, 0, 0, u8::try_from(place % 250).unwrap()]);
            networks.visit(client, Duration::from_millis(trip));
        }
        networks
    }

    #[test]
    fn the_equation_of_the_thesis() {
        // The last is the present one.
        for (trips, pays) in [
            (&[][..], true),
            (&[50, 60, 10], true), // too few to tell
            (&[20, 30, 40, 50], true),
            (&[20, 30, 40, 10], false),
            (&[20, 30, 40, 30], false), // one of three is faster
            (&[20, 20, 40, 40, 30], true),
            (&[20, 30, 40, 50, 30], false),
            (&[30, 30, 30, 30], false),
        ] {
            assert_eq!(networks(trips).buffering(), pays, "{trips:?}");
        }
    }

    #[test]
    fn a_network_counts_once_while_it_lasts_and_as_it_was_last() {
        let mut networks = networks(&[100, 100, 100, 50]);
        let here = networks.present.unwrap().0;
        assert!(!networks.buffering());
        for trip in [60, 90, 120] {
            networks.visit(here, Duration::from_millis(trip));
        }
        assert_eq!(networks.before.len(), 3);
        assert!(networks.buffering());
        networks.visit([10, 1, 0, 1].into(), Duration::from_millis(110));
        assert_eq!(networks.before.back(), Some(&Duration::from_millis(120)));
    }

    #[test]
    fn the_oldest_are_forgotten() {
        let mut trips = vec![10; 40];
        trips.extend([200; NETWORKS_MAX]);
        trips.push(100);
        let networks = networks(&trips);
        assert_eq!(networks.before.len(), NETWORKS_MAX);
        assert!(!networks.buffering(), "those of 10 ms are long ago");
    }

    #[test]
    fn only_where_memory_is_short_is_anybody_left_out() {
        let (fast, slow) = (networks(&[50, 50, 50, 20]), networks(&[20, 20, 20, 50]));
        let mut memory = Memory::new(1_000);
        for _ in 0..4 {
            assert!(memory.take(0, 125).is_ok());
            assert!(fast.are_worth(Class::Bulk, &memory));
        }
        assert!(memory.take(0, 1).is_ok());
        assert!(!fast.are_worth(Class::Bulk, &memory));
        assert!(fast.are_worth(Class::Interactive, &memory));
        assert!(slow.are_worth(Class::Bulk, &memory));
    }
}
