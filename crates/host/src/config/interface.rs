//! The name of the tunnel's interface.

use std::fmt;
use std::str::FromStr;

use crate::values::Misspelt;

/// IFNAMSIZ of `linux/if.h`, less the final zero.
const BYTES_MAX: usize = 15;

/// A name that Linux takes for an interface and that needs no quoting anywhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceName(String);

impl InterfaceName {
    /// A gateway's, unless its file gives another.
    pub fn gateway_default() -> Self {
        Self("rove-gw".to_owned())
    }

    /// A client's, unless its file gives another.
    pub fn client_default() -> Self {
        Self("rove0".to_owned())
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for InterfaceName {
    type Err = Misspelt;

    fn from_str(text: &str) -> Result<Self, Misspelt> {
        let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
        let starts = text.bytes().next().is_some_and(|b| b.is_ascii_alphabetic());
        if starts && text.len() <= BYTES_MAX && text.bytes().all(plain) {
            return Ok(Self(text.to_owned()));
        }
        Err(Misspelt::new(format!(
            "{text:?} is no interface name: use 1 to {BYTES_MAX} letters, digits, hyphens and \
             underscores, beginning with a letter"
        )))
    }
}

impl fmt::Display for InterfaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
