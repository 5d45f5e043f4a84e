//! Finds the invite in pasted text. The paste may contain text around the invite, quotes, angle
//! brackets, a final full stop, quotation marks of an e-mail, line breaks, or a byte order mark.
//!
//! This module decides where the invite begins and ends. It begins behind `rove://` and contains
//! its own length. Therefore every character outside base32 can be skipped, and text behind the end
//! does not matter. The checksum and the signatures then prove the result. A text with two
//! different invites is refused, because the program cannot know which one was meant.

use super::wire::Reader;
use super::{CHECKSUM_BYTES, Invite, InviteError, SCHEME, TEXT_BYTES_MAX, Token, VERSION};
use crate::encoding;

/// Bytes of text that are searched. A mail with its history is shorter.
pub(super) const PASTED_BYTES_MAX: usize = 64 << 10;
/// Beginnings of invites that are tried.
const BEGINNINGS_MAX: usize = 32;

/// The one invite in `text`.
pub(super) fn find(text: &str) -> Result<Invite, InviteError> {
    if text.len() > PASTED_BYTES_MAX {
        return Err(InviteError::Long);
    }
    // White space is removed, so that a line break within `rove://` does no harm.
    let text: String = text.chars().filter(|c| c.is_ascii_graphic()).collect();
    let lower = text.to_ascii_lowercase();
    let beginnings = lower.match_indices(SCHEME).map(|(at, _)| at + SCHEME.len());
    let beginnings: Vec<usize> = beginnings.take(BEGINNINGS_MAX).collect();
    let mut found: Option<Invite> = None;
    let mut wrong = None;
    for (place, &begin) in beginnings.iter().enumerate() {
        let end = beginnings.get(place + 1).map_or(lower.len(), |next| next - SCHEME.len());
        match Invite::from_bytes(&bytes_of(&lower[begin..end])) {
            Ok(invite) if found.as_ref().is_some_and(|other| *other != invite) => {
                return Err(InviteError::Several);
            }
            Ok(invite) => found = Some(invite),
            Err(error) => wrong = wrong.or(Some(error)),
        }
    }
    found.ok_or_else(|| wrong.unwrap_or(InviteError::NotAnInvite))
}

/// The bytes of the invite at the beginning of `text`. Too few if it is damaged.
fn bytes_of(text: &str) -> Vec<u8> {
    let is_base32 = |c: &char| matches!(c, 'a'..='z' | '2'..='7');
    let characters: String = text.chars().filter(is_base32).take(TEXT_BYTES_MAX).collect();
    let beginning = encoding::beginning_from_text(&characters);
    let length = match beginning.first() {
        Some(&VERSION) => length_of(&beginning).map(|bytes| (bytes * 8).div_ceil(5)),
        // The length of another version's invite is unknown. It ends at the first character outside
        // base32.
        Some(_) | None => Some(text.chars().take_while(is_base32).count()),
    };
    let whole = length.and_then(|length| encoding::from_text(characters.get(..length)?));
    whole.unwrap_or_default()
}

/// The length that an invite contains.
fn length_of(bytes: &[u8]) -> Option<usize> {
    let mut reader = Reader::new(bytes);
    reader.take(1 + 32)?;
    for _ in 0..reader.byte()? {
        reader.long()?;
    }
    reader.take(Token::BYTES + CHECKSUM_BYTES)?;
    Some(bytes.len() - reader.rest())
}
