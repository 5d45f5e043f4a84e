//! Trouble ends, and the laws of what must then be true again.
//!
//! 1. *Always back*: within [`BACK_WITHIN_NS`] and 2 % of the outage, small and full-sized packets
//!    get through both ways: first by what middleboxes still let through, then by everything. And
//!    where UDP works, data does not stay on a stream for longer than [`BY_UDP_WITHIN_NS`].
//! 2. *Promise*: what ends of connections believe to have arrived has, or they know that it has
//!    not. Those that still go on are given up.
//! 3. Then, once a few large packets have told where a path shrank, nothing is lost: the links lose
//!    nothing, so the tunnel may not; but for large packets just after data went over to another
//!    path, which may have shrunk while none went by it.
//!    Nor while an attacker is faster with copies of some of them.
//! 4. *Order*: of two links the first that carries is used, and leaving it ahead costs nothing; or
//!    both are, and leaving one costs nothing either.
//! 5. *Silence*: with nothing to say nothing is sent; behind a NAT what keeps its mapping, within
//!    the budget of 250 KB a day. It does keep it: afterwards the gateway gets through at once.

mod links;
mod order;

use std::net::SocketAddr;

use rove_proto::id::{PeerKey, Transport};
use rove_proto::multipath::Mode;
use rove_proto::node::{Command, PeerState};

use super::World;
use crate::emu::{Carrier, MS, SECOND};
use crate::world::agenda::Task;
use crate::world::client::Client;
use crate::world::host_id::HostId;
use crate::world::inner::{Body, LEN_MAX};
use crate::world::laws::{Breach, Law, check_promise};
use crate::world::op::{ACCESSES, CARDS, Intercept, Quality, Way};

/// The longest time until packets get through, besides 2 % of the outage, in nanoseconds.
pub(in crate::world) const BACK_WITHIN_NS: u64 = 60 * SECOND;
/// The part of an outage that the return may take: a mobile in a tunnel must not ask all the time.
const BACK_PART: u64 = 50;
/// The longest time until UDP takes the place of a stream, in nanoseconds: it is asked for at least
/// every minute, and the answer takes a round trip.
const BY_UDP_WITHIN_NS: u64 = 62 * SECOND;
/// Time between the packets that try to get through, in nanoseconds.
const TRY_NS: u64 = SECOND / 4;
/// Packets each way that must all arrive once a session is back.
const LOSSLESS: u64 = 25;
/// Large packets each way before that, which may be lost.
const LEARNING: u64 = 12;
/// How soon a session knows that the path it took carries less than before, in nanoseconds: three
/// probes are lost first, each of which has two of the path's timeouts. It does not cut every large
/// packet in two until then: nearly always the path carries what it did.
const SHRUNK_WITHIN_NS: u64 = 2 * SECOND;
/// Datagrams of a client that an attacker overtakes with copies.
const RACED: u16 = 12;
/// Time in which what was under way comes to rest.
const REST_NS: u64 = 400 * SECOND;
/// Time for which silence is watched.
const QUIET_NS: u64 = 3_600 * SECOND;
/// What a session behind a NAT may cost in [`QUIET_NS`], both ways, in layer-3 bytes: 250 KB a day.
const QUIET_BYTES_MAX: u64 = 250_000 / 24;
/// How long connections have, once everybody is reachable, to come to their end: the longest one
/// takes half of it, and the longest retransmission timeout is 120 s.
const ENDS_WITHIN_NS: u64 = 300 * SECOND;
/// And nodes afterwards, until they owe nothing.
const RESTS_WITHIN_NS: u64 = 120 * SECOND;
/// How soon a packet from the gateway reaches an idle client: half a round trip on the way, and as
/// much for what is due at that moment.
const REACHED_WITHIN_NS: u64 = 40 * MS;

/// A world in which trouble ends, and the laws that it must then keep.
pub(in crate::world) struct Rest<'a> {
    world: &'a mut World,
}

impl<'a> Rest<'a> {
    /// Checks the laws of `world` that hold once nothing troubles it.
    pub(in crate::world) const fn of(world: &'a mut World) -> Self {
        Self { world }
    }
}

