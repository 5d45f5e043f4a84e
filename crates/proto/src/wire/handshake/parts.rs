//! A response in two parts, for paths that cannot carry it whole
//! (docs/spec/handshake.md#5-response).
//!
//! This module splits and parses. The receiver decides which pieces belong together.

use super::{A_LEN, B_LEN, RESPONSE_LEN, Response, field};
use crate::error::DropReason;
use crate::id::SessionIndex;
use crate::wire::Kind;
use crate::wire::cursor::Writer;
use crate::wire::data::BASE_DATAGRAM;

/// Bytes of the response in its first part. The second part carries the rest.
pub const PART_HEAD_LEN: usize = 1_000;
/// Bytes of a part before its piece of the response.
const PART_OVERHEAD: usize = 1 + 4 + 1;
/// Bytes of both parts.
pub const PART_LENS: [usize; 2] =
    [PART_OVERHEAD + PART_HEAD_LEN, PART_OVERHEAD + RESPONSE_LEN - PART_HEAD_LEN];

const _: () = assert!(PART_LENS[0] <= BASE_DATAGRAM, "the parts of a response fit any path");
const _: () = assert!(PART_LENS[0] + PART_LENS[1] < A_LEN + B_LEN, "which amplify nothing");

/// A view of one of the two parts of a response:
/// `kind 1 | receiver index 4 | part 1 | piece of the response`.
#[derive(Clone, Copy, Debug)]
pub struct ResponsePart<'a> {
    /// The index of the answered exchange.
    pub receiver: SessionIndex,
    /// The number of the part: 0 or 1.
    pub number: usize,
    /// The piece of the response.
    pub piece: &'a [u8],
}

impl<'a> ResponsePart<'a> {
    /// A view of `bytes`.
    ///
    /// # Errors
    /// [`DropReason::Malformed`] for another kind or part, or a wrong length for that part.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, DropReason> {
        let number = usize::from(*bytes.get(PART_OVERHEAD - 1).ok_or(DropReason::Malformed)?);
        let fits = PART_LENS.get(number).is_some_and(|&len| len == bytes.len());
        if bytes[0] != Kind::ResponsePart as u8 || !fits {
            return Err(DropReason::Malformed);
        }
        let receiver = SessionIndex(u32::from_be_bytes(field(bytes, 1)));
        Ok(Self { receiver, number, piece: &bytes[PART_OVERHEAD..] })
    }

    /// Both parts of a response.
    ///
    /// # Errors
    /// [`DropReason::Malformed`] if `response` is not a response.
    pub fn both(response: &[u8]) -> Result<[Vec<u8>; 2], DropReason> {
        let receiver = Response::parse(response)?.receiver();
        let (head, tail) = response.split_at(PART_HEAD_LEN);
        let part = |number, piece| {
            let mut out = Vec::with_capacity(BASE_DATAGRAM);
            let mut writer = Writer::new(&mut out);
            writer.u8(Kind::ResponsePart as u8);
            writer.u32(receiver.0);
            writer.u8(number);
            writer.bytes(piece);
            out
        };
        Ok([part(0, head), part(1, tail)])
    }
}
