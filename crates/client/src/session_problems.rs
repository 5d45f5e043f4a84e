//! Problems of the session itself, for `rove status` and `rove check`: it does not carry, or a
//! stream stands in for UDP.
//!
//! This module contains the texts. It says what was measured, and then what that may mean. It does
//! not know the host's settings, which `rove_host::problems` describes.

use std::time::Duration;

use rove_api::Problem;
use rove_os::links::Link;
use rove_proto::error::CloseCode;
use rove_proto::id::{LinkId, Transport};
use rove_proto::node::{PathStatus, PeerState, PeerStatus, Remedy};
use rove_proto::path::Health;
use rove_proto::time::Instant;

use crate::config::TransportChoice;
use crate::status::{Surroundings, is_carrying, limits_udp, megabits, reason};
use rove_host::data::Forbidden;
use rove_host::sessions::transport;
use rove_host::time::{self, wall_clock};

/// The parts of the node that these problems are about.
const SESSION: &str = "session";
const TRANSPORT: &str = "transport";
const LINK: &str = "link";
/// How long a link is silent before a problem says so: shorter outages end by themselves.
const SILENT_TOLD: Duration = Duration::from_secs(5);

/// The problems of this session. `by_stream` is since when a stream carries, in seconds since 1970.
pub(crate) fn problems(
    peer: &PeerStatus,
    now: Instant,
    around: &Surroundings<'_>,
    by_stream: Option<u64>,
    forbidden: Option<Forbidden>,
) -> Vec<Problem> {
    // A known cause says more than that UDP gets no answer.
    let udp = rove_host::problems::forbidden(forbidden, TRANSPORT)
        .or_else(|| stands_in(peer, around, by_stream))
        .or_else(|| limited(peer, now, around));
    let links = around.ranked.iter().filter(|_| is_carrying(peer, now)).map(|one| &one.link);
    let silent = silent_links(&peer.paths, now, links);
    not_carrying(peer, now, around).into_iter().chain(udp).chain(silent).collect()
}

/// The links by which nothing comes back: all of their paths are silent.
fn silent_links<'a>(
    paths: &[PathStatus],
    now: Instant,
    links: impl Iterator<Item = &'a Link>,
) -> Vec<Problem> {
    links
        .filter_map(|link| {
            let own = paths.iter().filter(|path| path.link == Some(LinkId(link.index)));
            let noticed = own.map(silent_since);
            let noticed = noticed.collect::<Option<Vec<Instant>>>()?.into_iter().max()?;
            let silence = now.saturating_since(noticed);
            (silence >= SILENT_TOLD).then(|| silent_link(&link.name, silence))
        })
        .collect()
}

/// When an answer was first missed on a silent path. The last packet came before, on an idle path
/// perhaps by hours.
fn silent_since(path: &PathStatus) -> Option<Instant> {
    match path.health {
        Health::Silent { since } => Some(path.unanswered_since.map_or(since, |at| at.min(since))),
        Health::Good | Health::Gone => None,
    }
}

fn silent_link(link: &str, silence: Duration) -> Problem {
    Problem {
        part: Some(LINK.to_owned()),
        what: format!("the gateway does not answer by {link}"),
        since: time::ago(silence).0,
        cause: "the link is up, but its router or a network behind it drops the packets; traffic \
                uses other links"
            .to_owned(),
        cure: format!(
            "restart its router or reconnect {link}; until then `rove set link.{link}.use never` \
             takes it out of use"
        ),
    }
}

fn not_carrying(peer: &PeerStatus, now: Instant, around: &Surroundings<'_>) -> Option<Problem> {
    if is_carrying(peer, now) || peer.state == PeerState::Resting {
        return None;
    }
    let ago = stopped_at(peer).map_or(Duration::ZERO, |at| now.saturating_since(at));
    let what = match peer.state {
        PeerState::Down(_) => "the session is closed, so traffic of the tunnel is blocked",
        PeerState::Unestablished
        | PeerState::Resting
        | PeerState::Up
        | PeerState::Moving
        | PeerState::Suspended => "the tunnel does not carry",
    };
    let (cause, cure) = why(peer, around);
    let since = time::ago(ago).0;
    Some(Problem { part: Some(SESSION.to_owned()), what: what.to_owned(), since, cause, cure })
}

