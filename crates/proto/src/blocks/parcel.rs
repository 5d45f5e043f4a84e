//! One packet that waits: in one place, which is handed on from queue to queue.

/// Bytes of what one is written in.
const ROOM: usize = 1_536;
/// Bytes of a packet that fit.
pub const PACKET_MAX: usize = ROOM;

/// What one is written in.
pub(super) type Sheet = [u8; ROOM];

/// A packet. When it has left it goes back to where it came from,
/// [`Blocks::discard`](super::Blocks::discard): dropped, its memory is the system's.
#[derive(Clone)]
pub struct Parcel {
    pub(super) sheet: Box<Sheet>,
    len: u16,
}

impl std::fmt::Debug for Parcel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parcel").field("len", &self.len).finish_non_exhaustive()
    }
}

impl Parcel {
    /// A packet in two parts; `None` if it is longer than [`PACKET_MAX`].
    pub(super) fn new(
        lend: impl FnOnce() -> Box<Sheet>,
        (head, tail): (&[u8], &[u8]),
    ) -> Option<Self> {
        let len = head.len() + tail.len();
        let bounded = u16::try_from(len).ok().filter(|_| len <= PACKET_MAX)?;
        let mut sheet = lend();
        let (front, back) = sheet[..len].split_at_mut(head.len());
        front.copy_from_slice(head);
        back.copy_from_slice(tail);
        Some(Self { sheet, len: bounded })
    }

    /// The packet.
    pub fn packet(&self) -> &[u8] {
        &self.sheet[..self.len()]
    }

    /// The packet, to be changed.
    pub fn packet_mut(&mut self) -> &mut [u8] {
        &mut self.sheet[..usize::from(self.len)]
    }

    /// Bytes of the packet.
    pub fn len(&self) -> usize {
        self.len.into()
    }

    /// Whether the packet has none.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}
