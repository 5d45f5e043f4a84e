//! Orders of links, and what moves one down and up again.

use super::*;

const NEIGHBOUR: [u8; 4] = [192, 0, 2, 200];
const CABLE: u32 = 2;
const WIFI: u32 = 3;
const MODEM: u32 = 4;

fn link(index: u32, metric: Option<u32>) -> Link {
    let (name, kind) = match index {
        CABLE => ("eth0", LinkKind::Ethernet),
        WIFI => ("wlan0", LinkKind::Wireless),
        MODEM => ("wwan0", LinkKind::Cellular),
        _ => ("other", LinkKind::Other),
    };
    Link {
        index,
        name: name.to_owned(),
        kind,
        up: true,
        carrier: true,
        carrier_ups: 0,
        dormant: false,
        mtu: 1_500,
        addresses: vec!["192.0.2.1/24".parse().unwrap()],
        deprecated: false,
        default_v4: metric,
        default_v6: None,
        routes: Vec::new(),
        attached: Vec::new(),
    }
}

/// Another link of that name.
pub(crate) fn named(index: u32, name: &str) -> Link {
    Link { name: name.to_owned(), ..link(index, None) }
}

/// A ranking in the course of time.
struct Course {
    ranking: Ranking,
    now: Instant,
}

impl Course {
    /// The gateway is a neighbour, so links without a default route reach it too.
    fn new(links: &[Link]) -> Self {
        let mut ranking = Ranking::default();
        ranking.set_gateway([NEIGHBOUR.into()].into_iter());
        let mut course = Self { ranking, now: Instant::now() };
        course.links(links);
        course
    }

    fn links(&mut self, links: &[Link]) {
        self.ranking.links(links, "rove0", self.now);
    }

    fn after(&mut self, seconds: f32) -> &mut Self {
        self.now += Duration::from_secs_f32(seconds);
        self
    }

    /// A second passes, and the radio of the Wi-Fi tells.
    fn hears(&mut self, dbm: i8) -> &mut Self {
        self.after(1.0);
        self.ranking.signal(WIFI, Some(dbm), self.now);
        self
    }

    fn order(&self) -> Vec<u32> {
        self.ranking.order(self.now).iter().map(|ranked| ranked.link.index).collect()
    }

    fn standing(&self, index: u32) -> Standing {
        let order = self.ranking.order(self.now);
        order.iter().find(|ranked| ranked.link.index == index).unwrap().standing
    }
}

#[test]
fn cable_before_wifi_before_modem_then_as_the_kernel_prefers() {
    let bridge = Link { index: 9, name: "docker0".into(), ..link(CABLE, None) };
    let second = Link { index: 8, name: "eth1".into(), ..link(CABLE, Some(50)) };
    let mut tunnel = link(CABLE, Some(1));
    (tunnel.index, tunnel.name) = (7, "rove0".into());
    let links = [
        link(MODEM, Some(0)),
        bridge,
        link(WIFI, Some(20)),
        link(CABLE, Some(100)),
        second,
        tunnel,
    ];
    assert_eq!(Course::new(&links).order(), [8, CABLE, WIFI, MODEM, 9]);
    let equal =
        [link(CABLE, Some(7)), Link { index: 8, name: "eth1".into(), ..link(CABLE, Some(7)) }];
    assert_eq!(Course::new(&equal).order(), [CABLE, 8], "stable");
}

#[test]
fn a_signal_that_falls_moves_wifi_behind_before_it_dies() {
    let mut course = Course::new(&[link(WIFI, Some(600)), link(MODEM, Some(700))]);
    assert_eq!(course.ranking.radios(course.now), [WIFI]);
    for dbm in [-60, -70, -79] {
        assert_eq!(course.hears(dbm).order(), [WIFI, MODEM], "{dbm}");
    }
    assert_eq!(course.hears(-80).order(), [MODEM, WIFI]);
    assert_eq!(course.standing(WIFI), Standing::Weak);
    // Between the two it stays what it is, and once below begins anew.
    for dbm in [-76, -76, -76, -76, -76, -76, -70, -70, -70, -76, -70, -70, -70, -70, -70] {
        assert_eq!(course.hears(dbm).order(), [MODEM, WIFI], "{dbm}");
    }
    assert_eq!(course.hears(-70).order(), [WIFI, MODEM]);
    // Without an answer nothing changes.
    course.ranking.signal(WIFI, None, course.now);
    assert_eq!(course.order(), [WIFI, MODEM]);
}

