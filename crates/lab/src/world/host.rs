//! One node's shell, as the real one is: it opens and closes sockets when the core says so, seals,
//! sends runs, writes inner packets, wakes the core when it asked to be woken.
//!
//! It also has what a machine has: cards with addresses, a clock that counts sleep and begins anew
//! at a reboot, a power switch.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use rove_proto::ablation::{Ablation, Heuristic};
use rove_proto::bond::scheduler::Scheduler;
use rove_proto::bond::{Mode, Recovery, Spread};
use rove_proto::crypto::{Floor, SeededRng, StaticSecret};
use rove_proto::flow::Hold;
use rove_proto::flow::live::Early;
use rove_proto::flow::priority::{Level, Priorities};
use rove_proto::flow::rules::{Assist, Rules};
use rove_proto::id::{LinkId, PacketNumber, SocketId, Transport};
use rove_proto::node::{Config, Event, Link, Node};
use rove_proto::outbox::{Outbox, RunSeal};
use rove_proto::time::{Duration, Instant};
use rove_proto::wire::control::{End, Prefix};

use super::busy::Busy;
use super::inner;
use super::parcel::{HostId, Input};
use crate::emu;

/// Port on which the gateway listens.
pub(super) const PORT: u16 = 4433;
/// Socket of the gateway.
const LISTENING: SocketId = SocketId(0);
/// Sockets that the core asks for are numbered from here.
const FIRST_SOCKET: u32 = 100;
/// Local ports of a client.
const PORTS: std::ops::Range<u16> = 32_768..61_000;
/// What a clock shows after a reboot, in nanoseconds.
const BOOT_TIME_NS: u64 = 7 * emu::SECOND;

/// What a node does with open connections while no path carries.
#[derive(Clone, Copy, Debug)]
pub(super) struct Holding {
    /// How much of it.
    pub(super) hold: Hold,
    /// What it may keep of them, in bytes.
    pub(super) memory: usize,
    /// For how long a session is kept without a word, in seconds.
    pub(super) timeout_s: u64,
    /// Which of them it assists while paths carry.
    pub(super) assist: Assist,
    /// Whether its paths that lead through one queue take there what one would.
    pub(super) couples: bool,
    /// Whether a path is sent on as others do beside somebody who fills its queue.
    pub(super) competes: bool,
    /// Whether what came by several paths is delivered in sequence.
    pub(super) reorders: bool,
    /// A heuristic that it goes without, in a build that can leave it out.
    pub(super) without: Option<Heuristic>,
}

impl Holding {
    /// As much as anybody, for a day.
    pub(super) const USUAL: Self = Self {
        hold: Hold::Full,
        memory: 1 << 26,
        timeout_s: 86_400,
        assist: Assist::Off,
        couples: true,
        competes: true,
        reorders: true,
        without: None,
    };

    /// What is done for connections.
    fn rules(&self) -> Rules {
        Rules::from(self.hold).assisting(self.assist)
    }
}

/// Whether the machine runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Power {
    /// It runs.
    On,
    /// It sleeps: nothing is taken in, no timer rings.
    Asleep,
    /// The process is gone; what arrives is refused.
    Off,
}

/// A network card that is plugged in.
#[derive(Clone, Debug)]
pub(super) struct Card {
    /// The emulated link.
    pub(super) link: emu::LinkId,
    /// The access network's number.
    pub(super) access: usize,
    /// The addresses that it has now.
    pub(super) addresses: Vec<IpAddr>,
}

/// A machine with a node.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) id: HostId,
    pub(super) node: Node,
    pub(super) power: Power,
    /// The cards by number; `None` is unplugged.
    pub(super) cards: Vec<Option<Card>>,
    /// The one whose link comes first.
    pub(super) first_card: usize,
    /// What has arrived and was not taken yet.
    pub(super) inbox: Vec<Input>,
    /// How long what arrives waits until the shell has a turn, and what is due as well, in
    /// nanoseconds.
    pub(super) late_ns: u64,
    /// Draws the lateness of each turn, if other programs keep the machine busy.
    pub(super) busy: Option<Busy>,
    /// When the shell takes the waiting packets and timers, if there are any.
    pub(super) turn_ns: Option<u64>,
    secret: StaticSecret,
    holding: Holding,
    mode: Mode,
    scheduler: Scheduler,
    recovery: Recovery,
    spread: Spread,
    /// The cards whose links are for when no other carries.
    standing_by: BTreeSet<usize>,
    /// How much some of the server's addresses are preferred.
    priorities: BTreeMap<u8, Level>,
    /// Which of them are wanted early.
    early: BTreeSet<u8>,
    out: Outbox,
    sockets: BTreeMap<SocketId, (usize, SocketAddr)>,
    next_port: u16,
    /// World time at which the clock showed [`BOOT_TIME_NS`].
    booted_ns: u64,
}

