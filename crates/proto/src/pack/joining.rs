//! A datagram under construction: packet frames that leave together.
//!
//! Two kinds of packets share datagrams. Packets that wait for the same path already: they leave as
//! soon as the path may send, and nothing waits for them. And packets of flows that are compressed:
//! the first one waits for [`WAIT`] at most for others, or until one does not fit (Alshalan 2017,
//! section 5.5.2).
//!
//! Only packets with a number share a datagram, so each is repaired by itself. Realtime packets,
//! bare acknowledgements, and packets of which copies leave by several paths never do.
//!
//! Knows the room of the datagram and the time. Does not know what a path is. Bounds: one datagram,
//! [`JOINED_MAX`] frames.

use crate::packet::{PacketRecord, Strength};
use crate::recovery::joined::JOINED_MAX;
use crate::time::{Duration, Instant};

/// How long the first packet of a datagram waits for others: as long as in the source. At half of
/// it telemetry of 5 ms is no longer joined; at twice it a request waits noticeably longer.
pub(crate) const WAIT: Duration = Duration::from_millis(10);
/// If less than this is left, the datagram leaves: no frame would fit.
const ROOM_MIN: usize = 40;

/// A frame in the datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Part {
    /// The packet. Bytes that its connection keeps are at the frame's end.
    record: PacketRecord,
    /// Bytes of the frame as it leaves.
    len: usize,
    /// Bytes of the frame as it is kept for repair, if that is another form.
    other: Option<usize>,
}

/// The frames of a datagram: as they leave, and as they are kept for repair.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Contents<'a> {
    /// One after the other, as they leave.
    frames: &'a [u8],
    /// As they are kept, those of which that is another form.
    others: &'a [u8],
    parts: &'a [Part],
    strength: Strength,
}

impl<'a> Contents<'a> {
    /// The frames as they leave, one after the other.
    pub(crate) const fn frames(self) -> &'a [u8] {
        self.frames
    }

    /// How many frames there are.
    pub(crate) const fn len(self) -> usize {
        self.parts.len()
    }

    /// Whether some leave in another form than they are kept in.
    pub(crate) const fn has_forms(self) -> bool {
        !self.others.is_empty()
    }

    /// The highest strength that one of the packets asks for.
    pub(crate) const fn strength(self) -> Strength {
        self.strength
    }

    /// Each packet, and its frame as it is kept for repair.
    pub(crate) fn kept(self) -> impl Iterator<Item = (PacketRecord, &'a [u8])> {
        let Self { mut frames, mut others, parts, .. } = self;
        parts.iter().map(move |part| {
            let leaves = frames.split_off(..part.len).unwrap_or_default();
            let other = part.other.map(|len| others.split_off(..len).unwrap_or_default());
            (part.record, other.unwrap_or(leaves))
        })
    }
}

/// The frames of a datagram for `P`, a path under some keys.
#[derive(Clone, Debug)]
pub(crate) struct Joining<P> {
    /// Where it goes; `None` while there is no frame.
    to: Option<P>,
    frames: Vec<u8>,
    /// Frames in the form in which they are kept, if they leave in another.
    others: Vec<u8>,
    parts: Vec<Part>,
    /// The highest strength that one of the packets asks for.
    strength: Strength,
    /// Bytes that the frames may have.
    room: usize,
    /// When it leaves at the latest.
    due: Instant,
}

impl<P: Copy + PartialEq> Joining<P> {
    /// No frame.
    pub(crate) const fn new() -> Self {
        Self {
            to: None,
            frames: Vec::new(),
            others: Vec::new(),
            parts: Vec::new(),
            strength: Strength::Bits128,
            room: 0,
            due: Instant::ZERO,
        }
    }

    /// Where the datagram goes; `None` while there is no frame.
    pub(crate) const fn to(&self) -> Option<P> {
        self.to
    }

