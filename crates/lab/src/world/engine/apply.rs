//! What each operation does to the world.

use std::net::{IpAddr, SocketAddr};

use rove_proto::crypto::Token;
use rove_proto::id::PeerKey;
use rove_proto::node::{Command, Link, PeerConfig, SideConfig};
use rove_proto::role::Access;
use rove_proto::wire::control::{Lease, Prefix};
use rove_proto::wire::restart::RESTART_NOTICE_LEN;

use super::World;
use super::rest::Rest;
use crate::emu::{MS, Rng, SECOND};
use crate::ground::Version;
use crate::world::agenda::Task;
use crate::world::attacker::{Attacker, Session};
use crate::world::gateway::Gateway;
use crate::world::host::{Card, PORT, Power};
use crate::world::host_id::HostId;
use crate::world::inner::{self, Body, LEN_MAX, LEN_MIN};
use crate::world::laws::Breach;
use crate::world::op::{ACCESSES, Attack, CARDS, Disturbs, Found, Machine, Network, Op, Way, Whom};
use crate::world::store::ClientStore;
use crate::world::talk::SERVERS;

/// When a gateway that began anew calls back who has not come yet.
const RECALLS_NS: [u64; 3] = [10 * MS, SECOND, 8 * SECOND];

impl World {
    /// Does what `op` says.
    pub(in crate::world) fn apply(&mut self, op: &Op) -> Result<(), Breach> {
        self.learn_of_streams(op.streams_known())?;
        self.note_trouble(op.disturbs());
        match *op {
            Op::Send { client, way, packets, len, gap_us } => {
                self.send(self.client(client), way, packets, len, gap_us);
            }
            Op::Syn { client, way, mss } => {
                let client = self.client(client);
                self.schedule(0, Task::Send { client, way, body: Body::Syn(mss) });
            }
            Op::Connect { client, talk } => self.connect(self.client(client), talk),
            Op::SetMode { client, mode } => {
                let host = HostId::Client(self.client(client));
                self.hosts[host].set_mode(mode);
                return self.command(host, Command::SetMode(mode));
            }
            Op::SetScheduler { client, scheduler } => {
                let host = HostId::Client(self.client(client));
                self.hosts[host].set_scheduler(scheduler);
                return self.command(host, Command::SetScheduler(scheduler));
            }
            Op::SetRecovery { client, recovery } => {
                let host = HostId::Client(self.client(client));
                self.hosts[host].set_recovery(recovery);
                return self.command(host, Command::SetRecovery(recovery));
            }
            Op::SetSpread { client, spread } => {
                let host = HostId::Client(self.client(client));
                self.hosts[host].set_spread(spread);
                return self.command(host, Command::SetSpread(spread));
            }
            Op::StandBy { client, card, stands_by } => {
                let client = self.client(client);
                self.hosts[HostId::Client(client)]
                    .set_standing_by(usize::from(card % CARDS), stands_by);
                return self.tell_links(client);
            }
            Op::SetAssist { host, assist } => {
                let host = self.hosts.at(host.into());
                let rules = self.hosts[host].set_assist(assist);
                return self.command(host, Command::SetHold(rules));
            }
            Op::SetPriority { client, server, level } => {
                let host = HostId::Client(self.client(client));
                self.hosts[host].set_priority(server % SERVERS, level);
                return self.tell_wishes(host);
            }
            Op::SetEarly { client, server, early } => {
                let host = HostId::Client(self.client(client));
                self.hosts[host].set_early(server % SERVERS, early);
                return self.tell_wishes(host);
            }
            Op::Wait { ms } => return self.wait(u64::from(ms) * MS),
            Op::Network(ref change) => return self.change_network(change),
            Op::Machine(ref change) => return self.change_machine(change),
            Op::Attack(Attack::Cut { client }) => self.cut_streams(self.client(client))?,
            Op::Attack(ref attack) => self.attack(attack),
            Op::Revoke { client } => return self.revoke(self.client(client)),
            Op::Readmit { client } => return self.readmit(self.client(client)),
            Op::Enrol { client } => {
                let client = self.client(client);
                self.enrol_stranger(self.gateways.serving(client).host, client);
            }
            Op::Overreach { client, what } => {
                let (client, body) = (self.client(client), Body::Forbidden(what));
                self.schedule(0, Task::Send { client, way: Way::Up, body });
            }
            Op::Settle { quiet } => return Rest::of(self).settle(quiet),
        }
        self.advance(0)
    }

