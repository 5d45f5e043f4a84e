//! Where UDP is blocked: streams are tried, and left as soon as UDP works again.

use crate::pair::{self, DELAY, Datagram, ELSEWHERE, GATEWAY, Pair, STREAM_PORTS, packet};
use rove_proto::id::{LinkId, SocketId, Transport};
use rove_proto::multipath::Mode;
use rove_proto::multipath::scheduler::Scheduler;
use rove_proto::node::{Command, Event, Link, PathStatus, PeerState, StreamTo};
use rove_proto::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// A client that knows of a stream, and a gateway that knows the client. Nobody has spoken yet.
fn strangers() -> Pair {
    let mut pair = Pair::new(None);
    pair.admit_client();
    let streams = vec![StreamTo { remote: GATEWAY.parse().unwrap(), method: 3 }];
    pair.tell_client(Command::SetStreams { peer: pair.gateway_key, streams, alone: false });
    pair
}

fn up() -> Pair {
    let mut pair = strangers();
    pair.tell_client(Command::Connect(pair.gateway_key));
    pair.run(SECOND);
    assert_eq!(in_use(&pair), Transport::Udp);
    pair
}

fn path(pair: &Pair) -> PathStatus {
    pair.client.status(pair.gateway_key).unwrap().paths[0].clone()
}

fn in_use(pair: &Pair) -> Transport {
    path(pair).route.socket.transport()
}

/// The streams that were opened and those that were closed.
fn streams(pair: &Pair) -> (usize, usize) {
    let (mut opened, mut closed) = (0, 0);
    for event in &pair.client_events {
        if let Event::OpenSocket { stream: Some(_), .. } = event {
            opened += 1;
        }
        if let Event::CloseSocket { socket } = event {
            closed += usize::from(socket.transport() == Transport::Stream);
        }
    }
    (opened, closed)
}

fn block_udp(pair: &mut Pair) {
    pair.filter = Box::new(|datagram| !datagram.is_udp());
}

#[test]
fn no_stream_is_opened_while_udp_answers() {
    let mut pair = up();
    pair.run(SECOND * 600);
    for _ in 0..100 {
        pair.send(&packet(200, false));
        pair.run(SECOND * 10);
    }
    assert_eq!(streams(&pair), (0, 0));
}

#[test]
fn a_stream_carries_where_udp_is_blocked_and_udp_as_soon_as_it_works() {
    let mut pair = strangers();
    block_udp(&mut pair);
    pair.send(&packet(100, false));
    pair.tell_client(Command::Connect(pair.gateway_key));
    pair.run(Duration::from_millis(250) + DELAY * 4);
    assert_eq!((pair.state(), in_use(&pair)), (PeerState::Up, Transport::Stream));
    assert_eq!(pair.gateway_inner.len(), 1, "what waited has arrived");
    assert_eq!(path(&pair).mtu, 1_472, "nothing to search for");
    for len in [20, 1_420, 1_500] {
        pair.send(&packet(len, false));
        pair.send_back(&packet(len, true));
        pair.run(DELAY * 2);
        assert_eq!(pair.gateway_inner.last().unwrap().1, packet(len, false));
        assert_eq!(pair.client_inner.last().unwrap().1, packet(len, true));
    }
    // However long it takes.
    for hours in [0, 5] {
        block_udp(&mut pair);
        pair.run(SECOND * 3_600 * hours);
        pair.filter = Box::new(|_| true);
        let within = if hours == 0 { SECOND * 2 } else { SECOND * 61 };
        let freed = pair.now;
        while in_use(&pair) == Transport::Stream {
            assert!(pair.now.saturating_since(freed) < within, "it stays on the stream");
            pair.run(DELAY);
        }
        pair.send(&packet(200, false));
        pair.send_back(&packet(200, true));
        pair.run(DELAY * 4);
        let (out, back) = (pair.gateway_inner.len(), pair.client_inner.len());
        assert_eq!((out, back), (5 + hours as usize / 5, 4 + hours as usize / 5));
        if hours == 0 {
            pair.run(SECOND * 60);
            assert_eq!(streams(&pair), (1, 1), "the stream is closed when it is not needed");
            // And back, for the second round.
            block_udp(&mut pair);
            pair.send(&packet(100, false));
            pair.run(SECOND * 5);
            assert_eq!(in_use(&pair), Transport::Stream);
            pair.gateway_inner.truncate(5);
        }
    }
}

