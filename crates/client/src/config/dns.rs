//! Whether a client changes the name servers of its host.

use std::str::FromStr;

use rove_host::values::Misspelt;

/// The name servers that this host uses while the tunnel is up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum DnsChoice {
    /// Those that the gateway announces.
    #[default]
    Set,
    /// The host's own. Rove changes nothing, for hosts whose DNS another program manages.
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