    /// From now on the clients' sessions may be down.
    fn note_trouble(&mut self, disturbs: Disturbs) {
        let now_ns = self.now_ns;
        let clients = match disturbs {
            Disturbs::Nobody => Vec::new(),
            Disturbs::Client(number) => vec![self.client(number)],
            Disturbs::Gateway(number) => self.gateways.at(number).clients.clone(),
            Disturbs::Everybody => (0..self.clients.len()).collect(),
        };
        for client in clients {
            self.clients[client].troubled_ns.get_or_insert(now_ns);
        }
    }

    fn client(&self, number: u8) -> usize {
        usize::from(number) % self.clients.len()
    }

    fn send(&mut self, client: usize, way: Way, packets: u16, len: u16, gap_us: u32) {
        for packet in 0..u64::from(packets) {
            let len = match len {
                0 => {
                    let mut rng = Rng::new(self.delivery.totals().0.into()).fork(packet);
                    LEN_MIN + rng.below(u64::from(LEN_MAX - LEN_MIN) + 1) as u16
                }
                len => len,
            };
            let after_ns = packet * u64::from(gap_us) * 1_000;
            self.schedule(after_ns, Task::Send { client, way, body: Body::Data(len) });
        }
    }

    fn change_network(&mut self, change: &Network) -> Result<(), Breach> {
        match *change {
            Network::Quality { client, access, quality } => {
                let client = self.client(client);
                self.place.set_quality(self.now_ns, client, access.into(), quality);
            }
            Network::Carrier { client, access, carrier } => {
                let client = self.client(client);
                self.place.set_carrier(self.now_ns, client, access.into(), carrier);
                return self.tell_links(client);
            }
            Network::OneWay { client, access, way } => {
                let client = self.client(client);
                self.place.kill_way(self.now_ns, client, access.into(), way);
            }
            Network::Mtu { client, access, mtu } => {
                let client = self.client(client);
                self.place.access_mut(client, access.into()).mtu = mtu.into();
            }
            Network::Filter { client, access, filter } => {
                let client = self.client(client);
                for number in 0..usize::from(ACCESSES) {
                    if access.is_none_or(|only| usize::from(only % ACCESSES) == number) {
                        self.place.set_filter(client, number, filter);
                    }
                }
            }
            Network::Readdress { client, card } => {
                let (client, card) = (self.client(client), usize::from(card % CARDS));
                let here =
                    self.hosts[HostId::Client(client)].cards[card].as_ref().map(|card| card.access);
                if let Some(access) = here {
                    return self.plug(client, card, Some(access));
                }
            }
            Network::Plug { client, card, access } => {
                let (client, card) = (self.client(client), usize::from(card % CARDS));
                return self.plug(client, card, access.map(usize::from));
            }
            Network::Depart { client, card, ahead_ms } => {
                let (client, card) = (self.client(client), usize::from(card % CARDS));
                self.schedule(u64::from(ahead_ms) * MS, Task::Unplug { client, card });
                return self.rank(client, usize::from(CARDS) - 1 - card);
            }
            Network::MoveGateway { gateway, told_after_ms, ahead_ms } => {
                let gateway = self.gateways.at(gateway).host;
                self.move_gateway(gateway, ahead_ms)?;
                self.schedule(u64::from(told_after_ms) * MS, Task::Rename { gateway });
            }
            Network::RebindNat { client, access } => {
                let client = self.client(client);
                if let Some(nat) = self.place.access(client, access.into()).nat {
                    self.place.net.rebind_nat(nat);
                }
            }
            Network::RebootNat { client, access, readdress } => {
                let client = self.client(client);
                self.place.reboot_nat(client, access.into(), readdress);
            }
        }
        self.advance(0)
    }