    /// When the datagram leaves at the latest; `None` while there is no frame.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.to.map(|_| self.due)
    }

    /// Whether a frame of `len` bytes for `to` may share the datagram. It may if there is none yet.
    pub(crate) fn has_room(&self, to: P, len: usize) -> bool {
        let fits = self.to == Some(to) && self.frames.len() + len <= self.room;
        self.to.is_none() || (fits && self.parts.len() < JOINED_MAX)
    }

    /// Adds a frame for `to`, of which a datagram has `room` for frames. [`Self::has_room`] was
    /// true. `other` is the form in which it is kept, if it leaves in another one. The datagram
    /// leaves by `due`, or earlier if other frames want that. Returns whether it is full.
    pub(crate) fn add(
        &mut self,
        (to, room): (P, usize),
        due: Instant,
        record: PacketRecord,
        (frame, other): (&[u8], Option<&[u8]>),
    ) -> bool {
        if self.to.is_none() {
            (self.room, self.due) = (room, due);
        }
        self.to = Some(to);
        self.due = self.due.min(due);
        self.strength = self.strength.max(record.marks.strength());
        self.frames.extend_from_slice(frame);
        self.others.extend_from_slice(other.unwrap_or_default());
        self.parts.push(Part { record, len: frame.len(), other: other.map(<[u8]>::len) });
        self.frames.len() + ROOM_MIN > self.room || self.parts.len() >= JOINED_MAX
    }

    /// Whether a packet of this bucket is among the frames.
    pub(crate) fn has_bucket(&self, bucket: u8) -> bool {
        self.parts.iter().any(|part| part.record.bucket == bucket)
    }

    /// The frames.
    pub(crate) fn contents(&self) -> Contents<'_> {
        let Self { frames, others, parts, strength, .. } = self;
        Contents { frames, others, parts, strength: *strength }
    }

    /// Forgets the frames, and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.to = None;
        self.strength = Strength::Bits128;
        self.frames.clear();
        self.others.clear();
        self.parts.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::Marks;

    const RECORD: PacketRecord = PacketRecord::of_bucket(7);

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn the_first_frame_sets_the_time_and_a_hurried_one_shortens_it() {
        let mut joining = Joining::new();
        assert_eq!(joining.due(), None);
        joining.add((1, 1_400), at(10), RECORD, (&[1; 100], None));
        joining.add((1, 1_400), at(14), RECORD, (&[2; 100], None));
        assert_eq!(joining.due(), Some(at(10)));
        joining.add((1, 1_400), at(5), RECORD, (&[3; 100], None));
        assert_eq!(joining.due(), Some(at(5)));
        joining.clear();
        joining.add((1, 1_400), at(30), RECORD, (&[1; 100], None));
        assert_eq!(joining.due(), Some(at(30)));
    }

    #[test]
    fn the_strongest_packet_counts_for_all_of_its_datagram() {
        let strong = Marks::NONE.with_strength(Strength::Bits256);
        let strong = PacketRecord { marks: strong, ..RECORD };
        let mut joining = Joining::new();
        for (record, strength) in
            [(RECORD, Strength::Bits128), (strong, Strength::Bits256), (RECORD, Strength::Bits256)]
        {
            joining.add((1, 1_400), at(0), record, (&[1; 100], None));
            assert_eq!(joining.contents().strength(), strength);
        }
        joining.clear();
        joining.add((1, 1_400), at(0), RECORD, (&[1; 100], None));
        assert_eq!(joining.contents().strength(), Strength::Bits128, "the next datagram");
    }

    #[test]
    fn what_does_not_fit_or_goes_elsewhere_has_no_room() {
        let mut joining = Joining::new();
        assert!(joining.has_room(1, 5_000), "alone");
        assert!(!joining.add((1, 300), at(10), RECORD, (&[1; 100], None)));
        assert!(joining.has_room(1, 200) && !joining.has_room(1, 201) && !joining.has_room(2, 10));
        assert!(joining.add((1, 300), at(10), RECORD, (&[1; 161], None)), "no frame fits");
        assert!(joining.has_bucket(7) && !joining.has_bucket(8));
        let contents = joining.contents();
        assert_eq!((contents.frames.len(), contents.len(), contents.has_forms()), (261, 2, false));
        assert_eq!(contents.kept().map(|(_, frame)| frame.len()).sum::<usize>(), 261);
    }

    #[test]
    fn a_frame_may_leave_in_another_form_than_it_is_kept_in() {
        let mut joining = Joining::new();
        joining.add((1, 300), at(0), RECORD, (&[1; 100], None));
        joining.add((1, 300), at(0), RECORD, (&[2; 50], Some(&[3; 90])));
        joining.add((1, 300), at(0), RECORD, (&[4; 80], None));
        joining.add((1, 300), at(0), RECORD, (&[5; 10], Some(&[6; 400])));
        let contents = joining.contents();
        assert_eq!(
            (contents.frames.len(), contents.has_forms()),
            (240, true),
            "what leaves counts"
        );
        let kept = contents.kept().map(|(_, frame)| (frame[0], frame.len()));
        assert_eq!(kept.collect::<Vec<_>>(), [(1, 100), (3, 90), (4, 80), (6, 400)]);
        joining.clear();
        joining.add((1, 300), at(0), RECORD, (&[7; 10], None));
        let contents = joining.contents();
        assert!(contents.kept().eq([(RECORD, &[7; 10][..])]) && !contents.has_forms());
    }

    #[test]
    fn a_datagram_has_so_many_frames() {
        let mut joining = Joining::new();
        let full = (0..JOINED_MAX).map(|_| joining.add((1, 1_400), at(0), RECORD, (&[1; 2], None)));
        assert_eq!(full.filter(|&is_full| is_full).count(), 1);
        assert!(!joining.has_room(1, 1));
    }
}
