//! What only a running gateway knows, added to what its ledger answers.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result};
use rove_api::{GatewayStatus, PeerPath, PeerPaths, PeerSession, Peers, Problem, RunningGateway};
use rove_host::data::Snapshot;
use rove_host::sessions;
use rove_host::values::{PeerName, spelt};
use rove_host::{encoding, offload, problems, shared_key};
use rove_proto::id::PeerKey;
use rove_proto::node::{PathStatus, PeerState, PeerStatus};
use rove_proto::time::Instant;

use super::Daemon;
use super::listening::Listening;

/// Somebody who was heard for so long is there. Behind a NAT even an idle client speaks every 25 s.
const HEARD_WITHIN: Duration = Duration::from_secs(60);

/// Problems with sessions that a status lists at most.
const PROBLEMS_TOLD_MAX: usize = 20;
/// Paths that are told of at most.
const PATHS_TOLD_MAX: usize = 1_000;

impl Daemon {
    /// Every path of every session, or of that with the peer `name`, those of who was heard last
    /// first.
    pub(super) fn paths(&self, name: Option<&str>) -> Result<PeerPaths> {
        let registry = self.gateway.ledger.registry();
        let key = |name: &str| {
            let name: PeerName = name.parse()?;
            let peer = registry.peers().find(|peer| peer.is_enrolled() && peer.name == name);
            let unknown = || format!("no peer is called {name}: `rove gateway peers` lists them");
            peer.map(|peer| PeerKey::from(peer.key)).with_context(unknown)
        };
        let asked = name.map(|name| Ok::<_, anyhow::Error>(vec![key(name)?])).transpose()?;
        let snapshot = self.data.status(asked).context("the data thread does not answer")?;
        // Who was revoked a moment ago has no name any more.
        let peer_of = |key: PeerKey| {
            let named = registry.peer(key).map(|peer| peer.name.to_string());
            named.unwrap_or_else(|| encoding::to_text(&key.0))
        };
        Ok(tell_paths(&snapshot, peer_of))
    }

    /// Adds to a status what only the running gateway knows of its sessions.
    pub(super) fn add_running(&self, status: &mut GatewayStatus, snapshot: &Snapshot) {
        let announced = self.announcer.announced();
        let own = self.locals();
        let sessions = || snapshot.peers.iter().filter(|peer| is_there(peer.state));
        let lately = |peer: &&PeerStatus| {
            heard_ago(peer, snapshot.now).is_some_and(|ago| ago <= HEARD_WITHIN)
        };
        let heard = sessions().filter(lately).count() as u64;
        let paths = sessions().filter_map(|peer| peer.paths.first().filter(|path| path.in_use));
        let there = |path: &&PathStatus| follows(path, announced, &self.listening, &own);
        let drops = snapshot.drops.iter();
        status.running = true;
        status.problems.extend(self.shared_keys(snapshot));
        let address = |path: &PathStatus| match path.route.local {
            Some(local) => format!("the interface with the address {local}"),
            None => "the interface of the gateway".to_owned(),
        };
        status.problems.extend(problems::forbidden(snapshot.forbidden, "firewall"));
        status.problems.extend(offload::unmerged(snapshot.merging_off));
        status.problems.extend(offload::problems(snapshot.peers.iter(), snapshot.now, address));
        status.sessions = Some(RunningGateway {
            sessions: sessions().count() as u64,
            heard,
            heard_within_s: HEARD_WITHIN.as_secs(),
            // As earlier versions called it, which counted sessions not heard of for days.
            connected: heard,
            drops: drops.map(|&(name, count)| (name.to_owned(), count)).collect(),
            announced: announced.to_vec(),
            following: paths.filter(there).count() as u64,
            saved: sessions::saved_in(sessions()),
        });
    }

    /// Adds to each peer its session.
    pub(super) fn add_sessions(&self, peers: &mut Peers, snapshot: &Snapshot) {
        let live = snapshot.peers.iter();
        let live: BTreeMap<String, &PeerStatus> =
            live.map(|session| (encoding::to_text(&session.peer.0), session)).collect();
        for peer in &mut peers.peers {
            let session = live.get(&peer.key);
            peer.session = session.map(|session| self.session(session, snapshot.now));
        }
    }

    fn session(&self, session: &PeerStatus, now: Instant) -> PeerSession {
        let sum = |of: fn(&PathStatus) -> u64| session.paths.iter().map(of).sum::<u64>();
        let advertised = self.advertised.get(&session.peer);
        PeerSession {
            state: sessions::state(session.state),
            advertised: advertised.map(|networks| spelt(networks)).unwrap_or_default(),
            shared_key_since: shared_key::since(session, now),
            fallback: offload::of_session(session, now),
            remote: session.paths.first().map(|path| path.route.remote),
            last_heard_s: heard_ago(session, now).map(|ago| ago.as_secs()),
            tx_bytes: sum(|path| path.tx_bytes),
            rx_bytes: sum(|path| path.rx_bytes),
            feedback_datagrams: sum(|path| path.reports.datagrams),
            feedback_bytes: sum(|path| path.reports.bytes),
            saved: sessions::saved_in([session]),
        }
    }
}