#[test]
fn what_is_going_carries_nothing_beside_what_stays() {
    let going = |links: &[&[Link]]| {
        let mut course = Course::new(links[0]);
        links[1..].iter().for_each(|links| course.links(links));
        let order = course.ranking.order(course.now);
        let going = order.iter().filter(|ranked| ranked.stands_by());
        going.map(|ranked| ranked.link.index).collect::<Vec<_>>()
    };
    let (cable, modem) = (link(CABLE, Some(100)), link(MODEM, Some(700)));
    let deprecated = Link { deprecated: true, ..cable.clone() };
    assert_eq!(going(&[&[cable.clone(), modem.clone()]]), [0; 0]);
    assert_eq!(going(&[&[deprecated.clone(), modem.clone()]]), [CABLE]);
    assert_eq!(going(&[&[cable.clone(), modem.clone()], &[link(CABLE, None), modem]]), [CABLE]);
    // Where nothing stays, all carry until they go.
    let all = [deprecated, Link { deprecated: true, ..link(MODEM, Some(700)) }];
    assert_eq!(going(&[&all]), [0; 0]);
    // Who never had a way out may lead to a gateway nearby, and stay.
    assert_eq!(going(&[&[cable, link(WIFI, None)]]), [0; 0]);
}

#[test]
fn a_radio_is_asked_only_where_it_matters() {
    let radios = |links: &[Link]| {
        let course = Course::new(links);
        course.ranking.radios(course.now)
    };
    assert_eq!(radios(&[link(WIFI, Some(600))]), [0; 0], "there is nothing else");
    assert_eq!(radios(&[link(WIFI, Some(600)), link(MODEM, None)]), [0; 0], "which leads nowhere");
    assert_eq!(radios(&[link(WIFI, Some(600)), link(CABLE, Some(100))]), [0; 0], "a cable carries");
    assert_eq!(radios(&[link(WIFI, Some(600)), link(CABLE, None)]), [0; 0], "one way out");
    let old = Link { deprecated: true, ..link(CABLE, Some(100)) };
    assert_eq!(radios(&[link(WIFI, Some(600)), old]), [WIFI], "the cable will go");
    // What is not asked any more is not told any more.
    let mut course = Course::new(&[link(WIFI, Some(600)), link(MODEM, Some(700))]);
    course.hears(-81);
    assert_eq!(course.ranking.order(course.now)[1].signal, Some(-81));
    course.links(&[link(WIFI, Some(600)), link(MODEM, Some(700)), link(CABLE, Some(100))]);
    assert_eq!(course.order(), [CABLE, MODEM, WIFI]);
    assert_eq!(course.ranking.order(course.now)[2].signal, None);
}

#[test]
fn a_departure_that_is_announced_moves_a_link_behind_at_once() {
    let both = [link(CABLE, Some(100)), link(WIFI, Some(600))];
    let leaving: [(&str, Link, Standing); 4] = [
        ("deprecated", Link { deprecated: true, ..both[0].clone() }, Standing::Leaving),
        ("dormant", Link { dormant: true, ..both[0].clone() }, Standing::Leaving),
        ("a worse metric", link(CABLE, Some(20_100)), Standing::Leaving),
        ("no route", link(CABLE, None), Standing::NoRoute),
    ];
    for (what, cable, standing) in leaving {
        let mut course = Course::new(&both);
        course.after(100.0);
        course.links(&[cable.clone(), both[1].clone()]);
        assert_eq!(course.order(), [WIFI, CABLE], "{what}");
        assert_eq!(course.standing(CABLE), standing, "{what}");
        course.after(100.0);
        course.links(&both);
        assert_eq!(course.order(), [WIFI, CABLE], "{what}: just back");
        assert_eq!(course.ranking.due(course.now), Some(course.now + HOLD));
        assert_eq!(course.after(2.0).order(), [CABLE, WIFI], "{what}: sound");
        // By itself it is what there is, whatever is known of it.
        course.links(std::slice::from_ref(&cable));
        assert_eq!(course.order(), [CABLE], "{what}");
    }
}

