//! What is done to the client of a [`Journey`](super::Journey), and who notices.
//!
//! The client has two cards: the first goes between home and the café, the second knows the mobile
//! network. Decides how an act becomes operations of the world; knows no story.

use std::net::{IpAddr, SocketAddr};

use rove_proto::id::{LinkId, Transport};
use rove_proto::node::{Command, PathStatus, PeerState, PeerStatus};
use rove_proto::path::Health;
use rove_proto::time::Duration;

use super::super::host::{Card, PORT};
use super::super::host_id::{CLIENT, CLIENT_HOST, GATEWAY, HostId};
use super::super::laws::{Breach, Law};
use super::super::op::ACCESSES;
use super::super::road::{HOME, Road as _, Tunnelled};
use super::super::streams::{HTTPS, LISTENS};
use crate::emu::{Carrier, Filter, SECOND};
use crate::ground::{
    Act, Blockade, Edge, FIRST_LINK, Families, Known, Moment, Receiver, Reported, Terrain,
    Transport as ByWhat, Trouble,
};

/// Bytes of an IPv4 and a UDP header.
const HEADERS: u64 = 28;
/// Where the client goes: an open network.
const CAFE: usize = 1;
/// Where its second card is: behind a NAT box that gives every flow a port of its own.
const MOBILE: usize = 2;
/// An answer that is owed for longer means, to who reads the status, that nothing is carried.
const OWED_MAX: Duration = Duration::from_secs(2);
/// Addresses that the gateway gets at a time: one of each family.
const FAMILIES: usize = 2;
/// How long a client may take to settle in its first network, as it is then.
const SETTLING_NS: u64 = 2 * SECOND;

/// The client as the story knows it.
#[derive(Debug)]
pub(super) struct Client {
    /// Every network that it moves to swallows everything.
    pub(super) dead_ends: bool,
    /// The gateway's name leads to where it is.
    pub(super) named: bool,
    /// How many links it has, as acts number them.
    links: usize,
    /// The network that its first card is in.
    here: usize,
    /// The card in use: 0 or 1.
    in_use: usize,
    families: Families,
    /// The addresses that the gateway retired last.
    retired: Vec<IpAddr>,
    swallowed: Option<Swallowed>,
    /// Its networks let everything by again: when it said that data goes by UDP.
    freed: Option<Option<u64>>,
    /// The same for each [`Act::Unblock`] since the last report.
    seen_free: Vec<Option<u64>>,
    /// What was noticed and told, for each [`Act::Swallow`] of the first link since the last
    /// report.
    seen: Vec<(Option<u64>, Option<u64>)>,
}

/// A link that swallows everything: the paths in use when that began, and who has noticed.
#[derive(Debug, Default)]
struct Swallowed {
    link: Option<LinkId>,
    at_client: Option<u32>,
    at_gateway: Option<u32>,
    noticed_ns: Option<u64>,
    told_ns: Option<u64>,
}

impl Client {
    /// Brings the client of a session into its first network.
    pub(super) fn settle(road: &mut Tunnelled, terrain: &Terrain) -> Result<Self, Breach> {
        let Terrain { edge, families, known, .. } = *terrain;
        let named = matches!(known, Known::ByName { .. });
        let (dead_ends, here, in_use) = (false, HOME, 0);
        let links = 1 + terrain.beside.len();
        let (retired, swallowed, seen) = (Vec::new(), None, Vec::new());
        let (freed, seen_free) = (None, Vec::new());
        let mut client = Self {
            dead_ends,
            named,
            links,
            here,
            in_use,
            families,
            retired,
            swallowed,
            freed,
            seen_free,
            seen,
        };
        let (now_ns, gateway) = (road.world.now_ns, road.world.gateways.of(GATEWAY).link);
        for (end, pipe) in terrain.beyond() {
            road.world.place.net.set_config(now_ns, gateway, end, pipe);
        }
        if terrain.bottleneck.is_some() {
            road.world.place.add_neighbour(&terrain.link);
        }
        for other in 0..terrain.clients {
            if edge == Edge::Open && other != CLIENT {
                road.world.plug(other, 0, Some(CAFE))?;
            }
            if let Edge::Nat { filtering, expiry_ns } = edge
                && let Some(nat) = road.world.place.access(other, HOME).nat
            {
                road.world.place.net.set_nat(nat, filtering, expiry_ns);
                road.world.plug(other, 0, Some(HOME))?;
            }
        }
        if edge == Edge::Open {
            client.relocate(road)?;
        }
        if known == Known::ByTwoAddresses {
            let (old, new) =
                (gateway_ips(road), road.world.gateways.of_mut(GATEWAY).next_addresses());
            place_gateway(road, &[&new[..], &old].concat(), &[&old[..], &new].concat())?;
        }
        road.pass(road.now_ns() + SETTLING_NS)?;
        all_carry(road)?;
        Ok(client)
    }

