//! One side of a connection, as far as its segments tell: what it sent, acknowledged and has room
//! for. Knows neither what is plausible nor who speaks for it.

use crate::wire::tcp::{Flags, Opening, Segment, Seq};

/// What a segment holds where its receiver named no size (RFC 9293, 3.7.1).
const MSS_USUAL: u16 = 536;

/// One side of a connection.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Side {
    /// Whether anything was seen of it.
    pub(super) is_known: bool,
    /// The number after the last that it sent.
    pub(super) next: Seq,
    /// Up to where the other side has acknowledged it.
    pub(super) acked: Seq,
    /// Up to where it has room for what the other side sends.
    pub(super) edge: Seq,
    /// Its last window, as it stood in the header.
    pub(super) window: u16,
    /// By how many bits its windows are shifted.
    pub(super) scale: u8,
    /// The largest payload that it takes.
    pub(super) mss: u16,
    /// Its newest clock.
    pub(super) clock: u32,
    /// The number of its FIN.
    pub(super) fin: Option<Seq>,
    /// The number of its SYN, where that was seen.
    begin: Option<Seq>,
    /// Whether it has acknowledged anything: `edge` and `window` mean something, and `acked` of the
    /// other is no guess.
    pub(super) answered: bool,
    opening: Opening,
}

/// What both sides agreed on.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Terms {
    pub(super) timestamps: bool,
    pub(super) sack: bool,
    /// Whether nobody but the two ends can make segments.
    pub(super) closed_to_others: bool,
}

impl Side {
    /// It sends a segment. Returns whether that moves it on.
    pub(super) fn sends(&mut self, segment: &Segment) -> bool {
        let end = segment.end();
        let first = !self.is_known;
        if first {
            let begin = segment.flags.has(Flags::SYN).then_some(segment.seq);
            let (acked, mss) = (segment.seq, MSS_USUAL);
            *self = Self { is_known: true, next: end, acked, mss, begin, ..Self::default() };
        }
        let fresh = first || self.next.is_before(end);
        self.next = self.next.max(end);
        if segment.flags.has(Flags::FIN) {
            self.fin = Some(end.minus(1));
        }
        if first {
            self.clock = segment.timestamps.map_or(0, |timestamps| timestamps.value);
        } else {
            self.tells_time(segment);
        }
        fresh
    }

    /// Bytes of the largest window that it can have.
    pub(super) const fn window_max(&self) -> u32 {
        (u16::MAX as u32) << self.scale
    }

    /// Up to where it has room, as its segment says. A SYN's window is not scaled.
    const fn edge_of(&self, segment: &Segment) -> Seq {
        let scale = if segment.flags.has(Flags::SYN) { 0 } else { self.scale };
        segment.ack.plus((segment.window as u32) << scale)
    }

    /// Its newest clock counts.
    const fn tells_time(&mut self, segment: &Segment) {
        if let Some(timestamps) = segment.timestamps
            && timestamps.value.wrapping_sub(self.clock).cast_signed() > 0
        {
            self.clock = timestamps.value;
        }
    }

    /// It acknowledges what `other` sent. Returns whether that is news.
    pub(super) fn answers(&mut self, segment: &Segment, other: &mut Self) -> bool {
        self.window = segment.window;
        let edge = self.edge_of(segment);
        if !other.is_known {
            // Seen in its midst, and from one side so far.
            *other = Self { is_known: true, next: segment.ack, acked: segment.ack, ..*other };
            other.mss = MSS_USUAL;
        }
        if other.begin.is_none() {
            // What was seen of the other first may lie far beyond what this one has, or before.
            other.next = other.next.max(segment.ack);
            other.acked = if self.answered { other.acked } else { segment.ack };
        }
        let plausible = !other.next.is_before(segment.ack);
        let moved = plausible && other.acked.is_before(segment.ack);
        if plausible {
            other.acked = other.acked.max(segment.ack);
            // A window that moves back is none (RFC 9293, 3.8.6).
            self.edge = if self.answered { edge.max(self.edge) } else { edge };
            self.answered = true;
        }
        moved
    }

    /// Whether the other side has answered its SYN.
    pub(super) fn has_begun(&self) -> bool {
        self.is_known && self.begin.is_none_or(|begin| begin.is_before(self.acked))
    }

    /// Whether its SYN was seen, with this number.
    pub(super) fn began_with(&self, seq: Seq) -> bool {
        self.begin == Some(seq)
    }

    /// Whether it has ended its stream, and the other side knows.
    pub(super) fn has_ended(&self) -> bool {
        self.fin.is_some_and(|fin| fin.is_before(self.acked))
    }

    /// Its SYN says this beside.
    pub(super) fn opens(&mut self, opening: Opening) {
        self.opening = opening;
        self.mss = opening.mss.unwrap_or(MSS_USUAL);
    }

    /// Its SYN, `segment`, answers that of `asked`: what the first offered holds if the second
    /// takes it. `None` where that one was not seen.
    pub(super) fn agrees(&mut self, asked: &mut Self, segment: &Segment) -> Option<Terms> {
        asked.begin?;
        let scaled = asked.opening.scale.zip(self.opening.scale);
        (asked.scale, self.scale) = scaled.unwrap_or((0, 0));
        let is_closed = |side: &Self| side.opening.closed_to_others;
        Some(Terms {
            timestamps: asked.clock != 0 && segment.timestamps.is_some(),
            sack: asked.opening.sack && self.opening.sack,
            closed_to_others: is_closed(asked) || is_closed(self),
        })
    }
}
