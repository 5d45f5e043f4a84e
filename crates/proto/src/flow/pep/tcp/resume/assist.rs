//! Assist: what is done for a connection when there is no way, done while there is one.
//!
//! This node is the entry of the tunnel for what the local side sends. It takes a segment in,
//! keeps it (`cache`), lets it leave as it is, and acknowledges it at once in the remote side's
//! place: the local side sees a round trip of nearly nothing, and neither losses nor the waits for
//! their repair. What was acknowledged is owed, as after an outage, and the rest of `resume` does
//! what is then to be done: what the remote side's own acknowledgements show to be missing is sent
//! again from what is kept, by selective acknowledgement or by time.
//!
//! ```text
//! local side        this node (entry)                        other end        remote side
//!   data  ------->  keep; pass on as it is  =====tunnel=====>  pass on  ------->  data
//!         <-------  "arrived", room                            pass on  <-------  ACK, SACK
//!                   let go of what arrived  <================
//!                   send again what did not ================>           ------->  the same data
//! ```
//!
//! Sequence numbers, clocks and the end of the stream stay the two ends' own, so this begins and
//! ends at any time. It begins when a sender that is to be assisted has a first flight on its way
//! and it is written down that something will be owed, and ends when it is not wanted any more or
//! nothing was said for a while: then what is owed is delivered, and each side hears the other.
//!
//! How much is acknowledged ahead: what may be on its way beyond what has arrived is a window of
//! this node's own, grown as in slow start until the remote side misses something, halved then,
//! never more than what the measured rate carries in the shortest round trip and while a gap is
//! filled, than half of a connection's share of the memory, or than the remote side has room for.
//! The local side is shown that much room and no more. It is shown less than the remote side gave
//! once, when this begins, with nothing outstanding, as when a window is closed over an outage.

use crate::flow::pep::trip::Trip;
use crate::time::Duration;
use crate::wire::tcp::Seq;

/// Connections of one session that are assisted at once.
pub(in crate::flow) const ASSISTED_MAX: usize = 64;
/// What may be on its way at first, in bytes: the window of a receiver of whom nothing is known.
pub(super) const FLIGHT_FIRST: u32 = 65_536;
/// What is on its way at most: what the rate carries in a round trip, and in so many of the longest
/// path's, since a gap that is repaired twice holds back acknowledgements for so long.
const GAP_TRIPS: u32 = 5;
/// At first it may be so many times what the paths carry: it may wait for a gap to be filled.
const CARRIED_GAIN: u32 = 3;

/// What is known of a connection that is assisted.
#[derive(Debug, Default)]
pub(super) struct Assisted {
    /// Whether nothing was missing yet.
    pub(super) is_starting: bool,
    /// Bytes that may be kept.
    memory_max: u32,
    /// Bytes that the paths may have on their way together,
    carried: u32,
    /// and the round trip of the longest.
    longest: Duration,
    /// Bytes that wait at the entry,
    pub(super) queued: u32,
    /// how many may,
    pub(super) queue_max: u32,
    /// and the fewest that did since the local side was given room up to a mark.
    queued_least: u32,
    pub(super) mark: Seq,
    /// Whether the remote side says that something of what arrived was marked for congestion,
    pub(super) is_echoing: bool,
    /// whether the local side is still to hear of it,
    pub(super) is_echo_news: bool,
    /// and from where on what it says of that is about what left since it was last heeded.
    pub(super) echoes_from: Seq,
}

/// What is known of the tunnel's entry, from which all that is assisted leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entrance {
    /// Bytes that the paths may have on their way together.
    pub carried: u32,
    /// The round trip of the longest of them.
    pub longest: Duration,
    /// Bytes that should wait for them, so that they never have to wait.
    pub target: u32,
}

impl Assisted {
    /// What is on its way of a connection that begins, up to `next`, is not acknowledged yet.
    pub(super) fn begin(memory_max: u32, acked: Seq, next: Seq) -> Self {
        Self {
            is_starting: true,
            memory_max,
            queue_max: FLIGHT_FIRST,
            queued_least: u32::MAX,
            mark: next,
            echoes_from: acked,
            ..Self::default()
        }
    }

    /// How long the tunnel may take to fill a gap, in which nothing is heard.
    pub(super) fn gap_time(&self) -> Duration {
        self.longest * GAP_TRIPS
    }

    /// Bytes that may be on their way, of which `flight_max` by what was lost until now.
    pub(super) fn flight_allowed(&self, flight_max: u32, trip: &Trip) -> u32 {
        if self.is_starting {
            let carried = self.carried.saturating_mul(CARRIED_GAIN);
            return flight_max.max(carried).min(self.memory_max);
        }
        let known = trip.rate().zip(trip.least()).map(|(rate, least)| {
            let held = least + self.longest.max(least) * GAP_TRIPS;
            let bytes = u128::from(rate) * held.as_nanos() / 1_000_000_000;
            u32::try_from(bytes).unwrap_or(u32::MAX).saturating_add(FLIGHT_FIRST)
        });
        flight_max.min(known.unwrap_or(u32::MAX)).min(self.memory_max)
    }

    pub(super) fn heed(&mut self, queued: u32, entrance: Entrance) {
        (self.carried, self.longest) = (entrance.carried, entrance.longest);
        self.queued = queued;
        self.queued_least = self.queued_least.min(queued);
        self.queue_max = self.queue_max.max(entrance.target);
    }

    /// The local side has used all the room that it had a round trip of its own ago. If the entry
    /// ran empty meanwhile, that was too little for its distance; if never, what always waited was
    /// too much.
    pub(super) fn adapt(&mut self, target: u32, mss: u32) {
        if self.queued_least < mss {
            self.queue_max = self.queue_max.saturating_mul(2).min(self.memory_max);
        } else {
            let spare = self.queued_least.saturating_sub(target);
            self.queue_max = self.queue_max.saturating_sub(spare).max(target);
        }
        self.queued_least = u32::MAX;
    }
}
