//! What a peer does because time has passed. Every wake-up names its reason.

use super::egress::Load;
use super::epoch::Epoch;
use super::moving::CLAIM_TIME;
use super::standby::SPARE_ASKED;
use super::{Config, Context, Peer, Role};
use crate::error::{DropReason, PeerError};
use crate::id::Transport;
use crate::outbox::Draft;
use crate::path::PATHS_MAX;
use crate::path::{Health, Path, PathId, Trust};
use crate::time::{Duration, Instant};
use crate::wire::frame::Frame;

/// A path that was silent for this long, asked some three times, makes a client ask for a new
/// session in the background, by every way that there is: the gateway may have lost its own, or UDP
/// be blocked.
const HANDSHAKE_AFTER: Duration = Duration::from_secs(1);
/// Nothing came or went by a stream for this long: either there was nothing, or it stands still.
const QUIET: Duration = Duration::from_secs(1);
/// How long a stream stays open that was in use before UDP worked again.
const STREAM_KEPT: Duration = Duration::from_secs(30);
/// How long a gateway challenges a client that went silent; the next data begins anew.
const GATEWAY_ASKS: Duration = Duration::from_secs(15);

/// The same while open connections wait for it.
const GATEWAY_ASKS_FOR_FLOWS: Duration = Duration::from_secs(60);

/// Why the core wants to be woken.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Reason {
    /// A handshake attempt.
    Handshake,
    /// Feedback about what arrived.
    Feedback,
    /// A control frame that is sent, or sent again.
    Control,
    /// A path challenge.
    Challenge,
    /// A probe of a path's MTU.
    Mtu,
    /// An answer that is overdue: the path may be dead.
    Silence,
    /// A claimed address that did not prove itself.
    Claim,
    /// Something for a NAT to see, or an answer from behind it that stays away.
    Keepalive,
    /// A link that was left because it did badly is trusted again.
    Trust,
    /// An answer that was asked for a while ago.
    Echo,
    /// Old keys to be forgotten.
    Epoch,
    /// Packets that waited too long for a way.
    Waiting,
    /// A path that may carry what waits for its turn.
    Pace,
    /// Something that counts as lost, or may leave again.
    Repair,
    /// A copy of what must not be late.
    Copy,
    /// A gap in a sequence that was held open for long enough.
    Order,
    /// An open connection whose other end is spoken for.
    Flow,
    /// A session that nobody came back to.
    Persistence,
    /// Memory that nobody needs.
    Memory,
}

/// The first of the moments at which something is due, and why; the lesser reason of two at once.
/// Put together after every packet, so it compares numbers and no options.
#[derive(Clone, Copy)]
struct Earliest(Instant, Reason);

impl Earliest {
    const NEVER: Self = Self(Instant::from_nanos(u64::MAX), Reason::Memory);

    fn or(self, due: Option<Instant>, reason: Reason) -> Self {
        let Self(never, _) = Self::NEVER;
        let other = due.unwrap_or(never);
        if (other, reason) < (self.0, self.1) { Self(other, reason) } else { self }
    }

    fn get(self) -> Option<(Instant, Reason)> {
        let Self(never, _) = Self::NEVER;
        (self.0 < never).then_some((self.0, self.1))
    }
}

impl Peer {
    /// When the peer must be woken, and why.
    pub(crate) fn poll_timeout(&self, config: &Config) -> Option<(Instant, Reason)> {
        self.due_beside_pace(config).or(self.bond_due(), Reason::Pace).get()
    }

