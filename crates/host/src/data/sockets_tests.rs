//! What becomes of streams that nobody needs, and of those that cannot be opened.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use mio::Poll;
use rove_os::stream::ListenOptions;

use super::*;

/// Sockets with a door, and where it is.
fn with_door() -> (Poll, Sockets, SocketAddr) {
    let poll = Poll::new().unwrap();
    let mut sockets = Sockets::new(poll.registry().try_clone().unwrap(), None);
    let local = &["127.0.0.1:0".parse().unwrap()];
    let options = ListenOptions { local, ipv6_only: false, mark: None, backend: None };
    let listener = Listener::bind(&options).unwrap();
    let address = listener.locals().next().unwrap();
    sockets.add_door(listener).unwrap();
    (poll, sockets, address)
}

fn stranger(to: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(to).unwrap();
    stream.write_all(&rove_os::stream::PREFACE).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    stream
}

/// Turns at `now` until so many sockets are open.
fn turn_until(sockets: &mut Sockets, now: u64, open: usize) {
    for _ in 0..2_000 {
        sockets.set_door_ready();
        sockets.keep_streams(now).unwrap();
        if sockets.open.len() == open {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("{} sockets are open instead of {open}", sockets.open.len());
}

#[test]
fn a_stream_that_the_core_never_answers_is_let_go() {
    let (_poll, mut sockets, address) = with_door();
    let mut client = stranger(address);
    turn_until(&mut sockets, 1, 1);
    let mut silent = stranger(address);
    turn_until(&mut sockets, 2, 2);
    let ids: Vec<SocketId> = sockets.open.keys().copied().collect();
    assert_eq!(ids, [SocketId(SocketId::STREAMS), SocketId(SocketId::STREAMS + 1)]);
    assert_eq!(sockets.carried(ids[0], true).map(|carried| carried.transport), Some("tcp"));

    let remote = client.local_addr().unwrap();
    sockets.send(Route { socket: ids[0], local: None, remote }, Sending::Segmented, 5, b"hello");
    let mut frame = [0; 7];
    client.read_exact(&mut frame).unwrap();
    assert_eq!(&frame, b"\0\x05hello");

    assert_eq!(sockets.due(2), Some(1 + TRIAL_TIME));
    sockets.keep_streams(1 + TRIAL_TIME).unwrap();
    assert_eq!(sockets.open.len(), 2, "not yet");
    sockets.keep_streams(2 + TRIAL_TIME).unwrap();
    assert_eq!(sockets.open.keys().copied().collect::<Vec<_>>(), ids[..1]);
    assert_eq!(sockets.take_failed(), BTreeSet::from([ids[1]]));
    assert_eq!(silent.read(&mut frame).unwrap(), 0);
    assert_eq!(sockets.due(2 + TRIAL_TIME), None);
}

#[test]
fn a_full_house_lets_the_eldest_stranger_go() {
    let (_poll, mut sockets, address) = with_door();
    sockets.accepted_max = 2;
    let mut first = stranger(address);
    turn_until(&mut sockets, 1, 1);
    let mut second = stranger(address);
    turn_until(&mut sockets, 2, 2);
    let remote = first.local_addr().unwrap();
    let route = Route { socket: SocketId(SocketId::STREAMS), local: None, remote };
    sockets.send(route, Sending::Segmented, 1, b"x");
    let _third = stranger(address);
    let last = SocketId(SocketId::STREAMS + 2);
    for _ in 0..2_000 {
        turn_until(&mut sockets, 3, 2);
        if sockets.open.contains_key(&last) {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(sockets.open.contains_key(&last));
    assert_eq!(second.read(&mut [0]).unwrap(), 0, "the eldest that was never answered");
    first.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    first.read_exact(&mut [0; 3]).unwrap();
    assert_eq!(first.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock, "it stays");
}

#[test]
fn what_cannot_be_opened_is_told() {
    let poll = Poll::new().unwrap();
    let mut sockets = Sockets::new(poll.registry().try_clone().unwrap(), None);
    let (local, link) = ("127.0.0.1".parse().unwrap(), LinkId(7));
    let to = |method| Some(StreamTo { remote: "127.0.0.1:1".parse().unwrap(), method });
    sockets.open(Instant::ZERO, SocketId(1), link, local, None);
    assert_eq!(sockets.take_failed(), BTreeSet::from([SocketId(1)]), "a link that is not there");
    sockets.names.insert(link, "lo".to_owned());
    sockets.open(Instant::ZERO, SocketId(2), link, local, to(3));
    assert_eq!(sockets.take_failed(), BTreeSet::from([SocketId(2)]), "a way that is not there");
    sockets.names.insert(link, "nowhere".to_owned());
    sockets.set_ways(vec![Way { tls: None, proxy: None, mptcp: Mptcp::Never }]);
    sockets.open(Instant::ZERO, SocketId(3), link, local, to(0));
    assert_eq!(sockets.take_failed(), BTreeSet::from([SocketId(3)]), "an interface that is gone");
    assert!(sockets.open.is_empty());
}
