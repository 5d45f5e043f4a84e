//! Which lost packets are sent again: asks the flow of each, once.
//!
//! Decides whether somebody still needs a lost packet, and fetches the payload that its connection
//! keeps. Knows neither why the packet was lost nor the path that it will take. The name that left
//! with the packet finds its flow. Only a connection's sequence number is read again.

use super::Flows;
use super::classify::Class;
use super::record::Flow;
use crate::id::FlowId;
use crate::recovery::packet::LostPacket;
use crate::time::Instant;
use crate::wire::frame;
use crate::wire::inner::{Headers, InnerPacket, Pieces, TCP};
use crate::wire::tcp::Segment;

impl Flows {
    /// Whether a lost packet is to be sent again; then its frame is complete. It is not if it has
    /// arrived after all, if this end sends it again on the account of its connection, or if it is
    /// a realtime packet that `is_late`.
    pub(crate) fn needs(&mut self, lost: &mut LostPacket, is_late: bool) -> bool {
        let kept = usize::from(std::mem::take(&mut lost.kept));
        let flow = lost.flow.and_then(|id| self.table.flow(id));
        if let Some(connection) = flow.and_then(|flow| flow.connection.as_deref()) {
            let packet = packet_in(&lost.frame, kept);
            let segment = packet.as_ref().and_then(Segment::parse);
            let Some(segment) = segment.map(|it| it.longer(kept)) else { return kept == 0 };
            if segment.len > 0 && connection.sends_again(lost.at, &segment) {
                return false;
            }
            if kept > 0 {
                let Some((front, back)) = connection.payload(&segment, kept) else { return false };
                lost.frame.extend_from_slice(front);
                lost.frame.extend_from_slice(back);
            }
            return true;
        }
        let is_realtime =
            |flow: &Flow| flow.class() == Class::RealTime && flow.tuple.protocol != TCP;
        let is_repeated = || {
            let packet = packet_in(&lost.frame, kept);
            packet.is_some_and(|packet| self.questions.sends_again(lost.at, &packet))
        };
        let is_useless = is_late && flow.is_some_and(is_realtime);
        kept == 0 && !is_useless && (self.questions.is_empty() || !is_repeated())
    }

    /// The last `len` bytes of a packet of `flow` that begins with `head`, if they are kept.
    pub fn payload(&self, flow: FlowId, head: &[u8], len: usize) -> Option<(&[u8], &[u8])> {
        let segment = Segment::parse(&packet_of(head, len)?)?;
        self.table.get(flow)?.payload(&segment, len)
    }

    /// Whether a packet of `flow` that left at `left_at` by a path that is dead need not leave
    /// again: it has arrived, or will be sent from here anyway.
    pub fn sends_again(
        &self,
        left_at: Instant,
        flow: Option<FlowId>,
        packet: &InnerPacket<'_>,
    ) -> bool {
        if !packet.is_tcp() {
            return self.questions.sends_again(left_at, packet);
        }
        let segment = Segment::parse(packet).filter(|segment| segment.len > 0);
        let found = segment.zip(flow.and_then(|id| self.table.get(id)));
        found.is_some_and(|(segment, flow)| flow.sends_again(left_at, &segment))
    }
}

/// The packet in a frame that lacks the last `kept` bytes.
fn packet_in(frame: &[u8], kept: usize) -> Option<InnerPacket<'_>> {
    packet_of(frame::packet_of(frame)?, kept)
}

/// The packet of which the last `kept` bytes follow `head`.
fn packet_of(head: &[u8], kept: usize) -> Option<InnerPacket<'_>> {
    let headers = Headers::parse(head, head.len() + kept).ok()?;
    Some(InnerPacket::read(headers, Pieces::whole(head)))
}
