//! One peer. It composes parts that own their state, and passes values between them:
//! - `Tunnel`: keys and paths, and the datagrams that leave by them;
//! - `Bonding`: several paths used as one;
//! - [`Flows`]: the flows of inner packets;
//! - [`Admission`]: which inner packets the peer may send;
//! - `Inbound`: puts packets back into their sequence.
//!
//! A part calls no other part. If a part finds out that another has to act, it answers with a value
//! or leaves a note in `Changes`, and `apply_changes` acts on it.
//!
//! Where to begin: `send_inner` for a packet from the TUN, `receive` for a datagram,
//! `handle_timeout` for a timer. A file calls files below it only, which tidy checks:
//! - `timers` (what is due), `receive` (datagrams and their frames);
//! - `lifecycle` (a session begins, changes its state and ends; changes by the shell);
//! - `deliver` (inner packets from the peer to the TUN), `inbound` (their sequence);
//! - `send` (inner packets from the TUN, and packets in place of those who cannot be reached);
//! - `dispatch` (the turns of packets on several paths), `live` (realtime packets and their
//!   copies), `repair` (lost packets), `share` (the paths that carry together);
//! - `ways` (these paths, as they are shown to `bonding`);
//! - this file.

use std::net::SocketAddr;

use crate::ablation::Ablation;
use crate::bonding::Bonding;
use crate::error::DropReason;
use crate::flow::report::{FlowReport, Queue};
use crate::flow::waiting::Waiting;
use crate::flow::{Account, Flows};
use crate::id::PeerKey;
use crate::paths::connector::Connector;
use crate::role::{Access, Admission};
use crate::session::identity::Identity;
use crate::session::index::{Lead, Slot};
use crate::session::runs::KeyAlarm;
use crate::time::Instant;
use crate::tunnel::{
    Context, PathStatus, PeerState, PeerStatus, Side, Tunnel, saving, time_of_loss,
};
use crate::wire::control::{Control, Lease, Prefix};
use inbound::Inbound;
use share::Shares;
use zeroize::Zeroizing;

mod deliver;
mod dispatch;
mod inbound;
mod lifecycle;
mod live;
#[cfg(test)]
#[path = "../../tests/pair/mod.rs"]
pub(crate) mod pair;
mod receive;
mod repair;
mod send;
mod share;
mod timers;
mod ways;

pub use crate::session::runs::{ALARM_TIME, SharedKey};
pub use timers::Reason;

/// What a node is told of a peer when it is added.
#[derive(Clone, Debug)]
pub struct PeerConfig {
    /// Its public key.
    pub key: PeerKey,
    /// A static secret shared with it beforehand, if there is one.
    pub psk: Option<Zeroizing<[u8; 32]>>,
    /// What it may do.
    pub access: Access,
    /// Which end of the relation this node is.
    pub side: SideConfig,
}

/// The part of a peer's configuration that depends on who asks whom.
#[derive(Clone, Debug)]
pub enum SideConfig {
    /// The peer is a client, which will ask; this is what it is given.
    Client {
        /// Its inner addresses and what goes with them.
        lease: Lease,
    },
    /// The peer is a gateway, which this node asks.
    Gateway {
        /// Where it may be reached, best first.
        remotes: Vec<SocketAddr>,
        /// The lowest handshake counter that was never used with it.
        counter: u64,
        /// The right to enrol, if this node has not yet.
        token: Option<crate::crypto::Token>,
        /// Ranges behind this node, announced to it: at most
        /// [`ROUTES_MAX`](crate::wire::control::ROUTES_MAX), what is beyond is not said.
        advertise: Vec<Prefix>,
    },
}

/// A peer and the session with it.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) tunnel: Tunnel,
    admission: Admission,
    waiting: Waiting,
    /// What leaves by several paths.
    bonding: Bonding,
    /// What is known of the paths that carry together.
    shares: Shares,
    /// How packets come out of their sequence here.
    inbound: Inbound,
    /// Gateway: the client has said in this epoch what it wants early.
    is_early_known: bool,
    /// The inner flows of this peer.
    flows: Flows,
    /// The share of the node's memory that the flows hold.
    pub(crate) account: Account,
    /// Room for one packet of theirs.
    spoken: Vec<u8>,
    /// Headers that tell of less room.
    narrowed: Vec<u8>,
    /// Gateway: how often the client had moved when it said last where it wants to be reached.
    followed: u32,
    /// Whether two hosts use the client's key.
    key_alarm: KeyAlarm,
    /// What datagrams of this batch have left to do.
    unsettled: Option<Unsettled>,
    /// Packets of one run are sent, which has yet to [end](Self::end_run).
    in_run: bool,
}

/// What the datagrams of a batch have left to do, once for all of them.
#[derive(Clone, Copy, Debug)]
struct Unsettled {
    lead: Lead,
    /// The first datagram under these keys was among them.
    is_fresh: bool,
    /// Inner packets were among them.
    any_packets: bool,
}

