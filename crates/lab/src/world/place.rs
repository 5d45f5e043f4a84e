//! The geography of the world: who can be where, and how each way is.
//!
//! ```text
//!  client i --- access 0: home, behind a NAT ------------+
//!           --- access 1: café, open, IPv4 and IPv6 -----+--- Internet --- gateway g
//!           --- access 2: mobile, behind a symmetric NAT-+         |
//!                                                              attacker, and whoever it pretends
//!                                                              to be
//! ```
//! An HTTP proxy is on the Internet as well. Every client has three access networks of its own, and
//! the first one may have some more, each behind a NAT box as at home; a card is plugged into one
//! of them. The links between an access network and the Internet change
//! nothing.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use super::addresses::{GATEWAYS_MAX, gateway_blocks, host_v6, v4, v6};
use super::host_id::{CLIENT, CLIENT_HOST, HostId, PerHost};
use super::op::{ACCESSES, Quality, Way};
use super::parcel::Parcel;
use super::streams::LISTENS;
use crate::emu::{
    BitErrors, Carrier, End, Filter, Internet, LinkConfig, LinkId, Loss, MS, NatConfig, NatKind,
    NodeId, PipeConfig, Rate, Reorder, SECOND,
};
use crate::ground::Terrain;

/// Layer-3 length that every network carries unless it was shrunk.
pub(super) const MTU: usize = 1_500;
/// The kinds of access networks; the third is mobile.
const HOME: usize = 0;
const OPEN: usize = 1;
/// The most clients of a world: each has [`ACCESSES`] networks with [`ADDRESSES`] addresses each,
/// the first of them some more, and the blocks that they are from have 2²⁴.
pub(super) const CLIENTS_MAX: usize = 1_000;
/// Addresses of an access network, on either side of a NAT box; then they are given out again.
const ADDRESSES: u32 = 1 << 12;
/// Bits of their prefix.
const PREFIX: u8 = 20;
/// The blocks: behind NAT boxes, where there is none, and on the outside of them.
const INSIDE: u32 = 10 << 24;
const DIRECT: u32 = 60 << 24;
const OUTSIDE: u32 = 61 << 24;

/// The most access networks of all clients together.
const NETWORKS_MAX: usize = CLIENTS_MAX * ACCESSES as usize + Terrain::BESIDE_MAX;
const _: () = assert!(NETWORKS_MAX * ADDRESSES as usize <= 1 << 24);
const _: () = assert!(NETWORKS_MAX + GATEWAYS_MAX <= u16::MAX as usize);
/// Queue of an access network in milliseconds at its rate.
const QUEUE_MS: u64 = 200;

/// Somebody else's host, and what it speaks to behind the gateway's link.
pub(super) const NEIGHBOUR: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 3);
pub(super) const NEIGHBOURS_SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 254);

/// An access network of one client.
#[derive(Debug)]
pub(super) struct Access {
    /// Between the client and its router or NAT box.
    pub(super) link: LinkId,
    /// The NAT box; `None` where there is none.
    pub(super) nat: Option<NodeId>,
    /// The longest layer-3 packet that it carries.
    pub(super) mtu: usize,
    /// Whether the client can see that the network is there.
    pub(super) carrier: bool,
    /// Whether a middlebox is before it.
    filtered: bool,
    /// Its number among all.
    label: u16,
    /// Addresses given out so far, inside and outside.
    given: (u16, u16),
}

/// Everything that has a place.
#[derive(Debug)]
pub(super) struct Place {
    /// The wires.
    pub(super) net: Internet<Parcel>,
    /// Where each host is.
    pub(super) hosts: PerHost<NodeId>,
    /// And who is there.
    ids: BTreeMap<NodeId, HostId>,
    /// The attacker and its link.
    pub(super) attacker: (NodeId, LinkId),
    /// The HTTP proxy and its link.
    pub(super) proxy: (NodeId, LinkId),
    /// Somebody who has no tunnel and its link, where a story has one.
    pub(super) neighbour: Option<(NodeId, LinkId)>,
    core: NodeId,
    /// Each client's access networks.
    accesses: Vec<Vec<Access>>,
}

