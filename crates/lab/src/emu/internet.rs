//! Hosts, routers and NAT boxes joined by links, and packets on their way between them.

use super::filter::{Filter, Heading, Middlebox};
use super::frame::{Endpoints, Frame};
use super::nat::{Filtering, Nat, NatConfig};
use super::pipe::{Carrier, Pipe, PipeConfig, PipeStats};
use super::preset::LinkConfig;
use super::rng::Rng;
use ipnet::IpNet;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;

/// The most routers a packet may pass before it counts as caught in a loop.
const MAX_HOPS: u8 = 32;

/// A host, a router or a NAT box.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeId(u32);

/// A link between two nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinkId(u32);

/// The two ends of a link, in the order in which [`Internet::connect`] names them. As a
/// direction, an end stands for what is *sent* there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    /// The first end; by custom the host's, so that its direction is the uplink.
    A,
    /// The second end; its direction is the downlink.
    B,
}

/// A packet that has arrived at a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery<F> {
    /// When it arrived, at or before the time of the poll: the difference is the caller's
    /// lateness.
    pub at_ns: u64,
    /// Where.
    pub host: NodeId,
    /// Over which of the host's links.
    pub link: LinkId,
    /// The packet.
    pub frame: F,
}

/// Packets that died outside of links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DropCounts {
    /// No addresses, or multicast: nothing a router could forward.
    pub unroutable: u64,
    /// No route to the destination.
    pub no_route: u64,
    /// More than 32 routers.
    pub loops: u64,
    /// Refused by a NAT box.
    pub nat: u64,
    /// Not let by by a middlebox.
    pub filtered: u64,
}

/// An emulated network.
#[derive(Debug)]
pub struct Internet<F> {
    seed: Rng,
    nodes: Vec<Node>,
    links: Vec<Link<F>>,
    /// When each pipe moves next; a pipe stands in it once or not at all.
    schedule: BTreeSet<(u64, LinkId, End)>,
    delivered: VecDeque<Delivery<F>>,
    drops: DropCounts,
}

#[derive(Debug)]
enum Node {
    /// An edge of the emulation: what arrives is handed out.
    Host,
    /// Sends by destination, longest prefix first.
    Router(Routes),
    /// Translates between its inside, routed by destination, and its one outside link.
    Nat { nat: Box<Nat>, outside: Option<LinkId>, inside: Routes },
}

#[derive(Debug, Default)]
struct Routes {
    links: BTreeMap<IpNet, LinkId>,
    /// The lengths of their prefixes, each once, the longest first: of a table there are few.
    lengths: Vec<u8>,
}

#[derive(Debug)]
struct Link<F> {
    a: NodeId,
    b: NodeId,
    up: Pipe<Hop<F>>,
    down: Pipe<Hop<F>>,
    up_next_ns: Option<u64>,
    down_next_ns: Option<u64>,
    /// Before the first end, which is behind it.
    middlebox: Option<Box<Middlebox>>,
}

/// A frame and how many routers it has passed.
#[derive(Clone, Debug)]
struct Hop<F> {
    frame: F,
    hops: u8,
}

impl<F: Frame> Internet<F> {
    /// An empty network; all its chance follows from `seed`.
    pub const fn new(seed: u64) -> Self {
        Self {
            seed: Rng::new(seed),
            nodes: Vec::new(),
            links: Vec::new(),
            schedule: BTreeSet::new(),
            delivered: VecDeque::new(),
            drops: DropCounts { unroutable: 0, no_route: 0, loops: 0, nat: 0, filtered: 0 },
        }
    }

    /// Adds a host.
    pub fn host(&mut self) -> NodeId {
        self.add_node(Node::Host)
    }

    /// Adds a router.
    pub fn router(&mut self) -> NodeId {
        self.add_node(Node::Router(Routes::default()))
    }

