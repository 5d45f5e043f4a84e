//! UDP sockets against a real kernel: runs in one call, marks, addresses, and what is refused.

#![allow(clippy::unwrap_used)] // a test that cannot go on fails

mod support;

use std::{
    net::{IpAddr, SocketAddr},
    os::fd::AsRawFd,
    time::Duration,
};

use rove_os::{
    error::Error,
    udp::{Datagrams, Ecn, Queue, ReceiveBuffer, Received, SendError, UdpOptions, UdpSocket},
};
use support::{in_namespace, net};

/// How long a datagram is left in its socket.
const WAIT: Duration = Duration::from_millis(60);

fn options(local: &str) -> UdpOptions<'_> {
    UdpOptions { local: local.parse().unwrap(), ipv6_only: false, interface: None, mark: None }
}

fn bind(local: &str) -> UdpSocket {
    UdpSocket::bind(options(local)).unwrap()
}

fn to(remote: SocketAddr, contents: &[u8]) -> Datagrams<'_> {
    Datagrams { remote, source: None, ecn: Ecn::NotCapable, contents, segment: None }
}

/// Everything that arrives until `bytes` bytes are there, within two seconds.
fn receive(socket: &UdpSocket, bytes: usize) -> Vec<(Received, Vec<u8>)> {
    let mut buffer = ReceiveBuffer::new(8);
    let mut pieces: Vec<(Received, Vec<u8>)> = Vec::new();
    while pieces.iter().map(|(_, piece)| piece.len()).sum::<usize>() < bytes {
        let mut polled = libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one pollfd that lives through the call.
        assert!(unsafe { libc::poll(&raw mut polled, 1, 2_000) } > 0, "nothing more arrives");
        socket.receive(&mut buffer, |meta, piece| pieces.push((meta, piece.to_vec()))).unwrap();
    }
    pieces
}

#[test]
fn a_run_travels_in_one_call_with_its_mark() {
    in_namespace("a_run_travels_in_one_call_with_its_mark", || {
        for (ours, theirs) in [("127.0.0.1:0", "127.0.0.1:0"), ("[::1]:0", "[::1]:0")] {
            let (mut sender, receiver) = (bind(ours), bind(theirs));
            assert!(sender.segments_max() > 1, "this kernel has no GSO");
            let contents: Vec<u8> = (0..12_345u32).map(|at| (at * 31) as u8).collect();
            let run = Datagrams {
                ecn: Ecn::Capable0,
                segment: Some(1_000),
                ..to(receiver.local(), &contents)
            };
            sender.send(run).unwrap();
            let pieces = receive(&receiver, contents.len());
            assert!(pieces.len() < 13, "GRO joined nothing");
            for (meta, piece) in &pieces {
                assert_eq!(meta.remote, sender.local());
                assert_eq!(meta.local, Some(receiver.local().ip()));
                assert_eq!(meta.ecn, Ecn::Capable0);
                assert!(piece.len() <= meta.stride || meta.stride == 1_000);
            }
            let joined: Vec<u8> = pieces.into_iter().flat_map(|(_, piece)| piece).collect();
            assert_eq!(joined, contents);
        }
    });
}

/// A late reader learns the delay, and still gets the destination address.
#[test]
fn how_long_a_datagram_waited_in_its_socket_is_told() {
    in_namespace("how_long_a_datagram_waited_in_its_socket_is_told", || {
        for local in ["127.0.0.1:0", "[::1]:0"] {
            let (mut sender, receiver) = (bind(local), bind(local));
            // The kernel records arrival times from the first receive on.
            sender.send(to(receiver.local(), b"first")).unwrap();
            receive(&receiver, 5);
            sender.send(to(receiver.local(), b"late")).unwrap();
            std::thread::sleep(WAIT);
            let (meta, _) = receive(&receiver, 4).remove(0);
            assert!(meta.waited >= WAIT - WAIT / 10, "{:?} of {WAIT:?}", meta.waited);
            assert_eq!(meta.local, Some(receiver.local().ip()));
        }
    });
}

#[test]
fn a_run_longer_than_one_call_arrives_whole() {
    in_namespace("a_run_longer_than_one_call_arrives_whole", || {
        let (mut sender, receiver) = (bind("127.0.0.1:0"), bind("127.0.0.1:0"));
        let contents: Vec<u8> = (0..200_000u32).map(|at| (at * 7) as u8).collect();
        let run = Datagrams { segment: Some(1_200), ..to(receiver.local(), &contents) };
        sender.send(run).unwrap();
        let joined: Vec<u8> =
            receive(&receiver, contents.len()).into_iter().flat_map(|(_, piece)| piece).collect();
        assert_eq!(joined, contents);
    });
}

#[test]
fn a_reply_leaves_from_the_address_that_was_written_to() {
    in_namespace("a_reply_leaves_from_the_address_that_was_written_to", || {
        for address in ["10.1.0.1/24", "10.1.0.2/24", "10.1.0.3/24", "fd01::1/64", "fd01::2/64"] {
            net::address("lo", address);
        }
        // One socket for both families, as a gateway has.
        let mut gateway = bind("[::]:51000");
        for (client, server) in [("10.1.0.1:0", "10.1.0.3"), ("[fd01::1]:0", "fd01::2")] {
            let mut client = bind(client);
            let server: IpAddr = server.parse().unwrap();
            client.send(to(SocketAddr::new(server, 51_000), b"hello")).unwrap();
            let (meta, piece) = receive(&gateway, 5).remove(0);
            assert_eq!(piece, b"hello");
            assert_eq!(meta.local, Some(server));
            assert_eq!(meta.remote, client.local());
            let reply = Datagrams {
                source: meta.local,
                ecn: Ecn::Congestion,
                ..to(meta.remote, b"welcome")
            };
            gateway.send(reply).unwrap();
            let (meta, _) = receive(&client, 7).remove(0);
            assert_eq!(meta.remote, SocketAddr::new(server, 51_000));
            assert_eq!(meta.ecn, Ecn::Congestion);
        }
    });
}