impl Peer {
    pub(crate) fn new(
        slot: Slot,
        config: PeerConfig,
        ablation: Ablation,
        run: u64,
        flows: Flows,
        secret: u64,
    ) -> Self {
        let side = match config.side {
            SideConfig::Client { lease } => Side::Gateway { lease },
            SideConfig::Gateway { remotes, counter, token, advertise } => {
                let connector = Connector::new(remotes, counter, token, advertise, run);
                Side::Client(Box::new(connector))
            }
        };
        Self {
            tunnel: Tunnel::new(Identity::new(slot, config.key, config.psk), side),
            admission: Admission::new(config.access, secret),
            waiting: Waiting::default(),
            bonding: Bonding::new(ablation),
            shares: Shares::default(),
            inbound: Inbound::default(),
            is_early_known: false,
            flows,
            account: Account::default(),
            spoken: Vec::new(),
            narrowed: Vec::new(),
            followed: 0,
            key_alarm: KeyAlarm::default(),
            unsettled: None,
            in_run: false,
        }
    }

    pub(crate) const fn access(&self) -> &Access {
        self.admission.access()
    }

    pub(crate) fn set_access(&mut self, cx: &mut Context<'_>, access: Access) {
        let before = self.access().networks();
        self.admission.set_access(access);
        let networks = self.access().networks();
        let may_tell = self.at_gateway() && self.tunnel.epochs.current.is_some();
        if networks != before
            && may_tell
            && self.tunnel.control.push(cx.now, &Control::Networks(networks))
        {
            self.tunnel.send_control(cx);
        }
    }

    /// Whether this node is the gateway of the two.
    pub(crate) const fn at_gateway(&self) -> bool {
        self.tunnel.paths.at_gateway()
    }

    fn forget_session(&mut self, cx: &mut Context<'_>) {
        self.tunnel.forget(cx);
        self.inbound = Inbound::default();
        self.shares = Shares::default();
        let waited = self.bonding.forget(cx.memory.blocks());
        cx.drops.count_many(DropReason::NoRoute, waited);
    }

    #[cfg(test)]
    pub(crate) const fn current_epoch(&mut self) -> Option<&mut crate::session::epoch::Epoch> {
        self.tunnel.epochs.current.as_mut()
    }

    /// A snapshot for people.
    pub(crate) fn status(&self) -> PeerStatus {
        let tunnel = &self.tunnel;
        let current = tunnel.epochs.current.as_ref();
        PeerStatus {
            peer: tunnel.identity.key,
            state: tunnel.state,
            established: tunnel.epochs.established().map(|(since, _)| since),
            lost_at: time_of_loss(tunnel),
            epoch_since: current.map(|epoch| epoch.since),
            handshaking: tunnel.paths.connector().is_some_and(|it| it.handshakes.is_trying()),
            refused: tunnel.paths.connector().and_then(|it| it.handshakes.refused),
            lease: tunnel.paths.side.lease(),
            shared_key: self.key_alarm.raised(),
            paths: PathStatus::of_all(&tunnel.paths.list, tunnel.epochs.id(), &tunnel.recovery),
            policed: tunnel.paths.connector().map_or(vec![], |it| it.policing.policed_links()),
            profile: current.map(|epoch| epoch.profiles.usual()),
            scheduler: self.bonding.settings.scheduler,
            waiting: self.waiting.len() + self.flows.questions(),
            queued_bytes: self.bonding.entry.bytes(),
            saved: saving::of(tunnel).saved(),
            compressions: saving::of(tunnel).operations(),
            spared: self.waiting.spared(),
            dictionaries: saving::of(tunnel).agreed(),
            early_bytes: tunnel.epochs.all_receiving().map(|epoch| epoch.reorder.bytes()).sum(),
        }
    }

    /// Tells of flows from `place` on, as [`crate::flow::Flows::report`] does.
    pub(crate) fn report_flows(
        &self,
        now: Instant,
        place: usize,
        places: usize,
        reports: &mut Vec<FlowReport>,
    ) -> usize {
        let first = reports.len();
        let is_alone = !self.bonding.is_shared;
        let looked_at = self.flows.report(now, place, places, reports);
        let entry = &self.bonding.entry;
        for report in &mut reports[first..] {
            self.flows.complete(report);
            if is_alone {
                report.leaves_alone();
            }
            let bucket = report.tuple.bucket();
            let queue = |bound| Queue { bytes: entry.queued(bucket), bound };
            report.queue = entry.bound(bucket).map(queue);
        }
        looked_at
    }

    /// Client: before there are new keys, nothing is sent under those that the gateway may have
    /// forgotten.
    pub(super) fn rest_if_outlived(&mut self, cx: &mut Context<'_>) {
        let persistence = cx.config.persistence_timeout;
        let (plan, any_waits) = (self.tunnel.paths.plan(), !self.waiting.is_empty());
        if let Some((_, heard_at)) = self.tunnel.epochs.established()
            && plan.is_outlived(cx.now, heard_at, persistence, any_waits)
        {
            self.leave_session(cx, PeerState::Resting);
        }
    }

    /// Forgets the session. The peer is in `state` until somebody wants another.
    fn leave_session(&mut self, cx: &mut Context<'_>, state: PeerState) {
        self.forget_session(cx);
        self.tunnel.paths.close_unused_sockets(cx);
        self.tunnel.set_state(cx, state);
    }
}
