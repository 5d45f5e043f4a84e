//! The messages about segmentation offload that loses packets, of sockets and of the tunnel's
//! interface.
//!
//! This module contains the texts. The core decides how datagrams are sent, [`rove_os::tun`] how
//! packets are written.

use std::collections::BTreeMap;
use std::time::Duration;

use rove_api::{Problem, SendFallback, Sends};
use rove_proto::node::{PathStatus, PeerStatus};
use rove_proto::outbox::Sending;
use rove_proto::time::Instant;

use crate::time::wall_clock;

/// The part of the node that these problems are about.
pub const PART: &str = "offload";
/// Problems that are listed at most: one for each interface.
const PROBLEMS_MAX: usize = 20;

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
    let mut interfaces: BTreeMap<String, (SendFallback, u64)> = BTreeMap::new();
    for path in sessions.flat_map(|session| &session.paths) {
        let Some(fallback) = fallback(path, now) else { continue };
        let found = interfaces.entry(interface(path)).or_insert((fallback, 0));
        found.0.for_ms = found.0.for_ms.max(fallback.for_ms);
        found.0.sends = found.0.sends.max(fallback.sends);
        found.1 += 1;
    }
    interfaces
        .iter()
        .take(PROBLEMS_MAX)
        .map(|(name, (found, paths))| problem(name, found, *paths))
        .collect()
}

/// The problem that packets for the tunnel's interface are not joined, for so long.
pub fn unmerged(off: Option<Duration>) -> Option<Problem> {
    let off = off?;
    Some(Problem {
        part: Some(PART.to_owned()),
        what: "the kernel refuses packets for the tunnel's interface that are joined (GRO)".into(),
        since: wall_clock().0.saturating_sub(off.as_secs()),
        cause: "its TUN driver agreed to them and then says EINVAL; Rove writes each packet by \
                itself, which costs processor time, and tries joined ones again from time to time"
            .to_owned(),
        cure: "update the kernel".to_owned(),
    })
}

fn problem(interface: &str, found: &SendFallback, paths: u64) -> Problem {
    let plural = if paths == 1 { "" } else { "s" };
    let does = match found.sends {
        Sends::ShortLast => "adds a short last segment to each send",
        Sends::Single => "sends each packet by itself, which costs processor time",
    };
    Problem {
        part: Some(PART.to_owned()),
        what: format!(
            "segmented UDP sends (GSO) by {interface} lose more packets than single ones, on \
             {paths} path{plural}"
        ),
        since: wall_clock().0.saturating_sub(found.for_ms / 1_000),
        cause: format!(
            "this host's kernel, driver or virtual network card mangles them; Rove {does}, and \
             tries segmented sends again from time to time"
        ),
        cure: format!(
            "update the kernel, or the host of this virtual machine, and restart Rove; or let the \
             kernel cut the packets in place of the card (`ethtool -K DEVICE tx-udp-segmentation \
             off`, for {interface})"
        ),
    }
}
