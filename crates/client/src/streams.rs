//! The ways by which a client tries streams, on networks that lose UDP.
//!
//! A client knows no more of a gateway than where UDP goes. So it tries TCP to the same port, and
//! TLS to the port that is open everywhere; and it asks its proxy, if it has one, for that. The
//! core tries them beside each other, and only while UDP does not answer.

use std::env;
use std::net::SocketAddr;

use rove_host::data::{ByProxy, Mptcp, Way};
use rove_host::values::{Endpoint, Host};

use crate::config::{ProxyChoice, ProxyUrl, TransportChoice};

/// The port that networks leave open when they leave nothing else open.
const HTTPS: u16 = 443;
/// Addresses of a gateway that streams are tried to; each by two or three ways.
const REMOTES_MAX: usize = 2;
/// Where a proxy is named that is not in the configuration, in the order of looking.
const VARIABLES: [&str; 4] = ["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"];

/// The ways to a gateway, best first: those that the proxy of this network has, then TLS, then
/// plain TCP; none with a `transport` that has none. `remotes` are its addresses as far as they are
/// known.
pub(crate) fn ways(
    endpoints: &[Endpoint],
    remotes: &[SocketAddr],
    proxy: Option<&ResolvedProxy>,
    transport: TransportChoice,
) -> Vec<(SocketAddr, Way)> {
    let mptcp = match transport {
        TransportChoice::Udp => return Vec::new(),
        TransportChoice::Tcp => Mptcp::Never,
        TransportChoice::Auto => Mptcp::Perhaps,
        TransportChoice::Mptcp => Mptcp::Wanted,
    };
    let mut ways = Vec::new();
    if let (Some(proxy), Some(endpoint)) = (proxy, endpoints.first()) {
        let credentials = proxy.credentials.clone();
        let target = Endpoint { host: endpoint.host.clone(), port: HTTPS }.to_string();
        let by = Some(ByProxy { target, credentials });
        ways.push((proxy.address, Way { tls: Some(name_of(endpoint)), proxy: by, mptcp }));
    }
    let name = endpoints.first().map(name_of);
    for remote in remotes.iter().take(REMOTES_MAX) {
        let tls = Way { tls: name.clone(), proxy: None, mptcp };
        let https = SocketAddr::new(remote.ip(), HTTPS);
        for way in [(https, tls), (*remote, Way { tls: None, proxy: None, mptcp })] {
            if !ways.contains(&way) {
                ways.push(way);
            }
        }
    }
    ways
}

/// What the first message of TLS names. An address is not sent.
fn name_of(endpoint: &Endpoint) -> String {
    match &endpoint.host {
        Host::Address(address) => address.to_string(),
        Host::Name(name) => name.clone(),
    }
}

/// A proxy whose address is known.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct ResolvedProxy {
    /// Where it listens.
    pub(crate) address: SocketAddr,
    /// User and password, if it wants them.
    pub(crate) credentials: Option<(String, String)>,
}

/// The proxy to use: the configured one, or that of the environment.
pub(crate) fn proxy(choice: &ProxyChoice) -> Option<ProxyUrl> {
    match choice {
        ProxyChoice::At(url) => return Some(url.clone()),
        ProxyChoice::Direct => return None,
        ProxyChoice::Environment => {}
    }
    let named = |name: &&str| env::var(name).ok().filter(|value| !value.is_empty());
    let parsed = VARIABLES.iter().find_map(named)?.parse();
    parsed.inspect_err(|error| tracing::warn!("the environment's proxy is left out: {error}")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_proxy_comes_first_and_each_way_once() {
        let endpoints = ["vpn.example:4500".parse().unwrap(), "192.0.2.1:443".parse().unwrap()];
        let remotes = ["192.0.2.7:4500", "192.0.2.1:443", "[2001:db8::1]:4500"];
        let remotes = remotes.map(|text| text.parse().unwrap());
        let address = "10.0.0.1:3128".parse().unwrap();
        let proxy = ResolvedProxy { address, credentials: None };
        let auto = TransportChoice::Auto;
        let shown: Vec<String> = ways(&endpoints, &remotes, Some(&proxy), auto)
            .into_iter()
            .map(|(remote, Way { tls, proxy, mptcp })| {
                assert_eq!(mptcp, Mptcp::Perhaps);
                let by = proxy.map(|by| format!(" for {}", by.target)).unwrap_or_default();
                let tls = tls.map(|name| format!(" TLS {name}")).unwrap_or_default();
                format!("{remote}{by}{tls}")
            })
            .collect();
        let expected = [
            "10.0.0.1:3128 for vpn.example:443 TLS vpn.example",
            "192.0.2.7:443 TLS vpn.example",
            "192.0.2.7:4500",
            "192.0.2.1:443 TLS vpn.example",
            "192.0.2.1:443",
        ];
        assert_eq!(shown, expected);
        assert_eq!(ways(&endpoints, &[], None, auto), []);
        let mptcp = |transport| {
            let ways = ways(&endpoints, &remotes, None, transport);
            ways.into_iter().map(|(_, way)| way.mptcp).collect::<Vec<_>>()
        };
        assert_eq!(mptcp(TransportChoice::Udp), []);
        assert_eq!(mptcp(TransportChoice::Tcp), [Mptcp::Never; 4]);
        assert_eq!(mptcp(TransportChoice::Mptcp), [Mptcp::Wanted; 4]);
    }
}
