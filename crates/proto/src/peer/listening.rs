//! A client that only listens. When packets came regularly and stop, it asks whether the gateway
//! still reaches it: a NAT or a firewall on the way may have lost its state, and nobody else finds
//! out. The gateway cannot get through, and a listener has nothing to send.
//!
//! Limits: a stream that is slower than one packet in [`GAP_MAX`] waits for the keepalive.

use super::{Context, Peer, Role};
use crate::id::Transport;
use crate::path::{Path, PathId};
use crate::time::{Duration, Instant};

/// Packets with longer pauses between them are no stream. With twice as much a listener would wait
/// for up to 8 s.
const GAP_MAX: Duration = Duration::from_millis(1_500);
/// Packets that came for less time are none either: a page that is loaded, an answer.
const STREAM_MIN: Duration = Duration::from_secs(3);
/// It has stopped after so many of its longest pauses,
const PAUSES: u32 = 3;
/// at least this
const SILENCE_MIN: Duration = Duration::from_secs(1);
/// and at most this.
const SILENCE_MAX: Duration = Duration::from_secs(4);
/// Questions that may be asked at once; most streams end without a fault.
const QUESTIONS_MAX: u32 = 30;
/// One more may be asked after this time: 240 a day, which is 50 KB with their answers.
const QUESTION_EVERY: Duration = Duration::from_secs(360);

/// What a client hears, and what it may still ask.
#[derive(Debug)]
pub(super) struct Listening {
    stream: Option<Stream>,
    /// Questions left,
    questions: u32,
    /// and since when that is so.
    counted_at: Instant,
}

/// Packets that come regularly.
#[derive(Clone, Copy, Debug)]
struct Stream {
    since: Instant,
    last: Instant,
    /// The longest pause, of which an eighth is forgotten with each packet.
    pause: Duration,
}

impl Stream {
    /// When it counts as stopped; `None` where it is too short to be one.
    fn ended_at(&self) -> Option<Instant> {
        let silence = (self.pause * PAUSES).clamp(SILENCE_MIN, SILENCE_MAX);
        (self.last.saturating_since(self.since) >= STREAM_MIN).then(|| self.last + silence)
    }
}

impl Listening {
    pub(super) const fn new() -> Self {
        Self { stream: None, questions: QUESTIONS_MAX, counted_at: Instant::ZERO }
    }

    /// An inner packet came.
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

    /// Takes one of the questions that are left.
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
    /// When a stream that stopped makes a client ask.
    pub(super) fn listen_due(&self) -> Option<Instant> {
        let Role::Client(connector) = &self.role else { return None };
        connector.listening.stream.as_ref()?.ended_at()
    }

    /// Asks by the paths that a stream may have come by, once.
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
