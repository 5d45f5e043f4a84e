//! Bytes of a connection were owed when this node's process ended, and nobody has them any more:
//! both ends of it are told that it is over, so that neither believes what is not true.
//!
//! A reset only counts with the number that its receiver expects next (RFC 5961, 3.2), which nobody
//! here remembers. A SYN in the midst of a connection makes its receiver say that number (the same,
//! 4.2): it is asked that way, as if by the other end, and then reset, and asked again, since the
//! reset may be lost. Neither question nor answer reaches the other end. Who refuses has no such
//! connection, nor has who takes the question for the beginning of a new one, or says nothing.

use super::side::Side;
use super::tracker::Tracker;
use crate::flow::tuple::{Direction, Tuple};
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
pub(super) struct Broken {
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
    /// What an earlier process owed is gone: nothing is known of either end.
    pub(super) const fn of_the_dead(now: Instant) -> Self {
        let ask = Progress::Ask { at: now, tries: 0 };
        Self { local: ask, remote: ask }
    }

    /// What is owed will not be delivered: both ends are reset with the number that they seem to
    /// expect, and asked whether that was right; or asked first, where nothing is known of them.
    pub(super) fn new(now: Instant, tracker: &Tracker) -> Self {
        let seems = |side: &Side| match side.is_known {
            true => Progress::Expects { seq: side.acked, tries: 0 },
            false => Progress::Ask { at: now, tries: 0 },
        };
        Self { local: seems(&tracker.remote), remote: seems(&tracker.local) }
    }

    /// The remote side knows already. The local one may miss something before its reset, or never
    /// hear of it: it is asked until it knows.
    pub(super) fn by_remote(now: Instant) -> Self {
        let local = Progress::Ask { at: now + PAUSE, tries: 0 };
        Self { local, remote: Progress::Done }
    }

    /// When something is to be said, while there is a way or is none.
    pub(super) fn due(&self, is_up: bool) -> Option<Instant> {
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

    /// Whether both ends know.
    pub(super) const fn is_done(&self) -> bool {
        matches!((self.local, self.remote), (Progress::Done, Progress::Done))
    }

    /// The remote side will hear nothing any more. Returns whether the local one is still to be
    /// asked what it expects: at once, since nobody else will tell it any more.
    pub(super) fn forget_remote(&mut self) -> bool {
        self.remote = Progress::Done;
        if let Progress::Ask { at, .. } = &mut self.local {
            *at = Instant::ZERO;
        }
        self.local != Progress::Done
    }

    /// One of the two ends has said something, which the other is not to hear.
    pub(super) fn overhear(&mut self, way: Direction, segment: &Segment) {
        let told = match way {
            Direction::Out => &mut self.local,
            Direction::In => &mut self.remote,
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
    pub(super) fn poll(
        &mut self,
        now: Instant,
        is_up: bool,
        tuple: &Tuple,
        out: &mut Vec<u8>,
    ) -> Option<Output> {
        let ends = [
            (&mut self.local, Direction::In, Output::ToLocal),
            (&mut self.remote, Direction::Out, Output::ToRemote),
        ];
        for (told, way, output) in ends {
            if output == Output::ToRemote && !is_up {
                continue;
            }
            let (flags, seq) = match *told {
                Progress::Ask { at, tries } if at <= now && tries < TRIES_MAX => {
                    *told = Progress::Ask { at: now + Self::pause(tries + 1), tries: tries + 1 };
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
            let (ends, ack) = (tuple.ends(way), Seq(0));
            let made = Made { ends, seq, ack, flags, window: 0, timestamps: None };
            made.emit((&[], &[]), out);
            return Some(output);
        }
        None
    }
}

/// Nobody will be there to hear what the local side expects next: it is reset at what it
/// acknowledged last, and at what it may have received since without a word (RFC 9293, 3.8.6.3:
/// an acknowledgement may be put off, or be on its way; RFC 5961, 3.2: another number is none):
/// `said_to` if it is known, and all that the remote side sent. Appends the packets to `out`, each
/// with where it ends.
pub(super) fn tell_it_is_over(
    tracker: &Tracker,
    said_to: Option<Seq>,
    out: &mut Vec<u8>,
    packet_ends: &mut Vec<usize>,
) {
    let (flags, ack) = (Flags::RST.and(Flags::ACK), tracker.local.next);
    let Side { acked, next, .. } = tracker.remote;
    let numbers = [acked, said_to.unwrap_or(acked), next];
    let is_first = |&place: &usize| !numbers[..place].contains(&numbers[place]);
    for seq in (0..numbers.len()).filter(is_first).map(|place| numbers[place]) {
        let made = Made { ack, flags, ..tracker.made(Direction::In, seq) };
        made.emit((&[], &[]), out);
        packet_ends.push(out.len());
    }
}
