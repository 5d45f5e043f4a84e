//! What an acknowledgment means to the sender (`tcp_input.c`: `tcp_ack`).
//!
//! In this order: is it one, what does it say about the window, what has newly arrived, how long
//! did that take, is anything lost, how much more may be on its way, and which timer runs now.

use super::news::News;
use super::recovery::Repairing;
use super::{Sender, Timer};
use crate::emu::MS;
use crate::tcp::clock::is_before;
use crate::tcp::rate::{RateDraft, RateSample};
use crate::tcp::scoreboard::{Fate, Sent};
use crate::tcp::wheel::fires_ns;

/// How long the sender waits at least before it believes that the other end has thrown away what
/// it had (`tcp_check_sack_reneging`).
const RENEGE_NS: u64 = 10 * MS;

/// The parts of a segment that a sender looks at, in positions.
#[derive(Clone, Debug)]
pub(in crate::tcp) struct Acknowledgment {
    /// The first position that the other end misses.
    pub(in crate::tcp) next: u64,
    /// How many bytes it has room for from there.
    pub(in crate::tcp) window: u64,
    /// The SACK blocks.
    pub(in crate::tcp) sacks: Vec<(u64, u64)>,
    /// When the timestamp that it echoes was ours, in nanoseconds rounded down to the clock's unit.
    pub(in crate::tcp) echo_ns: Option<u64>,
    /// The position of the segment itself, in the other direction.
    pub(in crate::tcp) from: u64,
    /// It carries bytes, or opens or closes: it is no mere acknowledgment.
    pub(in crate::tcp) carries: bool,
}

/// What the receiver of a bad acknowledgment does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tcp) enum Validity {
    /// It is used.
    Good,
    /// It acknowledges what was never sent: dropped.
    Unsent,
    /// It is older than any window: challenged (RFC 5961, 5.2).
    TooOld,
}

/// Round trips that an acknowledgment ends, by when the segments left.
#[derive(Clone, Copy, Debug, Default)]
struct Clocked {
    first_ns: Option<u64>,
    last_ns: Option<u64>,
    sacked_first_ns: Option<u64>,
    sacked_last_ns: Option<u64>,
    resent: bool,
}

impl Sender {
    /// An acknowledgment arrives.
    pub(in crate::tcp) fn acknowledged(&mut self, now_ns: u64, ack: &Acknowledgment) -> Validity {
        if ack.next > self.next {
            return Validity::Unsent;
        }
        let old = ack.next < self.una;
        if old && ack.next + self.window_max < self.una {
            return Validity::TooOld;
        }
        self.heard_ns = now_ns;
        self.unanswered = 0;
        self.recovery.lost_wait = false;
        let mut news =
            News { advanced: ack.next > self.una, echo_ns: ack.echo_ns, ..News::default() };
        let window_updated = !old && self.update_window(ack);
        let was_idle = self.board.is_empty();
        let prior_in_flight = self.in_flight();
        let mut draft = RateDraft::default();
        self.harvest(now_ns, ack, &mut news, &mut draft);
        news.nothing = !ack.carries && !window_updated && !news.advanced;
        self.count_duplicate(&mut news);
        if was_idle && !old {
            self.probe_answered(now_ns);
        }
        if self.reneged() {
            let patience_ns = self.rtt.smoothed_ns().unwrap_or(0) / 2;
            self.timer =
                Timer::Retransmission { at_ns: fires_ns(now_ns, patience_ns.max(RENEGE_NS)) };
        } else {
            self.tail_probe_answered(ack.next, &news);
            let quiet = !news.nothing && !news.sacked && !news.duplicate;
            if !quiet || self.recovery.state != Repairing::Open {
                self.alert(now_ns, &mut news);
            }
            if news.rearms && !matches!(self.timer, Timer::Reordering { .. }) {
                self.rearm_after_progress(now_ns);
            }
        }
        self.control_congestion(now_ns, draft, &news, prior_in_flight);
        Validity::Good
    }

