//! Datagrams of one length at a constant rate, whether there is room for them or not, and who
//! counts those that come.
//!
//! Each carries its number and when it was sent; the rest follows from the number.

use super::{HEADERS, Heard};

/// Number and time at the beginning of each.
const STAMP: usize = 16;
/// How often who hears nothing asks for it.
const ASKED_EVERY_NS: u64 = 200_000_000;
/// What it asks with.
const QUESTION: [u8; STAMP] = [0x3f; STAMP];
/// The most datagrams that are counted, and told apart: ten minutes of 1 Gbit/s in the shortest
/// packets that anybody sends much of.
const MOST: u64 = 1 << 26;

/// Sends.
#[derive(Debug)]
pub struct Source {
    kbps: u64,
    bytes: u16,
    /// When it began; not before somebody asks, where it waits for that.
    begun_ns: Option<u64>,
    sent: u64,
}

/// Counts what comes.
#[derive(Debug)]
pub struct Sink {
    bytes: u16,
    /// When it asks next, as long as nothing has come.
    asks_ns: Option<u64>,
    /// Of what was sent within so long after the first, delays are no news.
    skip_ns: u64,
    /// When the first was sent that came.
    first_ns: Option<u64>,
    /// A bit for each that has come.
    came: Vec<u64>,
    /// One more than the number of the latest that was sent of those that came.
    next: u64,
    heard: Heard,
}

impl Source {
    /// Sends datagrams of `bytes` of payload, 16 at least, and with their headers so many kilobits
    /// a second, from a moment on, or else from the first question on.
    pub fn new(kbps: u64, bytes: u16, begun_ns: Option<u64>) -> Self {
        Self { kbps: kbps.max(1), bytes: bytes.max(STAMP as u16), begun_ns, sent: 0 }
    }

    pub(super) fn due_ns(&self) -> Option<u64> {
        let bits = self.sent * u64::from(self.bytes + HEADERS) * 8;
        let after_ns = u128::from(bits) * 1_000_000 / u128::from(self.kbps);
        Some(self.begun_ns? + after_ns as u64).filter(|_| self.sent < MOST)
    }

    pub(super) fn leaving(&mut self, now_ns: u64, out: &mut Vec<Vec<u8>>) {
        while self.due_ns().is_some_and(|due_ns| due_ns <= now_ns) {
            let mut payload = vec![filling(self.sent); usize::from(self.bytes)];
            payload[..8].copy_from_slice(&self.sent.to_be_bytes());
            payload[8..STAMP].copy_from_slice(&now_ns.to_be_bytes());
            out.push(payload);
            self.sent += 1;
        }
    }

    pub(super) fn arrives(&mut self, now_ns: u64) {
        self.begun_ns.get_or_insert(now_ns);
    }
}

impl Sink {
    /// Counts datagrams of so many bytes; asks for the first from a moment on, if any is said, and
    /// keeps no delays of those that were sent within `skip_ns` after the first.
    pub fn new(bytes: u16, asks_ns: Option<u64>, skip_ns: u64) -> Self {
        let (first_ns, came, next, heard) = (None, Vec::new(), 0, Heard::default());
        Self { bytes: bytes.max(STAMP as u16), asks_ns, skip_ns, first_ns, came, next, heard }
    }

    pub(super) const fn heard(&self) -> &Heard {
        &self.heard
    }

    pub(super) const fn due_ns(&self) -> Option<u64> {
        self.asks_ns
    }

    pub(super) fn leaving(&mut self, now_ns: u64, out: &mut Vec<Vec<u8>>) {
        if self.asks_ns.is_some_and(|asks_ns| asks_ns <= now_ns) {
            out.push(QUESTION.to_vec());
            self.asks_ns = Some(now_ns + ASKED_EVERY_NS);
        }
    }

    pub(super) fn arrives(&mut self, now_ns: u64, payload: &[u8]) -> Result<(), String> {
        if payload == QUESTION {
            return Ok(());
        }
        let word = |at: usize| {
            let bytes = payload.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
            bytes.map(u64::from_be_bytes)
        };
        let (Some(number), Some(sent_ns)) = (word(0), word(8)) else {
            return Err(format!("a datagram of {} bytes", payload.len()));
        };
        let is_whole = payload.len() == usize::from(self.bytes)
            && number < MOST
            && payload[STAMP..].iter().all(|byte| *byte == filling(number));
        if !is_whole {
            return Err(format!("datagram {number} of {} bytes was altered", payload.len()));
        }
        if !self.is_new(number) {
            return Err(format!("datagram {number} came twice"));
        }
        self.asks_ns = None;
        self.heard.note_length(payload);
        self.heard.opened_ns.get_or_insert(now_ns);
        self.heard.overtaken += u64::from(number < self.next);
        self.next = self.next.max(number + 1);
        if sent_ns >= *self.first_ns.get_or_insert(sent_ns) + self.skip_ns {
            self.heard.delays.note(now_ns.saturating_sub(sent_ns));
        }
        self.heard.note(now_ns, self.bytes.into());
        Ok(())
    }

    /// Notes that a number has come; whether it had not before.
    fn is_new(&mut self, number: u64) -> bool {
        let (at, bit) = ((number / 64) as usize, 1 << (number % 64));
        if self.came.len() <= at {
            self.came.resize(at + 1, 0);
        }
        let is_new = self.came[at] & bit == 0;
        self.came[at] |= bit;
        is_new
    }
}

/// The bytes behind the stamp.
const fn filling(number: u64) -> u8 {
    number as u8 ^ 0xa5
}
