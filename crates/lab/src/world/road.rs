//! Two ways between a client and a server for the stories that are told in virtual time: through
//! the tunnel of a [`World`] whose laws stay on, and over the bare link beside it.

use super::ciphers::Ciphers;
use super::connections::{Connection, Connections, Leaving, Number, Side};
use super::crowd::Crowd;
use super::engine::World;
use super::host::Holding;
use super::host_id::{CLIENT, CLIENT_HOST, GATEWAY};
use super::inner::{Body, SERVER, header, server};
use super::laws::Breach;
use super::op::{ACCESSES, CARDS, Way};
use super::streams::Known;
use super::traffic::{Arrival, Passed};
use super::watch::Watch;
use crate::emu::{End, Internet, IpPacket, LinkConfig, LinkId, MS, NodeId, SECOND, earliest};
use crate::ground::{self, Call, Compress, Terrain};
use rove_proto::ablation::{Ablation, Heuristic};
use rove_proto::codec::SavingConfig;
use rove_proto::codec::allowed::{Allowed, Rule};
use rove_proto::codec::coding::Coding;
use rove_proto::codec::entries::Decides;
use rove_proto::flow::Hold;
use rove_proto::flow::live::Early;
use rove_proto::flow::priority::{Level, Priorities};
use rove_proto::flow::rules::Assist;
use rove_proto::multipath::scheduler::Scheduler;
use rove_proto::multipath::{Manager, Mode, Spread};
use rove_proto::node::Command;
use rove_proto::wire::{self, control::Prefix};

/// Where the client begins: behind a NAT box.
pub(super) const HOME: usize = 0;

/// What each end of the tunnel may keep of open connections, in bytes: as much as a Rove where
/// nobody says anything.
const HOLD_MEMORY: usize = 64 << 20;
/// The number at the end of a packet on the bare link, and the shortest packet with one.
const NUMBER_BYTES: usize = 4;
/// See [`NUMBER_BYTES`].
const LEN_MIN: u16 = super::inner::LEN_MIN + NUMBER_BYTES as u16;
/// Time between the first words of two clients of a story.
const APART_NS: u64 = 10 * MS;

/// A way by which packets go.
pub(super) trait Road {
    /// The longest packet in bytes, IP header included.
    const PACKET_MAX: u16;

    /// The time.
    fn now_ns(&self) -> u64;

    /// When something happens next by itself.
    fn next_ns(&self) -> Option<u64>;

    /// Lets time pass until `until_ns`.
    fn pass(&mut self, until_ns: u64) -> Result<(), Breach>;

    /// Sends a packet; its number comes back with its arrival.
    fn send(&mut self, way: Way, len: u16) -> Result<u32, Breach>;

    /// What has arrived since the last call.
    fn arrivals(&mut self) -> Vec<Arrival>;

    /// The TCP connections over it.
    fn connections(&mut self) -> &mut Connections;
}

/// Through the tunnel.
#[derive(Debug)]
pub(super) struct Tunnelled {
    pub(super) world: World,
}

