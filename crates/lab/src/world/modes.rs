//! What clients make of their links, in a world of random operations, and what is promised of those
//! that carry together: what is much arrives in sequence where the links lose nothing; one that
//! dies or is unplugged takes no packet along; and when it is there again, it carries its share.
//!
//! What carries together may be one path of each link or several, and a link may be for when no
//! other carries: then nothing that is much goes by it while another does.
//!
//! In a world every client begins with what a Rove does where nobody says anything. The operations
//! of most seeds say something else at once, and let clients change their minds. Only packets that
//! are longer than a question are asked to be in sequence: shorter ones overtake what waits.

use std::collections::BTreeSet;
use std::net::IpAddr;

use rove_proto::flow::priority::Level;
use rove_proto::flow::rules::Assist;
use rove_proto::multipath::scheduler::Scheduler;
use rove_proto::multipath::{Manager, Mode, Recovery, Spread};
use rove_proto::node::{Command, PathStatus};
use rove_proto::path::Health;
use rove_proto::time::Duration;

use super::agenda::Task;
use super::connect::SERVERS;
use super::engine::{GATEWAY, World};
use super::inner::{Body, LEN_MAX};
use super::laws::{Breach, Law};
use super::op::{ACCESSES, CARDS, CLIENTS_MAX, Network, Op, Way, client};
use super::order::{CUT_NS, FIRST, PROVEN_NS, SECOND_BEST, TRUSTED_NS};
use super::parcel::HostId;
use crate::emu::{Carrier, MS, Rng, SECOND};

/// Packets of each way that leave as fast as a device hands them over.
const BURST: u64 = 60;
/// Time between two of them: 3 times what one network carries.
const BURST_GAP_NS: u64 = 200_000;
/// Time between two bursts, in which all of the first arrives.
const BURST_EVERY_NS: u64 = 500 * MS;
/// How many there are.
const BURSTS: u64 = 6;

/// What goes by a link that stands by while the other carries [`BURSTS`], in layer-3 bytes both
/// ways: questions and probes of its largest datagram, a fiftieth of what is carried.
const STANDBY_BYTES_MAX: u64 = 16_000;
/// Layer-3 bytes of a question that is padded, by IPv4 and by IPv6. Where a gateway has left many
/// addresses each is asked so for a while, once a second: that is not counted.
const ASKED: [u64; 2] = [1_228, 1_248];
/// A path that nobody heard of for so long gets nothing, whatever it got before: what a NAT
/// remembers of it is not known.
const FRESH_NS: u64 = 20 * SECOND;

/// What is counted of a link that stands by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Standby {
    client: usize,
    access: usize,
    bytes: u64,
}

/// Most seeds' clients begin with another mode and a second link, and change their minds; there
/// are bursts that several links share.
pub(super) fn strew(seed: u64, ops: &mut Vec<Op>) {
    let mut rng = Rng::new(seed).fork(0x6d6f_6465);
    if rng.chance(0.3) {
        return;
    }
    let count = rng.below(4);
    insert(&mut rng, count, ops, change);
    for _ in 0..rng.below(6) {
        let at = rng.below(ops.len() as u64) as usize;
        let links = rng.chance(0.5).then(|| second_link(client(&mut rng)));
        ops.splice(at..at, links.into_iter().chain([burst(&mut rng)]));
    }
    spread_some(seed, ops);
    let all = (0..CLIENTS_MAX).flat_map(|client| {
        let mode = if rng.chance(0.75) { Mode::Full } else { Mode::Single };
        let link = rng.chance(0.8).then(|| second_link(client));
        link.into_iter().chain([Op::SetMode { client, mode }])
    });
    ops.splice(0..0, all.collect::<Vec<_>>());
}

/// So many operations come in anywhere.
fn insert(rng: &mut Rng, count: u64, ops: &mut Vec<Op>, one: fn(&mut Rng) -> Op) {
    for _ in 0..count {
        let at = rng.below(ops.len() as u64) as usize;
        ops.insert(at, one(rng));
    }
}

