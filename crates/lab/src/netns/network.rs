//! Hosts, their cards, and the access networks to plug them into.

use super::emulator::{Capture, Emulator};
use super::enter::Entered;
use super::host::Host;
use super::lateness::Timekeeping;
use super::monotonic_ns;
use super::tap::{ROUTER_MAC, Tap};
use crate::emu::{
    Carrier, End, Filter, LinkConfig, LinkId, NatConfig, NodeId, PipeConfig, PipeStats,
};
use ipnet::{IpNet, Ipv4Net};
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

/// The MTU of every emulated card.
const MTU: u32 = 1_500;

/// A host of a [`Network`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostId(usize);

/// A card of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CardId(usize);

/// An access network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessId(usize);

/// Hosts around one router, each behind access networks of its own.
///
/// The router in the middle is ideal: delay, rate and loss are those of the access links.
#[derive(Debug)]
pub struct Network {
    emulator: Emulator,
    core: NodeId,
    directory: PathBuf,
    hosts: Vec<HostEntry>,
    cards: Vec<Card>,
    accesses: Vec<Access>,
}

#[derive(Debug)]
struct HostEntry {
    host: Host,
    node: NodeId,
}

#[derive(Debug)]
struct Card {
    host: HostId,
    /// Number of the card at the emulator.
    port: usize,
    index: u32,
    access: Option<AccessId>,
    addresses: Vec<IpNet>,
}

/// A network that one host can plug a card into: a link to the router in the middle, perhaps
/// through a NAT box. The first address of each of its subnets is its gateway.
#[derive(Clone, Debug)]
pub struct Access {
    host: HostId,
    link: LinkId,
    nat: Option<NodeId>,
    /// Between the NAT box and the middle of the Internet.
    uplink: Option<LinkId>,
    subnets: Vec<IpNet>,
}

