//! The receiving half of an end: bytes in order, what came too early, and when to say so
//! (`tcp_input.c`: `tcp_data_queue`, `__tcp_ack_snd_check`; `tcp_output.c`: `__tcp_select_window`).
//!
//! The buffer has a fixed size: its free part is the window, whose right edge never moves back.
//! Every second segment is acknowledged, at once while the connection is young or anything is out
//! of order, else after 40 ms. Limit: acknowledgments are not compressed (`tcp_comp_sack_nr`).

use std::collections::{BTreeMap, VecDeque};

use super::numbering::{Numbering, ORIGIN};
use super::ring;
use super::wheel::{TICK_NS, fires_ns};
use crate::emu::MS;

/// How long an acknowledgment waits for company (`TCP_DELACK_MIN`).
const DELAY_NS: u64 = 40 * MS;
/// Acknowledgments that do not wait when data begins to flow (`TCP_MAX_QUICKACKS`).
const QUICK: u32 = 16;
/// The least that counts as a full segment (`TCP_MSS_DEFAULT`).
const SEGMENT_MIN: u64 = 536;
/// Ranges that are remembered to be named first.
const BLOCKS_MAX: usize = 4;
/// How old a timestamp may be and still forbid earlier ones, in nanoseconds: 24 days
/// (`TCP_PAWS_24DAYS`).
const RECENT_AGE_NS: u64 = 24 * 86_400_000 * MS;

/// The receiving half.
#[derive(Debug)]
pub(super) struct Receiver {
    pub(super) numbering: Numbering,
    /// The first position that is missing.
    pub(super) next: u64,
    /// What may be read.
    ready: VecDeque<u8>,
    /// What came too early: ranges that do not touch, by their first position.
    beyond: BTreeMap<u64, Vec<u8>>,
    /// Where the FIN is, once it was seen.
    fin_at: Option<u64>,
    /// Bytes that may wait to be read.
    capacity: u64,
    /// By how many bits the window is shifted in the header.
    shift: u8,
    /// What was acknowledged last (`rcv_wup`), and the window that was offered with it.
    acked: u64,
    window: u64,
    /// Ranges beyond, the latest first; and a duplicate to be told of once.
    blocks: VecDeque<(u64, u64)>,
    duplicate: Option<(u64, u64)>,
    /// The timestamp to echo, and when it was taken.
    recent: Option<(u32, u64)>,
    answer: Answer,
    quick: u32,
    last_data_ns: Option<u64>,
    /// The longest payload seen.
    segment: u64,
    /// Bytes that have arrived in order, FIN not counted.
    delivered: u64,
}

/// Whether an acknowledgment is owed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// No.
    None,
    /// Now if there is enough to acknowledge, else by then; or with what arrives soon before
    /// (`tcp_send_delayed_ack`).
    By { at_ns: u64, soon_ns: u64 },
    /// Yes.
    Now,
}

/// What to write into the header of what leaves now.
#[derive(Clone, Debug)]
pub(super) struct Offer {
    /// RCV.NXT as it stands in the header.
    pub(super) acknowledgment: u32,
    /// The window as it stands in the header.
    pub(super) window: u16,
    pub(super) sacks: Vec<(u32, u32)>,
    /// The timestamp to echo.
    pub(super) echo: u32,
}

impl Receiver {
    /// A receiver that has seen the SYN; `shift` is what our SYN said.
    pub(super) const fn new(numbering: Numbering, capacity: u64, shift: u8) -> Self {
        let first = if capacity < 65_535 { capacity } else { 65_535 };
        Self {
            numbering,
            next: ORIGIN + 1,
            ready: VecDeque::new(),
            beyond: BTreeMap::new(),
            fin_at: None,
            capacity,
            shift,
            acked: ORIGIN + 1,
            window: first,
            blocks: VecDeque::new(),
            duplicate: None,
            recent: None,
            answer: Answer::None,
            quick: 0,
            last_data_ns: None,
            segment: SEGMENT_MIN,
            delivered: 0,
        }
    }

    /// Bytes that have arrived in order since the beginning.
    pub(super) const fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Bytes that may be read.
    pub(super) fn unread(&self) -> usize {
        self.ready.len()
    }

    /// The FIN has arrived in order.
    pub(super) fn is_finished(&self) -> bool {
        self.fin_at.is_some_and(|at| self.next > at)
    }

    /// One past the last position for which room was offered.
    pub(super) fn window_end(&self) -> u64 {
        (self.acked + self.window).max(self.next)
    }

