//! One packet that waits: it lies in one place, which is handed on from queue to queue.

use crate::packet::Checksum;

/// Bytes of a packet at most.
pub const PACKET_MAX: usize = 1_536;

/// A packet. When it has left it goes back to where it came from,
/// [`Blocks::discard`](super::Blocks::discard): dropped, its memory is the system's.
#[derive(Clone)]
pub struct Parcel {
    pub(super) sheet: Box<[u8; PACKET_MAX]>,
    len: u16,
    checksum: Checksum,
}

const _: () = assert!(PACKET_MAX <= u16::MAX as usize && size_of::<Parcel>() <= 16);

impl std::fmt::Debug for Parcel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parcel").field("len", &self.len).finish_non_exhaustive()
    }
}

impl Parcel {
    /// A packet in two parts, together no longer than [`PACKET_MAX`], in place of what `sheet` had.
    pub(super) fn new(
        mut sheet: Box<[u8; PACKET_MAX]>,
        (head, tail): (&[u8], &[u8]),
        checksum: Checksum,
    ) -> Self {
        let len = head.len() + tail.len();
        let (front, back) = sheet[..len].split_at_mut(head.len());
        front.copy_from_slice(head);
        back.copy_from_slice(tail);
        #[expect(clippy::cast_possible_truncation, reason = "no longer than PACKET_MAX")]
        let len = len as u16;
        Self { sheet, len, checksum }
    }

    /// The packet.
    pub fn packet(&self) -> &[u8] {
        &self.sheet[..self.len()]
    }

    /// What is known of its checksum.
    pub const fn checksum(&self) -> Checksum {
        self.checksum
    }

    /// The packet, to be changed: not what the checksum of its transport covers.
    pub(crate) fn packet_mut(&mut self) -> &mut [u8] {
        let len = self.len();
        &mut self.sheet[..len]
    }

    /// Bytes of the packet.
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether the packet has none.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}
