//! The simulated world: production nodes, emulated networks, an attacker, and a clock that is told
//! what time it is.
//!
//! A run is a seed and a list of operations ([`Op`]): send, lose, move, sleep, restart, replay.
//! After every event the laws ([`Law`]) are checked against a reference model that sees what no
//! node sees. A breach is a [`Failure`]: the operations that lead to it, made few by [`shrink`],
//! which anyone can replay, because nothing depends on anything but the seed. Clients know of
//! streams from the first operation on that is about them: what UDP has to manage by itself is seen
//! in the other runs.
//!
//! What it decides: who is where, what happens to datagrams, what the shells do. What it refuses
//! to know: a node's private state. It drives the same engine as the daemon and looks at the same
//! status. Its limits: time passes only between calls, so nothing is learned about
//! speed of code; and a client belongs to one gateway for good.

mod addresses;
mod agenda;
mod attacker;
mod busy;
mod ciphers;
mod client;
mod connections;
mod crowd;
mod directory;
mod engine;
mod exchange;
mod gateway;
mod hash;
mod host;
mod host_id;
mod hunt;
mod inner;
mod journey;
mod laws;
mod marks;
mod offload;
mod op;
mod owed;
mod parcel;
mod place;
mod road;
mod standby;
mod store;
mod streams;
mod talk;
mod traffic;
mod wakes;
mod watch;

use std::collections::BTreeMap;
use std::fmt;

pub use hunt::{Hunt, hunt, watch};
pub use journey::Journey;
pub use laws::Law;
pub use op::{
    Attack, Found, Intercept, Machine, Network, Op, Overreach, Quality, Way, Whom, decode,
    generate, generate_among,
};
pub use rove_proto::ablation::Heuristic;
pub use rove_proto::flow::Hold;
pub use rove_proto::multipath::scheduler::Scheduler;
pub use rove_proto::multipath::{Manager, Mode, Spread};
pub use rove_proto::path::Saved;
pub use streams::Known as StreamsKnown;
pub use talk::Talk;
pub use watch::Teller;

/// Whether this lab is built to leave out single heuristics of the core.
pub const ABLATES: bool = cfg!(feature = "ablation");

use engine::World;
use laws::Breach;
use watch::Watch;

/// How soon packets get through after trouble has ended, in seconds, besides 2 % of the outage.
pub const BACK_WITHIN: u64 = engine::rest::BACK_WITHIN_NS / crate::emu::SECOND;

/// The most gateways of a world.
pub const GATEWAYS_MAX: u8 = addresses::GATEWAYS_MAX as u8;

/// The operations of one run when nothing else is said.
pub const STEPS: usize = 120;

/// How the nodes of a world save bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Saves {
    /// As where nobody says anything.
    #[default]
    Usual,
    /// By all that there is: headers that stay the same travel once, what is exchanged with the
    /// server is compressed if that pays, and packets share datagrams.
    All,
}

/// What a world is made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// All chance follows from it.
    pub seed: u64,
    /// How its nodes save bytes.
    pub saves: Saves,
    /// Its gateways, each of which has clients of its own: at least one, at most
    /// [`GATEWAYS_MAX`].
    pub gateways: u8,
}

impl From<u64> for Start {
    fn from(seed: u64) -> Self {
        Self { seed, saves: Saves::Usual, gateways: 1 }
    }
}

/// What a run came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// The hash of everything that happened: the same seed gives the same.
    pub trace: u64,
    /// Virtual time that passed, in nanoseconds.
    pub time_ns: u64,
    /// Inner packets handed in.
    pub sent: u32,
    /// Inner packets that came out.
    pub delivered: u32,
    /// Datagrams that nodes sent.
    pub datagrams: u64,
    /// Handshakes that clients began.
    pub handshakes: u64,
    /// The longest time from the end of trouble until everything got through, in nanoseconds.
    pub back_ns: u64,
    /// How often a session went on by another path.
    pub moves: u64,
    /// Streams that came to the gateway.
    pub streams: u32,
    /// Idle hours that were watched.
    pub quiet: u32,
    /// Connections that clients opened.
    pub connections: u32,
    /// How often a node wrote down that it will owe something of one.
    pub promises: u32,
    /// How often a client was told that the gateway refuses a packet.
    pub refused: usize,
    /// What nodes threw away, by the label of the reason.
    pub drops: BTreeMap<&'static str, u64>,
    /// Bytes that were saved in the sessions that stand at the end.
    pub saved: Saved,
}

