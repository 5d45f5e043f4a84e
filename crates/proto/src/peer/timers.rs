//! What a peer does because time has passed.
//!
//! Each row of `TIMERS` has a [`Reason`], the time when it is due, and what is done then.
//! [`Peer::poll_timeout`] returns the first time of all rows, [`Peer::handle_timeout`] goes through
//! the rows that are due. `settle_time` follows them: it works out the state, repairs losses and
//! sends what may leave. A due time is read from the state, so it cannot be out of date.

use super::{Peer, live, repair};
use crate::error::{DropReason, PeerError};
use crate::path::{PATHS_MAX, Path};
use crate::paths::PathManager;
use crate::paths::plan::rest::{Outcome, SLEPT};
use crate::session::epoch::Epoch;
use crate::session::epochs::Standing;
use crate::session::restart::Proof;
use crate::time::Instant;
use crate::tunnel::{Config, Context, PeerState, saving};

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
    /// A keepalive for a NAT, or its answer that is overdue.
    Keepalive,
    /// A link that was left because it did badly is trusted again.
    Trust,
    /// An answer that was asked for a while ago.
    Echo,
    /// Old keys to be forgotten.
    Epoch,
    /// Packets that waited too long for a path.
    Waiting,
    /// A path that may carry what waits for its turn.
    Pace,
    /// A datagram that waited for more packets to share it.
    Join,
    /// A packet that counts as lost, or may be sent again.
    Repair,
    /// A copy of a realtime packet.
    Copy,
    /// A gap in a sequence that was held open for long enough.
    Order,
    /// An open connection for which this end sends something in place of the other one.
    Flow,
    /// A session that was silent for too long.
    Persistence,
    /// Memory that nobody needs.
    Memory,
}

