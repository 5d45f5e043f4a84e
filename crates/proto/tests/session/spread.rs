//! Which paths a client keeps, and which of them carry: one alone, one per link, several from one
//! address to another, a full mesh; and links that are for when no other carries.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use crate::pair::{Datagram, ELSEWHERE, GATEWAY, Pair, udp};
use rove_proto::id::LinkId;
use rove_proto::multipath::{Manager, Mode, Spread};
use rove_proto::node::{Command, Link, Node, PathStatus};
use rove_proto::path::Health;
use rove_proto::time::Duration;

const CABLE: [u8; 4] = [192, 0, 2, 130];
const WIFI: [u8; 4] = [203, 0, 113, 5];
const MODEM: [u8; 4] = [198, 51, 100, 200];
const PHONE: [u8; 4] = [100, 64, 0, 9];
/// By their numbers; a pair begins with the first.
const ALL: [[u8; 4]; 4] = [WIFI, CABLE, MODEM, PHONE];

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

const ONE: Spread = Spread { manager: Manager::OnePerLink, subflows: 1 };
const MESH: Spread = Spread { manager: Manager::FullMesh, subflows: 1 };

/// The client's links, best first, and whether each is for when no other carries.
fn links(links: &[([u8; 4], bool)]) -> Command {
    let number =
        |address| u32::try_from(ALL.iter().position(|at| *at == address).unwrap()).unwrap();
    let link = |&(address, stands_by): &([u8; 4], bool)| Link {
        id: LinkId(number(address) + 1),
        addresses: vec![address.into()],
        stands_by,
    };
    Command::SetLinks(links.iter().map(link).collect())
}

/// A session by these links, with a gateway that has two addresses.
fn up(addresses: &[[u8; 4]], mode: Mode, spread: Spread) -> Pair {
    let mut pair = Pair::up();
    pair.move_gateway(&[GATEWAY, ELSEWHERE]);
    pair.tell_client(Command::SetRemotes { peer: pair.gateway_key, remotes: at_both() });
    pair.tell_client(Command::SetMode(mode));
    pair.tell_client(Command::SetSpread(spread));
    pair.tell_client(links(&addresses.iter().map(|at| (*at, false)).collect::<Vec<_>>()));
    pair.run(Duration::from_secs(8));
    pair
}

fn at_both() -> Vec<SocketAddr> {
    vec![GATEWAY.parse().unwrap(), ELSEWHERE.parse().unwrap()]
}

fn paths(node: &Node, pair: &Pair) -> Vec<PathStatus> {
    let peer = if std::ptr::eq(node, &pair.client) { pair.gateway_key } else { pair.client_key };
    node.status(peer).unwrap().paths
}

/// Which ways carry together at both ends: as often as there are such paths.
fn shared(pair: &Pair) -> Vec<(IpAddr, SocketAddr)> {
    let way = |path: &PathStatus| (path.route.local.unwrap(), path.route.remote);
    let shared = |node| paths(node, pair).into_iter().filter(|path| path.is_shared);
    let mut ways: Vec<_> = shared(&pair.client).map(|path| way(&path)).collect();
    ways.sort_unstable();
    let at_gateway = shared(&pair.gateway);
    let back = |path: PathStatus| {
        let port = pair.gateway_at.iter().find(|at| Some(at.ip()) == path.route.local).unwrap();
        (path.route.remote.ip(), *port)
    };
    // It may know of more: of what the client has left without a word it hears nothing.
    let mut back: Vec<_> = at_gateway.map(back).collect();
    for way in &ways {
        let place = back.iter().position(|back| back == way);
        back.swap_remove(place.unwrap_or_else(|| panic!("{way:?} of {ways:?} has no way back")));
    }
    ways
}

/// One packet both ways each 500 us, 2.4 MB/s; what of it arrived in sequence is checked.
fn flow(pair: &mut Pair, numbers: std::ops::Range<u32>) {
    pair.client_inner.clear();
    pair.gateway_inner.clear();
    let packet = |number: u32, back| {
        let mut payload = vec![0; 1_200];
        payload[..4].copy_from_slice(&number.to_be_bytes());
        udp((40_000, 40_001), &payload, back)
    };
    for number in numbers.clone() {
        pair.send(&packet(number, false));
        pair.send_back(&packet(number, true));
        pair.run(Duration::from_micros(500));
    }
    pair.run(ms(500));
    for inner in [&pair.gateway_inner, &pair.client_inner] {
        let number = |packet: &[u8]| u32::from_be_bytes(packet[28..32].try_into().unwrap());
        let arrived: Vec<_> = inner.iter().map(|(_, packet)| number(packet)).collect();
        assert_eq!(arrived, Vec::from_iter(numbers.clone()));
    }
}

