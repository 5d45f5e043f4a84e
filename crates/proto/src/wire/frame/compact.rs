//! The compact packet frame: an inner packet without the fields that its context has
//! (docs/spec/wire.md#compact-packets). `codec` knows what they are.

use super::kind;
use super::packet::Framing;
use crate::error::DropReason;
use crate::wire::cursor::{Reader, Writer};

/// Bytes of a sequence number that travel. With two, a bucket that loses 32,768 packets in a row
/// would find its place again only under the next keys.
const SEQUENCE_BYTES: usize = 3;
/// Numbers that have different bytes.
const SPAN: u32 = 1 << (8 * SEQUENCE_BYTES);
/// Bytes before the fields of a packet with a number: type, length, bucket, sequence, context.
pub const COMPACT_OVERHEAD: usize = 3 + 1 + SEQUENCE_BYTES + 2;

/// Where a compact packet belongs. Its framing has the low bits of the sequence number only.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CompactHead {
    /// How it is numbered: not as the first of a sequence.
    pub framing: Framing,
    /// The ID of its context.
    pub context: u16,
}

impl CompactHead {
    /// The head of a packet with this framing; `None` if such a packet travels whole.
    pub const fn new(framing: Framing, context: u16) -> Option<Self> {
        let framing = match framing {
            Framing::Plain => framing,
            Framing::Once { bucket, sequence } => {
                Framing::Once { bucket, sequence: sequence % SPAN }
            }
            Framing::InOrder { bucket, sequence } => {
                Framing::InOrder { bucket, sequence: sequence % SPAN }
            }
            Framing::First { .. } => return None,
        };
        Some(Self { framing, context })
    }

    /// Appends what precedes a body of `len` bytes.
    pub fn emit(self, len: usize, out: &mut Vec<u8>) {
        let (kind, numbered) = match self.framing {
            Framing::Plain | Framing::First { .. } => (kind::COMPACT, None),
            Framing::Once { bucket, sequence } => (kind::COMPACT_ONCE, Some((bucket, sequence))),
            Framing::InOrder { bucket, sequence } => {
                (kind::COMPACT_IN_ORDER, Some((bucket, sequence)))
            }
        };
        let numbering = if numbered.is_some() { 1 + SEQUENCE_BYTES } else { 0 };
        let length = u16::try_from(numbering + 2 + len).unwrap_or(u16::MAX);
        let mut writer = Writer::new(out);
        writer.u8(kind);
        writer.u16(length);
        if let Some((bucket, sequence)) = numbered {
            writer.u8(bucket);
            writer.bytes(&sequence.to_be_bytes()[size_of::<u32>() - SEQUENCE_BYTES..]);
        }
        writer.u16(self.context);
    }

    /// Reads what precedes the fields in a frame of the type `kind`, if it is one of these.
    pub(super) fn parse(kind: u8, reader: &mut Reader<'_>) -> Option<Result<Self, DropReason>> {
        let read = |reader: &mut Reader<'_>| {
            let framing = match kind {
                kind::COMPACT => Framing::Plain,
                _ => {
                    let (bucket, [a, b, c]) = (reader.u8()?, reader.array::<SEQUENCE_BYTES>()?);
                    let sequence = u32::from_be_bytes([0, a, b, c]);
                    if kind == kind::COMPACT_ONCE {
                        Framing::Once { bucket, sequence }
                    } else {
                        Framing::InOrder { bucket, sequence }
                    }
                }
            };
            Ok(Self { framing, context: reader.u16()? })
        };
        let is_compact =
            matches!(kind, kind::COMPACT | kind::COMPACT_ONCE | kind::COMPACT_IN_ORDER);
        is_compact.then(|| read(reader))
    }
}

/// The sequence number nearest to `next` whose low bits are `low`.
pub fn expand_sequence(next: u32, low: u32) -> u32 {
    let ahead = low.wrapping_sub(next) % SPAN;
    let nearest = next.wrapping_add(ahead);
    if ahead < SPAN / 2 { nearest } else { nearest.wrapping_sub(SPAN) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn numbers_expand_to_the_nearest(next: u32, offset in -(1_i32 << 23)..1 << 23) {
            let number = next.wrapping_add_signed(offset);
            prop_assert_eq!(expand_sequence(next, number % SPAN), number);
        }
    }
}