/// One timer of a peer: why it rings, when, and what happens then.
struct Timer {
    reason: Reason,
    /// Read from the peer's state, so that it cannot be out of date.
    due: fn(&Peer, &Config) -> Option<Instant>,
    /// `None` if [`Peer::settle_time`] does it, which follows all timers that ring.
    ring: Option<fn(&mut Peer, &mut Context<'_>)>,
}

const fn timer(
    reason: Reason,
    due: fn(&Peer, &Config) -> Option<Instant>,
    ring: fn(&mut Peer, &mut Context<'_>),
) -> Timer {
    Timer { reason, due, ring: Some(ring) }
}

const fn settled(reason: Reason, due: fn(&Peer, &Config) -> Option<Instant>) -> Timer {
    Timer { reason, due, ring: None }
}

/// Every timer but [`Reason::Pace`], in the order in which they ring.
const TIMERS: &[Timer] = &[
    timer(
        Reason::Persistence,
        |p, config| {
            let persistence = config.persistence_timeout;
            let silence = p.tunnel.end_of_silence(persistence, !p.waiting.is_empty());
            let outlasted = p.flows.outlasted(persistence);
            silence.map(|(due, _)| due).into_iter().chain(outlasted).min()
        },
        Peer::end_silence,
    ),
    timer(
        Reason::Epoch,
        |p, _| p.tunnel.epochs.due(),
        |p, cx| {
            p.tunnel.epochs.expire(cx.now, cx.indices);
            p.tunnel.forget_spaces();
        },
    ),
    timer(
        Reason::Waiting,
        |p, _| p.waiting.due(),
        |p, cx| {
            cx.drops.count_many(DropReason::NoRoute, p.waiting.expire(cx.now));
            if p.waiting.may_leave(cx.now) {
                p.flush_waiting(cx);
            }
        },
    ),
    // Forgets only: `settle_time` sends.
    timer(
        Reason::Repair,
        |p, _| p.tunnel.recovery.due(|id| p.tunnel.paths.list.is_good(id)),
        |p, cx| p.tunnel.recovery.expire(cx.now, cx.memory.blocks(), cx.drops),
    ),
    timer(Reason::Silence, |p, _| live::rescue_due(p), live::rescue),
    timer(Reason::Copy, |p, _| p.bonding.twin_due(), live::send_twins),
    timer(
        Reason::Join,
        |p, _| saving::of(&p.tunnel).due(),
        |p, cx| saving::flush_due(&mut p.tunnel, cx),
    ),
    timer(
        Reason::Waiting,
        |p, _| p.bonding.entry.due(),
        |p, cx| p.bonding.entry.expire(cx.memory.blocks(), cx.now),
    ),
    timer(
        Reason::Order,
        |p, _| p.inbound.due(&p.tunnel.epochs),
        |p, cx| {
            for standing in [Standing::Previous, Standing::Current] {
                if let Some(epoch) = p.tunnel.epochs.gap_due(cx.now, standing) {
                    p.release(cx, epoch);
                }
            }
        },
    ),
    timer(
        Reason::Handshake,
        |p, _| p.tunnel.paths.connector()?.handshakes.due(),
        |p, cx| p.tunnel.attempt_due(cx),
    ),
    timer(
        Reason::Silence,
        |p, config| {
            let plan = p.tunnel.paths.plan();
            let debt = |path: &Path| p.tunnel.epochs.debt(path, p.tunnel.sent_on(path.id));
            p.tunnel
                .paths
                .list
                .first_due(|path| plan.silence_due(config.ablation, path, || debt(path)))
        },
        |p, cx| {
            p.tunnel.notice_silence(cx);
        },
    ),
    timer(
        Reason::Challenge,
        |p, _| {
            p.tunnel.paths.list.first_due(|path| {
                p.tunnel.paths.plan().asked_enough_due(p.flows.is_waiting(), path)
            })
        },
        |p, cx| {
            let enough = p.tunnel.paths.plan().asked_enough(cx.now, p.flows.is_waiting());
            p.tunnel.paths.list.stop_asking(&enough);
        },
    ),
    timer(
        Reason::Claim,
        |p, _| p.tunnel.paths.list.first_due(|path| p.tunnel.paths.plan().claim_due(path)),
        |p, cx| p.tunnel.manage(cx, PathManager::drop_overdue),
    ),
    timer(
        Reason::Silence,
        |p, _| p.tunnel.paths.quiet_due(),
        |p, cx| p.tunnel.manage(cx, PathManager::ask_quiet_stream),
    ),
    timer(
        Reason::Silence,
        |p, _| p.tunnel.paths.connector()?.listening.due(),
        |p, cx| p.tunnel.manage(cx, PathManager::ask_for_stream),
    ),
    timer(
        Reason::Trust,
        |p, _| p.tunnel.paths.plan().policing_due(),
        |p, cx| p.tunnel.manage(cx, PathManager::judge_udp),
    ),
    timer(
        Reason::Trust,
        |p, _| p.tunnel.paths.connector()?.distrusted.due(),
        |p, cx| p.tunnel.manage(cx, PathManager::trust_again),
    ),
    timer(
        Reason::Challenge,
        |p, _| p.tunnel.paths.list.first_due(|path| p.tunnel.paths.plan().turn_due(path)),
        |p, cx| p.tunnel.manage(cx, PathManager::take_turns),
    ),
    timer(
        Reason::Challenge,
        |p, _| p.tunnel.paths.list.first_due(|path| p.tunnel.paths.plan().rest_due(path)),
        |p, cx| p.tunnel.manage(cx, PathManager::take_rests),
    ),
    timer(
        Reason::Challenge,
        |p, _| p.tunnel.paths.plan().retry_due(),
        |p, cx| p.tunnel.manage(cx, PathManager::retry_streams),
    ),
    timer(
        Reason::Challenge,
        |p, config| {
            let (plan, is_frugal) = (p.tunnel.paths.plan(), config.saving.frugal);
            p.tunnel.paths.list.first_due(|path| plan.check_due(path, is_frugal))
        },
        |p, cx| p.tunnel.manage(cx, PathManager::check_spares),
    ),
    timer(
        Reason::Challenge,
        |p, _| p.tunnel.paths.list.first_due(|path| p.tunnel.paths.plan().probe_due(path)),
        |p, cx| {
            for id in p.tunnel.paths.plan().probes_due(cx.now) {
                p.tunnel.send_probe_due(cx, id);
            }
        },
    ),
    timer(
        Reason::Mtu,
        |p, _| p.tunnel.paths.list.first_due(|path| path.mtu_due()),
        |p, cx| p.tunnel.search_mtus_due(cx),
    ),
    timer(Reason::Feedback, |p, _| p.tunnel.feedback_due(), |p, cx| p.tunnel.report_due(cx)),
    timer(
        Reason::Control,
        |p, _| {
            let due = p.tunnel.control.due()?;
            p.tunnel.paths.plan().control_path().map(|_| due)
        },
        |p, cx| p.tunnel.send_control(cx),
    ),
    timer(
        Reason::Keepalive,
        |p, _| p.tunnel.paths.connector()?.nat.answer_due(),
        |p, cx| p.tunnel.keep_alive(cx),
    ),
    timer(
        Reason::Keepalive,
        |p, config| {
            p.tunnel
                .paths
                .list
                .first_due(|path| p.tunnel.paths.plan().keepalive_due(config.keepalive, path))
        },
        |p, cx| p.tunnel.keep_alive(cx),
    ),
    timer(Reason::Echo, |p, _| p.tunnel.echo.due(), |p, cx| p.tunnel.send_echo(cx)),
    settled(Reason::Silence, |p, _| p.tunnel.paths.list.return_due()),
    settled(Reason::Repair, |p, _| {
        p.tunnel.recovery.late_due(|id| p.tunnel.paths.list.repaired(id))
    }),
    settled(Reason::Flow, |p, _| p.flows.due()),
];

impl Peer {
    /// When the peer must be woken, and why; the lesser reason of two at once.
    pub(crate) fn poll_timeout(&self, config: &Config) -> Option<(Instant, Reason)> {
        let pace = self.bonding.pace_due().map(|due| (due, Reason::Pace));
        TIMERS.iter().filter_map(|it| Some(((it.due)(self, config)?, it.reason))).chain(pace).min()
    }

    /// Does what is due.
    pub(crate) fn handle_timeout(&mut self, cx: &mut Context<'_>) {
        let is_due = |peer: &Self, cx: &Context<'_>, timer: &Timer| {
            (timer.due)(peer, cx.config).is_some_and(|due| due <= cx.now)
        };
        // While much is sent, nearly always only pacing is due.
        if self.bonding.pace_due().is_some_and(|due| due <= cx.now)
            && !TIMERS.iter().any(|timer| is_due(self, cx, timer))
        {
            self.serve_bonding(cx);
            self.send_generated(cx); // assisted connections may have room now
            return;
        }
        for timer in TIMERS {
            if let Some(ring) = timer.ring
                && is_due(self, cx, timer)
            {
                ring(self, cx);
            }
        }
        self.settle_time(cx);
    }

    /// What follows from time and from the timers that rang.
    fn settle_time(&mut self, cx: &mut Context<'_>) {
        if self.tunnel.epochs.current.as_ref().is_some_and(Epoch::is_exhausted) {
            self.end(cx, PeerError::EpochExhausted);
        }
        self.apply_changes(cx);
        // A path that got a share just now makes for less patience with it and with others.
        for _ in 0..PATHS_MAX {
            if !self.tunnel.notice_silence(cx) {
                break;
            }
            self.apply_changes(cx);
        }
        // Also on a path that has just fallen silent.
        self.tunnel.recovery.expire(cx.now, cx.memory.blocks(), cx.drops);
        if !self.at_gateway() {
            // One path less by a link may make it another address' turn there.
            self.tunnel.manage(cx, |paths, cx| {
                paths.take_turns(cx);
                paths.take_rests(cx);
            });
        }
        live::rescue(self, cx);
        repair::give_up_late(self, cx); // also by a path that has just got a share
        repair::send_lost(self, cx);
        self.serve_bonding(cx);
        self.send_generated(cx);
    }

    /// The session was silent for long enough: a client rests, asks or is renewed, or it ends.
    fn end_silence(&mut self, cx: &mut Context<'_>) {
        let outlasted = self.flows.outlasted(cx.config.persistence_timeout);
        if outlasted.is_some_and(|due| due <= cx.now) {
            // The session ended otherwise, and there was no other since.
            self.flows.abandon(cx.now, cx.memory);
        }
        match self.tunnel.end_of_silence(cx.config.persistence_timeout, !self.waiting.is_empty()) {
            Some((due, Outcome::Rest)) if due <= cx.now => {
                // A client that may have missed a call, or could not verify one, asks at once.
                let tunnel = &self.tunnel;
                let proof = Proof::find(&tunnel.epochs, tunnel.paths.list.active());
                if cx.now < due + SLEPT && proof.is_some() {
                    self.leave_session(cx, PeerState::Resting);
                } else {
                    self.end(cx, PeerError::TimedOut);
                }
            }
            Some((due, Outcome::Renewal)) if due <= cx.now => {
                if let Some(id) = self.tunnel.paths.list.active_id() {
                    self.tunnel.manage(cx, |paths, cx| paths.ask(cx.now, id));
                }
            }
            Some((due, Outcome::End)) if due <= cx.now => self.end(cx, PeerError::TimedOut),
            Some(_) | None => {}
        }
    }
}
