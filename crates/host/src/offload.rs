//! The messages about segmentation offload that loses packets, of sockets and of the tunnel's
//! interface.
//!
//! This module contains the texts. The core decides how datagrams are sent, [`rove_os::tun`] how
//! packets are written.

use std::collections::BTreeMap;
use std::time::Duration;

use rove_api::{Problem, SendFallback, Sends};
use rove_proto::id::Transport;
use rove_proto::node::{PathStatus, PeerStatus};
use rove_proto::outbox::Sending;
use rove_proto::time::Instant;

use crate::time::ago;

/// The part of the node that these problems are about.
pub const PART: &str = "offload";
/// Problems that are listed at most: one for each interface.
const PROBLEMS_MAX: usize = 20;

/// The paths by one interface.
#[derive(Default)]
struct Interface {
    paths: u64,
    fallen_back: u64,
    worst: Option<SendFallback>,
}

/// How a path sends, if not simply with segmentation offload.
pub fn fallback(path: &PathStatus, now: Instant) -> Option<SendFallback> {
    let (sending, since) = path.fallback?;
    let sends = match sending {
        Sending::Segmented | Sending::ShortLast => Sends::ShortLast,
        Sending::Single | Sending::Alone => Sends::Single,
    };
    let for_ms = u64::try_from(now.saturating_since(since).as_millis()).unwrap_or(u64::MAX);
    Some(SendFallback { sends, for_ms })
}

/// The longest fallback of a session's paths.
pub fn of_session(session: &PeerStatus, now: Instant) -> Option<SendFallback> {
    let all = session.paths.iter().filter_map(|path| fallback(path, now));
    all.max_by_key(|fallback| fallback.for_ms)
}

/// A problem for each interface by which segmented sends lose more than others. `interface` names
/// the one of a path, as a person knows it.
pub fn problems<'a>(
    sessions: impl Iterator<Item = &'a PeerStatus>,
    now: Instant,
    interface: impl Fn(&PathStatus) -> String,
) -> Vec<Problem> {
    let mut interfaces: BTreeMap<String, Interface> = BTreeMap::new();
    let paths = sessions.flat_map(|session| &session.paths);
    for path in paths.filter(|path| path.route.socket.transport() == Transport::Udp) {
        let found = interfaces.entry(interface(path)).or_default();
        found.paths += 1;
        let Some(fallback) = fallback(path, now) else { continue };
        found.fallen_back += 1;
        let worst = found.worst.get_or_insert(fallback);
        worst.for_ms = worst.for_ms.max(fallback.for_ms);
        worst.sends = worst.sends.max(fallback.sends);
    }
    let problems = interfaces.iter().filter_map(|(name, found)| problem(name, found));
    problems.take(PROBLEMS_MAX).collect()
}

/// The problem that packets for the tunnel's interface are not joined, for so long.
pub fn unmerged(off: Option<Duration>) -> Option<Problem> {
    let off = off?;
    Some(Problem {
        part: Some(PART.to_owned()),
        what: "the kernel refuses packets for the tunnel's interface that are joined (GRO)".into(),
        since: ago(off).0,
        cause: "its TUN driver agreed to them and then says EINVAL; Rove writes each packet by \
                itself, which costs processor time, and tries joined ones again from time to time"
            .to_owned(),
        cure: "update the kernel".to_owned(),
    })
}

fn problem(name: &str, found: &Interface) -> Option<Problem> {
    let Interface { paths, fallen_back, worst } = found;
    let worst = worst.as_ref()?;
    let does = match worst.sends {
        Sends::ShortLast => "adds a short last segment to each send",
        Sends::Single => "sends each packet by itself, which costs processor time",
    };
    Some(Problem {
        part: Some(PART.to_owned()),
        what: format!(
            "segmented UDP sends (GSO) by {name} lose more packets than single ones, on \
             {fallen_back} of {paths} paths"
        ),
        since: ago(Duration::from_millis(worst.for_ms)).0,
        cause: format!(
            "Rove measured that; this host's kernel, driver or virtual network card may mangle \
             them, or a full queue of this host or a device on the path drops them. Rove {does}, \
             and tries segmented sends again from time to time"
        ),
        cure: format!(
            "look at `tc -s qdisc show` for {name}: if its `dropped` grows, the queue is full and \
             nothing is broken; if not, update the kernel or the host of this virtual machine and \
             restart Rove, or let the kernel cut the packets in place of the card (`ethtool -K \
             DEVICE tx-udp-segmentation off`)"
        ),
    })
}

#[cfg(test)]
mod tests {
    use rove_proto::id::SocketId;
    use rove_proto::node::PeerState;
    use rove_proto::path::Health;

    use super::*;
    use crate::samples::{self, NOW};

    fn path(sending: Option<Sending>) -> PathStatus {
        let fallback = sending.map(|sending| (sending, NOW - Duration::from_secs(3)));
        PathStatus { fallback, ..samples::path(Health::Good, None, None) }
    }

    fn found(paths: Vec<PathStatus>) -> Vec<Problem> {
        let session = samples::peer(PeerState::Up, paths);
        problems(std::iter::once(&session), NOW, |_| "eth0".to_owned())
    }

    #[test]
    fn a_problem_counts_paths_and_blames_no_driver_for_a_full_queue() {
        let all = [None, Some(Sending::ShortLast), Some(Sending::Single)].map(path);
        let found = found(all.to_vec());
        let [problem] = found.as_slice() else { panic!("{found:?}") };
        assert!(problem.what.contains("by eth0"), "{}", problem.what);
        assert!(problem.what.contains("on 2 of 3 paths"), "{}", problem.what);
        assert!(problem.cause.contains("sends each packet by itself"), "{}", problem.cause);
        assert!(problem.cause.contains("or a full queue"), "{}", problem.cause);
        assert!(problem.cure.contains("tc -s qdisc show"), "{}", problem.cure);
    }

    #[test]
    fn sound_interfaces_and_streams_are_no_problem() {
        let mut stream = path(Some(Sending::Single));
        stream.route.socket = SocketId(SocketId::STREAMS);
        assert_eq!(found(vec![path(None), stream]), []);
    }
}
