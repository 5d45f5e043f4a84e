//! One path: a local address, a remote address, a transport, and what is known of them.
//!
//! Decides whether the address at the other end is proven, how large a datagram the path carries,
//! how long an answer takes and when silence means death. Knows nothing of keys, of the frames
//! that it causes or of the other paths: the tunnel sends on its behalf.

pub mod mtu;
pub(crate) mod offload;
pub mod probe;
mod state;

use std::net::{IpAddr, SocketAddr};

use crate::congestion::{Conditions, Controller, Findings, ShortQueue};
pub use crate::id::PathId;
use crate::id::{LinkId, Transport};
use crate::outbox::Route;
use crate::recovery::delay::Delay;
use crate::recovery::feedback::{DELAY_STEADY, Reports};
use crate::recovery::rate::Rate;
use crate::recovery::rtt::Rtt;
use crate::recovery::{AckSample, Acknowledged, RateSample};
use crate::time::{Duration, Instant};
use crate::wire::data::BASE_DATAGRAM;
use crate::wire::frame::Feedback;
use mtu::MtuSearch;
use offload::Offload;
use probe::{Answer, Probes};
use state::State;
pub use state::{Health, Trust};

/// Silence for this long beyond three round trips, while an answer is owed, means that the path
/// carries nothing.
pub(crate) const SILENCE_GRACE: Duration = Duration::from_millis(200);

/// Paths of one session at most.
pub const PATHS_MAX: usize = 16;

/// A path of one peer.
#[derive(Debug)]
pub struct Path {
    /// Its name.
    pub id: PathId,
    /// Where its datagrams go.
    pub route: Route,
    /// The local link, where this node chose it.
    pub link: Option<LinkId>,
    /// Its round-trip time.
    pub rtt: Rtt,
    /// How much longer than need be what this end sends is on its way.
    pub delay: Delay,
    /// What arrives at the other end, and here.
    pub rates: (Rate, Rate),
    /// How much it may carry now, while data is shared among several paths.
    pub congestion: Option<Box<dyn Controller>>,
    /// The datagram size that it carries.
    pub mtu: MtuSearch,
    /// How runs of datagrams are sent by it.
    pub(crate) offload: Offload,
    /// Its challenges.
    pub probes: Probes,
    state: State,
    /// Bytes sent by it that arrived, under whatever keys, UDP payload.
    arrived: u64,
    shared_since: Instant,
    was_wanted: bool,
    since: Instant,
    proven_at: Option<Instant>,
    mtu_due: Option<Instant>,
    heard_at: Option<Instant>,
    returned_at: Option<Instant>,
    sent_at: Option<Instant>,
    preferred_by_peer: bool,
    natted: bool,
    counts: Counts,
}

/// Bytes that were saved on inner packets, as they would count at layer 3.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Saved {
    /// By headers that travel once.
    pub elision: u64,
    /// By compression.
    pub compression: u64,
    /// By packets that share a datagram: the other datagrams.
    pub aggregation: u64,
}

impl Saved {
    /// Adds what was saved elsewhere.
    pub const fn add(&mut self, other: Self) {
        self.elision += other.elision;
        self.compression += other.compression;
        self.aggregation += other.aggregation;
    }
}

/// What went by a path so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// Bytes sent, UDP payload,
    pub(crate) sent: u64,
    /// in so many datagrams.
    pub(crate) datagrams: u64,
    /// Bytes received, UDP payload.
    pub(crate) received: u64,
    /// Inner packets that were too large for the path and left in pieces.
    pub(crate) split: u64,
    /// Inner packets sent by it again: lost by this path or another, or owed to one that died.
    pub(crate) retransmitted: u64,
    /// Bytes of copies that left by it of what is of no use late, frame headers included.
    pub(crate) copied: u64,
    /// What told the peer what had arrived, and nothing else.
    pub(crate) reports: Reports,
    /// Bytes that were saved on what left by it.
    pub(crate) saved: Saved,
}

impl Path {
    /// A path of which nothing is known yet.
    pub fn new(
        id: PathId,
        route: Route,
        link: Option<LinkId>,
        since: Instant,
        trust: Trust,
    ) -> Self {
        Self {
            id,
            route,
            link,
            rtt: Rtt::default(),
            delay: Delay::default(),
            rates: (Rate::default(), Rate::default()),
            congestion: None,
            mtu: match route.socket.transport() {
                Transport::Udp => MtuSearch::default(),
                Transport::Stream => MtuSearch::of_stream(),
            },
            offload: Offload::default(),
            probes: Probes::default(),
            state: State::new(trust),
            arrived: 0,
            shared_since: since,
            was_wanted: false,
            since,
            proven_at: None,
            mtu_due: None,
            heard_at: None,
            returned_at: None,
            sent_at: None,
            preferred_by_peer: false,
            natted: false,
            counts: Counts::default(),
        }
    }

