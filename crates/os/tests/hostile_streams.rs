//! A gateway's port against who means it ill, and against who means somebody else.

#![allow(clippy::unwrap_used)] // a test that cannot go on fails

mod support;

use std::{
    io::{ErrorKind, Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpStream},
    os::fd::AsRawFd,
    sync::{Arc, mpsc},
    time::Duration,
};

use rove_os::{
    stream::{
        HANDSHAKE_TIMEOUT, HANDSHAKES_MAX, HANDSHAKES_PER_SOURCE, SPLICE_IDLE, SPLICES_PER_SOURCE,
        Security, Stream, StreamError,
    },
    udp::ReceiveBuffer,
};
use rustls::{ClientConfig, ClientConnection, RootCertStore, crypto::aws_lc_rs, version::TLS13};
use socket2::{Domain, Socket, Type};
use support::streams::{Gateway, PATIENCE, carry, connect, server, wait_for};

const TLS: Security<'_> = Security::Tls { server_name: "www.example.com" };

/// A stranger's connection from an address of his choice.
fn stranger(from: [u8; 4], to: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((from, 0)).into()).unwrap();
    socket.connect(&to.into()).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Whether the other end has closed, within a moment, whatever it said before.
fn is_closed(stream: &mut TcpStream) -> bool {
    stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    match stream.read_to_end(&mut Vec::new()) {
        Ok(_) => true,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

/// Whether the other end has said something, or closed.
fn has_answer(stream: &TcpStream) -> bool {
    wait_for(stream.as_raw_fd(), libc::POLLIN, 0)
}

/// The first message of a browser that offers these protocols.
fn hello(protocols: &[&str]) -> Vec<u8> {
    let mut config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    let name = "www.example.com".try_into().unwrap();
    let mut bytes = Vec::new();
    let mut browser = ClientConnection::new(Arc::new(config), name).unwrap();
    while browser.wants_write() {
        browser.write_tls(&mut bytes).unwrap();
    }
    bytes
}

/// Opens a stream to a gateway that has other guests, and uses it.
fn gets_through(gateway: &mut Gateway, security: Security<'_>) {
    let mut client = connect(gateway.address(), security, None);
    let mut ours = gateway.open(&mut client).unwrap();
    carry(&mut client, &mut ours, 10_000, 1_000);
}

#[test]
fn who_is_slow_is_forgotten() {
    let mut gateway = Gateway::new("127.0.0.1:0", None);
    let hello = hello(&["rove/1"]);
    let beginnings: [&[u8]; 5] = [b"", b"\0", b"\0rove/1", &hello[..5], &hello];
    let mut slow: Vec<TcpStream> = Vec::new();
    for beginning in beginnings {
        let mut stream = stranger([127, 0, 0, 1], gateway.address());
        stream.write_all(beginning).unwrap();
        slow.push(stream);
    }
    gateway.turn_until("all are there", |gateway| gateway.listener.counts() == (5, 0));
    // One of them goes on just in time, which does not help.
    gateway.ahead += HANDSHAKE_TIMEOUT.as_nanos() as u64 * 3 / 4;
    slow[1].write_all(b"ro").unwrap();
    for _ in 0..10 {
        gateway.turn();
    }
    assert_eq!(gateway.listener.counts(), (5, 0));
    let due = gateway.listener.timeout().unwrap();
    assert!(due <= gateway.clock.now() + gateway.ahead + HANDSHAKE_TIMEOUT.as_nanos() as u64 / 4);
    gateway.ahead += HANDSHAKE_TIMEOUT.as_nanos() as u64 / 4;
    gateway.turn_until("all are gone", |gateway| gateway.listener.counts() == (0, 0));
    assert_eq!(gateway.listener.timeout(), None);
    assert!(slow.iter_mut().all(is_closed));
    assert!(gateway.streams.is_empty());
}

#[test]
fn a_flood_from_one_source_leaves_room_for_others_and_for_its_own() {
    let mut gateway = Gateway::new("0.0.0.0:0", None);
    let port = gateway.address().port();
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let mut flood: Vec<TcpStream> = Vec::new();
    for count in 1..=HANDSHAKES_PER_SOURCE * 3 {
        flood.push(stranger([127, 0, 0, 9], address));
        gateway.turn();
        let (visitors, _) = gateway.listener.counts();
        assert!(visitors <= HANDSHAKES_PER_SOURCE.min(count));
    }
    gateway.turn_until("the flood is in", |gateway| {
        gateway.turn();
        gateway.listener.counts() == (HANDSHAKES_PER_SOURCE, 0)
    });
    // The newest are kept: somebody honest behind the same address gets through as well.
    assert!(flood.iter_mut().take(10).all(is_closed));
    for security in [Security::Plain, TLS] {
        let mut client = connect(address, security, None);
        let mut ours = gateway.open(&mut client).unwrap();
        carry(&mut ours, &mut client, 10_000, 1_000);
    }
}

#[test]
fn a_flood_from_everywhere_is_bounded_and_does_not_hold_the_door_shut() {
    let mut gateway = Gateway::new("0.0.0.0:0", None);
    let port = gateway.address().port();
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let mut flood: Vec<TcpStream> = Vec::new();
    for number in 0..HANDSHAKES_MAX + 64 {
        let from = [127, 1, (number / 16) as u8, 1];
        let mut stream = stranger(from, address);
        stream.write_all(b"\0rov").unwrap();
        flood.push(stream);
        gateway.turn();
        assert!(gateway.listener.counts().0 <= HANDSHAKES_MAX);
    }
    gateway
        .turn_until("the house is full", |gateway| gateway.listener.counts().0 == HANDSHAKES_MAX);
    for security in [Security::Plain, TLS] {
        let mut client = connect(address, security, None);
        let mut ours = gateway.open(&mut client).unwrap();
        carry(&mut ours, &mut client, 10_000, 1_000);
    }
    drop(flood);
    gateway.turn_until("all are gone", |gateway| gateway.listener.counts() == (0, 0));
}

#[test]
fn a_length_that_is_none_ends_the_stream_after_what_came_before() {
    for odd in [[0, 0], [5, 0xc1], [0xff, 0xff]] {
        let mut gateway = Gateway::new("127.0.0.1:0", None);
        let mut attacker = stranger([127, 0, 0, 1], gateway.address());
        attacker.write_all(b"\0rove/1\n\0\x03one\0\x03two").unwrap();
        attacker.write_all(&odd).unwrap();
        attacker.write_all(b"\0\x05three").unwrap();
        gateway.turn_until("it is handed over", |gateway| !gateway.streams.is_empty());
        let mut ours: Stream = gateway.streams.pop().unwrap();
        let (mut buffer, mut words) = (ReceiveBuffer::new(1), Vec::new());
        let error = loop {
            wait_for(ours.as_raw_fd(), libc::POLLIN, 1_000);
            match ours.receive(&mut buffer, |_, word| words.push(word.to_vec())) {
                Ok(_) => {}
                Err(error) => break error,
            }
        };
        let told = usize::from(u16::from_be_bytes(odd));
        assert!(matches!(error, StreamError::BadLength { length } if length == told), "{error}");
        assert_eq!(words, [b"one", b"two"]);
    }
}

#[test]
fn without_a_backend_foreigners_are_turned_away_and_tls_is_told_why() {
    let mut gateway = Gateway::new("127.0.0.1:0", None);
    let foreign: [(&[u8], &[u8]); 5] = [
        (b"GET / HTTP/1.1\r\n\r\n", b""),
        (b"\0rove/2\n", b""),
        (&hello(&["h2", "http/1.1"]), &[21, 3, 3, 0, 2, 2, 120]),
        (&hello(&[]), &[21, 3, 3, 0, 2, 2, 120]),
        // A record of TLS that holds no message of it.
        (&[22, 3, 1, 0, 4, 9, 9, 9, 9], &[21, 3, 3, 0, 2, 2, 120]),
    ];
    for (words, expected) in foreign {
        let mut stream = stranger([127, 0, 0, 1], gateway.address());
        stream.write_all(words).unwrap();
        gateway.turn_until("it is answered", |_| has_answer(&stream));
        assert_eq!(gateway.listener.counts(), (0, 0));
        let mut answer = Vec::new();
        let end = stream.read_to_end(&mut answer);
        assert!(end.is_ok() || answer.is_empty(), "{end:?}");
        assert_eq!(answer, expected, "{words:?}");
    }
    assert!(gateway.streams.is_empty());
    gets_through(&mut gateway, TLS);
}

#[test]
fn rove_that_offers_no_tls_1_3_is_refused() {
    let mut gateway = Gateway::new("127.0.0.1:0", None);
    // The offer of TLS 1.3 (0x0304 in the extension 43) becomes one of TLS 1.1.
    let mut old = hello(&["rove/1"]);
    let offer = [0, 43, 0, 3, 2, 3, 4];
    let at = old.windows(offer.len()).position(|bytes| bytes == offer).unwrap();
    old[at + 6] = 2;
    let mut stream = stranger([127, 0, 0, 1], gateway.address());
    stream.write_all(&old).unwrap();
    gateway.turn_until("it is answered", |_| has_answer(&stream));
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    // A fatal alert: protocol_version.
    assert_eq!(answer, [21, 3, 3, 0, 2, 2, 70]);
}

#[test]
fn a_web_server_behind_the_port_gets_every_byte() {
    let (tell, told) = mpsc::channel();
    let backend = server("127.0.0.1:0", move |mut connection| {
        let mut request = Vec::new();
        connection.read_to_end(&mut request).unwrap();
        let answer: Vec<u8> = request.iter().rev().copied().collect();
        connection.write_all(&answer).unwrap();
        connection.shutdown(Shutdown::Write).unwrap();
        tell.send(request).unwrap();
    });
    let mut gateway = Gateway::new("127.0.0.1:0", Some(backend));
    let long: Vec<u8> = (0..3_000_000u32).map(|at| (at * 7 + at / 255) as u8 | 1).collect();
    let foreign: [&[u8]; 6] = [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\0rove/2\n",
        &hello(&["h2", "http/1.1"]),
        &hello(&[]),
        &[22, 3, 1, 0, 4, 9, 9, 9, 9],
        &long,
    ];
    for words in foreign {
        let mut stream = stranger([127, 0, 0, 1], gateway.address());
        let (mut writer, sent) = (stream.try_clone().unwrap(), words.to_vec());
        let browser = std::thread::spawn(move || {
            // In two pieces, so that the gateway decides on half a message where it can.
            let (one, other) = sent.split_at(sent.len() / 2);
            writer.write_all(one).unwrap();
            std::thread::sleep(Duration::from_millis(5));
            writer.write_all(other).unwrap();
            writer.shutdown(Shutdown::Write).unwrap();
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).unwrap();
            answer
        });
        gateway.turn_until("the browser is served", |_| browser.is_finished());
        let answer = browser.join().unwrap();
        let request = told.recv_timeout(PATIENCE).unwrap();
        assert!(request == words, "{} of {} bytes", request.len(), words.len());
        assert!(answer.iter().rev().eq(words), "{} of {} bytes", answer.len(), words.len());
        gateway.turn_until("it is forgotten", |gateway| gateway.listener.counts() == (0, 0));
    }
    for security in [Security::Plain, TLS] {
        gets_through(&mut gateway, security);
    }
    assert!(told.try_recv().is_err(), "Rove was passed on");
}

#[test]
fn what_is_passed_on_is_bounded_and_ends_when_it_is_silent() {
    let backend = server("127.0.0.1:0", |mut connection| {
        let mut byte = [0];
        while connection.read(&mut byte).is_ok_and(|count| count == 1) {
            connection.write_all(&byte).unwrap();
        }
    });
    let mut gateway = Gateway::new("127.0.0.1:0", Some(backend));
    let mut browsers = Vec::new();
    for count in 1..=SPLICES_PER_SOURCE + 4 {
        let mut stream = stranger([127, 0, 0, 1], gateway.address());
        stream.write_all(b"G").unwrap();
        gateway.turn_until("it is passed on, or closed", |_| has_answer(&stream));
        assert_eq!(gateway.listener.counts(), (0, count.min(SPLICES_PER_SOURCE)));
        browsers.push(stream);
    }
    assert!(browsers[SPLICES_PER_SOURCE..].iter_mut().all(is_closed));
    for _ in 0..20 {
        gateway.turn();
    }
    gateway.ahead += SPLICE_IDLE.as_nanos() as u64 - 1_000_000_000;
    let mut talker = browsers.remove(0);
    let mut echo = [0];
    talker.read_exact(&mut echo).unwrap();
    talker.write_all(b"H").unwrap();
    let heard = std::thread::spawn(move || {
        talker.read_exact(&mut echo).unwrap();
        (talker, echo)
    });
    gateway.turn_until("it is answered", |_| heard.is_finished());
    gateway.ahead += 2_000_000_000;
    gateway.turn_until("one is left", |gateway| gateway.listener.counts() == (0, 1));
    let (talker, echo) = heard.join().unwrap();
    assert_eq!(&echo, b"H");
    drop(talker);
    gateway.turn_until("none is left", |gateway| gateway.listener.counts() == (0, 0));
}

#[test]
fn a_backend_that_is_down_ends_what_is_passed_to_it() {
    let mut gateway = Gateway::new("127.0.0.1:0", Some("127.0.0.1:1".parse().unwrap()));
    let mut stream = stranger([127, 0, 0, 1], gateway.address());
    stream.write_all(b"GET /").unwrap();
    gateway.turn_until("it is closed", |_| has_answer(&stream));
    assert_eq!(gateway.listener.counts(), (0, 0));
    assert!(is_closed(&mut stream));
    gets_through(&mut gateway, Security::Plain);
}