/// Of some seeds other paths carry together, and links stand by.
fn spread_some(seed: u64, ops: &mut Vec<Op>) {
    let mut rng = Rng::new(seed).fork(0x7370_7264);
    let count = rng.below(4);
    insert(&mut rng, count, ops, spread);
}

/// Other paths of a client carry together, or one of its links is used in another way.
pub(super) fn spread(rng: &mut Rng) -> Op {
    let client = client(rng);
    if rng.chance(0.4) {
        let card = rng.below(CARDS.into()) as u8;
        return Op::StandBy { client, card, stands_by: rng.chance(0.7) };
    }
    let manager = if rng.chance(0.5) { Manager::FullMesh } else { Manager::OnePerLink };
    Op::SetSpread { client, spread: Spread { manager, subflows: 1 + rng.below(3) as u8 } }
}

/// A client changes its mind.
pub(super) fn change(rng: &mut Rng) -> Op {
    let mode = [Mode::Full, Mode::Full, Mode::Backup, Mode::Single][rng.below(4) as usize];
    Op::SetMode { client: client(rng), mode }
}

/// Clients of some seeds choose among paths otherwise, at once or in the middle of things.
pub(super) fn strew_schedulers(seed: u64, ops: &mut Vec<Op>) {
    let mut rng = Rng::new(seed).fork(0x7363_6864);
    let count = rng.below(4);
    insert(&mut rng, count, ops, other_scheduler);
}

/// Clients of some seeds assist connections, or the gateway does, at once or in the middle of
/// things.
pub(super) fn strew_assists(seed: u64, ops: &mut Vec<Op>) {
    let mut rng = Rng::new(seed).fork(0x6173_7369);
    if rng.chance(0.3) {
        return;
    }
    let count = rng.below(4);
    insert(&mut rng, count, ops, assist);
    let all = (0..=CLIENTS_MAX).map(|host| Op::SetAssist { host, assist: Assist::On });
    let some: Vec<_> = all.filter(|_| rng.chance(0.7)).collect();
    ops.splice(0..0, some);
}

/// One that does it, or does not any more.
pub(super) fn assist(rng: &mut Rng) -> Op {
    let assist = if rng.chance(0.5) { Assist::On } else { Assist::Off };
    Op::SetAssist { host: rng.below(u64::from(CLIENTS_MAX) + 1) as u8, assist }
}

/// Clients of some seeds prefer some of the server's addresses to others, at once or in the middle
/// of things, and change their minds.
pub(super) fn strew_priorities(seed: u64, ops: &mut Vec<Op>) {
    let mut rng = Rng::new(seed).fork(0x7072_696f);
    if rng.chance(0.5) {
        return;
    }
    let count = 1 + rng.below(6);
    insert(&mut rng, count, ops, priority);
}

/// One of them, or one that is preferred no more.
pub(super) fn priority(rng: &mut Rng) -> Op {
    let (client, server) = (client(rng), rng.below(SERVERS.into()) as u8);
    let level = Level::ALL.get(rng.below(Level::ALL.len() as u64 + 1) as usize).copied();
    Op::SetPriority { client, server, level }
}

/// Clients of some seeds want some of the server's addresses early, or everything, at once or in
/// the middle of things, and change their minds.
pub(super) fn strew_haste(seed: u64, ops: &mut Vec<Op>) {
    let mut rng = Rng::new(seed).fork(0x6561_726c);
    if rng.chance(0.5) {
        return;
    }
    let count = 1 + rng.below(6);
    insert(&mut rng, count, ops, haste);
}

/// One of these, or what is lost is mended for another end.
pub(super) fn haste(rng: &mut Rng) -> Op {
    let client = client(rng);
    if rng.chance(0.3) {
        let recovery = if rng.chance(0.6) { Recovery::Latency } else { Recovery::Throughput };
        return Op::SetRecovery { client, recovery };
    }
    Op::SetEarly { client, server: rng.below(SERVERS.into()) as u8, early: rng.chance(0.7) }
}