    /// The network that it uses, if nothing ever came by it: another path there may take over its
    /// number space. A network that disappears may return as another one with the same addresses.
    pub(crate) fn unheard_network(&self) -> Option<(LinkId, IpAddr)> {
        let is_unheard = self.heard_at().is_none() && !self.is_gone();
        self.link.zip(self.route.local).filter(|_| is_unheard)
    }

    /// What carries its datagrams.
    pub const fn transport(&self) -> Transport {
        self.route.socket.transport()
    }

    /// What names the interface by which its datagrams leave: a client knows the link, a gateway
    /// its own address.
    pub(crate) const fn interface(&self) -> (Option<LinkId>, Option<IpAddr>) {
        let local = if self.link.is_some() { None } else { self.route.local };
        (self.link, local)
    }

    /// How far its other end is trusted.
    pub const fn trust(&self) -> Trust {
        self.state.trust
    }

    /// Whether it carries data.
    pub const fn health(&self) -> Health {
        self.state.health
    }

    /// Whether `len` bytes may be sent now, in one datagram or in several: always, except to a
    /// claimed address.
    pub const fn allows(&self, len: usize) -> bool {
        self.state.allows(len)
    }

    /// Whether the path may carry originals.
    pub(crate) const fn is_proven(&self) -> bool {
        matches!(self.state.trust, Trust::Proven)
    }

    /// Whether somebody claimed to be there, and nothing proves it.
    pub(crate) const fn is_claimed(&self) -> bool {
        matches!(self.state.trust, Trust::Claimed { .. })
    }

    /// Whether nothing is owed, or answers come in time.
    pub(crate) const fn is_good(&self) -> bool {
        matches!(self.state.health, Health::Good)
    }

    /// Whether an answer is overdue.
    pub(crate) const fn is_silent(&self) -> bool {
        matches!(self.state.health, Health::Silent { .. })
    }

    /// Whether it is given up.
    pub(crate) const fn is_gone(&self) -> bool {
        matches!(self.state.health, Health::Gone)
    }

    /// Whether data may go by it now: it is proven, and answers.
    pub(crate) const fn is_able(&self) -> bool {
        self.is_proven() && self.is_good()
    }

    /// Whether it carries a share of the data.
    pub(crate) fn has_share(&self) -> bool {
        self.congestion.is_some() && self.is_able()
    }

    /// Records that a datagram of `len` bytes left which carries feedback and nothing else.
    pub const fn reported(&mut self, len: usize) {
        self.counts.reports.datagrams += 1;
        self.counts.reports.bytes += len as u64;
    }

    /// Records that `len` bytes left.
    pub fn sent(&mut self, now: Instant, len: usize) {
        self.sent_at = Some(now);
        if let Some(congestion) = &mut self.congestion {
            congestion.sent(now, len);
        }
        self.counts.sent += len as u64;
        self.counts.datagrams += 1;
        self.state.sent(len);
    }

    /// A keepalive left, and the next one is due an interval later.
    pub(crate) const fn kept_alive(&mut self, now: Instant) {
        self.sent_at = Some(now);
    }

    /// An inner packet leaves by it in pieces.
    pub(crate) const fn note_split(&mut self) {
        self.counts.split += 1;
    }

    /// An inner packet leaves by it again.
    pub(crate) const fn note_retransmitted(&mut self) {
        self.counts.retransmitted += 1;
    }

    /// A copy of `len` bytes leaves by it.
    pub(crate) const fn note_copied(&mut self, len: usize) {
        self.counts.copied += len as u64;
    }

    /// So much was saved on a packet that leaves by it.
    pub(crate) const fn note_saved(&mut self, saved: Saved) {
        self.counts.saved.add(saved);
    }

    /// What went by it so far.
    pub(crate) const fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Something comes: if nothing had come for as long as an answer may take, the path returns.
    pub(crate) fn note_return(&mut self, now: Instant) {
        let patience = self.patience();
        if self.heard_at.is_none_or(|heard| heard + patience <= now) {
            self.returned_at = Some(now);
        }
    }

    /// Takes a sample of lateness from a report that arrived at `came_at` and is read now. The
    /// report contains how long the other end held it.
    pub(crate) fn note_lateness(&mut self, now: Instant, came_at: Instant, report: &Feedback) {
        let rate = self.congestion.as_ref().and_then(|one| one.rate());
        let usual = rate.map_or(DELAY_STEADY, crate::recovery::feedback::wait);
        let held = Duration::from_micros(report.delay_us.into());
        let late = held.saturating_sub(usual) + now.saturating_since(came_at);
        self.rtt.note_lateness(now, late);
    }

