//! Datagrams that something begins with: questions to a name server (RFC 1035) and the first
//! packets of QUIC connections (RFC 9000, 17.2.2; RFC 9369). Who sent one waits for seconds before
//! he sends it again, and an application for as long: so a copy is kept until it is answered, and
//! what has no answer when the way is lost, or is asked while there is none, goes out again as soon
//! as there is one.
//!
//! A question that was heard and whose answer was lost is heard twice, which neither of the two
//! protocols minds. Everything else that is sent by UDP is not kept: calls and games have no use
//! for what is late, and everybody else repeats it. Nor are fragments.
//!
//! Few, and not for long: the newest takes the place of the same question, a flight that of the one
//! before it, and what is too old for anybody to wait for it is forgotten. Nothing of a flow goes
//! before a question of the same flow that waits.

use std::collections::VecDeque;

use super::memory::Memory;
use crate::error::DropReason;
use crate::flow::classify::Class;
use crate::flow::rules::{Hold, Rules};
use crate::flow::tuple::{Direction, Tuple};
use crate::time::{Duration, Instant};
use crate::wire::inner::{InnerPacket, Pieces};

/// Questions that are kept of one session: those of a browser that opens a dozen pages,
const QUESTIONS_MAX: usize = 64;
/// and their bytes.
const BYTES_MAX: usize = 1 << 16;
/// How long a question for a name is kept: after this it was asked again, perhaps of another
/// server and under another number (`RES_TIMEOUT` of glibc and musl's `timeout`, 5 s).
const NAME_TIME: Duration = Duration::from_secs(5);
/// How long the beginning of a connection is kept: who has no answer repeats it after 1, 2 and 4 s
/// (RFC 9002, 6.2), and gives up or is given up before the next time.
const CONNECTION_TIME: Duration = Duration::from_secs(8);
/// What leaves within this time is one flight, which is kept as a whole: the greeting with a
/// post-quantum key needs two datagrams.
const FLIGHT_TIME: Duration = Duration::from_millis(50);
/// Datagrams of one flight.
const FLIGHT_MAX: usize = 4;

/// The port of name servers.
const NAMES: u16 = 53;
/// A DNS header and the shortest question: the root, a type, a class.
const QUERY_MIN: usize = 12 + 5;
/// A datagram with an Initial packet is at least so long (RFC 9000, 14.1).
const INITIAL_MIN: usize = 1_200;
/// Versions of QUIC, each with the bits of an Initial packet's first byte that say that it is one:
/// the long form and the type. The fixed bit may be any (RFC 9287).
const INITIALS: [([u8; 4], u8); 2] = [([0, 0, 0, 1], 0x80), ([0x6b, 0x33, 0x43, 0xcf], 0x90)];
const INITIAL_BITS: u8 = 0xb0;

/// The questions of one session that have no answer.
#[derive(Debug, Default)]
pub(in crate::flow) struct Questions {
    /// In the order in which they were asked.
    list: VecDeque<Question>,
    bytes: usize,
    /// How many are to be sent when there is a way.
    waiting: usize,
    /// When all of them will be too old.
    until: Option<Instant>,
    /// What never left, to be told of: too old, or with no room behind what it would have
    /// overtaken,
    late: u32,
    /// and pushed out by others.
    crowded: u32,
}

#[derive(Debug)]
struct Question {
    key: Key,
    at: Instant,
    standing: Standing,
    packet: Vec<u8>,
}

/// What is the same of a question and its repetition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Key {
    tuple: Tuple,
    asks: Asks,
}

/// What a datagram asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Asks {
    /// A name, under a number.
    Name(u16),
    /// A QUIC connection.
    Connection,
}

/// Whether a question was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Standing {
    /// Never; it waits.
    New,
    /// By a way that was not lost since.
    Sent,
    /// By a way that was lost since: it waits.
    Lost,
    /// The same, and again at that time.
    Repeated(Instant),
}