/// A datagram that a node sends.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) link: emu::LinkId,
    pub(super) access: usize,
    pub(super) from: SocketAddr,
    pub(super) to: SocketAddr,
    pub(super) payload: Vec<u8>,
}

/// What one call of the core led to.
#[derive(Debug, Default)]
pub(super) struct Turn {
    pub(super) events: Vec<Event>,
    pub(super) sealed: Vec<(RunSeal, PacketNumber)>,
    pub(super) inner: Vec<Vec<u8>>,
    pub(super) sends: Vec<Outgoing>,
    /// What leaves by streams.
    pub(super) by_streams: Vec<(SocketId, Vec<u8>)>,
    /// Sockets that were sent from and are not open: a fault of the core.
    pub(super) not_open: Vec<SocketId>,
}

/// How a datagram was received.
#[derive(Clone, Copy, Debug)]
pub(super) struct Received {
    pub(super) socket: SocketId,
    pub(super) local: IpAddr,
}

impl Host {
    /// A machine that was just switched on, with a node that knows nobody.
    pub(super) fn new(id: HostId, secret: StaticSecret, cards: usize, holding: Holding) -> Self {
        let mut host = Self {
            id,
            node: node(Instant::ZERO, &secret, 0, holding, Bonding::default()),
            power: Power::On,
            cards: vec![None; cards],
            first_card: 0,
            inbox: Vec::new(),
            late_ns: 0,
            busy: None,
            turn_ns: None,
            secret,
            holding,
            mode: Mode::Backup,
            scheduler: Scheduler::Earliest,
            recovery: Recovery::default(),
            spread: Spread::default(),
            standing_by: BTreeSet::new(),
            priorities: BTreeMap::new(),
            early: BTreeSet::new(),
            out: Outbox::new(),
            sockets: BTreeMap::new(),
            next_port: PORTS.start,
            booted_ns: 0,
        };
        host.stop();
        host
    }

    /// The same with a node that makes this of its links from its next start on, and chooses among
    /// these paths so.
    pub(super) fn bonding(self, mode: Mode, scheduler: Scheduler, spread: Spread) -> Self {
        Self { mode, scheduler, spread, ..self }
    }

    /// From now on these paths carry together, when all links carry; who runs is to be told.
    pub(super) const fn set_spread(&mut self, spread: Spread) {
        self.spread = spread;
    }

    /// From now on the link of `card` is for when no other carries, or it is not; who runs is to be
    /// told.
    pub(super) fn set_standing_by(&mut self, card: usize, stands_by: bool) {
        if stands_by {
            self.standing_by.insert(card);
        } else {
            self.standing_by.remove(&card);
        }
    }

    /// The same, which is there already; who runs is to be told.
    pub(super) const fn set_mode(&mut self, mode: Mode) {
        self.mode = mode;
    }

    /// The same of what it assists; who runs is to be told the rules.
    pub(super) fn set_assist(&mut self, assist: Assist) -> Rules {
        self.holding.assist = assist;
        self.holding.rules()
    }

    /// The same of how much what goes to this one of the server's addresses is preferred.
    pub(super) fn set_priority(&mut self, server: u8, level: Option<Level>) {
        match level {
            Some(level) => self.priorities.insert(server, level),
            None => self.priorities.remove(&server),
        };
    }

    /// The same of whether what goes to this one of them is wanted early.
    pub(super) fn set_early(&mut self, server: u8, early: bool) {
        if early {
            self.early.insert(server);
        } else {
            self.early.remove(&server);
        }
    }

    /// All are alike; who runs is to be told.
    pub(super) fn wish_nothing(&mut self) {
        self.priorities.clear();
        self.early.clear();
    }

    /// What is preferred.
    pub(super) fn priorities(&self) -> Priorities {
        let ends = self.priorities.iter().map(|(&number, &level)| (end(number), level));
        Priorities::new(&ends.collect::<Vec<_>>())
    }

    /// What is wanted early.
    pub(super) fn early(&self) -> Early {
        Early::new(&self.early.iter().copied().map(end).collect::<Vec<_>>())
    }