    fn change_machine(&mut self, change: &Machine) -> Result<(), Breach> {
        match *change {
            Machine::Sleep { client, seconds } => {
                let host = HostId::Client(self.client(client));
                if self.hosts[host].power == Power::On {
                    self.fall_asleep(host);
                    let after_ns = u64::from(seconds) * SECOND;
                    self.schedule(after_ns, Task::PowerOn { host, reboot: false });
                    return self.advance(after_ns);
                }
            }
            Machine::RestartClient { client, found, reboot, down_ms } => {
                let client = self.client(client);
                if found == Found::Backup {
                    self.clients[client].store = self.clients[client].backup.clone();
                    self.clients[client].handshakes.forget_counter();
                }
                self.hosts[HostId::Client(client)].stop();
                let after_ns = u64::from(down_ms) * MS;
                let host = HostId::Client(client);
                self.schedule(after_ns, Task::PowerOn { host, reboot });
            }
            Machine::RestartGateway { gateway, reboot, down_ms } => {
                let host = self.gateways.at(gateway).host;
                self.hosts[host].stop();
                let after_ns = u64::from(down_ms) * MS;
                self.schedule(after_ns, Task::PowerOn { host, reboot });
            }
            Machine::Backup { client } => {
                let client = self.client(client);
                self.clients[client].backup = self.clients[client].store.clone();
            }
            Machine::Late { host, by_us } => {
                let host = self.hosts.at(host.into());
                self.hosts[host].late_ns = u64::from(by_us) * 1_000;
            }
            Machine::StepClock { gateway, by_s } => {
                let host = self.gateways.at(gateway).host;
                self.gateways.of_mut(host).wall_error_s = by_s;
            }
        }
        self.advance(0)
    }

    fn attack(&mut self, attack: &Attack) {
        let sent = match *attack {
            Attack::Intercept { client, way, how, datagrams } => {
                let host = HostId::Client(self.client(client));
                self.attacker.intercept(host, way, how, datagrams);
                Vec::new()
            }
            Attack::Replay { count, own_address, altered, chance } => {
                self.attacker.replay(self.now_ns, count, own_address, altered, chance)
            }
            Attack::Garbage { to, count, chance } => {
                let (gateway, client) = match to {
                    Whom::Gateway(number) => (self.gateways.at(number).host, None),
                    Whom::Client(number) => {
                        let client = self.client(number);
                        (self.gateways.serving(client).host, self.outside(client))
                    }
                };
                let to = client.or_else(|| self.gateway_addresses(gateway).first().copied());
                to.map_or_else(Vec::new, |to| self.attacker.garbage(to, count, chance))
            }
            Attack::Reflect { client } => match self.outside(self.client(client)) {
                Some(client) => self.attacker.reflect(self.now_ns, client),
                None => Vec::new(),
            },
            Attack::Cut { .. } => Vec::new(), // nothing is sent
            Attack::Flood { gateway, messages, chance } => {
                let Gateway { host, number, key, .. } = *self.gateways.at(gateway);
                let to = self.gateway_addresses(host).first().copied();
                to.map_or_else(Vec::new, |to| Attacker::flood((number, key), to, messages, chance))
            }
            Attack::Cross { client, count, chance } => {
                let client = self.client(client);
                if let Some(other) = self.gateways.not_serving(client) {
                    self.enrol_stranger(other, client);
                }
                let seen = |client: usize| {
                    let Gateway { host, number, .. } = *self.gateways.serving(client);
                    let at = *self.gateway_addresses(host).first()?;
                    Some(Session { gateway: number, at, client: self.outside(client) })
                };
                let sessions: Vec<_> = (0..self.clients.len()).filter_map(seen).collect();
                self.attacker.cross(&sessions, count, chance)
            }
        };
        for datagram in sent {
            self.inject(datagram);
        }
    }

    /// Where its gateway reaches a client, as everybody on the wire can see.
    fn outside(&self, client: usize) -> Option<SocketAddr> {
        let gateway = self.gateways.serving(client).host;
        let status = self.hosts[gateway].node().status(self.clients[client].key)?;
        status.paths.first().map(|path| path.remote())
    }

