//! Bytes of a connection were owed when this node's process ended, and nobody has them any more:
//! both ends of it are told that it is over, so that neither believes what is not true.
//!
//! A reset only counts with the number that its receiver expects next (RFC 5961, 3.2), which nobody
//! here remembers. A SYN in the midst of a connection makes its receiver say that number (the same,
//! 4.2): it is asked that way, as if by the other end, and then reset, and asked again, since the
//! reset may be lost. Neither question nor answer reaches the other end. Who refuses has no such
//! connection, nor has who takes the question for the beginning of a new one, or says nothing.

use super::{Connection, Phase, Side, State};
use crate::flow::pep::memory::Memory;
use crate::flow::tuple::Direction;
use crate::flow::verdict::Output;
use crate::time::{Duration, Instant};
use crate::wire::tcp::{Flags, Made, Segment, Seq};

/// How often an end is asked that says nothing, over a minute and three quarters: question and
/// answer may be lost many times in a row.
const TRIES_MAX: u8 = 11;
/// The pause between two questions: Linux answers once in 500 ms (`tcp_invalid_ratelimit`).
const PAUSE: Duration = Duration::from_millis(700);
/// So many follow each other like that; then the pause is twice as long with each,
const TRIES_EAGER: u8 = 4;
/// up to this.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// A connection that is being broken off.
#[derive(Debug)]
pub(in crate::flow) struct Broken {
    local: Progress,
    remote: Progress,
}

/// How far one end is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Progress {
    /// To be asked then, after so many times.
    Ask { at: Instant, tries: u8 },
    /// It has said what it expects next: it is to be reset, and asked again.
    Expects { seq: Seq, tries: u8 },
    /// The same, and nothing more.
    Begins(Seq),
    /// It knows, or there is nobody.
    Done,
}

impl Broken {
    /// Nothing is known of either end.
    pub(in crate::flow) const fn new(now: Instant) -> Self {
        let ask = Progress::Ask { at: now, tries: 0 };
        Self { local: ask, remote: ask }
    }

    /// When something is to be said, while there is a way or is none.
    pub(in crate::flow) fn due(&self, is_up: bool) -> Option<Instant> {
        let due = |told| match told {
            Progress::Ask { at, .. } => Some(at),
            Progress::Expects { .. } | Progress::Begins(_) => Some(Instant::ZERO),
            Progress::Done => None,
        };
        if self.is_done() {
            return Some(Instant::ZERO); // to be said
        }
        let remote = due(self.remote).filter(|_| is_up);
        [due(self.local), remote].into_iter().flatten().min()
    }

    /// How long to wait for an answer to the last of so many questions.
    fn pause(tries: u8) -> Duration {
        (PAUSE * (1 << tries.saturating_sub(TRIES_EAGER))).min(PAUSE_MAX)
    }

    const fn is_done(&self) -> bool {
        matches!((self.local, self.remote), (Progress::Done, Progress::Done))
    }
}

impl Connection {
    /// What is owed will not be delivered: both ends are reset with the number that they seem to
    /// expect, and asked whether that was right.
    pub(in crate::flow) fn begin_break_off(&mut self, now: Instant, memory: &mut Memory) {
        self.release(memory);
        self.promised = None;
        let seems = |side: &Side| match side.is_known {
            true => Progress::Expects { seq: side.acked, tries: 0 },
            false => Progress::Ask { at: now, tries: 0 },
        };
        let (local, remote) = (seems(&self.remote), seems(&self.local));
        self.phase = Phase::Broken(Box::new(Broken { local, remote }));
    }

    /// The remote side resets the connection, and the local one was promised that what it said
    /// would arrive. It will not, and the local side may miss something before the reset, or never
    /// hear of it: it is asked until it knows. Returns whether that is so.
    pub(in crate::flow) fn take_reset(
        &mut self,
        now: Instant,
        memory: &mut Memory,
        segment: &Segment,
    ) -> bool {
        let ends = segment.flags.has(Flags::RST) && self.is_expected(Direction::In, segment.seq);
        if !ends || self.promised.is_none() || self.state == State::Closed {
            return false;
        }
        self.release(memory);
        self.promised = None;
        let local = Progress::Ask { at: now + PAUSE, tries: 0 };
        self.phase = Phase::Broken(Box::new(Broken { local, remote: Progress::Done }));
        true
    }