impl Questions {
    /// A packet that is no TCP segment, from the TUN. Returns whether it is to be sent now.
    pub(crate) fn outgoing(
        &mut self,
        now: Instant,
        memory: &mut Memory,
        rules: &Rules,
        packet: &InnerPacket<'_>,
        is_up: bool,
    ) -> bool {
        let key = Key::of(packet).filter(|key| key.is_kept(rules));
        if key.is_none() && self.waiting == 0 {
            return true;
        }
        let overtakes = self.waiting > 0
            && Tuple::of(&packet.headers, Direction::Out).is_some_and(|tuple| {
                self.list.iter().any(|question| question.waits() && question.key.tuple == tuple)
            });
        let waits = overtakes || !is_up;
        let standing = if waits { Standing::New } else { Standing::Sent };
        let kept = key.is_some_and(|key| self.keep(now, memory, key, standing, packet.pieces));
        match (kept, overtakes) {
            (true, _) => !waits,
            (false, true) => {
                self.late += 1;
                false
            }
            (false, false) => true,
        }
    }

    /// A packet from the tunnel: it may be an answer.
    pub(crate) fn answered(&mut self, memory: &mut Memory, packet: &InnerPacket<'_>) {
        let headers = &packet.headers;
        let Some(ports) = headers.ports.filter(|_| packet.is_udp()) else { return };
        let ends = |question: &Question| (question.key.tuple.remote.1, question.key.tuple.local.1);
        if self.list.iter().all(|question| ends(question) != ports) {
            return;
        }
        let Some(tuple) = Tuple::of(headers, Direction::In) else { return };
        let name = packet.datagram().and_then(|(payload, _)| answered_name(payload));
        self.forget(memory, |question| {
            let answers = match question.key.asks {
                Asks::Name(number) => name == Some(number),
                Asks::Connection => true,
            };
            question.key.tuple == tuple && answers
        });
    }

    /// The way is lost, and with it what has no answer. Returns whether anybody waits.
    pub(crate) fn suspend(&mut self, now: Instant, memory: &mut Memory) -> bool {
        self.expire(now, memory);
        for question in &mut self.list {
            question.standing = match question.standing {
                Standing::New => Standing::New,
                Standing::Sent | Standing::Lost | Standing::Repeated(_) => Standing::Lost,
            };
        }
        self.count();
        self.waiting > 0
    }

    /// When [`Self::poll`] has to be asked: what is due while there is a way is due at once.
    pub(crate) fn due(&self, is_up: bool) -> Option<Instant> {
        if is_up && self.waiting > 0 { Some(Instant::ZERO) } else { self.until }
    }

    /// Appends the next question that leaves now to `out`, if there is one.
    pub(crate) fn poll(
        &mut self,
        now: Instant,
        memory: &mut Memory,
        is_up: bool,
        out: &mut Vec<u8>,
    ) -> bool {
        if self.due(is_up).is_none_or(|due| due > now) {
            return false;
        }
        self.expire(now, memory);
        let next = self.list.iter_mut().find(|question| question.waits());
        let Some(question) = next.filter(|_| is_up) else { return false };
        out.extend_from_slice(&question.packet);
        question.standing = match question.standing {
            Standing::New => Standing::Sent,
            Standing::Lost | Standing::Sent | Standing::Repeated(_) => Standing::Repeated(now),
        };
        self.count();
        true
    }

    /// Whether a packet that left at `left_at` by a path that is dead is sent again from here.
    pub(crate) fn sends_again(&self, left_at: Instant, packet: &InnerPacket<'_>) -> bool {
        let Some(key) = Key::of(packet) else { return false };
        self.list.iter().filter(|known| known.key == key).any(|known| match known.standing {
            Standing::New | Standing::Lost => true,
            Standing::Repeated(at) => left_at < at,
            Standing::Sent => false,
        })
    }

    /// How many wait until there is a way.
    pub(crate) const fn waiting(&self) -> usize {
        self.waiting
    }

    /// Whether none is kept.
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Why something was given up that was kept, or not sent; to be asked until there is none.
    pub(crate) fn poll_drop(&mut self) -> Option<DropReason> {
        if self.late > 0 {
            self.late -= 1;
            return Some(DropReason::NoRoute);
        }
        self.crowded = self.crowded.checked_sub(1)?;
        Some(DropReason::QueueFull)
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self, memory: &mut Memory) {
        memory.give_back(self.bytes);
        *self = Self { late: self.late, crowded: self.crowded, ..Self::default() };
    }

