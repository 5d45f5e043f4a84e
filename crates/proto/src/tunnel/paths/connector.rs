//! What the asking end of a session remembers: where the gateway may be, from which links, by which
//! sockets, and the handshakes under way.
//!
//! Decides which ways are tried and in what order. The tunnel decides when, and what an answer
//! changes (`connect`, `moving`).

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

use super::announced::Networks;
use super::candidate::Candidate;
use super::last_words::LastWords;
use super::listening::Listening;
use super::policing::Policing;
use super::trust::Distrusted;
use super::turns::{Turns, turn_time};
use super::unanswered::Unanswered;
use crate::crypto::{Cookie, Initiator, Status, Token};
use crate::id::{LinkId, SessionIndex, SocketId, Transport};
use crate::multipath::{Mode, Spread};
use crate::outbox::Route;
use crate::path::PathId;
use crate::session::index::{EpochId, IndexTable};
use crate::time::{Duration, Instant};
use crate::tunnel::keepalive::NatTimeout;
use crate::tunnel::restart::Proof;
use crate::tunnel::{Context, Link, StreamTo};
use crate::wire::control::{Lease, Prefix};
use crate::wire::handshake::ResponsePart;

/// Streams of one round.
pub const STREAMS_MAX: usize = 4;
/// UDP candidates of one round. A host with many links can try this many of its first links to one
/// address of the gateway.
const CANDIDATES_MAX: usize = 16;
/// At least this many candidates use links that have not answered, however many links have.
const UNANSWERED_PART: usize = 2;
/// Recent socket failures that are remembered.
const FAILURES_MAX: usize = 32;
/// Different versions kept of each of the two parts of a response. Each pair costs a decapsulation.
const PARTS_MAX: usize = 4;
/// Cookies that are kept.
const COOKIES_MAX: usize = 8;
/// How long no path is tried from where a socket has failed.
const FAILURE_TIME: Duration = Duration::from_secs(1);
/// How long attempts join a stream that was opened for one before them.
const STREAM_SHARED: Duration = Duration::from_secs(1);
/// How long a cookie is used (the gateway accepts it for two to four minutes).
const COOKIE_TIME: Duration = Duration::from_secs(110);

/// The asking end of a session: where the gateway may be, from which links, and the handshakes
/// under way.
#[derive(Debug)]
pub(crate) struct Connector {
    pub(crate) remotes: Vec<SocketAddr>,
    /// Where the gateway itself says that it is reached, best first.
    pub(crate) announced: Vec<SocketAddr>,
    /// Where it was followed to last: it may have moved there without a word.
    pub(crate) followed_to: Option<SocketAddr>,
    pub(crate) links: Vec<Link>,
    pub(crate) counter: u64,
    pub(crate) token: Option<Token>,
    pub(crate) advertise: Vec<Prefix>,
    /// A random number for this run of the program.
    pub(crate) run: u64,
    pub(crate) lease: Option<Lease>,
    pub(crate) networks: Networks,
    /// What would prove that the gateway lost the session that ended last.
    pub(crate) lost: Option<Proof>,
    /// When a notice of that last made this node ask, and how often, since it was answered.
    pub(crate) heeded: Option<(Instant, u32)>,
    /// The gateway's last answer, if it was no.
    pub(crate) refused: Option<Status>,
    pub(crate) sockets: Vec<OpenSocket>,
    /// Where UDP is blocked: the streams that may lead to the gateway, best first.
    pub(crate) streams: Vec<StreamTo>,
    /// Whether the gateway is asked by them alone, never by UDP.
    pub(crate) streams_alone: bool,
    /// Which of the gateway's addresses is asked by which spare link.
    pub(crate) turns: Turns,
    /// Links that were asked and have not answered since they appeared.
    pub(crate) unanswered: Unanswered,
    /// Whether there are more candidates than places.
    pub(crate) is_crowded: bool,
    /// Links that did badly of late.
    pub(crate) distrusted: Distrusted,
    /// What arrived by paths that are gone: the gateway is told.
    pub(crate) last_words: LastWords,
    /// What the user makes of the links, and which paths carry together.
    pub(crate) mode: Mode,
    pub(crate) spread: Spread,
    /// The ways to prove ahead of need: each as often as there shall be paths by it.
    pub(crate) spares: Vec<Candidate>,
    /// The paths that are kept for that.
    pub(crate) spare_paths: Vec<PathId>,
    /// From where sockets failed of late.
    failures: Vec<Failure>,
    /// Tracks packets that arrive while this client sends nothing.
    pub(crate) listening: Listening,
    /// What is known of the NAT in front of the path in use.
    pub(crate) nat: NatTimeout,
    /// Links that police UDP.
    pub(crate) policing: Policing,
    /// The number of the next keepalive.
    pub(crate) keepalives: u16,
    /// Cookies by the way that they were got: a gateway makes them for a source address.
    cookies: Vec<(Instant, Route, Cookie)>,
    pub(crate) round: Option<Round>,
    /// Whether the user wants a session.
    pub(crate) wanted: bool,
}