#[test]
fn what_is_longer_than_the_link_is_refused_not_fragmented() {
    in_namespace("what_is_longer_than_the_link_is_refused_not_fragmented", || {
        net::veth("here", "there");
        for (name, addresses) in
            [("here", ["10.1.0.1/24", "fd01::1/64"]), ("there", ["10.2.0.1/24", "fd02::1/64"])]
        {
            addresses.iter().for_each(|address| net::address(name, address));
            net::up(name);
        }
        let long = [0; 1_500];
        for (local, remote) in [("10.1.0.1:0", "10.1.0.9:9"), ("[fd01::1]:0", "[fd01::9]:9")] {
            let mut sender = bind(local);
            let error = sender.send(to(remote.parse().unwrap(), &long)).unwrap_err();
            assert!(matches!(error, SendError::TooLong), "{error}");
            sender.send(to(remote.parse().unwrap(), &long[..1_400])).unwrap();
            let error = sender.send(to("192.0.2.1:9".parse().unwrap(), b"x")).unwrap_err();
            assert!(matches!(error, SendError::Unreachable(_)), "{error}");
        }
    });
}

#[test]
fn a_lost_source_address_does_not_end_segmentation_offload() {
    in_namespace("a_lost_source_address_does_not_end_segmentation_offload", || {
        net::address("lo", "10.1.0.1/32");
        net::address("lo", "10.1.0.2/32");
        let mut gateway = bind("0.0.0.0:51000");
        let receiver = bind("10.1.0.1:0");
        let run = Datagrams {
            source: Some("10.1.0.2".parse().unwrap()),
            segment: Some(1_000),
            ..to(receiver.local(), &[7; 5_000])
        };
        gateway.send(run).unwrap();
        receive(&receiver, 5_000);
        net::remove_address("lo", "10.1.0.2/32");
        let error = gateway.send(run).unwrap_err();
        assert!(matches!(error, SendError::Unreachable(_)), "{error}");
        assert!(gateway.segments_max() > 1);
        gateway.send(Datagrams { source: None, ecn: Ecn::Capable1, ..run }).unwrap();
        assert_eq!(receive(&receiver, 5_000)[0].0.ecn, Ecn::Capable1);
    });
}

#[test]
fn an_unreachable_port_does_not_end_the_socket() {
    in_namespace("an_unreachable_port_does_not_end_the_socket", || {
        let (mut sender, receiver) = (bind("127.0.0.1:0"), bind("127.0.0.1:0"));
        let _ = sender.send(to("127.0.0.1:1".parse().unwrap(), b"nobody"));
        let mut buffer = ReceiveBuffer::new(1);
        while sender.receive(&mut buffer, |_, _| panic!("nobody answers")).unwrap() != Queue::Empty
        {
        }
        sender.send(to(receiver.local(), b"somebody")).unwrap();
        assert_eq!(receive(&receiver, 8)[0].1, b"somebody");
    });
}

#[test]
fn each_refusal_to_bind_has_its_own_error() {
    in_namespace("each_refusal_to_bind_has_its_own_error", || {
        let taken = bind("127.0.0.1:0");
        let options = UdpOptions { local: taken.local(), ..options("127.0.0.1:0") };
        let error = UdpSocket::bind(options).unwrap_err();
        assert!(matches!(error, Error::PortInUse { addr } if addr == taken.local()), "{error}");
        let local = "192.0.2.1:5".parse().unwrap();
        let error = UdpSocket::bind(UdpOptions { local, ..options }).unwrap_err();
        assert!(matches!(error, Error::AddressNotLocal { .. }), "{error}");
        let local = "127.0.0.1:0".parse().unwrap();
        let nowhere = UdpOptions { local, interface: Some("nowhere"), ..options };
        let error = UdpSocket::bind(nowhere).unwrap_err();
        assert!(matches!(error, Error::NoInterface { ref name } if name == "nowhere"), "{error}");
    });
}

#[test]
fn an_interface_and_a_mark_can_be_asked_for() {
    in_namespace("an_interface_and_a_mark_can_be_asked_for", || {
        let marked =
            UdpOptions { interface: Some("lo"), mark: Some(0x726f), ..options("127.0.0.1:0") };
        let (mut sender, receiver) = (UdpSocket::bind(marked).unwrap(), bind("127.0.0.1:0"));
        let (mut mark, mut length) = (0u32, 4);
        // SAFETY: the option's value is four bytes, and so is `mark`.
        let result = unsafe {
            libc::getsockopt(
                sender.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_MARK,
                (&raw mut mark).cast(),
                &raw mut length,
            )
        };
        assert_eq!((result, mark), (0, 0x726f));
        sender.send(to(receiver.local(), b"through lo")).unwrap();
        assert_eq!(receive(&receiver, 10)[0].1, b"through lo");
    });
}