    /// The same, but for what waits until a path may carry it.
    fn due_beside_pace(&self, config: &Config) -> Earliest {
        let (cx_keepalive, persistence) = (config.keepalive, config.persistence_timeout);
        let connector = match &self.role {
            Role::Client(connector) => connector.due(),
            Role::Gateway { .. } => None,
        };
        let epoch = self.epochs.current.as_ref();
        let owed = self.epochs.all_receiving().flat_map(|epoch| epoch.rx.values());
        let owed = owed.filter_map(|lane| lane.owed.due()).min();
        let control = if self.can_send() { self.control.due() } else { None };
        let mut due = Earliest::NEVER
            .or(connector, Reason::Handshake)
            .or(owed.filter(|_| self.can_send()), Reason::Feedback)
            .or(control, Reason::Control)
            .or(self.epochs.due(), Reason::Epoch)
            .or(self.waiting.due(), Reason::Waiting)
            .or(self.lost_due(), Reason::Repair)
            .or(self.late_due(), Reason::Repair)
            .or(self.rescue_due(), Reason::Silence)
            .or(self.twin_due(), Reason::Copy)
            .or(self.bond.entry.due(), Reason::Waiting)
            .or(self.order_due(), Reason::Order)
            .or(self.flows.due(), Reason::Flow)
            .or(self.return_due(), Reason::Silence)
            .or(self.trust_due(), Reason::Trust)
            .or(self.quiet_due(), Reason::Silence)
            .or(self.listen_due(), Reason::Silence)
            .or(self.retry_due(), Reason::Challenge)
            .or(self.nat_answer_due(), Reason::Keepalive)
            .or(self.echo.as_ref().map(|echo| echo.due), Reason::Echo)
            .or(self.persistence_due(persistence), Reason::Persistence);
        for path in self.paths.iter() {
            due = due
                .or(self.probe_due(path), Reason::Challenge)
                .or(self.check_due(path), Reason::Challenge)
                .or(self.turn_due(path), Reason::Challenge)
                .or(self.rest_due(path), Reason::Challenge)
                .or(path.mtu_due, Reason::Mtu)
                .or(self.silence_due(epoch, path), Reason::Silence)
                .or(self.asked_enough_due(path), Reason::Challenge)
                .or(self.claim_due(path), Reason::Claim)
                .or(self.keepalive_due(cx_keepalive, path), Reason::Keepalive);
        }
        due
    }

    /// Does what is due.
    pub(crate) fn handle_timeout(&mut self, cx: &mut Context<'_>) {
        // While much is sent, this is nearly always all.
        if self.bond_due().is_some_and(|due| due <= cx.now)
            && self.due_beside_pace(cx.config).get().is_none_or(|(due, _)| due > cx.now)
        {
            self.serve_bond(cx);
            self.speak_for_others(cx); // who is assisted may have room now
            return;
        }
        self.end_silence(cx);
        self.epochs.expire(cx.now, cx.indices);
        for _ in 0..self.waiting.expire(cx.now) {
            cx.drops.count(DropReason::NoRoute);
        }
        if self.waiting.may_leave(cx.now) {
            self.flush_waiting(cx);
        }
        self.forget_lost(cx);
        self.rescue(cx);
        self.send_twins(cx);
        self.bond.entry.expire(cx.memory.blocks(), cx.now);
        self.give_up_gaps(cx);
        self.attempt_due(cx);
        self.notice_silence(cx);
        self.stop_asking(cx.now);
        self.drop_overdue(cx);
        self.ask_quiet_stream(cx);
        self.ask_for_stream(cx);
        self.trust_again(cx);
        self.take_turns(cx);
        self.take_rests(cx);
        self.retry_streams(cx);
        self.check_spares(cx);
        self.send_probes_due(cx);
        self.search_mtus_due(cx);
        self.report_due(cx);
        if self.control.due().is_some_and(|due| due <= cx.now) {
            self.send_control(cx);
        }
        self.keep_alive(cx);
        self.echo_due(cx);
        if self.epochs.current.as_ref().is_some_and(Epoch::is_exhausted) {
            self.end(cx, PeerError::EpochExhausted);
        }
        self.refresh_state(cx);
        // A path that got a share just now makes for less patience with it and with others.
        for _ in 0..PATHS_MAX {
            if !self.notice_silence(cx) {
                break;
            }
            self.refresh_state(cx);
        }
        self.take_turns(cx); // one path less by a link may make it another address' turn there
        self.take_rests(cx);
        self.rescue(cx);
        self.give_up_late(cx); // also by a path that has just got a share
        self.send_lost(cx);
        self.serve_bond(cx);
        self.speak_for_others(cx);
    }

    /// Whether there is a way to send control frames now.
    fn can_send(&self) -> bool {
        self.paths.active_id().is_some() || self.best_proven(None).is_some()
    }

