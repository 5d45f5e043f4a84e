//! Limits how many first handshake messages the gateway opens for each network: a token bucket for
//! each source whose address a cookie has proven.
//!
//! It decides only by the source address, at three prefix lengths at once. An attacker with a whole
//! network gets four times the budget of one address, not one budget for each address. It does not
//! know keys or peers; the caller refunds the charge of a known peer.
//!
//! Limits: it remembers [`SOURCES_MAX`] networks in an ordered tree, so there is no hash to attack.
//! Only an attacker with thousands of networks fills the tree. Further networks then have no budget
//! of their own, and only the responder's limit on all messages holds.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::error::DropReason;
use crate::time::{Duration, Instant};

/// Time in which one address (one /64 of IPv6) earns one message: 20 a second, as in WireGuard.
/// Half of it doubles the work that one attacker can cause. Twice of it makes clients that enrol at
/// once behind one NAT wait longer.
const INTERVAL: Duration = Duration::from_millis(50);
/// How far ahead a source may spend: 32 messages at once. A client that tries eight addresses and
/// four streams, and repeats them, needs this many.
const AHEAD: Duration = Duration::from_millis(1_600);
/// How many times as much the next wider network earns.
const WIDER: u32 = 4;
/// Prefix lengths, narrowest network first. A site has a /48 of IPv6, a provider a /32.
const WIDTHS_V4: [u32; WIDTHS] = [32, 24, 16];
const WIDTHS_V6: [u32; WIDTHS] = [64, 48, 32];
const WIDTHS: usize = 3;
/// Networks remembered at once, which takes about 1 MB.
const SOURCES_MAX: usize = 16_384;
/// How often a full table is searched for networks whose budget is full again.
const SEARCH_PAUSE: Duration = Duration::from_millis(100);
/// Sources of known peers remembered at once.
const REGULARS_MAX: usize = 4_096;

/// The network of a source address, at one prefix length.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Network {
    is_v4: bool,
    width: u32,
    prefix: u128,
}

impl Network {
    /// The networks that contain `source`, narrowest first.
    fn all_of(source: IpAddr) -> [Self; WIDTHS] {
        match source.to_canonical() {
            IpAddr::V4(address) => WIDTHS_V4.map(|width| {
                let prefix = u32::from(address) & (u32::MAX << (32 - width));
                Self { is_v4: true, width, prefix: prefix.into() }
            }),
            IpAddr::V6(address) => WIDTHS_V6.map(|width| {
                let prefix = u128::from(address) & (u128::MAX << (128 - width));
                Self { is_v4: false, width, prefix }
            }),
        }
    }

    /// The narrowest network: the address, or the /64 of IPv6.
    pub(super) fn of(source: IpAddr) -> Self {
        let [narrow, ..] = Self::all_of(source);
        narrow
    }

    /// The neighbourhood, which probably has one owner: the /24, or the /48 of IPv6.
    pub(super) fn neighbourhood(source: IpAddr) -> Self {
        let [_, middle, _] = Self::all_of(source);
        middle
    }
}

/// The spending of each network, as the time at which its budget will be full again.
#[derive(Debug, Default)]
pub(super) struct Budgets {
    spent: BTreeMap<Network, Instant>,
    searched: Instant,
}

impl Budgets {
    /// Charges one message to `source` and the networks around it, or none of them.
    ///
    /// # Errors
    /// [`DropReason::OverBudget`] if one of them has used up its budget.
    pub(super) fn charge(&mut self, now: Instant, source: IpAddr) -> Result<(), DropReason> {
        self.make_room(now);
        let networks = || intervals().zip(Network::all_of(source));
        let over = |(interval, network): (Duration, Network)| {
            let spent = self.spent.get(&network).map_or(now, |&spent| spent.max(now));
            spent + interval > now + AHEAD
        };
        if networks().any(over) {
            return Err(DropReason::OverBudget);
        }
        for (interval, network) in networks() {
            let is_full = self.spent.len() >= SOURCES_MAX;
            match self.spent.get_mut(&network) {
                Some(spent) => *spent = (*spent).max(now) + interval,
                None if is_full => {}
                None => {
                    self.spent.insert(network, now + interval);
                }
            }
        }
        Ok(())
    }

    /// Refunds one charge, because the message came from a known peer.
    pub(super) fn refund(&mut self, source: IpAddr) {
        for (interval, network) in intervals().zip(Network::all_of(source)) {
            if let Some(spent) = self.spent.get_mut(&network) {
                *spent = *spent - interval;
            }
        }
    }

