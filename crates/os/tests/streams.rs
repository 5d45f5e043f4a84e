//! Streams over loopback: every combination carries datagrams, and each failure has its own error.

#![allow(clippy::unwrap_used)] // a test that cannot go on fails

mod support;

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
};

use rove_os::{
    error::Error,
    stream::{
        Basic, DATAGRAM_LEN_MAX, EARLY_MAX, ListeningSocket, Phase, Proxy, Security, Stream,
        StreamError, StreamOptions, Transport, UNSENT_MAX,
    },
    udp::{Datagrams, Ecn, Queue, ReceiveBuffer, SendError},
};
use support::streams::{
    Gateway, carry, connect, failure, join, proxy, read_head, run, server, wait_for,
};

const TLS: Security<'_> = Security::Tls { server_name: "www.example.com" };

/// Where nobody listens.
const NOWHERE: &str = "127.0.0.1:1";

#[test]
fn every_combination_carries_datagrams_both_ways() {
    for local in ["127.0.0.1:0", "[::1]:0"] {
        let mut gateway = Gateway::new(local, None);
        let address = gateway.address();
        let target = address.to_string();
        let proxy = proxy(local, None);
        for security in [Security::Plain, TLS] {
            for by_proxy in [false, true] {
                let hop = Proxy { address: proxy, target: &target, authorization: None };
                let hop = by_proxy.then_some(hop);
                // With a proxy the gateway's address is a name for the stream, no more.
                let remote = if by_proxy { "192.0.2.1:443".parse().unwrap() } else { address };
                let mut client = connect(remote, security, hop);
                assert_eq!(client.phase(), Phase::Connecting);
                run(&mut client, b"early bird", 5).unwrap();
                let mut ours = gateway.open(&mut client).unwrap();
                assert_eq!(client.unsent(), 0);
                let has_tls = security == TLS;
                assert_eq!((client.has_tls(), ours.has_tls()), (has_tls, has_tls));
                let mut birds = Vec::new();
                while birds.len() < 2 {
                    wait_for(std::os::fd::AsRawFd::as_raw_fd(&ours), libc::POLLIN, 100);
                    let mut buffer = ReceiveBuffer::new(1);
                    ours.receive(&mut buffer, |_, bird| birds.push(bird.to_vec())).unwrap();
                }
                assert_eq!(birds, [b"early", b" bird"]);
                assert_eq!(client.remote(), remote);
                assert_eq!(ours.local(), Some(address.ip()));
                assert_eq!(ours.remote().ip(), address.ip());
                for (total, segment) in [(1, 1), (300_000, DATAGRAM_LEN_MAX), (50_001, 100)] {
                    carry(&mut client, &mut ours, total, segment);
                    carry(&mut ours, &mut client, total, segment);
                }
            }
        }
    }
}

#[test]
fn a_socket_of_both_families_shows_ipv4_as_such() {
    let mut gateway = Gateway::new("[::]:0", None);
    let port = gateway.address().port();
    let mut client = connect(SocketAddr::new([127, 0, 0, 1].into(), port), TLS, None);
    let mut ours = gateway.open(&mut client).unwrap();
    assert_eq!(ours.local(), Some([127, 0, 0, 1].into()));
    assert_eq!(Some(ours.remote().ip()), client.local());
    carry(&mut client, &mut ours, 5_000, 1_000);
}

#[test]
fn a_place_that_is_added_takes_streams_like_the_first() {
    let mut gateway = Gateway::new("127.0.0.1:0", None);
    let more = ListeningSocket::bind("127.0.0.1:0".parse().unwrap(), false, None).unwrap();
    let there = more.local().unwrap();
    // Whoever comes before it is added waits.
    let mut early = connect(there, TLS, None);
    gateway.listener.add(more).unwrap();
    assert_eq!(gateway.listener.locals().nth(1), Some(there));
    let mut first = gateway.open(&mut early).unwrap();
    carry(&mut early, &mut first, 5_000, 1_000);
    let mut client = connect(gateway.address(), Security::Plain, None);
    let mut ours = gateway.open(&mut client).unwrap();
    carry(&mut client, &mut ours, 5_000, 1_000);
}

