//! Ordinary sessions, paths and flows for tests.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

use std::time::Duration;

use rove_proto::flow::classify::Class;
use rove_proto::flow::overrides::Decided;
use rove_proto::flow::priority::Level;
use rove_proto::flow::report::{FlowReport, FlowState, Queue, Stage, Why};
use rove_proto::flow::tuple::Tuple;
use rove_proto::id::{PeerKey, SocketId};
use rove_proto::multipath::codel::Bound;
use rove_proto::multipath::scheduler::Scheduler;
use rove_proto::node::{PathStatus, PeerState, PeerStatus};
use rove_proto::outbox::Route;
use rove_proto::path::{Health, Saved, Trust};
use rove_proto::recovery::delay::Delay;
use rove_proto::recovery::feedback::Reports;
use rove_proto::recovery::loss::Loss;
use rove_proto::recovery::rate::Rate;
use rove_proto::time::Instant;
use rove_proto::wire::inner::TCP;

/// The present moment for the samples.
pub const NOW: Instant = Instant::from_nanos(1_000_000_000_000_000);

fn ago(ms: u64) -> Instant {
    NOW - Duration::from_millis(ms)
}

/// A path in use. The peer was last heard `heard` ms ago, and an answer is due since `owed` ms.
pub fn path(health: Health, heard: Option<u64>, owed: Option<u64>) -> PathStatus {
    PathStatus {
        id: 7,
        route: Route {
            socket: SocketId(0),
            local: None,
            remote: "192.0.2.1:4500".parse().unwrap(),
        },
        link: None,
        in_use: true,
        is_shared: false,
        controller: None,
        trust: Trust::Proven,
        health,
        rtt: None,
        tx_rate: Rate::default(),
        rx_rate: Rate::default(),
        delay: Delay::default(),
        loss: Loss::default(),
        mtu: 1_232,
        vanishes: false,
        fallback: None,
        natted: false,
        tx_datagrams: 0,
        tx_bytes: 1,
        split: 0,
        retransmitted: 0,
        copied: 0,
        reports: Reports::default(),
        saved: Saved::default(),
        rx_bytes: 2,
        heard_at: heard.map(ago),
        unanswered_since: owed.map(ago),
    }
}

/// A session over these paths.
pub fn peer(state: PeerState, paths: Vec<PathStatus>) -> PeerStatus {
    PeerStatus {
        scheduler: Scheduler::default(),
        peer: PeerKey([1; 32]),
        state,
        established: None,
        lost_at: None,
        epoch_since: None,
        handshaking: false,
        policed: Vec::new(),
        refused: None,
        lease: None,
        shared_key: None,
        paths,
        profile: None,
        waiting: 0,
        queued_bytes: 0,
        early_bytes: 0,
        saved: Saved::default(),
        compressions: 0,
        spared: 0,
        dictionaries: None,
    }
}

/// An ordinary connection.
pub fn report(port: u16) -> FlowReport {
    report_of(port, FlowState::Normal, 0, 0)
}

/// A connection in that state, with `held_bytes` bytes held, idle for `idle_s` seconds.
pub(crate) fn report_of(port: u16, state: FlowState, held_bytes: usize, idle_s: u64) -> FlowReport {
    FlowReport {
        tuple: Tuple {
            local: ([10, 77, 0, 2].into(), port),
            remote: ([0xfd00, 0, 0, 0, 0, 0, 0, 1].into(), 22),
            protocol: TCP,
        },
        class: Class::Interactive,
        level: Level::Third,
        decided: Decided::default(),
        narrowed_to: Some(6_144),
        queue: Some(Queue { bytes: 1_420, bound: Bound::SHORT }),
        state,
        stage: Stage::Established,
        held_bytes,
        owed_bytes: 7,
        sent: 0,
        received: 0,
        path: None,
        idle: Duration::from_secs(idle_s),
        why: Why::Kept,
    }
}