#[test]
fn a_metric_counts_against_another_links_alone() {
    let mut course = Course::new(&[link(CABLE, Some(100)), link(WIFI, Some(600))]);
    course.links(&[link(CABLE, Some(200)), link(WIFI, Some(600))]);
    assert_eq!(course.standing(CABLE), Standing::Sound, "the kernel still prefers it");
    course.links(&[link(CABLE, Some(700))]);
    assert_eq!(course.standing(CABLE), Standing::Sound, "there is no other");
    course.links(&[link(CABLE, Some(700)), link(WIFI, Some(600))]);
    assert_eq!(course.standing(CABLE), Standing::Leaving);
    let own = course.now + STEADY;
    course.after(3.0);
    assert_eq!(course.ranking.due(course.now), Some(own));
    assert_eq!(course.after(56.0).standing(CABLE), Standing::Leaving);
    assert_eq!(course.after(1.0).standing(CABLE), Standing::Sound, "it is meant so");
    course.links(&[link(CABLE, Some(800)), link(WIFI, Some(600))]);
    assert_eq!(course.after(5.0).standing(CABLE), Standing::Leaving, "and is worse again");
    let mut course = Course::new(&[link(CABLE, Some(700)), link(WIFI, Some(600))]);
    assert_eq!(course.order(), [CABLE, WIFI], "it always was so");
    course.links(&[link(CABLE, Some(700)), link(WIFI, Some(600))]);
    assert_eq!(course.order(), [CABLE, WIFI]);
}

#[test]
fn a_link_that_is_not_ready_is_left_out_and_one_that_was_stays() {
    let dormant = Link { dormant: true, ..link(WIFI, Some(600)) };
    let mut course = Course::new(&[dormant.clone(), link(MODEM, Some(700))]);
    assert_eq!(course.order(), [MODEM], "it never had its keys");
    course.links(&[link(WIFI, Some(600)), link(MODEM, Some(700))]);
    assert_eq!(course.order(), [WIFI, MODEM], "and nothing holds it back the first time");
    course.links(&[dormant, link(MODEM, Some(700))]);
    assert_eq!(course.order(), [MODEM, WIFI]);
    let unplugged = Link { carrier: false, ..link(WIFI, Some(600)) };
    course.links(&[unplugged, link(MODEM, Some(700))]);
    assert_eq!(course.order(), [MODEM]);
}

#[test]
fn who_flaps_is_held_back_ever_longer_but_not_for_ever() {
    let both = [link(CABLE, Some(100)), link(WIFI, Some(600))];
    let mut course = Course::new(&both);
    assert_eq!(course.order(), [CABLE, WIFI], "what was there at the start is not back");
    for held in [2.0, 4.0, 8.0, 16.0, 32.0, 32.0] {
        course.links(&both[1..]);
        course.after(0.5).links(&both);
        assert_eq!(course.after(held - 0.1).order(), [WIFI, CABLE], "{held}");
        assert_eq!(course.after(0.2).order(), [CABLE, WIFI], "{held}");
    }
    assert_eq!(course.ranking.due(course.now), None);
    // Steady for a while, it is trusted as before.
    course.after(60.0).links(&both[1..]);
    course.links(&both);
    assert_eq!(course.after(2.0).order(), [CABLE, WIFI]);
    // A card that is plugged again has another index.
    course.links(&both[1..]);
    let again = Link { index: 17, ..both[0].clone() };
    course.links(&[again.clone(), both[1].clone()]);
    assert_eq!(course.order(), [WIFI, 17]);
    // And who was away for long comes as if for the first time.
    course.links(&both[1..]);
    course.after(61.0).links(&both[1..]);
    course.links(&[again, both[1].clone()]);
    assert_eq!(course.order(), [17, WIFI]);
}

#[test]
fn a_host_of_many_links_does_not_fill_memory() {
    let mut course = Course::new(&[]);
    for index in 0..1_000 {
        let mut new = link(CABLE, Some(1));
        (new.index, new.name) = (index, format!("veth{index}"));
        course.links(&[new]);
        assert_eq!(course.order(), [index]);
    }
    assert!(course.ranking.pasts.len() <= LINKS_MAX);
    course.after(61.0).links(&[]);
    assert_eq!(course.ranking.pasts.len(), 0);
}