/// A client and its gateway choose otherwise.
pub(super) fn other_scheduler(rng: &mut Rng) -> Op {
    let scheduler = Scheduler::ALL[rng.below(Scheduler::ALL.len() as u64) as usize];
    Op::SetScheduler { client: client(rng), scheduler }
}

/// More packets at once than one network carries.
pub(super) fn burst(rng: &mut Rng) -> Op {
    let (client, packets) = (client(rng), 50 + rng.below(350) as u16);
    let way = if rng.chance(0.5) { Way::Up } else { Way::Down };
    let len = [0, 1_200, LEN_MAX][rng.below(3) as usize];
    Op::Send { client, way, packets, len, gap_us: [0, 200, 500][rng.below(3) as usize] }
}

/// The card that is free at the beginning is plugged into a network that no other one is in.
fn second_link(client: u8) -> Op {
    let access = Some((client + 1) % ACCESSES);
    Op::Network(Network::Plug { client, card: SECOND_BEST as u8, access })
}

impl World {
    /// A client's node is told what is preferred, and what is wanted early.
    pub(super) fn tell_wishes(&mut self, host: HostId) -> Result<(), Breach> {
        let (priorities, early) = (self.hosts[host].priorities(), self.hosts[host].early());
        self.command(host, Command::SetPriorities(priorities))?;
        self.command(host, Command::SetEarly(early))
    }

    /// Plays bursts by two links, a cut without a word, a return, and a departure without a word.
    pub(super) fn links_together(&mut self, client: usize) -> Result<(), Breach> {
        if !self.knows_the_way(client) {
            return Ok(());
        }
        let before = [FIRST, SECOND_BEST].map(|card| self.access_of_card(client, card));
        for (card, access) in [FIRST, SECOND_BEST].into_iter().zip(before) {
            if access.is_none() {
                let free = self.free_access(client);
                self.plug(client, card, Some(free))?;
            }
        }
        let Some(access) = self.access_of_card(client, FIRST) else { return Ok(()) };
        self.come_together(client, "two links that carry")?;
        self.bursts(client)?; // it is not known before what the links carry
        let from = self.mark();
        self.bursts(client)?;
        self.all_came(from, client, "by two links")?;
        self.in_sequence(from, client)?;

        self.one_stands_by(client)?;

        let from = self.mark();
        self.flow(client, SECOND / 2)?;
        self.place.set_carrier(self.now_ns, client, access, Carrier::BlackHole);
        self.flow(client, CUT_NS)?;
        self.all_came(from, client, "over a cut of one of two links")?;
        self.place.set_carrier(self.now_ns, client, access, Carrier::Up);
        self.come_together(client, "the end of a cut")?;

        let from = self.mark();
        self.flow(client, SECOND / 2)?;
        self.plug(client, FIRST, None)?;
        self.flow(client, SECOND)?;
        self.all_came(from, client, "when one of two links was unplugged")?;
        self.plug(client, FIRST, Some(access))?;
        self.come_together(client, "a return")?;
        if before[SECOND_BEST].is_none() {
            self.plug(client, SECOND_BEST, None)?;
        }
        Ok(())
    }

    /// One of two links stands by, and the other carries alone; until it stands by no more.
    fn one_stands_by(&mut self, client: usize) -> Result<(), Breach> {
        let host = client + 1;
        self.hosts[host].set_standing_by(SECOND_BEST, true);
        self.tell_links(client)?;
        self.flow(client, PROVEN_NS)?; // until both ends have been told
        self.bursts(client)?; // most of it went by the other: it is not known what this one carries
        let from = self.mark();
        let access = self.access_of_card(client, SECOND_BEST);
        self.by_standby = access.map(|access| Standby { client, access, bytes: 0 });
        self.bursts(client)?;
        let bytes = self.by_standby.take().map_or(0, |counted| counted.bytes);
        self.all_came(from, client, "by one of two links, while the other stood by")?;
        self.in_sequence(from, client)?;
        // Of a proxy's address the gateway cannot tell whose link is behind it: bytes can.
        let carrying = self.carrying(client);
        if carrying[0] != 1 || bytes > STANDBY_BYTES_MAX {
            let portrait = self.portrait(client);
            let what = format!(
                "client {client}: a link that stands by carries {bytes} bytes; by {carrying:?} \
                 links\n{portrait}"
            );
            return Err(Breach::new(Law::Order, what));
        }
        self.hosts[host].set_standing_by(SECOND_BEST, false);
        self.tell_links(client)?;
        self.come_together(client, "one of them stood by")
    }

