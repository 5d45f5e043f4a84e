//! A client behind a NAT: what keeps its mapping alive while nobody speaks, and how long the NAT
//! remembers.
//!
//! The interval is learned, not fixed (RFC 5780, 4.6, with a session's own means): by a path of
//! its own, a new socket with a mapping of its own, the client asks the gateway to answer after a
//! while. If the answer arrives, a mapping outlives that while. The path in use is not put at risk.
//! What kind of NAT it is, and how it maps, is not asked.

use std::net::{IpAddr, SocketAddr};

use super::egress::Load;
use super::{Context, Peer, Role};
use crate::id::{LinkId, Transport};
use crate::outbox::Route;
use crate::path::{Health, Path, PathId, Trust};
use crate::time::{Duration, Instant};
use crate::wire::frame::{self, Echo, Frame, Response};

/// One keepalive in so many is a challenge: its answer tells that the gateway is still there, and
/// by which address it sees the client. More of them would cost more than an idle day may.
const ANSWERED: u32 = 10;
/// The same while keepalives are at most [`OFTEN`] apart: the NAT forgets soon, and such a day may
/// cost more.
const ANSWERED_OFTEN: u32 = 6;
/// See [`ANSWERED_OFTEN`].
const OFTEN: Duration = Duration::from_secs(60);
/// Keepalives in a row, with nothing between them, after which the session is idle enough to learn.
const IDLE: u32 = 2;
/// The longest interval that is tried: what is saved beyond it is not worth a thought.
const INTERVAL_MAX: Duration = Duration::from_secs(300);
/// The interval is this many hundredths of what a mapping is known to outlive.
const MARGIN: u32 = 95;
/// Learning ends when what is outlived and what is not are closer than this many tenths.
const CLOSE: u32 = 12;
/// How long an answer may be late.
const GRACE: Duration = Duration::from_secs(3);
/// Answers that stay away before the first interval counts as too long: one may be lost. Between
/// that and what is outlived it costs less to be wrong than to ask twice.
const TRIES: u8 = 2;

/// What is known of the NAT in front of one address.
#[derive(Debug, Default)]
pub(super) struct NatTimeout {
    of: Option<(LinkId, IpAddr)>,
    /// A mapping outlives this.
    outlives: Option<Duration>,
    /// And not this.
    forgets: Option<Duration>,
    test: Option<Test>,
    /// The mapping, as the gateway saw it last.
    observed: Option<SocketAddr>,
    /// Keepalives since anything else was sent.
    in_a_row: u32,
    /// Keepalives in all.
    sent: u32,
}

/// An answer that is asked for later.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingEcho {
    /// When it leaves.
    pub(super) due: Instant,
    path: PathId,
    response: Response,
}

/// One question: does a mapping outlive `length`?
#[derive(Clone, Copy, Debug)]
struct Test {
    path: PathId,
    length: Duration,
    tries: u8,
    /// The token of the answer that is awaited; `None` until the path is proven.
    token: Option<u64>,
    /// When what is awaited counts as lost.
    late: Instant,
}

impl NatTimeout {
    /// How long nothing need be sent.
    fn interval(&self, least: Duration) -> Duration {
        self.outlives.map_or(least, |outlives| (outlives * MARGIN / 100).max(least))
    }

    /// The next length to ask about; `None` when enough is known.
    fn next_length(&self, least: Duration) -> Option<Duration> {
        let outlives = self.outlives.unwrap_or(least);
        let length = match self.forgets {
            Some(forgets) if forgets * 10 <= outlives * CLOSE => return None,
            Some(forgets) => (outlives + forgets) / 2,
            None => outlives * 2,
        };
        (outlives < INTERVAL_MAX).then(|| length.min(INTERVAL_MAX))
    }
}

impl Peer {
    /// When a client behind a NAT must send something by `path`, the one in use.
    pub(super) fn keepalive_due(&self, least: Option<Duration>, path: &Path) -> Option<Instant> {
        let Role::Client(connector) = &self.role else { return None };
        let wanted = path.natted && self.paths.active_id() == Some(path.id);
        if !wanted || path.health != Health::Good {
            return None;
        }
        Some(path.sent_at? + connector.nat.interval(least?))
    }

    /// Whether the path is there to learn by, and for nothing else.
    pub(super) fn is_nat_test(&self, id: PathId) -> bool {
        let Role::Client(connector) = &self.role else { return false };
        connector.nat.test.is_some_and(|test| test.path == id)
    }

