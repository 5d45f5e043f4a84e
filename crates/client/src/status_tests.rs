//! What people are told is what is known.

use rove_host::samples::{NOW, path, peer};
use rove_proto::id::LinkId;

use super::*;

const SILENT: Health = Health::Silent { since: NOW };

/// A client with one link that asks at three addresses.
pub(crate) fn around() -> Surroundings<'static> {
    static DNS: Dns = Dns { servers: Vec::new(), domains: Vec::new(), all: false };
    static LINKS: BTreeMap<u32, String> = BTreeMap::new();
    static USED: BTreeMap<String, u64> = BTreeMap::new();
    static STREAMS: BTreeMap<SocketId, Carried> = BTreeMap::new();
    Surroundings {
        kill_switch: false,
        paths: PathsConfig::default(),
        dns: &DNS,
        links: &LINKS,
        ranked: &[],
        unused: &[],
        used: &USED,
        portals: &[],
        keeps_browsers_in: false,
        streams: &STREAMS,
        refused: None,
        search: Search { links: 1, addresses: 3, ..Search::default() },
    }
}

fn told(peer: &PeerStatus, refused: Option<&str>) -> (bool, String) {
    let around = Surroundings { refused: refused.map(str::to_owned), ..around() };
    let status = status(peer, NOW, &around);
    (status.carrying, status.doing)
}

#[test]
fn a_path_in_use_is_told_of_as_it_is() {
    let good = Health::Good;
    for (health, heard, owed, carrying, doing) in [
        (good, Some(0), None, true, "carrying"),
        (good, Some(1_999), Some(1_999), true, "carrying"),
        (good, Some(2_000), None, true, "idle, last proven 2 s ago"),
        (good, Some(86_400_000), None, true, "idle, last proven 86400 s ago"),
        (good, Some(2_500), Some(1_000), true, "idle, last proven 2 s ago"),
        // The bound of the promise: from here on nobody says that it carries.
        (
            good,
            Some(0),
            Some(2_000),
            false,
            "sending, and nothing has come back for 2 s; asking the gateway at 3 addresses",
        ),
        (
            good,
            Some(9_000),
            Some(9_000),
            false,
            "sending, and nothing has come back for 9 s; asking the gateway at 3 addresses",
        ),
        (good, None, None, true, "up, not proven yet"),
        (SILENT, Some(600), Some(500), false, "waiting for an answer, last heard 0 s ago"),
        (Health::Gone, Some(600), None, false, "waiting for an answer, last heard 0 s ago"),
        (
            SILENT,
            Some(9_000),
            Some(9_000),
            false,
            "sending, and nothing has come back for 9 s; asking the gateway at 3 addresses",
        ),
    ] {
        let peer = peer(PeerState::Up, vec![path(health, heard, owed)]);
        let expected = (carrying, doing.to_owned());
        assert_eq!(told(&peer, None), expected, "{health:?} {heard:?} {owed:?}");
    }
}

#[test]
fn a_path_on_which_only_small_packets_arrive_does_not_carry() {
    let path = PathStatus { vanishes: true, ..path(Health::Good, Some(10), None) };
    let (carrying, doing) = told(&peer(PeerState::Up, vec![path]), None);
    assert!(!carrying);
    assert!(doing.starts_with("large packets were lost and small ones arrived"), "{doing}");
}

#[test]
fn a_link_that_limits_udp_is_named_with_what_is_done() {
    let links = BTreeMap::from([(7, "eth7".to_owned())]);
    let says = |remedy, ago_s: u64| {
        let since = Instant::from_nanos(NOW.as_nanos() - 40_000_000_000);
        let told_at = Instant::from_nanos(NOW.as_nanos() - ago_s * 1_000_000_000);
        let policed = vec![PolicedLink { link: LinkId(7), kbps: 940, since, told_at, remedy }];
        let paths = vec![path(Health::Good, Some(0), None)];
        let peer = PeerStatus { policed, ..peer(PeerState::Up, paths) };
        let around = Surroundings { links: &links, ..around() };
        assert_eq!(limits_udp(&peer, 7), remedy == Remedy::Stream);
        status(&peer, NOW, &around).doing
    };
    for (remedy, part) in [
        (Remedy::Trying, "for 40 s UDP has seemed limited to 0.9 Mbit/s on eth7; trying TCP"),
        (Remedy::Stream, "TCP carries more there, and UDP is tried again"),
        (Remedy::InVain, "TCP carries no more there"),
        (Remedy::None, "no TCP path may be used"),
    ] {
        let doing = says(remedy, 3);
        assert!(doing.starts_with("carrying; ") && doing.contains(part), "{doing}");
        let is_over = matches!(remedy, Remedy::None | Remedy::InVain);
        assert_eq!(says(remedy, 70) == "carrying", is_over, "{remedy:?}");
    }
}