impl Daemon {
    /// The clients whose key two hosts use, each as a problem.
    fn shared_keys(&self, snapshot: &Snapshot) -> Vec<Problem> {
        let registry = self.gateway.ledger.registry();
        let problem = |session: &PeerStatus| {
            let name = registry.peer(session.peer)?.name.to_string();
            shared_key::at_gateway(&name, session, snapshot.now)
        };
        snapshot.peers.iter().filter_map(problem).take(PROBLEMS_TOLD_MAX).collect()
    }

    /// Logs that two hosts use the key of a client.
    pub(super) fn warn_of_shared_key(&self, key: PeerKey) {
        let snapshot = self.data.status(Some(vec![key]));
        for problem in snapshot.iter().flat_map(|snapshot| self.shared_keys(snapshot)) {
            tracing::warn!("{}", shared_key::line(&problem));
        }
    }
}

/// Whether a path leads to where the gateway wants to be reached in its family: as far as it can be
/// told, since where something in front of this host translates, one side of it is not seen.
fn follows(
    path: &PathStatus,
    announced: &[SocketAddr],
    listening: &Listening,
    own: &[IpAddr],
) -> bool {
    let family = |at: &&SocketAddr| at.is_ipv4() == path.route.remote.is_ipv4();
    let Some(wanted) = announced.iter().find(family) else { return true };
    let bound = listening.local(path.route.socket).map(|bound| bound.port());
    let port_is_ours = listening.places().any(|place| place.port() == wanted.port());
    let port = !port_is_ours || bound == Some(wanted.port());
    let address = !own.contains(&wanted.ip()) || path.route.local == Some(wanted.ip());
    port && address
}

fn tell_paths(snapshot: &Snapshot, name: impl Fn(PeerKey) -> String) -> PeerPaths {
    let mut sessions: Vec<&PeerStatus> =
        snapshot.peers.iter().filter(|session| is_there(session.state)).collect();
    sessions.sort_by_key(|session| Reverse(heard_at(session)));
    let known = sessions.iter().map(|session| session.paths.len()).sum::<usize>();
    let mut paths = Vec::new();
    for session in sessions {
        let left = PATHS_TOLD_MAX - paths.len();
        if left == 0 {
            break;
        }
        let name = name(session.peer);
        let told = sessions::told_paths(session, snapshot.now, &snapshot.streams, &[]);
        let told = told.into_iter().take(left);
        paths.extend(told.map(|path| PeerPath { path, peer: name.clone() }));
    }
    PeerPaths { complete: paths.len() == known, known: known as u64, paths }
}

/// When the peer was heard last.
fn heard_at(session: &PeerStatus) -> Option<Instant> {
    session.paths.iter().filter_map(|path| path.heard_at).max()
}

/// How long ago that was.
fn heard_ago(session: &PeerStatus, now: Instant) -> Option<Duration> {
    heard_at(session).map(|at| now.saturating_since(at))
}

/// Whether a session in this state has keys.
pub(super) const fn is_there(state: PeerState) -> bool {
    match state {
        PeerState::Up | PeerState::Moving | PeerState::Suspended => true,
        PeerState::Unestablished | PeerState::Resting | PeerState::Down(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use rove_host::samples::{NOW, path, peer};
    use rove_proto::path::Health;

    use super::*;

    #[test]
    fn paths_are_told_of_as_far_as_there_is_room_of_those_heard_last() {
        let session = |number: u8, heard_ms: u64, paths: usize| PeerStatus {
            peer: PeerKey([number; 32]),
            ..peer(PeerState::Up, vec![path(Health::Good, Some(heard_ms), None); paths])
        };
        let of = |peers: Vec<PeerStatus>| {
            let streams = BTreeMap::new();
            let told = tell_paths(
                &Snapshot {
                    now: NOW,
                    peers,
                    drops: vec![],
                    streams,
                    merging_off: None,
                    forbidden: None,
                },
                |key| format!("peer {}", key.0[0]),
            );
            let whose = told.paths.into_iter().map(|path| path.peer);
            (whose.collect::<Vec<_>>(), told.known, told.complete)
        };
        let gone = PeerStatus { state: PeerState::Unestablished, ..session(3, 1, 1) };
        let all = of(vec![session(1, 5_000, 1), gone, session(2, 100, 2)]);
        let whose = ["peer 2", "peer 2", "peer 1"].map(str::to_owned);
        assert_eq!(all, (whose.to_vec(), 3, true));
        let (whose, known, complete) = of(vec![
            session(1, 5_000, 1),
            session(2, 100, PATHS_TOLD_MAX - 1),
            session(4, 9_000, 2),
        ]);
        assert_eq!((whose.len(), known, complete), (PATHS_TOLD_MAX, 1_002, false));
        assert_eq!(whose.last().unwrap(), "peer 1");
    }
}