/// Handshakes under way.
#[derive(Debug)]
pub(crate) struct Round {
    pub(crate) started: Instant,
    pub(crate) next: Instant,
    pub(crate) pause: Duration,
    /// How often its candidates were asked.
    pub(crate) asked: u32,
    pub(crate) queue: VecDeque<Candidate>,
    pub(crate) attempts: VecDeque<Attempt>,
}

impl Round {
    /// One that begins at once, with `queue`.
    pub(crate) const fn new(now: Instant, pause: Duration, queue: VecDeque<Candidate>) -> Self {
        Self { started: now, next: now, pause, asked: 0, queue, attempts: VecDeque::new() }
    }
}

/// A socket of this end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenSocket {
    pub(crate) socket: SocketId,
    since: Instant,
    link: LinkId,
    local: IpAddr,
    stream: Option<StreamTo>,
}

/// Where a socket could not be had, or ended.
#[derive(Clone, Copy, Debug)]
struct Failure {
    since: Instant,
    link: LinkId,
    local: IpAddr,
    stream: Option<StreamTo>,
}

/// One exchange.
pub(crate) struct Attempt {
    pub(crate) epoch: EpochId,
    pub(crate) initiator: Initiator,
    pub(crate) indices: Vec<SessionIndex>,
    pub(crate) route: Route,
    pub(crate) candidate: Candidate,
    pub(crate) sent_at: Instant,
    /// Whether it was sent again with a cookie: once is enough.
    pub(crate) repeated: bool,
    /// Received parts of a response that was requested in parts.
    pub(crate) parts: Parts,
}

/// Parts of a response. An attacker who sees the exchange can forge parts, so a few versions of
/// each are kept, and trying finds the true pair.
#[derive(Debug, Default)]
pub(crate) struct Parts([Vec<Vec<u8>>; 2]);

impl Parts {
    /// Takes a part and returns the responses that it completes.
    pub(crate) fn take(&mut self, part: ResponsePart<'_>) -> Vec<Vec<u8>> {
        let Some(same) = self.0.get_mut(part.number) else { return Vec::new() };
        if same.iter().any(|known| known == part.piece) || same.len() >= PARTS_MAX {
            return Vec::new();
        }
        same.push(part.piece.to_vec());
        let joined = |head: &[u8], tail: &[u8]| [head, tail].concat();
        let [heads, tails] = &self.0;
        match part.number {
            0 => tails.iter().map(|tail| joined(part.piece, tail)).collect(),
            _ => heads.iter().map(|head| joined(head, part.piece)).collect(),
        }
    }
}

impl std::fmt::Debug for Attempt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Attempt").field("epoch", &self.epoch).finish_non_exhaustive()
    }
}

