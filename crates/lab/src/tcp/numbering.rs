//! Sequence numbers that do not wrap.
//!
//! Inside an end every byte of a direction has a *position*, 64 bits wide; only the header has 32.
//! The SYN stands at [`ORIGIN`], the first byte behind it. What arrives is taken for the position
//! nearest to one that is known, which is right while windows are below 2 GiB (RFC 7323, 2.3).

/// The position of the SYN: far enough from 0 that nothing that arrives lies before it.
pub(super) const ORIGIN: u64 = 1 << 33;

/// The sequence numbers of one direction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Numbering {
    initial: u32,
}

impl Numbering {
    /// A direction whose SYN has this sequence number.
    pub(super) const fn new(initial: u32) -> Self {
        Self { initial }
    }

    /// What stands in a header for a position.
    pub(super) const fn wire(self, position: u64) -> u32 {
        self.initial.wrapping_add(position.wrapping_sub(ORIGIN) as u32)
    }

    /// The position nearest to `near` that a header calls `wire`.
    pub(super) const fn position(self, wire: u32, near: u64) -> u64 {
        let difference = wire.wrapping_sub(self.wire(near)).cast_signed();
        near.saturating_add_signed(difference as i64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_go_on_where_sequence_numbers_begin_again() {
        let numbering = Numbering::new(u32::MAX - 1);
        let mut position = ORIGIN;
        for _ in 0..10 {
            let wire = numbering.wire(position);
            assert_eq!(numbering.position(wire, position - 1_000), position);
            assert_eq!(numbering.position(wire, position + 1_000), position);
            position += (1 << 30) - 7;
        }
    }
}