    /// When a path that owes an answer counts as silent.
    fn silence_due(&self, epoch: Option<&Epoch>, path: &Path) -> Option<Instant> {
        if path.health != Health::Good {
            return self.silent_step_due(path);
        }
        let epoch = epoch?;
        let (owed_since, told_at) = match epoch.tx.iter().find(|lane| lane.path == path.id) {
            Some(lane) => (lane.flight.unanswered_since(), lane.flight.told_at()),
            None if epoch.has_lane_for(path) => (None, None),
            // No index is left: what it is asked does not leave, and nobody will answer.
            None => (path.probes.asking_since(), None),
        };
        let due = owed_since? + self.patience(path);
        // Who becomes slower tells late of everything, but tells. The last word of a path that dies
        // comes half a round trip and a report's wait later, so this finds no death later.
        Some(told_at.map_or(due, |told| due.max(told + path.rtt.smoothed())))
    }

    /// A silent path of a client: when to ask for a new session, or to give up the path if it is
    /// a spare one.
    fn silent_step_due(&self, path: &Path) -> Option<Instant> {
        let Health::Silent { since } = path.health else { return None };
        match &self.role {
            Role::Client(connector) => {
                if self.paths.active_id() != Some(path.id) {
                    return (!self.is_spare(path)).then_some(since + SPARE_ASKED);
                }
                connector.can_try().then_some(since + HANDSHAKE_AFTER)
            }
            Role::Gateway { .. } => None,
        }
    }

    /// Client: whether `path` is a stream that UDP has taken the place of.
    fn is_spare_stream(&self, path: &Path) -> bool {
        !self.at_gateway()
            && path.transport() == Transport::Stream
            && path.congestion.is_none()
            && !self.is_spare(path)
            && self.paths.active().is_some_and(|active| {
                active.transport() == Transport::Udp && active.health == Health::Good
            })
    }

    /// When a gateway has challenged `path` for long enough, whatever it is taken for: a client
    /// that is there will send, and one that is not must not be asked for ever.
    fn asked_enough_due(&self, path: &Path) -> Option<Instant> {
        let asking = path.probes.asking_since().filter(|_| self.at_gateway());
        let enough = if self.flows.is_waiting() { GATEWAY_ASKS_FOR_FLOWS } else { GATEWAY_ASKS };
        asking.map(|since| since + enough)
    }

    fn stop_asking(&mut self, now: Instant) {
        let enough = |path: &&Path| self.asked_enough_due(path).is_some_and(|due| due <= now);
        let enough: Vec<_> = self.paths.iter().filter(enough).map(|path| path.id).collect();
        for id in enough {
            if let Some(path) = self.paths.get_mut(id) {
                path.probes.stop();
            }
        }
    }

    /// Does what is due about silent paths. Returns whether anything was.
    fn notice_silence(&mut self, cx: &mut Context<'_>) -> bool {
        let epoch = self.epochs.current.as_ref();
        let due = |path: &&Path| self.silence_due(epoch, path).is_some_and(|due| due <= cx.now);
        let due: Vec<PathId> = self.paths.iter().filter(due).map(|path| path.id).collect();
        let any = !due.is_empty();
        for id in due {
            let active = self.paths.active_id() == Some(id);
            let Some(path) = self.paths.get_mut(id) else { continue };
            if path.health == Health::Good {
                path.health = Health::Silent { since: cx.now };
                path.probes.stop(); // what was asked before was about something else
                if path.congestion.is_some() {
                    let rtt = path.rtt;
                    path.probes.start_eagerly(cx.now, &rtt);
                }
                self.ask(cx, id);
                self.ask_others_by_its_link(cx, id);
                match self.best_bonded(id) {
                    Some(other) if active => self.activate(cx, other),
                    None if active => self.try_elsewhere(cx),
                    Some(_) | None => {}
                }
            } else if active {
                self.connect(cx);
            } else {
                self.remove_path(cx, id);
            }
        }
        any
    }

    /// When a client on a stream asks why nothing comes. The gateway, whose stream stands still,
    /// cannot open another, and who only receives is owed nothing.
    pub(super) fn quiet_due(&self) -> Option<Instant> {
        let good = |path: &&Path| path.health == Health::Good && path.probes.due().is_none();
        let waits = !self.at_gateway() && self.paths.is_on_stream();
        self.paths.active().filter(good).filter(|_| waits)?;
        self.used_at.filter(|&used| self.quiet_after != Some(used)).map(|used| used + QUIET)
    }

