//! Finds the invite in what a person pasted: with text around it, quotes, angle brackets, a final
//! full stop, quotation marks of an e-mail, line breaks in the middle, a byte order mark.
//!
//! Decides where the invite begins and ends. It begins behind `rove://`, and it says itself how
//! long it is, so that everything that is no base32 can be skipped and nothing behind the end
//! matters. The checksum and the signatures then say whether that was right. A text with two
//! different invites is refused: which one was meant is not for this program to guess.

use super::wire::Reader;
use super::{CHECKSUM_BYTES, Invite, InviteError, SCHEME, TEXT_BYTES_MAX, Token, VERSION};
use crate::encoding;

/// Bytes of text that are searched; a mail with its history has fewer.
pub(super) const PASTED_BYTES_MAX: usize = 64 << 10;
/// Beginnings of invites that are looked at.
const BEGINNINGS_MAX: usize = 32;

/// The one invite in `text`.
pub(super) fn find(text: &str) -> Result<Invite, InviteError> {
    if text.len() > PASTED_BYTES_MAX {
        return Err(InviteError::Long);
    }
    // Without white space, so that a line break within `rove://` is none.
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

/// The bytes of the invite at the beginning of `text`; too few if it is damaged.
fn bytes_of(text: &str) -> Vec<u8> {
    let is_base32 = |c: &char| matches!(c, 'a'..='z' | '2'..='7');
    let characters: String = text.chars().filter(is_base32).take(TEXT_BYTES_MAX).collect();
    let beginning = encoding::beginning_from_text(&characters);
    let length = match beginning.first() {
        Some(&VERSION) => length_of(&beginning).map(|bytes| (bytes * 8).div_ceil(5)),
        // How long another version's is cannot be known: it ends where something else begins.
        Some(_) | None => Some(text.chars().take_while(is_base32).count()),
    };
    let whole = length.and_then(|length| encoding::from_text(characters.get(..length)?));
    whole.unwrap_or_default()
}

/// How long an invite says that it is.
fn length_of(bytes: &[u8]) -> Option<usize> {
    let mut reader = Reader::new(bytes);
    reader.take(1 + 32)?;
    for _ in 0..reader.byte()? {
        reader.long()?;
    }
    reader.take(Token::BYTES + CHECKSUM_BYTES)?;
    Some(bytes.len() - reader.rest())
}
