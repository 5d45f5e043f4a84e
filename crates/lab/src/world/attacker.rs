//! The attacker: on every wire, with an address of its own and everybody else's when it sends.
//!
//! It cannot break keys. It sees all, keeps the latest of it, and may drop, delay, redirect,
//! repeat, alter and make up datagrams. What it never does here is to relay in both directions
//! at once: a relay *is* a path, and no protocol can tell.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::OnceLock;

use rove_proto::crypto::{
    Features, Floor, Hello, Initiator, MessagePair, SeededRng, StaticSecret, Token,
};
use rove_proto::id::{PeerKey, SessionIndex};

use super::addresses::{GATEWAYS_MAX, bystander, gateway_of};
use super::host_id::HostId;
use super::op::{Intercept, Way};
use crate::emu::{Datagram, MS, Rng, SECOND};

/// Datagrams that it remembers.
const RECORDED_MAX: usize = 600;
/// How long after a reflection nothing is redirected: both together would be a relay.
const NO_RELAY: u64 = 30 * SECOND;
/// Where each kind of datagram has its session index (docs/spec/wire.md#1-datagrams).
const INDEX: Range<usize> = 1..5;
/// Well-formed first halves made once for all worlds: each costs some 150 us.
const FLOOD_MESSAGES: u64 = 160;

/// What becomes of a datagram that a host sends.
#[derive(Debug)]
pub(super) enum Fate {
    /// It goes its way.
    Passes,
    /// It does not.
    Vanishes,
    /// It goes later.
    Held {
        /// How much later.
        by_ns: u64,
    },
    /// This one comes first, from elsewhere; then what the other fate says.
    Redirected {
        /// The copy.
        copy: Datagram,
        /// When the original goes, if it does.
        original_after_ns: Option<u64>,
    },
}

/// A session as it is seen on the wire.
#[derive(Clone, Copy, Debug)]
pub(super) struct Session {
    /// The gateway's number.
    pub(super) gateway: usize,
    /// Where the gateway is.
    pub(super) at: SocketAddr,
    /// Where the gateway reaches the client, if it does.
    pub(super) client: Option<SocketAddr>,
}

/// The attacker.
#[derive(Debug)]
pub(super) struct Attacker {
    address: SocketAddr,
    /// It is not there, and remembers nothing.
    is_away: bool,
    recorded: VecDeque<Datagram>,
    /// What gateways sent to the attacker's own address.
    caught: VecDeque<Datagram>,
    task: Option<Task>,
    reflected_ns: Option<u64>,
    /// Strangers that have asked to be enrolled.
    strangers: u32,
}

#[derive(Clone, Copy, Debug)]
struct Task {
    client: HostId,
    way: Way,
    how: Intercept,
    left: u16,
}

impl Attacker {
    pub(super) fn new() -> Self {
        Self {
            address: SocketAddr::new(bystander(66), 666),
            is_away: false,
            recorded: VecDeque::new(),
            caught: VecDeque::new(),
            task: None,
            reflected_ns: None,
            strangers: 0,
        }
    }

    /// From now on is not there: what it remembers of each datagram costs more than most laws.
    pub(super) const fn go_away(&mut self) {
        self.is_away = true;
    }

    /// From now on interferes with the next datagrams of a client.
    pub(super) const fn intercept(&mut self, client: HostId, way: Way, how: Intercept, left: u16) {
        self.task = Some(Task { client, way, how, left });
    }

    /// From now on is what it never is elsewhere: half of a relay, the other being [`reflect`].
    ///
    /// [`reflect`]: Self::reflect
    #[cfg(test)]
    pub(super) const fn relay(&mut self, client: HostId) {
        self.reflected_ns = None;
        self.intercept(client, Way::Up, Intercept::Move, u16::MAX);
    }

    /// What it remembers, the latest last.
    #[cfg(test)]
    pub(super) fn recorded(&self) -> impl DoubleEndedIterator<Item = &Datagram> {
        self.recorded.iter()
    }

    /// Leaves everybody alone.
    pub(super) const fn rest(&mut self) {
        self.task = None;
    }