impl Tunnelled {
    /// Sessions that carry, of so many clients with such links and such a mode, and hold open
    /// connections so; kept for `timeout_s` seconds without a word.
    pub(super) fn new(
        seed: u64,
        terrain: &Terrain,
        hold: Hold,
        timeout_s: u64,
    ) -> Result<Self, Breach> {
        let Terrain { ref link, ref beside, clients, .. } = *terrain;
        let crowd = Crowd {
            gateways: 1,
            clients,
            apart_ns: APART_NS,
            streams: Known::Direct,
            holding: Holding {
                hold,
                memory: HOLD_MEMORY,
                timeout_s,
                assist: match terrain.assist {
                    ground::Assist::Off => Assist::Off,
                    ground::Assist::On => Assist::On,
                },
                couples: terrain.couples,
                competes: terrain.competes,
                reorders: terrain.reorders,
                judges_offload: terrain.judges_offload,
                elides: terrain.elides,
                compresses: false,
                ciphers: Ciphers::USUAL,
                ablation: ablation(terrain),
            },
            beside: beside.len(),
            mode: match terrain.mode {
                ground::Mode::Single => Mode::Single,
                ground::Mode::Backup => Mode::Backup,
                ground::Mode::Full => Mode::Full,
            },
            scheduler: Scheduler::named(terrain.scheduler).unwrap_or_default(),
            spread: Spread {
                manager: if terrain.spread.mesh { Manager::FullMesh } else { Manager::OnePerLink },
                subflows: terrain.spread.subflows,
            },
        };
        let mut world = World::gathering(crowd, seed, Watch::default())?;
        world.attacker.go_away();
        world.arrivals = Some(Vec::new());
        let mut road = Self { world };
        road.set_link(link);
        for client in 0..clients {
            road.world.plug(client, 0, Some(HOME))?;
        }
        for (number, link) in beside.iter().enumerate() {
            let (card, access) = (usize::from(CARDS) + number, usize::from(ACCESSES) + number);
            road.set_network(CLIENT, access, link);
            road.world.plug(CLIENT, card, Some(access))?;
        }
        if terrain.early {
            let network = Prefix::host(SERVER.into());
            let end = wire::control::End { network, port: Some(Call::ECHO_PORT) };
            road.world.command(CLIENT_HOST, Command::SetEarly(Early::new(&[end])))?;
        }
        if !terrain.levels.is_empty() {
            let level = |&(number, level): &(u8, u8)| {
                let network = Prefix::host(server(number).into());
                Some((wire::control::End { network, port: None }, Level::numbered(level)?))
            };
            let levels: Vec<_> = terrain.levels.iter().filter_map(level).collect();
            let priorities = Command::SetPriorities(Priorities::new(&levels));
            road.world.command(CLIENT_HOST, priorities)?;
        }
        let saving = saving(terrain);
        if saving != SavingConfig::default() {
            for host in [GATEWAY, CLIENT_HOST] {
                road.world.command(host, Command::SetSaving(saving.clone()))?;
            }
        }
        road.world.advance(2 * SECOND)?;
        Ok(road)
    }

    /// Makes the clients' usual networks like `link`.
    pub(super) fn set_link(&mut self, link: &LinkConfig) {
        let accesses = 0..usize::from(ACCESSES);
        let all =
            (0..self.world.clients.len()).flat_map(|one| accesses.clone().map(move |a| (one, a)));
        all.for_each(|(client, access)| self.set_network(client, access, link));
    }

    fn set_network(&mut self, client: usize, access: usize, link: &LinkConfig) {
        let id = self.world.place.access(client, access).link;
        for (end, pipe) in [(End::A, &link.up), (End::B, &link.down)] {
            self.world.place.net.set_config(self.world.now_ns, id, end, pipe.clone());
        }
    }

    /// From now on listens to what passes the client's cards, and to what leaves the gateway.
    pub(super) fn eavesdrop(&mut self) {
        self.world.overheard = Some(Vec::new());
    }

    /// What was heard since, and listens no more.
    pub(super) fn overheard(&mut self) -> Vec<Passed> {
        self.world.overheard.take().unwrap_or_default()
    }

    /// What both ends of the tunnel keep of open connections, in bytes.
    pub(super) fn held_bytes(&self) -> u64 {
        let hosts = [GATEWAY, CLIENT_HOST];
        hosts.iter().map(|&host| self.world.hosts[host].node().held_bytes() as u64).sum()
    }

    /// Bytes that were heard over these connections.
    pub(super) fn heard(&self, numbers: &[Number]) -> u64 {
        let connections = &self.world.connections;
        let all = numbers.iter().filter_map(|number| connections.get(*number));
        all.flat_map(Connection::heard).map(|heard| heard.bytes()).sum()
    }
}

impl Road for Tunnelled {
    const PACKET_MAX: u16 = super::inner::LEN_MAX;

    fn now_ns(&self) -> u64 {
        self.world.now_ns
    }

    fn next_ns(&self) -> Option<u64> {
        self.world.next_ns()
    }

    fn pass(&mut self, until_ns: u64) -> Result<(), Breach> {
        self.world.advance(until_ns.saturating_sub(self.world.now_ns))
    }

    fn send(&mut self, way: Way, len: u16) -> Result<u32, Breach> {
        Ok(self.world.send_now(CLIENT, way, Body::Data(len))?.unwrap_or(0))
    }