    /// Adds a NAT box. The first link connected to it leads outside; all others lead inside, and
    /// [`Internet::route`] names the addresses there.
    pub fn nat(&mut self, config: NatConfig) -> NodeId {
        let nat = Box::new(Nat::new(config, self.seed.fork(!(self.nodes.len() as u64))));
        self.add_node(Node::Nat { nat, outside: None, inside: Routes::default() })
    }

    /// Joins two nodes by a link.
    pub fn connect(&mut self, a: NodeId, b: NodeId, config: LinkConfig) -> LinkId {
        let id = LinkId(self.links.len() as u32);
        let label = u64::from(id.0) * 2;
        self.links.push(Link {
            a,
            b,
            up: Pipe::new(config.up, self.seed.fork(label)),
            down: Pipe::new(config.down, self.seed.fork(label + 1)),
            up_next_ns: None,
            down_next_ns: None,
            middlebox: None,
        });
        for node in [a, b] {
            if let Node::Nat { outside: outside @ None, .. } = &mut self.nodes[node.0 as usize] {
                *outside = Some(id);
            }
        }
        id
    }

    /// Makes a router (or the inside of a NAT box) send packets for `prefix` over `link`;
    /// a route of the same prefix is replaced. A host has no routes.
    pub fn route(&mut self, router: NodeId, prefix: IpNet, link: LinkId) {
        if let Some(routes) = self.routes_mut(router) {
            routes.add(prefix, link);
        }
    }

    /// A packet that `host` sends over `link`, one of its own.
    pub fn push(&mut self, now_ns: u64, host: NodeId, link: LinkId, frame: F) {
        self.send(now_ns, host, link, Hop { frame, hops: 0 });
    }

    /// The next packet that has arrived at a host by `now_ns`, in the order of arrival; to be
    /// called until it returns `None`.
    pub fn poll_delivery(&mut self, now_ns: u64) -> Option<Delivery<F>> {
        loop {
            if let Some(delivery) = self.delivered.pop_front() {
                return Some(delivery);
            }
            let (due_ns, link, end) = *self.schedule.first().filter(|next| next.0 <= now_ns)?;
            let pipe = self.links[link.0 as usize].pipe_mut(end);
            let arrival = pipe.poll_arrival(due_ns);
            self.reschedule(link, end);
            if let Some((at_ns, hop)) = arrival {
                self.arrive(at_ns, link, end, hop);
            }
        }
    }

    /// The moment at which to call [`Internet::poll_delivery`] again, if anything is on its way.
    pub fn poll_timeout(&self) -> Option<u64> {
        match self.delivered.front() {
            Some(delivery) => Some(delivery.at_ns),
            None => self.schedule.first().map(|next| next.0),
        }
    }

    /// Plugs, unplugs or blackholes one direction of a link.
    pub fn set_carrier(&mut self, now_ns: u64, link: LinkId, end: End, carrier: Carrier) {
        self.links[link.0 as usize].pipe_mut(end).set_carrier(now_ns, carrier);
        self.reschedule(link, end);
    }

    /// Plugs, unplugs or blackholes both directions of a link.
    pub fn set_link(&mut self, now_ns: u64, link: LinkId, carrier: Carrier) {
        self.set_carrier(now_ns, link, End::A, carrier);
        self.set_carrier(now_ns, link, End::B, carrier);
    }

    /// Changes what one direction of a link is like, from the next packet on.
    pub fn set_config(&mut self, now_ns: u64, link: LinkId, end: End, config: PipeConfig) {
        self.links[link.0 as usize].pipe_mut(end).set_config(now_ns, config);
        self.reschedule(link, end);
    }

    /// What one direction of a link is like.
    pub fn config(&self, link: LinkId, end: End) -> &PipeConfig {
        self.links[link.0 as usize].pipe(end).config()
    }

    /// What became of the packets in one direction of a link.
    pub fn stats(&self, link: LinkId, end: End) -> PipeStats {
        self.links[link.0 as usize].pipe(end).stats()
    }