/// When the tunnel was noticed to carry no more: the state of the session changed, or an answer is
/// due on the path in use.
fn stopped_at(peer: &PeerStatus) -> Option<Instant> {
    let path = peer.paths.first();
    peer.lost_at.or_else(|| path.and_then(|path| silent_since(path).or(path.unanswered_since)))
}

/// Cause and cure.
fn why(peer: &PeerStatus, around: &Surroundings<'_>) -> (String, String) {
    let search = &around.search;
    let owned = |cause: &str, cure: &str| (cause.to_owned(), cure.to_owned());
    let is_refused = matches!(peer.state, PeerState::Unestablished | PeerState::Down(_));
    if let Some((cause, cure)) = around.refused.as_deref().filter(|_| is_refused).map(split) {
        return (cause.to_owned(), cure.to_owned());
    }
    if let PeerState::Down(code) = peer.state {
        let cure = match code {
            CloseCode::Revoked => "ask the gateway's operator for a new invite, or run `rove down`",
            CloseCode::Requested
            | CloseCode::Restarting
            | CloseCode::Protocol
            | CloseCode::Other(_) => "run `rove down`, then `rove up`",
        };
        return (reason(code), cure.to_owned());
    }
    if let Some(why) = search.no_link() {
        return (why, search.cure_of_no_link());
    }
    if let Some(portal) = around.portals.first() {
        let cause = format!("the network of {} wants a sign-in", portal.link);
        return (cause, format!("sign in at {}", portal.page));
    }
    if let Some(want) = &search.want {
        return owned(want, "use another network, or give the gateway an address of that family");
    }
    if peer.paths.first().is_some_and(|path| path.vanishes) {
        return owned(
            "large packets were lost and small ones arrived; Rove measures the path's MTU again",
            "wait some seconds; if it stays, try another network",
        );
    }
    if let [first, ..] = &*search.no_route {
        let is_are = if search.no_route.len() == 1 { "is up, but has" } else { "are up, but have" };
        let links = search.no_route.join(" and ");
        return (
            format!("no route leads to the gateway: {links} {is_are} no default route"),
            format!(
                "connect {first} again, or add a default route: `ip route add default via ROUTER \
                 dev {first}`"
            ),
        );
    }
    if search.addresses == 0 {
        return owned("the gateway's name does not resolve", "check this host's network and DNS");
    }
    let (count, plural) = (search.addresses, if search.addresses == 1 { "" } else { "es" });
    (
        format!("the gateway does not answer at {count} address{plural}"),
        "try another network; if none helps, run `rove gateway status` on the gateway".to_owned(),
    )
}

/// A line of cause and cure.
fn split(line: &str) -> (&str, &str) {
    line.split_once(": ").unwrap_or((line, "see the client's log"))
}

/// A stream carries, although UDP is wanted.
fn stands_in(
    peer: &PeerStatus,
    around: &Surroundings<'_>,
    by_stream: Option<u64>,
) -> Option<Problem> {
    let path = peer.paths.first().filter(|path| path.in_use)?;
    let is_stream = path.route.socket.transport() == Transport::Stream;
    let is_faster = path.link.is_some_and(|link| limits_udp(peer, link.0));
    if !is_stream || is_faster || around.paths.transport != TransportChoice::Auto {
        return None;
    }
    Some(Problem {
        part: Some(TRANSPORT.to_owned()),
        what: format!(
            "UDP gets no answer from the gateway, so {} is used",
            transport(path, around.streams)
        ),
        since: by_stream.unwrap_or_else(|| wall_clock().0),
        cause: "this network may block UDP, or a firewall of this host or in front of the gateway \
                does"
            .to_owned(),
        cure: "use another network, or let these firewalls pass UDP to the gateway's port; Rove \
               tries UDP again by itself"
            .to_owned(),
    })
}

