//! A client behind a NAT: what keeps its mapping alive while nobody speaks, and how long the NAT
//! remembers.
//!
//! Each keepalive is answered, so that a client that says nothing notices within one interval that
//! its gateway is gone. Neither is sealed: two sealed datagrams every 113 s are 84 KB a day, these
//! are 52. So a keepalive changes nothing at the gateway, which answers only where it reaches the
//! client anyway. A keepalive that stays without an answer is followed by a challenge.
//!
//! The interval is learned, not fixed (RFC 5780, 4.6, with a session's own means): by a path of
//! its own, a new socket with a mapping of its own, the client asks the gateway to answer after a
//! while. If the answer arrives, a mapping outlives that while. The path in use is not put at risk.
//! What kind of NAT it is, and how it maps, is not asked.

use std::net::{IpAddr, SocketAddr};

use super::{Context, Side, Tunnel};
use crate::crypto;
use crate::error::DropReason;
use crate::id::{LinkId, Transport};
use crate::outbox::Route;
use crate::path::{Path, PathId};
use crate::session::index::Lead;
use crate::time::{Duration, Instant};
use crate::wire::frame::{Echo, Frame, Response};
use crate::wire::keepalive::{ANSWER_LEN, KEEPALIVE_LEN, Keepalive, KeepaliveProof};

/// Keepalives in a row, with nothing between them, after which the session is idle enough to learn.
const IDLE: u32 = 2;
/// The longest interval that is tried: what is saved beyond it is not worth a thought.
const INTERVAL_MAX: Duration = Duration::from_secs(300);
/// The interval is this many hundredths of what a mapping is known to outlive.
const MARGIN: u32 = 95;
/// Learning ends when what is outlived and what is not are closer than this many hundredths. At 120
/// a NAT that forgets after 120 s would be sent 5 % more every day, which costs as much as ten
/// questions; at 105 two more questions would save 2 %.
const CLOSE: u32 = 110;
/// How long an answer may be late.
const GRACE: Duration = Duration::from_secs(3);
/// Answers that stay away before the first interval counts as too long: one may be lost. Between
/// that and what is outlived it costs less to be wrong than to ask twice.
const TRIES: u8 = 2;

/// What is known of the NAT in front of one address.
#[derive(Debug, Default)]
pub(crate) struct NatTimeout {
    of: Option<(LinkId, IpAddr)>,
    /// A mapping outlives this.
    outlives: Option<Duration>,
    /// And not this.
    forgets: Option<Duration>,
    test: Option<Test>,
    /// The mapping, as the gateway saw it last.
    observed: Option<SocketAddr>,
    /// The number of the next keepalive.
    sent: u16,
    /// Keepalives since anything else was sent.
    in_a_row: u32,
    /// The keepalive whose answer is awaited.
    open: Option<Open>,
}

/// A keepalive that was sent and not yet answered.
#[derive(Clone, Copy, Debug)]
struct Open {
    path: PathId,
    answer: KeepaliveProof,
    /// When it counts as lost.
    late: Instant,
}

/// An answer that is asked for later.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingEcho {
    /// When it leaves.
    pub(crate) due: Instant,
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
    /// Whether the path exists only to find out when a NAT forgets.
    pub(crate) fn is_test(&self, id: PathId) -> bool {
        self.test.is_some_and(|test| test.path == id)
    }

    /// How long nothing need be sent.
    fn interval(&self, least: Duration) -> Duration {
        self.outlives.map_or(least, |outlives| (outlives * MARGIN / 100).max(least))
    }

    /// The next length to ask about; `None` when enough is known.
    fn next_length(&self, least: Duration) -> Option<Duration> {
        let outlives = self.outlives.unwrap_or(least);
        let length = match self.forgets {
            Some(forgets) if forgets * 100 <= outlives * CLOSE => return None,
            Some(forgets) => (outlives + forgets) / 2,
            None => outlives * 2,
        };
        (outlives < INTERVAL_MAX).then(|| length.min(INTERVAL_MAX))
    }
}

impl Tunnel {
    /// When a client behind a NAT must send something by `path`, the one in use.
    pub(crate) fn keepalive_due(&self, least: Option<Duration>, path: &Path) -> Option<Instant> {
        let Side::Client(connector) = &self.paths.side else { return None };
        let wanted = path.is_natted() && self.paths.list.active_id() == Some(path.id);
        if !wanted || !path.is_good() {
            return None;
        }
        Some(path.sent_at()? + connector.nat.interval(least?))
    }

    /// When an answer stays away for too long: to a keepalive, or to a question about the NAT.
    pub(crate) fn nat_answer_due(&self) -> Option<Instant> {
        let Side::Client(connector) = &self.paths.side else { return None };
        let nat = &connector.nat;
        let (open, test) = (nat.open.map(|open| open.late), nat.test.map(|test| test.late));
        open.into_iter().chain(test).min()
    }