    /// Does it.
    pub(super) fn act(&mut self, road: &mut Tunnelled, act: Act) -> Result<Moment, Trouble> {
        if act.link().is_some_and(|link| link >= self.links) {
            return Err(Trouble::Lab(anyhow::anyhow!("{act:?}: there are {} links", self.links)));
        }
        match act {
            Act::Relocate => self.relocate(road)?,
            Act::PlugSpare => self.plug_spare(road)?,
            Act::AnnounceDeparture => road.world.tell_links_last(CLIENT, self.in_use as u32)?,
            Act::Depart => {
                road.world.plug(CLIENT, self.in_use, None)?;
                self.in_use = 1 - self.in_use;
            }
            Act::ChangeCard => self.change_card(road)?,
            Act::UnplugSpare => road.world.plug(CLIENT, 1 - self.in_use, None)?,
            Act::Swallow(link) => self.swallow(road, link),
            Act::Return(link) => {
                self.stop_watching();
                self.set_carrier(road, link, Carrier::Up);
            }
            Act::Unplug(link) => {
                self.set_carrier(road, link, Carrier::Down);
                road.world.tell_links(CLIENT)?;
            }
            Act::Replug(link) => {
                self.set_carrier(road, link, Carrier::Up);
                road.world.tell_links(CLIENT)?;
            }
            Act::CloseLid => {
                road.world.fall_asleep(CLIENT_HOST);
                self.set_carrier(road, FIRST_LINK, Carrier::Down);
            }
            Act::OpenLid => {
                self.set_carrier(road, FIRST_LINK, Carrier::Up);
                road.world.power_on(CLIENT_HOST, false)?;
            }
            Act::RebindNat => {
                if let Some(nat) = road.world.place.access(CLIENT, self.here).nat {
                    road.world.place.net.rebind_nat(nat);
                }
            }
            Act::RebootNat => road.world.place.reboot_nat(CLIENT, self.here, true),
            Act::MoveGateway => {
                road.world.move_gateway(GATEWAY, 0)?;
                if self.named {
                    road.world.rename(GATEWAY);
                }
            }
            Act::AnnounceGateway => announce_gateway(road)?,
            Act::RetireGateway => self.retire_gateway(road)?,
            Act::ReviveGateway => {
                let (old, new) = (std::mem::take(&mut self.retired), gateway_ips(road));
                place_gateway(road, &[&new[..], &old].concat(), &[&old[..], &new].concat())?;
            }
            Act::ReturnGateway => {
                let back = std::mem::replace(&mut self.retired, gateway_ips(road));
                place_gateway(road, &back, &back)?;
            }
            Act::Block(blockade) => self.filter(road, Some(filter(blockade))),
            Act::Unblock => {
                self.filter(road, None);
                self.freed = Some(None);
            }
            // A process of the world has no end but a sudden one.
            Act::KillGateway | Act::StopGateway => road.world.hosts[GATEWAY].stop(),
            Act::StartGateway => road.world.power_on(GATEWAY, false)?,
        }
        let now_ns = road.now_ns();
        let card = road.world.hosts[CLIENT_HOST].cards[self.in_use].as_ref();
        let address = card.and_then(|card| card.addresses.first().copied());
        Ok(Moment { address, ..Moment::new(act, now_ns, now_ns) })
    }

    fn filter(&mut self, road: &mut Tunnelled, filter: Option<Filter>) {
        self.stop_watching();
        for access in 0..road.world.place.networks(CLIENT) {
            road.world.place.set_filter(CLIENT, access, filter);
        }
    }

    /// The first card is in the other of two networks, with a new address.
    fn relocate(&mut self, road: &mut Tunnelled) -> Result<(), Breach> {
        self.here = if self.here == HOME { CAFE } else { HOME };
        let carrier = if self.dead_ends { Carrier::BlackHole } else { Carrier::Up };
        self.set_carrier(road, FIRST_LINK, carrier);
        if self.families == Families::Same || self.here == HOME {
            return road.world.plug(CLIENT, 0, Some(self.here));
        }
        let mut addresses = road.world.place.next_addresses(CLIENT, self.here);
        addresses.retain(IpAddr::is_ipv6);
        let link = road.world.place.access(CLIENT, self.here).link;
        let card = Card { link, access: self.here, addresses };
        road.world.hosts[CLIENT_HOST].cards[0] = Some(card);
        road.world.tell_links(CLIENT)
    }