#[test]
fn a_network_that_begins_to_block_udp_is_survived() {
    let mut pair = up();
    block_udp(&mut pair);
    let (before, mut sent) = (pair.now, 0);
    while in_use(&pair) == Transport::Udp {
        pair.send(&packet(300, false));
        sent += 1;
        pair.run(Duration::from_millis(50));
        assert!(pair.now.saturating_since(before) < SECOND * 3, "no stream carries");
    }
    assert_eq!(pair.epochs(), 2);
    pair.send(&packet(301, false));
    pair.run(DELAY * 2);
    assert!(pair.gateway_inner.iter().any(|(_, arrived)| *arrived == packet(301, false)));
    // What was lost under the keys before leaves again, once it is known that the gateway has them.
    pair.run(DELAY * 2);
    let lost = sent + 1 - pair.gateway_inner.len();
    assert_eq!(lost, 0, "of {sent}");
}

#[test]
fn a_stream_that_fails_is_tried_again_and_not_all_the_time() {
    let mut pair = strangers();
    pair.filter = Box::new(|_| false);
    pair.tell_client(Command::Connect(pair.gateway_key));
    let mut failed = 0;
    for _ in 0..600 {
        pair.run(Duration::from_millis(100));
        let mut opened: Vec<SocketId> = Vec::new();
        for event in pair.client_events.drain(..) {
            if let Event::OpenSocket { socket, stream: Some(_), .. } = event {
                opened.push(socket);
            }
        }
        failed += opened.len();
        for socket in opened {
            pair.tell_client(Command::SocketFailed(socket));
        }
    }
    assert!((10..40).contains(&failed), "{failed} streams in a minute");
    pair.filter = Box::new(|_| true);
    pair.run(SECOND * 10);
    assert_eq!(pair.state(), PeerState::Up);
}

#[test]
fn a_stream_that_is_refused_does_not_hold_up_the_next() {
    let mut pair = strangers();
    block_udp(&mut pair);
    let streams = [1, 2, 3].map(|method| StreamTo { remote: GATEWAY.parse().unwrap(), method });
    pair.tell_client(Command::SetStreams {
        peer: pair.gateway_key,
        streams: streams.to_vec(),
        alone: false,
    });
    pair.tell_client(Command::Connect(pair.gateway_key));
    pair.run(Duration::from_millis(249));
    for refused in 0..3 {
        pair.client_events.clear();
        pair.run(Duration::from_millis(1));
        let mut opened = Vec::new();
        for event in &pair.client_events {
            if let Event::OpenSocket { socket, stream: Some(to), .. } = event {
                opened.push((*socket, to.method));
            }
        }
        assert_eq!(opened.len(), 1, "after {refused} refusals");
        assert_eq!(usize::from(opened[0].1), refused + 1);
        pair.tell_client(Command::SocketFailed(opened[0].0));
    }
}

#[test]
fn the_end_of_the_stream_in_use_is_noticed_at_once() {
    let mut pair = strangers();
    block_udp(&mut pair);
    pair.tell_client(Command::Connect(pair.gateway_key));
    pair.run(SECOND);
    let socket = path(&pair).route.socket;
    pair.tell_client(Command::SocketFailed(socket));
    pair.send(&packet(100, false));
    pair.run(Duration::from_millis(250) + DELAY * 6);
    assert_eq!((pair.state(), in_use(&pair)), (PeerState::Up, Transport::Stream));
    assert_ne!(path(&pair).route.socket, socket);
    assert_eq!(pair.gateway_inner.len(), 1);
}

#[test]
fn a_client_on_a_stream_goes_along_when_the_gateway_moves() {
    let mut pair = strangers();
    block_udp(&mut pair);
    pair.tell_client(Command::Connect(pair.gateway_key));
    pair.run(SECOND * 2);
    assert_eq!(in_use(&pair), Transport::Stream);
    pair.move_gateway(&[GATEWAY, ELSEWHERE]);
    let remotes = vec![ELSEWHERE.parse().unwrap()];
    pair.tell_gateway(Command::Announce(remotes));
    pair.run(DELAY * 4);
    let streams = vec![StreamTo { remote: ELSEWHERE.parse().unwrap(), method: 3 }];
    pair.tell_client(Command::SetStreams { peer: pair.gateway_key, streams, alone: false });
    for _ in 0..100 {
        pair.send(&packet(100, false));
        pair.send_back(&packet(100, true));
        pair.run(Duration::from_millis(2));
    }
    assert_eq!(path(&pair).route.remote, ELSEWHERE.parse().unwrap());
    pair.run(DELAY * 4);
    assert_eq!((pair.gateway_inner.len(), pair.client_inner.len()), (100, 100));
}

