//! The packets in flight of one packet number space, and what becomes of each: it arrives, or it is
//! lost.
//!
//! Decides which packets are lost (`SentPackets::lose`) and measures what acknowledgements tell:
//! round trip, delivery rate, loss. Knows neither addresses nor keys, and not what a packet is for.
//!
//! A copy of each inner packet is kept until it is acknowledged or lost, so that it can be sent
//! again. A TCP connection that keeps the payload itself shares it: `kept` counts those bytes.
//!
//! Bounds: `ENTRIES_MAX` packets, `KEPT_BYTES_MAX` bytes of copies, each for `KEPT_TIME`.

use std::collections::VecDeque;

use super::decline::Decline;
use super::delivery::Mark;
use super::feedback::DELAY_PACED;
use super::joined::{JoinedFrame, JoinedFrames};
use super::large::Large;
use super::loss::Loss;
use super::packet::{Cause, Load, LostPacket, SpaceId};
use super::reordering::Reordering;
use super::rtt::{self, Rtt};
use super::sample::RateSample;
use super::segmented::{Evidence, Runs, Tag};
use crate::blocks::{Blocks, Queue};
use crate::id::{FlowId, PacketNumber};
use crate::packet::{Instance, PacketRecord};
use crate::time::{Duration, Instant};
use crate::wire::frame::Feedback;

/// Datagrams that are accounted for: what is in flight at 10 Gbit/s and 60 ms in packets of
/// 1,400 bytes; 3 MB. Beyond that the oldest are forgotten.
const ENTRIES_MAX: usize = 1 << 16;
/// Entries for which an idle space keeps memory.
const RESTING_ENTRIES: usize = 16;
/// The most bytes that one space keeps of its frames, without payloads that connections keep: the
/// flight of 300 Mbit/s and 110 ms. Beyond it the oldest copies are dropped, and no loss is
/// repaired any more: a loss is detected a round trip after sending.
pub(crate) const KEPT_BYTES_MAX: usize = 4 << 20;
/// How long a packet is worth sending again: after this its sender has done so itself.
pub(crate) const KEPT_TIME: Duration = Duration::from_secs(3);
/// A datagram that so many later ones have overtaken is lost.
const OVERTAKEN_MAX: u64 = 3;
/// Feedback comes when something arrives, and timers ring so much later.
const GRANULARITY: Duration = Duration::from_millis(1);

/// What a datagram carries, as long as it is not known to have arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Nothing that the peer owes feedback for.
    Quiet,
    /// A probe of the path's MTU, which may well be too large.
    Probe,
    /// Frames that elicit feedback.
    Eliciting,
    /// An inner packet or a piece of one, whether a copy of it is kept or not.
    Data,
    /// One that another path got as well: when this one dies, it is not owed.
    Doubled,
    Arrived,
}

/// A datagram that left.
#[derive(Clone, Copy, Debug)]
struct Sent {
    at: Instant,
    state: State,
    /// The sender had had nothing to send before.
    is_limited: bool,
    len: u16,
    /// The flow of the packet, if that is known.
    flow: Option<FlowId>,
    /// Bytes of the copy,
    copy: u16,
    /// and how many more of the frame the flow keeps.
    kept: u16,
    /// How often a path had lost it before,
    attempts: u8,
    /// and for how long it had been under way then, in milliseconds.
    age_ms: u16,
    /// The run that it belongs to, while segmented sends are compared with others.
    run: Tag,
    /// What had arrived when it left.
    mark: Mark,
}

const _: () = assert!(size_of::<Sent>() <= 48); // 3 MB of `ENTRIES_MAX`

/// What feedback tells of a path that was not known.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Acknowledged {
    /// When the newest datagram that arrived had left, and its round trip without the time for
    /// which the peer held it; `None` when that is too long ago.
    pub newest: Option<(Instant, Duration)>,
    /// Bytes that arrived, UDP payload,
    pub delivered: u64,
    /// and so many in all in this space.
    pub arrived: u64,
    /// Bytes that were lost, with what was found to be since the peer told last.
    pub lost: u64,
    /// At which rate they arrived.
    pub rate: Option<RateSample>,
    /// Bytes that are still in flight, in all spaces of the path.
    pub in_flight: u64,
    /// The largest datagram that arrived, in bytes; 0 if no large one did.
    pub largest_arrived: usize,
    /// Large datagrams vanish: the path has shrunk.
    pub shrunk: bool,
    /// The path has begun to lose much of what this end sends: said once.
    pub declines: bool,
    /// What the compared runs of datagrams say whose fate became known.
    pub(crate) evidence: Option<Evidence>,
}