    /// Records an authentic datagram of `len` bytes that arrived at `came_at`.
    pub fn heard(&mut self, now: Instant, came_at: Instant, len: usize) {
        self.heard_at = Some(now);
        self.counts.received += len as u64;
        self.rates.1.sample(now, came_at.wrapping_micros(), self.counts.received);
        self.state.received(len);
    }

    /// The peer tells what arrived of the packets sent by it. `conditions` are the session's.
    pub(crate) fn acknowledged(
        &mut self,
        now: Instant,
        feedback: &Feedback,
        told: &Acknowledged,
        conditions: Conditions,
    ) -> Findings {
        let findings = self.delivered(now, feedback, told, conditions);
        self.mtu.confirm_by_data(now, told.largest_arrived);
        if told.shrunk {
            self.doubt_mtu(now);
        }
        if self.is_silent() && self.is_proven() {
            self.answers(now);
            self.probes.stop();
        }
        // A repeated search costs up to 15 large datagrams. Small packets and the session's own
        // frames gain nothing by it, and an idle session must stay silent.
        let is_worth_it = !self.mtu.is_settled() || told.delivered >= BASE_DATAGRAM as u64;
        if is_worth_it && self.mtu_due.is_none() && self.mtu.wants_probe(now) {
            self.mtu_due = Some(now);
        }
        findings
    }

    /// The same, as far as rate, delay and congestion go.
    fn delivered(
        &mut self,
        now: Instant,
        feedback: &Feedback,
        news: &Acknowledged,
        conditions: Conditions,
    ) -> Findings {
        // A lane counts its own, and each pair of keys has lanes of its own.
        self.arrived += news.delivered;
        self.rates.0.sample(now, feedback.arrived_us, self.arrived);
        if let Some((sent_at, _)) = news.newest {
            self.delay.sample(now, sent_at, feedback.arrived_us);
        }
        let queue = self.delay.queue(now);
        let Some(congestion) = &mut self.congestion else { return Findings::default() };
        let &Acknowledged { delivered, lost, in_flight, .. } = news;
        let trip = news.newest.map(|(_, trip)| trip);
        let arrived = self.arrived;
        let before = |lane: u64| arrived.saturating_sub(news.arrived.saturating_sub(lane));
        let rate = news
            .rate
            .map(|rate| RateSample { prior_delivered: before(rate.prior_delivered), ..rate });
        let sample = AckSample { delivered, arrived, lost, in_flight, rate, trip, queue };
        let conditions = Conditions { reports_late: self.rtt.lateness(), ..conditions };
        congestion.on_ack(now, &sample, &conditions)
    }

    /// Whether it is silent, but not for long: a few answers were lost, perhaps, or the last of
    /// what there was to send.
    pub(crate) fn may_return(&self, now: Instant) -> bool {
        let Health::Silent { since } = self.state.health else { return false };
        now.saturating_since(since) < self.patience()
    }

    /// An answer has come by it: if it was silent, it carries again; after a short silence as much
    /// as before (the idea of RFC 4015), after a long one a round trip of that at first.
    pub fn answers(&mut self, now: Instant) {
        let is_as_before = self.may_return(now);
        if self.state.move_from_silent()
            && let Some(congestion) = self.congestion.as_mut().filter(|_| !is_as_before)
        {
            congestion.lost_all(now);
        }
    }

    /// Data is shared with it from now on, or no more.
    pub(crate) fn set_shared(&mut self, now: Instant, is_shared: bool) {
        if is_shared != self.congestion.is_some() {
            self.congestion = if is_shared {
                Some(Box::new(ShortQueue::new(now, self.rtt.measured())))
            } else {
                None
            };
            self.shared_since = now;
        }
    }

    /// Takes the answer to a challenge: the address is proven and the path carries data.
    pub fn proved(&mut self, now: Instant, answer: Answer) {
        self.rtt.sample(answer.elapsed, Duration::ZERO);
        self.move_to_proven(now);
        let small = answer.size < self.mtu.datagram() && self.mtu.datagram() > BASE_DATAGRAM;
        if small && self.is_silent() {
            // Only the small get through: the path may have shrunk.
            self.doubt_mtu(now);
        }
        self.mtu.confirm(now, answer.size);
        self.answers(now);
    }

    /// Data goes by it from now on. Only large datagrams tell that a path has shrunk, and none
    /// went by this one for a while, perhaps. Returns whether its size is to be probed again.
    pub(crate) fn taken_up(&mut self, now: Instant) -> bool {
        self.transport() == Transport::Udp && self.mtu.is_stale(now) && self.mtu.doubt(false)
    }