impl Connector {
    pub(crate) fn new(
        remotes: Vec<SocketAddr>,
        counter: u64,
        token: Option<Token>,
        advertise: Vec<Prefix>,
        run: u64,
    ) -> Self {
        Self {
            remotes,
            announced: Vec::new(),
            followed_to: None,
            links: Vec::new(),
            counter,
            token,
            advertise,
            run,
            lease: None,
            networks: Networks::default(),
            lost: None,
            heeded: None,
            refused: None,
            sockets: Vec::new(),
            streams: Vec::new(),
            streams_alone: false,
            turns: Turns::default(),
            unanswered: Unanswered::default(),
            is_crowded: false,
            distrusted: Distrusted::default(),
            last_words: LastWords::default(),
            mode: Mode::default(),
            spread: Spread::default(),
            spares: Vec::new(),
            spare_paths: Vec::new(),
            failures: Vec::new(),
            listening: Listening::new(),
            nat: NatTimeout::default(),
            policing: Policing::default(),
            keepalives: 0,
            cookies: Vec::new(),
            round: None,
            wanted: false,
        }
    }

    /// The attempt under way for the keys of `epoch`.
    pub(crate) fn attempt(&mut self, epoch: EpochId) -> Option<&mut Attempt> {
        self.round.as_mut()?.attempts.iter_mut().find(|attempt| attempt.epoch == epoch)
    }

    pub(crate) fn set_links(&mut self, links: &[Link]) {
        self.links = links.to_vec();
        self.unanswered.keep(&self.links);
        self.policing.retain(|id, local| {
            links.iter().any(|link| link.id == id && link.addresses.contains(&local))
        });
    }

    /// The gateway's addresses, best first: as it said itself, as it was found, then as the shell
    /// knows them.
    pub(crate) fn remotes(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        let found = self.followed_to.iter().filter(|at| !self.announced.contains(at));
        let known = self
            .remotes
            .iter()
            .filter(|&at| !self.announced.contains(at) && self.followed_to.as_ref() != Some(at));
        self.announced.iter().chain(found).chain(known).copied()
    }

    /// Whether a link is for when no other carries.
    pub(crate) fn stands_by(&self, link: Option<LinkId>) -> bool {
        self.links.iter().any(|known| Some(known.id) == link && known.stands_by)
    }

    /// Where the gateway wants to be reached by who reaches it at `remote` now: at the first
    /// address of that family that it announced.
    pub(crate) fn announced_for(&self, remote: SocketAddr) -> Option<SocketAddr> {
        self.announced.iter().find(|at| at.is_ipv4() == remote.is_ipv4()).copied()
    }

