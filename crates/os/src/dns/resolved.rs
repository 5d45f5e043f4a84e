//! systemd-resolved, over the system bus (org.freedesktop.resolve1(5)).

use std::{
    fs,
    net::IpAddr,
    path::{Path, PathBuf},
};

use super::bus::{Bus, CallError, Method, Values};
use crate::{error::Error, plan::Dns};

const SERVICE: &str = "org.freedesktop.resolve1";
const OBJECT: &str = "/org/freedesktop/resolve1";
const MANAGER: &str = "org.freedesktop.resolve1.Manager";
const BUS_VARIABLE: &str = "DBUS_SYSTEM_BUS_ADDRESS";
const BUS_SOCKET: &str = "/run/dbus/system_bus_socket";
/// The servers that resolved asks, of all links, in the format of resolv.conf.
pub(super) const UPSTREAM: &str = "/run/systemd/resolve/resolv.conf";
/// Addresses on which resolved answers for this host.
const STUBS: [&str; 2] = ["127.0.0.53", "127.0.0.54"];
/// Where its files lie that resolv.conf may be a link to.
const DIRECTORY: &str = "/run/systemd/resolve/";

/// Whether the C library's questions end up at resolved: it runs, and resolv.conf says so. A
/// resolved that runs but is not asked would take our settings and do nothing with them.
pub(crate) fn resolves_for_this_host(resolv_conf: &Path) -> bool {
    let linked = fs::canonicalize(resolv_conf).is_ok_and(|path| path.starts_with(DIRECTORY));
    let text = fs::read_to_string(resolv_conf).unwrap_or_default();
    let stub = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("nameserver"))
        .any(|server| STUBS.contains(&server.trim()));
    (linked || stub) && runs()
}

fn runs() -> bool {
    let method = Method {
        destination: "org.freedesktop.DBus",
        path: "/org/freedesktop/DBus",
        interface: "org.freedesktop.DBus",
        name: "NameHasOwner",
    };
    let ask = || -> Result<Vec<u8>, CallError> {
        Bus::connect(&socket())?.call(method, &Values::default().string(SERVICE))
    };
    ask().is_ok_and(|answer| answer.first() == Some(&1))
}

/// Makes the servers those of the link, and the preferred ones for the domains, or for all.
pub(super) fn install(device: &str, dns: &Dns) -> Result<(), Error> {
    let name = || Error::NoInterface { name: device.to_owned() };
    let index = crate::tun::index_of(device).ok_or_else(name)? as i32;
    let servers =
        Values::default().int32(index).structures("iay", &dns.servers, |values, server| {
            let (family, octets) = match server {
                IpAddr::V4(ip) => (libc::AF_INET, ip.octets().to_vec()),
                IpAddr::V6(ip) => (libc::AF_INET6, ip.octets().to_vec()),
            };
            values.word(family as u32);
            values.octets(&octets);
        });
    // The second of a pair says: for routing only, not to be tried for short names. "." routes
    // every name that no link knows better. In a split tunnel, a short name may be one of the local
    // network, and must not be asked in the tunnel with a domain added.
    let all = dns.all.then_some((".", true));
    let domains = dns.domains.iter().map(|domain| (domain.as_str(), !dns.all)).chain(all);
    let domains =
        Values::default().int32(index).structures("sb", domains, |values, (domain, routing)| {
            values.text(domain);
            values.word(u32::from(routing));
        });
    let set = || -> Result<(), CallError> {
        let mut bus = Bus::connect(&socket())?;
        bus.call(manager("SetLinkDNS"), &servers)?;
        bus.call(manager("SetLinkDomains"), &domains)?;
        let default = Values::default().int32(index).boolean(dns.all);
        bus.call(manager("SetLinkDefaultRoute"), &default)?;
        // What other servers said about the same names is not to be used any more.
        bus.call(manager("FlushCaches"), &Values::default())?;
        Ok(())
    };
    set().map_err(refused)
}

/// Forgets the settings of the link. A link that is gone took them with it.
pub(super) fn remove(device: &str) -> Result<(), Error> {
    let Some(index) = crate::tun::index_of(device) else { return Ok(()) };
    let revert = || -> Result<(), CallError> {
        let mut bus = Bus::connect(&socket())?;
        bus.call(manager("RevertLink"), &Values::default().int32(index as i32))?;
        bus.call(manager("FlushCaches"), &Values::default())?;
        Ok(())
    };
    match revert() {
        // Without a bus there is no resolved that could still have them.
        Ok(()) | Err(CallError::Io(_)) => Ok(()),
        Err(error @ CallError::Answer(_)) => Err(refused(error)),
    }
}

fn manager(name: &str) -> Method<'_> {
    Method { destination: SERVICE, path: OBJECT, interface: MANAGER, name }
}

fn refused(error: CallError) -> Error {
    Error::Resolved { said: error.to_string() }
}

/// The socket of the system bus.
pub(crate) fn socket() -> PathBuf {
    let named = std::env::var(BUS_VARIABLE).unwrap_or_default();
    let path = named.strip_prefix("unix:path=").and_then(|path| path.split([',', ';']).next());
    PathBuf::from(path.unwrap_or(BUS_SOCKET))
}