impl Rest<'_> {
    /// Ends all trouble and checks that everything works again.
    pub(in crate::world) fn settle(&mut self, quiet: bool) -> Result<(), Breach> {
        self.end_trouble()?;
        self.always_back_by_what_is_open()?;
        self.always_back()?;
        self.udp_takes_over()?;
        let mut gateways = self.world.gateways.hosts();
        gateways.try_for_each(|gateway| self.world.knows_everybody(gateway))?;
        self.promises_are_kept()?;
        self.nothing_is_lost()?;
        if quiet {
            (0..self.world.clients.len())
                .try_for_each(|client| self.nothing_is_lost_to_a_race(client))?;
            (0..self.world.clients.len()).try_for_each(|client| {
                match self.world.hosts[HostId::Client(client)].mode() {
                    Mode::Full => self.links_together(client),
                    Mode::Single | Mode::Backup => self.links_in_order(client),
                }
            })?;
            self.silence()?;
        }
        for client in &mut self.world.clients {
            client.troubled_ns = None;
        }
        Ok(())
    }

    fn end_trouble(&mut self) -> Result<(), Breach> {
        self.world.attacker.rest();
        self.world.release_all()?;
        for host in self.world.hosts.values_mut() {
            host.set_busy(None);
        }
        for client in 0..self.world.clients.len() {
            for card in 0..usize::from(CARDS) {
                self.world.hosts[HostId::Client(client)].set_standing_by(card, false);
            }
            for access in 0..usize::from(ACCESSES) {
                self.world.place.set_carrier(self.world.now_ns, client, access, Carrier::Up);
                self.world.place.set_quality(self.world.now_ns, client, access, Quality::CLEAN);
            }
            let cards = &self.world.hosts[HostId::Client(client)].cards;
            if cards.iter().all(Option::is_none) {
                self.world.plug(client, 0, Some(0))?;
            }
        }
        for gateway in self.world.gateways.hosts() {
            self.world.power_on(gateway, false)?;
            self.world.rename(gateway);
        }
        for client in 0..self.world.clients.len() {
            self.world.power_on(HostId::Client(client), false)?;
            self.world.tell_links(client)?;
            self.world.hosts[HostId::Client(client)].wish_nothing();
            self.world.tell_wishes(HostId::Client(client))?;
            self.welcome(client)?;
        }
        self.world.advance(0)
    }

    /// The operator lets everybody in again, and every user connects.
    fn welcome(&mut self, client: usize) -> Result<(), Breach> {
        self.world.readmit(client)?;
        self.invite_again(client)
    }

    /// Whoever is not enrolled, and has an invite that the desk would refuse, gets another and
    /// starts with it. Everybody else must come back without.
    fn invite_again(&mut self, client: usize) -> Result<(), Breach> {
        let Client { key, store, .. } = &self.world.clients[client];
        let gateway = self.world.gateways.serving(client);
        let wall_s = gateway.wall_s(self.world.now_ns);
        let judge = |token| gateway.store.judge(wall_s, *key, token).is_ok();
        if gateway.store.is_enrolled(*key) || store.token.as_ref().is_some_and(judge) {
            return Ok(());
        }
        let entry = &mut self.world.clients[client];
        entry.invites += 1;
        let number = entry.invites;
        let token = self.world.invite(client, number);
        self.world.clients[client].store.token = Some(token);
        self.world.hosts[HostId::Client(client)].stop();
        self.world.power_on(HostId::Client(client), false)
    }

    pub(in crate::world) fn always_back(&mut self) -> Result<(), Breach> {
        let start_ns = self.world.now_ns;
        let mut open: Vec<Try> = (0..self.world.clients.len()).flat_map(Try::all).collect();
        let limit = |world: &World, client: usize| {
            let Client { carried_ns, troubled_ns, .. } = world.clients[client];
            let since_ns = troubled_ns.map_or(start_ns, |at| at.max(carried_ns));
            BACK_WITHIN_NS + start_ns.saturating_sub(since_ns) / BACK_PART
        };
        let limits: Vec<u64> =
            (0..self.world.clients.len()).map(|i| limit(self.world, i)).collect();
        loop {
            for attempt in &mut open {
                let sent =
                    self.world.send_now(attempt.client, attempt.way, Body::Data(attempt.len))?;
                attempt.sent.extend(sent);
            }
            self.world.advance(TRY_NS)?;
            self.connect_those_down()?;
            open.retain(|attempt| {
                !attempt.sent.iter().any(|&id| self.world.delivery.has_arrived(id))
            });
            let elapsed_ns = self.world.now_ns - start_ns;
            let Some(late) = open.iter().find(|attempt| elapsed_ns > limits[attempt.client]) else {
                if open.is_empty() {
                    self.world.worst_back_ns = self.world.worst_back_ns.max(elapsed_ns);
                    return Ok(());
                }
                continue;
            };
            let Try { client, way, len, .. } = late;
            let what = format!(
                "client {client}: no packet of {len} bytes got through ({way:?}) for {} s\n{}",
                elapsed_ns / SECOND,
                self.world.portrait(*client),
            );
            return Err(Breach::new(Law::AlwaysBack, what));
        }
    }

    /// The same while the middleboxes are still there; then they go.
    fn always_back_by_what_is_open(&mut self) -> Result<(), Breach> {
        let clients = 0..self.world.clients.len();
        if !clients.clone().any(|client| self.world.place.is_filtered(client)) {
            return Ok(());
        }
        self.always_back()?;
        for client in clients {
            (0..usize::from(ACCESSES)).for_each(|a| self.world.place.set_filter(client, a, None));
        }
        Ok(())
    }

    /// Data that goes by streams goes over to UDP, which is asked for every so often while it does.
    pub(in crate::world) fn udp_takes_over(&mut self) -> Result<(), Breach> {
        for gateway in self.world.gateways.hosts() {
            let mut clients = self.world.gateways.of(gateway).clients.iter();
            if clients.any(|&client| !self.can_know_the_gateway(client)) {
                let addresses: Vec<_> =
                    self.world.gateway_addresses(gateway).iter().map(SocketAddr::ip).collect();
                self.world.announce_gateway(gateway, &addresses)?;
            }
        }
        let start_ns = self.world.now_ns;
        loop {
            let on_stream = (0..self.world.clients.len()).find(|&client| self.is_on_stream(client));
            let Some(client) = on_stream else { return Ok(()) };
            if self.world.now_ns > start_ns + BY_UDP_WITHIN_NS {
                let s = BY_UDP_WITHIN_NS / SECOND;
                let portrait = self.world.portrait(client);
                let what = format!("client {client}: by a stream for {s} s, UDP works\n{portrait}");
                return Err(Breach::new(Law::Order, what));
            }
            for way in [Way::Up, Way::Down] {
                self.world.send_now(client, way, Body::Data(100))?;
            }
            self.world.advance(TRY_NS)?;
        }
    }

    /// Whether a client whose data goes by a stream knows an address of the gateway's: by a proxy
    /// it gets to one that left without a word, and a client that is up asks for no name.
    fn can_know_the_gateway(&self, client: usize) -> bool {
        let at = self.world.gateway_addresses(self.world.gateways.serving(client).host);
        let known = self.world.clients[client].directory.remotes();
        !self.is_on_stream(client) || known.iter().any(|remote| at.contains(remote))
    }

    /// Whether either end of a client's session sends data by a stream.
    fn is_on_stream(&self, client: usize) -> bool {
        ends(self.world, client).into_iter().any(|(host, peer)| {
            let status = self.world.hosts[host].node().status(peer);
            let used = status.and_then(|status| status.paths.into_iter().find(|path| path.in_use));
            used.is_some_and(|path| path.route.socket.transport() == Transport::Stream)
        })
    }

    /// A user who reads that the session is down asks for it again: a goodbye that was under way
    /// may have crossed the last time.
    fn connect_those_down(&mut self) -> Result<(), Breach> {
        for client in 0..self.world.clients.len() {
            let host = HostId::Client(client);
            let gateway = self.world.gateways.serving(client).key;
            let status = self.world.hosts[host].node().status(gateway);
            if status.is_some_and(|status| matches!(status.state, PeerState::Down(_))) {
                self.invite_again(client)?;
                self.world.command(host, Command::Connect(gateway))?;
            }
        }
        Ok(())
    }

    /// Trouble is over: connections go on to their end, and nobody is left who believes what did
    /// not happen.
    pub(in crate::world) fn promises_are_kept(&mut self) -> Result<(), Breach> {
        if !self.world.connections.were_any() {
            return Ok(());
        }
        let end_ns = self.world.now_ns + ENDS_WITHIN_NS;
        while self.world.now_ns < end_ns
            && (self.world.connections.any_goes_on() || self.is_unsure())
        {
            self.world.advance(SECOND)?;
        }
        self.world.connections.promised().try_for_each(|promised| check_promise(&promised))?;
        self.world.connections.abort_all(self.world.now_ns);
        let end_ns = self.world.now_ns + RESTS_WITHIN_NS;
        while self.world.now_ns < end_ns
            && (self.world.connections.next_ns().is_some() || self.world.owed.any())
        {
            self.world.advance(SECOND)?;
        }
        match self.world.owed.first() {
            Some(line) => {
                let s = RESTS_WITHIN_NS / SECOND;
                let what = format!("{line} is still written down after {s} s");
                Err(Breach::new(Law::Promise, what))
            }
            None => Ok(()),
        }
    }

    fn is_unsure(&self) -> bool {
        self.world.connections.promised().any(|promised| check_promise(&promised).is_err())
    }

    pub(in crate::world) fn nothing_is_lost(&mut self) -> Result<(), Breach> {
        // A path that shrank is found out by the loss of a few large packets.
        for number in 0..LEARNING {
            for client in 0..self.world.clients.len() {
                for way in [Way::Up, Way::Down] {
                    let body = Body::Data(LEN_MAX);
                    self.world.schedule(number * 400 * MS, Task::Send { client, way, body });
                }
            }
        }
        self.world.advance(LEARNING * 400 * MS + 5 * SECOND)?;
        self.all_arrive(Law::AlwaysBack, "on links that lose nothing", tells_of_shrinking)
    }

    /// Copies of what a client sends come from somewhere else, and sooner: a claim that is forged.
    /// The true path keeps the originals, so nothing is lost.
    pub(in crate::world) fn nothing_is_lost_to_a_race(
        &mut self,
        client: usize,
    ) -> Result<(), Breach> {
        self.world.attacker.intercept(HostId::Client(client), Way::Up, Intercept::Race, RACED);
        let when = "while copies from elsewhere overtake what a client sends";
        self.all_arrive(Law::Hijack, when, |_, _| false)?;
        self.world.attacker.rest();
        Ok(())
    }

    /// Sends packets of every size both ways, all of which must arrive but for those `excused`.
    fn all_arrive(
        &mut self,
        law: Law,
        when: &str,
        excused: impl Fn(&World, u32) -> bool,
    ) -> Result<(), Breach> {
        let first = self.world.delivery.totals().0 + 1;
        for number in 0..LOSSLESS {
            for client in 0..self.world.clients.len() {
                for way in [Way::Up, Way::Down] {
                    let len = [64, 600, 1_200, LEN_MAX][number as usize % 4];
                    let body = Body::Data(len);
                    self.world.schedule(number * 40 * MS, Task::Send { client, way, body });
                }
            }
        }
        self.world.advance(LOSSLESS * 40 * MS + 3 * SECOND)?;
        let last = self.world.delivery.totals().0;
        let lost = |&id: &u32| !self.world.delivery.has_arrived(id) && !excused(self.world, id);
        let lost: Vec<u32> = (first..=last).filter(lost).collect();
        if lost.is_empty() {
            return Ok(());
        }
        let portraits: Vec<_> =
            (0..self.world.clients.len()).map(|i| self.world.portrait(i)).collect();
        let what = format!(
            "{} of {} packets lost {when}\n{}",
            lost.len(),
            last - first + 1,
            portraits.join("\n"),
        );
        Err(Breach::new(law, what))
    }

    pub(in crate::world) fn silence(&mut self) -> Result<(), Breach> {
        self.world.advance(REST_NS)?;
        let before = self.world.bytes.clone();
        self.world.advance(QUIET_NS)?;
        self.world.quiet += 1;
        let sent = |host: HostId| self.world.bytes[host] - before[host];
        let natted: Vec<bool> =
            (0..self.world.clients.len()).map(|c| self.is_behind_nat(c)).collect();
        for host in self.world.hosts.ids() {
            let gateway = self.world.gateways.of(host);
            let limit = match host.client() {
                Some(client) if natted[client] => QUIET_BYTES_MAX,
                Some(_) => 0,
                // What it answers counts among what its clients cost.
                None => {
                    let behind = gateway.clients.iter().filter(|&&client| natted[client]).count();
                    let clients = gateway.clients.iter().copied().map(HostId::Client);
                    (behind as u64 * QUIET_BYTES_MAX).saturating_sub(clients.map(sent).sum())
                }
            };
            let sent = sent(host);
            if sent > limit {
                let client = host.client().or_else(|| gateway.clients.first().copied());
                let portrait = client.map(|client| self.world.portrait(client)).unwrap_or_default();
                let what = format!(
                    "{host} sent {sent} bytes in an idle hour, {limit} allowed\n{portrait}"
                );
                return Err(Breach::new(Law::Silence, what));
            }
        }
        (0..self.world.clients.len()).try_for_each(|client| self.is_still_reached(client))
    }

    /// Whether the card that a client's session uses is behind a NAT box: the world's truth, not
    /// what the node thinks.
    fn is_behind_nat(&self, client: usize) -> bool {
        let host = &self.world.hosts[HostId::Client(client)];
        let Some(status) = host.node().status(self.world.gateways.serving(client).key) else {
            return false;
        };
        let link = status.paths.iter().find(|path| path.in_use).and_then(|path| path.link);
        let card = link.and_then(|link| host.cards.get(link.0 as usize - 1)?.as_ref());
        card.is_some_and(|card| self.world.place.access(client, card.access).nat.is_some())
    }

    /// After all that silence the gateway still gets through at once, by the mapping that was kept.
    fn is_still_reached(&mut self, client: usize) -> Result<(), Breach> {
        let sent = self.world.send_now(client, Way::Down, Body::Data(100))?;
        self.world.advance(REACHED_WITHIN_NS)?;
        if sent.is_some_and(|id| self.world.delivery.has_arrived(id)) {
            return Ok(());
        }
        let ms = REACHED_WITHIN_NS / MS;
        let portrait = self.world.portrait(client);
        let what =
            format!("after an idle hour client {client} is not reached in {ms} ms\n{portrait}");
        Err(Breach::new(Law::Silence, what))
    }
}