    fn arrivals(&mut self) -> Vec<Arrival> {
        self.world.arrivals.as_mut().map(std::mem::take).unwrap_or_default()
    }

    fn connections(&mut self) -> &mut Connections {
        &mut self.world.connections
    }
}

/// Over the bare link.
#[derive(Debug)]
pub(super) struct Bare {
    net: Internet<IpPacket>,
    client: NodeId,
    server: NodeId,
    link: LinkId,
    now_ns: u64,
    sent: u32,
    arrivals: Vec<Arrival>,
    connections: Connections,
}

impl Bare {
    /// A link like this between client and server.
    pub(super) fn new(seed: u64, link: &LinkConfig) -> Self {
        let mut net = Internet::new(seed);
        let (client, server) = (net.host(), net.host());
        let link = net.connect(client, server, link.clone());
        let (arrivals, connections) = (Vec::new(), Connections::new(seed));
        Self { net, client, server, link, now_ns: 0, sent: 0, arrivals, connections }
    }

    /// Everything that is due at this moment.
    fn step(&mut self) -> Result<(), Breach> {
        while let Some(delivery) = self.net.poll_delivery(self.now_ns) {
            let at = (delivery.host == self.client).then_some(CLIENT);
            let packet = delivery.frame;
            if let Some((number, side)) = self.connections.whose(at, &packet) {
                self.connections.arrives(self.now_ns, number, side, packet);
            } else if let Some(id) = packet.bytes().last_chunk() {
                let id = u32::from_be_bytes(*id);
                self.arrivals.push(Arrival { at_ns: delivery.at_ns, id });
            }
        }
        for Leaving { side, packet, .. } in self.connections.leaving(self.now_ns)? {
            let host = if side == Side::Client { self.client } else { self.server };
            self.net.push(self.now_ns, host, self.link, IpPacket::new(packet));
        }
        Ok(())
    }
}

impl Road for Bare {
    const PACKET_MAX: u16 = 1_500;

    fn now_ns(&self) -> u64 {
        self.now_ns
    }

    fn next_ns(&self) -> Option<u64> {
        earliest([self.net.poll_timeout(), self.connections.next_ns()])
    }

    fn pass(&mut self, until_ns: u64) -> Result<(), Breach> {
        while let Some(next_ns) = self.next_ns().filter(|&next_ns| next_ns <= until_ns) {
            self.now_ns = self.now_ns.max(next_ns);
            self.step()?;
        }
        self.now_ns = self.now_ns.max(until_ns);
        Ok(())
    }

    fn send(&mut self, way: Way, len: u16) -> Result<u32, Breach> {
        self.sent += 1;
        let from = if way == Way::Up { self.client } else { self.server };
        let mut packet = header(usize::from(len.max(LEN_MIN)), CLIENT, way);
        packet.truncate(packet.len() - NUMBER_BYTES);
        packet.extend(self.sent.to_be_bytes());
        self.net.push(self.now_ns, from, self.link, IpPacket::new(packet));
        Ok(self.sent)
    }

    fn arrivals(&mut self) -> Vec<Arrival> {
        std::mem::take(&mut self.arrivals)
    }

    fn connections(&mut self) -> &mut Connections {
        &mut self.connections
    }
}

/// How both ends of the tunnel save bytes.
fn saving(terrain: &Terrain) -> SavingConfig {
    let network = Prefix::host(SERVER.into());
    let rule = Rule { end: wire::control::End { network, port: None }, coding: Coding::ZSTD };
    let (rules, decides) = match terrain.compress {
        Compress::Off => (vec![], Decides::PerFlow),
        Compress::PerFlow => (vec![rule], Decides::PerFlow),
        Compress::Together => (vec![rule], Decides::Together),
        Compress::All => (vec![rule], Decides::Never),
    };
    let (aggregates, compress) = (terrain.aggregates, Allowed::new(&rules));
    SavingConfig { aggregates, compress, decides, ..SavingConfig::default() }
}

/// What both ends of the tunnel go without.
fn ablation(terrain: &Terrain) -> Ablation {
    let without = terrain.without.and_then(Heuristic::named);
    let ablation = without.and_then(|one| Ablation::NONE.without(one)).unwrap_or_default();
    terrain.asks.map_or(ablation, |note| ablation.noting(note))
}