    /// Sends what keeps the mapping alive, when it is due.
    pub(crate) fn keep_alive(&mut self, cx: &mut Context<'_>) {
        self.miss_answer(cx);
        self.lose_nat_test(cx);
        let Some(path) = self.paths.list.active() else { return };
        let due = self.keepalive_due(cx.config.keepalive, path);
        if due.is_none_or(|due| due > cx.now) {
            return;
        }
        let (id, of) = (path.id, path.link.zip(path.route.local));
        let Side::Client(connector) = &mut self.paths.side else { return };
        let nat = &mut connector.nat;
        let elsewhere = nat.of != of;
        let old = if elsewhere { nat.test.take().map(|test| test.path) } else { None };
        if elsewhere {
            *nat = NatTimeout { of, sent: nat.sent, ..NatTimeout::default() };
        }
        nat.in_a_row += 1;
        let idle = nat.in_a_row >= IDLE;
        if let Some(old) = old {
            self.manage(cx, |paths, cx| paths.remove_spare(cx, old));
        }
        // After a sleep the NAT has forgotten the client, and the gateway answers nothing unsealed.
        let slept = due.is_some_and(|due| cx.now.saturating_since(due) > GRACE);
        self.send_keepalive(cx, id, slept);
        if idle {
            self.learn(cx, id);
        }
    }

    /// Sends a keepalive by `id`; a challenge if the client slept, or if nothing has left by that
    /// path under the present keys.
    fn send_keepalive(&mut self, cx: &mut Context<'_>, id: PathId, slept: bool) {
        let epoch = self.epochs.current.as_ref().filter(|_| !slept);
        let index = epoch.and_then(|epoch| epoch.keepalive_index(id));
        let Some(path) = self.paths.list.get_mut(id) else { return };
        path.kept_alive(cx.now); // not before the next interval again
        let (Some((epoch, index)), Side::Client(connector)) =
            (epoch.zip(index), &mut self.paths.side)
        else {
            return self.ask(cx, id);
        };
        let keepalive = Keepalive { index, number: connector.nat.sent };
        connector.nat.sent = connector.nat.sent.wrapping_add(1);
        let (answer, late) = (epoch.answer(keepalive), cx.now + path.patience());
        connector.nat.open = Some(Open { path: id, answer, late });
        path.sent(cx.now, KEEPALIVE_LEN);
        cx.send_clear(path.route, &keepalive.emit());
    }

    /// Asks by a challenge if a keepalive was not answered in time: one of them was lost, the NAT
    /// maps to another address, or the gateway is gone.
    fn miss_answer(&mut self, cx: &mut Context<'_>) {
        let Side::Client(connector) = &mut self.paths.side else { return };
        let late = |open: &mut Open| open.late <= cx.now;
        let Some(open) = connector.nat.open.take_if(late) else { return };
        if self.paths.list.active_id() == Some(open.path) {
            self.ask(cx, open.path);
        }
    }

    /// Client: an answer to a keepalive came by `route`.
    ///
    /// # Errors
    /// [`DropReason::BadMac`] if none is awaited from there, or another.
    pub(crate) fn keepalive_answered(
        &mut self,
        cx: &Context<'_>,
        (route, came_at): (Route, Instant),
        proof: KeepaliveProof,
    ) -> Result<(), DropReason> {
        let Side::Client(connector) = &mut self.paths.side else { return Err(DropReason::BadMac) };
        let path = self.paths.list.by_route_mut(&route).ok_or(DropReason::BadMac)?;
        let answered =
            |open: &mut Open| open.path == path.id && crypto::same(&open.answer.0, &proof.0);
        connector.nat.open.take_if(answered).ok_or(DropReason::BadMac)?;
        path.heard(cx.now, came_at, ANSWER_LEN);
        Ok(())
    }

    /// Gateway: answers a keepalive that came by the path on which the client is reached. From
    /// anywhere else it may be anybody's, or a NAT maps anew: that takes a challenge.
    ///
    /// # Errors
    /// [`DropReason::NoRoute`] if the client is reached otherwise, or not at all.
    pub(crate) fn answer_keepalive(
        &mut self,
        cx: &mut Context<'_>,
        lead: Lead,
        route: Route,
        keepalive: Keepalive,
    ) -> Result<(), DropReason> {
        let epoch = self.epochs.current.as_ref().filter(|epoch| epoch.id == lead.epoch);
        let lane = epoch.and_then(|epoch| epoch.rx.get(&lead.serial));
        let path =
            self.paths.list.by_route(&route).filter(|path| path.is_able()).map(|path| path.id);
        let is_here = path.is_some()
            && path == self.paths.list.active_id()
            && lane.is_some_and(|lane| lane.path == path);
        if !is_here || !self.paths.at_gateway() {
            return Err(DropReason::NoRoute);
        }
        let answer = epoch.map(|epoch| epoch.answer(keepalive)).ok_or(DropReason::NoRoute)?;
        cx.send_clear(route, &answer.emit());
        Ok(())
    }

    /// Something else was sent: the session is not idle.
    pub(crate) const fn not_idle(&mut self) {
        if let Side::Client(connector) = &mut self.paths.side {
            connector.nat.in_a_row = 0;
        }
    }

