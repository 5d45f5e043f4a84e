//! Invites: one line that lets one client (or `--uses N`) join a service.
//!
//! `rove://` and base32 of: version 1 | operator key 32 | count 1 | signed gateways, each with its
//! length in 2 bytes | token 16 | checksum 4 (the start of SHA-256 over all before it). Big-endian.
//! The checksum tells a mistyped invite from a forged one; the operator's signatures tell a forged
//! gateway from a true one. An invite carries no private key of anyone: the client makes its own,
//! and the gateway keeps only the token's hash.
//!
//! Limits: an invite does not say when it expires or how many uses are left; the gateway does.

mod pasted;
mod record;
mod wire;

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};

use crate::encoding;
use crate::keys::{self, KeyError, OperatorPublic};

#[cfg(feature = "testing")]
pub(crate) use record::signed;
pub use record::{GatewayRecord, SignedRecord};
use wire::Reader;

/// How many gateways one service may name in an invite.
const GATEWAYS_MAX: usize = 8;

const SCHEME: &str = "rove://";
const VERSION: u8 = 1;
const CHECKSUM_BYTES: usize = 4;
/// No invite is longer: the bound on what is decoded at all.
const TEXT_BYTES_MAX: usize = SCHEME.len()
    + (1 + 32 + 1 + GATEWAYS_MAX * (2 + record::RECORD_BYTES_MAX) + 16 + 4) * 8 / 5
    + 8;

/// What a client learns from an invite.
#[derive(Clone, PartialEq, Eq)]
pub struct Invite {
    /// The service: who may sign gateways.
    pub operator: OperatorPublic,
    /// The gateways, each signed by the operator; at least one.
    pub gateways: Vec<SignedRecord>,
    /// What lets the client enrol.
    pub token: Token,
}

/// The secret part of an invite: 16 random bytes. `Debug` does not show them.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Token(#[serde(with = "encoding::bytes")] pub [u8; Self::BYTES]);

/// What a gateway keeps of a token: SHA-256 of it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TokenHash(#[serde(with = "encoding::bytes")] pub [u8; 32]);

impl Token {
    /// Its length.
    pub const BYTES: usize = 16;

    /// A new one.
    pub fn generate() -> Result<Self, KeyError> {
        keys::random().map(Self)
    }

    /// What a gateway keeps of it.
    pub fn hash(&self) -> TokenHash {
        TokenHash::of(&self.0)
    }
}

impl TokenHash {
    /// The hash of a token of any length, as a client sent it.
    pub fn of(token: &[u8]) -> Self {
        let mut hash = [0; 32];
        hash.copy_from_slice(digest(&SHA256, token).as_ref());
        Self(hash)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TokenHash({}..)", &encoding::to_text(&self.0)[..6])
    }
}

/// Whether `text` contains an invite, whole or damaged.
pub fn is_in(text: &str) -> bool {
    text.to_ascii_lowercase().contains(SCHEME)
}

/// Why a text is no usable invite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InviteError {
    /// It does not begin as an invite does.
    #[error("not an invite: it must begin with {SCHEME}, as `rove gateway invite NAME` prints it")]
    NotAnInvite,
    /// The pasted text contains two invites.
    #[error("there are two different invites here: give the one that is meant")]
    Several,
    /// It is far longer than any text with an invite in it.
    #[error("this is too long to search for an invite: give the line that begins with {SCHEME}")]
    Long,
    /// Characters are missing, added or changed.
    #[error("the invite is damaged: copy the whole line again, from {SCHEME} to its end")]
    Damaged,
    /// It was made by a later version.
    #[error("the invite has version {0}, this program knows {VERSION}: install a newer rove")]
    Version(u8),
    /// Its checksum is right, yet a gateway in it was not signed by its operator.
    #[error("the invite's signature is wrong: somebody changed it, ask the operator for another")]
    Forged,
}

impl Invite {
    /// The one line, in lower case. In upper case it means the same and makes a smaller QR code.
    pub fn to_text(&self) -> String {
        let mut bytes = vec![VERSION];
        bytes.extend(self.operator.0);
        // Both counts are bounded where the values were made.
        bytes.push(u8::try_from(self.gateways.len()).unwrap_or(u8::MAX));
        for gateway in &self.gateways {
            wire::put_long(&mut bytes, gateway.as_bytes());
        }
        bytes.extend(self.token.0);
        of_body(&bytes)
    }
}

/// The text of an invite with this body.
pub(crate) fn of_body(body: &[u8]) -> String {
    let bytes = [body, &checksum(body)].concat();
    format!("{SCHEME}{}", encoding::to_text(&bytes))
}

impl FromStr for Invite {
    type Err = InviteError;

    /// Finds the one invite in a text, which may contain other text around it.
    fn from_str(text: &str) -> Result<Self, InviteError> {
        pasted::find(text)
    }
}

impl Invite {
    /// Parses these bytes, all of which must belong to the invite.
    fn from_bytes(bytes: &[u8]) -> Result<Self, InviteError> {
        let split = bytes.len().checked_sub(CHECKSUM_BYTES).ok_or(InviteError::Damaged)?;
        let (body, sum) = bytes.split_at(split);
        if checksum(body) != sum {
            return Err(InviteError::Damaged);
        }
        // Only now, so that a mistyped first character is not reported as a later version.
        match body.first() {
            Some(&VERSION) => parse_body(&body[1..]),
            Some(&version) => Err(InviteError::Version(version)),
            None => Err(InviteError::Damaged),
        }
    }
}

fn parse_body(body: &[u8]) -> Result<Invite, InviteError> {
    let mut reader = Reader::new(body);
    let mut read = || {
        let operator = OperatorPublic(reader.array()?);
        let count = usize::from(reader.byte()?);
        if count == 0 || count > GATEWAYS_MAX {
            return None;
        }
        let signed: Option<Vec<&[u8]>> = (0..count).map(|_| reader.long()).collect();
        let token = Token(reader.array()?);
        reader.is_empty().then_some((operator, signed?, token))
    };
    let (operator, signed, token) = read().ok_or(InviteError::Damaged)?;
    let gateways = signed.iter().map(|bytes| SignedRecord::verify(bytes, operator));
    let gateways: Option<Vec<SignedRecord>> = gateways.collect();
    Ok(Invite { operator, gateways: gateways.ok_or(InviteError::Forged)?, token })
}

fn checksum(body: &[u8]) -> [u8; CHECKSUM_BYTES] {
    let mut sum = [0; CHECKSUM_BYTES];
    sum.copy_from_slice(&digest(&SHA256, body).as_ref()[..CHECKSUM_BYTES]);
    sum
}

impl fmt::Debug for Invite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Invite")
            .field("operator", &self.operator)
            .field("gateways", &self.gateways.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
