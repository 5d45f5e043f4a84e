//! One packet that waits: it lies in one place, which is handed on from queue to queue.

/// Bytes of a packet at most.
pub const PACKET_MAX: usize = 1_536;

/// A packet. When it has left it goes back to where it came from,
/// [`Blocks::discard`](super::Blocks::discard): dropped, its memory is the system's.
#[derive(Clone)]
pub struct Parcel {
    pub(super) sheet: Box<[u8; PACKET_MAX]>,
    len: usize,
}

impl std::fmt::Debug for Parcel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parcel").field("len", &self.len).finish_non_exhaustive()
    }
}

impl Parcel {
    /// A packet in two parts, together no longer than [`PACKET_MAX`], in place of what `sheet` had.
    pub(super) fn new(mut sheet: Box<[u8; PACKET_MAX]>, head: &[u8], tail: &[u8]) -> Self {
        let len = head.len() + tail.len();
        let (front, back) = sheet[..len].split_at_mut(head.len());
        front.copy_from_slice(head);
        back.copy_from_slice(tail);
        Self { sheet, len }
    }

    /// The packet.
    pub fn packet(&self) -> &[u8] {
        &self.sheet[..self.len]
    }

    /// The packet, to be changed.
    pub(crate) fn packet_mut(&mut self) -> &mut [u8] {
        &mut self.sheet[..self.len]
    }

    /// Bytes of the packet.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether the packet has none.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}
