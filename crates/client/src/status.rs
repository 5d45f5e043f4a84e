//! The replies to `rove status` and `rove paths`, from a snapshot of the core. Keys are only ever
//! added.
//!
//! Nothing here says "connected": a tunnel carries if something lately proved that it does.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use rove_api::{self as api, ClientPath, ClientStatus, Path};
use rove_os::links::Link;
use rove_os::plan::Dns;
use rove_proto::error::CloseCode;
use rove_proto::id::SocketId;
use rove_proto::node::{PathStatus, PeerState, PeerStatus, PolicedLink, Remedy};
use rove_proto::path::Health;
use rove_proto::time::Instant;

use crate::config::{LinkUse, PathsConfig, UsedBy, kind_of};
use crate::ranking::Ranked;
use crate::search::Search;
use rove_host::data::Carried;
use rove_host::encoding;
use rove_host::sessions::{carries_data, saved_in, state, told_paths, transport};
use rove_host::time::ago;

/// An answer that is owed for longer than this means that the path carries nothing.
const OWED_MAX: Duration = Duration::from_secs(2);
/// A word from the peer is news for so long.
const FRESH: Duration = Duration::from_secs(2);

/// What surrounds the session and the core does not know.
pub(crate) struct Surroundings<'a> {
    pub(crate) kill_switch: bool,
    /// What is made of the links.
    pub(crate) paths: PathsConfig,
    pub(crate) dns: &'a Dns,
    pub(crate) links: &'a BTreeMap<u32, String>,
    /// The usable ones, best first.
    pub(crate) ranked: &'a [Ranked],
    /// Those that are not to be used.
    pub(crate) unused: &'a [Ranked],
    /// How much has gone by each link that has a cap, by name, in bytes.
    pub(crate) used: &'a BTreeMap<String, u64>,
    /// What carries the paths that are no UDP.
    pub(crate) streams: &'a BTreeMap<SocketId, Carried>,
    /// What lets nothing through before somebody has signed in.
    pub(crate) portals: &'a [Portal],
    /// Whether this client keeps a browser from there.
    pub(crate) keeps_browsers_in: bool,
    /// Why the gateway refused last, and the cure.
    pub(crate) refused: Option<String>,
    /// What is done about a path that does not carry.
    pub(crate) search: Search<'a>,
}

/// A captive portal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Portal {
    /// The index of the link that it holds.
    pub(crate) index: u32,
    /// That link's name.
    pub(crate) link: String,
    /// Where to sign in.
    pub(crate) page: String,
}

impl fmt::Display for Portal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "captive portal on {}: sign in at {}", self.link, self.page)
    }
}

/// Whether data sent now would arrive, as far as anybody can tell.
pub(crate) fn is_carrying(peer: &PeerStatus, now: Instant) -> bool {
    peer.state == PeerState::Up
        && peer.paths.first().is_some_and(|path| {
            path.in_use
                && path.health == Health::Good
                && !path.vanishes
                && owed_for(path, now) < OWED_MAX
        })
}

fn owed_for(path: &PathStatus, now: Instant) -> Duration {
    path.unanswered_since.map_or(Duration::ZERO, |since| now.saturating_since(since))
}

/// `rove status`, without what the session and its surroundings do not tell: the rehearsal, and the
/// keys of a running client.
pub(crate) fn status(peer: &PeerStatus, now: Instant, around: &Surroundings<'_>) -> ClientStatus {
    let in_use = peer.paths.first().filter(|path| path.in_use);
    let addresses = peer.lease.iter().flat_map(|lease| &lease.addresses);
    let since = peer.established.map(|since| ago(now.saturating_since(since)).0);
    let (paths, links) = (around.paths, around.ranked.iter().chain(around.unused));
    ClientStatus {
        state: state(peer.state),
        carrying: is_carrying(peer, now),
        since,
        gateway: Some(encoding::to_text(&peer.peer.0)),
        inner: addresses.map(|net| net.address).collect(),
        path_in_use: in_use.map(|path| path.id),
        transport: in_use.map(|path| transport(path, around.streams).to_owned()),
        link: in_use.and_then(|path| around.links.get(&path.link?.0)).cloned(),
        doing: doing(peer, now, around),
        kill_switch: Some(around.kill_switch),
        transport_wanted: Some(paths.transport),
        mode: Some(paths.mode),
        scheduler: Some(paths.scheduler.to_string()),
        recovery: Some(paths.recovery),
        manager: Some(paths.manager),
        subflows: Some(paths.subflows.number()),
        links: links.map(|ranked| link(peer, ranked, around)).collect(),
        dns: around.dns.servers.clone(),
        dns_domains: around.dns.domains.clone(),
        portals: around.portals.iter().map(told_portal).collect(),
        saved: saved_in([peer]),
        ..ClientStatus::default()
    }
}

