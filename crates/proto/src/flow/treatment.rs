//! Which packets wait on their way out, and which do not, where paths have a share.
//!
//! Decides this by the class of the flow, by the packet itself and by its user's priorities.
//! `bonding` decides the consequences for paths and queues, and `peer::live` sends copies.
//! `repair` leaves out lost packets that would be too late.

use super::Flows;
use super::record::Flow;
use crate::ablation::{Ablation, Heuristic};
use crate::id::FlowId;
use crate::packet::{Class, PacketRecord};
use crate::recovery::packet::SMALL;
use crate::time::Instant;
use crate::wire::icmp::{ICMP, ICMPV6};
use crate::wire::inner::{InnerPacket, TCP};

impl Flows {
    /// Whether a packet is of no use late (realtime, DNS) and so waits in no queue.
    pub(crate) fn is_live(
        &self,
        record: PacketRecord,
        packet: &InnerPacket<'_>,
        ablation: Ablation,
    ) -> bool {
        let is_live = match record.class {
            Class::RealTime => true,
            Class::Names => packet.is_udp(),
            Class::Interactive | Class::Bulk => false,
        };
        is_live && !ablation.is_off(Heuristic::Realtime)
    }

    /// Whether somebody waits for a packet, and it may overtake its own flow: it leaves before all
    /// that waits.
    pub(crate) fn is_urgent(
        &self,
        now: Instant,
        record: PacketRecord,
        packet: &InnerPacket<'_>,
        ablation: Ablation,
    ) -> bool {
        let flow = record.flow.and_then(|id| self.flow(id));
        let is_kept = keeps_order(now, packet, flow) && !ablation.is_off(Heuristic::Order);
        is_urgent(packet) && !is_kept && !ablation.is_off(Heuristic::Hurry)
    }

    /// A packet leaves in its turn: what follows of its flow may have to follow it.
    pub(crate) fn leaves_in_turn(&mut self, now: Instant, flow: Option<FlowId>, len: usize) {
        if let Some(live) = flow.and_then(|id| self.live_mut(id)) {
            live.leaves_in_turn(now, len);
        }
    }
}

/// Whether a packet follows all that its flow sent before. TCP has numbers of its own for what it
/// acknowledges. Of what has no ports nothing is observed: ICMP does not mind, while ESP drops what
/// comes later than 64 others (RFC 4303, 3.4.3), and so do others perhaps.
fn keeps_order(now: Instant, packet: &InnerPacket<'_>, flow: Option<&Flow>) -> bool {
    match packet.headers.protocol {
        TCP | ICMP | ICMPV6 => false,
        _ => flow.is_none_or(|flow| flow.live.as_deref().is_some_and(|it| it.keeps_order(now))),
    }
}

/// Whether somebody waits for a packet: a bare acknowledgement, the beginning of a connection, a
/// small datagram. That waits only for its own flow, if it sends much.
fn is_urgent(packet: &InnerPacket<'_>) -> bool {
    // What ends a connection follows what left before it.
    if packet.is_tcp() { packet.is_bare_segment() } else { packet.len() <= SMALL }
}
