//! Network address translation by the axes of RFC 4787: mapping of ports, filtering, and expiry.
//!
//! The emulator's NAT has no hairpin and translates UDP, TCP and ICMP echo alike. It does not
//! follow TCP's states; a mapping just expires. A family without an outside address is filtered but
//! not translated, as by the firewall of an IPv6 home router.

use super::SECOND;
use super::frame::{Endpoints, Protocol};
use super::rng::Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

/// The most mappings of a NAT; the one unused for longest makes room.
const MAX_MAPPINGS: usize = 16_384;
/// The most remote ends that one mapping remembers for filtering.
const MAX_PEERS: usize = 1_024;
/// First of the ports handed out.
const FIRST_PORT: u16 = 1_024;

/// Which packets of one inside end share an outside port (RFC 4787, section 4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mapping {
    /// All of them.
    EndpointIndependent,
    /// Those to the same address.
    AddressDependent,
    /// Those to the same address and port ("symmetric").
    AddressAndPortDependent,
}

/// Who may send to an outside port (RFC 4787, section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filtering {
    /// Anyone.
    None,
    /// Addresses that were sent to from there.
    Endpoint,
    /// Addresses and ports that were sent to from there.
    Port,
}

/// The usual kinds by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NatKind {
    /// Maps by inside end alone and lets everybody in.
    FullCone,
    /// Maps by inside end alone, filters by address.
    AddressRestricted,
    /// Maps by inside end alone, filters by address and port: most home routers.
    PortRestricted,
    /// Maps and filters by address and port: many mobile carriers.
    Symmetric,
}

/// The properties of a NAT.
#[derive(Clone, Debug)]
pub struct NatConfig {
    /// How ports are mapped.
    pub mapping: Mapping,
    /// Filtering.
    pub filtering: Filtering,
    /// How long a mapping lives after its last packet *from inside*, in nanoseconds
    /// (RFC 4787 REQ-6: inbound traffic alone need not refresh it).
    pub expiry_ns: u64,
    /// Whether an inside port is kept outside when it is free.
    pub preserve_ports: bool,
    /// Its outside addresses, at most one of each family.
    pub outside: Vec<IpAddr>,
}

impl NatConfig {
    /// A box of a usual kind with an expiry of 120 s.
    pub const fn new(kind: NatKind, outside: Vec<IpAddr>) -> Self {
        let (mapping, filtering) = match kind {
            NatKind::FullCone => (Mapping::EndpointIndependent, Filtering::None),
            NatKind::AddressRestricted => (Mapping::EndpointIndependent, Filtering::Endpoint),
            NatKind::PortRestricted => (Mapping::EndpointIndependent, Filtering::Port),
            NatKind::Symmetric => (Mapping::AddressAndPortDependent, Filtering::Port),
        };
        Self { mapping, filtering, expiry_ns: 120 * SECOND, preserve_ports: true, outside }
    }
}

/// One NAT.
#[derive(Debug)]
pub(super) struct Nat {
    config: NatConfig,
    rng: Rng,
    mappings: BTreeMap<InsideKey, Entry>,
    /// Outside end to mapping, for packets from outside.
    by_outside: BTreeMap<(Protocol, SocketAddr), InsideKey>,
}

/// The key of a mapping: an inside end, and as much of the remote end as [`Mapping`] says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct InsideKey {
    protocol: Protocol,
    inside: SocketAddr,
    remote: Option<SocketAddr>,
}

#[derive(Debug)]
struct Entry {
    outside: SocketAddr,
    expires_ns: u64,
    /// Remote ends sent to, as [`Filtering`] compares them.
    peers: BTreeSet<SocketAddr>,
}

impl Nat {
    pub(super) const fn new(config: NatConfig, rng: Rng) -> Self {
        Self { config, rng, mappings: BTreeMap::new(), by_outside: BTreeMap::new() }
    }

    /// The source that a packet from inside leaves with; `None` when it cannot be translated.
    pub(super) fn outbound(&mut self, now_ns: u64, packet: &Endpoints) -> Option<SocketAddr> {
        if matches!(packet.protocol, Protocol::Other(_)) {
            return None;
        }
        let key = InsideKey {
            protocol: packet.protocol,
            inside: packet.source,
            remote: match self.config.mapping {
                Mapping::EndpointIndependent => None,
                Mapping::AddressDependent => Some(without_port(packet.destination)),
                Mapping::AddressAndPortDependent => Some(packet.destination),
            },
        };
        if self.mappings.get(&key).is_none_or(|entry| entry.expires_ns <= now_ns) {
            self.remove(&key);
            self.make_room(now_ns);
            let outside = self.allocate(key.protocol, key.inside, now_ns)?;
            self.by_outside.insert((key.protocol, outside), key);
            let entry = Entry { outside, expires_ns: 0, peers: BTreeSet::new() };
            self.mappings.insert(key, entry);
        }
        let entry = self.mappings.get_mut(&key)?;
        entry.expires_ns = now_ns.saturating_add(self.config.expiry_ns);
        if entry.peers.len() < MAX_PEERS {
            entry.peers.insert(self.config.filtering.compared(packet.destination));
        }
        Some(entry.outside)
    }

