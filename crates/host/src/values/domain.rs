//! A domain whose names are asked for through the tunnel.

use std::fmt;
use std::str::FromStr;

use super::{Misspelt, serialise_as_text};

/// How many domains one client may have: a list for people, and what the system takes.
pub const DOMAINS_MAX: usize = 64;

/// RFC 1035 section 2.3.4, as text without the final dot.
const BYTES_MAX: usize = 253;
const LABEL_BYTES_MAX: usize = 63;

/// A domain name in lower case, without a final dot: letters, digits, hyphens and underscores in
/// labels (RFC 1035 section 2.3.1, and the underscore of service names).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Domain(String);

impl FromStr for Domain {
    type Err = Misspelt;

    fn from_str(text: &str) -> Result<Self, Misspelt> {
        let name = text.strip_suffix('.').unwrap_or(text);
        let label = |label: &str| {
            let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
            (1..=LABEL_BYTES_MAX).contains(&label.len()) && label.bytes().all(plain)
        };
        if name.len() <= BYTES_MAX && name.split('.').all(label) {
            return Ok(Self(name.to_ascii_lowercase()));
        }
        Err(Misspelt::new(format!(
            "{text:?} is no domain: write letters, digits and hyphens with dots between, for \
             example corp.example.org"
        )))
    }
}

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

serialise_as_text!(Domain);
