//! What can be told of a session at any moment.

use std::net::SocketAddr;

use super::Tunnel;
use crate::codec::dictionary::Agreed;
use crate::congestion::status::ControllerStatus;
use crate::context::PeerState;
use crate::crypto::{Profile, Status};
use crate::id::{LinkId, PeerKey};
use crate::multipath::scheduler::Scheduler;
use crate::outbox::{Route, Sending};
use crate::path::{Health, Path, Saved, Trust};
use crate::paths::list::Paths;
use crate::paths::policing::PolicedLink;
use crate::recovery::LossRecovery;
use crate::recovery::delay::Delay;
use crate::recovery::feedback::Reports;
use crate::recovery::loss::Loss;
use crate::recovery::rate::Rate;
use crate::recovery::sent_packets::SentPackets;
use crate::session::index::EpochId;
use crate::session::runs::SharedKey;
use crate::time::{Duration, Instant};
use crate::wire::control::Lease;

/// A snapshot of one session.
#[derive(Clone, PartialEq, Debug)]
pub struct PeerStatus {
    /// The other end.
    pub peer: PeerKey,
    /// Its state.
    pub state: PeerState,
    /// Since when there are keys without interruption.
    pub established: Option<Instant>,
    /// When the loss of the session was noticed. `None` while it is up or rests, and before it was
    /// up. The last packet may have come long before.
    pub lost_at: Option<Instant>,
    /// Since when the current keys are in use.
    pub epoch_since: Option<Instant>,
    /// Whether a handshake is under way.
    pub handshaking: bool,
    /// Why the gateway refused last, on a client: also where that is no reason not to ask again,
    /// as when it is busy. `None` since it accepted.
    pub refused: Option<Status>,
    /// What the gateway gave, on a client.
    pub lease: Option<Lease>,
    /// Set if two hosts use the client's key, or did.
    pub shared_key: Option<SharedKey>,
    /// The paths, the one in use first.
    pub paths: Vec<PathStatus>,
    /// The links that police UDP, on a client.
    pub policed: Vec<PolicedLink>,
    /// What its packets are sealed as.
    pub profile: Option<Profile>,
    /// How this end chooses among paths that share data.
    pub scheduler: Scheduler,
    /// Inner packets that wait for a path.
    pub waiting: usize,
    /// Bytes of inner packets that wait for their turn among several paths,
    pub queued_bytes: usize,
    /// and of those that arrived before what comes before them.
    pub early_bytes: usize,
    /// Bytes that this end has saved on what it sent,
    pub saved: Saved,
    /// and how often it compressed a packet for that.
    pub compressions: u64,
    /// Bytes of memory that compression saved on packets that waited for a path.
    pub spared: u64,
    /// The dictionaries that both ends have, once the peer has said which it has.
    pub dictionaries: Option<Agreed>,
}

/// When `tunnel` stopped being up, for [`PeerStatus::lost_at`].
pub(crate) const fn time_of_loss(tunnel: &Tunnel) -> Option<Instant> {
    tunnel.lost_at
}

/// A snapshot of one path.
#[derive(Clone, PartialEq, Debug)]
pub struct PathStatus {
    /// Its number within the session.
    pub id: u32,
    /// Where it goes.
    pub route: Route,
    /// The local link, where this node chose it.
    pub link: Option<LinkId>,
    /// Whether data is sent on it, by itself or before all others.
    pub in_use: bool,
    /// Whether data is shared among it and others.
    pub is_shared: bool,
    /// The congestion controller of a path with a share. A path without one repairs no losses.
    pub controller: Option<ControllerStatus>,
    /// How far its other end is trusted.
    pub trust: Trust,
    /// Whether it carries.
    pub health: Health,
    /// Smoothed round-trip time; `None` before the first sample.
    pub rtt: Option<Duration>,
    /// What arrives at the other end of what this end sends, UDP payload.
    pub tx_rate: Rate,
    /// What arrives here.
    pub rx_rate: Rate,
    /// How much longer than need be what this end sends is on its way.
    pub delay: Delay,
    /// Lost part of what was sent.
    pub loss: Loss,
    /// The UDP payload that it is known to carry, in bytes.
    pub mtu: usize,
    /// Whether data is lost because of its size: large datagrams are lost, small ones arrive.
    pub vanishes: bool,
    /// How runs of datagrams are sent by it, and since when, if segmented sends lose more than
    /// single ones.
    pub fallback: Option<(Sending, Instant)>,
    /// Whether there is a NAT on it.
    pub natted: bool,
    /// UDP payload sent, in bytes,
    pub tx_bytes: u64,
    /// in so many datagrams.
    pub tx_datagrams: u64,
    /// UDP payload received, in bytes.
    pub rx_bytes: u64,
    /// Inner packets that were too large for it and left in pieces.
    pub split: u64,
    /// Inner packets sent by it again: lost by this path or another, or owed to one that died.
    pub retransmitted: u64,
    /// Bytes of copies that left by it of what is of no use late.
    pub copied: u64,
    /// What left by it to tell the peer what had arrived, and for nothing else.
    pub reports: Reports,
    /// Bytes that were saved on what left by it.
    pub saved: Saved,
    /// When an authentic datagram last came by it.
    pub heard_at: Option<Instant>,
    /// Since when an answer has been owed by the peer.
    pub unanswered_since: Option<Instant>,
}

impl PathStatus {
    /// The status of `path`, on which `sent` left under the current keys.
    pub(crate) fn of(
        path: &Path,
        in_use: bool,
        sent: Option<&SentPackets>,
        in_flight: u64,
    ) -> Self {
        let controller = path.congestion.as_ref();
        Self {
            id: path.id.0,
            route: path.route,
            link: path.link,
            in_use,
            is_shared: controller.is_some(),
            controller: controller.map(|it| it.status(in_flight, path.was_wanted())),
            trust: path.trust(),
            health: path.health(),
            rtt: path.rtt.measured(),
            tx_rate: path.rates.0,
            rx_rate: path.rates.1,
            delay: path.delay,
            loss: sent.map(SentPackets::loss).unwrap_or_default(),
            mtu: path.mtu.datagram(),
            vanishes: path.mtu.vanishes(),
            fallback: path.offload.fallback(),
            natted: path.is_natted(),
            tx_bytes: path.counts().sent,
            tx_datagrams: path.counts().datagrams,
            rx_bytes: path.counts().received,
            split: path.counts().split,
            retransmitted: path.counts().retransmitted,
            copied: path.counts().copied,
            reports: path.counts().reports,
            saved: path.counts().saved,
            heard_at: path.heard_at(),
            unanswered_since: sent.and_then(SentPackets::unanswered_since),
        }
    }

    /// The status of every path, the one in use first.
    pub(crate) fn of_all(
        paths: &Paths,
        epoch: Option<EpochId>,
        recovery: &LossRecovery,
    ) -> Vec<Self> {
        let of = |path: &Path| {
            let sent = epoch.and_then(|epoch| recovery.sent_on(epoch, path.id));
            Self::of(path, paths.active_id() == Some(path.id), sent, recovery.in_flight(path.id))
        };
        let mut all: Vec<_> = paths.iter().map(of).collect();
        all.sort_by_key(|path| !path.in_use);
        debug_assert!(
            all.iter().filter(|p| p.in_use).count() <= usize::from(paths.active().is_some())
        );
        all
    }

    /// The address at the other end.
    pub const fn remote(&self) -> SocketAddr {
        self.route.remote
    }
}