/// A law was broken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// What the world was made from.
    pub start: Start,
    /// The operation at which it happened, counted from 0.
    pub step: usize,
    /// The operations.
    pub ops: Vec<Op>,
    /// The law.
    pub law: Law,
    /// What was seen.
    pub what: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { start: Start { seed, saves, gateways }, step, ops, law, what } = self;
        if *gateways > 1 {
            write!(f, "{gateways} gateways, ")?;
        }
        let saves = if *saves == Saves::All { " with all savings" } else { "" };
        writeln!(f, "seed {seed}{saves}, operation {step} of {}: {law:?}: {what}", ops.len())?;
        for (number, op) in ops.iter().enumerate() {
            writeln!(f, "  {} {op:?},", if number == *step { ">" } else { " " })?;
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}

/// Makes a world and lets `steps` operations of the same seed happen in it.
///
/// # Errors
/// The first breach of a law.
pub fn run(start: impl Into<Start>, steps: usize) -> Result<Report, Failure> {
    let start = start.into();
    replay(start, &generate_among(start.gateways, start.seed, steps))
}

/// Makes a world and lets `ops` happen in it.
///
/// # Errors
/// The first breach of a law.
pub fn replay(start: impl Into<Start>, ops: &[Op]) -> Result<Report, Failure> {
    go_through(start.into(), ops, Watch::default())
}

/// The same, told line by line.
///
/// # Errors
/// The first breach of a law.
pub fn replay_told(start: Start, ops: &[Op], teller: Teller) -> Result<Report, Failure> {
    go_through(start, ops, Watch::new(teller))
}

fn go_through(start: Start, ops: &[Op], watch: Watch) -> Result<Report, Failure> {
    let fails = |step: usize, breach: Breach| {
        let Breach { law, what } = breach;
        Failure { start, step, ops: ops.to_vec(), law, what }
    };
    let mut world = World::new(start, watch).map_err(|breach| fails(0, breach))?;
    for (step, op) in ops.iter().enumerate() {
        world.watch.tell(world.now_ns, || format!("{op:?}"));
        world.apply(op).map_err(|breach| fails(step, breach))?;
    }
    let (sent, delivered) = world.delivery.totals();
    Ok(Report {
        trace: world.trace.value(),
        time_ns: world.now_ns,
        sent,
        delivered,
        datagrams: world.datagrams,
        handshakes: world.clients.iter().map(|client| client.handshakes.total()).sum(),
        back_ns: world.worst_back_ns,
        moves: world.moves,
        streams: world.streams.accepted(),
        quiet: world.quiet,
        connections: world.connections.opened(),
        promises: world.owed.written(),
        refused: world.delivery.refused(),
        drops: world.drops(),
        saved: saved(&world),
    })
}

/// Bytes that both ends of each session have saved.
fn saved(world: &World) -> Saved {
    let sessions = world.hosts.ids().flat_map(|host| world.statuses(host));
    let mut all = Saved::default();
    sessions.for_each(|(_, status)| all.add(status.saved));
    all
}

/// Leaves out operations, as long as the same law is broken without them: first what came after,
/// then ever smaller parts ("ddmin", Zeller and Hildebrandt, IEEE TSE 2002).
pub fn shrink(failure: Failure) -> Failure {
    let mut best = failure;
    best.ops.truncate(best.step + 1);
    let mut part = best.ops.len().div_ceil(2);
    while part > 0 {
        let mut start = 0;
        while start < best.ops.len() {
            let mut fewer = best.ops.clone();
            fewer.drain(start..(start + part).min(fewer.len()));
            match replay(best.start, &fewer) {
                Err(again) if again.law == best.law => {
                    best = again;
                    best.ops.truncate(best.step + 1);
                }
                Err(_) | Ok(_) => start += part,
            }
        }
        part /= 2;
    }
    best
}
