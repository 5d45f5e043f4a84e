//! What somebody on the way said of the first packet of a flow: that it may not get where it wants
//! to, or cannot. Kept for people who ask why nothing comes.
//!
//! Believed as far as a TCP would (RFC 5927, 4.1): what is quoted has to be what this side sent and
//! nobody answered. Few are kept, the newest; nothing but what is told follows from them.

use std::collections::VecDeque;

use super::tcp::State;
use crate::flow::Flows;
use crate::flow::report::{FlowReport, Why};
use crate::flow::tuple::{Direction, Tuple};
use crate::wire::icmp::{Unreachable, Unreached};
use crate::wire::inner::{MAX_PACKET, TCP};
use crate::wire::tcp::Seq;

/// Flows that are kept.
pub(in crate::flow) const UNREACHED_MAX: usize = 64;

/// The flows whose first packet got nowhere, the newest last.
#[derive(Debug, Default)]
pub(in crate::flow) struct Nowhere {
    list: VecDeque<(Tuple, Unreachable, bool)>,
}

impl Nowhere {
    fn note(&mut self, tuple: Tuple, why: Unreachable, by_peer: bool) {
        self.list.retain(|(one, ..)| *one != tuple);
        if self.list.len() >= UNREACHED_MAX {
            self.list.pop_front();
        }
        self.list.push_back((tuple, why, by_peer));
    }
}

impl Flows {
    /// Somebody says that a packet of this side's got nowhere; `by_peer` if it is the peer itself.
    pub(crate) fn hear_unreached(&mut self, unreached: &Unreached<'_>, by_peer: bool) {
        let Some(tuple) = Tuple::of(&unreached.headers, Direction::Out) else { return };
        if tuple.protocol == TCP && !self.is_first(&tuple, unreached) {
            return;
        }
        self.nowhere.note(tuple, unreached.why, by_peer);
    }

    /// Adds to the report on a flow that its first packet got nowhere, if it is no further since:
    /// who is heard of is reached.
    pub fn complete(&self, report: &mut FlowReport) {
        let is_silent = match report.tuple.protocol {
            TCP => self.table.peek(&report.tuple).is_some_and(|flow| !flow.remote.is_known),
            _ => report.received == 0,
        };
        let mut said = self.nowhere.list.iter();
        if is_silent && let Some(&(_, why, by_peer)) = said.find(|it| it.0 == report.tuple) {
            report.why = match (why, by_peer) {
                (Unreachable::Prohibited, true) => Why::Refused,
                (Unreachable::Prohibited, false) => Why::RefusedOnTheWay,
                (Unreachable::NoRoute, _) => Why::NoWay,
            };
        }
    }

    /// Whether what is quoted is the beginning of a connection that nobody has answered.
    fn is_first(&self, tuple: &Tuple, unreached: &Unreached<'_>) -> bool {
        let at = unreached.headers.transport.map_or(0, |at| at + 4);
        let seq = unreached.quoted.get(at..).and_then(|rest| rest.first_chunk::<4>());
        let flow = self.table.peek(tuple);
        let (Some(flow), Some(seq)) = (flow, seq) else { return false };
        let sent = flow.local.next.beyond(Seq(u32::from_be_bytes(*seq))) as usize;
        flow.state == State::Opening && !flow.remote.is_known && (1..=MAX_PACKET).contains(&sent)
    }
}

#[cfg(test)]
#[path = "unreached_tests.rs"]
mod tests;
