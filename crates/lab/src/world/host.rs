//! One node's shell: the production engine over a device and sockets in memory, and a machine
//! around it. The machine has network cards with addresses, a power switch, and a clock that counts
//! sleep and begins anew at a reboot.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use rove_engine::memory::{MemoryEngine, Segment, Sent};
use rove_proto::ablation::Ablation;
use rove_proto::codec::SavingConfig;
use rove_proto::codec::allowed::{Allowed, Rule};
use rove_proto::codec::coding::Coding;
use rove_proto::crypto::{Features, Profile, SeededRng, StaticSecret};
use rove_proto::flow::Hold;
use rove_proto::flow::live::Early;
use rove_proto::flow::priority::{Level, Priorities};
use rove_proto::flow::rules::{Assist, Rules};
use rove_proto::id::{LinkId, PacketNumber, SocketId, Transport};
use rove_proto::multipath::scheduler::Scheduler;
use rove_proto::multipath::{Mode, Recovery, Spread};
use rove_proto::node::{Config, Event, Link, Node};
use rove_proto::outbox::RunSeal;
use rove_proto::time::{Duration, Instant};
use rove_proto::wire::control::{End, Prefix};

use super::busy::Busy;
use super::ciphers::Ciphers;
use super::host_id::HostId;
use super::inner;
use super::parcel::Input;
use super::talk::SERVERS;
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
    /// Whether it falls back to single sends where segmented ones lose more.
    pub(super) judges_offload: bool,
    /// Whether it announces that it leaves out headers that the other end knows.
    pub(super) elides: bool,
    /// Whether what is exchanged with the server is compressed.
    pub(super) compresses: bool,
    /// How it seals.
    pub(super) ciphers: Ciphers,
    /// The heuristics that it goes without, in a build that can leave them out.
    pub(super) ablation: Ablation,
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
        judges_offload: true,
        elides: false,
        compresses: false,
        ciphers: Ciphers::USUAL,
        ablation: Ablation::NONE,
    };

    /// What is done for connections.
    fn rules(&self) -> Rules {
        Rules::from(self.hold).assisting(self.assist)
    }

    /// How bytes are saved.
    fn saving(&self) -> SavingConfig {
        if !self.compresses {
            return SavingConfig::default();
        }
        let rules = (0..SERVERS).map(|server| Rule { end: end(server), coding: Coding::ZSTD });
        let compress = Allowed::new(&rules.collect::<Vec<_>>());
        SavingConfig { compress, ..SavingConfig::default() }
    }

    /// What is announced.
    fn features(&self) -> Features {
        let compact = if self.elides { Features::COMPACT } else { Features::NONE };
        Features::CONTENT | compact | self.ciphers.features()
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
    engine: MemoryEngine,
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
    /// Its place in the send that it leaves with, if that has several datagrams.
    pub(super) segment: Option<Segment>,
}

/// What one call of the core led to.
#[derive(Debug, Default)]
pub(super) struct Turn {
    pub(super) events: Vec<Event>,
    pub(super) sealed: Vec<(RunSeal, PacketNumber, Profile)>,
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
            engine: engine(id, Instant::ZERO, &secret, 0, holding, Bonding::default()),
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
        let now = self.clock(now_ns);
        self.engine = engine(self.id, now, &self.secret, seed, self.holding, bonding);
        self.power = Power::On;
        self.sockets.clear();
        if self.id.is_gateway() {
            let any = SocketAddr::new(IpAddr::from([0; 4]), PORT);
            self.sockets.insert(LISTENING, (0, any));
        }
    }

    /// The node, for questions about its state.
    pub(super) const fn node(&self) -> &Node {
        self.engine.node()
    }

    /// Runs stages of the engine and returns everything that they led to.
    pub(super) fn turn(&mut self, now_ns: u64, stages: impl FnOnce(&mut MemoryEngine)) -> Turn {
        self.engine.clock.now = self.clock(now_ns);
        stages(&mut self.engine);
        self.engine.hand_over();
        let mut turn = Turn {
            events: std::mem::take(&mut self.engine.events),
            sealed: std::mem::take(&mut self.engine.sockets.sealed),
            inner: std::mem::take(&mut self.engine.device.written),
            ..Turn::default()
        };
        for event in &turn.events {
            if let Event::OpenSocket { socket, link, local, stream: None } = event {
                self.open(*socket, *link, *local);
            }
        }
        for sent in std::mem::take(&mut self.engine.sockets.sent) {
            self.leave(sent, &mut turn);
        }
        for event in &turn.events {
            if let Event::CloseSocket { socket } = event {
                self.sockets.remove(socket);
            }
        }
        turn
    }

    /// Finds the card that sends a datagram, unless the kernel would refuse the datagram.
    fn leave(&self, sent: Sent, turn: &mut Turn) {
        let Sent { route, bound, datagram: payload, segment } = sent;
        if route.socket.transport() == Transport::Stream {
            turn.by_streams.push((route.socket, payload));
            return;
        }
        let Some(&(card, local)) = self.sockets.get(&route.socket).filter(|_| bound.is_some())
        else {
            turn.not_open.push(route.socket);
            return;
        };
        let source = self.source(card, local, route.local, route.remote);
        turn.sends.extend(source.map(|(link, access, from)| {
            let to = route.remote;
            Outgoing { link, access, from, to, payload, segment }
        }));
    }

    /// The timer that is due although its time has just been given; a fault of the core.
    pub(super) fn still_due(&self) -> Option<String> {
        let (at, reason) = self.engine.overdue()?;
        Some(format!("{reason:?} at {at:?}, now {:?}", self.engine.clock.now))
    }

    /// When the core wants to be woken, in world time; never while the machine does not run.
    pub(super) fn wake_ns(&self) -> Option<u64> {
        if self.power != Power::On {
            return None;
        }
        let (at, _) = self.engine.due()?;
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
        if self.id.is_gateway() {
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

    /// The access network that a card is in.
    pub(super) fn access_of(&self, card: usize) -> Option<usize> {
        self.cards[card].as_ref().map(|card| card.access)
    }

    /// The access network that a link leads to.
    pub(super) fn access_by(&self, link: emu::LinkId) -> Option<usize> {
        let mut cards = self.cards.iter().flatten();
        cards.find(|card| card.link == link).map(|card| card.access)
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

fn engine(
    id: HostId,
    now: Instant,
    secret: &StaticSecret,
    seed: u64,
    holding: Holding,
    (mode, scheduler, recovery, spread): Bonding,
) -> MemoryEngine {
    let config = Config {
        secret: secret.clone(),
        floor: holding.ciphers.asked_by(id),
        sealing: holding.ciphers.sealing(),
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
        saving: holding.saving(),
        judges_offload: holding.judges_offload,
        features: holding.features(),
        ablation: holding.ablation,
    };
    let node = Node::new(now, config, Box::new(SeededRng::new(seed)), FIRST_SOCKET);
    let listening = id.is_gateway().then_some((LISTENING, IpAddr::from([0; 4])));
    MemoryEngine::in_memory(node, now, listening)
}
