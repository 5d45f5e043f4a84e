//! What a client's user prefers, by where it goes: three levels, of which each has four times as
//! much as the next where there is not enough for all (Springate and Newman, "Multilink VPN", QoS
//! for Speed).
//!
//! Decides nothing about packets: what comes is shared out by `narrow`, what leaves by whoever
//! knows the entry's queues.

use std::cmp::Reverse;
use std::net::IpAddr;
use std::sync::Arc;

pub use crate::packet::Level;
use crate::wire::control::End;

/// The most destinations that are told apart: every connection that begins is held against them,
/// and of what is no TCP every packet.
pub const PRIORITIES_MAX: usize = 64;

/// Which destination is of which level. What is not named is of the second.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Priorities {
    /// The narrowest first. Shared by all that know of it.
    ends: Arc<[(End, Level)]>,
}

impl Priorities {
    /// The destinations that are named, of which the first [`PRIORITIES_MAX`] count. Of several
    /// that a flow goes to the narrowest says what it is: the longest prefix, and of equals the one
    /// with a port; of the very same the first.
    pub fn new(ends: &[(End, Level)]) -> Self {
        let mut ends: Vec<_> = ends.iter().take(PRIORITIES_MAX).copied().collect();
        ends.sort_by_key(|(end, _)| Reverse((end.network.bits, end.port.is_some())));
        Self { ends: ends.into() }
    }

    /// Whether nothing is named.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The level of what goes to a destination, or comes from there.
    pub fn level_of(&self, (address, port): (IpAddr, u16)) -> Level {
        let is_there =
            |end: &End| end.network.contains(address) && end.port.is_none_or(|one| one == port);
        let found = self.ends.iter().find(|(end, _)| is_there(end));
        found.map_or_else(Level::default, |&(_, level)| level)
    }

    /// The levels that are named.
    pub(super) fn named(&self) -> impl Iterator<Item = Level> {
        self.ends.iter().map(|&(_, level)| level)
    }
}

/// The levels that flows may have: none while nobody named any, for then all flows are equal.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Levels(u8);

impl Levels {
    /// Those that are named, and that of everything else.
    pub(crate) fn of(named: impl Iterator<Item = Level>) -> Self {
        let mut levels = named.map(Self::bit).peekable();
        match levels.peek() {
            None => Self(0),
            Some(_) => Self(levels.fold(Self::bit(Level::default()), |all, one| all | one)),
        }
    }

    const fn bit(level: Level) -> u8 {
        1 << level as u8
    }

    /// Whether all flows are equal.
    pub(crate) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether any flow can be preferred to one of this level.
    pub(crate) const fn prefers_to(self, level: Level) -> bool {
        self.0 & (Self::bit(level) - 1) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::control::Prefix;

    fn end(address: [u8; 4], bits: u8, port: Option<u16>) -> End {
        End { network: Prefix { address: address.into(), bits }, port }
    }

    #[test]
    fn the_narrowest_says_what_it_is_and_what_nobody_named_is_of_the_second() {
        let priorities = Priorities::new(&[
            (end([203, 0, 113, 0], 24, None), Level::Third),
            (end([203, 0, 113, 7], 32, None), Level::First),
            (end([203, 0, 113, 0], 24, Some(443)), Level::Second),
            (end([203, 0, 113, 7], 32, Some(22)), Level::Third),
        ]);
        let level = |last, port| priorities.level_of(([203, 0, 113, last].into(), port));
        assert_eq!(level(9, 80), Level::Third);
        assert_eq!(level(9, 443), Level::Second);
        assert_eq!(level(7, 443), Level::First, "a longer prefix before a port");
        assert_eq!(level(7, 22), Level::Third);
        assert_eq!(priorities.level_of(([192, 0, 2, 1].into(), 443)), Level::Second);
        assert_eq!(priorities.level_of(("2001:db8::1".parse().unwrap(), 443)), Level::Second);
    }

    #[test]
    fn nothing_is_preferred_to_the_first_nor_where_nobody_is_named() {
        let one = |level| Priorities::new(&[(end([203, 0, 113, 0], 24, None), level)]);
        let levels = |level| Levels::of(one(level).named());
        let prefers = |level| Level::ALL.map(|other| levels(level).prefers_to(other));
        assert_eq!(prefers(Level::First), [false, true, true]);
        assert_eq!(prefers(Level::Third), [false, false, true]);
        let none = Levels::of(Priorities::default().named());
        assert!(none.is_empty() && !Level::ALL.into_iter().any(|level| none.prefers_to(level)));
    }

    #[test]
    fn so_many_and_no_more_and_a_level_is_its_number() {
        let mut ends = vec![(end([192, 0, 2, 1], 32, None), Level::First); PRIORITIES_MAX];
        ends.push((end([203, 0, 113, 7], 32, None), Level::First));
        let level = Priorities::new(&ends).level_of(([203, 0, 113, 7].into(), 443));
        assert_eq!(level, Level::Second, "the last one does not count");
        let same = |level: Level| Level::numbered(level.number()) == Some(level);
        assert!(Level::ALL.into_iter().all(same));
        assert_eq!((Level::numbered(0), Level::numbered(4)), (None, None));
    }
}
