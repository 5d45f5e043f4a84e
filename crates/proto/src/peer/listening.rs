//! A client that only receives. If packets arrived regularly and then stop, the client asks whether
//! the gateway still reaches it. A NAT or firewall on the path may have lost its state. Without
//! this, nobody would notice: the gateway cannot get through, and the client has nothing to send.
//!
//! Limits: a stream slower than one packet in [`GAP_MAX`] must wait for the keepalive.

use super::{Context, Peer, Role};
use crate::id::Transport;
use crate::path::{Path, PathId};
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
pub(super) struct Listening {
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
    pub(super) const fn new() -> Self {
        Self { stream: None, questions: QUESTIONS_MAX, counted_at: Instant::ZERO }
    }

    /// Notes the arrival of an inner packet.
    pub(super) fn hear(&mut self, now: Instant) {
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

impl Peer {
    /// When a stopped stream makes the client send challenges.
    pub(super) fn listen_due(&self) -> Option<Instant> {
        let Role::Client(connector) = &self.role else { return None };
        connector.listening.stream.as_ref()?.ended_at()
    }

    /// Challenges, once, every path that may have carried the stream.
    pub(super) fn ask_for_stream(&mut self, cx: &mut Context<'_>) {
        if self.listen_due().is_none_or(|due| due > cx.now) {
            return;
        }
        let Role::Client(connector) = &mut self.role else { return };
        connector.listening.stream = None;
        if !connector.listening.take_question(cx.now) {
            return;
        }
        let active = self.paths.active_id();
        let carries = |path: &&Path| {
            let may_have = Some(path.id) == active || path.congestion.is_some();
            let is_asked = path.probes.asking_since().is_some();
            may_have && path.is_able() && path.transport() == Transport::Udp && !is_asked
        };
        let paths: Vec<PathId> = self.paths.iter().filter(carries).map(|path| path.id).collect();
        for id in paths {
            self.ask(cx, id);
        }
    }
}