/// The sending side of one packet number space: what left, and what the peer said of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct SentPackets {
    space: SpaceId,
    entries: VecDeque<Sent>,
    /// The number of the first of them.
    first: PacketNumber,
    copies: Queue,
    /// What shares a datagram with its first frame.
    joined: JoinedFrames,
    /// Numbers below have no copy.
    kept_from: PacketNumber,
    /// When the newest of them left.
    kept_at: Instant,
    bytes: u64,
    /// Bytes on their way that the peer will tell of: nobody answers for what elicits nothing.
    in_flight: u64,
    /// The oldest eliciting datagram that no feedback has covered yet.
    unanswered: Option<(PacketNumber, Instant)>,
    acknowledged: Option<PacketNumber>,
    /// When feedback last told of anything.
    told_at: Option<Instant>,
    /// Bytes that were lost by time alone since the last [`Acknowledged`].
    lost_untold: u64,
    /// Something that left later has arrived and was counted elsewhere.
    is_overtaken: bool,
    /// What has arrived.
    mark: Mark,
    /// What leaves before this one has arrived does so when there is too little to send.
    limited_until: Option<PacketNumber>,
    arrived: u64,
    reordering: Reordering,
    large: Large,
    runs: Runs,
    /// Totals at the last feedback, for the loss of the interval: sent up to it, received.
    settled: (u64, u64),
    loss: Loss,
    decline: Decline,
}

impl SentPackets {
    /// A space in which nothing was sent.
    pub(crate) fn new(space: SpaceId) -> Self {
        Self { space, ..Self::default() }
    }

    /// Records that `number`, the one after the last recorded, left with `len` bytes. Of its
    /// `frames`, in their pieces, as much is kept as `load` says.
    pub(crate) fn sent(
        &mut self,
        now: Instant,
        blocks: &mut Blocks,
        (number, len): (PacketNumber, usize),
        load: Load,
        frames: [&[u8]; 3],
    ) {
        debug_assert_eq!(number, self.next());
        if self.entries.len() >= ENTRIES_MAX {
            self.pop(blocks); // nobody may ever tell of it
        }
        if self.in_flight == 0 {
            self.mark.restart(now);
        }
        let is_eliciting = load.elicits();
        let keeps = load.keeps();
        let (flow, kept) = keeps.unwrap_or_default();
        let copied = keeps.map(|_| self.keep(now, blocks, frames, kept.into()));
        let (copy, kept) = copied.unwrap_or_default();
        let (first_at, attempts) = load.history(now);
        let age_ms = now.saturating_since(first_at).as_millis();
        self.entries.push_back(Sent {
            at: now,
            state: State::of(load),
            is_limited: self.limited_until.is_some(),
            len: bounded(len),
            flow,
            copy,
            kept,
            attempts,
            age_ms: u16::try_from(age_ms).unwrap_or(u16::MAX),
            run: Tag::NONE,
            mark: self.mark,
        });
        self.bytes += len as u64;
        self.in_flight += if is_eliciting { len as u64 } else { 0 };
        self.large.sent(number, len);
        if is_eliciting {
            self.unanswered.get_or_insert((number, now));
        }
    }

    /// The datagram recorded last has one more frame, of an inner packet with a number.
    pub(crate) fn joined(
        &mut self,
        now: Instant,
        blocks: &mut Blocks,
        record: PacketRecord,
        frame: &[u8],
    ) {
        let PacketRecord { flow, kept, .. } = record;
        let (copy, kept) = self.keep(now, blocks, [frame, &[], &[]], kept.into());
        // Making room may have forgotten the copy of the datagram's first frame, and then all.
        let number = self.next().saturating_sub(1);
        self.joined.push(JoinedFrame { number, flow, copy, kept });
    }

    /// Keeps a copy of `frames` but for the last `kept` bytes. Returns the lengths of both parts.
    fn keep(
        &mut self,
        now: Instant,
        blocks: &mut Blocks,
        frames: [&[u8]; 3],
        kept: usize,
    ) -> (u16, u16) {
        let all: usize = frames.iter().map(|piece| piece.len()).sum();
        let len = all.saturating_sub(kept);
        while self.copies.len() + len > KEPT_BYTES_MAX && self.forget_oldest_copy(blocks) {}
        self.kept_at = now;
        let mut left = len;
        for piece in frames {
            let some = piece.len().min(left);
            self.copies.push(blocks, &piece[..some]);
            left -= some;
        }
        (bounded(len), bounded(all - len))
    }