impl Place {
    /// A world of so many gateways and clients, the first of which has so many networks beside the
    /// usual ones. Returns the gateways' links as well.
    pub(super) fn new(
        seed: u64,
        (gateways, clients): (usize, usize),
        beside: usize,
    ) -> (Self, Vec<LinkId>) {
        let mut net = Internet::new(seed);
        let core = net.router();
        let mut links = Vec::new();
        let hosts = PerHost::of(gateways, 0, |_| {
            let host = net.host();
            let link = net.connect(host, core, LinkConfig::ideal());
            for prefix in gateway_blocks(links.len()) {
                net.route(core, prefix, link);
            }
            links.push(link);
            host
        });
        let attacker_host = net.host();
        let attacker = net.connect(attacker_host, core, LinkConfig::ideal());
        net.route(core, v4([66, 0, 0, 0], 8), attacker);
        let mut place = Self {
            net,
            ids: hosts.ids().map(|id| (hosts[id], id)).collect(),
            hosts,
            attacker: (attacker_host, attacker),
            proxy: (core, attacker),
            neighbour: None,
            core,
            accesses: Vec::new(),
        };
        for client in 0..clients {
            let host = place.net.host();
            let id = place.hosts.add_client(host);
            place.ids.insert(host, id);
            let network = |kind| {
                let label = client * usize::from(ACCESSES) + kind;
                place.access_network(core, host, kind, label as u16)
            };
            let accesses = (0..usize::from(ACCESSES)).map(network).collect();
            place.accesses.push(accesses);
        }
        // The last, so that all chance before it is what it was without.
        let proxy = place.net.host();
        let link = place.net.connect(proxy, core, LinkConfig::ideal());
        place.net.route(core, IpNet::from(LISTENS.ip()), link);
        place.proxy = (proxy, link);
        place.beside(core, beside);
        (place, links)
    }

    /// The first client has so many networks beside the usual ones.
    fn beside(&mut self, core: NodeId, count: usize) {
        let usual = self.accesses.len() * usize::from(ACCESSES);
        for number in 0..count {
            let host = self.hosts[CLIENT_HOST];
            let network = self.access_network(core, host, HOME, (usual + number) as u16);
            self.accesses[CLIENT].push(network);
        }
    }

    /// Somebody else is on the Internet, by a link like this.
    pub(super) fn add_neighbour(&mut self, link: &LinkConfig) {
        let host = self.net.host();
        let link = self.net.connect(host, self.core, link.clone());
        self.net.route(self.core, IpNet::from(IpAddr::from(NEIGHBOUR)), link);
        self.neighbour = Some((host, link));
    }

    fn access_network(&mut self, core: NodeId, host: NodeId, kind: usize, label: u16) -> Access {
        let net = &mut self.net;
        let (router, nat, prefixes) = if kind == OPEN {
            let prefixes = vec![site(DIRECT, label), v6(label, 0, 48)];
            (net.router(), None, prefixes)
        } else {
            let kind = if kind == HOME { NatKind::PortRestricted } else { NatKind::Symmetric };
            let mut config = NatConfig::new(kind, vec![numbered(OUTSIDE, label, 1).into()]);
            // Above the keepalive of 25 s by no more than one that is lost on the way may cost
            // (RFC 4787, REQ-5 asks for two minutes; boxes in the field give less).
            config.expiry_ns = 40 * SECOND;
            let nat = net.nat(config);
            (nat, Some(nat), vec![site(OUTSIDE, label)])
        };
        // The first link of a NAT box is the one that leads outside.
        let up = net.connect(router, core, LinkConfig::ideal());
        let link = net.connect(host, router, LinkConfig::ideal());
        for prefix in prefixes {
            net.route(core, prefix, up);
            if nat.is_none() {
                net.route(router, prefix, link);
            }
        }
        net.route(router, site(INSIDE, label), link);
        if nat.is_none() {
            for default in [IpAddr::from(Ipv4Addr::UNSPECIFIED), Ipv6Addr::UNSPECIFIED.into()] {
                net.route(router, IpNet::new(default, 0).unwrap_or_default(), up);
            }
        }
        Access { link, nat, mtu: MTU, carrier: true, filtered: false, label, given: (0, 0) }
    }

    /// Whether `address` is one that the Internet sees of an access network.
    pub(super) fn is_of(&self, client: usize, access: usize, address: IpAddr) -> bool {
        let Access { label, nat, .. } = *self.access(client, access);
        let block = if nat.is_some() { OUTSIDE } else { DIRECT };
        site(block, label).contains(&address)
            || (nat.is_none() && v6(label, 0, 48).contains(&address))
    }

    /// The host that is there, if one is.
    pub(super) fn host_at(&self, place: NodeId) -> Option<HostId> {
        self.ids.get(&place).copied()
    }

