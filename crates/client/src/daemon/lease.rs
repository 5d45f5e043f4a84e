//! What a client takes from its gateway, and what it does not.
//!
//! A gateway is trusted to carry packets, not to say which of them: the operator signed the inner
//! networks, and an address outside of them, or a wider network around it, would draw into the
//! tunnel what nobody agreed to.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Result, bail, ensure};
use ipnet::IpNet;
use rove_host::inner;
use rove_host::values::Networks;
use rove_os::error::Error;
use rove_os::plan::is_private;
use rove_proto::role::Access;
use rove_proto::role::global::is_global;
use rove_proto::wire::control::{Lease, Prefix};

use crate::config::{Config, DnsChoice};

/// Refuses a lease that is not what the operator signed.
pub(super) fn check(lease: &Lease, signed: &Networks) -> Result<()> {
    ensure!(
        !lease.addresses.is_empty() && !lease.gateway.is_empty(),
        "the gateway gave no addresses: ask its operator to look at its log"
    );
    for given in &lease.addresses {
        let fits =
            |net: ipnet::IpNet| net.prefix_len() == given.bits && net.contains(&given.address);
        if !signed.iter().any(fits) {
            let shown = inner::network(given).map_or_else(String::new, |net| net.to_string());
            bail!(
                "the gateway gave {shown}, which is not of {signed}, the networks that its \
                 operator signed: ask the operator for a new invite"
            );
        }
    }
    for gateway in &lease.gateway {
        ensure!(
            signed.iter().any(|net| net.contains(gateway)),
            "the gateway calls itself {gateway}, which is not in {signed}, the networks that its \
             operator signed: ask the operator for a new invite"
        );
    }
    Ok(())
}

/// What the gateway may send: packets to the client's addresses, and to the networks behind it.
pub(super) fn access(config: &Config, lease: Option<&Lease>) -> Access {
    let own = lease.iter().flat_map(|lease| &lease.addresses);
    let own = own.map(|given| Prefix::host(given.address));
    Access::Towards {
        own: own.chain(config.advertise.iter().map(|&net| inner::prefix(net))).collect(),
    }
}

/// The networks that the gateway leads to, of those that it names: private ones. Others are the
/// Internet, or of no use behind a gateway.
pub(super) fn reachable(named: &[Prefix]) -> Vec<IpNet> {
    let named = named.iter().filter(|net| net.bits > 0).filter_map(inner::network);
    named.map(|net| net.trunc()).filter(is_private).collect()
}

/// Lines about name resolution that does not work as it should. First case: the tunnel's name
/// servers were `refused`, so queries do not use the tunnel. Second case: all traffic uses the
/// tunnel, the gateway's name servers are not used, and this host's own name server is in a network
/// that the tunnel cannot reach.
pub(super) fn no_names(
    config: &Config,
    lease: &Lease,
    outside: &[SocketAddr],
    refused: Option<&Error>,
) -> Vec<String> {
    let unset = refused.map(|why| format!("the gateway's name servers are not asked: {why}"));
    let (why, cure) = match config.dns {
        DnsChoice::Leave => ("dns is set to leave", "use `--dns set`"),
        DnsChoice::Set if lease.dns.is_empty() => {
            ("the gateway gives no name server", "ask the gateway's operator to set dns")
        }
        DnsChoice::Set => ("the gateway's name servers are not set", "mend that"),
    };
    let is_asked = config.dns == DnsChoice::Set && !lease.dns.is_empty() && refused.is_none();
    let excluded = |server: &IpAddr| config.exclude.iter().any(|net| net.contains(server));
    let is_lost = |server: &&IpAddr| !is_global(**server) && !excluded(server);
    let is_safe = !config.route.is_empty() || is_asked;
    let outside: Vec<IpAddr> = outside.iter().map(SocketAddr::ip).collect();
    let lost = outside.iter().find(is_lost).filter(|_| !is_safe);
    let lost = lost.map(|lost| {
        format!(
            "names may not resolve: {why}, and this host's, {lost}, is not reached through the \
             tunnel: {cure}, or add --exclude {lost}"
        )
    });
    unset.into_iter().chain(lost).collect()
}

/// A line for a split tunnel without domains: the gateway's name servers are not asked.
pub(super) fn unasked(config: &Config, lease: &Lease) -> Option<&'static str> {
    let is_split = !config.route.is_empty() && config.domains.is_empty();
    (is_split && config.dns == DnsChoice::Set && !lease.dns.is_empty()).then_some(
        "with route, this host asks its own name servers as before: name the domains that the \
         gateway's servers know (`domains` in client.toml)",
    )
}

/// A line for a host that cannot filter packets. It names the protection that ends if another
/// program changes routes. If there `has_been` a filter, that one is still in place.
pub(super) fn unguarded(why: &rove_os::error::Error, has_been: bool) -> String {
    if has_been {
        return format!(
            "the packet filter that is in place cannot be changed, checked or removed: {why}"
        );
    }
    format!(
        "not guarded: traffic leaves in clear if another program takes away the tunnel's routes; \
         neighbours can probe the tunnel's address; containers and connections from outside get \
         no answer: {why}"
    )
}