    /// What left last belongs to this run of a comparison.
    pub(crate) fn in_run(&mut self, run: Tag) {
        if let Some(sent) = self.entries.back_mut() {
            sent.run = run;
        }
    }

    /// What runs of a comparison say whose fate became known since the last call.
    pub(crate) fn take_evidence(&mut self) -> Option<Evidence> {
        self.runs.take()
    }

    /// Takes the peer's feedback. Returns what it tells that is new, if anything is. Lost packets
    /// go to `lost`, if they are to be repaired.
    pub(crate) fn acknowledged(
        &mut self,
        now: Instant,
        blocks: &mut Blocks,
        feedback: &Feedback,
        rtt: &mut Rtt,
        lost: Option<&mut Vec<LostPacket>>,
    ) -> Option<Acknowledged> {
        let largest = feedback.largest;
        let is_impossible = largest >= self.next() || feedback.bytes > self.bytes;
        if is_impossible || self.acknowledged.is_some_and(|seen| largest <= seen) {
            return None;
        }
        let newest = self.get(largest).copied();
        let waited = Duration::from_micros(feedback.delay_us.into());
        if let Some(newest) = newest {
            rtt.sample(now.saturating_since(newest.at), waited);
        }
        let delivered = feedback.bytes.saturating_sub(self.mark.bytes());
        let rate = newest.and_then(|it| it.mark.rate(now, it.at, feedback, it.is_limited));
        let loss_before = self.loss.share();
        self.count_loss(now, feedback);
        self.acknowledged = Some(largest);
        self.told_at = Some(now);
        self.limited_until.take_if(|until| largest >= *until);
        self.large.begin();
        self.take_arrived(feedback);
        self.reordering.told(largest, feedback.received.saturating_sub(self.arrived), rtt);
        // What is not known any more has arrived all the same, once.
        self.mark.take(delivered, newest.map(|newest| (feedback.arrived_us, newest.at)));
        let cause = Cause::Overtaken { rtt, newest_at: newest.map(|sent| sent.at) };
        let lost = self.lose(now, blocks, cause, lost) + std::mem::take(&mut self.lost_untold);
        self.large.judge(feedback, loss_before);
        self.answer(largest);
        let trip = |sent: Sent| rtt::without_delay(now.saturating_since(sent.at), waited);
        Some(Acknowledged {
            newest: newest.map(|sent| (sent.at, trip(sent))),
            delivered,
            arrived: self.mark.bytes(),
            lost,
            rate,
            in_flight: self.in_flight,
            largest_arrived: self.large.largest_arrived(),
            shrunk: self.large.takes_shrunk(),
            declines: self.decline.takes_decline(),
            evidence: self.runs.take(),
        })
    }

    /// When the oldest that others have overtaken counts as lost; `None` while there is none.
    pub(crate) fn late_due(&self, rtt: &Rtt) -> Option<Instant> {
        let oldest = self.entries.front().filter(|oldest| oldest.is_open())?;
        Some(oldest.at + self.lateness(rtt)?)
    }

    /// Something that left by the path later, in another space, has arrived.
    pub(crate) const fn overtaken(&mut self) {
        self.is_overtaken = true;
    }

    /// After what time the first is lost, if others have overtaken it: where they were not told of
    /// together with it, that may still be under way.
    fn lateness(&self, rtt: &Rtt) -> Option<Duration> {
        let untold = match self.acknowledged {
            Some(largest) if largest > self.first => Duration::ZERO,
            Some(_) | None if self.is_overtaken => 2 * DELAY_PACED,
            Some(_) | None => return None,
        };
        let (path, hosts) = (rtt.smoothed() * 9 / 8, GRANULARITY + rtt.lateness());
        Some(path + self.reordering.window() + hosts + untold)
    }

    /// Since when the peer has owed feedback for what was sent; `None` when nothing is open.
    pub(crate) fn unanswered_since(&self) -> Option<Instant> {
        self.unanswered.map(|(_, at)| at)
    }

    /// When feedback last told of anything that was not known.
    pub(crate) const fn told_at(&self) -> Option<Instant> {
        self.told_at
    }

    /// Bytes whose fate is not known, of datagrams that elicit feedback (RFC 9002, section 2).
    pub(crate) const fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// There was nothing to send for a moment: what leaves until what is on its way has arrived
    /// says nothing of how much the path carries.
    pub(crate) fn limited(&mut self) {
        self.limited_until = Some(self.next());
    }

