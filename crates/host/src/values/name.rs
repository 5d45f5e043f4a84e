//! The name of a peer, as the operator gives it.

use std::fmt;
use std::str::FromStr;

use super::{Misspelt, serialise_as_text};

/// How long a name may be, in bytes.
pub(super) const NAME_BYTES_MAX: usize = 48;

/// A peer's name: 1 to 48 lower-case letters, digits, hyphens, dots and underscores, beginning with
/// a letter or digit, so that it is safe in a log, a file name and a terminal.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PeerName(String);

impl PeerName {
    /// The name of the `n`-th peer enrolled by one invite; the first has the invite's own.
    pub fn numbered(&self, n: u32) -> Self {
        if n <= 1 {
            return self.clone();
        }
        let suffix = format!("-{n}");
        let keep = self.0.len().min(NAME_BYTES_MAX - suffix.len());
        Self(format!("{}{suffix}", &self.0[..keep]))
    }
}

impl FromStr for PeerName {
    type Err = Misspelt;

    fn from_str(text: &str) -> Result<Self, Misspelt> {
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        let fits = !text.is_empty() && text.len() <= NAME_BYTES_MAX;
        let allowed = text.bytes().all(|b| plain(b) || matches!(b, b'-' | b'.' | b'_'));
        if fits && allowed && text.bytes().next().is_some_and(plain) {
            return Ok(Self(text.to_owned()));
        }
        Err(Misspelt::new(format!(
            "{text:?} is no name: use 1 to {NAME_BYTES_MAX} of a-z, 0-9, hyphen, dot and \
             underscore, beginning with a letter or digit"
        )))
    }
}

impl fmt::Display for PeerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for PeerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

serialise_as_text!(PeerName);
