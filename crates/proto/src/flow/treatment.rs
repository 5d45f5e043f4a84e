//! Which packets wait on their way out, and which do not, where paths have a share.
//!
//! Decides this by the class of the flow, by the packet itself and by its user's priorities.
//! `bonding` decides the consequences for paths and queues, and `bonding::live` makes copies.
//! `repair` leaves out lost packets that would be too late.

use super::classify::Class;
use super::priority::Level;
use super::record::Flow;
use super::tuple::Direction;
use super::{Flows, bucket, hash};
use crate::ablation::{Ablation, Heuristic};
use crate::id::FlowId;
use crate::recovery::packet::SMALL;
use crate::time::Instant;
use crate::wire::icmp::{ICMP, ICMPV6};
use crate::wire::inner::{InnerPacket, TCP};
use crate::wire::tcp::{Flags, Segment};

/// How one packet is treated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Treatment {
    /// The bucket of its flow.
    pub bucket: u8,
    /// Its flow, if that is observed.
    pub flow: Option<FlowId>,
    /// The class of its flow, if it is of no use late (realtime, DNS) and so waits in no queue.
    pub live: Option<Class>,
    /// Somebody waits for it, and it may overtake its own flow: it leaves before all that waits.
    pub is_urgent: bool,
}

impl Flows {
    /// How a packet from the TUN is treated. Its flow is observed.
    pub fn treat(
        &mut self,
        now: Instant,
        packet: &InnerPacket<'_>,
        ablation: Ablation,
    ) -> Treatment {
        let flow = self.observe(now, Direction::Out, packet);
        let known = flow.and_then(|id| self.flow(id));
        let live = known.map(Flow::class).filter(|class| match class {
            Class::RealTime => true,
            Class::Names => packet.is_udp(),
            Class::Interactive | Class::Bulk => false,
        });
        let live = live.filter(|_| !ablation.is_off(Heuristic::Realtime));
        let is_kept = keeps_order(now, packet, known) && !ablation.is_off(Heuristic::Order);
        let is_urgent = is_urgent(packet) && !is_kept && !ablation.is_off(Heuristic::Hurry);
        Treatment { bucket: bucket(hash(&packet.headers)), flow, live, is_urgent }
    }

    /// A packet leaves in its turn: what follows of its flow may have to follow it.
    pub(crate) fn leaves_in_turn(&mut self, now: Instant, flow: Option<FlowId>, len: usize) {
        if let Some(live) = flow.and_then(|id| self.live_mut(id)) {
            live.leaves_in_turn(now, len);
        }
    }

    /// How much a packet from the TUN is preferred to others.
    pub fn level_of(&self, packet: &InnerPacket<'_>) -> Level {
        let priorities = self.priorities();
        if priorities.is_empty() {
            return Level::default();
        }
        let port = packet.headers.ports.map_or(0, |(_, to)| to);
        priorities.level_of((packet.headers.destination, port))
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
    if packet.is_tcp() {
        Segment::parse(packet).is_some_and(|segment| segment.len == 0 && !ends(segment.flags))
    } else {
        packet.len() <= SMALL
    }
}

/// Whether a segment says that no more comes: what left before it has to be there first.
const fn ends(flags: Flags) -> bool {
    flags.has(Flags::FIN) || flags.has(Flags::RST)
}
