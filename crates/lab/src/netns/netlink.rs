//! What the lab asks of a host's kernel about its links, in routing netlink (RFC 3549), so that no
//! `ip` program need be installed.

use ipnet::IpNet;
use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkHeader,
    NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressMessage};
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkMessage,
};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteProtocol, RouteScope,
    RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

/// How long a link may take to carry, and an address to be the host's own.
const LIMIT: Duration = Duration::from_secs(5);
/// The longest answer that is read: an acknowledgement quotes the request, a link's description
/// has statistics.
const ANSWER_BYTES: usize = 16_384;

/// A netlink socket, and the network namespace in which it was made.
pub(super) struct Netlink {
    socket: Socket,
    sequence: u32,
}

impl Netlink {
    /// Opens one in the network namespace of the calling thread; it stays there.
    pub(super) fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Self { socket, sequence: 0 })
    }

    /// Sets a link up or down.
    pub(super) fn set_up(&mut self, index: u32, up: bool) -> io::Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        message.header.change_mask = LinkFlags::Up;
        message.header.flags = if up { LinkFlags::Up } else { LinkFlags::empty() };
        self.request(RouteNetlinkMessage::SetLink(message), 0)
    }

    /// Waits until a link carries: its cable is plugged in at both ends and the kernel, which does
    /// this in its own time, has begun to send through it.
    pub(super) fn await_carrier(&mut self, index: u32, up: bool) -> io::Result<()> {
        let what = if up { "a link does not come up" } else { "a link does not come down" };
        self.wait(what, |netlink| Ok(netlink.is_running(index)? == up))
    }

    /// Waits until something holds, which it does soon.
    fn wait(
        &mut self,
        otherwise: &'static str,
        holds: impl Fn(&mut Self) -> io::Result<bool>,
    ) -> io::Result<()> {
        let end = Instant::now() + LIMIT;
        while !holds(self)? {
            if Instant::now() >= end {
                return Err(io::Error::new(io::ErrorKind::TimedOut, otherwise));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Gives a link a hardware address and an MTU.
    pub(super) fn set_hardware(&mut self, index: u32, mac: [u8; 6], mtu: u32) -> io::Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        message.attributes.push(LinkAttribute::Address(mac.to_vec()));
        message.attributes.push(LinkAttribute::Mtu(mtu));
        self.request(RouteNetlinkMessage::SetLink(message), 0)
    }

    /// Makes a pair of virtual Ethernet devices: `name` here, `peer_name` in the network
    /// namespace `peer`. Both are down.
    pub(super) fn add_veth(
        &mut self,
        name: &str,
        peer_name: &str,
        peer: BorrowedFd<'_>,
    ) -> io::Result<()> {
        let mut other = LinkMessage::default();
        other.attributes.push(LinkAttribute::IfName(peer_name.to_owned()));
        other.attributes.push(LinkAttribute::NetNsFd(peer.as_raw_fd()));
        let mut message = LinkMessage::default();
        message.attributes.push(LinkAttribute::IfName(name.to_owned()));
        message.attributes.push(LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Veth),
            LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(other))),
        ]));
        self.request(RouteNetlinkMessage::NewLink(message), NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Gives a link that carries an address with its prefix, and waits until it can be used; an
    /// IPv6 one without duplicate address detection: the emulated networks have no duplicates.
    pub(super) fn add_address(&mut self, index: u32, address: IpNet) -> io::Result<()> {
        let mut message = address_message(index, address);
        if let IpNet::V4(v4) = address {
            message.attributes.push(AddressAttribute::Broadcast(v4.broadcast()));
        } else {
            message.attributes.push(AddressAttribute::Flags(AddressFlags::Nodad));
        }
        self.request(RouteNetlinkMessage::NewAddress(message), NLM_F_CREATE | NLM_F_REPLACE)?;
        // The kernel makes an IPv6 address its own in a work queue, which other namespaces keep
        // waiting on a busy machine; until then it takes nothing that is sent there.
        let mine = |netlink: &mut Self| netlink.is_own(address.addr());
        self.wait("an address does not become the host's own", mine)
    }

    /// Takes an address away.
    pub(super) fn remove_address(&mut self, index: u32, address: IpNet) -> io::Result<()> {
        self.request(RouteNetlinkMessage::DelAddress(address_message(index, address)), 0)
    }

    /// Sends `prefix` to `gateway` on a link, which need not lie in a connected prefix; a route of
    /// the same prefix and metric is replaced. Lower metrics win.
    pub(super) fn add_route(
        &mut self,
        index: u32,
        prefix: IpNet,
        gateway: IpAddr,
        metric: u32,
    ) -> io::Result<()> {
        let message = route_message(index, prefix, gateway, metric);
        self.request(RouteNetlinkMessage::NewRoute(message), NLM_F_CREATE | NLM_F_REPLACE)
    }

    /// Removes such a route.
    pub(super) fn remove_route(
        &mut self,
        index: u32,
        prefix: IpNet,
        gateway: IpAddr,
        metric: u32,
    ) -> io::Result<()> {
        let message = route_message(index, prefix, gateway, metric);
        self.request(RouteNetlinkMessage::DelRoute(message), 0)
    }

    /// Fixes the hardware address of a neighbour for ever, so that no packet waits for ARP.
    pub(super) fn fix_neighbour(
        &mut self,
        index: u32,
        address: IpAddr,
        mac: [u8; 6],
    ) -> io::Result<()> {
        let mut message = NeighbourMessage::default();
        message.header.family = family(address);
        message.header.ifindex = index;
        message.header.state = NeighbourState::Permanent;
        message.header.kind = RouteType::Unicast;
        message.attributes.push(NeighbourAttribute::Destination(match address {
            IpAddr::V4(v4) => NeighbourAddress::Inet(v4),
            IpAddr::V6(v6) => NeighbourAddress::Inet6(v6),
        }));
        message.attributes.push(NeighbourAttribute::LinkLayerAddress(mac.to_vec()));
        self.request(RouteNetlinkMessage::NewNeighbour(message), NLM_F_CREATE | NLM_F_REPLACE)
    }

    /// Whether a link is up and its operational state too (`IFF_RUNNING`).
    fn is_running(&mut self, index: u32) -> io::Result<bool> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        let answer = self.exchange(RouteNetlinkMessage::GetLink(message), 0)?;
        if let NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link)) = answer {
            return Ok(link.header.flags.contains(LinkFlags::Running));
        }
        Ok(false)
    }

    /// Whether the host takes what is sent to an address.
    fn is_own(&mut self, address: IpAddr) -> io::Result<bool> {
        let mut message = RouteMessage::default();
        message.header.address_family = family(address);
        message.header.destination_prefix_length = IpNet::from(address).prefix_len();
        message.attributes.push(RouteAttribute::Destination(route_address(address)));
        match self.exchange(RouteNetlinkMessage::GetRoute(message), 0) {
            Ok(NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewRoute(route))) => {
                Ok(route.header.kind == RouteType::Local)
            }
            Ok(_) => Ok(false),
            Err(error) if error.kind() == io::ErrorKind::NetworkUnreachable => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Sends one request and waits for the kernel's acknowledgement, which comes at once.
    fn request(&mut self, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        self.exchange(message, NLM_F_ACK | flags).map(drop)
    }

    /// Sends one request and returns the first answer to it.
    fn exchange(
        &mut self,
        message: RouteNetlinkMessage,
        flags: u16,
    ) -> io::Result<NetlinkPayload<RouteNetlinkMessage>> {
        self.sequence += 1;
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        header.sequence_number = self.sequence;
        let mut packet = NetlinkMessage::new(header, NetlinkPayload::from(message));
        packet.finalize();
        let mut bytes = vec![0; packet.buffer_len()];
        packet.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;

        let mut answer = Vec::with_capacity(ANSWER_BYTES);
        self.socket.recv(&mut answer, 0)?;
        let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(&answer)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?;
        if let NetlinkPayload::Error(error) = &answer.payload
            && error.code.is_some()
        {
            return Err(error.to_io());
        }
        Ok(answer.payload)
    }
}

