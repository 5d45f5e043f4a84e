//! What people are told is what is known.

use rove_proto::bond::scheduler::Scheduler;
use rove_proto::id::{PeerKey, SocketId};
use rove_proto::outbox::Route;
use rove_proto::path::Trust;
use rove_proto::path::delay::Delay;
use rove_proto::path::feedback::Reports;
use rove_proto::path::loss::Loss;

use super::*;

pub(in crate::daemon) const NOW: Instant = Instant::from_nanos(1_000_000_000_000_000);
const SILENT: Health = Health::Silent { since: NOW };

fn ago(ms: u64) -> Instant {
    NOW - Duration::from_millis(ms)
}

pub(in crate::daemon) fn path(health: Health, heard: Option<u64>, owed: Option<u64>) -> PathStatus {
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
        trust: Trust::Proven,
        health,
        rtt: None,
        tx_rate: Rate::default(),
        rx_rate: Rate::default(),
        delay: Delay::default(),
        loss: Loss::default(),
        mtu: 1_232,
        vanishes: false,
        natted: false,
        tx_bytes: 1,
        split: 0,
        retransmitted: 0,
        copied: 0,
        reports: Reports::default(),
        rx_bytes: 2,
        heard_at: heard.map(ago),
        unanswered_since: owed.map(ago),
    }
}

pub(in crate::daemon) fn peer(state: PeerState, paths: Vec<PathStatus>) -> PeerStatus {
    PeerStatus {
        scheduler: Scheduler::default(),
        peer: PeerKey([1; 32]),
        state,
        established: None,
        epoch_since: None,
        handshaking: false,
        refused: None,
        lease: None,
        shared_key: None,
        paths,
        profile: None,
        waiting: 0,
        queued_bytes: 0,
        early_bytes: 0,
    }
}

fn told(peer: &PeerStatus, refused: Option<&str>) -> (bool, String) {
    let around = Surroundings {
        kill_switch: false,
        paths: PathsConfig::default(),
        dns: &Dns::default(),
        links: &BTreeMap::new(),
        ranked: &[],
        unused: &[],
        used: &BTreeMap::new(),
        portals: &[],
        keeps_browsers_in: false,
        streams: &BTreeMap::new(),
        refused: refused.map(str::to_owned),
        search: Search { links: 1, addresses: 3, ..Search::default() },
    };
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
    assert!(doing.starts_with("large packets are lost on the way"), "{doing}");
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
        (revoked, fresh(), None, "ask the gateway's operator for a new invite"),
        (revoked, fresh(), Some("why and how"), "closed: why and how"),
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
    assert_eq!(says(0, 3, None), "waiting for a link to ask the gateway by");
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
            kill_switch: false,
            paths: PathsConfig::default(),
            dns: &Dns::default(),
            links: &BTreeMap::new(),
            ranked: &[],
            unused: &[],
            used: &BTreeMap::new(),
            portals: std::slice::from_ref(&portal),
            keeps_browsers_in,
            streams: &BTreeMap::new(),
            refused: None,
            search: Search { links: 1, addresses: 1, ..Search::default() },
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

#[test]
fn a_share_is_a_part_of_what_gets_through() {
    let rate = |bytes_per_second: u64| {
        let mut rate = Rate::default();
        for ms in 0..=1_000u32 {
            rate.sample(NOW, ms * 1_000, u64::from(ms) * bytes_per_second / 1_000);
        }
        rate
    };
    let shared = |up, down| PathStatus {
        is_shared: true,
        tx_rate: rate(up),
        rx_rate: rate(down),
        ..path(Health::Good, Some(0), None)
    };
    let beside = PathStatus { in_use: false, ..shared(100_000, 200_000) };
    let standby = PathStatus { is_shared: false, ..beside };
    let [first, second, third] =
        shares(&[shared(400_000, 300_000), beside, standby.clone()], NOW)[..]
    else {
        panic!()
    };
    let near = |share: Option<f64>, expected: f64| (share.unwrap() - expected).abs() < 0.01;
    assert!(near(first, 0.7) && near(second, 0.3), "{first:?} {second:?}");
    assert_eq!(third, Some(0.0));
    assert_eq!(shares(&[path(Health::Good, None, None), standby], NOW), [Some(1.0), Some(0.0)]);
    let silent = Health::Silent { since: NOW };
    assert_eq!(shares(&[path(silent, None, None)], NOW), [Some(1.0)], "there is no other");
    let later = NOW + Duration::from_secs(9);
    let both = [shared(400_000, 300_000), shared(100_000, 200_000)];
    assert_eq!(shares(&both, later), [None, None], "nothing goes by either");
}

#[test]
fn what_was_not_measured_is_not_told() {
    let told = |loss: Loss, now| {
        let shared = PathStatus { is_shared: true, loss, ..path(Health::Good, None, None) };
        let told = told_paths(
            &peer(PeerState::Up, vec![shared.clone(), shared]),
            now,
            &BTreeMap::new(),
            &[],
        );
        let Path { loss, share, rtt_us, rate_mbps, queue_ms, .. } = told[0];
        (loss, share, rtt_us, rate_mbps, queue_ms)
    };
    let mut loss = Loss::default();
    assert_eq!(told(loss, NOW), (None, None, None, None, None));
    loss.sample(NOW, 1_000, 900);
    assert!((told(loss, NOW).0.unwrap() - 0.05).abs() < 1e-9);
    assert_eq!(told(loss, NOW + Duration::from_secs(2)).0, None, "any more");
}