    /// A datagram of `len` bytes leaves a host by an access network, that of a client or to one:
    /// is it by the link that stands by?
    pub(super) fn count_standby(
        &mut self,
        of: Option<HostId>,
        (host, by): (HostId, usize),
        to: IpAddr,
        len: u64,
    ) {
        let Some(Standby { client, access, bytes }) = &mut self.by_standby else { return };
        let is_there = match host {
            GATEWAY => self.place.is_of(*client, *access, to),
            _ => by == *access,
        };
        if of == Some(*client + 1) && is_there && len != ASKED[usize::from(to.is_ipv6())] {
            *bytes += len;
        }
    }

    /// By how many of the client's links data goes, as each end has it.
    fn carrying(&self, client: usize) -> [usize; 2] {
        let ends = [(client + 1, self.gateway_key), (GATEWAY, self.clients[client].key)];
        ends.map(|(host, peer)| {
            let status = self.hosts[host].node().status(peer);
            let now = self.hosts[host].clock(self.now_ns);
            let is_fresh = |path: &PathStatus| {
                let heard = path.heard_at.map(|at| now.saturating_since(at));
                heard.is_some_and(|ago| ago < Duration::from_nanos(FRESH_NS))
            };
            let paths = status.into_iter().flat_map(|status| status.paths);
            let shared = paths.filter(|path| path.is_shared && path.health == Health::Good);
            let shared = shared.filter(is_fresh);
            let from = shared.map(|path| match path.link {
                // Of its addresses the gateway may have several.
                Some(link) => Ok(link.0 as usize - 1),
                None => self.card_at(client, path.remote().ip()).ok_or_else(|| path.remote()),
            });
            from.collect::<BTreeSet<_>>().len()
        })
    }

    /// The card of the client whose network has this address, in one family or the other.
    fn card_at(&self, client: usize, at: IpAddr) -> Option<usize> {
        let is_there = |access| self.place.is_of(client, access, at);
        let mut cards = 0..self.hosts[client + 1].cards.len();
        cards.find(|&card| self.access_of_card(client, card).is_some_and(is_there))
    }

    /// Data goes by both links before long: a link that did badly is distrusted for a while.
    fn come_together(&mut self, client: usize, after: &str) -> Result<(), Breach> {
        for _ in 0..TRUSTED_NS / PROVEN_NS {
            self.flow(client, PROVEN_NS)?;
            if self.carrying(client).iter().all(|&carrying| carrying > 1) {
                return Ok(());
            }
        }
        let portrait = self.portrait(client);
        let what = format!("client {client}: not by both links after {after}\n{portrait}");
        Err(Breach::new(Law::Order, what))
    }

    /// Packets of several flows, both ways, more at once than one link carries.
    fn bursts(&mut self, client: usize) -> Result<(), Breach> {
        for number in 0..BURSTS * BURST {
            let (burst, place) = (number / BURST, number % BURST);
            let after_ns = burst * BURST_EVERY_NS + place * BURST_GAP_NS;
            let len = [600, 1_200, LEN_MAX][number as usize % 3];
            for way in [Way::Up, Way::Down] {
                self.schedule(after_ns, Task::Send { client, way, body: Body::Data(len) });
            }
        }
        self.advance(BURSTS * BURST_EVERY_NS)
    }

    /// What was sent since `from` came in sequence, flow by flow.
    fn in_sequence(&self, from: u32, client: usize) -> Result<(), Breach> {
        let Some(early) = self.delivery.first_early(from) else { return Ok(()) };
        let portrait = self.portrait(client);
        let what = format!("{early:?} came before its turn\n{portrait}");
        Err(Breach::new(Law::Order, what))
    }
}