/// A line for a host whose sockets are not known.
pub(super) fn unanswered(why: &rove_os::error::Error) -> String {
    format!(
        "connections from outside get no answer, because they cannot be told from those that this \
         host began before: {why}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(addresses: &[(&str, u8)], gateway: &[&str]) -> Lease {
        let address = |&(text, bits): &(&str, u8)| Prefix { address: text.parse().unwrap(), bits };
        Lease {
            addresses: addresses.iter().map(address).collect(),
            gateway: gateway.iter().map(|text| text.parse().unwrap()).collect(),
            dns: Vec::new(),
        }
    }

    #[test]
    fn only_addresses_of_the_signed_networks_are_taken() {
        let signed: Networks = "10.77.0.0/24,fd77::/64".parse().unwrap();
        let gateway = ["10.77.0.1", "fd77::1"];
        let both = [("10.77.0.2", 24), ("fd77::2", 64)];
        check(&lease(&both, &gateway), &signed).unwrap();
        check(&lease(&both[1..], &gateway[1..]), &signed).unwrap();
        for hostile in [
            ("192.168.1.77", 24),
            ("200.0.0.1", 2),
            ("10.77.0.2", 8),
            ("10.77.0.2", 32),
            ("0.0.0.0", 0),
            ("fd77::2", 8),
            ("::", 0),
            ("fd78::2", 64),
        ] {
            let error = check(&lease(&[both[0], hostile], &gateway), &signed).unwrap_err();
            let error = error.to_string();
            assert!(error.contains(hostile.0) && error.contains("new invite"), "{error}");
        }
        let error = check(&lease(&both, &["192.168.1.1"]), &signed).unwrap_err().to_string();
        assert!(error.contains("calls itself 192.168.1.1"), "{error}");
        for (addresses, gateway) in [(&both[..], &[][..]), (&[][..], &gateway[..])] {
            let error = check(&lease(addresses, gateway), &signed).unwrap_err().to_string();
            assert!(error.contains("gave no addresses"), "{error}");
        }
    }

    #[test]
    fn lost_names_are_told_of_and_only_those() {
        let all = Config::default();
        let none = lease(&[("10.77.0.2", 24)], &["10.77.0.1"]);
        let local: [SocketAddr; 2] = ["9.9.9.9:53", "192.168.1.1:53"].map(|at| at.parse().unwrap());
        let told = |config: &Config, lease: &Lease, outside: &[SocketAddr]| {
            no_names(config, lease, outside, None)
        };
        let lines = told(&all, &none, &local);
        let [line] = &*lines else { panic!("{lines:?}") };
        assert!(line.contains("192.168.1.1") && line.contains("--exclude"), "{line}");
        assert!(told(&all, &none, &local[..1]).is_empty(), "a public one is reached");
        assert!(told(&all, &none, &[]).is_empty());
        let some = Lease { dns: vec!["10.77.0.1".parse().unwrap()], ..none.clone() };
        assert!(told(&all, &some, &local).is_empty());
        // The gateway's name servers are not used: by choice, or because they could not be set.
        let leave = Config { dns: DnsChoice::Leave, ..all.clone() };
        assert!(told(&leave, &some, &local)[0].contains("dns is set to leave"));
        assert!(told(&leave, &some, &local[..1]).is_empty());
        let refused = Error::Resolved { said: "no".to_owned() };
        let lines = no_names(&all, &some, &local, Some(&refused));
        assert!(lines.len() == 2 && lines[0].contains("systemd-resolved"), "{lines:?}");
        assert_eq!(no_names(&all, &some, &local[..1], Some(&refused)), lines[..1]);
        let exclude = vec!["192.168.1.0/24".parse().unwrap()];
        let chosen = vec!["10.0.0.0/8".parse().unwrap()];
        for config in [Config { exclude, ..all.clone() }, Config { route: chosen, ..all.clone() }] {
            assert!(told(&config, &none, &local).is_empty());
        }
        // The LAN is open for everything but names.
        for kill_switch in [false, true] {
            let config = Config { allow_lan: true, kill_switch, ..all.clone() };
            assert_eq!(told(&config, &none, &local).len(), 1);
        }
    }

    #[test]
    fn a_split_tunnel_without_domains_asks_no_servers_of_the_gateway() {
        let none = lease(&[("10.77.0.2", 24)], &["10.77.0.1"]);
        let some = Lease { dns: vec!["10.77.0.1".parse().unwrap()], ..none.clone() };
        let all = Config::default();
        let split = Config { route: vec!["10.0.0.0/8".parse().unwrap()], ..all.clone() };
        assert!(unasked(&split, &some).unwrap().contains("`domains` in client.toml"));
        let leave = Config { dns: DnsChoice::Leave, ..split.clone() };
        let named = Config { domains: vec!["example.com".parse().unwrap()], ..split.clone() };
        for (config, lease) in [(&all, &some), (&split, &none), (&leave, &some), (&named, &some)] {
            assert_eq!(unasked(config, lease), None);
        }
    }

    #[test]
    fn a_gateway_draws_private_networks_alone() {
        let net = |text: &str, bits| Prefix { address: text.parse().unwrap(), bits };
        let named = [net("10.20.0.0", 16), net("9.9.9.9", 32), net("fd20::", 32), net("::", 0)];
        let reachable: Vec<String> = reachable(&named).iter().map(IpNet::to_string).collect();
        assert_eq!(reachable, ["10.20.0.0/16", "fd20::/32"]);
    }
}