#[test]
fn what_is_not_up_does_not_carry() {
    let fresh = || vec![path(Health::Good, Some(3_000), None)];
    let revoked = PeerState::Down(CloseCode::Revoked);
    let asked = PeerState::Down(CloseCode::Requested);
    for (state, paths, refused, expected) in [
        (PeerState::Unestablished, fresh(), None, "asking the gateway at 3 addresses"),
        (PeerState::Moving, fresh(), None, "moving to another address, last proven 3s ago"),
        (PeerState::Moving, Vec::new(), None, "moving to another address, not proven yet"),
        (
            PeerState::Suspended,
            fresh(),
            None,
            "carries, last heard 3 s ago; asking the gateway at 3",
        ),
        (PeerState::Suspended, Vec::new(), None, "no path carries; asking the gateway at 3"),
        (
            revoked,
            fresh(),
            None,
            "closed: the gateway has revoked this client: ask the gateway's operator for a new \
             invite; traffic that belongs in the tunnel is blocked until `rove down`",
        ),
        (revoked, fresh(), Some("why and how"), "closed: why and how; traffic that belongs in"),
        (asked, fresh(), None, "connect with `rove down` and `rove up`"),
    ] {
        let (carrying, doing) = told(&peer(state, paths), refused);
        assert!(!carrying, "{state:?}");
        assert!(doing.contains(expected), "{state:?}: {doing}");
    }
    let standby = PathStatus { in_use: false, ..path(Health::Good, Some(0), None) };
    assert!(!told(&peer(PeerState::Up, vec![standby]), None).0, "no path is in use");
    assert!(!told(&peer(PeerState::Up, Vec::new()), None).0, "there is no path");
    for health in [SILENT, Health::Gone] {
        let peer = peer(PeerState::Up, vec![path(health, Some(0), None)]);
        assert!(!told(&peer, None).0, "{health:?}");
    }
}

#[test]
fn whoever_asks_is_told_so() {
    let asking = PeerStatus { handshaking: true, ..peer(PeerState::Unestablished, Vec::new()) };
    assert_eq!(told(&asking, None), (false, "asking the gateway at 3 addresses".to_owned()));
    let (_, doing) = told(&asking, Some("it is full"));
    assert_eq!(doing, "asking the gateway again: it is full");
}

#[test]
fn what_is_done_about_it_is_told() {
    let says = |links, addresses, resolving| {
        Search { links, addresses, resolving, ..Search::default() }.says()
    };
    assert_eq!(says(0, 3, None), "this host has no link to a network");
    assert_eq!(says(1, 1, None), "asking the gateway at 1 address");
    assert_eq!(
        says(2, 2, Some("a.example")),
        "asking the gateway at 2 addresses, and resolving a.example"
    );
    assert_eq!(says(1, 0, Some("a.example")), "resolving a.example");
    assert_eq!(says(1, 0, None), "waiting until the gateway's name resolves");
    let want = Some("this network has no IPv4".to_owned());
    let search = Search { links: 1, addresses: 1, want, ..Search::default() };
    assert_eq!(search.says(), "asking the gateway at 1 address; this network has no IPv4");
    let down = vec!["wlan0 has no carrier".to_owned()];
    let around = Surroundings { search: Search { down, ..Search::default() }, ..around() };
    let suspended = peer(PeerState::Suspended, vec![path(Health::Gone, Some(3_000), None)]);
    assert_eq!(
        status(&suspended, NOW, &around).doing,
        "the gateway cannot be reached (last heard 3 s ago): no link can be used: wlan0 has no \
         carrier"
    );
    let lost_at = Some(NOW - Duration::from_secs(2));
    let idle = vec![path(Health::Gone, Some(7_200_000), None)];
    let idle = PeerStatus { lost_at, ..peer(PeerState::Suspended, idle) };
    assert_eq!(
        told(&idle, None).1,
        "no path carries, lost 2 s ago, last heard 7200 s ago; asking the gateway at 3 addresses"
    );
    let announced = ["[2001:db8::1]:1", "192.0.2.7:4500"].map(|at| at.parse().unwrap());
    let search = Search { announced: &announced, ..Search::default() };
    let there = path(Health::Good, Some(0), None);
    assert_eq!(search.target(Some(&there)), Some(announced[1]));
    let search = Search { announced: &announced[..1], ..Search::default() };
    assert_eq!(search.target(Some(&there)), None, "of another family");
}

#[test]
fn a_portal_is_told_of_with_its_cure_while_nothing_carries() {
    let portal = Portal { index: 3, link: "wlan0".into(), page: "http://10.0.0.1/login".into() };
    let told = |state, paths, keeps_browsers_in| {
        let around = Surroundings {
            portals: std::slice::from_ref(&portal),
            keeps_browsers_in,
            search: Search { links: 1, addresses: 1, ..Search::default() },
            ..around()
        };
        let status = status(&peer(state, paths), NOW, &around);
        let (link, page) = ("wlan0".to_owned(), portal.page.clone());
        assert_eq!(status.portals, [api::Portal { link, page }]);
        status.doing
    };
    assert_eq!(
        told(PeerState::Unestablished, Vec::new(), false),
        "captive portal on wlan0: sign in at http://10.0.0.1/login; asking the gateway at 1 address"
    );
    assert_eq!(
        told(PeerState::Suspended, vec![path(SILENT, Some(9_000), None)], true),
        "captive portal on wlan0: sign in at http://10.0.0.1/login after `rove down`, since the \
         tunnel keeps browsers from there; no path carries, last heard 9 s ago; asking the gateway \
         at 1 address"
    );
    let carrying = vec![path(Health::Good, Some(0), None)];
    assert_eq!(told(PeerState::Up, carrying, true), "carrying", "by another link");
}
