//! The paths with a share, one or several: the snapshot of each, and packets that leave by one of
//! them with their place in a sequence.

use super::paths::plan::is_fresh;
use super::{Context, Tunnel};
use crate::blocks::parcel::Parcel;
use crate::error::DropReason;
use crate::flow::clamp;
use crate::multipath::path_queues::Given;
use crate::multipath::snapshot::{PathSnapshot, Tally};
use crate::pack;
use crate::path::{Path, PathId};
use crate::recovery::feedback::DELAY_PACED;
use crate::recovery::packet::Load;
use crate::session::epoch::Epoch;
use crate::session::index::EpochId;
use crate::time::{Duration, Instant};
use crate::wire::data::OVERHEAD;
use crate::wire::frame;
use crate::wire::frame::Framing;
use crate::wire::inner::Pieces;

/// Feedback may wait for [`DELAY_PACED`], and timers ring so much later: who owes an answer for
/// longer than that and the path's timeout is in doubt.
const DOUBT_GRACE: Duration = Duration::from_millis(12);

impl Tunnel {
    /// A path as far as the choice goes, as it is now.
    pub(crate) fn way(&self, now: Instant, path: &Path) -> Option<PathSnapshot> {
        let controller = path.congestion.as_deref()?;
        let loss = self.loss_on(path.id);
        let in_flight = self.recovery.in_flight(path.id);
        let least_trip = path.rtt.minimum().unwrap_or_default();
        Some(PathSnapshot {
            path: path.id,
            next_at: controller.next_at(),
            byte_ns: 1e9 / controller.pacing_rate(),
            delay: least_trip / 2,
            least: path.delay.least(),
            trip: path.rtt.smoothed(),
            least_trip,
            loss,
            arrives: path.rates.0.at(now),
            proven: controller.rate(),
            is_known: controller.is_steady(),
            room: controller.room(in_flight),
            waiting: 0,
            line: usize::MAX,
            tally: Tally::default(),
        })
    }

    /// Whether a path may get a share now: beside the one in use none that nobody has heard of for
    /// a while. A NAT may have forgotten it, and the client asks it when anybody speaks again.
    pub(crate) fn is_way(&self, now: Instant, path: &Path) -> bool {
        path.has_share()
            && (self.paths.list.active_id() == Some(path.id) || is_fresh(now, path))
            && self.has_lane(path)
    }

    /// Whether something can be sealed for the path: new keys come with a few indices, and more of
    /// them a round trip later.
    pub(crate) fn has_lane(&self, path: &Path) -> bool {
        self.epochs.current.as_ref().is_some_and(|epoch| {
            epoch.tx.len() >= self.paths.list.len() || epoch.has_lane_for(path)
        })
    }

    /// Client: an answer to what was asked at `asked_at` says nothing of what the gateway knows, if
    /// the path has got its share since, or there are new keys.
    pub(crate) fn repeat_share(&mut self, cx: &mut Context<'_>, id: PathId, asked_at: Instant) {
        let Some(path) = self.paths.list.get(id).filter(|_| !self.paths.at_gateway()) else {
            return;
        };
        let keys_since = self.epochs.current.as_ref().map(|epoch| epoch.since);
        let is_said = asked_at >= path.shared_since()
            && (path.congestion.is_none() || Some(asked_at) >= keys_since);
        if !is_said {
            self.ask(cx, id);
        }
    }

    /// The SYN `packet`, whose TCP header starts at `tcp`, with segments that fit each path that
    /// carries a share; `None` where there is none.
    pub(crate) fn clamped(&self, tcp: usize, packet: Pieces<'_>) -> Option<Vec<u8>> {
        let packet_max = self.paths.plan().least_room()? - frame::NUMBERED_OVERHEAD;
        let mut clamped = Vec::with_capacity(packet.len());
        packet.copy_to(&mut clamped);
        clamp::clamp(&mut clamped, tcp, packet_max);
        Some(clamped)
    }

    /// A packet leaves with its place in the sequence.
    pub(crate) fn send_ordered(
        &mut self,
        cx: &mut Context<'_>,
        id: PathId,
        given: Given,
        packet: Pieces<'_>,
    ) -> Result<(), DropReason> {
        let Given { load, len, .. } = given;
        let (epoch, framing) = self.place_of(id, given).ok_or(DropReason::NoRoute)?;
        let room = self.paths.list.get(id).map_or(0, |path| path.mtu.datagram() - OVERHEAD);
        if len + framing.overhead() <= room {
            return self.send_under(cx, epoch, id, load, |draft| {
                pack::push(draft, framing, packet);
            });
        }
        self.send_split(cx, epoch, id, &pack::frame(framing, packet))
    }

    /// The same of one that waited, in its parcel.
    pub(crate) fn send_parcel(
        &mut self,
        cx: &mut Context<'_>,
        id: PathId,
        given: Given,
        packet: Parcel,
    ) -> Result<(), DropReason> {
        let sent = self.send_ordered(cx, id, given, Pieces::whole(packet.packet()));
        // Its memory is still in the processor's cache, and lent again first.
        cx.memory.blocks().discard(packet);
        sent
    }

    /// The epoch in whose sequence a packet has its place, and the framing with that place. The
    /// first packet of a sequence names the sequence before. If the path has no packet number space
    /// under earlier keys, the packet gets a place under the current ones.
    pub(crate) fn place_of(&mut self, id: PathId, given: Given) -> Option<(EpochId, Framing)> {
        let Given { bucket, load, mut sequence, is_earlier, .. } = given;
        if is_earlier {
            let previous = self.epochs.previous().zip(self.paths.list.get(id));
            let seals = |it: &(&Epoch, &Path)| it.0.has_lane_for(it.1);
            if let Some((epoch, _)) = previous.filter(seals) {
                return Some((epoch.id, Framing::InOrder { bucket, sequence }));
            }
            let is_one = matches!(load, Load::Packet { .. });
            let current = self.epochs.current.as_mut().filter(|_| is_one)?;
            sequence = current.numbers.in_order(bucket);
        }
        let current = self.epochs.current.as_ref()?.id;
        let before = if sequence == 0 { self.epochs.ended(bucket) } else { None };
        let first = |(epoch, end)| Framing::First { bucket, epoch, end };
        Some((current, before.map_or(Framing::InOrder { bucket, sequence }, first)))
    }

    /// The part of the packets on a path that is lost, under the current keys.
    pub(crate) fn loss_on(&self, path: PathId) -> f64 {
        self.sent_on(path).map_or(0.0, |sent| sent.loss().share())
    }

    /// When a path has owed an answer for so long that it is in doubt.
    pub(crate) fn doubtful_at(&self, id: PathId) -> Option<Instant> {
        let since = self.sent_on(id)?.unanswered_since()?;
        let grace = DELAY_PACED + DOUBT_GRACE;
        Some(since + self.paths.list.get(id)?.rtt.timeout() + grace)
    }
}