    /// When a question about the NAT is over.
    pub(super) fn nat_test_due(&self) -> Option<Instant> {
        let Role::Client(connector) = &self.role else { return None };
        Some(connector.nat.test.as_ref()?.late)
    }

    /// Sends what keeps the mapping alive, when it is due.
    pub(super) fn keep_alive(&mut self, cx: &mut Context<'_>) {
        self.lose_nat_test(cx);
        let Some(path) = self.paths.active() else { return };
        let due = self.keepalive_due(cx.config.keepalive, path);
        if due.is_none_or(|due| due > cx.now) {
            return;
        }
        let (id, of) = (path.id, path.link.zip(path.route.local));
        let Role::Client(connector) = &mut self.role else { return };
        let nat = &mut connector.nat;
        let elsewhere = nat.of != of;
        let old = if elsewhere { nat.test.take().map(|test| test.path) } else { None };
        if elsewhere {
            *nat = NatTimeout { of, ..NatTimeout::default() };
        }
        nat.sent = nat.sent.wrapping_add(1);
        nat.in_a_row += 1;
        let often = cx.config.keepalive.is_some_and(|least| nat.interval(least) <= OFTEN);
        let answered = nat.sent.is_multiple_of(if often { ANSWERED_OFTEN } else { ANSWERED });
        let idle = nat.in_a_row >= IDLE;
        if let Some(old) = old {
            self.end_nat_test(cx, old);
        }
        if answered {
            self.ask(cx, id);
        } else {
            let sent = self.send_on(cx, id, Load::Quiet, |draft| {
                frame::emit_padding(draft.frames(), 1);
            });
            if let Err(reason) = sent {
                cx.drops.count(reason);
            }
        }
        if let Some(path) = self.paths.get_mut(id) {
            path.sent_at = Some(cx.now); // not before the next interval again
        }
        if idle {
            self.learn(cx, id);
        }
    }

    /// Something else was sent: the session is not idle.
    pub(super) const fn not_idle(&mut self) {
        if let Role::Client(connector) = &mut self.role {
            connector.nat.in_a_row = 0;
        }
    }

    /// Begins to ask about the next length, by a path beside `id`.
    fn learn(&mut self, cx: &mut Context<'_>, id: PathId) {
        let (Some(least), Role::Client(connector)) = (cx.config.keepalive, &self.role) else {
            return;
        };
        if connector.nat.test.is_none()
            && let Some(length) = connector.nat.next_length(least)
        {
            self.test_by_new_path(cx, id, length, 0);
        }
    }

    /// Opens the path to learn by, like `id` but for its socket, and challenges it once, by a small
    /// datagram: to prove an address at full size would cost more than what is learned by it.
    fn test_by_new_path(&mut self, cx: &mut Context<'_>, id: PathId, length: Duration, tries: u8) {
        let Role::Client(connector) = &self.role else { return };
        let like = self.paths.get(id).filter(|path| path.transport() == Transport::Udp);
        let candidate = like.and_then(|path| connector.candidate_of(path.link, &path.route));
        if self.paths.has_room()
            && let Some(candidate) = candidate
            && let Some(path) = self.open_path(cx, candidate)
            && let Role::Client(connector) = &mut self.role
        {
            let late = cx.now + GRACE;
            connector.nat.test = Some(Test { path, length, tries, token: None, late });
            self.challenge(cx, path, 0);
        }
    }

    /// A path answered a challenge. If it is the one to learn by, the question follows.
    pub(super) fn ask_nat(&mut self, cx: &mut Context<'_>, id: PathId) {
        let token = cx.random();
        let Role::Client(connector) = &mut self.role else { return };
        let ready = |test: &&mut Test| test.path == id && test.token.is_none();
        let Some(test) = connector.nat.test.as_mut().filter(ready) else { return };
        (test.token, test.late) = (Some(token), cx.now + test.length + GRACE);
        let echo = Echo { delay: test.length, token };
        if let Err(reason) = self.send_frame(cx, id, &Frame::Echo(echo), 0) {
            cx.drops.count(reason);
        }
    }