    /// One card is unplugged, then the other is plugged in: the first one into the other of its
    /// two networks.
    fn change_card(&mut self, road: &mut Tunnelled) -> Result<(), Breach> {
        road.world.plug(CLIENT, self.in_use, None)?;
        self.in_use = 1 - self.in_use;
        if self.in_use == 0 {
            return self.relocate(road);
        }
        if self.dead_ends {
            let now_ns = road.world.now_ns;
            road.world.place.set_carrier(now_ns, CLIENT, MOBILE, Carrier::BlackHole);
        }
        road.world.plug(CLIENT, 1, Some(MOBILE))
    }

    fn plug_spare(&mut self, road: &mut Tunnelled) -> Result<(), Breach> {
        let spare = 1 - self.in_use;
        let access = if spare == 0 { self.here } else { MOBILE };
        road.world.plug(CLIENT, spare, Some(access))
    }

    /// The addresses that the gateway had before its newest are gone.
    fn retire_gateway(&mut self, road: &mut Tunnelled) -> Result<(), Breach> {
        let Some(card) = road.world.hosts[GATEWAY].cards[0].as_mut() else { return Ok(()) };
        let kept = card.addresses.len().min(FAMILIES);
        self.retired = card.addresses.split_off(kept);
        let left = card.addresses.clone();
        road.world.command(GATEWAY, Command::SetLocals(left))
    }

    /// The network of the client's link of this number.
    fn set_carrier(&self, road: &mut Tunnelled, link: usize, carrier: Carrier) {
        let now_ns = road.world.now_ns;
        let access = if link == FIRST_LINK { self.here } else { usize::from(ACCESSES) + link - 1 };
        road.world.place.set_carrier(now_ns, CLIENT, access, carrier);
    }

    fn swallow(&mut self, road: &mut Tunnelled, link: usize) {
        self.stop_watching();
        self.set_carrier(road, link, Carrier::BlackHole);
        if link != FIRST_LINK {
            return;
        }
        let in_use = |status: &PeerStatus| Some(status.paths.first()?.id);
        self.swallowed = Some(Swallowed {
            link: Some(LinkId(1)),
            at_client: status(road, CLIENT_HOST).as_ref().and_then(in_use),
            at_gateway: status(road, GATEWAY).as_ref().and_then(in_use),
            ..Swallowed::default()
        });
    }

    /// Whether there is something to be noticed.
    pub(super) fn is_watching(&self) -> bool {
        let unseen = |one: &Swallowed| one.told_ns.is_none() || one.noticed_ns.is_none();
        self.swallowed.as_ref().is_some_and(unseen) || self.freed == Some(None)
    }

    /// Looks whether somebody has noticed.
    pub(super) fn look(&mut self, road: &Tunnelled) {
        if self.freed == Some(None) && transport(road) == Some(ByWhat::Udp) {
            self.freed = Some(Some(road.now_ns()));
        }
        let Some(swallowed) = &mut self.swallowed else { return };
        let (now_ns, now) = (road.now_ns(), road.world.hosts[CLIENT_HOST].clock(road.now_ns()));
        let (client, gateway) = (status(road, CLIENT_HOST), status(road, GATEWAY));
        let turned = |status: &Option<PeerStatus>, was: Option<u32>| {
            let first = status.as_ref().and_then(|status| status.paths.first());
            first.is_some_and(|path| Some(path.id) != was || path.health != Health::Good)
        };
        if turned(&client, swallowed.at_client) || turned(&gateway, swallowed.at_gateway) {
            swallowed.noticed_ns.get_or_insert(now_ns);
        }
        let path = client.as_ref().and_then(|status| status.paths.first());
        let carries = path.is_some_and(|path| {
            let owed = path.unanswered_since.map(|since| now.saturating_since(since));
            let answered = owed.is_none_or(|owed| owed < OWED_MAX);
            path.in_use && path.health == Health::Good && answered && path.link == swallowed.link
        });
        if !carries {
            swallowed.told_ns.get_or_insert(now_ns);
        }
    }

    /// What was seen before is nobody's business any more.
    pub(super) fn forget(&mut self) {
        self.stop_watching();
        self.seen.clear();
        self.seen_free.clear();
    }

    fn stop_watching(&mut self) {
        let seen = self.swallowed.take().map(|one| (one.noticed_ns, one.told_ns));
        self.seen.extend(seen);
        self.seen_free.extend(self.freed.take());
    }