#[test]
fn bytes_that_come_one_by_one_are_understood() {
    for security in [Security::Plain, TLS] {
        let mut gateway = Gateway::new("127.0.0.1:0", None);
        let address = gateway.address();
        let slow = server("127.0.0.1:0", move |connection| {
            join(connection, TcpStream::connect(address).unwrap(), 1);
        });
        let mut client = connect(slow, security, None);
        let mut ours = gateway.open(&mut client).unwrap();
        carry(&mut client, &mut ours, 3_000, 700);
        carry(&mut ours, &mut client, 3_000, 1_400);
    }
}

#[test]
fn what_has_no_room_is_refused_whole_and_what_was_taken_arrives() {
    for security in [Security::Plain, TLS] {
        let mut gateway = Gateway::new("127.0.0.1:0", None);
        let mut client = connect(gateway.address(), security, None);
        let mut ours = gateway.open(&mut client).unwrap();
        let datagram = |number: u32| -> Vec<u8> { number.to_be_bytes().repeat(300) };
        let mut taken = 0;
        while run(&mut client, &datagram(taken), 1_200).is_ok() {
            taken += 1;
            assert!(taken < 100_000, "nothing is ever refused");
        }
        assert!(client.unsent() <= UNSENT_MAX + 200 && client.unsent() > UNSENT_MAX - 3_000);

        let (mut next, mut buffer) = (0, ReceiveBuffer::new(1));
        while next < taken {
            client.ready(false, true, 0).unwrap();
            wait_for(std::os::fd::AsRawFd::as_raw_fd(&ours), libc::POLLIN, 1_000);
            ours.receive(&mut buffer, |_, bytes| {
                assert_eq!(bytes, datagram(next));
                next += 1;
            })
            .unwrap();
        }
        carry(&mut client, &mut ours, 10_000, 1_000);
    }
}

#[test]
fn what_waits_for_an_opening_stream_is_little() {
    let mut client = connect("192.0.2.1:9".parse().unwrap(), Security::Plain, None);
    let mut taken = 0;
    while run(&mut client, &[7; 1_472], 1_472).is_ok() {
        taken += 1;
        assert!(taken <= EARLY_MAX / 1_472);
    }
    assert_eq!(taken, 8);
    assert_eq!(client.unsent(), EARLY_MAX);
    let mut buffer = ReceiveBuffer::new(1);
    assert_eq!(client.receive(&mut buffer, |_, _| panic!("from whom")).unwrap(), Queue::Empty);
}

#[test]
fn only_datagrams_to_its_own_address_are_taken() {
    let mut gateway = Gateway::new("127.0.0.1:0", None);
    let mut client = connect(gateway.address(), Security::Plain, None);
    refuses_what_it_cannot_carry(&mut client);
    let mut ours = gateway.open(&mut client).unwrap();
    refuses_what_it_cannot_carry(&mut client);
    refuses_what_it_cannot_carry(&mut ours);
    carry(&mut ours, &mut client, 1_472, 1_472);
}

fn refuses_what_it_cannot_carry(stream: &mut Stream) {
    let to = |remote, contents, segment| Datagrams {
        remote,
        source: None,
        ecn: Ecn::NotCapable,
        contents,
        segment,
    };
    let sent = stream.send(to("192.0.2.9:9".parse().unwrap(), b"x", None));
    assert!(matches!(sent, Err(SendError::Unreachable(_))), "{sent:?}");
    let (remote, long) = (stream.remote(), &[0; 1_473]);
    for (contents, segment) in [(&long[..], None), (&long[..], Some(1_473)), (b"x", Some(0))] {
        let sent = stream.send(to(remote, contents, segment));
        assert!(matches!(sent, Err(SendError::TooLong)), "{sent:?}");
    }
    stream.send(to(remote, b"", None)).unwrap();
    assert_eq!(stream.unsent(), 0);
}

