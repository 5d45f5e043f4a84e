//! What a client remembers of its links and its gateway: a part for each subject, and its sockets.
//!
//! Decides which candidates a round of handshakes has, in what order, and by which sockets
//! (`attempts`), and whether an answer is one (`answers`). It is handed the peer's identity and the
//! paths. Whether a session is wanted, and what new keys change, others decide.

mod answers;
mod attempts;

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

use super::candidate::Candidate;
use super::candidates::Candidates;
use super::granted::Granted;
use super::handshakes::{Attempt, Handshakes};
use super::listening::Listening;
use super::nat::NatTimeout;
use super::policing::Policing;
use super::spares::Spares;
use super::trust::Distrusted;
use super::turns::{Turns, turn_time};
use super::unanswered::Unanswered;
use crate::context::{Context, Event, Link, StreamTo};
use crate::crypto::Token;
use crate::id::{LinkId, SocketId};
use crate::multipath::Mode;
use crate::outbox::Route;
use crate::session::index::IndexTable;
use crate::time::{Duration, Instant};
use crate::wire::control::Prefix;

pub(crate) use answers::{Answer, Refusal};

/// Streams of one round.
pub const STREAMS_MAX: usize = 4;
/// UDP candidates of one round. A host with many links can try this many of its first links to one
/// address of the gateway.
const CANDIDATES_MAX: usize = 16;
/// At least this many candidates use links that have not answered, however many links have.
const UNANSWERED_PART: usize = 2;
/// Recent socket failures that are remembered.
const FAILURES_MAX: usize = 32;
/// How long no path is tried from where a socket has failed.
const FAILURE_TIME: Duration = Duration::from_secs(1);
/// How long attempts join a stream that was opened for one before them.
const STREAM_SHARED: Duration = Duration::from_secs(1);

/// What a client remembers of its links and its gateway.
#[derive(Debug)]
pub(crate) struct Connector {
    pub(crate) candidates: Candidates,
    pub(crate) handshakes: Handshakes,
    pub(crate) spares: Spares,
    pub(crate) granted: Granted,
    /// Tracks packets that arrive while this client sends nothing.
    pub(crate) listening: Listening,
    sockets: Vec<OpenSocket>,
    /// Which of the gateway's addresses is asked by which spare link.
    pub(crate) turns: Turns,
    /// Links that were asked and have not answered since they appeared.
    pub(crate) unanswered: Unanswered,
    /// Links that did badly of late.
    pub(crate) distrusted: Distrusted,
    /// From where sockets failed of late.
    failures: Vec<Failure>,
    /// What is known of the NAT in front of the path in use.
    pub(crate) nat: NatTimeout,
    /// Links that police UDP.
    pub(crate) policing: Policing,
}

/// A socket of this end.
#[derive(Clone, Copy, Debug)]
struct OpenSocket {
    socket: SocketId,
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

impl Connector {
    pub(crate) fn new(
        remotes: Vec<SocketAddr>,
        counter: u64,
        token: Option<Token>,
        advertise: Vec<Prefix>,
        run: u64,
    ) -> Self {
        Self {
            candidates: Candidates::new(remotes),
            handshakes: Handshakes::new(counter, token, advertise, run),
            spares: Spares::default(),
            granted: Granted::default(),
            listening: Listening::new(),
            sockets: Vec::new(),
            turns: Turns::default(),
            unanswered: Unanswered::default(),
            distrusted: Distrusted::default(),
            failures: Vec::new(),
            nat: NatTimeout::default(),
            policing: Policing::default(),
        }
    }

    pub(crate) fn set_links(&mut self, links: &[Link]) {
        self.candidates.set_links(links);
        self.unanswered.keep(links);
        self.policing.retain(|id, local| {
            links.iter().any(|link| link.id == id && link.addresses.contains(&local))
        });
    }

    /// Where the gateway is sought first, in each family.
    pub(crate) fn home(&self) -> [Option<IpAddr>; 2] {
        let first = |v4| self.candidates.remotes().find(|at| at.is_ipv4() == v4);
        [true, false].map(|v4| first(v4).map(|at| at.ip()))
    }

    /// Whether links that are to carry may do so by streams: there is nothing else, or each is to
    /// carry what it can.
    pub(crate) fn takes_streams(&self) -> bool {
        self.candidates.are_streams_alone() || self.spares.mode() == Mode::Full
    }

    /// How many ways lead from an address of this family (IPv4 or not) that are asked by turns.
    pub(crate) fn ways_in_family(&self, v4: bool) -> usize {
        let (udp, streams) = self.candidates.in_family(v4);
        if self.takes_streams() { udp + streams } else { udp }
    }

    /// The candidates of a round after `before` rounds: as many as a round has, best first. If
    /// there are more, each round continues where the last one ended. Links that have not answered
    /// come last.
    pub(crate) fn round_candidates(&self, now: Instant, before: u32) -> VecDeque<Candidate> {
        let (unanswered, others): (Vec<_>, Vec<_>) =
            self.candidates.udp().partition(|way| self.unanswered.has_long(now, way));
        let others = part(others, CANDIDATES_MAX, before);
        let room = CANDIDATES_MAX.saturating_sub(others.len()).max(UNANSWERED_PART);
        others
            .into_iter()
            .chain(part(unanswered, room, before))
            .chain(part(self.candidates.streams().collect(), STREAMS_MAX, before))
            .collect()
    }

    /// The candidate that a path by `route` came of.
    pub(crate) fn candidate_of(&self, link: Option<LinkId>, route: &Route) -> Option<Candidate> {
        let open = self.sockets.iter().find(|open| open.socket == route.socket);
        let stream = open.and_then(|open| open.stream).map(|stream| stream.method);
        Some(Candidate { link: link?, local: route.local?, remote: route.remote, stream })
    }

    /// Whether a round could begin.
    pub(crate) fn can_try(&self) -> bool {
        !self.handshakes.is_trying() && !self.candidates.links().is_empty()
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

    /// Closes the sockets that neither a path (`is_used`) nor an attempt needs.
    pub(super) fn close_unused(
        &mut self,
        cx: &mut Context<'_>,
        is_used: impl Fn(SocketId) -> bool,
    ) {
        let handshakes = &self.handshakes;
        self.sockets.retain(|&OpenSocket { socket, .. }| {
            let is_needed = is_used(socket) || handshakes.needs(socket);
            if !is_needed {
                cx.tell(Event::CloseSocket { socket });
            }
            is_needed
        });
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
        self.handshakes.forget_socket(now, socket, table);
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
        let shared = self.handshakes.round.iter().flat_map(|round| &round.attempts).find(same);
        match shared.map(|attempt| attempt.route.socket) {
            Some(socket) => socket,
            None => self.open_socket(cx, candidate),
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