impl Network {
    /// An empty network; all its chance follows from `seed`.
    pub fn new(entered: &Entered, seed: u64) -> io::Result<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let directory = entered.directory().join(format!("network-{number}"));
        std::fs::create_dir(&directory)?;
        let emulator = Emulator::start(seed)?;
        let core = emulator.with(|shell, _| shell.internet.router())?;
        Ok(Self { emulator, core, directory, hosts: vec![], cards: vec![], accesses: vec![] })
    }

    /// Builds in small what every story needs (two hosts, a cable, forwarding) and takes it down:
    /// a refusal should come before anything else is done.
    ///
    /// # Errors
    /// What was refused, and where it can be, the cure.
    pub fn rehearse(entered: &Entered) -> io::Result<()> {
        let mut network = Self::new(entered, 0)?;
        let [a, b] = [network.add_host("a")?, network.add_host("b")?];
        let address = |last| Ipv4Net::new_assert([192, 0, 2, last].into(), 24).into();
        network.cable((a, "eth0", address(1)), (b, "eth0", address(2))).map_err(|error| {
            let text = format!("two hosts cannot be joined by a cable (veth): {error}");
            io::Error::new(error.kind(), text)
        })?;
        network.host(a).enable_forwarding()
    }

    /// Adds a host; `name` is a directory name of the lab's and stands in messages.
    pub fn add_host(&mut self, name: &str) -> io::Result<HostId> {
        let host = Host::new(name, &self.directory)?;
        let node = self.emulator.with(|shell, _| shell.internet.host())?;
        self.hosts.push(HostEntry { host, node });
        Ok(HostId(self.hosts.len() - 1))
    }

    /// A host.
    pub fn host(&self, id: HostId) -> &Host {
        &self.hosts[id.0].host
    }

    /// Gives a host a network card, which is up but not plugged in.
    pub fn add_card(&mut self, host: HostId, name: &str) -> io::Result<CardId> {
        let number = self.cards.len();
        let mac = [0x02, 0, 0, 1, (number >> 8) as u8, number as u8];
        let owner = &mut self.hosts[host.0].host;
        let tap = owner.inside(|| Tap::create(name))?;
        tap.set_carrier(false)?;
        let index = owner.interface(name)?;
        owner.netlink.set_hardware(index, mac, MTU)?;
        owner.netlink.set_up(index, true)?;
        // Until the kernel has seen that there is no cable it calls a new card running: a plug
        // would return at once, and what is sent before the card is activated vanishes.
        owner.netlink.await_carrier(index, false)?;
        let port = self.emulator.with(move |shell, _| shell.add_card(tap, mac))??;
        let (access, addresses) = (None, Vec::new());
        self.cards.push(Card { host, port, index, access, addresses });
        Ok(CardId(number))
    }

    /// Makes an access network for a host. With a NAT box, `subnets` lie inside it and the box's
    /// outside addresses are what the rest of the Internet sees.
    pub fn add_access(
        &mut self,
        host: HostId,
        config: LinkConfig,
        subnets: &[IpNet],
        nat: Option<NatConfig>,
    ) -> io::Result<AccessId> {
        let (core, node) = (self.core, self.hosts[host.0].node);
        let prefixes = subnets.to_vec();
        let (link, nat, uplink) = self.emulator.with(move |shell, _| {
            let internet = &mut shell.internet;
            let Some(nat) = nat else {
                let link = internet.connect(node, core, config);
                prefixes.iter().for_each(|prefix| internet.route(core, *prefix, link));
                return (link, None, None);
            };
            let outside = nat.outside.clone();
            let translates = |prefix: &&IpNet| {
                outside.iter().any(|address| address.is_ipv4() == prefix.addr().is_ipv4())
            };
            let nat_box = internet.nat(nat);
            let uplink = internet.connect(nat_box, core, LinkConfig::ideal());
            let link = internet.connect(node, nat_box, config);
            for prefix in &prefixes {
                internet.route(nat_box, *prefix, link);
            }
            for address in &outside {
                internet.route(core, IpNet::from(*address), uplink);
            }
            for prefix in prefixes.iter().filter(|prefix| !translates(prefix)) {
                internet.route(core, *prefix, uplink);
            }
            (link, Some(nat_box), Some(uplink))
        })?;
        self.accesses.push(Access { host, link, nat, uplink, subnets: subnets.to_vec() });
        Ok(AccessId(self.accesses.len() - 1))
    }

    /// Plugs a card into an access network, gives it addresses there and default routes of this
    /// metric through the network's gateways. What it had before is taken away first. Returns when
    /// the first of the addresses became usable ([`monotonic_ns`]).
    pub fn plug(
        &mut self,
        card: CardId,
        access: AccessId,
        addresses: &[IpNet],
        metric: u32,
    ) -> io::Result<u64> {
        let (index, host) = (self.cards[card.0].index, self.cards[card.0].host);
        let network = self.accesses[access.0].clone();
        let node = self.hosts[network.host.0].node;
        let netlink = &mut self.hosts[host.0].host.netlink;
        for address in std::mem::take(&mut self.cards[card.0].addresses) {
            netlink.remove_address(index, address)?;
        }
        for gateway in network.gateways() {
            netlink.fix_neighbour(index, gateway, ROUTER_MAC)?;
        }
        let port = self.cards[card.0].port;
        let plug = Some((node, network.link));
        self.emulator.with(move |shell, _| shell.plug(port, plug))??;
        netlink.await_carrier(index, true)?;
        let mut usable_ns = None;
        for address in addresses {
            netlink.add_address(index, *address)?;
            usable_ns.get_or_insert_with(monotonic_ns);
        }
        for gateway in network.gateways() {
            if addresses.iter().any(|address| address.addr().is_ipv4() == gateway.is_ipv4()) {
                netlink.add_route(index, everything(gateway), gateway, metric)?;
            }
        }
        self.cards[card.0].addresses = addresses.to_vec();
        self.cards[card.0].access = Some(access);
        Ok(usable_ns.unwrap_or_else(monotonic_ns))
    }

    /// Plugs a card into another access network without its host noticing: the addresses stay, and
    /// the middle of the Internet sends them there from now on. Returns when.
    pub fn hand_over(&mut self, card: CardId, access: AccessId) -> io::Result<u64> {
        let network = self.accesses[access.0].clone();
        let node = self.hosts[network.host.0].node;
        let (core, port) = (self.core, self.cards[card.0].port);
        let addresses = self.cards[card.0].addresses.clone();
        self.cards[card.0].access = Some(access);
        self.emulator.with(move |shell, now_ns| {
            for address in &addresses {
                shell.internet.route(core, IpNet::from(address.addr()), network.link);
            }
            shell.plug(port, Some((node, network.link))).map(|()| now_ns)
        })?
    }

    /// Takes the default routes of a card away, as a network service does that is about to leave a
    /// network; its addresses and its link stay.
    pub fn withdraw_routes(&mut self, card: CardId, metric: u32) -> io::Result<()> {
        let Card { host, index, access: Some(access), .. } = self.cards[card.0] else {
            return Ok(());
        };
        let network = self.accesses[access.0].clone();
        let netlink = &mut self.hosts[host.0].host.netlink;
        for gateway in network.gateways() {
            let routed = self.cards[card.0]
                .addresses
                .iter()
                .any(|address| address.addr().is_ipv4() == gateway.is_ipv4());
            if routed {
                netlink.remove_route(index, everything(gateway), gateway, metric)?;
            }
        }
        Ok(())
    }

    /// Pulls the cable out: the kernel sees the carrier go; addresses stay until something takes
    /// them away.
    pub fn set_carrier(&self, card: CardId, up: bool) -> io::Result<()> {
        let port = self.cards[card.0].port;
        self.emulator.with(move |shell, _| shell.set_carrier(port, up))??;
        if let Some(access) = self.cards[card.0].access {
            self.set_access(access, if up { Carrier::Up } else { Carrier::Down })?;
        }
        Ok(())
    }

    /// Pulls the cable out and returns when the host's kernel knew it ([`monotonic_ns`]): it may
    /// take its time.
    pub fn pull(&mut self, card: CardId) -> io::Result<u64> {
        self.set_carrier(card, false)?;
        let Card { host, index, .. } = self.cards[card.0];
        self.hosts[host.0].host.netlink.await_carrier(index, false)?;
        Ok(monotonic_ns())
    }

    /// Puts the cable back where it was and returns when the host's kernel sends through it again.
    pub fn put_back(&mut self, card: CardId) -> io::Result<u64> {
        let Card { host, index, access, .. } = self.cards[card.0];
        // The network carries before anybody can know it.
        if let Some(access) = access {
            self.set_access(access, Carrier::Up)?;
        }
        self.set_carrier(card, true)?;
        self.hosts[host.0].host.netlink.await_carrier(index, true)?;
        Ok(monotonic_ns())
    }

    /// Cuts, blackholes or restores the link of an access network, unseen by the host.
    pub fn set_access(&self, access: AccessId, carrier: Carrier) -> io::Result<()> {
        let link = self.accesses[access.0].link;
        self.emulator.with(move |shell, now_ns| shell.internet.set_link(now_ns, link, carrier))
    }

    /// Changes one direction of an access network's link; [`End::A`] is the uplink.
    pub fn set_pipe(&self, access: AccessId, end: End, config: PipeConfig) -> io::Result<()> {
        let link = self.accesses[access.0].link;
        self.emulator.with(move |shell, now| shell.internet.set_config(now, link, end, config))
    }

    /// What became of the packets in one direction of an access network; [`End::A`] is the uplink.
    pub fn stats(&self, access: AccessId, end: End) -> io::Result<PipeStats> {
        let link = self.accesses[access.0].link;
        self.emulator.with(move |shell, _| shell.internet.stats(link, end))
    }

    /// Puts a middlebox on the link of an access network, or takes it away.
    pub fn set_filter(&self, access: AccessId, filter: Option<Filter>) -> io::Result<()> {
        let link = self.accesses[access.0].link;
        self.emulator.with(move |shell, _| shell.internet.set_filter(link, filter))
    }

    /// Gives the NAT box of an access network new ports; nothing without a box.
    pub fn rebind_nat(&self, access: AccessId) -> io::Result<()> {
        let Some(nat) = self.accesses[access.0].nat else { return Ok(()) };
        self.emulator.with(move |shell, _| shell.internet.rebind_nat(nat))
    }

    /// Makes the NAT box of an access network forget everything, with another outside address;
    /// nothing without a box.
    pub fn reboot_nat(&self, access: AccessId, outside: IpAddr) -> io::Result<()> {
        let Access { nat: Some(nat), uplink: Some(uplink), .. } = self.accesses[access.0] else {
            return Ok(());
        };
        let core = self.core;
        self.emulator.with(move |shell, _| {
            shell.internet.reboot_nat(nat, Some(outside));
            shell.internet.route(core, IpNet::from(outside), uplink);
        })
    }

    /// Sends a prefix to a host through one of its access networks, beyond its own subnets.
    pub fn route_to(&self, prefix: IpNet, access: AccessId) -> io::Result<()> {
        let (core, link) = (self.core, self.accesses[access.0].link);
        self.emulator.with(move |shell, _| shell.internet.route(core, prefix, link))
    }

    /// Joins two hosts by a direct cable (veth), outside of the emulation: no delay, no loss, as
    /// fast as the kernel. Each end is named and addressed.
    pub fn cable(&mut self, a: (HostId, &str, IpNet), b: (HostId, &str, IpNet)) -> io::Result<()> {
        let peer = self.host(b.0).network_namespace().try_clone_to_owned()?;
        let netlink = &mut self.hosts[a.0.0].host.netlink;
        netlink.add_veth(a.1, b.1, std::os::fd::AsFd::as_fd(&peer))?;
        for (host, name, _) in [a, b] {
            let host = &mut self.hosts[host.0].host;
            let index = host.interface(name)?;
            host.netlink.set_up(index, true)?;
        }
        for (host, name, address) in [a, b] {
            let host = &mut self.hosts[host.0].host;
            let index = host.interface(name)?;
            host.netlink.await_carrier(index, true)?;
            host.netlink.add_address(index, address)?;
        }
        Ok(())
    }

    /// Gives an interface of a host another address.
    pub fn add_address(&mut self, host: HostId, interface: &str, address: IpNet) -> io::Result<()> {
        let host = &mut self.hosts[host.0].host;
        let index = host.interface(interface)?;
        host.netlink.add_address(index, address)
    }

    /// Takes an address away from an interface of a host.
    pub fn remove_address(
        &mut self,
        host: HostId,
        interface: &str,
        address: IpNet,
    ) -> io::Result<()> {
        let host = &mut self.hosts[host.0].host;
        let index = host.interface(interface)?;
        host.netlink.remove_address(index, address)
    }

    /// Adds a route on a host through a neighbour that one of its interfaces reaches.
    pub fn add_host_route(
        &mut self,
        host: HostId,
        interface: &str,
        prefix: IpNet,
        gateway: IpAddr,
    ) -> io::Result<()> {
        let host = &mut self.hosts[host.0].host;
        let index = host.interface(interface)?;
        host.netlink.add_route(index, prefix, gateway, 0)
    }

    /// Begins to note every packet that passes a card.
    pub fn start_capture(&self, card: CardId) -> io::Result<()> {
        let port = self.cards[card.0].port;
        self.emulator.with(move |shell, _| shell.start_capture(port, false))
    }

    /// The same, with what is in the packets.
    pub fn start_capture_of_contents(&self, card: CardId) -> io::Result<()> {
        let port = self.cards[card.0].port;
        self.emulator.with(move |shell, _| shell.start_capture(port, true))
    }

    /// Ends the capture of a card and returns it.
    pub fn take_capture(&self, card: CardId) -> io::Result<Capture> {
        let port = self.cards[card.0].port;
        self.emulator.with(move |shell, _| shell.take_capture(port))
    }

    /// How late deliveries have been since the start or the last call, which clears it.
    pub fn take_timekeeping(&self) -> io::Result<Timekeeping> {
        self.emulator.take_timekeeping()
    }
}

impl Access {
    /// The first address of each subnet.
    fn gateways(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.subnets.iter().filter_map(|subnet| subnet.hosts().next())
    }
}

/// The prefix of all addresses of a family.
fn everything(like: IpAddr) -> IpNet {
    match like {
        IpAddr::V4(_) => IpNet::V4(Ipv4Net::default()),
        IpAddr::V6(_) => IpNet::V6(ipnet::Ipv6Net::default()),
    }
}