    /// How many access networks a client has.
    pub(super) fn networks(&self, client: usize) -> usize {
        self.accesses[client].len()
    }

    /// An access network, by numbers that wrap around.
    pub(super) fn access(&self, client: usize, access: usize) -> &Access {
        &self.accesses[client][access % self.networks(client)]
    }

    /// The same, to change.
    pub(super) fn access_mut(&mut self, client: usize, access: usize) -> &mut Access {
        let networks = self.networks(client);
        &mut self.accesses[client][access % networks]
    }

    /// Sets how an access network is, both ways.
    pub(super) fn set_quality(&mut self, now_ns: u64, client: usize, access: usize, q: Quality) {
        let link = self.access(client, access).link;
        let pipe = pipe(q);
        self.net.set_config(now_ns, link, End::A, pipe.clone());
        self.net.set_config(now_ns, link, End::B, pipe);
    }

    /// Plugs, unplugs or blackholes an access network.
    pub(super) fn set_carrier(
        &mut self,
        now_ns: u64,
        client: usize,
        access: usize,
        carrier: Carrier,
    ) {
        let entry = self.access_mut(client, access);
        entry.carrier = carrier != Carrier::Down;
        let link = entry.link;
        self.net.set_link(now_ns, link, carrier);
    }

    /// Puts a middlebox before an access network, or takes it away.
    pub(super) fn set_filter(&mut self, client: usize, access: usize, filter: Option<Filter>) {
        let entry = self.access_mut(client, access);
        entry.filtered = filter.is_some();
        let link = entry.link;
        self.net.set_filter(link, filter);
    }

    /// Whether any network of a client's is filtered.
    pub(super) fn is_filtered(&self, client: usize) -> bool {
        self.accesses[client].iter().any(|access| access.filtered)
    }

    /// Makes one direction of an access network swallow everything.
    pub(super) fn kill_way(&mut self, now_ns: u64, client: usize, access: usize, way: Way) {
        let link = self.access(client, access).link;
        let end = match way {
            Way::Up => End::A,
            Way::Down => End::B,
        };
        self.net.set_carrier(now_ns, link, end, Carrier::BlackHole);
    }

    /// The addresses that a client is given next in an access network.
    pub(super) fn next_addresses(&mut self, client: usize, access: usize) -> Vec<IpAddr> {
        let entry = self.access_mut(client, access);
        entry.given.0 = entry.given.0.wrapping_add(1);
        let (given, label) = (entry.given.0, entry.label);
        match entry.nat {
            Some(_) => vec![numbered(INSIDE, label, given).into()],
            None => vec![numbered(DIRECT, label, given).into(), host_v6(label, given)],
        }
    }

    /// A NAT box forgets everything; with `readdress` it also gets another outside address.
    pub(super) fn reboot_nat(&mut self, client: usize, access: usize, readdress: bool) {
        let entry = self.access_mut(client, access);
        let Some(nat) = entry.nat else { return };
        let address = readdress.then(|| {
            entry.given.1 = (entry.given.1 + 1) % (ADDRESSES as u16);
            numbered(OUTSIDE, entry.label, entry.given.1 + 1).into()
        });
        self.net.reboot_nat(nat, address);
    }
}

fn pipe(q: Quality) -> PipeConfig {
    let share = |thousandth: u16| f64::from(thousandth) / 1_000.0;
    let errors = f64::from(q.bit_errors) / 1_000_000.0;
    let loss = if q.loss == 0 { Loss::None } else { Loss::Bernoulli(share(q.loss)) };
    PipeConfig {
        rate: Rate::BitsPerSecond(u64::from(q.rate_kbps.max(100)) * 1_000),
        delay_ns: u64::from(q.delay_ms) * MS,
        jitter_ns: u64::from(q.jitter_ms) * MS,
        loss,
        bit_errors: if q.bit_errors == 0 { BitErrors::None } else { BitErrors::Delivered(errors) },
        duplicate: share(q.duplicate),
        reorder: Reorder { probability: share(q.reorder), hold_ns: 30 * MS },
        ..PipeConfig::default()
    }
    .with_queue_ms(QUEUE_MS)
}

/// An address of an access network.
fn numbered(block: u32, label: u16, number: u16) -> Ipv4Addr {
    Ipv4Addr::from(block + u32::from(label) * ADDRESSES + u32::from(number) % ADDRESSES)
}

/// All of them.
fn site(block: u32, label: u16) -> IpNet {
    IpNet::new(numbered(block, label, 0).into(), PREFIX).unwrap_or_default()
}
