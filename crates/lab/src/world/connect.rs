//! Connections in a world of random operations: what runs over them, and that what was promised to
//! their ends happens once trouble is over.
//!
//! Limits: both ends are patient ([`Config`] as Linux has it), and no program closes before all is
//! said. A connection that has not ended by the end of a [`super::Op::Settle`] is given up there by
//! both ends: what comes after wants idle links.

use super::connections::{self, Party, Program, Reading, Saying};
use super::engine::World;
use super::host::Power;
use super::laws::{Breach, Law, check_promise};
use super::op::{CLIENTS_MAX, Network, Op};
use crate::emu::{Carrier, MS, Rng, SECOND};
use crate::ground::Pace;
use crate::tcp::{Config, CongestionControl, KeepAlive};

/// Connections that are opened in one world.
const OPENED_MAX: u32 = 6;
/// Addresses of the server, to which they are opened in turn.
pub(super) const SERVERS: u8 = 3;
/// Bytes of a piece where it is not all said at once.
const PIECE: u32 = 1_000;
/// What reads slowly: so many bytes, so often, from a buffer of that size.
const SIP: (usize, u64, u64) = (4_000, 20 * MS, 64 << 10);
/// How an end asks whether the other one is there.
const KEEP_ALIVE: KeepAlive =
    KeepAlive { idle_ns: 60 * SECOND, interval_ns: 10 * SECOND, probes: 5 };
/// How long connections have, once everybody is reachable, to come to their end: the longest one
/// takes half of it, and the longest retransmission timeout is 120 s.
const ENDS_WITHIN_NS: u64 = 300 * SECOND;
/// And nodes afterwards, until they owe nothing.
const RESTS_WITHIN_NS: u64 = 120 * SECOND;

/// What runs over a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Talk {
    /// Bytes that the client says.
    pub up: u32,
    /// Bytes that the server says.
    pub down: u32,
    /// Milliseconds between two pieces of them; 0 for as fast as TCP takes it.
    pub every_ms: u16,
    /// How both ends control congestion.
    pub congestion: CongestionControl,
    /// Whether both probe a silent peer.
    pub keeps_alive: bool,
    /// Whether both read slowly, from a small buffer.
    pub sips: bool,
}

impl Talk {
    /// One by chance, which takes at most 130 seconds on a good network.
    pub(super) fn draw(rng: &mut Rng) -> Self {
        use CongestionControl::{Bbr, Cubic, Reno};
        let every_ms = [0, 0, 20, 200, 1_000][rng.below(5) as usize];
        let most = [1, 3_000, 100_000, if every_ms == 0 { 1_000_000 } else { 100_000 }];
        let mut some = || {
            let kind = rng.below(4) as usize;
            1 + rng.below(most[kind]) as u32
        };
        let (up, down) = (some(), some());
        let (up, down) = [(up, 0), (0, down), (up, down)][rng.below(3) as usize];
        let congestion = [Reno, Cubic, Bbr][rng.below(3) as usize];
        let (keeps_alive, sips) = (rng.chance(0.4), rng.chance(0.3));
        Self { up, down, every_ms, congestion, keeps_alive, sips }
    }

    const fn pace(&self) -> Pace {
        match self.every_ms {
            0 => Pace::Full,
            ms => Pace::Pieces { bytes: PIECE, every_ns: ms as u64 * MS },
        }
    }

    /// An end, whose program says the stream of a seed and expects that of another.
    fn party(&self, config: Config, says: (u64, u32), expects: (u64, u32)) -> Party {
        let keep_alive = self.keeps_alive.then_some(KEEP_ALIVE);
        let mut config = Config { congestion: self.congestion, keep_alive, ..config };
        let saying = (says.1 > 0).then(|| Saying::new(says.0, says.1.into(), self.pace()));
        let expected = (expects.1 > 0).then(|| (expects.0, expects.1.into()));
        let mut carrier = connections::Carrier::new(saying, expected);
        if self.sips {
            let (most, every_ns, buffer) = SIP;
            config.receive_buffer = buffer;
            carrier = carrier.reading(Reading::sips(most, every_ns));
        }
        Party { config, program: Program::Carrier(carrier) }
    }
}

/// Puts connections among the operations of some seeds, most with a gap in their way, and leaves
/// the others what they are.
pub(super) fn strew(seed: u64, ops: &mut Vec<Op>) {
    let mut rng = Rng::new(seed).fork(0x7463_706f);
    if rng.chance(0.6) {
        return;
    }
    for _ in 0..=rng.below(3) {
        let at = rng.below(ops.len() as u64) as usize;
        let gap = if rng.chance(0.8) { gap(&mut rng) } else { Vec::new() };
        ops.splice(at..at, [Op::connect(&mut rng)].into_iter().chain(gap));
    }
}

/// Everybody's first access carries nothing for a while, or until trouble ends.
fn gap(rng: &mut Rng) -> Vec<Op> {
    let all = |carrier| {
        let of = move |client| Op::Network(Network::Carrier { client, access: client, carrier });
        (0..CLIENTS_MAX).map(of)
    };
    let [soon, later] = [[20, 200, 1_000], [3_000, 30_000, 300_000]]
        .map(|ms| Op::Wait { ms: ms[rng.below(3) as usize] });
    let carriers = [Carrier::Down, Carrier::BlackHole, Carrier::BlackHole];
    let mut ops = vec![soon];
    ops.extend(all(carriers[rng.below(3) as usize]));
    ops.push(later);
    if rng.chance(0.7) {
        ops.extend(all(Carrier::Up));
    }
    ops
}

impl World {
    /// A client opens a connection to the server, unless there were many.
    pub(super) fn connect(&mut self, client: usize, talk: Talk) {
        let number = self.connections.opened();
        if number >= OPENED_MAX || self.hosts[client + 1].power != Power::On {
            return;
        }
        let seed = u64::from(number) << 1;
        let (up, down) = ((seed, talk.up), (seed + 1, talk.down));
        #[expect(clippy::cast_possible_truncation, reason = "less than SERVERS")]
        let server = (number % u32::from(SERVERS)) as u8;
        self.open_connection((client, server), |[of_client, of_server]| {
            [talk.party(of_client, up, down), talk.party(of_server, down, up)]
        });
    }

    /// Trouble is over: connections go on to their end, and nobody is left who believes what did
    /// not happen.
    pub(super) fn promises_are_kept(&mut self) -> Result<(), Breach> {
        if !self.connections.were_any() {
            return Ok(());
        }
        let end_ns = self.now_ns + ENDS_WITHIN_NS;
        while self.now_ns < end_ns && (self.connections.any_goes_on() || self.is_unsure()) {
            self.advance(SECOND)?;
        }
        self.connections.promised().try_for_each(|promised| check_promise(&promised))?;
        self.connections.abort_all(self.now_ns);
        let end_ns = self.now_ns + RESTS_WITHIN_NS;
        while self.now_ns < end_ns && (self.connections.next_ns().is_some() || self.owed.any()) {
            self.advance(SECOND)?;
        }
        match self.owed.first() {
            Some(line) => {
                let s = RESTS_WITHIN_NS / SECOND;
                let what = format!("{line} is still written down after {s} s");
                Err(Breach::new(Law::Promise, what))
            }
            None => Ok(()),
        }
    }

    fn is_unsure(&self) -> bool {
        self.connections.promised().any(|promised| check_promise(&promised).is_err())
    }
}