    /// The remote side will hear nothing any more. Returns whether the local one is still to be
    /// asked what it expects: at once, since nobody else will tell it any more.
    pub(in crate::flow) fn forget_remote(&mut self) -> bool {
        let Phase::Broken(broken) = &mut self.phase else { return false };
        broken.remote = Progress::Done;
        if let Progress::Ask { at, .. } = &mut broken.local {
            *at = Instant::ZERO;
        }
        broken.local != Progress::Done
    }

    /// Nobody will be there to hear what the local side expects next: it is reset at what it
    /// acknowledged last, and at what it may have received since without a word (RFC 9293, 3.8.6.3:
    /// an acknowledgement may be put off, or be on its way; RFC 5961, 3.2: another number is none).
    /// Appends the packets to `out`, each with where it ends.
    pub(in crate::flow) fn tell_it_is_over(&self, out: &mut Vec<u8>, packet_ends: &mut Vec<usize>) {
        let (flags, ends) = (Flags::RST.and(Flags::ACK), self.tuple.ends(Direction::In));
        let Side { acked, next, window, .. } = self.remote;
        let said_to = match &self.phase {
            Phase::Resumed(resumed) => resumed.said_to(),
            Phase::Normal | Phase::Held(_) | Phase::Broken(_) => None,
        };
        let numbers = [acked, said_to.unwrap_or(acked), next];
        let is_first = |&place: &usize| !numbers[..place].contains(&numbers[place]);
        for seq in (0..numbers.len()).filter(is_first).map(|place| numbers[place]) {
            let (ack, timestamps) = (self.local.next, self.timestamps(Direction::In));
            Made { ends, seq, ack, flags, window, timestamps }.emit((&[], &[]), out);
            packet_ends.push(out.len());
        }
    }

    /// One of the two ends has said something, which the other is not to hear.
    pub(in crate::flow) fn overhear(&mut self, way: Direction, segment: &Segment) {
        let Phase::Broken(broken) = &mut self.phase else { return };
        let told = match way {
            Direction::Out => &mut broken.local,
            Direction::In => &mut broken.remote,
        };
        let Progress::Ask { tries, .. } = *told else { return };
        if segment.flags.has(Flags::RST) {
            *told = Progress::Done;
        } else if segment.flags.has(Flags::SYN.and(Flags::ACK)) {
            *told = Progress::Begins(segment.ack);
        } else if segment.flags.has(Flags::ACK) && tries > 0 {
            *told = Progress::Expects { seq: segment.ack, tries };
        }
    }

    /// Asks an end what it expects, or tells it that the connection is over.
    pub(in crate::flow) fn break_off(
        &mut self,
        now: Instant,
        is_up: bool,
        out: &mut Vec<u8>,
    ) -> Option<Output> {
        let Phase::Broken(broken) = &mut self.phase else { return None };
        let ends = [
            (&mut broken.local, Direction::In, Output::ToLocal),
            (&mut broken.remote, Direction::Out, Output::ToRemote),
        ];
        let mut said = None;
        for (told, way, output) in ends {
            if said.is_some() || (output == Output::ToRemote && !is_up) {
                continue;
            }
            let (flags, seq) = match *told {
                Progress::Ask { at, tries } if at <= now && tries < TRIES_MAX => {
                    *told = Progress::Ask { at: now + Broken::pause(tries + 1), tries: tries + 1 };
                    (Flags::SYN, Seq(0))
                }
                Progress::Ask { at, .. } if at <= now => {
                    *told = Progress::Done;
                    continue;
                }
                Progress::Expects { seq, tries } => {
                    *told = Progress::Ask { at: now + PAUSE, tries };
                    (Flags::RST, seq)
                }
                Progress::Begins(seq) => {
                    *told = Progress::Done;
                    (Flags::RST, seq)
                }
                Progress::Ask { .. } | Progress::Done => continue,
            };
            let ends = self.tuple.ends(way);
            let (ack, window, timestamps) = (Seq(0), 0, None);
            Made { ends, seq, ack, flags, window, timestamps }.emit((&[], &[]), out);
            said = Some(output);
        }
        if broken.is_done() {
            self.state = State::Closed;
            self.phase = Phase::Normal;
            self.promised = None;
            self.is_settled = true;
        }
        said
    }
}