    /// An answer came by `id`: whether it is the one that was asked for a while ago.
    pub(super) fn answers_nat_test(
        &mut self,
        cx: &mut Context<'_>,
        id: PathId,
        token: u64,
    ) -> bool {
        let still = self.nat_tested();
        let Role::Client(connector) = &mut self.role else { return false };
        let nat = &mut connector.nat;
        let asked = |test: &mut Test| test.path == id && test.token == Some(token);
        let Some(test) = nat.test.take_if(asked) else { return false };
        // Whatever else was sent since kept the mapping alive: then the question is open, and
        // asked again once.
        let sent_at = self.paths.get(id).and_then(|path| path.sent_at);
        let asked_at = test.late - GRACE - test.length;
        let clean = sent_at.is_none_or(|sent| sent <= asked_at);
        let tries = if clean { 0 } else { test.tries + 1 };
        if clean {
            nat.outlives = Some(test.length);
        }
        let least = cx.config.keepalive.filter(|_| still && tries < TRIES);
        match least.and_then(|least| nat.next_length(least)) {
            // The mapping lives: by the same one, the next question.
            Some(length) => {
                nat.test = Some(Test { length, tries, token: None, ..test });
                self.ask_nat(cx, id);
            }
            None => {
                if tries >= TRIES {
                    nat.forgets = Some(test.length);
                }
                self.end_nat_test(cx, test.path);
            }
        }
        true
    }

    /// An answer that stays away for too long: once more, then the length counts as too much.
    fn lose_nat_test(&mut self, cx: &mut Context<'_>) {
        let still = self.nat_tested();
        let Role::Client(connector) = &mut self.role else { return };
        let nat = &mut connector.nat;
        let late = |test: &mut Test| test.late <= cx.now;
        let Some(test) = nat.test.take_if(late) else { return };
        let (proven, tries) = (test.token.is_some(), test.tries + 1);
        let again = still && tries < TRIES && nat.forgets.is_none();
        if still && !again {
            // Who cannot even open a path learns nothing here.
            nat.forgets = Some(if proven { test.length } else { Duration::ZERO });
        }
        self.end_nat_test(cx, test.path);
        if again && let Some(active) = self.paths.active_id() {
            self.test_by_new_path(cx, active, test.length, tries);
        }
    }

    /// Whether the NAT that is being asked about is the one in front of the path in use, and is
    /// asked by another path.
    fn nat_tested(&self) -> bool {
        let Role::Client(connector) = &self.role else { return false };
        let tested = connector.nat.test.as_ref().map(|test| test.path);
        self.paths.active().is_some_and(|path| {
            let same = connector.nat.of == path.link.zip(path.route.local);
            path.natted && same && tested != Some(path.id)
        })
    }

    /// The path to learn by has served, unless data goes by it by now.
    fn end_nat_test(&mut self, cx: &mut Context<'_>, path: PathId) {
        if self.paths.active_id() != Some(path) {
            self.remove_path(cx, path);
        }
    }

    /// The gateway saw this end's mapping. One that changed while nobody spoke was forgotten.
    pub(super) fn observed_by_gateway(&mut self, id: PathId, observed: SocketAddr) {
        let active = self.paths.active_id() == Some(id);
        let Role::Client(connector) = &mut self.role else { return };
        let nat = &mut connector.nat;
        if !active {
            return;
        }
        let changed = nat.observed.replace(observed).is_some_and(|before| before != observed);
        if changed && nat.in_a_row > 0 {
            nat.forgets = nat.outlives.take();
        }
    }

    /// Gateway: answers later, by the path that the question came by; the newest counts.
    pub(super) fn take_echo(
        &mut self,
        cx: &Context<'_>,
        path: Option<PathId>,
        route: Route,
        echo: Echo,
    ) {
        let Some(path) = path.filter(|_| self.at_gateway() && echo.delay <= INTERVAL_MAX) else {
            return;
        };
        let response = Response { token: echo.token, observed: route.remote };
        self.echo = Some(PendingEcho { due: cx.now + echo.delay, path, response });
    }

    /// Gateway: the answer that is due.
    pub(super) fn echo_due(&mut self, cx: &mut Context<'_>) {
        let Some(echo) = self.echo.take_if(|echo| echo.due <= cx.now) else { return };
        let proven = |path: &Path| path.trust == Trust::Proven && path.health != Health::Gone;
        if self.paths.get(echo.path).is_some_and(proven)
            && let Err(reason) = self.send_frame(cx, echo.path, &Frame::Response(echo.response), 0)
        {
            cx.drops.count(reason);
        }
    }
}