fn address_message(index: u32, address: IpNet) -> AddressMessage {
    let mut message = AddressMessage::default();
    message.header.family = family(address.addr());
    message.header.prefix_len = address.prefix_len();
    message.header.index = index;
    message.attributes.push(AddressAttribute::Address(address.addr()));
    if address.addr().is_ipv4() {
        message.attributes.push(AddressAttribute::Local(address.addr()));
    }
    message
}

fn route_message(index: u32, prefix: IpNet, gateway: IpAddr, metric: u32) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = family(gateway);
    message.header.destination_prefix_length = prefix.prefix_len();
    message.header.table = RouteHeader::RT_TABLE_MAIN;
    message.header.protocol = RouteProtocol::Static;
    message.header.scope = RouteScope::Universe;
    message.header.kind = RouteType::Unicast;
    message.header.flags = RouteFlags::Onlink;
    if prefix.prefix_len() > 0 {
        message.attributes.push(RouteAttribute::Destination(route_address(prefix.network())));
    }
    message.attributes.push(RouteAttribute::Gateway(route_address(gateway)));
    message.attributes.push(RouteAttribute::Oif(index));
    message.attributes.push(RouteAttribute::Priority(metric));
    message
}

const fn family(address: IpAddr) -> AddressFamily {
    match address {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    }
}

const fn route_address(address: IpAddr) -> RouteAddress {
    match address {
        IpAddr::V4(v4) => RouteAddress::Inet(v4),
        IpAddr::V6(v6) => RouteAddress::Inet6(v6),
    }
}