    /// The same of what is had by mending what is lost.
    pub(super) const fn set_recovery(&mut self, recovery: Recovery) {
        self.recovery = recovery;
    }

    /// The same of how it chooses among links that carry together.
    pub(super) const fn set_scheduler(&mut self, scheduler: Scheduler) {
        self.scheduler = scheduler;
    }

    /// What its node makes of its links.
    pub(super) const fn mode(&self) -> Mode {
        self.mode
    }

    /// The process ends, wherever it is.
    pub(super) fn stop(&mut self) {
        self.power = Power::Off;
        self.sockets.clear();
        self.inbox.clear();
    }

    /// The process starts. Its randomness follows from `seed`; with `reboot` the clock begins anew.
    pub(super) fn start(&mut self, now_ns: u64, seed: u64, reboot: bool) {
        if reboot {
            self.booted_ns = now_ns;
        }
        let bonding = (self.mode, self.scheduler, self.recovery, self.spread);
        self.node = node(self.clock(now_ns), &self.secret, seed, self.holding, bonding);
        self.power = Power::On;
        self.sockets.clear();
        if self.id == 0 {
            let any = SocketAddr::new(IpAddr::from([0; 4]), PORT);
            self.sockets.insert(LISTENING, (0, any));
        }
    }

    /// Calls the core and does what it wants.
    pub(super) fn turn(
        &mut self,
        now_ns: u64,
        verb: impl FnOnce(&mut Node, Instant, &mut Outbox),
    ) -> Turn {
        let now = self.clock(now_ns);
        self.out.clear();
        verb(&mut self.node, now, &mut self.out);
        let mut turn = Turn::default();
        while let Some(event) = self.node.poll_event() {
            if let Event::OpenSocket { socket, link, local, stream: None } = &event {
                self.open(*socket, *link, *local);
            }
            turn.events.push(event);
        }
        turn.sealed = self.out.sealed().map(|(seal, number)| (seal.clone(), number)).collect();
        self.out.seal();
        let mut sends = Vec::new();
        for (run, bytes) in self.out.runs() {
            for payload in bytes.chunks(run.segment.max(1)) {
                if run.route.socket.transport() == Transport::Stream {
                    turn.by_streams.push((run.route.socket, payload.to_vec()));
                    continue;
                }
                match self.sockets.get(&run.route.socket) {
                    None => turn.not_open.push(run.route.socket),
                    Some(&(card, bound)) => {
                        let from = self.source(card, bound, run.route.local, run.route.remote);
                        sends.extend(from.map(|(link, access, from)| Outgoing {
                            link,
                            access,
                            from,
                            to: run.route.remote,
                            payload: payload.to_vec(),
                        }));
                    }
                }
            }
        }
        turn.sends = sends;
        turn.inner = self.out.inner().map(<[u8]>::to_vec).collect();
        // What was said goodbye with has left: now the sockets may go.
        for event in &turn.events {
            if let Event::CloseSocket { socket } = event {
                self.sockets.remove(socket);
            }
        }
        turn
    }

    /// What is due although its time has just been given; a fault of the core.
    pub(super) fn still_due(&self, now_ns: u64) -> Option<String> {
        let now = self.clock(now_ns);
        let (at, reason) = self.node.poll_timeout().filter(|(at, _)| *at <= now)?;
        Some(format!("{reason:?} at {at:?}, now {now:?}"))
    }

    /// When the core wants to be woken, in world time; never while the machine does not run.
    pub(super) fn wake_ns(&self) -> Option<u64> {
        if self.power != Power::On {
            return None;
        }
        let (at, _) = self.node.poll_timeout()?;
        Some(at.as_nanos().saturating_sub(BOOT_TIME_NS).saturating_add(self.booted_ns))
    }

    /// When that happens: a timer of the kernel is no more punctual than its shell.
    pub(super) fn rings_ns(&self) -> Option<u64> {
        Some(self.wake_ns()?.saturating_add(self.late_ns))
    }

    /// Sets the load of other programs from now on; `None` for none.
    pub(super) fn set_busy(&mut self, busy: Option<Busy>) {
        self.busy = busy;
        self.late_ns = 0;
        self.draw_late();
    }

    /// Draws the lateness of the next turn.
    pub(super) fn draw_late(&mut self) {
        if let Some(busy) = &mut self.busy {
            self.late_ns = busy.next_ns();
        }
    }