    /// Bytes waiting in the queue of one direction of a link.
    pub fn queued_bytes(&self, link: LinkId, end: End) -> u64 {
        self.links[link.0 as usize].pipe(end).queued_bytes()
    }

    /// Puts a middlebox on a link, before its first end, in place of the one that was there; or
    /// takes it away. What is on its way has passed.
    pub fn set_filter(&mut self, link: LinkId, filter: Option<Filter>) {
        let middlebox = filter.map(|filter| Box::new(Middlebox::new(filter)));
        self.links[link.0 as usize].middlebox = middlebox;
    }

    /// Packets that died outside of links.
    pub const fn drops(&self) -> DropCounts {
        self.drops
    }

    /// Gives every mapping of a NAT box a new port, as some boxes do at will: the next packet from
    /// inside leaves from there, and what is sent to the old ports is refused.
    pub fn rebind_nat(&mut self, nat: NodeId) {
        if let Node::Nat { nat, .. } = &mut self.nodes[nat.0 as usize] {
            nat.rebind();
        }
    }

    /// Makes a NAT box forget everything, with another outside address if one is given.
    pub fn reboot_nat(&mut self, nat: NodeId, address: Option<IpAddr>) {
        if let Node::Nat { nat, .. } = &mut self.nodes[nat.0 as usize] {
            nat.reboot(address);
        }
    }

    /// Makes a NAT box let these in, and keep mappings this long after their last packet from
    /// inside, from the next such packet on.
    pub fn set_nat(&mut self, nat: NodeId, filtering: Filtering, expiry_ns: u64) {
        if let Node::Nat { nat, .. } = &mut self.nodes[nat.0 as usize] {
            nat.set(filtering, expiry_ns);
        }
    }

    fn add_node(&mut self, node: Node) -> NodeId {
        self.nodes.push(node);
        NodeId(self.nodes.len() as u32 - 1)
    }

    fn routes_mut(&mut self, node: NodeId) -> Option<&mut Routes> {
        match &mut self.nodes[node.0 as usize] {
            Node::Host => None,
            Node::Router(routes) | Node::Nat { inside: routes, .. } => Some(routes),
        }
    }

    fn send(&mut self, now_ns: u64, from: NodeId, link: LinkId, hop: Hop<F>) {
        let ends = &mut self.links[link.0 as usize];
        let end = if ends.a == from { End::A } else { End::B };
        if !ends.lets_by(end, &hop.frame) {
            self.drops.filtered += 1;
            return;
        }
        ends.pipe_mut(end).push(now_ns, hop);
        self.reschedule(link, end);
    }

    /// Keeps the schedule in step with a pipe that was touched.
    fn reschedule(&mut self, link: LinkId, end: End) {
        let entry = &mut self.links[link.0 as usize];
        let next = entry.pipe(end).poll_timeout();
        let known = match end {
            End::A => &mut entry.up_next_ns,
            End::B => &mut entry.down_next_ns,
        };
        if *known == next {
            return;
        }
        if let Some(old) = known.take() {
            self.schedule.remove(&(old, link, end));
        }
        if let Some(new) = next {
            self.schedule.insert((new, link, end));
        }
        *known = next;
    }

    /// A packet came out of a link: to the host, or through the router.
    fn arrive(&mut self, at_ns: u64, link: LinkId, sent_from: End, mut hop: Hop<F>) {
        let ends = &self.links[link.0 as usize];
        let node = match sent_from {
            End::A => ends.b,
            End::B => ends.a,
        };
        if matches!(self.nodes[node.0 as usize], Node::Host) {
            self.delivered.push_back(Delivery { at_ns, host: node, link, frame: hop.frame });
            return;
        }
        hop.hops += 1;
        if hop.hops > MAX_HOPS {
            self.drops.loops += 1;
            return;
        }
        let Some(endpoints) = hop.frame.endpoints().filter(is_unicast) else {
            self.drops.unroutable += 1;
            return;
        };
        if let Some(next) = self.forward(at_ns, node, link, &mut hop.frame, endpoints) {
            self.send(at_ns, node, next, hop);
        }
    }

