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

use crate::packet::PacketRecord;
use crate::recovery::joined::JOINED_MAX;
use crate::time::{Duration, Instant};

/// How long the first packet of a datagram waits for others: as long as in the source. At half of
/// it telemetry of 5 ms is no longer joined; at twice it a request waits noticeably longer.
pub(crate) const WAIT: Duration = Duration::from_millis(10);
/// If less than this is left, the datagram leaves: no frame would fit.
const ROOM_MIN: usize = 40;

/// A frame in the datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Part {
    /// The packet. Bytes that its connection keeps are at the frame's end.
    pub(crate) record: PacketRecord,
    /// Bytes of the frame.
    pub(crate) len: usize,
}

/// The frames of a datagram for `P`, a path under some keys.
#[derive(Clone, Debug)]
pub(crate) struct Joining<P> {
    /// Where it goes; `None` while there is no frame.
    to: Option<P>,
    frames: Vec<u8>,
    parts: Vec<Part>,
    /// Bytes that the frames may have.
    room: usize,
    /// When it leaves at the latest.
    due: Instant,
}

impl<P: Copy + PartialEq> Joining<P> {
    /// No frame.
    pub(crate) const fn new() -> Self {
        Self { to: None, frames: Vec::new(), parts: Vec::new(), room: 0, due: Instant::ZERO }
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
    /// true. The datagram leaves by `due`, or earlier if other frames want that. Returns whether
    /// it is full.
    pub(crate) fn add(
        &mut self,
        (to, room): (P, usize),
        due: Instant,
        record: PacketRecord,
        frame: &[u8],
    ) -> bool {
        if self.to.is_none() {
            (self.room, self.due) = (room, due);
        }
        self.to = Some(to);
        self.due = self.due.min(due);
        self.frames.extend_from_slice(frame);
        self.parts.push(Part { record, len: frame.len() });
        self.frames.len() + ROOM_MIN > self.room || self.parts.len() >= JOINED_MAX
    }

    /// Whether a packet of this bucket is among the frames.
    pub(crate) fn has_bucket(&self, bucket: u8) -> bool {
        self.parts.iter().any(|part| part.record.bucket == bucket)
    }

    /// The frames, one after the other, and what each is.
    pub(crate) fn contents(&self) -> (&[u8], &[Part]) {
        (&self.frames, &self.parts)
    }

    /// Forgets the frames, and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.to = None;
        self.frames.clear();
        self.parts.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORD: PacketRecord = PacketRecord::of_bucket(7);

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn the_first_frame_sets_the_time_and_a_hurried_one_shortens_it() {
        let mut joining = Joining::new();
        assert_eq!(joining.due(), None);
        joining.add((1, 1_400), at(10), RECORD, &[1; 100]);
        joining.add((1, 1_400), at(14), RECORD, &[2; 100]);
        assert_eq!(joining.due(), Some(at(10)));
        joining.add((1, 1_400), at(5), RECORD, &[3; 100]);
        assert_eq!(joining.due(), Some(at(5)));
        joining.clear();
        joining.add((1, 1_400), at(30), RECORD, &[1; 100]);
        assert_eq!(joining.due(), Some(at(30)));
    }

    #[test]
    fn what_does_not_fit_or_goes_elsewhere_has_no_room() {
        let mut joining = Joining::new();
        assert!(joining.has_room(1, 5_000), "alone");
        assert!(!joining.add((1, 300), at(10), RECORD, &[1; 100]));
        assert!(joining.has_room(1, 200) && !joining.has_room(1, 201) && !joining.has_room(2, 10));
        assert!(joining.add((1, 300), at(10), RECORD, &[1; 161]), "no frame fits");
        assert!(joining.has_bucket(7) && !joining.has_bucket(8));
        let (frames, parts) = joining.contents();
        assert_eq!((frames.len(), parts.len()), (261, 2));
        assert_eq!(parts.iter().map(|part| part.len).sum::<usize>(), frames.len());
    }

    #[test]
    fn a_datagram_has_so_many_frames() {
        let mut joining = Joining::new();
        let full = (0..JOINED_MAX).map(|_| joining.add((1, 1_400), at(0), RECORD, &[1; 2]));
        assert_eq!(full.filter(|&is_full| is_full).count(), 1);
        assert!(!joining.has_room(1, 1));
    }
}