    /// If the table is full, forgets networks whose budget is full again.
    fn make_room(&mut self, now: Instant) {
        let is_due = now.saturating_since(self.searched) >= SEARCH_PAUSE;
        if self.spent.len() + WIDTHS > SOURCES_MAX && is_due {
            self.searched = now;
            self.spent.retain(|_, spent| *spent > now);
        }
    }
}

/// The time in which a network of each width earns one message.
fn intervals() -> impl Iterator<Item = Duration> {
    std::iter::successors(Some(INTERVAL), |interval| Some(*interval / WIDER))
}

/// Recent sources of known peers. They have a reserve of the responder's time that no newcomer can
/// use.
#[derive(Debug, Default)]
pub(super) struct Regulars(BTreeMap<Network, Instant>);

impl Regulars {
    /// Notes a source from which a known peer's handshake was accepted.
    pub(super) fn note(&mut self, now: Instant, source: IpAddr) {
        let network = Network::of(source);
        if self.0.len() >= REGULARS_MAX && !self.0.contains_key(&network) {
            let oldest = self.0.iter().min_by_key(|&(_, &since)| since).map(|(&oldest, _)| oldest);
            oldest.and_then(|oldest| self.0.remove(&oldest));
        }
        self.0.insert(network, now);
    }

    pub(super) fn has(&self, source: IpAddr) -> bool {
        self.0.contains_key(&Network::of(source))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(10_000 + millis)
    }

    /// How many of `tries` messages are granted, one each millisecond and in turn from these
    /// sources.
    fn granted(budgets: &mut Budgets, sources: &[&str], tries: u64) -> usize {
        let turn = |n: u64| sources[usize::try_from(n).unwrap() % sources.len()].parse().unwrap();
        (0..tries).filter(|&n| budgets.charge(at(n), turn(n)).is_ok()).count()
    }

    #[test]
    fn one_address_gets_32_at_once_and_20_a_second() {
        for source in ["192.0.2.1", "::ffff:192.0.2.1", "2001:db8::1"] {
            let granted = granted(&mut Budgets::default(), &[source], 10_000);
            assert!((231..=233).contains(&granted), "{source}: {granted}");
        }
    }

    #[test]
    fn addresses_of_one_64_are_one_source_and_other_networks_have_their_own() {
        let mut budgets = Budgets::default();
        granted(&mut budgets, &["2001:db8::1", "2001:db8::ffff:1"], 1_000);
        let mut try_from = |source: &str| budgets.charge(at(1_000), source.parse().unwrap());
        assert!((0..9).any(|_| try_from("2001:db8::2").is_err()));
        assert!(try_from("2001:db8:0:1::1").is_ok(), "another /64");
        assert!(try_from("192.0.2.1").is_ok());
    }

    #[test]
    fn a_network_gets_four_times_what_one_address_gets() {
        let hosts: Vec<String> = (0..=255).map(|n| format!("192.0.2.{n}")).collect();
        let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
        let granted = granted(&mut Budgets::default(), &hosts, 10_000);
        assert!((925..=931).contains(&granted), "{granted}");
    }

    #[test]
    fn a_refund_leaves_no_trace() {
        let mut budgets = Budgets::default();
        let source = "192.0.2.1".parse().unwrap();
        for _ in 0..1_000 {
            budgets.charge(at(0), source).unwrap();
            budgets.refund(source);
        }
    }

    #[test]
    fn the_oldest_source_of_a_known_peer_is_forgotten_first() {
        let mut regulars = Regulars::default();
        let source = |n: u32| IpAddr::from(n.to_be_bytes());
        for n in 0..=u32::try_from(REGULARS_MAX).unwrap() {
            regulars.note(at(n.into()), source(n));
        }
        assert_eq!(regulars.0.len(), REGULARS_MAX);
        assert!(!regulars.has(source(0)) && regulars.has(source(1)));
    }

    proptest! {
        #[test]
        fn whatever_comes_the_table_is_bounded_and_an_unseen_network_is_granted(
            sources in proptest::collection::vec(any::<u128>(), 1..200),
            copies in 1u128..400,
        ) {
            let mut budgets = Budgets::default();
            let mut n = 0;
            for copy in 0..copies {
                for &source in &sources {
                    // Never the network of the newcomer below.
                    let source = (source ^ (copy << 64)) | 1 << 127;
                    let _ = budgets.charge(at(n / 100), std::net::Ipv6Addr::from(source).into());
                    n += 1;
                }
            }
            prop_assert!(budgets.spent.len() <= SOURCES_MAX);
            prop_assert!(budgets.charge(at(n / 100), "2001:db8::1".parse().unwrap()).is_ok());
        }
    }
}
