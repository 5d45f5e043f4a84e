//! A client that only receives. If packets arrived regularly and then stop, the client asks whether
//! the gateway still reaches it. A NAT or firewall on the path may have lost its state. Without
//! this, nobody would notice: the gateway cannot get through, and the client has nothing to send.
//!
//! Limits: a stream slower than one packet in [`GAP_MAX`] must wait for the keepalive.

use crate::time::{Duration, Instant};

/// Packets with longer gaps do not count as a stream. With twice as much, a receiver would wait for
/// up to 8 s.
const GAP_MAX: Duration = Duration::from_millis(1_500);
/// Packets that arrived for less time do not count as a stream either, such as a page or a single
/// answer.
const STREAM_MIN: Duration = Duration::from_secs(3);
/// A stream counts as stopped after this many of its longest gaps,
const PAUSES: u32 = 3;
/// at least after this time
const SILENCE_MIN: Duration = Duration::from_secs(1);
/// and at most after this time.
const SILENCE_MAX: Duration = Duration::from_secs(4);
/// Path challenges that may be sent without a wait. Most streams end without a fault.
const QUESTIONS_MAX: u32 = 30;
/// One more challenge is allowed after this time: 240 a day, which is 50 KB with the responses.
const QUESTION_EVERY: Duration = Duration::from_secs(360);

/// The stream that a client receives, and its remaining challenges.
#[derive(Debug)]
pub(crate) struct Listening {
    stream: Option<Stream>,
    /// Remaining challenges,
    questions: u32,
    /// and when this number was last updated.
    counted_at: Instant,
}

/// Packets that arrive regularly.
#[derive(Clone, Copy, Debug)]
struct Stream {
    since: Instant,
    last: Instant,
    /// The longest gap. It decays by an eighth with each packet.
    pause: Duration,
}

impl Stream {
    /// When the stream counts as stopped; `None` if it is too short to be a stream.
    fn ended_at(&self) -> Option<Instant> {
        let silence = (self.pause * PAUSES).clamp(SILENCE_MIN, SILENCE_MAX);
        (self.last.saturating_since(self.since) >= STREAM_MIN).then(|| self.last + silence)
    }
}

impl Listening {
    pub(crate) const fn new() -> Self {
        Self { stream: None, questions: QUESTIONS_MAX, counted_at: Instant::ZERO }
    }

    /// Notes the arrival of an inner packet.
    pub(crate) fn hear(&mut self, now: Instant) {
        let fresh = Stream { since: now, last: now, pause: Duration::ZERO };
        let stream = self.stream.get_or_insert(fresh);
        let pause = now.saturating_since(stream.last);
        if pause > GAP_MAX {
            *stream = fresh;
        } else {
            stream.pause = pause.max(stream.pause * 7 / 8);
            stream.last = now;
        }
    }

    /// When a stream that stopped is worth a challenge.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.stream.as_ref()?.ended_at()
    }

    /// Ends a stream that stopped. Returns whether paths may be challenged for it.
    pub(crate) fn take_stopped(&mut self, now: Instant) -> bool {
        let is_due = self.due().is_some_and(|due| due <= now);
        if is_due {
            self.stream = None;
        }
        is_due && self.take_question(now)
    }

    /// Uses one of the remaining challenges. Returns whether there was one.
    fn take_question(&mut self, now: Instant) -> bool {
        while self.questions < QUESTIONS_MAX && self.counted_at + QUESTION_EVERY <= now {
            self.questions += 1;
            self.counted_at = self.counted_at + QUESTION_EVERY;
        }
        if self.questions == QUESTIONS_MAX {
            self.counted_at = now;
        }
        let may_ask = self.questions > 0;
        self.questions -= u32::from(may_ask);
        may_ask
    }
}