    /// Plugs a card in or out; a network gives new addresses each time.
    pub(in crate::world) fn plug(
        &mut self,
        client: usize,
        card: usize,
        access: Option<usize>,
    ) -> Result<(), Breach> {
        let plugged = access.map(|access| {
            let addresses = self.place.next_addresses(client, access);
            let link = self.place.access(client, access).link;
            Card { link, access, addresses }
        });
        // A machine has one card in one network: the other one leaves it.
        let cards = &mut self.hosts[HostId::Client(client)].cards;
        for other in cards.iter_mut() {
            if other.as_ref().is_some_and(|other| Some(other.access) == access) {
                *other = None;
            }
        }
        cards[card] = plugged;
        self.tell_links(client)
    }

    /// Tells a client's node what links there are.
    pub(in crate::world) fn tell_links(&mut self, client: usize) -> Result<(), Breach> {
        let usable = |access| self.place.access(client, access).carrier;
        let links = self.hosts[HostId::Client(client)].links(usable);
        self.ask_by_new_links(client);
        self.command(HostId::Client(client), Command::SetLinks(links))
    }

    /// From now on the link of `card` comes first.
    pub(in crate::world) fn rank(&mut self, client: usize, card: usize) -> Result<(), Breach> {
        self.hosts[HostId::Client(client)].first_card = card;
        self.tell_links(client)
    }

    /// Hands a client's node its priorities, and the flows that want low latency.
    pub(in crate::world) fn tell_wishes(&mut self, host: HostId) -> Result<(), Breach> {
        let (priorities, early) = (self.hosts[host].priorities(), self.hosts[host].early());
        self.command(host, Command::SetPriorities(priorities))?;
        self.command(host, Command::SetEarly(early))
    }

    /// The same with one of its cards behind the others, for when none of those carries: its routes
    /// have gone, it still carries.
    pub(in crate::world) fn tell_links_last(
        &mut self,
        client: usize,
        card: u32,
    ) -> Result<(), Breach> {
        let usable = |access| self.place.access(client, access).carrier;
        let mut links = self.hosts[HostId::Client(client)].links(usable);
        let goes = |link: &Link| link.id.0 == card + 1;
        links.sort_by_key(goes);
        links.iter_mut().filter(|link| goes(link)).for_each(|link| link.stands_by = true);
        self.command(HostId::Client(client), Command::SetLinks(links))
    }

    /// A gateway gets other addresses, and keeps the old ones for a while if it announces them.
    pub(in crate::world) fn move_gateway(
        &mut self,
        gateway: HostId,
        ahead_ms: u32,
    ) -> Result<(), Breach> {
        let old: Vec<IpAddr> = self.gateway_addresses(gateway).iter().map(SocketAddr::ip).collect();
        let new = self.gateways.of_mut(gateway).next_addresses();
        if ahead_ms == 0 {
            self.readdress_gateway(gateway, new.clone())?;
            // Who has announced once must go on: the last word counts.
            let announces = self.gateways.of(gateway).announces;
            return if announces { self.announce_gateway(gateway, &new) } else { Ok(()) };
        }
        let kept = new.clone();
        self.schedule(u64::from(ahead_ms) * MS, Task::Retire { gateway, kept });
        self.readdress_gateway(gateway, new.iter().chain(&old).copied().collect())?;
        self.announce_gateway(gateway, &new)
    }

    /// The addresses of a gateway that it announced are the only ones from now on, unless it has
    /// moved again meanwhile.
    pub(in crate::world) fn retire(
        &mut self,
        gateway: HostId,
        kept: &[IpAddr],
    ) -> Result<(), Breach> {
        let now: Vec<IpAddr> = self.gateway_addresses(gateway).iter().map(SocketAddr::ip).collect();
        if !now.starts_with(kept) {
            return Ok(());
        }
        self.readdress_gateway(gateway, kept.to_vec())?;
        self.announce_gateway(gateway, kept)
    }

    fn readdress_gateway(&mut self, gateway: HostId, addresses: Vec<IpAddr>) -> Result<(), Breach> {
        let link = self.gateways.of(gateway).link;
        let card = Card { link, access: 0, addresses: addresses.clone() };
        self.hosts[gateway].cards[0] = Some(card);
        self.command(gateway, Command::SetLocals(addresses))
    }