    /// Asks once after each burst of packets by a stream.
    pub(super) fn ask_quiet_stream(&mut self, cx: &mut Context<'_>) {
        if self.quiet_due().is_some_and(|due| due <= cx.now)
            && let Some(id) = self.paths.active_id()
        {
            self.quiet_after = self.used_at;
            self.ask(cx, id);
        }
    }

    /// The active path is silent: every other proven path is asked, and by a client every
    /// candidate that has none. The first to answer takes over, be it the silent one: a single
    /// datagram lost moves nothing.
    pub(super) fn try_elsewhere(&mut self, cx: &mut Context<'_>) {
        let active = self.paths.active_id();
        let spare = self.paths.iter().filter(|path| path.is_able()).map(|path| path.id);
        let spare: Vec<_> = spare.filter(|&id| Some(id) != active).collect();
        for id in spare {
            self.ask(cx, id);
        }
        while self.paths.has_room()
            && let Some(id) = self.open_next_path(cx)
        {
            self.ask(cx, id);
        }
    }

    /// Gives up what did not prove itself in time, and paths beside the one in use that are silent.
    pub(super) fn drop_overdue(&mut self, cx: &mut Context<'_>) {
        let active = self.paths.active_id();
        let due = |path: &&Path| {
            let silent = self.silent_step_due(path).filter(|_| Some(path.id) != active);
            [self.claim_due(path), silent].into_iter().flatten().any(|due| due <= cx.now)
        };
        let due: Vec<_> = self.paths.iter().filter(due).map(|path| path.id).collect();
        for id in due {
            self.remove_path(cx, id);
        }
    }

    fn search_mtus_due(&mut self, cx: &mut Context<'_>) {
        let due = |path: &&Path| path.mtu_due.is_some_and(|due| due <= cx.now);
        let due: Vec<_> = self.paths.iter().filter(due).map(|path| path.id).collect();
        for id in due {
            if let Some(path) = self.paths.get_mut(id) {
                path.mtu_due = None;
            }
            self.search_mtu(cx, id);
        }
    }

    /// Sends the feedback that is due, each by the path that it is about, under the keys that what
    /// it tells of came under.
    fn report_due(&mut self, cx: &mut Context<'_>) {
        let fallback = self.paths.active_id().or_else(|| self.best_proven(None));
        let mut reports = Vec::new();
        for epoch in self.epochs.receiving() {
            for lane in epoch.rx.values_mut() {
                if lane.owed.due().is_some_and(|due| due <= cx.now)
                    && let Some(report) = lane.owed.report(cx.now, lane.serial, &lane.window)
                {
                    reports.push((epoch.id, lane.path, report, lane.owed.takes_decline()));
                }
            }
        }
        for (epoch, path, report, declines) in reports {
            let usable =
                |id: &PathId| self.paths.get(*id).is_some_and(|p| p.health != Health::Gone);
            let own = path.filter(usable);
            let Some(path) = own.or(fallback) else { continue };
            let fill = |draft: &mut Draft<'_>| Frame::Feedback(report).emit(draft.frames());
            if let Err(reason) = self.send_under(cx, epoch, path, Load::Report, fill) {
                cx.drops.count(reason);
            }
            if let Some(own) = own.filter(|_| declines) {
                self.distrust(cx, own);
            }
        }
    }

    /// When an address that did not prove itself is given up, or one that nobody wants any more.
    fn claim_due(&self, path: &Path) -> Option<Instant> {
        match path.trust {
            Trust::Claimed { .. } => Some(path.since + CLAIM_TIME),
            Trust::Chosen if self.paths.active_id() != Some(path.id) => {
                (!self.is_spare(path)).then_some(path.since + SPARE_ASKED)
            }
            Trust::Proven if self.is_spare_stream(path) => {
                path.heard_at.max(path.sent_at).map(|last| last + STREAM_KEPT)
            }
            Trust::Proven => self.left_over_due(path),
            Trust::Chosen => None,
        }
    }
}