    /// Keeps a question, in the place of the same one asked before. Returns whether there is room.
    fn keep(
        &mut self,
        now: Instant,
        memory: &mut Memory,
        key: Key,
        standing: Standing,
        packet: Pieces<'_>,
    ) -> bool {
        self.expire(now, memory);
        self.forget(memory, |known| {
            let older = match key.asks {
                Asks::Name(_) => true,
                Asks::Connection => known.at + FLIGHT_TIME <= now,
            };
            older && known.key == key
        });
        if self.list.iter().filter(|known| known.key == key).count() >= FLIGHT_MAX {
            return false;
        }
        let len = packet.len();
        while self.list.len() >= QUESTIONS_MAX || self.bytes + len > BYTES_MAX {
            let Some(oldest) = self.list.pop_front() else { break };
            self.crowded += u32::from(oldest.standing == Standing::New);
            self.bytes -= oldest.packet.len();
            memory.give_back(oldest.packet.len());
        }
        let fits = memory.take(self.bytes, len).is_ok();
        if fits {
            let mut bytes = Vec::with_capacity(len);
            packet.copy_to(&mut bytes);
            let question = Question { key, at: now, standing, packet: bytes };
            self.bytes += len;
            self.until = self.until.max(Some(question.expires()));
            self.list.push_back(question);
        }
        self.count();
        fits
    }

    /// Forgets what nobody waits for any more.
    fn expire(&mut self, now: Instant, memory: &mut Memory) {
        let late = |question: &Question| question.expires() <= now;
        let unsent = |question: &&Question| late(question) && question.standing == Standing::New;
        let unsent = self.list.iter().filter(unsent).count();
        self.late += u32::try_from(unsent).unwrap_or(u32::MAX);
        self.forget(memory, late);
    }

    fn forget(&mut self, memory: &mut Memory, what: impl Fn(&Question) -> bool) {
        let before = self.bytes;
        let bytes = &mut self.bytes;
        self.list.retain(|question| {
            let goes = what(question);
            if goes {
                *bytes -= question.packet.len();
            }
            !goes
        });
        memory.give_back(before - self.bytes);
        self.count();
    }

    /// Works out what follows from the list.
    fn count(&mut self) {
        self.waiting = self.list.iter().filter(|question| question.waits()).count();
        if self.list.is_empty() {
            self.list = VecDeque::new();
            self.until = None;
        }
    }
}

impl Question {
    const fn waits(&self) -> bool {
        matches!(self.standing, Standing::New | Standing::Lost)
    }

    /// When nobody waits for it any more.
    fn expires(&self) -> Instant {
        self.at
            + match self.key.asks {
                Asks::Name(_) => NAME_TIME,
                Asks::Connection => CONNECTION_TIME,
            }
    }
}

impl Key {
    /// What a packet asks for; `None` for all that is not kept.
    fn of(packet: &InnerPacket<'_>) -> Option<Self> {
        let headers = &packet.headers;
        let (_, port) = headers.ports.filter(|_| packet.is_udp())?;
        let (payload, len) = packet.datagram()?;
        let asks = if port == NAMES {
            Asks::Name(asked_name(payload)?)
        } else if len >= INITIAL_MIN && is_initial(payload) {
            Asks::Connection
        } else {
            return None;
        };
        let tuple = Tuple::of(headers, Direction::Out).filter(|_| packet.is_whole_datagram())?;
        Some(Self { tuple, asks })
    }

    /// Whether anything is to be done for it.
    fn is_kept(&self, rules: &Rules) -> bool {
        let class = match self.asks {
            Asks::Name(_) => Class::Names,
            Asks::Connection => Class::Bulk,
        };
        rules.choose(&self.tuple, class).hold != Hold::Off
    }
}

/// The number of a question for a name: a header that says that it is one, of the usual kind.
fn asked_name(payload: &[u8]) -> Option<u16> {
    let &[high, low, flags, _, questions_high, questions_low, ..] = payload else { return None };
    let asks = flags & 0xf8 == 0 && (questions_high, questions_low) != (0, 0);
    (asks && payload.len() >= QUERY_MIN).then_some(u16::from_be_bytes([high, low]))
}

/// The number of the question that this answers.
fn answered_name(payload: &[u8]) -> Option<u16> {
    let &[high, low, flags, ..] = payload else { return None };
    (flags & 0x80 != 0).then_some(u16::from_be_bytes([high, low]))
}

fn is_initial(payload: &[u8]) -> bool {
    let Some((&first, rest)) = payload.split_first() else { return false };
    INITIALS
        .iter()
        .any(|(version, bits)| first & INITIAL_BITS == *bits && rest.starts_with(version))
}

#[cfg(test)]
#[path = "datagrams_tests.rs"]
mod tests;