/// Whether a datagram travels by the stream in use or one opened before it.
fn old_streams(pair: &Pair) -> impl Fn(&Datagram) -> bool + use<> {
    let newest =
        STREAM_PORTS + u16::try_from(path(pair).route.socket.0 % SocketId::STREAMS).unwrap();
    move |datagram| {
        let port = datagram.from.port().max(datagram.to.port());
        (STREAM_PORTS..=newest).contains(&port)
    }
}

#[test]
fn a_stream_that_stands_still_is_left_by_a_client_that_only_receives() {
    let mut pair = strangers();
    block_udp(&mut pair);
    pair.tell_client(Command::Connect(pair.gateway_key));
    pair.run(SECOND);
    pair.send_back(&packet(100, true));
    pair.run(DELAY * 2);
    let stuck = old_streams(&pair);
    pair.filter = Box::new(move |datagram| !datagram.is_udp() && !stuck(datagram));
    let before = pair.client_inner.len();
    pair.run(SECOND * 4);
    pair.send_back(&packet(100, true));
    pair.run(DELAY * 2);
    assert_eq!(pair.client_inner.len(), before + 1, "by a new stream");
}

#[test]
fn attempts_do_not_wait_behind_a_stream_that_stands_still() {
    let mut pair = strangers();
    // Nothing that the first stream carries arrives.
    let mut first = None;
    pair.filter = Box::new(move |datagram| {
        let port = datagram.from.port().max(datagram.to.port());
        !datagram.is_udp() && port != *first.get_or_insert(port)
    });
    pair.tell_client(Command::Connect(pair.gateway_key));
    pair.run(SECOND * 4);
    assert_eq!((pair.state(), in_use(&pair)), (PeerState::Up, Transport::Stream));
}

#[test]
fn an_idle_stream_is_asked_once() {
    let mut pair = strangers();
    block_udp(&mut pair);
    pair.tell_client(Command::Connect(pair.gateway_key));
    pair.run(SECOND);
    pair.send_back(&packet(100, true));
    pair.run(SECOND * 2);
    let (before, by_stream) = (pair.now, std::rc::Rc::new(std::cell::Cell::new(0)));
    let count = by_stream.clone();
    pair.filter = Box::new(move |datagram| {
        count.set(count.get() + u32::from(!datagram.is_udp()));
        !datagram.is_udp()
    });
    pair.run(SECOND * 20);
    assert!(pair.now > before && by_stream.get() == 0, "{} datagrams", by_stream.get());
}

/// The gateway is reached over UDP at another address than the stream leads to, and the client is
/// told so (its name, say) while it is on the stream.
#[test]
fn udp_is_asked_at_an_address_that_is_learned_on_a_stream() {
    let mut pair = strangers();
    pair.move_gateway(&[GATEWAY, ELSEWHERE]);
    let elsewhere: std::net::SocketAddr = ELSEWHERE.parse().unwrap();
    pair.filter = Box::new(move |datagram| {
        !datagram.is_udp() || datagram.to == elsewhere || datagram.from == elsewhere
    });
    pair.tell_client(Command::Connect(pair.gateway_key));
    pair.run(SECOND);
    assert_eq!(in_use(&pair), Transport::Stream);
    let remotes = vec![GATEWAY.parse().unwrap(), elsewhere];
    pair.tell_client(Command::SetRemotes { peer: pair.gateway_key, remotes });
    for _ in 0..62 {
        pair.send(&packet(100, false));
        pair.send_back(&packet(100, true));
        pair.run(SECOND);
    }
    assert_eq!(in_use(&pair), Transport::Udp);
}

#[test]
fn a_gateway_sends_nothing_by_a_stream_that_failed() {
    let mut pair = strangers();
    block_udp(&mut pair);
    pair.tell_client(Command::Connect(pair.gateway_key));
    pair.run(SECOND);
    // Both ends number the stream alike here.
    pair.tell_gateway(Command::SocketFailed(path(&pair).route.socket));
    let by_stream = std::rc::Rc::new(std::cell::Cell::new(0));
    let count = by_stream.clone();
    pair.filter = Box::new(move |datagram| {
        count.set(count.get() + u32::from(datagram.to.port() >= STREAM_PORTS));
        false
    });
    pair.move_gateway(&[GATEWAY, ELSEWHERE]);
    pair.tell_gateway(Command::Announce(vec![ELSEWHERE.parse().unwrap()]));
    pair.send_back(&packet(100, true));
    pair.run(SECOND * 5);
    assert_eq!(by_stream.get(), 0, "datagrams by a stream that is no more");
}

const WIFI: [u8; 4] = [203, 0, 113, 5];
const CABLE: [u8; 4] = [192, 0, 2, 130];

