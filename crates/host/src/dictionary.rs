//! Dictionaries that the operator signs, so that telemetry of one kind takes few bytes from its
//! first packet on (docs/decisions/0082-compression-is-an-allow-list.md).
//!
//! One is a line of text: the label, and base32 of `version 1 | number 1 | name length 1 | name |
//! content | signature 64`. The signature is Ed25519 over a label and everything before it. The
//! line stands in the configuration of both ends. The core then checks by number and hash that both
//! have the same.

use std::fmt;
use std::str::FromStr;

use rove_proto::codec::dictionary;
use rove_proto::codec::dictionary::{ADDED_FROM, Added, LEN_MAX, LEN_MIN, NUMBERS};

use crate::encoding;
use crate::keys::{OperatorKey, OperatorPublic};
use crate::values::Misspelt;

/// The longest content, in bytes.
pub const CONTENT_BYTES_MAX: usize = LEN_MAX;

const TEXT_LABEL: &str = "rove-dictionary-1 ";
/// Separates this signature from anything else that the operator key may ever sign.
const SIGNED_LABEL: &[u8] = b"rove dictionary v1\0";
const VERSION: u8 = 1;
const SIGNATURE_BYTES: usize = 64;
const NAME_BYTES_MAX: usize = 32;
/// Words that a rule uses for something else, beside the names of the program's dictionaries.
const RESERVED: [&str; 3] = ["lz4", "zstd", "join"];

/// The name by which a rule asks for an operator's dictionary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DictionaryName(String);

impl FromStr for DictionaryName {
    type Err = Misspelt;

    fn from_str(text: &str) -> Result<Self, Misspelt> {
        let is_plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        let fits = (1..=NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_plain);
        if !fits {
            return Err(Misspelt::new(format!(
                "{text:?} is no name of a dictionary: use 1 to {NAME_BYTES_MAX} of a-z, 0-9 and \
                 hyphen"
            )));
        }
        if RESERVED.contains(&text) || dictionary::named(text).is_some() {
            return Err(Misspelt::new(format!(
                "the name {text} has a meaning already: choose another"
            )));
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for DictionaryName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A dictionary with a signature, which [`Self::is_signed_by`] checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedDictionary {
    number: u8,
    name: DictionaryName,
    added: Added,
    /// Everything that travels.
    bytes: Vec<u8>,
}

impl SignedDictionary {
    /// Signs a dictionary.
    ///
    /// # Errors
    /// If the number or the content is not one that the core takes.
    pub fn sign(
        operator: &OperatorKey,
        number: u8,
        name: &DictionaryName,
        content: &[u8],
    ) -> Result<Self, Misspelt> {
        let added = Added::new(number, content).ok_or_else(|| {
            Misspelt::new(format!(
                "a dictionary has a number from {ADDED_FROM} to {} and {LEN_MIN} to {LEN_MAX} \
                 bytes of plain content, without tables of Zstandard: this one has number \
                 {number} and {} bytes",
                NUMBERS - 1,
                content.len()
            ))
        })?;
        // At most NAME_BYTES_MAX.
        let length = u8::try_from(name.0.len()).unwrap_or(u8::MAX);
        let mut bytes = vec![VERSION, number, length];
        bytes.extend(name.0.bytes());
        bytes.extend(content);
        let signature = operator.sign(&labelled(&bytes));
        bytes.extend(signature);
        Ok(Self { number, name: name.clone(), added, bytes })
    }

    /// Whether this operator signed it.
    pub fn is_signed_by(&self, operator: OperatorPublic) -> bool {
        let (body, signature) = self.bytes.split_at(self.bytes.len() - SIGNATURE_BYTES);
        operator.verifies(&labelled(body), signature)
    }

    /// Its number on the wire.
    pub const fn number(&self) -> u8 {
        self.number
    }

    /// The name by which a rule asks for it.
    pub fn name(&self) -> &str {
        &self.name.0
    }

    /// What the core is given of it.
    pub const fn added(&self) -> &Added {
        &self.added
    }

    fn parse(text: &str) -> Option<Self> {
        let bytes = encoding::from_text(text.trim().strip_prefix(TEXT_LABEL)?)?;
        let body = bytes.get(..bytes.len().checked_sub(SIGNATURE_BYTES)?)?;
        let (&[version, number, length], rest) = body.split_first_chunk()?;
        let (name, content) = rest.split_at_checked(length.into())?;
        let name = std::str::from_utf8(name).ok()?.parse().ok()?;
        let added = Added::new(number, content).filter(|_| version == VERSION)?;
        Some(Self { number, name, added, bytes })
    }
}

impl FromStr for SignedDictionary {
    type Err = Misspelt;

    fn from_str(text: &str) -> Result<Self, Misspelt> {
        let what = "is no signed dictionary: copy the whole line that `rove gateway dictionary` \
                    printed";
        Self::parse(text).ok_or_else(|| Misspelt::new(what))
    }
}

impl fmt::Display for SignedDictionary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{TEXT_LABEL}{}", encoding::to_text(&self.bytes))
    }
}

fn labelled(body: &[u8]) -> Vec<u8> {
    [SIGNED_LABEL, body].concat()
}

#[cfg(test)]
#[path = "dictionary_tests.rs"]
mod tests;
