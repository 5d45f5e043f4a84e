//! The part of a reply about sessions and paths that both kinds of node give, from a snapshot of
//! the core. Keys are only ever added.

use std::collections::BTreeMap;
use std::time::Duration;

use rove_api::{self as api, Path, PathState, SessionState};
use rove_os::links::Link;
use rove_os::stream::Subflow;
use rove_proto::congestion::status::{ControllerPhase, ControllerStatus, SendLimit};
use rove_proto::id::SocketId;
use rove_proto::node::{PathStatus, PeerState, PeerStatus};
use rove_proto::path::{self, Health};
use rove_proto::recovery::rate::Rate;
use rove_proto::time::Instant;

use crate::data::Carried;
use crate::offload;

/// The word for a state.
pub const fn state(state: PeerState) -> SessionState {
    match state {
        PeerState::Unestablished | PeerState::Resting => SessionState::Unestablished,
        PeerState::Up => SessionState::Up,
        PeerState::Moving => SessionState::Moving,
        PeerState::Suspended => SessionState::Suspended,
        PeerState::Down(_) => SessionState::Down,
    }
}

/// What either end can tell of each path of a session: of a client's, that by which of its own
/// `links` the subflows of a path go.
pub fn told_paths(
    peer: &PeerStatus,
    now: Instant,
    streams: &BTreeMap<SocketId, Carried>,
    links: &[&Link],
) -> Vec<Path> {
    let scheduler = peer.scheduler.name();
    let mbps = |rate: Rate| rate.at(now).map(|bytes| bytes * 8.0 / 1e6);
    let told = |(path, share): (&PathStatus, Option<f64>)| Path {
        id: path.id,
        local: path.route.local,
        remote: path.route.remote,
        state: path_state(path),
        transport: transport(path, streams).to_owned(),
        scheduler: path.is_shared.then(|| scheduler.to_owned()),
        repairs: path.is_shared,
        controller: path.controller.map(controller),
        subflows: subflows(path, streams, links),
        rtt_us: path.rtt.map(micros),
        rate_mbps: mbps(path.tx_rate),
        rx_rate_mbps: mbps(path.rx_rate),
        loss: path.loss.at(now),
        queue_ms: path.delay.queue(now).map(|queue| queue.as_secs_f64() * 1e3),
        share,
        fallback: offload::fallback(path, now),
        tx_bytes: path.tx_bytes,
        rx_bytes: path.rx_bytes,
        last_heard_ms: path.heard_at.map(|at| micros(now.saturating_since(at)) / 1_000),
        mtu: path.mtu as u64,
        split: path.split,
        retransmitted: path.retransmitted,
        copied_bytes: path.copied,
        feedback_datagrams: path.reports.datagrams,
        feedback_bytes: path.reports.bytes,
        saved: saved(path.saved),
    };
    peer.paths.iter().zip(shares(&peer.paths, now)).map(told).collect()
}

/// Bytes that were saved on what was sent.
const fn saved(saved: path::Saved) -> api::Saved {
    let path::Saved { elision, compression, aggregation } = saved;
    api::Saved { elision, compression, aggregation, waiting: 0 }
}

/// Bytes that were saved in sessions.
pub fn saved_in<'a>(sessions: impl IntoIterator<Item = &'a PeerStatus>) -> api::Saved {
    let (mut sent, mut waiting) = (path::Saved::default(), 0);
    for session in sessions {
        sent.add(session.saved);
        waiting += session.spared;
    }
    api::Saved { waiting, ..saved(sent) }
}

/// The congestion controller of a path, with rates in Mbit/s.
fn controller(status: ControllerStatus) -> api::Controller {
    let mbps = |bytes: f64| bytes * 8.0 / 1e6;
    let ControllerStatus { phase, rate, pacing_rate, window, in_flight, limit } = status;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a window is positive, and the cast saturates"
    )]
    let window_bytes = window as u64;
    api::Controller {
        phase: match phase {
            ControllerPhase::Startup => api::ControllerPhase::Startup,
            ControllerPhase::Drain => api::ControllerPhase::Drain,
            ControllerPhase::Steady => api::ControllerPhase::Steady,
            ControllerPhase::Competing => api::ControllerPhase::Competing,
        },
        rate_mbps: mbps(rate),
        pacing_mbps: mbps(pacing_rate),
        window_bytes,
        in_flight_bytes: in_flight,
        limited_by: match limit {
            SendLimit::Application => api::SendLimit::Application,
            SendLimit::Pacing => api::SendLimit::Pacing,
            SendLimit::Window => api::SendLimit::Window,
        },
    }
}

/// Which part of the data goes by each path, of what arrived at both ends in the last half second:
/// of several that carry it is not known while nothing did.
fn shares(paths: &[PathStatus], now: Instant) -> Vec<Option<f64>> {
    let carries = |path: &PathStatus| path.health == Health::Good && carries_data(path);
    let rate = |path: &PathStatus| {
        let rates = [path.tx_rate, path.rx_rate].map(|rate| rate.at(now).unwrap_or_default());
        if carries(path) { rates.iter().sum() } else { 0.0 }
    };
    let total: f64 = paths.iter().map(rate).sum();
    let count = paths.iter().filter(|path| carries(path)).count();
    let share = |path: &PathStatus| match (carries(path), total > 0.0) {
        (true, true) => Some(rate(path) / total),
        (true, false) => (count == 1).then_some(1.0),
        (false, _) => Some(f64::from(path.in_use && count == 0)),
    };
    paths.iter().map(share).collect()
}

/// Whether data goes by the path, alone or beside others.
pub const fn carries_data(path: &PathStatus) -> bool {
    path.in_use || path.is_shared
}

const fn path_state(path: &PathStatus) -> PathState {
    match (path.health, carries_data(path)) {
        (Health::Gone, _) => PathState::Gone,
        (Health::Silent { .. }, _) => PathState::Silent,
        (Health::Good, true) => PathState::InUse,
        (Health::Good, false) => PathState::Standby,
    }
}

/// The name of the transport that carries the datagrams of a path.
pub fn transport(path: &PathStatus, streams: &BTreeMap<SocketId, Carried>) -> &'static str {
    streams.get(&path.route.socket).map_or("udp", |carried| carried.transport)
}

/// What a path by MPTCP goes by, of these links; nothing of another.
fn subflows(
    path: &PathStatus,
    streams: &BTreeMap<SocketId, Carried>,
    links: &[&Link],
) -> Option<Vec<api::Subflow>> {
    let subflows = &streams.get(&path.route.socket)?.subflows;
    let told = |subflow: &Subflow| {
        let Subflow { local, remote, tx_bytes, rx_bytes, rtt } = subflow;
        let starts = |link: &&&Link| link.addresses.iter().any(|net| net.addr() == local.ip());
        api::Subflow {
            link: links.iter().find(starts).map(|link| link.name.clone()),
            local: *local,
            remote: *remote,
            tx_bytes: *tx_bytes,
            rx_bytes: *rx_bytes,
            rtt_us: micros(*rtt),
        }
    };
    (!subflows.is_empty()).then(|| subflows.iter().map(told).collect())
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
#[path = "sessions_tests.rs"]
mod tests;