/// Counts datagrams that are long by the client's address and port, and the gateway's address.
fn counted(pair: &mut Pair) -> Rc<RefCell<BTreeMap<(SocketAddr, SocketAddr), u32>>> {
    let counts = Rc::new(RefCell::new(BTreeMap::new()));
    let seen = Rc::clone(&counts);
    let gateway = pair.gateway_at.clone();
    pair.filter = Box::new(move |datagram: &Datagram| {
        let Datagram { from, to, .. } = *datagram;
        let way = if gateway.contains(&to) { (from, to) } else { (to, from) };
        if datagram.bytes.len() > 1_000 {
            *seen.borrow_mut().entry(way).or_default() += 1;
        }
        true
    });
    counts
}

fn kill(pair: &mut Pair, address: [u8; 4]) {
    pair.cut(address);
    pair.filter = Box::new(move |datagram| {
        let dead = IpAddr::from(address);
        datagram.from.ip() != dead && datagram.to.ip() != dead
    });
}

#[test]
fn one_alone_has_no_other_beside_it() {
    let mut pair = up(&[CABLE, WIFI, MODEM], Mode::Single, ONE);
    flow(&mut pair, 0..2_000);
    pair.run(Duration::from_secs(6)); // that of the beginning is not wanted any more
    let there = paths(&pair.client, &pair);
    assert_eq!(there.len(), 1, "{there:?}");
    assert_eq!(there[0].route.local, Some(CABLE.into()));
    kill(&mut pair, CABLE);
    let (mut sent, died) = (0, pair.now);
    pair.client_inner.clear();
    while pair.client_inner.is_empty() && sent < 5_000 {
        pair.send(&udp((1, 2), &[0; 1_200], false));
        pair.send_back(&udp((1, 2), &[0; 1_200], true));
        pair.run(ms(1));
        sent += 1;
    }
    let still = pair.now.saturating_since(died);
    assert!(still < ms(700), "still for {still:?}");
    pair.filter = Box::new(|_| true);
    for _ in 0..40 {
        pair.send(&udp((1, 2), &[0; 1_200], false));
        pair.run(ms(500));
    }
    let there = paths(&pair.client, &pair);
    assert_eq!(there.len(), 1, "{there:?}");
    assert_eq!(there[0].route.local, Some(CABLE.into()), "the better one is taken again");
}

#[test]
fn one_alone_moves_to_a_better_link_without_loss() {
    let mut pair = up(&[WIFI], Mode::Single, ONE);
    pair.tell_client(links(&[(CABLE, false), (WIFI, false)]));
    flow(&mut pair, 0..2_000);
    assert_eq!(paths(&pair.client, &pair)[0].route.local, Some(CABLE.into()));
    pair.run(Duration::from_secs(6));
    assert_eq!(paths(&pair.client, &pair).len(), 1);
}

#[test]
fn several_subflows_of_one_link_carry_together_each_by_a_port_of_its_own() {
    let mut pair = up(&[CABLE], Mode::Full, Spread { subflows: 3, ..ONE });
    let way = (IpAddr::from(CABLE), GATEWAY.parse().unwrap());
    assert_eq!(shared(&pair), vec![way; 3]);
    let counts = counted(&mut pair);
    flow(&mut pair, 0..4_000);
    let ports: Vec<_> = counts.borrow().keys().map(|(client, _)| client.port()).collect();
    assert_eq!(ports.len(), 3, "{:?}", counts.borrow());
    pair.tell_client(Command::SetSpread(ONE));
    flow(&mut pair, 0..1_000);
    assert_eq!(shared(&pair), vec![way]);
    pair.run(Duration::from_secs(6));
    assert_eq!(paths(&pair.client, &pair).len(), 1, "what is not wanted is let go");
    pair.tell_client(Command::SetSpread(Spread { subflows: 2, ..ONE }));
    flow(&mut pair, 0..1_000);
    assert_eq!(shared(&pair), vec![way; 2]);
}

#[test]
fn a_subflow_more_than_there_is_a_link_for_follows_the_best_path_of_each() {
    let pair = up(&[CABLE, WIFI], Mode::Full, Spread { subflows: 2, ..ONE });
    let mut links: Vec<_> = shared(&pair).into_iter().map(|(link, _)| link).collect();
    links.sort_unstable();
    assert_eq!(links, [CABLE, CABLE, WIFI, WIFI].map(IpAddr::from));
}