/// A kind of packet that must get through.
struct Try {
    client: usize,
    way: Way,
    len: u16,
    sent: Vec<u32>,
}

impl Try {
    fn all(client: usize) -> impl Iterator<Item = Self> {
        let kinds = [(Way::Up, 100), (Way::Up, LEN_MAX), (Way::Down, 100), (Way::Down, LEN_MAX)];
        kinds.into_iter().map(move |(way, len)| Self { client, way, len, sent: Vec::new() })
    }
}

/// Whether a packet is large, and its sender had taken another path a moment before: the loss
/// of such a one tells that the path has shrunk.
fn tells_of_shrinking(world: &World, id: u32) -> bool {
    let Some((inner, at_ns)) = world.delivery.sent(id) else { return false };
    let (client_ns, gateway_ns) = world.clients[inner.client].moved_ns;
    let moved_ns = if inner.way == Way::Up { client_ns } else { gateway_ns };
    let moment = |&moved_ns: &u64| (moved_ns..moved_ns + SHRUNK_WITHIN_NS).contains(&at_ns);
    inner.body == Body::Data(LEN_MAX) && moved_ns.filter(moment).is_some()
}

const _: () = assert!(TRY_NS < BACK_WITHIN_NS);

#[cfg(test)]
#[path = "settle_tests.rs"]
mod settle_tests;

/// Both ends of a client's session: each host, and the key of its peer.
fn ends(world: &World, client: usize) -> [(HostId, PeerKey); 2] {
    let gateway = world.gateways.serving(client);
    [(HostId::Client(client), gateway.key), (gateway.host, world.clients[client].key)]
}
