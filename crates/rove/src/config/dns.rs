//! Whether a client changes the name servers of its host.

use std::str::FromStr;

use crate::values::Misspelt;

/// Which name servers this host asks while the tunnel is up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum DnsChoice {
    /// Those that the gateway names.
    #[default]
    Set,
    /// Its own: nothing is changed, for hosts whose DNS somebody else looks after.
    Leave,
}

impl FromStr for DnsChoice {
    type Err = Misspelt;

    fn from_str(text: &str) -> Result<Self, Misspelt> {
        match text {
            "set" => Ok(Self::Set),
            "leave" => Ok(Self::Leave),
            _ => Err(Misspelt::new(format!(
                "{text:?} is no way to treat DNS: write set (ask the gateway's name servers) or \
                 leave (change nothing)"
            ))),
        }
    }
}