    /// Every pair of a local and a remote address of one family, for UDP: the best of the gateway's
    /// by every link, then the next.
    pub(crate) fn candidates(&self) -> impl Iterator<Item = Candidate> + '_ {
        self.remotes().filter(|_| !self.streams_alone).flat_map(move |remote| {
            self.links.iter().flat_map(move |link| {
                let fits = move |local: &&IpAddr| local.is_ipv4() == remote.is_ipv4();
                let local = link.addresses.iter().find(fits).copied();
                local.map(|local| Candidate { link: link.id, local, remote, stream: None })
            })
        })
    }

    /// The streams, each by every link of its family, best first.
    pub(crate) fn stream_candidates(&self) -> impl Iterator<Item = Candidate> + '_ {
        self.streams.iter().flat_map(move |&StreamTo { remote, method }| {
            self.links.iter().filter_map(move |link| {
                let fits = move |local: &&IpAddr| local.is_ipv4() == remote.is_ipv4();
                let local = link.addresses.iter().find(fits).copied()?;
                Some(Candidate { link: link.id, local, remote, stream: Some(method) })
            })
        })
    }

    /// Whether links that are to carry may do so by streams: there is nothing else, or each is to
    /// carry what it can.
    pub(crate) fn takes_streams(&self) -> bool {
        self.streams_alone || self.mode == Mode::Full
    }

    /// How many ways lead from an address of this family (IPv4 or not) that are asked by turns.
    pub(crate) fn ways_in_family(&self, v4: bool) -> usize {
        let remotes = if self.streams_alone {
            0
        } else {
            self.remotes().filter(|at| at.is_ipv4() == v4).count()
        };
        let streams = if self.takes_streams() {
            self.streams.iter().filter(|stream| stream.remote.is_ipv4() == v4).count()
        } else {
            0
        };
        remotes + streams
    }

    /// The candidates of a round after `before` rounds: as many as a round has, best first. If
    /// there are more, each round continues where the last one ended. Links that have not answered
    /// come last.
    pub(crate) fn round_candidates(&self, now: Instant, before: u32) -> VecDeque<Candidate> {
        let (unanswered, others): (Vec<_>, Vec<_>) =
            self.candidates().partition(|way| self.unanswered.has_long(now, way));
        let others = part(others, CANDIDATES_MAX, before);
        let room = CANDIDATES_MAX.saturating_sub(others.len()).max(UNANSWERED_PART);
        others
            .into_iter()
            .chain(part(unanswered, room, before))
            .chain(part(self.stream_candidates().collect(), STREAMS_MAX, before))
            .collect()
    }

    /// The candidate that a path by `route` came of.
    pub(crate) fn candidate_of(&self, link: Option<LinkId>, route: &Route) -> Option<Candidate> {
        let open = self.sockets.iter().find(|open| open.socket == route.socket);
        let stream = open.and_then(|open| open.stream).map(|stream| stream.method);
        Some(Candidate { link: link?, local: route.local?, remote: route.remote, stream })
    }

    /// When the newest of the attempts under way left that leads where `route` does.
    pub(crate) fn last_attempt(&self, route: &Route) -> Option<Instant> {
        let way = |route: &Route| (route.socket.transport(), route.remote);
        let mut newest = self.round.as_ref()?.attempts.iter().rev();
        Some(newest.find(|attempt| way(&attempt.route) == way(route))?.sent_at)
    }

    pub(crate) const fn is_trying(&self) -> bool {
        self.round.is_some()
    }

    /// Whether a round could begin.
    pub(crate) const fn can_try(&self) -> bool {
        self.round.is_none() && !self.links.is_empty()
    }

    /// When the next attempt is due.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.round.as_ref().map(|round| round.next)
    }

    /// Whether the user wants a session.
    pub(crate) const fn set_wanted(&mut self, wanted: bool) {
        self.wanted = wanted;
    }

    pub(crate) fn stop(&mut self, table: &mut IndexTable) {
        for attempt in self.round.take().into_iter().flat_map(|round| round.attempts) {
            table.revoke(attempt.indices);
        }
    }

    /// A socket of its own for a new path: a new local port, which a bystander on one network
    /// cannot link to the port used on another.
    pub(crate) fn open_socket(&mut self, cx: &mut Context<'_>, candidate: Candidate) -> SocketId {
        let Candidate { link, local, remote, stream } = candidate;
        let stream = stream.map(|method| StreamTo { remote, method });
        let socket = cx.open_socket(link, local, stream);
        self.sockets.push(OpenSocket { socket, since: cx.now, link, local, stream });
        socket
    }

    /// Whether `socket` was opened and not closed since.
    pub(crate) fn has_socket(&self, socket: SocketId) -> bool {
        self.sockets.iter().any(|open| open.socket == socket)
    }

    /// A socket has failed: it is not closed again, its attempts are over, and for a moment no path
    /// is tried from where it was.
    pub(crate) fn forget_socket(&mut self, now: Instant, socket: SocketId, table: &mut IndexTable) {
        let failed = self.sockets.iter().find(|open| open.socket == socket);
        if let Some(&OpenSocket { link, local, stream, .. }) = failed {
            self.forgive_failures(now);
            let same = (link, local, stream);
            self.failures.retain(|f| (f.link, f.local, f.stream) != same);
            if self.failures.len() >= FAILURES_MAX {
                self.failures.remove(0);
            }
            self.failures.push(Failure { since: now, link, local, stream });
        }
        self.sockets.retain(|open| open.socket != socket);
        for attempt in self.round.iter_mut().flat_map(|round| &mut round.attempts) {
            if attempt.route.socket == socket {
                table.revoke(std::mem::take(&mut attempt.indices));
            }
        }
        if let Some(round) = &mut self.round {
            round.attempts.retain(|attempt| attempt.route.socket != socket);
            if socket.transport() == Transport::Stream && !round.queue.is_empty() {
                round.next = now; // refused: there is no answer that the next one could wait for
            }
        }
    }

    /// Whether a socket from there failed a moment ago: another would as well.
    pub(crate) fn failed_lately(&self, now: Instant, candidate: Candidate) -> bool {
        let of = |failure: &Failure| failure.is_of(candidate) && !self.is_over(now, failure);
        self.failures.iter().any(of)
    }

    /// When a stream by `candidate`, which failed, may be tried again.
    pub(crate) fn retry_at(&self, candidate: &Candidate) -> Option<Instant> {
        let failures = self.failures.iter().filter(|failure| failure.stream.is_some());
        let failed = failures.filter(|failure| failure.is_of(*candidate));
        failed.map(|failure| failure.since + self.failure_time(failure)).max()
    }

    /// What failed long enough ago may be tried again.
    pub(crate) fn forgive_failures(&mut self, now: Instant) {
        let mut failures = std::mem::take(&mut self.failures);
        failures.retain(|failure| !self.is_over(now, failure));
        self.failures = failures;
    }

    fn is_over(&self, now: Instant, failure: &Failure) -> bool {
        now.saturating_since(failure.since) >= self.failure_time(failure)
    }

    /// A stream that is refused is refused again: it is tried ever more rarely, as other ways by
    /// turns are.
    fn failure_time(&self, failure: &Failure) -> Duration {
        match failure.stream {
            None => FAILURE_TIME,
            Some(_) => {
                let v4 = failure.local.is_ipv4();
                turn_time(self.turns.number((failure.link, v4)), self.ways_in_family(v4))
            }
        }
    }

    pub(crate) fn is_attempting_from(&self, socket: SocketId) -> bool {
        let attempts = self.round.iter().flat_map(|round| &round.attempts);
        attempts.into_iter().any(|attempt| attempt.route.socket == socket)
    }

    /// The socket that this round's attempts from `candidate` share; those of paths are not taken.
    /// A stream is shared by attempts to the same place while it is new: a later attempt must not
    /// wait behind what a stream that stands still has to repeat first.
    pub(crate) fn attempt_socket(
        &mut self,
        cx: &mut Context<'_>,
        candidate: Candidate,
    ) -> SocketId {
        let same = |attempt: &&Attempt| match (candidate.stream, attempt.candidate) {
            (Some(_), other) => {
                let new = |open: &OpenSocket| {
                    open.socket == attempt.route.socket
                        && cx.now.saturating_since(open.since) < STREAM_SHARED
                };
                other == candidate && self.sockets.iter().any(new)
            }
            (None, Candidate { link, local, stream: None, .. }) => {
                (link, local) == (candidate.link, candidate.local)
            }
            (None, Candidate { stream: Some(_), .. }) => false,
        };
        let shared = self.round.iter().flat_map(|round| &round.attempts).find(same);
        match shared.map(|attempt| attempt.route.socket) {
            Some(socket) => socket,
            None => self.open_socket(cx, candidate),
        }
    }

    pub(crate) fn cookie(&self, now: Instant, route: &Route) -> Option<&Cookie> {
        let fresh = |since: Instant| now.saturating_since(since) < COOKIE_TIME;
        self.cookies.iter().find(|(since, by, _)| by == route && fresh(*since)).map(|(_, _, c)| c)
    }

    pub(crate) fn keep_cookie(&mut self, now: Instant, route: Route, cookie: Cookie) {
        let fresh = |since: Instant| now.saturating_since(since) < COOKIE_TIME;
        self.cookies.retain(|(since, by, _)| *by != route && fresh(*since));
        if self.cookies.len() < COOKIES_MAX {
            self.cookies.push((now, route, cookie));
        }
    }
}

impl Failure {
    fn is_of(&self, way: Candidate) -> bool {
        let stream = self.stream.map(|to| (to.remote, to.method));
        (self.link, self.local) == (way.link, way.local)
            && stream == way.stream.map(|method| (way.remote, method))
    }
}

/// The part of `all` that is its turn after `before` others, `most` at a time, round and round.
fn part(mut all: Vec<Candidate>, most: usize, before: u32) -> Vec<Candidate> {
    if all.len() > most {
        let skipped = (before as usize).wrapping_mul(most) % all.len();
        all.rotate_left(skipped);
        all.truncate(most);
    }
    all
}