    /// Large datagrams vanish while small ones arrive.
    pub(crate) fn doubt_mtu(&mut self, now: Instant) {
        if self.transport() == Transport::Udp && self.mtu.doubt(true) {
            self.mtu_due = Some(now);
        }
    }

    /// The peer sends by a path that was said to be gone: by somebody else's doing it was taken for
    /// another, and it is there.
    pub(crate) const fn move_from_gone(&mut self) {
        self.state.move_from_gone();
    }

    /// Somebody answered there, or only the peer could have sent from there.
    pub(crate) fn move_to_proven(&mut self, now: Instant) {
        self.state.move_to_proven();
        self.proven_at.get_or_insert(now);
    }

    /// An answer is overdue: whatever it was asked before was about something else.
    pub(crate) fn move_to_silent(&mut self, now: Instant) {
        self.state.move_to_silent(now);
        self.probes.stop();
        if self.congestion.is_some() {
            self.probes.start_eagerly(now, &self.rtt);
        }
    }

    /// Its address is gone, or the peer says that it is not there.
    pub(crate) const fn move_to_gone(&mut self) {
        self.state.move_to_gone();
    }

    /// It leads to `remote` from now on, where nobody has answered yet.
    pub(crate) fn move_to(&mut self, now: Instant, remote: SocketAddr) {
        self.route.remote = remote;
        self.state.move_to_chosen();
        (self.since, self.proven_at, self.heard_at) = (now, None, None);
        self.probes = Probes::default();
    }

    /// When it was first thought of, or led elsewhere.
    pub(crate) const fn since(&self) -> Instant {
        self.since
    }

    /// How long its proof took, if that is a thing of this moment; nothing if it stood by.
    pub(crate) fn proof_took(&self, now: Instant) -> Duration {
        let stood_by = self.proven_at.is_some_and(|proven_at| proven_at < now);
        if stood_by { Duration::ZERO } else { now.saturating_since(self.since) }
    }

    /// When an authentic datagram last came by it.
    pub(crate) const fn heard_at(&self) -> Option<Instant> {
        self.heard_at
    }

    /// When anything last left by it.
    pub(crate) const fn sent_at(&self) -> Option<Instant> {
        self.sent_at
    }

    /// When it was heard of again after a silence in both directions.
    pub(crate) const fn returned_at(&self) -> Option<Instant> {
        self.returned_at
    }

    /// Its return is long enough ago that nothing follows from it any more.
    pub(crate) const fn forget_return(&mut self) {
        self.returned_at = None;
    }

    /// Since when it carries a share, or does not.
    pub(crate) const fn shared_since(&self) -> Instant {
        self.shared_since
    }

    /// Whether something waited for it when it was looked at last: if that leaves later than its
    /// pace allows, a timer was late, or as much was on its way as may be.
    pub(crate) const fn was_wanted(&self) -> bool {
        self.was_wanted
    }

    /// Something waits for it, or nothing does.
    pub(crate) const fn set_wanted(&mut self, wanted: bool) {
        self.was_wanted = wanted;
    }

    /// When the next probe of its MTU is due.
    pub(crate) const fn mtu_due(&self) -> Option<Instant> {
        self.mtu_due
    }

    /// The next probe of its MTU is due then.
    pub(crate) const fn set_mtu_due(&mut self, due: Option<Instant>) {
        self.mtu_due = due;
    }

    /// Whether the peer asked to use it.
    pub(crate) const fn is_preferred(&self) -> bool {
        self.preferred_by_peer
    }

    /// The peer asks to use it, or another.
    pub(crate) const fn set_preferred(&mut self, preferred: bool) {
        self.preferred_by_peer = preferred;
    }

    /// Whether there is a NAT: the peer saw another address than the local one.
    pub(crate) const fn is_natted(&self) -> bool {
        self.natted
    }

    /// The peer saw its local address as `observed`.
    pub(crate) fn note_observed(&mut self, observed: SocketAddr) {
        self.natted = self.route.local.is_some_and(|local| local != observed.ip());
    }

    /// A handshake was answered by it.
    pub(crate) fn note_handshake(&mut self, now: Instant, sent_at: Instant) {
        self.move_to_proven(now);
        self.move_from_gone();
        self.answers(now);
        self.heard_at = Some(now);
        self.probes.stop();
        self.rtt.sample(now.saturating_since(sent_at), Duration::ZERO);
    }

    /// How long an answer may be owed before the path counts as silent.
    pub fn patience(&self) -> Duration {
        self.rtt.smoothed() * 3 + SILENCE_GRACE
    }
}

#[cfg(test)]
#[path = "path_tests.rs"]
mod tests;