#[test]
fn the_end_of_a_stream_is_told_once_everything_before_it_was_read() {
    for security in [Security::Plain, TLS] {
        let mut gateway = Gateway::new("127.0.0.1:0", None);
        let mut client = connect(gateway.address(), security, None);
        let mut ours = gateway.open(&mut client).unwrap();
        run(&mut client, b"goodbye", 7).unwrap();
        drop(client);
        let (mut buffer, mut words) = (ReceiveBuffer::new(1), Vec::new());
        let error = loop {
            wait_for(std::os::fd::AsRawFd::as_raw_fd(&ours), libc::POLLIN, 1_000);
            match ours.receive(&mut buffer, |_, word| words.push(word.to_vec())) {
                Ok(_) => {}
                Err(error) => break error,
            }
        };
        assert_eq!(words, [b"goodbye"]);
        assert!(matches!(error, StreamError::Ended), "{error}");
        assert_eq!(ours.phase(), Phase::Closed);
        assert!(matches!(run(&mut ours, b"x", 1), Err(SendError::Fatal(_))));
        assert!(ours.receive(&mut buffer, |_, _| {}).is_err());
    }
}

#[test]
fn a_proxy_that_wants_a_password_gets_it() {
    // RFC 7617, section 2.
    let proxy = proxy("127.0.0.1:0", Some("QWxhZGRpbjpvcGVuIHNlc2FtZQ=="));
    let mut gateway = Gateway::new("127.0.0.1:0", None);
    let target = gateway.address().to_string();
    let hop = |password| Proxy {
        address: proxy,
        target: &target,
        authorization: Some(Basic { user: "Aladdin", password }),
    };
    let remote = gateway.address();
    let mut client = connect(remote, TLS, Some(hop("open sesame")));
    let mut ours = gateway.open(&mut client).unwrap();
    carry(&mut client, &mut ours, 5_000, 1_000);
    for hop in [hop("open barley"), Proxy { authorization: None, ..hop("") }] {
        let error = failure(connect(remote, TLS, Some(hop)));
        assert!(
            matches!(error, StreamError::ProxyAuthentication { proxy: told } if told == proxy),
            "{error}"
        );
    }
}