    /// Whether a segment lies in the window at least in part (RFC 9293, 3.10.7.4;
    /// `tcp_sequence`).
    pub(super) fn is_acceptable(&self, from: u64, to: u64) -> bool {
        to >= self.acked && from <= self.window_end()
    }

    /// When data was last heard.
    pub(super) const fn last_data_ns(&self) -> Option<u64> {
        self.last_data_ns
    }

    /// Whether a timestamp is from before one that was seen (PAWS, RFC 7323, 5.3).
    pub(super) fn is_from_before(&self, now_ns: u64, value: u32) -> bool {
        self.recent.is_some_and(|(recent, at_ns)| {
            value.wrapping_sub(recent).cast_signed() < 0 && now_ns - at_ns < RECENT_AGE_NS
        })
    }

    /// Whether it is so by no more than so many ticks.
    pub(super) fn is_slightly_before(&self, value: u32, ticks: u64) -> bool {
        self.recent.is_some_and(|(recent, _)| u64::from(recent.wrapping_sub(value)) <= ticks)
    }

    /// Takes the timestamp of a segment that holds what is missing (RFC 7323, 4.3).
    pub(super) fn take_timestamp(&mut self, now_ns: u64, from: u64, value: u32) {
        if from <= self.acked && !self.is_from_before(now_ns, value) {
            self.recent = Some((value, now_ns));
        }
    }

    /// Bytes from `from` on, and whether the FIN follows them. Of what lies outside of the window
    /// nothing is taken.
    pub(super) fn arrives(&mut self, now_ns: u64, from: u64, bytes: &[u8], fin: bool) {
        let end = from + bytes.len() as u64;
        self.note_data(now_ns, bytes.len() as u64);
        if fin && (self.next..=self.window_end()).contains(&end) && self.fin_at.is_none() {
            self.fin_at = Some(end);
        }
        let to = end + u64::from(fin);
        if to <= self.next {
            self.duplicate = Some((from, to));
            self.answer_now();
            return;
        }
        let last = self.fin_at.unwrap_or(u64::MAX).min(self.window_end());
        let (first, last) = (from.max(self.next), end.min(last));
        if from < self.next && bytes.len() > 1 {
            self.duplicate = Some((from, self.next));
        }
        if first > self.next {
            self.keep(from, first, last, bytes);
            self.answer_now();
            return;
        }
        let filled = !self.beyond.is_empty();
        if last > first {
            self.accept(&bytes[(first - from) as usize..(last - from) as usize]);
        }
        let closed_window = last < end || (last == first && !bytes.is_empty());
        self.take_beyond();
        if self.fin_at == Some(self.next) {
            self.next += 1;
            self.answer_now();
        }
        if filled || closed_window || self.quick > 0 {
            self.answer_now();
            return;
        }
        match self.answer {
            Answer::None => {
                let soon_ns = now_ns + DELAY_NS - DELAY_NS / 4;
                self.answer = Answer::By { at_ns: fires_ns(now_ns, DELAY_NS), soon_ns };
            }
            Answer::By { soon_ns, .. } if now_ns / TICK_NS >= soon_ns / TICK_NS => {
                self.answer_now();
            }
            Answer::By { .. } | Answer::Now => {}
        }
    }

    /// What has arrived in order, up to so many bytes.
    pub(super) fn read(&mut self, most: usize) -> Vec<u8> {
        let most = most.min(self.ready.len());
        let bytes = ring::copy(&self.ready, 0..most);
        self.ready.drain(..most);
        // The window has doubled: say so (`tcp_cleanup_rbuf`).
        let now = self.window_end() - self.next;
        let room = self.room();
        if room >= 2 * now && room > now && most > 0 && !self.is_finished() {
            self.answer_now();
        }
        bytes
    }

    /// Says again what is missing.
    pub(super) const fn answer_now(&mut self) {
        self.answer = Answer::Now;
    }

    /// The same, naming a segment that lies below the window as a duplicate.
    pub(super) fn answer_duplicate(&mut self, from: u64, to: u64) {
        if to > from && from < self.next {
            self.duplicate = Some((from, to.min(self.next)));
        }
        self.answer_now();
    }

    /// Whether an acknowledgment leaves now by itself.
    pub(super) fn is_due(&self, now_ns: u64) -> bool {
        match self.answer {
            Answer::None => false,
            Answer::Now => true,
            Answer::By { at_ns, .. } => {
                let enough = self.next - self.acked > self.segment && self.room() >= self.window;
                enough || now_ns >= at_ns
            }
        }
    }