    /// Finds the next link of a packet at a router, translating its addresses at a NAT box.
    fn forward(
        &mut self,
        now_ns: u64,
        node: NodeId,
        from: LinkId,
        frame: &mut F,
        endpoints: Endpoints,
    ) -> Option<LinkId> {
        let (routes, destination) = match &mut self.nodes[node.0 as usize] {
            Node::Host => return None,
            Node::Router(routes) => (routes, endpoints.destination),
            Node::Nat { nat, outside, inside } if *outside == Some(from) => {
                let Some(to) = nat.inbound(now_ns, &endpoints) else {
                    self.drops.nat += 1;
                    return None;
                };
                frame.set_destination(to);
                (inside, to)
            }
            Node::Nat { nat, outside, inside } => {
                if let Some(link) = inside.find(endpoints.destination.ip()) {
                    return Some(link);
                }
                let Some(source) = nat.outbound(now_ns, &endpoints) else {
                    self.drops.nat += 1;
                    return None;
                };
                frame.set_source(source);
                return *outside;
            }
        };
        let next = routes.find(destination.ip());
        if next.is_none() {
            self.drops.no_route += 1;
        }
        next
    }
}

impl Routes {
    fn add(&mut self, prefix: IpNet, link: LinkId) {
        self.links.insert(prefix.trunc(), link);
        self.lengths.push(prefix.prefix_len());
        self.lengths.sort_unstable_by_key(|&length| std::cmp::Reverse(length));
        self.lengths.dedup();
    }

    /// The link of the longest prefix that holds `address`.
    fn find(&self, address: IpAddr) -> Option<LinkId> {
        self.lengths.iter().find_map(|&length| {
            let prefix = IpNet::new(address, length).ok()?.trunc(); // none is this long in IPv4
            self.links.get(&prefix).copied()
        })
    }
}

impl<F: Frame> Link<F> {
    /// Whether the middlebox lets by what is sent at an end; none is in nobody's way.
    fn lets_by(&mut self, sent_at: End, frame: &F) -> bool {
        let Some(middlebox) = &mut self.middlebox else { return true };
        let heading = match sent_at {
            End::A => Heading::Out,
            End::B => Heading::In,
        };
        let endpoints = frame.endpoints();
        endpoints.is_some_and(|ends| middlebox.lets_by(heading, &ends, frame.stream_bytes()))
    }
}

impl<F> Link<F> {
    const fn pipe(&self, end: End) -> &Pipe<Hop<F>> {
        match end {
            End::A => &self.up,
            End::B => &self.down,
        }
    }

    const fn pipe_mut(&mut self, end: End) -> &mut Pipe<Hop<F>> {
        match end {
            End::A => &mut self.up,
            End::B => &mut self.down,
        }
    }
}

impl<F: Frame> Frame for Hop<F> {
    fn wire_len(&self) -> usize {
        self.frame.wire_len()
    }

    fn endpoints(&self) -> Option<Endpoints> {
        self.frame.endpoints()
    }

    fn set_source(&mut self, source: std::net::SocketAddr) {
        self.frame.set_source(source);
    }

    fn set_destination(&mut self, destination: std::net::SocketAddr) {
        self.frame.set_destination(destination);
    }

    fn flip_bit(&mut self, bit: usize) {
        self.frame.flip_bit(bit);
    }

    fn stream_bytes(&self) -> &[u8] {
        self.frame.stream_bytes()
    }
}

/// Hosts speak of their own accord to groups (neighbour discovery, mDNS); routers do not forward
/// that.
fn is_unicast(endpoints: &Endpoints) -> bool {
    match endpoints.destination.ip() {
        IpAddr::V4(address) => !address.is_multicast() && !address.is_broadcast(),
        IpAddr::V6(address) => !address.is_multicast(),
    }
}

#[cfg(test)]
#[path = "internet_tests.rs"]
mod tests;