    /// A gateway says on every session where it is reached.
    pub(in crate::world) fn announce_gateway(
        &mut self,
        gateway: HostId,
        at: &[IpAddr],
    ) -> Result<(), Breach> {
        let entry = self.gateways.of_mut(gateway);
        entry.announces = true;
        let addresses: Vec<_> = at.iter().map(|&ip| SocketAddr::new(ip, PORT)).collect();
        for client in entry.clients.clone() {
            self.trust(client, &addresses);
        }
        self.command(gateway, Command::Announce(addresses))
    }

    /// Where a gateway listens now.
    pub(in crate::world) fn gateway_addresses(&self, gateway: HostId) -> Vec<SocketAddr> {
        let card = self.hosts[gateway].cards[0].iter();
        card.flat_map(|card| &card.addresses).map(|&ip| SocketAddr::new(ip, PORT)).collect()
    }

    /// Time passes, hour by hour: what happens in one is bounded.
    fn wait(&mut self, length_ns: u64) -> Result<(), Breach> {
        let hour_ns = 3_600 * SECOND;
        for _ in 0..length_ns / hour_ns {
            self.advance(hour_ns)?;
        }
        self.advance(length_ns % hour_ns)
    }

    /// A machine wakes up, or its process starts with what its store holds.
    pub(in crate::world) fn power_on(&mut self, host: HostId, reboot: bool) -> Result<(), Breach> {
        match self.hosts[host].power {
            Power::On => return Ok(()),
            Power::Asleep => {
                self.wake_up(host);
                self.rearm(host);
                self.wake_streams(host);
            }
            Power::Off => {
                self.begin_process(host, reboot);
                self.load_store(host)?;
                self.inherit_owed(host)?;
                if host.is_gateway() {
                    self.knows_everybody(host)?;
                    for &peer in self.gateways.of(host).store.journal.clone().keys() {
                        for after_ns in RECALLS_NS {
                            self.schedule(after_ns, Task::Recall { gateway: host, peer });
                        }
                    }
                }
            }
        }
        let Some(client) = host.client() else {
            let locals: Vec<_> = self.gateway_addresses(host).iter().map(SocketAddr::ip).collect();
            self.command(host, Command::SetLocals(locals.clone()))?;
            let announces = self.gateways.of(host).announces;
            return if announces { self.announce_gateway(host, &locals) } else { Ok(()) };
        };
        self.tell_links(client)
    }

    /// A gateway calls a client back by the way that its predecessor wrote down, unless it is there
    /// again.
    pub(in crate::world) fn recall(
        &mut self,
        gateway: HostId,
        peer: PeerKey,
    ) -> Result<(), Breach> {
        let store = &self.gateways.of(gateway).store;
        let status = self.hosts[gateway].node().status(peer);
        let waits = status.is_some_and(|status| status.established.is_none());
        let written = store.journal.get(&peer).copied();
        match written.filter(|_| waits && store.is_enrolled(peer)) {
            Some((route, index)) => {
                self.amplification.recalls(gateway, route.remote, RESTART_NOTICE_LEN);
                self.command(gateway, Command::Recall { route, index })
            }
            None => Ok(()),
        }
    }

    fn load_store(&mut self, host: HostId) -> Result<(), Breach> {
        let Some(client) = host.client() else {
            let store = &self.gateways.of(host).store;
            let (revoked, enrolled) =
                (store.revoked().collect::<Vec<_>>(), store.enrolled().collect::<Vec<_>>());
            for peer in revoked {
                self.command(host, Command::RevokePeer(peer))?;
            }
            for (peer, client) in enrolled {
                self.command(host, Command::AddPeer(Box::new(peer_config(peer, client))))?;
            }
            return Ok(());
        };
        self.begin_directory(client);
        let remotes = self.first_remotes(client);
        let peer = self.gateways.serving(client).key;
        let ClientStore { counter, ref token } = self.clients[client].store;
        let (token, advertise) = (token.clone(), vec![]);
        let side = SideConfig::Gateway { remotes, counter, token, advertise };
        let access = Access::Unrestricted;
        let config = PeerConfig { key: peer, psk: None, access, side };
        let wanted = self.clients[client].wanted;
        self.tell_wishes(host)?;
        self.command(host, Command::AddPeer(Box::new(config)))?;
        self.tell_streams(client)?;
        self.tell_links(client)?;
        if wanted { self.command(host, Command::Connect(peer)) } else { Ok(()) }
    }