    /// Nothing is owed any more, or data only: the path has answered by other means.
    pub(crate) fn forgive(&mut self, but_data: bool) {
        let is_data = |sent: &Sent| matches!(sent.state, State::Data | State::Doubled);
        let mut sent = (self.first..).zip(&self.entries);
        let oldest = sent.find(|(_, sent)| but_data && is_data(sent));
        self.unanswered = oldest.map(|(number, sent)| (number, sent.at));
    }

    /// The path's loss as the peer's feedback shows it.
    pub(crate) const fn loss(&self) -> Loss {
        self.loss
    }

    /// Whether any packet is kept.
    pub(crate) const fn has_copies(&self) -> bool {
        !self.copies.is_empty()
    }

    /// When the newest will have been kept for too long; `None` while nothing is kept.
    pub(crate) fn copies_due(&self) -> Option<Instant> {
        self.has_copies().then(|| self.kept_at + KEPT_TIME)
    }

    /// Forgets all copies.
    pub(crate) fn forget_copies(&mut self, blocks: &mut Blocks) {
        while self.has_copies() && self.forget_oldest_copy(blocks) {}
    }

    fn next(&self) -> PacketNumber {
        self.first + self.entries.len() as u64
    }

    fn get(&self, number: PacketNumber) -> Option<&Sent> {
        let place = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.entries.get(place)
    }

    fn count_loss(&mut self, now: Instant, feedback: &Feedback) {
        let (sent, received) = self.settled;
        let upto = feedback.largest + 1;
        let arrived = feedback.received.saturating_sub(received);
        self.loss.sample(now, upto.saturating_sub(sent), arrived);
        self.decline.sample(now, upto.saturating_sub(sent), arrived);
        self.settled = (upto, feedback.received.max(received));
    }

    /// Marks what the feedback's runs say has arrived.
    fn take_arrived(&mut self, feedback: &Feedback) {
        let mut above = feedback.largest + 1;
        for &(received, missing) in &feedback.runs {
            let bottom = above.saturating_sub(received.into()).max(self.first);
            for number in bottom..above {
                #[expect(clippy::cast_possible_truncation, reason = "below the next number")]
                let place = (number - self.first) as usize;
                if let Some(sent) = self.entries.get_mut(place)
                    && sent.is_open()
                {
                    self.large.arrived(sent.len.into());
                    self.arrived += 1;
                    self.in_flight -= sent.weight();
                    sent.state = State::Arrived;
                }
            }
            above = bottom.saturating_sub(missing.into());
            if received == 0 || above <= self.first {
                return;
            }
        }
    }

    /// The one place where packets are lost. From the oldest on, packets that arrived are forgotten
    /// and packets that are lost by `cause` go to `lost`, if there is one and a copy is worth
    /// sending again. Returns the bytes that were lost.
    pub(super) fn lose(
        &mut self,
        now: Instant,
        blocks: &mut Blocks,
        cause: Cause<'_>,
        mut lost: Option<&mut Vec<LostPacket>>,
    ) -> u64 {
        let mut bytes = 0;
        while let Some(&first) = self.entries.front()
            && self.is_settled(now, &first, cause)
        {
            let is_lost = first.is_open() && first.state != State::Probe;
            let is_dead = matches!(cause, Cause::DeadPath);
            if is_lost {
                bytes += u64::from(first.len);
                if let Some(lost) = &mut lost
                    && !(is_dead && first.state == State::Doubled)
                {
                    self.copy_first(now, cause, lost);
                }
            }
            if !is_dead && first.state != State::Probe {
                self.runs.settle(first.run, is_lost);
            }
            self.pop(blocks);
        }
        if self.entries.is_empty() {
            self.entries.shrink_to(RESTING_ENTRIES);
            self.joined.rest();
        }
        if matches!(cause, Cause::Late { .. }) {
            self.lost_untold += bytes;
        }
        bytes
    }

    /// Whether nothing more is expected of the first packet: it has arrived, or is lost by `cause`.
    fn is_settled(&self, now: Instant, first: &Sent, cause: Cause<'_>) -> bool {
        let is_late = |rtt| self.lateness(rtt).is_some_and(|after| now >= first.at + after);
        match cause {
            Cause::Silence { asked_at } => first.at < asked_at,
            Cause::DeadPath => self.has_copies(),
            Cause::Overtaken { .. } | Cause::Late { .. } if !first.is_open() => true,
            Cause::Late { rtt } => is_late(rtt),
            Cause::Overtaken { rtt, newest_at } => {
                let overtaken = self.acknowledged.unwrap_or(0) >= self.first + OVERTAKEN_MAX;
                let later = newest_at.is_none_or(|at| at >= first.at + self.reordering.window());
                (overtaken && later) || is_late(rtt)
            }
        }
    }

