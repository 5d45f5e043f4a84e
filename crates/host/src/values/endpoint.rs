//! `HOST:PORT`: where a gateway is reached.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use super::{Misspelt, serialise_as_text};

/// How many endpoints one gateway may have.
pub const ENDPOINTS_MAX: usize = 8;

/// RFC 1035 section 2.3.4 allows 255 octets on the wire, which is 253 characters of text.
const HOST_BYTES_MAX: usize = 253;
const LABEL_BYTES_MAX: usize = 63;

/// A host, by name or by address, and a port that is not zero.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Endpoint {
    /// The host.
    pub host: Host,
    /// The UDP port, 1 to 65,535.
    pub port: u16,
}

/// The host part of an [`Endpoint`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Host {
    /// An address; nothing is to be resolved.
    Address(IpAddr),
    /// A name in lower case, without a final dot, to be resolved outside the tunnel.
    Name(String),
}

impl FromStr for Endpoint {
    type Err = Misspelt;

    fn from_str(text: &str) -> Result<Self, Misspelt> {
        let wrong = |what: &str| {
            Misspelt::new(format!(
                "{text:?} {what}: write HOST:PORT, for example vpn.example.org:4500 or \
                 [2001:db8::1]:4500"
            ))
        };
        if let Some((_, rest)) = text.split_once("://") {
            let meant = rest.split(['/', '?', '#']).next().unwrap_or_default();
            let Ok(meant) = meant.parse::<Self>() else { return Err(wrong("is a URL")) };
            return Err(Misspelt::new(format!(
                "{text:?} is a URL, and an endpoint has no scheme and no path: write {meant}"
            )));
        }
        let (host, port) = text.rsplit_once(':').ok_or_else(|| wrong("has no port"))?;
        let digits = port.bytes().all(|b| b.is_ascii_digit());
        let port = match port.parse::<u16>() {
            Ok(port) if port > 0 && digits => port,
            Ok(_) | Err(_) => return Err(wrong("has no port between 1 and 65535")),
        };
        if let Some(inner) = host.strip_prefix('[') {
            let inner = inner.strip_suffix(']').ok_or_else(|| wrong("has no closing bracket"))?;
            if inner.contains('%') {
                return Err(wrong("has a zone, which means something on this host only"));
            }
            let address = inner.parse().map_err(|_| wrong("has no IPv6 address in brackets"))?;
            return Ok(Self { host: Host::Address(IpAddr::V6(address)), port });
        }
        if host.contains(':') {
            return Err(wrong("has an IPv6 address without brackets"));
        }
        if let Ok(address) = host.parse() {
            return Ok(Self { host: Host::Address(IpAddr::V4(address)), port });
        }
        let name = host.strip_suffix('.').unwrap_or(host);
        if !is_host_name(name) {
            return Err(wrong("has no valid host"));
        }
        Ok(Self { host: Host::Name(name.to_ascii_lowercase()), port })
    }
}

impl Endpoint {
    /// Checks whether a client could reach it at all.
    ///
    /// # Errors
    /// The fault of an address that leads nowhere, or to a different host from each host.
    pub fn check_reachable(&self) -> Result<(), Misspelt> {
        let Host::Address(address) = &self.host else { return Ok(()) };
        let what = match address {
            IpAddr::V6(v6) if v6.is_unicast_link_local() => "a link-local address",
            IpAddr::V4(v4) if v4.is_link_local() => "a link-local address",
            IpAddr::V4(v4) if v4.is_broadcast() => "the broadcast address",
            address if address.is_unspecified() => "the address of no host",
            address if address.is_multicast() => "a multicast address",
            IpAddr::V4(_) | IpAddr::V6(_) => return Ok(()),
        };
        Err(Misspelt::new(format!(
            "{self} is {what}, which no client can reach: write this host's name, or its address \
             on the network that clients come from"
        )))
    }
}

/// Letters, digits, hyphens and underscores in labels; the last label is not a number, so that a
/// mistyped address is not taken for a name (RFC 3696 section 2).
fn is_host_name(name: &str) -> bool {
    let label = |label: &str| {
        !label.is_empty()
            && label.len() <= LABEL_BYTES_MAX
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    let last_is_number =
        name.rsplit('.').next().is_some_and(|last| last.bytes().all(|b| b.is_ascii_digit()));
    name.len() <= HOST_BYTES_MAX && name.split('.').all(label) && !last_is_number
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Address(IpAddr::V4(address)) => write!(f, "{address}:{}", self.port),
            Host::Address(IpAddr::V6(address)) => write!(f, "[{address}]:{}", self.port),
            Host::Name(name) => write!(f, "{name}:{}", self.port),
        }
    }
}

serialise_as_text!(Endpoint);