    /// Takes the window of a segment that is newer than the one it came from before (RFC 9293,
    /// 3.10.7.4; `tcp_may_update_window`). Says whether it changed.
    fn update_window(&mut self, ack: &Acknowledgment) -> bool {
        let newer = ack.next > self.una
            || ack.from > self.window_from
            || (ack.from == self.window_from && (ack.window > self.window || ack.window == 0));
        if !newer {
            return false;
        }
        self.window_from = ack.from;
        self.window_max = self.window_max.max(ack.window);
        std::mem::replace(&mut self.window, ack.window) != ack.window
    }

    /// What has newly arrived, and how long it took.
    fn harvest(
        &mut self,
        now_ns: u64,
        ack: &Acknowledgment,
        news: &mut News,
        draft: &mut RateDraft,
    ) {
        let mut clocked = Clocked::default();
        let delivered_before = self.meter.delivered;
        let highest_before = self.board.highest_arrived();
        let mut reordered = false;
        let mut segments = 0;
        for (from, to) in self.useful_sacks(ack, news) {
            for sent in self.board.arrive(from, to) {
                news.sacked = true;
                reordered |= !sent.again && sent.from < highest_before;
                if !sent.again {
                    clocked.sacked_first_ns.get_or_insert(sent.sent_ns);
                    clocked.sacked_last_ns = Some(sent.sent_ns);
                }
                self.arrived(now_ns, &sent, news, draft);
            }
        }
        if news.advanced {
            let gone = self.advance(ack.next);
            segments = gone.len() as u32;
            for sent in gone {
                clocked.resent |= sent.again;
                if sent.fate == Fate::Arrived {
                    continue;
                }
                if !sent.again {
                    reordered |= sent.from < highest_before;
                    clocked.first_ns.get_or_insert(sent.sent_ns);
                    clocked.last_ns = Some(sent.sent_ns);
                }
                self.arrived(now_ns, &sent, news, draft);
            }
            self.timeouts = 0;
            news.rearms = true;
        }
        self.rack.reordering_seen |= reordered;
        news.delivered = (self.meter.delivered - delivered_before) as u32;
        // Without SACK blocks nobody knows which of those that are acknowledged had arrived before.
        news.original &= self.terms.sack || !clocked.resent;
        self.eat_duplicates(segments, news);
        self.rack.widens(news.duplicate, delivered_before, self.meter.delivered);
        self.measure(now_ns, clocked, news, draft);
    }

    /// One segment has arrived.
    fn arrived(&mut self, now_ns: u64, sent: &Sent, news: &mut News, draft: &mut RateDraft) {
        news.original |= !sent.again && sent.to <= self.recovery.high;
        if !sent.again || !is_before(news.echo_ns, sent.sent_ns) {
            // Else what has arrived is what left before (`tcp_skb_spurious_retrans`).
            self.rack.arrives(now_ns, sent, self.rtt.shortest_ns());
        }
        self.meter.delivers(draft, sent.snapshot, sent.sent_ns);
    }

    /// Moves SND.UNA and returns the segments that this takes off the scoreboard.
    fn advance(&mut self, una: u64) -> Vec<Sent> {
        let bytes = ((una - self.una) as usize).min(self.bytes.len());
        self.bytes.drain(..bytes);
        self.una = una;
        self.board.acknowledge(una)
    }