    /// A datagram passes; `client` is the client that it comes from or goes to.
    pub(super) fn sees(
        &mut self,
        now_ns: u64,
        client: Option<HostId>,
        way: Way,
        datagram: &Datagram,
    ) -> Fate {
        self.record(datagram);
        let Some(task) = &mut self.task else { return Fate::Passes };
        if Some(task.client) != client || task.way != way || task.left == 0 {
            return Fate::Passes;
        }
        task.left -= 1;
        let reflects = self.reflected_ns.is_some_and(|at| now_ns < at + NO_RELAY);
        let redirects = way == Way::Up && !reflects;
        let copy = || Datagram { source: self.address, ..datagram.clone() };
        match task.how {
            Intercept::Drop => Fate::Vanishes,
            Intercept::Hold { ms } => Fate::Held { by_ns: u64::from(ms) * MS },
            Intercept::Move if redirects => {
                Fate::Redirected { copy: copy(), original_after_ns: None }
            }
            Intercept::Race if redirects => {
                Fate::Redirected { copy: copy(), original_after_ns: Some(50 * MS) }
            }
            Intercept::Move | Intercept::Race => Fate::Passes,
        }
    }

    /// A segment of a stream passes, of which it takes or holds whole ones: to write into a stream
    /// is no more than to send datagrams.
    pub(super) fn meets(&mut self, client: Option<HostId>, way: Way) -> Fate {
        let Some(task) = &mut self.task else { return Fate::Passes };
        if Some(task.client) != client || task.way != way || task.left == 0 {
            return Fate::Passes;
        }
        task.left -= 1;
        match task.how {
            Intercept::Drop => Fate::Vanishes,
            Intercept::Hold { ms } => Fate::Held { by_ns: u64::from(ms) * MS },
            Intercept::Move | Intercept::Race => Fate::Passes,
        }
    }

    /// Remembers a datagram as it looks on the wire.
    pub(super) fn record(&mut self, datagram: &Datagram) {
        if self.is_away {
            return;
        }
        if self.recorded.len() >= RECORDED_MAX {
            self.recorded.pop_front();
        }
        self.recorded.push_back(datagram.clone());
    }

    /// A datagram reached an address of the attacker's.
    pub(super) fn catches(&mut self, datagram: Datagram) {
        if datagram.destination == self.address && self.caught.len() < RECORDED_MAX {
            self.caught.push_back(datagram);
        }
    }

    /// What was caught, on its way to where the gateway last sent for the client.
    pub(super) fn reflect(&mut self, now_ns: u64, client: SocketAddr) -> Vec<Datagram> {
        if matches!(self.task, Some(Task { how: Intercept::Move | Intercept::Race, .. })) {
            self.task = None;
        }
        self.reflected_ns = Some(now_ns);
        let caught = std::mem::take(&mut self.caught);
        caught.into_iter().map(|datagram| Datagram { destination: client, ..datagram }).collect()
    }

    /// Some of what was recorded, again.
    pub(super) fn replay(
        &self,
        now_ns: u64,
        count: u16,
        own_address: bool,
        altered: bool,
        chance: u64,
    ) -> Vec<Datagram> {
        let mut rng = Rng::new(chance);
        let reflects = self.reflected_ns.is_some_and(|at| now_ns < at + NO_RELAY);
        let mut again = |_| {
            let pick = rng.below(self.recorded.len() as u64) as usize;
            let mut datagram = self.recorded.get(pick).cloned()?;
            if own_address && !reflects {
                datagram.source = self.address;
            }
            if altered {
                for _ in 0..=rng.below(3) {
                    let bit = rng.below(datagram.payload.len().max(1) as u64 * 8) as usize;
                    datagram.payload[bit / 8] ^= 1 << (bit % 8);
                }
            }
            Some(datagram)
        };
        (0..count).filter_map(&mut again).collect()
    }

    /// Some of what was recorded of one gateway's sessions, in the place of another gateway's: from
    /// its client as it was and to the other gateway, or from the other gateway to its client. Half
    /// of it has an index that was seen of the other gateway's sessions.
    pub(super) fn cross(&self, sessions: &[Session], count: u16, chance: u64) -> Vec<Datagram> {
        let mut rng = Rng::new(chance);
        let mut crossed = |_| {
            let mut datagram = self.recorded_by_chance(&mut rng)?.clone();
            let up = gateway_of(datagram.destination.ip());
            let own = up.or_else(|| gateway_of(datagram.source.ip()))?;
            let others: Vec<_> = sessions.iter().filter(|other| other.gateway != own).collect();
            let other = others.get(rng.below(others.len().max(1) as u64) as usize)?;
            match up {
                Some(_) => datagram.destination = other.at,
                None => (datagram.source, datagram.destination) = (other.at, other.client?),
            }
            if rng.chance(0.5) {
                let seen = self.recorded_by_chance(&mut rng).filter(|seen| {
                    let at = if up.is_some() { seen.destination } else { seen.source };
                    gateway_of(at.ip()) == Some(other.gateway)
                });
                let index = seen.and_then(|seen| seen.payload.get(INDEX));
                if let (Some(index), Some(place)) = (index, datagram.payload.get_mut(INDEX)) {
                    place.copy_from_slice(index);
                }
            }
            Some(datagram)
        };
        (0..count).filter_map(&mut crossed).collect()
    }

