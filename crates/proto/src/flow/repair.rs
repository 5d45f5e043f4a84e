//! Which lost packets are sent again: asks the flow of each, once.
//!
//! Decides whether somebody still needs a lost packet, and fetches the payload that its connection
//! keeps. Knows neither why the packet was lost nor the path that it will take. The packet's
//! headers are read again.

use super::Flows;
use super::classify::Class;
use super::pep::tcp::Connection;
use super::tuple::{Direction, Tuple};
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
        let kept = std::mem::take(&mut lost.elsewhere);
        let Some(head) = frame::packet_of(&lost.frame) else { return kept == 0 };
        let Ok(headers) = Headers::parse(head, head.len() + kept) else { return kept == 0 };
        let packet = InnerPacket { headers, pieces: Pieces::whole(head) };
        if headers.protocol != TCP {
            let is_useless = || {
                let flow = self.flow_of(&packet, Direction::Out);
                packet.is_udp() && flow.is_some_and(|flow| flow.class() == Class::RealTime)
            };
            let is_repeated = self.questions.sends_again(lost.at, &packet);
            return kept == 0 && !is_repeated && !(is_late && is_useless());
        }
        let segment = Segment::parse(&packet);
        let Some((segment, flow)) = segment.zip(self.connection(&headers)) else {
            return kept == 0;
        };
        let segment = segment.longer(kept);
        if segment.len > 0 && flow.sends_again(lost.at, &segment) {
            return false;
        }
        if kept > 0 {
            let Some((front, back)) = flow.payload(&segment, kept) else { return false };
            lost.frame.extend_from_slice(front);
            lost.frame.extend_from_slice(back);
        }
        true
    }

    /// Whether a packet that left at `left_at` by a path that is dead need not leave again:
    /// it has arrived, or will be sent from here anyway.
    pub fn sends_again(&mut self, left_at: Instant, packet: &InnerPacket<'_>) -> bool {
        if !packet.is_tcp() {
            return self.questions.sends_again(left_at, packet);
        }
        let segment = Segment::parse(packet).filter(|segment| segment.len > 0);
        let found = segment.zip(self.connection(&packet.headers));
        found.is_some_and(|(segment, flow)| flow.sends_again(left_at, &segment))
    }

    /// The `len` bytes that followed `head`, the headers of a packet that left, if they are kept.
    pub fn payload(&mut self, head: &[u8], len: usize) -> Option<(&[u8], &[u8])> {
        let headers = Headers::parse(head, head.len() + len).ok()?;
        let segment = Segment::parse(&InnerPacket { headers, pieces: Pieces::whole(head) })?;
        self.connection(&headers)?.payload(&segment, len)
    }

    /// The connection of a packet on its way out.
    fn connection(&mut self, headers: &Headers) -> Option<&Connection> {
        let id = self.table.find(&Tuple::of(headers, Direction::Out)?)?;
        self.table.get(id)
    }
}
