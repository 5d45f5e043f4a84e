//! `CIDR[:PORT]`: what a peer may reach beyond the Internet.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;

use super::{Misspelt, serialise_as_text};

/// How many destinations one peer's allow-list may hold.
pub const DESTINATIONS_MAX: usize = 64;

/// A network, and one port of it or all. A single port means TCP and UDP to that port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Destination {
    /// The network; its host bits are zero.
    pub network: IpNet,
    /// The port, 1 to 65,535; none means every port and every protocol.
    pub port: Option<u16>,
}

impl FromStr for Destination {
    type Err = Misspelt;

    fn from_str(text: &str) -> Result<Self, Misspelt> {
        let wrong = || {
            Misspelt::new(format!(
                "{text:?} is no destination: write CIDR or CIDR:PORT, for example 10.1.0.0/16, \
                 192.168.1.10/32:22 or [fd00::]/8:443"
            ))
        };
        let (network, port) = split_port(text).ok_or_else(wrong)?;
        let port = match port {
            None => None,
            Some(digits) if digits.bytes().all(|b| b.is_ascii_digit()) => {
                Some(digits.parse::<u16>().ok().filter(|&port| port > 0).ok_or_else(wrong)?)
            }
            Some(_) => return Err(wrong()),
        };
        let network = parse_network(&network.replace(['[', ']'], "")).ok_or_else(wrong)?;
        Ok(Self { network, port })
    }
}

/// Separates the port. After a prefix length, or after brackets, a colon can only begin a port;
/// in a bare address it does so only when the address is IPv4.
fn split_port(text: &str) -> Option<(&str, Option<&str>)> {
    if let Some((address, rest)) = text.split_once('/') {
        return match rest.split_once(':') {
            Some((bits, port)) => Some((&text[..address.len() + 1 + bits.len()], Some(port))),
            None => Some((text, None)),
        };
    }
    if text.starts_with('[') {
        let end = text.find(']')?;
        return match &text[end + 1..] {
            "" => Some((text, None)),
            rest => Some((&text[..=end], Some(rest.strip_prefix(':')?))),
        };
    }
    match text.split_once(':') {
        Some((address, port)) if !port.contains(':') => Some((address, Some(port))),
        Some(_) | None => Some((text, None)),
    }
}

/// A network, or a bare address as the network of that one address.
fn parse_network(text: &str) -> Option<IpNet> {
    if let Ok(network) = text.parse::<IpNet>() {
        return Some(network.trunc());
    }
    text.parse::<IpAddr>().ok().map(IpNet::from)
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            None => write!(f, "{}", self.network),
            Some(port) => write!(f, "{}:{port}", self.network),
        }
    }
}

serialise_as_text!(Destination);