fn told_portal(portal: &Portal) -> api::Portal {
    api::Portal { link: portal.link.clone(), page: portal.page.clone() }
}

/// What is known of a link, and why it is used as it is.
fn link(peer: &PeerStatus, ranked: &Ranked, around: &Surroundings<'_>) -> api::Link {
    let Ranked { link, standing, signal, terms, usage, is_going } = ranked;
    let used = terms.cap.and_then(|_| around.used.get(&link.name));
    let is_full = terms.cap.zip(used).is_some_and(|(cap, used)| *used >= cap.bytes);
    let limits = limits_udp(peer, link.index);
    let is_held_back = *usage != LinkUse::Always;
    let why = match terms.by {
        _ if is_full => Some("its cap is reached"),
        UsedBy::Meter if is_held_back => Some("it is metered"),
        UsedBy::Rule if is_held_back => Some("a rule says so"),
        UsedBy::Set if is_held_back => Some("`rove set` says so"),
        _ if *is_going => Some("it is about to go"),
        UsedBy::Nobody | UsedBy::Meter | UsedBy::Rule | UsedBy::Set => None,
    };
    api::Link {
        name: link.name.clone(),
        kind: kind_of(link.kind),
        usage: *usage,
        why: why.map(str::to_owned),
        state: standing.label().or_else(|| limits.then_some(LIMITS_UDP)).map(str::to_owned),
        cost: terms.cost,
        metered: terms.metered,
        cap: terms.cap.map(|cap| cap.to_string()),
        used_bytes: used.copied(),
        signal_dbm: *signal,
    }
}

/// One sentence about what is going on, and what is done about it.
fn doing(peer: &PeerStatus, now: Instant, around: &Surroundings<'_>) -> String {
    let text = doing_of_session(peer, now, around);
    // Who carries by another link needs no page.
    let Some(portal) = around.portals.first().filter(|_| !is_carrying(peer, now)) else {
        return text;
    };
    let cure = if around.keeps_browsers_in {
        " after `rove down`, since the tunnel keeps browsers from there"
    } else {
        ""
    };
    format!("{portal}{cure}; {text}")
}

fn doing_of_session(peer: &PeerStatus, now: Instant, around: &Surroundings<'_>) -> String {
    let refused = around.refused.as_deref();
    let path = peer.paths.first();
    let carrying = peer.paths.iter().filter(|path| carries_data(path));
    let heard = carrying.filter_map(|path| path.heard_at).max();
    let heard = heard.map(|at| now.saturating_since(at));
    let ago = heard.map_or_else(
        || "not proven yet".to_owned(),
        |heard| format!("last proven {heard:.0?} ago"),
    );
    match peer.state {
        PeerState::Unestablished => match refused {
            Some(why) if peer.handshaking => format!("asking the gateway again: {why}"),
            Some(_) | None => around.search.says(),
        },
        PeerState::Resting => {
            "idle for so long that the keys were forgotten; the next packet, or the \
                               gateway, asks for new ones"
                .into()
        }
        PeerState::Up => match (path.map(|path| owed_for(path, now)), heard) {
            (Some(owed), _) if owed >= OWED_MAX => {
                let search = around.search.says();
                format!("sending, and nothing has come back for {}; {search}", seconds(owed))
            }
            (_, Some(_)) if path.is_some_and(|path| path.vanishes) => {
                "large packets were lost and small ones arrived: the path may have got a smaller \
                 MTU, which is being measured"
                    .into()
            }
            (_, Some(heard)) if !is_carrying(peer, now) => {
                format!("waiting for an answer, last heard {} ago", seconds(heard))
            }
            (_, Some(heard)) if heard < FRESH => match around.search.target(path) {
                Some(target) => format!("carrying, and following the gateway to {target}"),
                None => carrying_by(peer, now, around),
            },
            (_, Some(heard)) => format!("idle, last proven {} ago", seconds(heard)),
            (_, None) => "up, not proven yet".into(),
        },
        PeerState::Moving => format!("moving to another address, {ago}"),
        PeerState::Suspended => suspended(peer, now, heard, &around.search),
        PeerState::Down(code) => {
            let blocked = "traffic that belongs in the tunnel is blocked until `rove down`";
            match (refused, code) {
                (Some(why), _) => format!("closed: {why}; {blocked}"),
                (None, CloseCode::Revoked) => format!(
                    "closed: {}: ask the gateway's operator for a new invite; {blocked}",
                    reason(code)
                ),
                (None, _) => {
                    format!("closed: {}: connect with `rove down` and `rove up`", reason(code))
                }
            }
        }
    }
}