    /// How a datagram that arrived over `link` reaches the core, if it does.
    pub(super) fn receive(&self, link: emu::LinkId, to: SocketAddr) -> Option<Received> {
        let card = self.card_with(link, to.ip())?;
        if self.id == 0 {
            return (to.port() == PORT).then_some(Received { socket: LISTENING, local: to.ip() });
        }
        let bound = self.sockets.iter().find(|(_, bound)| **bound == (card, to));
        bound.map(|(&socket, _)| Received { socket, local: to.ip() })
    }

    /// The card at `link`, if it has this address and the machine runs.
    pub(super) fn card_with(&self, link: emu::LinkId, address: IpAddr) -> Option<usize> {
        let own = |card: &Card| card.link == link && card.addresses.contains(&address);
        let card = self.cards.iter().position(|card| card.as_ref().is_some_and(own));
        card.filter(|_| self.power == Power::On)
    }

    /// The links as the core is to be told of them, best first.
    pub(super) fn links(&self, usable: impl Fn(usize) -> bool) -> Vec<Link> {
        let link = |(number, card): (usize, &Option<Card>)| {
            let card = card.as_ref().filter(|card| usable(card.access))?;
            let stands_by = self.standing_by.contains(&number);
            let id = LinkId(number as u32 + 1);
            Some(Link { id, addresses: card.addresses.clone(), stands_by })
        };
        let (before, from) = self.cards.split_at(self.first_card.min(self.cards.len()));
        let first = from.iter().zip(self.first_card..).map(|(card, number)| (number, card));
        let rest = before.iter().enumerate();
        first.chain(rest).filter_map(link).collect()
    }

    /// Whether a socket is open.
    pub(super) fn is_open(&self, socket: SocketId) -> bool {
        self.sockets.contains_key(&socket)
    }

    /// Sockets that are open.
    pub(super) fn sockets(&self) -> usize {
        self.sockets.len()
    }

    /// The clock of the machine.
    pub(super) const fn clock(&self, now_ns: u64) -> Instant {
        Instant::from_nanos(now_ns - self.booted_ns + BOOT_TIME_NS)
    }

    /// What the node may keep of open connections, in bytes.
    pub(super) const fn hold_memory(&self) -> usize {
        self.holding.memory
    }

    /// A local port that was not used for long.
    pub(super) const fn next_port(&mut self) -> u16 {
        let port = self.next_port;
        self.next_port = if port + 1 < PORTS.end { port + 1 } else { PORTS.start };
        port
    }

    pub(super) fn open(&mut self, socket: SocketId, link: LinkId, local: IpAddr) {
        let port = self.next_port();
        self.sockets.insert(socket, (link.0 as usize - 1, SocketAddr::new(local, port)));
    }

    /// Where a packet leaves: by which card, from which address. `None` when the kernel would
    /// refuse: the card or the address is gone.
    pub(super) fn source(
        &self,
        card: usize,
        bound: SocketAddr,
        local: Option<IpAddr>,
        to: SocketAddr,
    ) -> Option<(emu::LinkId, usize, SocketAddr)> {
        let card = self.cards.get(card)?.as_ref()?;
        let own = card.addresses.iter().find(|own| own.is_ipv4() == to.is_ipv4());
        let wanted = if bound.ip().is_unspecified() { local } else { Some(bound.ip()) };
        let from = wanted.or_else(|| own.copied())?;
        let there = card.addresses.contains(&from) && from.is_ipv4() == to.is_ipv4();
        there.then_some((card.link, card.access, SocketAddr::new(from, bound.port())))
    }
}

/// What a node makes of its links.
type Bonding = (Mode, Scheduler, Recovery, Spread);

/// One of the server's addresses, whatever the port.
fn end(server: u8) -> End {
    End { network: Prefix::host(inner::server(server).into()), port: None }
}

fn node(
    now: Instant,
    secret: &StaticSecret,
    seed: u64,
    holding: Holding,
    (mode, scheduler, recovery, spread): Bonding,
) -> Node {
    let without = holding.without.and_then(|one| Ablation::default().without(one));
    let ablation = without.unwrap_or_default();
    let config = Config {
        secret: secret.clone(),
        floor: Floor::BITS_128,
        has_aes: true,
        keepalive: Some(Duration::from_secs(25)),
        persistence_timeout: Duration::from_secs(holding.timeout_s),
        hold: holding.rules(),
        hold_memory: holding.memory,
        mode,
        scheduler,
        recovery,
        spread,
        couples: holding.couples,
        competes: holding.competes,
        reorders: holding.reorders,
        ablation,
    };
    Node::new(now, config, Box::new(SeededRng::new(seed)), FIRST_SOCKET)
}