    /// A gateway's desk answers a request to enrol.
    pub(in crate::world) fn decide(
        &mut self,
        gateway: HostId,
        peer: PeerKey,
        client: Option<usize>,
        token: &Token,
    ) -> Result<(), Breach> {
        let entry = self.gateways.of_mut(gateway);
        let enrolled = entry.store.enrol(entry.wall_s(self.now_ns), peer, client, token);
        let answer = match (enrolled, client) {
            (Ok(()), Some(client)) => Command::AddPeer(Box::new(peer_config(peer, client))),
            (Ok(()), None) => unreachable!("no stranger is enrolled"),
            (Err(status), _) => Command::RefuseEnrolment { peer, status },
        };
        self.command(gateway, answer)
    }

    fn revoke(&mut self, client: usize) -> Result<(), Breach> {
        let (key, gateway) = (self.clients[client].key, self.gateways.serving(client).host);
        let store = &mut self.gateways.of_mut(gateway).store;
        if store.is_enrolled(key) {
            store.revoke(key);
            let status = self.hosts[gateway].node().status(key);
            let paths = status.into_iter().flat_map(|status| status.paths);
            let remotes = paths.map(|path| path.remote()).collect();
            self.delivery.reached_at(&remotes); // the goodbye goes there
            self.command(gateway, Command::RevokePeer(key))?;
            self.delivery.revoke(self.now_ns, client, remotes);
            if self.hosts[gateway].power != Power::On {
                self.owed.give_up(gateway, key);
                self.connections.give_up(client);
            }
        }
        Ok(())
    }

    /// The operator gives access back, and the user connects again.
    pub(in crate::world) fn readmit(&mut self, client: usize) -> Result<(), Breach> {
        let host = HostId::Client(client);
        let key = self.clients[client].key;
        let entry = self.gateways.of_mut(host);
        let (gateway, peer) = (entry.host, entry.key);
        entry.store.readmit(key, client);
        if entry.store.is_enrolled(key) {
            self.delivery.readmit(client);
            self.command(gateway, Command::AddPeer(Box::new(peer_config(key, client))))?;
        }
        self.clients[client].refused = None;
        self.command(host, Command::Connect(peer))
    }

    /// Somebody whom nobody knows asks a gateway to be enrolled with the first invite of a client;
    /// if it is that client's gateway and the client has not used it yet, with one that does not
    /// exist.
    fn enrol_stranger(&mut self, gateway: HostId, client: usize) {
        let Some(&at) = self.gateway_addresses(gateway).first() else { return };
        let first = self.token(client, 0);
        let made_up = Token::new(b"never was invited").unwrap_or_else(|| first.clone());
        let own = self.gateways.serving(client);
        let is_spent = own.host != gateway || own.store.is_used(&first);
        let token = if is_spent { first } else { made_up };
        let gateway = self.gateways.of(gateway);
        for datagram in self.attacker.stranger(gateway.key, at, token) {
            self.inject(datagram);
        }
    }
}

/// What the gateway's node is told of a client.
fn peer_config(key: PeerKey, client: usize) -> PeerConfig {
    let address = IpAddr::from(inner::address(client));
    let lease = Lease {
        addresses: vec![Prefix { address, bits: 16 }],
        gateway: vec![inner::GATEWAY.into()],
        dns: vec![],
    };
    let access = Access::Restricted {
        own: vec![Prefix::host(address), Prefix::host(inner::address_by(Version::V6, client))],
        gateway: vec![inner::GATEWAY.into()],
        internet: true,
        local: vec![Prefix { address: inner::LOCAL.into(), bits: 24 }],
        allow: vec![],
    };
    PeerConfig { key, psk: None, access, side: SideConfig::Client { lease } }
}
