//! What this node says in an end's place: segments that seem to come from it, with the newest that
//! it said itself.
//!
//! Decides how such a segment looks. When one is said, and up to where it acknowledges or gives
//! room, is for `hold` and `resume` to say.

use super::{Connection, Phase};
use crate::flow::pep::cache::Again;
use crate::flow::tuple::Direction;
use crate::wire::inner::InnerPacket;
use crate::wire::tcp::{Flags, Made, Segment, Seq, Timestamps};

impl Connection {
    /// Acknowledges everything before `ack` to the local side, and gives it room up to `edge`.
    pub(in crate::flow) fn acknowledge(&self, ack: Seq, edge: Seq, out: &mut Vec<u8>) {
        let window = self.window(edge.beyond(ack));
        let flags = Flags::ACK.and(self.echoes());
        let made = Made { ack, window, flags, ..self.made(Direction::In, self.remote.next) };
        made.emit((&[], &[]), out);
    }

    /// Sends a piece again, with the end of the stream if that follows it.
    pub(in crate::flow) fn send_again(&self, again: &Again<'_>, out: &mut Vec<u8>) {
        let push = if again.push { Flags::PSH } else { Flags::default() };
        let fin = if self.local.fin == Some(again.end()) { Flags::FIN } else { Flags::default() };
        let made =
            Made { flags: Flags::ACK.and(push).and(fin), ..self.made(Direction::Out, again.seq) };
        made.emit(again.bytes, out);
    }

    /// Sends a packet of the local side's again that was kept as it came, with its newest clock:
    /// one that comes behind a newer is taken for old (RFC 7323, 5.3).
    pub(in crate::flow) fn send_kept(&self, packet: &[u8], out: &mut Vec<u8>) {
        let at = out.len();
        out.extend_from_slice(packet);
        let packet = &mut out[at..];
        let segment = InnerPacket::whole(packet).ok().and_then(|whole| Segment::parse(&whole));
        if let Some(segment) = segment {
            segment.set_clock(packet, self.local.clock);
        }
    }

    /// Repeats what the local side said last about what it received. With the number of its next
    /// byte, unless what goes before is still to be sent from here: it would seem to be lost.
    pub(in crate::flow) fn say_news(&self, out: &mut Vec<u8>) {
        let unsent = match &self.phase {
            Phase::Resumed(resumed) => resumed.unsent(),
            Phase::Held(_) => self.covered().map(|_| self.local.acked),
            Phase::Normal | Phase::Broken(_) => None,
        };
        let seq = unsent.unwrap_or(self.local.next).max(self.local.acked);
        self.made(Direction::Out, seq).emit((&[], &[]), out);
    }

    /// Clocks for a segment that seems to come from `way`'s sender; `None` where they keep none.
    pub(in crate::flow) fn timestamps(&self, way: Direction) -> Option<Timestamps> {
        let (sender, receiver) = self.ends_of(way);
        let kept = self.terms.is_some_and(|terms| terms.timestamps);
        kept.then_some(Timestamps { value: sender.clock, echo: receiver.clock })
    }

    /// A segment that goes `way`: an acknowledgement, unless it is told to be more.
    fn made(&self, way: Direction, seq: Seq) -> Made {
        let (sender, receiver) = self.ends_of(way);
        Made {
            ends: self.tuple.ends(way),
            seq,
            ack: receiver.acked,
            flags: Flags::ACK,
            window: sender.window,
            timestamps: self.timestamps(way),
        }
    }
}
