//! Arrivals and feedback: a path that a datagram came by works, reports are sent and taken, and an
//! arrival replenishes the session indices.

use super::{Context, Tunnel};
use crate::congestion::{Conditions, Findings};
use crate::id::{PathSerial, Transport};
use crate::outbox::Draft;
use crate::path::{Path, PathId};
use crate::paths::Side;
use crate::paths::policing::Direction;
use crate::recovery::Acknowledged;
use crate::recovery::packet::{Load, SpaceId};
use crate::session::epochs::Standing;
use crate::session::index::EpochId;
use crate::time::Instant;
use crate::wire::control::Control;
use crate::wire::frame::{Feedback, Frame};

/// What feedback told of a path.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) path: PathId,
    /// Something that left lately has arrived.
    pub(crate) follows: bool,
    /// The path does worse than before, and its link is not to be trusted for a while.
    pub(crate) declines: bool,
    /// What the congestion controller of the path found.
    pub(crate) findings: Findings,
}

impl Tunnel {
    /// When feedback must be sent about what arrived.
    pub(crate) fn feedback_due(&self) -> Option<Instant> {
        let owed = self.epochs.all_receiving().flat_map(|epoch| epoch.rx.values());
        let due = owed.filter_map(|space| space.owed.due()).min();
        due.filter(|_| self.paths.plan().control_path().is_some())
    }

    /// Sends the feedback that is due. Each report leaves by the path that it is about, under the
    /// keys of the datagrams that it reports.
    pub(crate) fn report_due(&mut self, cx: &mut Context<'_>) {
        let fallback = self.paths.plan().control_path();
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
            let usable = |id: &PathId| self.paths.list.get(*id).is_some_and(|p| !p.is_gone());
            let own = path.filter(usable);
            let Some(path) = own.or(fallback) else { continue };
            let fill = |draft: &mut Draft<'_>| Frame::Feedback(report).emit(draft.frames());
            if let Err(reason) = self.send_under(cx, epoch, path, Load::Report, fill) {
                cx.drops.count(reason);
            }
            if let Some(own) = own.filter(|_| declines) {
                self.manage(cx, |paths, cx| paths.distrust(cx, own));
            }
        }
    }

    /// Sends the probes of the largest datagram that are due.
    pub(crate) fn search_mtus_due(&mut self, cx: &mut Context<'_>) {
        let due = |path: &&Path| path.mtu_due().is_some_and(|due| due <= cx.now);
        let due = self.paths.list.ids(due);
        for id in due {
            if let Some(path) = self.paths.list.get_mut(id) {
                path.set_mtu_due(None);
            }
            self.search_mtu(cx, id);
        }
    }

    /// The peer tells what arrived under the keys of `epoch`, in a datagram that came at `came_at`;
    /// `conditions` are those of the session, as far as they are no path's. `None` if the feedback
    /// is about nothing that is known.
    pub(crate) fn take_feedback(
        &mut self,
        cx: &mut Context<'_>,
        epoch: EpochId,
        came_at: Instant,
        feedback: &Feedback,
        conditions: Conditions,
    ) -> Option<Told> {
        let is_alone = self.paths.list.iter().filter(|path| path.has_share()).nth(1).is_none();
        let id = self.recovery.path_of(SpaceId { epoch, serial: feedback.serial })?;
        let path = self.paths.list.get_mut(id)?;
        path.note_lateness(cx.now, came_at, feedback);
        let memory = (cx.memory.blocks(), &mut *cx.drops);
        let (about, repairs) = ((epoch, feedback), path.congestion.is_some());
        let news = self.recovery.acknowledged(came_at, memory, about, &mut path.rtt, repairs);
        let mut findings = Findings::default();
        if let Some(news) = &news {
            let conditions = Conditions { is_alone, ..conditions };
            findings = path.acknowledged(cx.now, feedback, news, conditions);
        }
        if let Some(Acknowledged { delivered, lost, evidence, .. }) = news
            && cx.config.judges_offload
        {
            self.paths.list.judge_offload(cx.now, id, (delivered, lost), evidence);
        }
        let follows = news.is_some_and(|news| news.newest.is_some());
        let declines = news.is_some_and(|news| news.declines);
        Some(Told { path: id, follows, declines, findings })
    }

    /// This end's controller found that a path is policed, and so many bytes per second pass.
    /// `serial` is what it sends under, if the keys are the current ones.
    pub(crate) fn note_policed(
        &mut self,
        cx: &mut Context<'_>,
        id: PathId,
        serial: Option<PathSerial>,
        rate: f64,
    ) {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
        let kbps = (rate / 125.0) as u32;
        if matches!(self.paths.side, Side::Client(_)) {
            self.manage(cx, |paths, cx| paths.doubt_udp(cx, id, Direction::Up, kbps));
        } else if let Some(serial) = serial
            && self.paths.list.get(id).is_some_and(|path| path.transport() == Transport::Udp)
        {
            self.control.push(cx.now, &Control::Policed { serial, kbps });
        }
    }

    /// A datagram came under the keys of `epoch`: the peer gets session indices for those that it
    /// has used up, and is told which control frames have arrived.
    pub(crate) fn replenish(&mut self, cx: &mut Context<'_>, epoch: EpochId) {
        let Some((epoch, Standing::Current)) = self.epochs.find(epoch) else { return };
        let replenished =
            epoch.replenish(cx.rng, cx.indices, self.identity.slot, self.paths.list.active_id());
        let owes_ack = epoch.control.owes_ack();
        if let Some((first, indices)) = replenished {
            self.control.push(cx.now, &Control::Indices { first, indices });
            if self.paths.at_gateway() {
                self.control.push(cx.now, &epoch.restart_tokens(cx.restart_key, first));
            }
        }
        if owes_ack {
            self.send_control(cx);
        }
    }
}