    /// Copies what the first datagram carries, each frame by itself, unless it is too old.
    fn copy_first(&self, now: Instant, cause: Cause<'_>, lost: &mut Vec<LostPacket>) {
        let Some(sent) = self.entries.front() else { return };
        if !sent.has_copy() || now.saturating_since(sent.at) >= KEPT_TIME {
            return;
        }
        let copy = |flow, kept, from: usize, len: u16| {
            let mut frame = Vec::with_capacity(usize::from(len) + usize::from(kept));
            self.copies.append_to(from, len.into(), &mut frame);
            LostPacket {
                space: self.space,
                number: self.first,
                at: sent.at,
                first_at: sent.at - Duration::from_millis(sent.age_ms.into()),
                attempts: sent.attempts.saturating_add(cause.counts_as_attempt().into()),
                flow,
                kept,
                frame,
            }
        };
        lost.push(copy(sent.flow, sent.kept, 0, sent.copy));
        let mut from = usize::from(sent.copy);
        for frame in self.joined.of(self.first) {
            lost.push(copy(frame.flow, frame.kept, from, frame.copy));
            from += usize::from(frame.copy);
        }
    }

    /// Forgets the first datagram and its copy.
    fn pop(&mut self, blocks: &mut Blocks) -> Option<Sent> {
        let sent = self.entries.pop_front()?;
        self.in_flight -= sent.weight();
        self.release(blocks, self.first, sent);
        self.first += 1;
        Some(sent)
    }

    fn forget_oldest_copy(&mut self, blocks: &mut Blocks) -> bool {
        let place = self.kept_from.max(self.first) - self.first;
        let places = usize::try_from(place).unwrap_or(usize::MAX)..self.entries.len();
        for place in places {
            let sent = self.entries[place];
            self.kept_from = self.first + place as u64 + 1;
            if sent.has_copy() {
                (self.entries[place].copy, self.entries[place].kept) = (0, 0);
                self.release(blocks, self.first + place as u64, sent);
                return true;
            }
        }
        false
    }

    /// Forgets the oldest copies: those of the datagram of this number.
    fn release(&mut self, blocks: &mut Blocks, number: PacketNumber, sent: Sent) {
        let copies = usize::from(sent.copy) + self.joined.forget(number);
        self.copies.forget_first(blocks, copies);
    }

    /// Everything up to `largest` is answered: received, or lost and that known.
    fn answer(&mut self, largest: PacketNumber) {
        if self.unanswered.is_none_or(|(oldest, _)| oldest > largest) {
            return;
        }
        let from = (largest + 1).max(self.first);
        let place = usize::try_from(from - self.first).unwrap_or(usize::MAX);
        let rest = (from..).zip(self.entries.range(place.min(self.entries.len())..));
        let mut open = rest.filter(|(_, sent)| sent.weight() > 0);
        self.unanswered = open.next().map(|(number, sent)| (number, sent.at));
    }
}

impl Sent {
    /// Whether it is not known to have arrived.
    const fn is_open(&self) -> bool {
        !matches!(self.state, State::Arrived)
    }

    /// Bytes that it counts for while it is on its way.
    fn weight(&self) -> u64 {
        match self.state {
            State::Eliciting | State::Data | State::Doubled => self.len.into(),
            State::Quiet | State::Probe | State::Arrived => 0,
        }
    }

    const fn has_copy(&self) -> bool {
        self.copy > 0 || self.kept > 0
    }
}

impl State {
    const fn of(load: Load) -> Self {
        match load {
            Load::Quiet | Load::Report => Self::Quiet,
            Load::Probe => Self::Probe,
            Load::Eliciting => Self::Eliciting,
            Load::Packet(PacketRecord { instance: Instance::Original, .. }) => Self::Doubled,
            Load::Packet(_) | Load::Unkept(_) | Load::Repair { .. } => Self::Data,
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "no datagram is longer than 65,535 bytes")]
const fn bounded(len: usize) -> u16 {
    if len > u16::MAX as usize { u16::MAX } else { len as u16 }
}

#[cfg(test)]
#[path = "sent_packets_tests.rs"]
mod tests;
