//! Takes notice of packets: which flow each belongs to, and what it shows of a realtime flow.
//!
//! Decides nothing about the packet itself (`packet`) or its path (`bonding::live`).

use std::net::IpAddr;

use super::Flows;
use super::live::{Came, Early, LiveFlow};
use super::record::Flow;
use super::rtp::Header;
use super::tuple::{Direction, Tuple};
use crate::id::FlowId;
use crate::time::Instant;
use crate::wire::icmp::{ICMP, ICMPV6, Unreached};
use crate::wire::inner::{InnerPacket, TCP};

impl Flows {
    /// What is wanted early from now on. Flows that are known are judged anew.
    pub fn set_early(&mut self, early: Early) {
        for flow in self.table.flows_mut() {
            let is_wanted_early = early.means(&flow.tuple);
            if let Some(live) = &mut flow.live {
                live.is_wanted_early = is_wanted_early;
            }
            if flow.classify() {
                flow.judge(&self.wishes);
            }
        }
        self.early = early;
    }

    /// What is wanted early.
    pub const fn early(&self) -> &Early {
        &self.early
    }

    /// Takes notice of a packet that passes in `direction`. Returns the name of its flow, if it
    /// is one that may be of no use late: by UDP, or wanted early.
    pub fn observe(
        &mut self,
        now: Instant,
        direction: Direction,
        packet: &InnerPacket<'_>,
    ) -> Option<FlowId> {
        self.note(now, None, direction, packet)
    }

    /// The same of a packet whose flow may be found already.
    pub(super) fn note(
        &mut self,
        now: Instant,
        found: Option<FlowId>,
        direction: Direction,
        packet: &InnerPacket<'_>,
    ) -> Option<FlowId> {
        if !packet.is_udp() && self.early.is_empty() {
            return None;
        }
        let tuple = Tuple::of(&packet.headers, direction)?;
        let is_wanted_early = self.early.means(&tuple);
        if !packet.is_udp() && !is_wanted_early {
            return None;
        }
        let id = found.unwrap_or_else(|| self.table.observe(now, &tuple));
        let flow = self.table.flow_mut(id)?;
        if flow.live.is_none() {
            flow.judge(&self.wishes);
        }
        let live = flow.live.get_or_insert_default();
        (live.observed_at, live.is_wanted_early) = (now, is_wanted_early);
        let carried = match direction {
            Direction::Out => &mut live.carried.0,
            Direction::In => &mut live.carried.1,
        };
        *carried = carried.wrapping_add(u32::try_from(packet.len()).unwrap_or_default());
        if packet.is_udp() {
            let header = packet.datagram().and_then(|(payload, len)| Header::parse(payload, len));
            live.likeness.note(direction == Direction::Out, header);
        }
        if flow.classify() {
            flow.judge(&self.wishes);
        }
        Some(id)
    }

    /// Takes notice of an ICMP message about a packet of an open connection. It changes only the
    /// report of that connection: the host judges by itself. `peer` has the peer's own addresses.
    pub(crate) fn hear_icmp(&mut self, packet: &InnerPacket<'_>, peer: &[IpAddr]) {
        if matches!(packet.headers.protocol, ICMP | ICMPV6)
            && let Some(unreached) = Unreached::parse(packet)
        {
            self.hear_unreached(&unreached, peer.contains(&unreached.by));
        }
    }

    /// Somebody says that a packet of this side's got nowhere; `by_peer` if it is the peer itself.
    pub(crate) fn hear_unreached(&mut self, unreached: &Unreached<'_>, by_peer: bool) {
        let Some(tuple) = Tuple::of(&unreached.headers, Direction::Out) else { return };
        let is_first =
            || self.table.peek(&tuple).is_some_and(|flow| flow.tracker().begins_with(unreached));
        if tuple.protocol != TCP || is_first() {
            self.nowhere.note(tuple, unreached.why, by_peer);
        }
    }

    /// The flow of this name, as long as it is known.
    pub fn flow(&self, id: FlowId) -> Option<&Flow> {
        self.table.flow(id)
    }

    /// The realtime part of the flow of this name, to change.
    pub(crate) fn live_mut(&mut self, id: FlowId) -> Option<&mut LiveFlow> {
        self.table.flow_mut(id)?.live.as_deref_mut()
    }

    /// An inner packet has come that the peer may send.
    pub fn hear(&mut self, now: Instant, came: Came, packet: &InnerPacket<'_>) {
        if let Some(id) = self.observe(now, Direction::In, packet)
            && let Came::Beside(path) = came
            && let Some(flow) = self.live_mut(id)
        {
            flow.came = Some((path, now));
            if flow.leaves == Some(path) {
                flow.came_back_at = Some(now);
            }
        }
    }
}