/// Says that no path carries, and when that was noticed. Also says when the gateway was `heard`
/// last, which may be long before if the tunnel was idle.
fn suspended(
    peer: &PeerStatus,
    now: Instant,
    heard: Option<Duration>,
    search: &Search<'_>,
) -> String {
    let lost = peer.lost_at.map(|at| format!("lost {} ago", seconds(now.saturating_since(at))));
    let was_heard = heard.is_some();
    let heard = heard.map(|heard| format!("last heard {} ago", seconds(heard)));
    let times = lost.into_iter().chain(heard).collect::<Vec<_>>().join(", ");
    match search.no_link() {
        Some(why) if was_heard => format!("the gateway cannot be reached ({times}): {why}"),
        Some(_) | None if times.is_empty() => format!("no path carries; {}", search.says()),
        Some(_) | None => format!("no path carries, {times}; {}", search.says()),
    }
}

/// That it carries, and of the first link that limits UDP what is done about it.
fn carrying_by(peer: &PeerStatus, now: Instant, around: &Surroundings<'_>) -> String {
    let limited = peer.policed.iter().filter(|policed| policed.lasts(now));
    let named = limited.filter_map(|policed| Some((policed, around.links.get(&policed.link.0)?)));
    let Some((policed, link)) = named.min_by_key(|(policed, _)| policed.since) else {
        return "carrying".to_owned();
    };
    let time = seconds(now.saturating_since(policed.since));
    let limit = format!(
        "carrying; for {time} UDP has seemed limited to {} on {link}",
        megabits(policed.kbps)
    );
    match policed.remedy {
        Remedy::Trying => format!("{limit}; trying TCP there"),
        Remedy::Stream => format!("{limit}; TCP carries more there, and UDP is tried again"),
        Remedy::InVain => format!("{limit}, and TCP carries no more there"),
        Remedy::None => format!("{limit}, and no TCP path may be used"),
        Remedy::Gone => "carrying".to_owned(),
    }
}

/// A rate as people say it.
pub(crate) fn megabits(kbps: u32) -> String {
    format!("{:.1} Mbit/s", f64::from(kbps) / 1e3)
}

/// What `rove paths` and `rove status` call a link where TCP carries because UDP is limited.
const LIMITS_UDP: &str = "limits UDP";

/// Whether a stream carries on that link in place of UDP.
pub(crate) fn limits_udp(peer: &PeerStatus, link: u32) -> bool {
    let by_stream = |it: &PolicedLink| it.remedy == Remedy::Stream && it.link.0 == link;
    peer.policed.iter().any(by_stream)
}

/// The reason for which the gateway closed a session, for people.
pub(crate) fn reason(code: CloseCode) -> String {
    match code {
        CloseCode::Revoked => "the gateway has revoked this client".to_owned(),
        CloseCode::Requested => "the gateway closed the session".to_owned(),
        CloseCode::Restarting => "the gateway is restarting".to_owned(),
        CloseCode::Protocol => "the gateway closed the session for a protocol error".to_owned(),
        CloseCode::Other(code) => format!("the gateway closed the session with code {code}"),
    }
}

fn seconds(time: Duration) -> String {
    format!("{} s", time.as_secs())
}

/// `rove paths`.
pub(crate) fn paths(peer: &PeerStatus, now: Instant, around: &Surroundings<'_>) -> Vec<ClientPath> {
    let links: Vec<&Link> =
        around.ranked.iter().chain(around.unused).map(|ranked| &ranked.link).collect();
    let told = told_paths(peer, now, around.streams, &links);
    let told = told.into_iter().zip(&peer.paths);
    told.map(|(told, path)| client_path(peer, told, path, around)).collect()
}

/// The path with what a client knows of the link that it starts from.
fn client_path(
    peer: &PeerStatus,
    told: Path,
    path: &PathStatus,
    around: &Surroundings<'_>,
) -> ClientPath {
    let rank = path.link.and_then(|id| around.ranked.iter().position(|r| r.link.index == id.0));
    let ranked = rank.and_then(|rank| around.ranked.get(rank));
    let state = ranked.and_then(|ranked| ranked.standing.label());
    let limits = path.link.is_some_and(|link| limits_udp(peer, link.0));
    let held = |portal: &&Portal| path.link.is_some_and(|link| link.0 == portal.index);
    ClientPath {
        path: told,
        link: path.link.and_then(|link| around.links.get(&link.0)).cloned(),
        link_rank: rank.map(|rank| rank as u64 + 1),
        link_state: state.or_else(|| limits.then_some(LIMITS_UDP)).map(str::to_owned),
        link_use: ranked.map(|ranked| ranked.usage),
        portal: around.portals.iter().find(held).map(|portal| portal.page.clone()),
        signal_dbm: ranked.and_then(|ranked| ranked.signal),
    }
}

#[cfg(test)]
#[path = "status_tests.rs"]
pub(crate) mod tests;