#[test]
fn a_full_mesh_has_each_link_to_each_address() {
    let mut pair = up(&ALL, Mode::Full, MESH);
    let mut all: Vec<_> = ALL
        .iter()
        .flat_map(|link| at_both().into_iter().map(|at| (IpAddr::from(*link), at)))
        .collect();
    all.sort_unstable();
    assert_eq!(shared(&pair), all);
    flow(&mut pair, 0..3_000);
    kill(&mut pair, WIFI);
    flow(&mut pair, 0..3_000);
    all.retain(|(link, _)| *link != IpAddr::from(WIFI));
    assert_eq!(shared(&pair), all);
    pair.filter = Box::new(|_| true);
    pair.tell_client(Command::SetSpread(ONE));
    flow(&mut pair, 0..1_000);
    assert_eq!(shared(&pair).len(), 4);
}

#[test]
fn one_of_the_addresses_may_be_dead() {
    let mut pair = up(&[CABLE, WIFI], Mode::Full, ONE);
    let dead: SocketAddr = GATEWAY.parse().unwrap();
    pair.filter = Box::new(move |datagram| datagram.from != dead && datagram.to != dead);
    pair.tell_client(Command::SetSpread(MESH));
    pair.run(Duration::from_secs(3));
    flow(&mut pair, 0..2_000);
    let elsewhere: SocketAddr = ELSEWHERE.parse().unwrap();
    assert_eq!(shared(&pair), [(CABLE.into(), elsewhere), (WIFI.into(), elsewhere)]);
    pair.filter = Box::new(|_| true);
    for _ in 0..20 {
        flow(&mut pair, 0..1_000); // what did not answer is asked ever more rarely
    }
    assert_eq!(shared(&pair).len(), 4);
}

#[test]
fn new_keys_are_for_as_many_paths_as_there_are() {
    let mut pair = up(&[CABLE, WIFI, MODEM], Mode::Full, Spread { subflows: 2, ..MESH });
    assert_eq!(shared(&pair).len(), 12);
    for _ in 0..12 {
        pair.run(Duration::from_secs(10));
        flow(&mut pair, 0..200);
    }
    assert!(pair.epochs() > 1);
    pair.run(Duration::from_secs(2));
    flow(&mut pair, 0..3_000);
    assert_eq!(shared(&pair).len(), 12);
    for _ in 0..4 {
        pair.run(Duration::from_secs(4));
        flow(&mut pair, 0..200); // who speaks, asks by the paths that have nothing to carry
    }
    let now = pair.now;
    for path in paths(&pair.client, &pair) {
        let heard = path.heard_at.map(|at| now.saturating_since(at));
        assert!(path.health == Health::Good && heard < Some(ms(16_000)), "{path:?}");
    }
}

#[test]
fn a_link_that_stands_by_carries_nothing_while_another_does() {
    let mut pair = up(&[CABLE, WIFI, MODEM], Mode::Full, ONE);
    pair.tell_client(links(&[(CABLE, false), (WIFI, false), (MODEM, true)]));
    flow(&mut pair, 0..500);
    let counts = counted(&mut pair);
    flow(&mut pair, 0..3_000);
    assert!(counts.borrow().keys().all(|(client, _)| client.ip() != IpAddr::from(MODEM)));
    assert_eq!(shared(&pair).len(), 2);
    let ready = paths(&pair.client, &pair).into_iter().find(|p| p.link == Some(LinkId(3)));
    assert!(ready.is_some_and(|path| path.health == Health::Good && !path.is_shared));
    // Those that carry go: it takes over at once, and gives back when one of them is there again.
    pair.tell_client(links(&[(MODEM, true)]));
    pair.cut(CABLE);
    pair.cut(WIFI);
    flow(&mut pair, 0..1_000);
    assert_eq!(shared(&pair), [(MODEM.into(), GATEWAY.parse().unwrap())]);
    pair.tell_client(links(&[(WIFI, false), (MODEM, true)]));
    flow(&mut pair, 0..2_000);
    assert_eq!(shared(&pair), [(WIFI.into(), GATEWAY.parse().unwrap())]);
    pair.tell_client(links(&[(WIFI, false), (MODEM, false)]));
    flow(&mut pair, 0..2_000);
    assert_eq!(shared(&pair).len(), 2);
}
