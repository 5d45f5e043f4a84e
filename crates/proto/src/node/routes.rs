//! Which peer an inner address belongs to: the longest prefix wins (RFC 4632).

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::session::index::Slot;
use crate::wire::control::Prefix;

/// Inner prefixes and the peers behind them, as one table per prefix length in use.
#[derive(Debug, Default)]
pub(super) struct Routes {
    v4: BTreeMap<u8, BTreeMap<u32, Slot>>,
    v6: BTreeMap<u8, BTreeMap<u128, Slot>>,
}

impl Routes {
    /// The peer behind `address`.
    pub(super) fn find(&self, address: IpAddr) -> Option<Slot> {
        match address {
            IpAddr::V4(v4) => {
                let bits = u32::from(v4);
                self.v4.iter().rev().find_map(|(&len, t)| t.get(&mask_v4(bits, len)).copied())
            }
            IpAddr::V6(v6) => {
                let bits = u128::from(v6);
                self.v6.iter().rev().find_map(|(&len, t)| t.get(&mask_v6(bits, len)).copied())
            }
        }
    }

    /// `prefix` leads to `slot` from now on.
    pub(super) fn insert(&mut self, prefix: Prefix, slot: Slot) {
        let len = prefix.bits;
        match prefix.address {
            IpAddr::V4(v4) => {
                let key = mask_v4(u32::from(v4), len);
                self.v4.entry(len).or_default().insert(key, slot);
            }
            IpAddr::V6(v6) => {
                let key = mask_v6(u128::from(v6), len);
                self.v6.entry(len).or_default().insert(key, slot);
            }
        }
    }

    /// Nothing leads to `slot` any more.
    pub(super) fn remove(&mut self, slot: Slot) {
        for table in self.v4.values_mut() {
            table.retain(|_, other| *other != slot);
        }
        for table in self.v6.values_mut() {
            table.retain(|_, other| *other != slot);
        }
        self.v4.retain(|_, table| !table.is_empty());
        self.v6.retain(|_, table| !table.is_empty());
    }
}

fn mask_v4(bits: u32, len: u8) -> u32 {
    bits & u32::MAX.checked_shl(32 - u32::from(len.min(32))).unwrap_or(0)
}

fn mask_v6(bits: u128, len: u8) -> u128 {
    bits & u128::MAX.checked_shl(128 - u32::from(len.min(128))).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_prefix_wins() {
        let mut routes = Routes::default();
        let prefix = |address: &str, bits| Prefix { address: address.parse().unwrap(), bits };
        routes.insert(prefix("0.0.0.0", 0), Slot(1));
        routes.insert(prefix("10.0.0.0", 8), Slot(2));
        routes.insert(prefix("10.1.2.3", 32), Slot(3));
        routes.insert(prefix("fd00::", 8), Slot(4));
        let find = |address: &str| routes.find(address.parse().unwrap());
        assert_eq!(find("10.1.2.3"), Some(Slot(3)));
        assert_eq!(find("10.1.2.4"), Some(Slot(2)));
        assert_eq!(find("11.1.2.4"), Some(Slot(1)));
        assert_eq!(find("fd00::1"), Some(Slot(4)));
        assert_eq!(find("fe80::1"), None);
    }

    #[test]
    fn a_removed_peer_leaves_nothing() {
        let mut routes = Routes::default();
        routes.insert(Prefix::host([10, 0, 0, 1].into()), Slot(1));
        routes.remove(Slot(1));
        assert_eq!(routes.find([10, 0, 0, 1].into()), None);
        assert!(routes.v4.is_empty());
    }
}