/// A link limits UDP, and no stream helps.
fn limited(peer: &PeerStatus, now: Instant, around: &Surroundings<'_>) -> Option<Problem> {
    let policed = peer.policed.iter().find(|policed| policed.lasts(now))?;
    let link = around.links.get(&policed.link.0)?;
    let cure = match policed.remedy {
        Remedy::Trying | Remedy::Stream | Remedy::Gone => return None,
        Remedy::InVain => "use another network: TCP was tried there and carries no more",
        Remedy::None if around.paths.transport == TransportChoice::Udp => {
            "allow TCP: `rove down`, then `rove up --transport auto`"
        }
        Remedy::None => "let the gateway listen for TCP on port 443",
    };
    Some(Problem {
        part: Some(TRANSPORT.to_owned()),
        what: format!("{link} lets about {} of UDP through", megabits(policed.kbps)),
        since: time::ago(now.saturating_since(policed.since)).0,
        cause: "this network seems to drop UDP beyond that rate".to_owned(),
        cure: cure.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use rove_host::samples::{NOW, path, peer};
    use rove_proto::node::PolicedLink;

    use super::*;
    use crate::search::{Search, Unused};
    use crate::status::tests::around;

    fn told(peer: &PeerStatus, search: Search<'_>, refused: Option<&str>) -> Vec<String> {
        let around = Surroundings { search, refused: refused.map(str::to_owned), ..around() };
        let found = problems(peer, NOW, &around, None, None);
        found.iter().map(|one| format!("{}: {}. {}", one.what, one.cause, one.cure)).collect()
    }

    #[test]
    fn a_silent_link_is_a_problem_beside_one_that_carries() {
        let silent = Health::Silent { since: NOW };
        let on = |index, health, heard| PathStatus {
            link: Some(LinkId(index)),
            ..path(health, Some(7_200_000), Some(heard))
        };
        let link = |index, name: &str| crate::ranking::tests::named(index, name);
        let links = [link(1, "eth0"), link(2, "wwan0"), link(3, "wlan0"), link(4, "eth1")];
        let paths = [
            on(1, Health::Good, 0),
            on(2, silent, 9_000),
            on(2, silent, 30_000),
            on(3, silent, 4_000),
            on(3, Health::Good, 9_000),
        ];
        let found = silent_links(&paths, NOW, links.iter());
        let [problem] = &*found else { panic!("{found:?}") };
        assert_eq!(problem.what, "the gateway does not answer by wwan0");
        assert!(problem.cure.contains("rove set link.wwan0.use never"), "{problem:?}");
        let told = wall_clock().0 - problem.since;
        assert!((8..=10).contains(&told), "since an answer was missed: {told}");
        let shortly = [on(2, silent, 4_000)];
        assert_eq!(silent_links(&shortly, NOW, links.iter()), []);
    }

    #[test]
    fn what_does_not_carry_names_cause_and_cure() {
        let silent = || vec![path(Health::Silent { since: NOW }, Some(9_000), Some(9_000))];
        let asked = || Search { links: 1, addresses: 2, ..Search::default() };
        let down = vec!["wlan0 has no carrier".to_owned(), "eth0 is down".to_owned()];
        let unused = |is_capped| vec![Unused { name: "wwan0".to_owned(), is_capped }];
        let no_route = vec!["wlan0".to_owned(), "wwan0".to_owned()];
        let no_name = Search { links: 1, ..Search::default() };
        for (state, search, refused, parts) in [
            (PeerState::Suspended, asked(), None, ["at 2 addresses", "`rove gateway status`"]),
            (PeerState::Up, no_name, None, ["name does not resolve", "DNS"]),
            (
                PeerState::Suspended,
                Search { down, ..Search::default() },
                None,
                ["no link can be used: wlan0 has no carrier, eth0 is down", "connect this host"],
            ),
            (
                PeerState::Suspended,
                Search { unused: unused(false), ..Search::default() },
                None,
                ["excludes wwan0", "`rove set link.wwan0.use always`"],
            ),
            (
                PeerState::Suspended,
                Search { unused: unused(true), ..Search::default() },
                None,
                ["the cap of wwan0 is reached", "`rove set link.wwan0.cap none`"],
            ),
            (
                PeerState::Suspended,
                Search { no_route, ..asked() },
                None,
                [
                    "no route leads to the gateway: wlan0 and wwan0 are up, but have no default",
                    "`ip route add default via ROUTER dev wlan0`",
                ],
            ),
            (
                PeerState::Down(CloseCode::Revoked),
                asked(),
                None,
                ["the gateway has revoked this client", "new invite, or run `rove down`"],
            ),
            (
                PeerState::Unestablished,
                asked(),
                Some("the gateway is full: try again later"),
                ["the gateway is full", "try again later"],
            ),
        ] {
            let [line] = &*told(&peer(state, silent()), search, refused) else {
                panic!("{state:?}")
            };
            assert!(parts.iter().all(|part| line.contains(part)), "{line}");
        }
    }

    #[test]
    fn a_loss_dates_from_its_notice_and_not_from_the_last_packet() {
        let hours = Some(7_200_000);
        let lost_at = Some(NOW - Duration::from_secs(9));
        let gone = peer(PeerState::Suspended, vec![path(Health::Gone, hours, None)]);
        let gone = PeerStatus { lost_at, ..gone };
        let unanswered = peer(PeerState::Up, vec![path(Health::Good, hours, Some(9_000))]);
        for peer in [gone, unanswered] {
            let found = problems(&peer, NOW, &around(), None, None);
            let [problem] = &*found else { panic!("{found:?}") };
            let told = wall_clock().0 - problem.since;
            assert!((8..=10).contains(&told), "{told} s ago: {problem:?}");
        }
    }

    #[test]
    fn what_carries_or_rests_is_no_problem() {
        let good = vec![path(Health::Good, Some(0), None)];
        let asked = || Search { links: 1, addresses: 2, ..Search::default() };
        assert!(told(&peer(PeerState::Up, good), asked(), None).is_empty());
        assert!(told(&peer(PeerState::Resting, Vec::new()), asked(), None).is_empty());
    }

    #[test]
    fn a_firewall_of_this_host_is_named() {
        let now = std::time::Instant::now();
        let remote = "192.0.2.1:4433".parse().unwrap();
        let forbidden = Some(Forbidden { remote, since: now, last: now });
        let good = peer(PeerState::Up, vec![path(Health::Good, Some(0), None)]);
        let found = problems(&good, NOW, &around(), None, forbidden);
        let [problem] = &*found else { panic!("{found:?}") };
        assert!(problem.what.ends_with("UDP datagrams out to 192.0.2.1:4433"), "{problem:?}");
        assert!(problem.cure.contains("UDP to port 4433"), "{problem:?}");
    }

    #[test]
    fn a_stream_is_a_problem_only_where_udp_is_wanted() {
        let mut stream = path(Health::Good, Some(0), None);
        stream.route.socket = rove_proto::id::SocketId(rove_proto::id::SocketId::STREAMS);
        let peer = peer(PeerState::Up, vec![stream]);
        for (transport, count) in [(TransportChoice::Auto, 1), (TransportChoice::Tcp, 0)] {
            let mut around = around();
            around.paths.transport = transport;
            assert_eq!(problems(&peer, NOW, &around, Some(7), None).len(), count, "{transport:?}");
        }
    }
    #[test]
    fn limited_udp_is_a_problem_where_tcp_does_not_help() {
        let links = std::collections::BTreeMap::from([(7, "eth7".to_owned())]);
        let told = |transport, remedy| {
            let (link, since, told_at) = (LinkId(7), NOW, NOW);
            let policed = vec![PolicedLink { link, kbps: 940, since, told_at, remedy }];
            let good = vec![path(Health::Good, Some(0), None)];
            let peer = PeerStatus { policed, ..peer(PeerState::Up, good) };
            let mut around = Surroundings { links: &links, ..around() };
            around.paths.transport = transport;
            problems(&peer, NOW, &around, None, None).pop()
        };
        let (auto, udp) = (TransportChoice::Auto, TransportChoice::Udp);
        for (transport, remedy, cure) in [
            (auto, Remedy::InVain, "another network"),
            (auto, Remedy::None, "port 443"),
            (udp, Remedy::None, "`rove up --transport auto`"),
        ] {
            let problem = told(transport, remedy).unwrap();
            assert_eq!(problem.what, "eth7 lets about 0.9 Mbit/s of UDP through");
            assert!(problem.cure.contains(cure), "{problem:?}");
        }
        for remedy in [Remedy::Trying, Remedy::Stream, Remedy::Gone] {
            assert!(told(auto, remedy).is_none(), "{remedy:?}");
        }
    }
}