    /// Begins to ask about the next length, by a path beside `id`.
    fn learn(&mut self, cx: &mut Context<'_>, id: PathId) {
        let (Some(least), Side::Client(connector)) = (cx.config.keepalive, &self.paths.side) else {
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
        let Side::Client(connector) = &self.paths.side else { return };
        let like = self.paths.list.get(id).filter(|path| path.transport() == Transport::Udp);
        let candidate = like.and_then(|path| connector.candidate_of(path.link, &path.route));
        if self.paths.list.has_room()
            && let Some(candidate) = candidate
            && let Some(path) = self.manage(cx, |paths, cx| paths.open_path(cx, candidate))
            && let Side::Client(connector) = &mut self.paths.side
        {
            let late = cx.now + GRACE;
            connector.nat.test = Some(Test { path, length, tries, token: None, late });
            self.challenge(cx, path, 0);
        }
    }

    /// A path answered a challenge. If it is the one to learn by, the question follows.
    pub(crate) fn ask_nat(&mut self, cx: &mut Context<'_>, id: PathId) {
        let token = cx.random();
        let Side::Client(connector) = &mut self.paths.side else { return };
        let ready = |test: &&mut Test| test.path == id && test.token.is_none();
        let Some(test) = connector.nat.test.as_mut().filter(ready) else { return };
        (test.token, test.late) = (Some(token), cx.now + test.length + GRACE);
        let echo = Echo { delay: test.length, token };
        if let Err(reason) = self.send_frame(cx, id, &Frame::Echo(echo), 0) {
            cx.drops.count(reason);
        }
    }

    /// An answer came by `id`: whether it is the one that was asked for a while ago.
    pub(crate) fn answers_nat_test(
        &mut self,
        cx: &mut Context<'_>,
        id: PathId,
        token: u64,
    ) -> bool {
        let still = self.nat_tested();
        let Side::Client(connector) = &mut self.paths.side else { return false };
        let nat = &mut connector.nat;
        let asked = |test: &mut Test| test.path == id && test.token == Some(token);
        let Some(test) = nat.test.take_if(asked) else { return false };
        // Whatever else was sent since kept the mapping alive: then the question is open, and
        // asked again once.
        let sent_at = self.paths.list.get(id).and_then(|path| path.sent_at());
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
                self.manage(cx, |paths, cx| paths.remove_spare(cx, test.path));
            }
        }
        true
    }

    /// An answer that stays away for too long: once more, then the length counts as too much.
    fn lose_nat_test(&mut self, cx: &mut Context<'_>) {
        let still = self.nat_tested();
        let Side::Client(connector) = &mut self.paths.side else { return };
        let nat = &mut connector.nat;
        let late = |test: &mut Test| test.late <= cx.now;
        let Some(test) = nat.test.take_if(late) else { return };
        let (proven, tries) = (test.token.is_some(), test.tries + 1);
        let again = still && tries < TRIES && nat.forgets.is_none();
        if still && !again {
            // Who cannot even open a path learns nothing here.
            nat.forgets = Some(if proven { test.length } else { Duration::ZERO });
        }
        self.manage(cx, |paths, cx| paths.remove_spare(cx, test.path));
        if again && let Some(active) = self.paths.list.active_id() {
            self.test_by_new_path(cx, active, test.length, tries);
        }
    }

    /// Whether the NAT that is being asked about is the one in front of the path in use, and is
    /// asked by another path.
    fn nat_tested(&self) -> bool {
        let Side::Client(connector) = &self.paths.side else { return false };
        let tested = connector.nat.test.as_ref().map(|test| test.path);
        self.paths.list.active().is_some_and(|path| {
            let same = connector.nat.of == path.link.zip(path.route.local);
            path.is_natted() && same && tested != Some(path.id)
        })
    }

    /// The gateway saw this end's mapping. One that changed while nobody spoke was forgotten.
    pub(crate) fn observed_by_gateway(&mut self, id: PathId, observed: SocketAddr) {
        let active = self.paths.list.active_id() == Some(id);
        let Side::Client(connector) = &mut self.paths.side else { return };
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
    pub(crate) fn take_echo(
        &mut self,
        cx: &Context<'_>,
        path: Option<PathId>,
        route: Route,
        echo: Echo,
    ) {
        let Some(path) = path.filter(|_| self.paths.at_gateway() && echo.delay <= INTERVAL_MAX)
        else {
            return;
        };
        let response = Response { token: echo.token, observed: route.remote };
        self.echo = Some(PendingEcho { due: cx.now + echo.delay, path, response });
    }

    /// Gateway: when an answer is due that the client asked for.
    pub(crate) fn echo_due(&self) -> Option<Instant> {
        self.echo.as_ref().map(|echo| echo.due)
    }

    /// Gateway: the answer that is due.
    pub(crate) fn send_echo(&mut self, cx: &mut Context<'_>) {
        let Some(echo) = self.echo.take_if(|echo| echo.due <= cx.now) else { return };
        let proven = |path: &Path| path.is_proven() && !path.is_gone();
        if self.paths.list.get(echo.path).is_some_and(proven)
            && let Err(reason) = self.send_frame(cx, echo.path, &Frame::Response(echo.response), 0)
        {
            cx.drops.count(reason);
        }
    }
}