#[test]
fn whatever_a_proxy_says_instead_has_its_error() {
    const HTTP: &str = "it sends more than an answer";
    let cases: [(&'static [u8], &str); 6] = [
        (b"HTTP/1.1 403 Not That Port\r\nX: y\r\n\r\n", "403 Not That Port"),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", "100 Continue"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "does not begin with HTTP/1"),
        (b"HTTP/1.1 200 OK\r\n\r\nwelcome", HTTP),
        (b"HTTP/1.1 200 OK\r\nSet-Cookie: ", "closed the connection"),
        (b"", "closed the connection"),
    ];
    for (answer, words) in cases {
        let proxy = server("127.0.0.1:0", move |mut connection| {
            let head = read_head(&mut connection);
            assert_eq!(head, "CONNECT vpn.example:443 HTTP/1.1\r\nHost: vpn.example:443\r\n\r\n");
            connection.write_all(answer).unwrap();
        });
        let hop = Proxy { address: proxy, target: "vpn.example:443", authorization: None };
        let error = failure(connect("192.0.2.1:443".parse().unwrap(), TLS, Some(hop)));
        let said = error.to_string();
        assert!(said.contains(words) && said.contains(&proxy.to_string()), "{said}");
    }
    let endless = server("127.0.0.1:0", |mut connection| {
        read_head(&mut connection);
        let _ = connection.write_all(b"HTTP/1.1 200 OK\r\n");
        while connection.write_all(b"X-Y: z\r\n").is_ok() {}
    });
    let hop = Proxy { address: endless, target: "vpn.example:443", authorization: None };
    let error = failure(connect("192.0.2.1:443".parse().unwrap(), Security::Plain, Some(hop)));
    assert!(error.to_string().contains("does not end"), "{error}");
}

#[test]
fn who_is_no_gateway_is_named_as_such() {
    let error = failure(connect(NOWHERE.parse().unwrap(), TLS, None));
    assert!(matches!(error, StreamError::Refused { to } if to.port() == 1), "{error}");

    // A web server without TLS answers anything with an error of its own.
    let web = server("127.0.0.1:0", |mut connection| {
        let _ = connection.read(&mut [0; 100]);
        let _ = connection.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n");
    });
    let error = failure(connect(web, Security::Plain, None));
    assert!(matches!(error, StreamError::BadLength { length: 0x4854 }), "{error}");
    let error = failure(connect(web, TLS, None));
    assert!(matches!(error, StreamError::Tls { to, .. } if to == web), "{error}");

    // A web server with TLS knows no rove/1.
    let alert = server("127.0.0.1:0", |mut connection| {
        let _ = connection.read(&mut [0; 4_096]);
        let _ = connection.write_all(&[21, 3, 3, 0, 2, 2, 120]);
    });
    let error = failure(connect(alert, TLS, None));
    assert!(matches!(error, StreamError::NotRove { to } if to == alert), "{error}");

    // Somebody who accepts and closes.
    let shut = server("127.0.0.1:0", drop);
    let error = failure(connect(shut, Security::Plain, None));
    assert!(matches!(error, StreamError::Ended | StreamError::Broken(_)), "{error}");
}

#[test]
fn each_refusal_to_connect_has_its_own_error() {
    let options = StreamOptions {
        local: None,
        interface: None,
        mark: None,
        remote: NOWHERE.parse().unwrap(),
        mptcp: true,
        security: Security::Plain,
        proxy: None,
    };
    let refusal = |options| Stream::connect(&options, 0).unwrap_err();
    let local = Some("192.0.2.1:0".parse().unwrap());
    let error = refusal(StreamOptions { local, ..options });
    assert!(matches!(error, Error::AddressNotLocal { .. }), "{error}");
    let error = refusal(StreamOptions { interface: Some("nowhere"), ..options });
    assert!(matches!(error, Error::NoInterface { .. }), "{error}");
    let security = Security::Tls { server_name: "not a name" };
    let error = refusal(StreamOptions { security, ..options });
    assert!(matches!(error, Error::BadServerName { .. }), "{error}");
    for target in ["vpn.example", "vpn.example:0", "vpn.example:http", "a b:1", "x\r\nY: z:1"] {
        let proxy = Some(Proxy { address: options.remote, target, authorization: None });
        let error = refusal(StreamOptions { proxy, ..options });
        assert!(matches!(error, Error::BadProxy { .. }), "{error}");
    }
}

#[test]
fn a_kernel_that_has_mptcp_uses_it_and_another_gateway_gets_tcp() {
    let has_mptcp = std::fs::read_to_string("/proc/sys/net/mptcp/enabled")
        .is_ok_and(|enabled| enabled.trim() == "1");
    if !has_mptcp {
        return support::skip("MPTCP", "net.mptcp.enabled is not 1");
    }
    for mptcp in [true, false] {
        let mut gateway = Gateway::new("127.0.0.1:0", None);
        let options = StreamOptions {
            local: Some("127.0.0.1:0".parse().unwrap()),
            interface: None,
            mark: None,
            remote: gateway.address(),
            mptcp,
            security: TLS,
            proxy: None,
        };
        let mut client = Stream::connect(&options, 0).unwrap();
        let mut ours = gateway.open(&mut client).unwrap();
        let expected = if mptcp { Transport::Mptcp } else { Transport::Tcp };
        assert_eq!((client.transport(), ours.transport()), (expected, expected));
        carry(&mut client, &mut ours, 100_000, 1_400);
        carry(&mut ours, &mut client, 100_000, 1_400);
        assert_eq!((client.unsent(), ours.unsent()), (0, 0));
    }
    // Who does not speak it is spoken to in TCP.
    let plain = server("127.0.0.1:0", |mut connection| {
        let mut preface = [0; 8];
        connection.read_exact(&mut preface).unwrap();
        assert_eq!(&preface, b"\0rove/1\n");
        let _ = connection.read(&mut preface);
    });
    let options = StreamOptions {
        local: None,
        interface: None,
        mark: None,
        remote: plain,
        mptcp: true,
        security: Security::Plain,
        proxy: None,
    };
    let mut client = Stream::connect(&options, 0).unwrap();
    while client.ready(true, true, 7).unwrap() != Phase::Open {
        wait_for(std::os::fd::AsRawFd::as_raw_fd(&client), libc::POLLOUT, 100);
    }
    assert_eq!((client.transport(), client.since()), (Transport::Tcp, 7));
}
