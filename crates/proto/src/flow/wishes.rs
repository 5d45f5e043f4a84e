//! What the user says of flows, by priorities and by rules, and what follows for the record of a
//! packet.
//!
//! Knows no flow: `judge` applies it to those that are known.

use super::overrides::{Decided, Devices, Overrides, Whose};
use super::priority::{Levels, Priorities};
use super::tuple::Tuple;
use crate::packet::{Class, Level, PacketRecord};

/// Everything that the user says of flows: rules, and what they leave to priorities.
#[derive(Default, Debug)]
pub(super) struct Wishes {
    pub(super) priorities: Priorities,
    pub(super) overrides: Overrides,
    pub(super) devices: Devices,
}

impl Wishes {
    /// What the rules say of a flow of this class and user.
    pub(super) fn decide(&self, tuple: &Tuple, class: Class, whose: Whose) -> Decided {
        // A gateway knows the users of no client.
        let whose = if self.asks_users() { whose } else { Whose::Known(None) };
        self.overrides.decide(self.devices, tuple, (class, whose))
    }

    /// Whether the user of a flow has to be known here.
    pub(super) fn asks_users(&self) -> bool {
        self.overrides.asks_users() && self.devices == Devices::Local
    }

    /// The level of a flow of which the rules say this.
    pub(super) fn level(&self, tuple: &Tuple, decided: &Decided) -> Level {
        decided.level.map_or_else(|| self.priorities.level_of(tuple.remote), |by| by.value)
    }

    /// The record of its packets, as the user wants it.
    pub(super) fn apply(
        &self,
        tuple: &Tuple,
        decided: &Decided,
        record: PacketRecord,
    ) -> PacketRecord {
        let marks = record.marks.with_strength(decided.asked());
        let marks = marks.with_copies(decided.copies.map(|by| by.value));
        let marks = marks.with_goal(decided.goal.map(|by| by.value));
        PacketRecord { level: self.level(tuple, decided), marks, ..record }
    }

    /// The levels that flows may have.
    pub(super) fn levels(&self) -> Levels {
        Levels::of(self.priorities.named().chain(self.overrides.levels()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::overrides::{Asks, Override, Selector};
    use crate::wire::control::{End, Prefix};
    use crate::wire::inner::TCP;

    const SERVER: [u8; 4] = [203, 0, 113, 7];

    #[test]
    fn a_rule_comes_before_a_priority_and_priorities_hold_elsewhere() {
        let end = End { network: Prefix::host(SERVER.into()), port: None };
        let asks = Asks { level: Some(Level::First), ..Asks::default() };
        let of = Selector { port: Some(22), ..Selector::default() };
        let mut wishes = Wishes {
            priorities: Priorities::new(&[(end, Level::Third)]),
            overrides: Overrides::new(&[Override { of, asks }]),
            devices: Devices::Local,
        };
        let level = |wishes: &Wishes, port| {
            let tuple = Tuple {
                local: ([10, 9, 0, 2].into(), 40_000),
                remote: (SERVER.into(), port),
                protocol: TCP,
            };
            wishes.level(&tuple, &wishes.decide(&tuple, Class::Bulk, Whose::Unasked))
        };
        assert_eq!((level(&wishes, 22), level(&wishes, 80)), (Level::First, Level::Third));
        assert!(wishes.levels().prefers_to(Level::Second));
        wishes.overrides = Overrides::default();
        assert_eq!(level(&wishes, 22), Level::Third);
        assert!(!wishes.levels().prefers_to(Level::Second), "only the third is named");
        wishes.priorities = Priorities::default();
        assert!(wishes.levels().is_empty());
    }
}