    /// When one leaves if nothing happens before.
    pub(super) const fn due_ns(&self) -> Option<u64> {
        match self.answer {
            Answer::None => None,
            Answer::Now => Some(0),
            Answer::By { at_ns, .. } => Some(at_ns),
        }
    }

    /// What a segment that leaves says; nothing is owed after it.
    pub(super) fn offer(&mut self) -> Offer {
        self.answer = Answer::None;
        self.quick = self.quick.saturating_sub(1);
        let unit = 1u64 << self.shift;
        let kept = self.window_end() - self.next;
        // Never less than was offered: rounded up, because the header has no finer unit; but not
        // without end where bytes come one by one and nobody reads them.
        let full = self.ready.len() as u64 > self.capacity + self.capacity / 4;
        let kept = if full { kept / unit } else { kept.div_ceil(unit) } * unit;
        let window = self.room().max(kept).min(65_535 << self.shift);
        self.acked = self.next;
        self.window = window;
        let wire =
            |block: &(u64, u64)| (self.numbering.wire(block.0), self.numbering.wire(block.1));
        let sacks = self.duplicate.iter().chain(&self.blocks).map(wire).collect();
        self.duplicate = None;
        Offer {
            acknowledgment: self.numbering.wire(self.next),
            window: (window >> self.shift) as u16,
            sacks,
            echo: self.recent.map_or(0, |(recent, _)| recent),
        }
    }

    /// The window that the free part of the buffer allows: nothing rather than little.
    fn room(&self) -> u64 {
        let free = self.capacity - (self.ready.len() as u64).min(self.capacity);
        let free = free >> self.shift << self.shift;
        if free < self.capacity / 16 || free < self.segment.min(self.capacity / 2) {
            0
        } else {
            free
        }
    }

    /// Data comes: how eagerly is it acknowledged (`tcp_event_data_recv`).
    fn note_data(&mut self, now_ns: u64, bytes: u64) {
        if bytes == 0 {
            return;
        }
        self.segment = self.segment.max(bytes);
        let pause_ns = self.last_data_ns.map(|last_ns| now_ns - last_ns);
        if pause_ns.is_none_or(|pause_ns| pause_ns > super::rtt::RTO_FIRST_NS) {
            let half = (self.window / (2 * self.segment)) as u32;
            self.quick = self.quick.max(half.clamp(2, QUICK));
        }
        self.last_data_ns = Some(now_ns);
    }

    fn accept(&mut self, bytes: &[u8]) {
        self.ready.extend(bytes);
        self.next += bytes.len() as u64;
        self.delivered += bytes.len() as u64;
    }

    /// Keeps `first..last` of what begins at `from`, joined with the ranges that it touches.
    fn keep(&mut self, from: u64, first: u64, last: u64, bytes: &[u8]) {
        if last <= first {
            return;
        }
        let known = self.beyond.range(..=first).next_back();
        if known.is_some_and(|(start, known)| start + known.len() as u64 >= last) {
            self.duplicate = Some((first, last));
            return;
        }
        let mut joined = (first, bytes[(first - from) as usize..(last - from) as usize].to_vec());
        if let Some((&start, before)) = self.beyond.range(..first).next_back()
            && start + before.len() as u64 >= first
        {
            let mut before = self.beyond.remove(&start).unwrap_or_default();
            let overlap = (start + before.len() as u64 - first) as usize;
            before.extend(&joined.1[overlap..]);
            joined = (start, before);
        }
        let (start, mut joined) = joined;
        loop {
            let end = start + joined.len() as u64;
            let Some((&next, _)) = self.beyond.range(start..=end).next() else { break };
            let after = self.beyond.remove(&next).unwrap_or_default();
            let overlap = ((end - next) as usize).min(after.len());
            joined.extend(&after[overlap..]);
        }
        let range = (start, start + joined.len() as u64);
        self.beyond.insert(start, joined);
        self.blocks.retain(|block| block.1 < range.0 || block.0 > range.1);
        self.blocks.push_front(range);
        self.blocks.truncate(BLOCKS_MAX);
    }

    /// What came too early and is in order now.
    fn take_beyond(&mut self) {
        while let Some(first) = self.beyond.first_entry() {
            if *first.key() > self.next {
                break;
            }
            let (start, bytes) = first.remove_entry();
            let known = (self.next - start).min(bytes.len() as u64) as usize;
            self.accept(&bytes[known..]);
        }
        let next = self.next;
        self.blocks.retain(|block| block.1 > next);
    }
}

#[cfg(test)]
#[path = "receiver_tests.rs"]
mod tests;