    /// The inside end of a packet from outside; `None` if there is none or the sender is filtered.
    pub(super) fn inbound(&self, now_ns: u64, packet: &Endpoints) -> Option<SocketAddr> {
        let key = self.by_outside.get(&(packet.protocol, packet.destination))?;
        let entry = self.mappings.get(key).filter(|entry| entry.expires_ns > now_ns)?;
        let known = match self.config.filtering {
            Filtering::None => true,
            Filtering::Endpoint | Filtering::Port => {
                entry.peers.contains(&self.config.filtering.compared(packet.source))
            }
        };
        known.then_some(key.inside)
    }

    /// Moves every mapping to a port that was not its own; who may send to it is kept.
    pub(super) fn rebind(&mut self) {
        let keys: Vec<InsideKey> = self.mappings.keys().copied().collect();
        let old = std::mem::take(&mut self.by_outside);
        for key in keys {
            let Some(entry) = self.mappings.get(&key) else { continue };
            let address = entry.outside.ip();
            if !self.translates(address) {
                self.by_outside.insert((key.protocol, entry.outside), key);
                continue;
            }
            let taken = |end: &SocketAddr| old.contains_key(&(key.protocol, *end));
            let Some(outside) = self.random_port(key.protocol, address, taken) else { continue };
            self.by_outside.insert((key.protocol, outside), key);
            if let Some(entry) = self.mappings.get_mut(&key) {
                entry.outside = outside;
            }
        }
    }

    /// Forgets everything; with `address`, the outside address of that family changes.
    pub(super) fn reboot(&mut self, address: Option<IpAddr>) {
        self.mappings.clear();
        self.by_outside.clear();
        if let Some(address) = address {
            self.config.outside.retain(|old| old.is_ipv4() != address.is_ipv4());
            self.config.outside.push(address);
        }
    }

    /// Sets filtering, and the lifetime of mappings from their next packet from inside on. All
    /// present mappings go.
    pub(super) fn set(&mut self, filtering: Filtering, expiry_ns: u64) {
        self.config.filtering = filtering;
        self.config.expiry_ns = expiry_ns;
        self.mappings.clear();
        self.by_outside.clear();
    }

    fn translates(&self, outside: IpAddr) -> bool {
        self.config.outside.contains(&outside)
    }

    fn remove(&mut self, key: &InsideKey) {
        if let Some(entry) = self.mappings.remove(key) {
            self.by_outside.remove(&(key.protocol, entry.outside));
        }
    }

    /// If the table is full, removes expired mappings, or else the oldest.
    fn make_room(&mut self, now_ns: u64) {
        if self.mappings.len() < MAX_MAPPINGS {
            return;
        }
        let oldest = self.mappings.values().map(|entry| entry.expires_ns).min().unwrap_or(0);
        let limit_ns = oldest.max(now_ns);
        let gone: Vec<InsideKey> = self
            .mappings
            .iter()
            .filter(|(_, entry)| entry.expires_ns <= limit_ns)
            .map(|(key, _)| *key)
            .collect();
        for key in gone {
            self.remove(&key);
        }
    }

    /// Finds an outside end for a new mapping.
    fn allocate(
        &mut self,
        protocol: Protocol,
        inside: SocketAddr,
        now_ns: u64,
    ) -> Option<SocketAddr> {
        let family = |address: &&IpAddr| address.is_ipv4() == inside.is_ipv4();
        let Some(&address) = self.config.outside.iter().find(family) else {
            return Some(inside);
        };
        let wanted = SocketAddr::new(address, inside.port());
        if self.config.preserve_ports && self.claim(protocol, wanted, now_ns) {
            return Some(wanted);
        }
        self.random_port(protocol, address, |_| false)
    }

    /// True when `end` is free, or was held by a mapping that has expired and is removed.
    fn claim(&mut self, protocol: Protocol, end: SocketAddr, now_ns: u64) -> bool {
        let Some(&holder) = self.by_outside.get(&(protocol, end)) else { return true };
        let expired = self.mappings.get(&holder).is_none_or(|entry| entry.expires_ns <= now_ns);
        if expired {
            self.remove(&holder);
        }
        expired
    }

    /// A free port, searched upwards from a random one.
    fn random_port(
        &mut self,
        protocol: Protocol,
        address: IpAddr,
        taken: impl Fn(&SocketAddr) -> bool,
    ) -> Option<SocketAddr> {
        let span = u64::from(u16::MAX - FIRST_PORT) + 1;
        let start = self.rng.below(span);
        (0..span)
            .map(|step| SocketAddr::new(address, FIRST_PORT + ((start + step) % span) as u16))
            .find(|end| !taken(end) && !self.by_outside.contains_key(&(protocol, *end)))
    }
}

impl Filtering {
    /// A remote end as this filter compares it.
    const fn compared(self, remote: SocketAddr) -> SocketAddr {
        match self {
            Self::None | Self::Endpoint => without_port(remote),
            Self::Port => remote,
        }
    }
}

const fn without_port(end: SocketAddr) -> SocketAddr {
    SocketAddr::new(end.ip(), 0)
}

#[cfg(test)]
#[path = "nat_tests.rs"]
mod tests;
