//! What somebody on the way said of the first packet of a flow: that it may not get where it wants
//! to, or cannot. Kept for people who ask why nothing comes.
//!
//! Believed as far as a TCP would (RFC 5927, 4.1): what is quoted has to be what this side sent and
//! nobody answered. Few are kept, the newest; nothing but what is told follows from them.

use std::collections::VecDeque;

use crate::flow::report::Why;
use crate::flow::tuple::Tuple;
use crate::wire::icmp::Unreachable;

/// Flows that are kept.
pub(in crate::flow) const UNREACHED_MAX: usize = 64;

/// The flows whose first packet got nowhere, the newest last.
#[derive(Debug, Default)]
pub(in crate::flow) struct Nowhere {
    list: VecDeque<(Tuple, Unreachable, bool)>,
}

impl Nowhere {
    /// The first packet of a flow got nowhere; `by_peer` if the peer itself says so.
    pub(crate) fn note(&mut self, tuple: Tuple, why: Unreachable, by_peer: bool) {
        self.list.retain(|(one, ..)| *one != tuple);
        if self.list.len() >= UNREACHED_MAX {
            self.list.pop_front();
        }
        self.list.push_back((tuple, why, by_peer));
    }

    /// Why the first packet of a flow got nowhere, if somebody said so.
    pub(crate) fn why(&self, tuple: &Tuple) -> Option<Why> {
        let &(_, why, by_peer) = self.list.iter().find(|it| it.0 == *tuple)?;
        Some(match (why, by_peer) {
            (Unreachable::Prohibited, true) => Why::Refused,
            (Unreachable::Prohibited, false) => Why::RefusedOnTheWay,
            (Unreachable::NoRoute, _) => Why::NoWay,
        })
    }
}

#[cfg(test)]
#[path = "unreached_tests.rs"]
mod tests;