#[test]
fn what_the_user_says_comes_before_kinds_and_after_departures() {
    let links = [link(CABLE, Some(1)), link(WIFI, Some(2)), link(MODEM, Some(3))];
    let mut course = Course::new(&links);
    let say = |course: &mut Course, said: &[(&str, u16, LinkUse)]| {
        let terms = said.iter().map(|&(name, cost, usage)| {
            (name.to_owned(), (LinkTerms { cost, ..LinkTerms::default() }, usage))
        });
        course.ranking.set_terms(terms.collect());
    };
    let (always, backup) = (LinkUse::Always, LinkUse::Backup);
    say(&mut course, &[("eth0", 2, always), ("wlan0", 1, always)]);
    assert_eq!(course.order(), [MODEM, WIFI, CABLE], "the cheaper first");
    say(&mut course, &[("eth0", 0, backup), ("wlan0", 9, always), ("wwan0", 0, backup)]);
    assert_eq!(course.order(), [WIFI, CABLE, MODEM], "what stands by comes last");
    assert_eq!(course.hears(-85).order(), [WIFI, CABLE, MODEM], "a weak one still carries");
    course.links(&[link(CABLE, Some(1)), link(WIFI, Some(20_002)), link(MODEM, Some(3))]);
    assert_eq!(course.order(), [CABLE, MODEM, WIFI], "and is left before it goes");
}

#[test]
fn a_link_without_a_way_to_the_gateway_is_none() {
    let bridge = |addresses: &[&str], metric| {
        let addresses = addresses.iter().map(|net| net.parse().unwrap()).collect();
        Link { index: 9, name: "br0".into(), addresses, ..link(CABLE, metric) }
    };
    let listed = |links: &[Link], gateway: &[&str]| -> Vec<(u32, usize)> {
        let mut ranking = Ranking::default();
        ranking.set_gateway(gateway.iter().map(|ip| ip.parse().unwrap()));
        ranking.links(links, "rove0", Instant::now());
        let order = ranking.order(Instant::now());
        order.iter().map(|it| (it.link.index, it.link.addresses.len())).collect()
    };
    let docker = bridge(&["172.18.0.1/16"], None);
    let cable = link(CABLE, Some(100));
    let both = [cable, docker.clone()];
    assert_eq!(listed(&both, &[]), [(CABLE, 1)]);
    assert_eq!(listed(&both, &["203.0.113.1", "2001:db8::1"]), [(CABLE, 1)]);
    assert_eq!(listed(&both, &["203.0.113.1", "172.18.0.7"]), [(CABLE, 1), (9, 1)], "on it");
    let static_route = |net: &str| Link { routes: vec![net.parse().unwrap()], ..docker.clone() };
    assert_eq!(listed(&[static_route("203.0.113.0/28")], &["203.0.113.1"]), [(9, 1)]);
    assert_eq!(listed(&[static_route("203.0.113.0/28")], &["203.0.113.99"]), []);
    assert_eq!(listed(&[static_route("0.0.0.0/0")], &[]), [(9, 1)], "by another table");
    // The uplink of a hypervisor is a bridge.
    assert_eq!(listed(&[bridge(&["198.51.100.4/24"], Some(0))], &[]), [(9, 1)]);
    // A family without a route out is not tried: here a private IPv6 network beside IPv4.
    let private_v6 = bridge(&["198.51.100.4/24", "fd00::4/64"], Some(0));
    assert_eq!(listed(std::slice::from_ref(&private_v6), &["2001:db8::1"]), [(9, 1)]);
    assert_eq!(listed(&[private_v6], &["fd00::1"]), [(9, 2)]);
}

#[test]
fn a_new_address_counts_from_when_its_route_is_there() {
    let at = |address: &str, default_v6| Link {
        addresses: vec![address.parse().unwrap()],
        default_v6,
        ..link(WIFI, None)
    };
    let mut course = Course::new(&[link(WIFI, Some(600))]);
    course.ranking.set_gateway(["2001:db8:4::2".parse().unwrap()].into_iter());
    course.links(&[at("192.0.2.1/24", None)]);
    assert_eq!(course.order(), [WIFI], "the old address carries until it goes");
    course.links(&[at("2001:db8:2::3/64", None)]);
    assert_eq!(course.order(), [0; 0], "from the new one nothing would leave");
    course.links(&[at("2001:db8:2::3/64", Some(1024))]);
    assert_eq!(course.order(), [WIFI]);
}