    /// The blocks that name what is on its way, lowest first; a duplicate is noted.
    fn useful_sacks(&mut self, ack: &Acknowledgment, news: &mut News) -> Vec<(u64, u64)> {
        let mut sacks = ack.sacks.as_slice();
        if let [(from, to), rest @ ..] = sacks {
            let inside = rest.first().is_some_and(|next| next.0 <= *from && *to <= next.1);
            if *to <= ack.next || inside {
                news.duplicate = true;
                news.probe_duplicate = self.recovery.is_probe_duplicate(*to);
                self.recovery.duplicate_arrived(*from, *to, u64::from(self.terms.mss));
                sacks = rest;
            }
        }
        let (una, next) = (self.una.max(ack.next), self.next);
        let sane = |block: &&(u64, u64)| block.0 < block.1 && block.0 >= una && block.1 <= next;
        let mut useful: Vec<(u64, u64)> = sacks.iter().filter(sane).copied().collect();
        useful.sort_unstable();
        useful
    }

    /// Takes the round trips (`tcp_ack_update_rtt`): of what was sent once, else by timestamps.
    fn measure(&mut self, now_ns: u64, clocked: Clocked, news: &mut News, draft: &mut RateDraft) {
        let since = |at_ns: Option<u64>| at_ns.map(|at_ns| now_ns.saturating_sub(at_ns));
        let whole = if clocked.resent { None } else { since(clocked.first_ns) };
        let newest = if clocked.resent { None } else { since(clocked.last_ns) };
        let sacked = since(clocked.sacked_first_ns);
        let by_echo = since(news.echo_ns.filter(|_| news.advanced && self.terms.timestamps));
        let sample = whole.or(sacked).or(by_echo);
        let latest = since(clocked.sacked_last_ns).or(newest).or(by_echo);
        draft.rtt_ns = latest;
        let Some(rtt_ns) = sample else { return };
        if let Some(latest_ns) = latest {
            self.rtt.sample_shortest(now_ns, latest_ns);
        }
        self.rtt.sample(rtt_ns, self.una, self.next);
        if !news.advanced
            && let Some(head) = self.board.head()
        {
            // Do not put the timeout off for what left after the head did.
            news.rearms |= rtt_ns > now_ns.saturating_sub(head.sent_ns);
        }
    }

    /// The first segment that is missing had been named: it was thrown away since.
    fn reneged(&self) -> bool {
        self.board.head().is_some_and(|head| head.fate == Fate::Arrived)
    }

    /// How much more may be on its way (`tcp_cong_control`).
    fn control_congestion(
        &mut self,
        now_ns: u64,
        draft: RateDraft,
        news: &News,
        prior_in_flight: u32,
    ) {
        let shortest_ns = self.rtt.shortest_ns();
        let sample = self.meter.sample(now_ns, draft, news.delivered, shortest_ns);
        let sample = RateSample { losses: news.losses, prior_in_flight, ..sample };
        if news.delivered > 0
            && let Some(rtt_ns) = sample.rtt_ns
        {
            let (control, told, window) = self.tell(now_ns, &sample);
            control.measured(&told, window, rtt_ns);
        }
        if self.control.is_model_based() {
            let (control, told, window) = self.tell(now_ns, &sample);
            control.model(&told, window);
        } else if self.recovery.is_reducing() {
            self.reduce(news);
        } else if self.may_grow(news) {
            let (control, told, window) = self.tell(now_ns, &sample);
            control.grow(&told, window, news.delivered);
        }
    }

    /// What arrives out of order is no reason to stop growing where order is not kept anyway
    /// (`tcp_may_raise_cwnd`).
    const fn may_grow(&self, news: &News) -> bool {
        let progress = news.advanced || (self.rack.reordering_seen && news.sacked);
        progress && news.delivered > 0 && self.is_window_used()
    }

    /// The answer to a window probe (`tcp_ack_probe`).
    fn probe_answered(&mut self, now_ns: u64) {
        if !self.has_unsent() {
            return;
        }
        if self.has_room() {
            self.persist_backoff = 0;
            if matches!(self.timer, Timer::Persist { .. }) {
                self.timer = Timer::Idle;
            }
        } else {
            let wait_ns = self.rtt.persist_ns(self.persist_backoff);
            self.timer = Timer::Persist { at_ns: fires_ns(now_ns, wait_ns) };
        }
    }
}