/// These links, the best first.
fn by(addresses: &[[u8; 4]]) -> Command {
    let link = |&address: &[u8; 4]| Link {
        id: LinkId(if address == WIFI { 1 } else { 2 }),
        addresses: vec![address.into()],
        stands_by: false,
    };
    Command::SetLinks(addresses.iter().map(link).collect())
}

/// The paths that carry together, by their own addresses, and what carries each.
fn sharing(pair: &Pair) -> Vec<(std::net::IpAddr, Transport)> {
    let paths = pair.client.status(pair.gateway_key).unwrap().paths;
    let shared = paths.into_iter().filter(|path| path.is_shared);
    let told = |path: PathStatus| (path.route.local.unwrap(), path.route.socket.transport());
    let mut told: Vec<_> = shared.map(told).collect();
    told.sort_unstable();
    told
}

/// What is sent for a second, in order, arrives so, and some of it by each of two links.
fn both_carry(pair: &mut Pair) {
    let carried = |pair: &Pair| {
        let paths = pair.client.status(pair.gateway_key).unwrap().paths;
        paths.iter().filter(|path| path.is_shared).map(|path| path.tx_bytes).collect::<Vec<_>>()
    };
    pair.gateway_inner.clear();
    let before = carried(pair);
    for number in 0..2_000u32 {
        let mut payload = vec![0; 1_200];
        payload[..4].copy_from_slice(&number.to_be_bytes());
        pair.send(&pair::udp((40_000, 40_001), &payload, false));
        pair.run(Duration::from_micros(500));
    }
    pair.run(SECOND);
    let numbers: Vec<u32> = pair
        .gateway_inner
        .iter()
        .map(|(_, packet)| u32::from_be_bytes(*packet[28..].first_chunk().unwrap()))
        .collect();
    assert_eq!(numbers.len(), 2_000);
    assert!(numbers.is_sorted());
    let after = carried(pair);
    let carried: Vec<u64> = before.iter().zip(&after).map(|(from, to)| to - from).collect();
    assert!(carried.len() == 2 && carried.iter().all(|bytes| *bytes > 200_000), "{carried:?}");
}

#[test]
fn streams_alone_carry_together_and_nothing_is_asked_by_udp() {
    let mut pair = Pair::new(None);
    pair.admit_client();
    let streams = vec![StreamTo { remote: GATEWAY.parse().unwrap(), method: 3 }];
    pair.tell_client(Command::SetStreams { peer: pair.gateway_key, streams, alone: true });
    pair.filter = Box::new(|datagram| {
        assert!(!datagram.is_udp(), "nobody asked for UDP");
        true
    });
    pair.tell_client(by(&[WIFI, CABLE]));
    pair.tell_client(Command::SetMode(Mode::Full));
    pair.tell_client(Command::Connect(pair.gateway_key));
    pair.run(SECOND * 2);
    assert_eq!(in_use(&pair), Transport::Stream);
    let both = [(CABLE.into(), Transport::Stream), (WIFI.into(), Transport::Stream)];
    assert_eq!(sharing(&pair), both);
    both_carry(&mut pair);
    pair.tell_client(by(&[CABLE]));
    pair.run(SECOND);
    assert_eq!(sharing(&pair), both[..1]);
    pair.tell_client(by(&[WIFI, CABLE]));
    pair.run(SECOND);
    assert_eq!(sharing(&pair), both);
}

/// Client and gateway with a session that both links are to carry; the cable lets no UDP through.
fn up_without_udp_by_cable() -> Pair {
    let mut pair = up();
    pair.filter = Box::new(|datagram| {
        let cable = std::net::IpAddr::from(CABLE);
        !(datagram.is_udp() && [datagram.from.ip(), datagram.to.ip()].contains(&cable))
    });
    pair.tell_client(by(&[WIFI, CABLE]));
    pair.tell_client(Command::SetMode(Mode::Full));
    pair
}

#[test]
fn a_stream_carries_beside_udp_by_the_link_that_blocks_it() {
    let mut pair = up_without_udp_by_cable();
    for _ in 0..50 {
        pair.send(&packet(100, false));
        pair.run(Duration::from_millis(100));
    }
    assert_eq!(in_use(&pair), Transport::Udp);
    let both = [(CABLE.into(), Transport::Stream), (WIFI.into(), Transport::Udp)];
    assert_eq!(sharing(&pair), both);
    both_carry(&mut pair);
    // The one with UDP dies: the other is there, and takes all.
    pair.tell_client(by(&[CABLE]));
    pair.send(&packet(100, false));
    pair.run(SECOND);
    assert_eq!((pair.state(), in_use(&pair)), (PeerState::Up, Transport::Stream));
    // UDP works there, too: it is asked for, and the stream is let go.
    pair.filter = Box::new(|_| true);
    for _ in 0..40 {
        pair.send(&packet(100, false));
        pair.run(SECOND);
    }
    assert_eq!(in_use(&pair), Transport::Udp);
    assert_eq!(sharing(&pair), [(CABLE.into(), Transport::Udp)]);
}