    fn recorded_by_chance(&self, rng: &mut Rng) -> Option<&Datagram> {
        self.recorded.get(rng.below(self.recorded.len().max(1) as u64) as usize)
    }

    /// Noise that looks like datagrams of every kind.
    pub(super) fn garbage(&self, to: SocketAddr, count: u16, chance: u64) -> Vec<Datagram> {
        let mut rng = Rng::new(chance);
        let mut noise = |_| {
            let len = [0, 1, 26, 27, 60, 1_232, 1_472, 1_473][rng.below(8) as usize];
            let mut payload = vec![0; len];
            rng.fill(&mut payload);
            if let Some(first) = payload.first_mut() {
                *first = [1, 2, 3, 4, 5, 0x10, 0x10, 0x10][rng.below(8) as usize];
            }
            // A session index that is in use makes it look right as far as can be seen.
            if let Some(seen) = self.recorded_by_chance(&mut rng)
                && let (Some(index), Some(place)) =
                    (seen.payload.get(INDEX), payload.get_mut(INDEX))
            {
                place.copy_from_slice(index);
            }
            Datagram { source: self.address, destination: to, payload }
        };
        (0..count).map(&mut noise).collect()
    }

    /// A whole handshake by somebody whom nobody knows, another one each time.
    pub(super) fn stranger(
        &mut self,
        gateway: PeerKey,
        to: SocketAddr,
        token: Token,
    ) -> Vec<Datagram> {
        self.strangers += 1;
        let mut rng = SeededRng::new(0x57a6_0000 + u64::from(self.strangers));
        let source = SocketAddr::new(bystander(self.strangers), 1_024);
        let messages = by_nobody(&mut rng, gateway, 1, Some(token));
        let halves = messages.into_iter().flat_map(|MessagePair { a, b }| [a, b]);
        halves.map(|payload| Datagram { source, destination: to, payload }).collect()
    }

    /// Well-formed first halves of handshakes by nobody with the gateway of this number and key,
    /// each from another address.
    pub(super) fn flood(
        gateway: (usize, PeerKey),
        to: SocketAddr,
        messages: u16,
        chance: u64,
    ) -> Vec<Datagram> {
        let mut rng = Rng::new(chance);
        let halves = first_halves(gateway);
        let mut half = |_| {
            let source = SocketAddr::new(bystander(rng.below(1 << 24) as u32), 1_024);
            let payload = halves.get(rng.below(halves.len() as u64) as usize)?.clone();
            Some(Datagram { source, destination: to, payload })
        };
        (0..messages).filter_map(&mut half).collect()
    }
}

/// First halves that pass a gateway's first check: whoever knows its public key can make them. A
/// gateway has the same key in every world, so they are made once.
fn first_halves((number, gateway): (usize, PeerKey)) -> &'static [Vec<u8>] {
    static HALVES: [OnceLock<Vec<Vec<u8>>>; GATEWAYS_MAX] =
        [const { OnceLock::new() }; GATEWAYS_MAX];
    HALVES[number].get_or_init(|| {
        let mut rng = SeededRng::new(0xf100d);
        let half = |counter| by_nobody(&mut rng, gateway, counter, None).map(|messages| messages.a);
        (1..=FLOOD_MESSAGES).filter_map(half).collect()
    })
}

/// Both halves of a handshake with a key that was made for it.
fn by_nobody(
    rng: &mut SeededRng,
    gateway: PeerKey,
    counter: u64,
    token: Option<Token>,
) -> Option<MessagePair> {
    let secret = StaticSecret::generate(rng);
    let indices = std::array::from_fn(|i| SessionIndex(i as u32 + 1));
    let hello = Hello {
        counter,
        features: Features::NONE,
        floor: Floor::BITS_128,
        has_aes: true,
        token,
        indices,
    };
    let started = Initiator::start(rng, &secret, gateway, None, &hello);
    started.ok().map(|(_, messages)| messages)
}