    /// Writes what was noticed to the moments that it belongs to.
    pub(super) fn tell(&mut self, moments: &mut [Moment]) {
        self.stop_watching();
        let swallowed = moments.iter_mut().filter(|moment| moment.act == Act::Swallow(FIRST_LINK));
        for (moment, (noticed_ns, told_ns)) in swallowed.zip(self.seen.drain(..)) {
            (moment.noticed_ns, moment.told_ns) = (noticed_ns, told_ns);
        }
        let freed = moments.iter_mut().filter(|moment| moment.act == Act::Unblock);
        for (moment, told_ns) in freed.zip(self.seen_free.drain(..)) {
            moment.told_ns = told_ns;
        }
    }
}

/// Whether the story can begin.
fn all_carry(road: &Tunnelled) -> Result<(), Breach> {
    let world = &road.world;
    let carries = |&client: &usize| {
        let status =
            world.hosts[HostId::Client(client)].node().status(world.gateways.serving(client).key);
        status.is_some_and(|status| status.state == PeerState::Up)
    };
    let down = (0..world.clients.len()).find(|client| !carries(client));
    down.map_or(Ok(()), |client| {
        let what = format!("before the story begins\n{}", world.portrait(client));
        Err(Breach::new(Law::AlwaysBack, what))
    })
}

/// What the first client says that its data goes by.
pub(super) fn transport(road: &Tunnelled) -> Option<ByWhat> {
    let path = status(road, CLIENT_HOST)?.paths.into_iter().find(|path| path.in_use)?;
    let socket = path.route.socket;
    let tls = road.world.streams.has_tls(CLIENT_HOST, socket);
    match (socket.transport(), tls) {
        (Transport::Udp, _) => Some(ByWhat::Udp),
        (Transport::Stream, tls) => tls.map(|tls| if tls { ByWhat::Tls } else { ByWhat::Tcp }),
    }
}

/// What came to an end of the tunnel by each path, and what it said of that.
pub(super) fn reported(road: &Tunnelled, at: Receiver) -> Vec<Reported> {
    let host = match at {
        Receiver::Client => CLIENT_HOST,
        Receiver::Server => GATEWAY,
    };
    let paths = status(road, host).map(|session| session.paths).unwrap_or_default();
    let now = road.world.hosts[host].clock(road.world.now_ns);
    let of = |path: PathStatus| Reported {
        path: path.id.into(),
        came_bytes: path.rx_bytes,
        left_bytes: path.tx_bytes,
        left_datagrams: path.tx_datagrams,
        left_again: path.retransmitted,
        feedback_bytes: path.reports.bytes + path.reports.datagrams * HEADERS,
        fallback_ns: path.fallback.map(|(_, since)| now.saturating_since(since).as_nanos() as u64),
    };
    paths.into_iter().map(of).collect()
}

/// How often the gateway has compressed a packet for its clients.
pub(super) fn compressions(road: &Tunnelled) -> u64 {
    status(road, GATEWAY).map_or(0, |session| session.compressions)
}

const fn filter(blockade: Blockade) -> Filter {
    match blockade {
        Blockade::NoUdp => Filter::NoUdp,
        Blockade::Only443 => Filter::Port(HTTPS),
        Blockade::OnlyTls => Filter::TlsPort(HTTPS),
        Blockade::OnlyProxy => Filter::End(LISTENS),
    }
}

/// What a host's node says of the session.
fn status(road: &Tunnelled, host: HostId) -> Option<PeerStatus> {
    road.world.statuses(host).into_iter().next().map(|(_, status)| status)
}

/// The gateway has new addresses beside those that it had, and tells every client.
fn announce_gateway(road: &mut Tunnelled) -> Result<(), Breach> {
    let (old, new) = (gateway_ips(road), road.world.gateways.of_mut(GATEWAY).next_addresses());
    place_gateway(road, &[&new[..], &old].concat(), &new)
}

fn gateway_ips(road: &Tunnelled) -> Vec<IpAddr> {
    let card = road.world.hosts[GATEWAY].cards[0].as_ref();
    card.map_or_else(Vec::new, |card| card.addresses.clone())
}

/// The gateway has all these addresses, and tells every client to reach it at some of them.
fn place_gateway(road: &mut Tunnelled, all: &[IpAddr], told: &[IpAddr]) -> Result<(), Breach> {
    let world = &mut road.world;
    let Some(card) = world.hosts[GATEWAY].cards[0].as_mut() else { return Ok(()) };
    card.addresses = all.to_vec();
    let remotes: Vec<_> = told.iter().map(|&ip| SocketAddr::new(ip, PORT)).collect();
    let clients = world.gateways.of(GATEWAY).clients.clone();
    clients.into_iter().for_each(|client| world.trust(client, &remotes));
    world.command(GATEWAY, Command::SetLocals(all.to_vec()))?;
    world.command(GATEWAY, Command::Announce(remotes))
}