#[test]
fn udp_takes_the_place_of_a_stream_beside_others_soon_after_it_works() {
    let mut pair = up_without_udp_by_cable();
    let speak = |pair: &mut Pair, seconds: u64| {
        for _ in 0..10 * seconds {
            pair.send(&packet(100, false));
            pair.run(Duration::from_millis(100));
        }
    };
    speak(&mut pair, 30);
    let stood_in = [(CABLE.into(), Transport::Stream), (WIFI.into(), Transport::Udp)];
    assert_eq!(sharing(&pair), stood_in, "it goes on while UDP is asked for beside it");
    pair.filter = Box::new(|_| true);
    speak(&mut pair, 3);
    assert_eq!(sharing(&pair), [(CABLE.into(), Transport::Udp), (WIFI.into(), Transport::Udp)]);
}

#[test]
fn a_stream_left_over_carries_nothing_when_its_link_dies() {
    let mut pair = up_without_udp_by_cable();
    pair.tell_client(Command::SetScheduler(Scheduler::RoundRobin));
    let speak = |pair: &mut Pair, times: u64| {
        for _ in 0..times {
            pair.send(&packet(100, false));
            pair.run(Duration::from_millis(100));
        }
    };
    speak(&mut pair, 300);
    assert_eq!(sharing(&pair)[0], (CABLE.into(), Transport::Stream));
    pair.filter = Box::new(|_| true);
    let by_udp = [(CABLE.into(), Transport::Udp), (WIFI.into(), Transport::Udp)];
    let mut tries = 0;
    while sharing(&pair) != by_udp {
        speak(&mut pair, 1);
        tries += 1;
        assert!(tries < 100, "UDP takes its place");
    }
    let by_stream = |pair: &Pair| {
        let paths = pair.client.status(pair.gateway_key).unwrap().paths;
        let is_stream = |path: &&PathStatus| path.route.socket.transport() == Transport::Stream;
        paths.iter().filter(is_stream).map(|path| path.tx_bytes).max()
    };
    let before = by_stream(&pair).expect("it stays for a while");
    pair.filter = Box::new(|datagram| {
        ![datagram.from.ip(), datagram.to.ip()].contains(&std::net::IpAddr::from(CABLE))
    });
    for _ in 0..1_500 {
        pair.send(&pair::udp((40_000, 40_001), &[0; 1_200], false));
        pair.run(Duration::from_millis(1));
    }
    assert_eq!(sharing(&pair), by_udp[1..]);
    let carried = by_stream(&pair).map_or(0, |after| after - before);
    assert!(carried < 500, "{carried} bytes, of which questions are a few");
}

#[test]
fn a_stream_that_is_refused_beside_others_makes_room_for_the_next_way() {
    let mut pair = Pair::new(None);
    pair.admit_client();
    let streams = [1, 2].map(|method| StreamTo { remote: GATEWAY.parse().unwrap(), method });
    let streams = streams.to_vec();
    pair.tell_client(Command::SetStreams { peer: pair.gateway_key, streams, alone: true });
    pair.tell_client(by(&[WIFI, CABLE]));
    pair.tell_client(Command::SetMode(Mode::Full));
    pair.tell_client(Command::Connect(pair.gateway_key));
    // By the cable both ways are refused for a while, then the second one is not.
    let mut refused = Vec::new();
    for step in 0..4_000u32 {
        if step % 20 == 0 {
            pair.send(&packet(100, false));
        }
        for event in std::mem::take(&mut pair.client_events) {
            if let Event::OpenSocket { socket, link: LinkId(2), stream: Some(to), .. } = event
                && (step < 3_000 || to.method == 1)
            {
                refused.push(to.method);
                pair.tell_client(Command::SocketFailed(socket));
            }
        }
        pair.run(Duration::from_millis(2));
    }
    assert!((4..=12).contains(&refused.len()) && refused.contains(&2), "{refused:?}");
    let both = [(CABLE.into(), Transport::Stream), (WIFI.into(), Transport::Stream)];
    for _ in 0..30 {
        pair.send(&packet(100, false));
        pair.run(SECOND);
    }
    assert_eq!(sharing(&pair), both);
}
