//! A client that only receives. If packets arrived regularly and then stop, the client asks whether
//! the gateway still reaches it. A NAT or firewall on the path may have lost its state. Without
//! this, nobody would notice: the gateway cannot get through, and the client has nothing to send.
//!
//! If the gateway challenges the client in turn, it has missed it, and the state was indeed lost.
//! Then the stream is asked for again while nothing comes: a NAT may lose its state at once again.
//!
//! Limits: a single packet, or packets more than [`GAP_MAX`] apart, must wait for the keepalive.

use crate::time::{Duration, Instant};

/// Packets with longer gaps do not count as a stream. The keepalive, 25 s by default, is not much
/// later than a question would be.
const GAP_MAX: Duration = Duration::from_secs(15);
/// A gap of so many times the longest before begins another stream, if it is also longer than
/// [`PAUSE_FAST`]: packets came irregularly.
const GAP_FACTOR: u32 = 2;
/// Gaps up to this one belong to a stream whatever its other gaps are.
const PAUSE_FAST: Duration = Duration::from_millis(1_500);
/// Packets that arrived for less time do not count as a stream either, such as a page or a single
/// answer.
const STREAM_MIN: Duration = Duration::from_secs(1);
/// So many packets show how far apart they come.
const PACKETS_MIN: u32 = 3;
/// A stream counts as stopped after this many of its longest gaps,
const PAUSES: u32 = 3;
/// at least after this time
const SILENCE_MIN: Duration = Duration::from_secs(1);
/// and at most so long after the next packet was due. With the questions and answers that follow,
/// a receiver waits for less than 5 s.
const LATE_MAX: Duration = Duration::from_secs(3);
/// Path challenges that may be sent without a wait. Most streams end without a fault.
const QUESTIONS_MAX: u32 = 30;
/// One more challenge is allowed after this time: less than 3 % of what came before it, if each
/// follows a stream of 100-byte packets.
const QUESTION_EVERY: Duration = Duration::from_secs(60);

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
    packets: u32,
    /// When it was asked for, if that was after the last packet,
    asked_at: Option<Instant>,
    /// and whether the gateway has missed the client since.
    is_missed: bool,
}

impl Stream {
    const fn new(now: Instant) -> Self {
        let pause = Duration::ZERO;
        Self { since: now, last: now, pause, packets: 1, asked_at: None, is_missed: false }
    }

    /// Whether a packet after such a gap belongs to the stream.
    fn fits(&self, gap: Duration) -> bool {
        let longest = match (self.asked_at, self.packets) {
            (Some(asked_at), _) => asked_at.saturating_since(self.last) + GAP_MAX,
            (None, 1) => GAP_MAX,
            (None, _) => (self.pause * GAP_FACTOR).clamp(PAUSE_FAST, GAP_MAX),
        };
        gap <= longest
    }

    fn is_regular(&self) -> bool {
        self.packets >= PACKETS_MIN && self.last.saturating_since(self.since) >= STREAM_MIN
    }

    /// When the stream counts as stopped, or a packet was due since the gateway missed the client;
    /// `None` if it is too short to be a stream, or was asked for.
    fn ended_at(&self) -> Option<Instant> {
        let silence = (self.pause * PAUSES).min(self.pause + LATE_MAX).max(SILENCE_MIN);
        let due = match self.asked_at {
            None => Some(self.last + silence),
            Some(at) => self.is_missed.then(|| at + self.pause.max(SILENCE_MIN)),
        };
        due.filter(|_| self.is_regular())
    }
}

impl Listening {
    pub(crate) const fn new() -> Self {
        Self { stream: None, questions: QUESTIONS_MAX, counted_at: Instant::ZERO }
    }

    /// Notes the arrival of an inner packet.
    pub(crate) fn hear(&mut self, now: Instant) {
        let stream = self.stream.get_or_insert_with(|| Stream::new(now));
        let gap = now.saturating_since(stream.last);
        if !stream.fits(gap) {
            *stream = Stream::new(now);
            return;
        }
        let was_asked = stream.asked_at.take().is_some();
        let is_refunded = std::mem::take(&mut stream.is_missed);
        if !was_asked {
            stream.pause = gap.max(stream.pause * 7 / 8);
        }
        stream.packets = stream.packets.saturating_add(1);
        stream.last = now;
        if was_asked && !is_refunded {
            self.refund();
        }
    }

    /// When a stream that stopped is worth a challenge.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.stream.as_ref()?.ended_at()
    }

    /// The gateway has missed the client: a challenge of its own came. The question was worth it.
    /// A challenge long after the question has another reason.
    pub(crate) fn be_missed(&mut self, now: Instant) {
        if let Some(stream) = &mut self.stream
            && stream.asked_at.is_some_and(|at| now.saturating_since(at) <= GAP_MAX)
            && !std::mem::replace(&mut stream.is_missed, true)
        {
            self.refund();
        }
    }

    const fn refund(&mut self) {
        if self.questions < QUESTIONS_MAX {
            self.questions += 1;
        }
    }

    /// Notes that a stream has stopped. Returns whether paths may be challenged for it.
    pub(crate) fn take_stopped(&mut self, now: Instant) -> bool {
        if self.due().is_none_or(|due| due > now) {
            return false;
        }
        let may_ask = self.take_question(now);
        match &mut self.stream {
            Some(stream) if may_ask => (stream.asked_at, stream.is_missed) = (Some(now), false),
            _ => self.stream = None,
        }
        may_ask
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
