//! A name server of a few lines on loopback, and answers that should not be believed.

use std::{net::UdpSocket, thread};

use proptest::prelude::*;

use super::{
    message::{Answer, Kind, answer, question},
    *,
};

const NAME: &str = "gw.example";

fn addresses(addresses: &[&str]) -> Vec<IpAddr> {
    addresses.iter().map(|address| address.parse().unwrap()).collect()
}

/// The answer of a server that knows these addresses: an alias first, as large sites have.
fn reply(asked: &[u8], known: &[IpAddr], code: u8) -> Vec<u8> {
    let aaaa = asked[asked.len() - 3] == 28;
    let mut bytes = asked.to_vec();
    bytes[2] = 0x81;
    bytes[3] = 0x80 | code;
    let mut records = vec![(5u16, vec![2, b'c', b'n', 0xc0, 12])];
    for address in known {
        match address {
            IpAddr::V4(ip) if !aaaa => records.push((1, ip.octets().to_vec())),
            IpAddr::V6(ip) if aaaa => records.push((28, ip.octets().to_vec())),
            IpAddr::V4(_) | IpAddr::V6(_) => {}
        }
    }
    bytes[7] = records.len() as u8;
    for (kind, data) in records {
        bytes.extend([0xc0, 12]);
        bytes.extend(kind.to_be_bytes());
        bytes.extend([0, 1, 0, 0, 0, 60]);
        bytes.extend((data.len() as u16).to_be_bytes());
        bytes.extend(data);
    }
    bytes
}

/// Answers `count` questions with what `make` says and ends.
fn server(count: usize, make: fn(&[u8]) -> Vec<Vec<u8>>) -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    thread::spawn(move || {
        for _ in 0..count {
            let mut room = [0; 600];
            let Ok((length, from)) = socket.recv_from(&mut room) else { return };
            for datagram in make(&room[..length]) {
                socket.send_to(&datagram, from).unwrap();
            }
        }
    });
    address
}

fn ask(servers: &[SocketAddr], milliseconds: u64) -> Result<Vec<IpAddr>, Error> {
    resolve(NAME, servers, None, Duration::from_millis(milliseconds))
}

#[test]
fn both_families_are_found_ipv6_first() {
    let at = server(2, |asked| {
        vec![reply(asked, &addresses(&["192.0.2.1", "2001:db8::1", "192.0.2.2"]), 0)]
    });
    assert_eq!(ask(&[at], 5_000).unwrap(), addresses(&["2001:db8::1", "192.0.2.1", "192.0.2.2"]));
}

#[test]
fn a_dead_server_and_a_lost_question_do_not_matter() {
    let dead = UdpSocket::bind("127.0.0.1:0").unwrap();
    // Answers only what is asked again.
    let at = server(4, |asked| {
        static SEEN: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        let again = SEEN.fetch_add(1, std::sync::atomic::Ordering::Relaxed) >= 2;
        again.then(|| reply(asked, &addresses(&["192.0.2.1"]), 0)).into_iter().collect()
    });
    let found = ask(&[dead.local_addr().unwrap(), at], 5_000).unwrap();
    assert_eq!(found, addresses(&["192.0.2.1"]));
}

#[test]
fn a_name_that_is_not_there_is_told_from_silence() {
    let at = server(2, |asked| vec![reply(asked, &[], 3)]);
    assert!(matches!(ask(&[at], 5_000), Err(Error::NameUnknown { name }) if name == NAME));
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let started = Instant::now();
    let error = ask(&[silent.local_addr().unwrap()], 200).unwrap_err();
    assert!(matches!(error, Error::NameUnanswered { .. }), "{error}");
    assert!(started.elapsed() < Duration::from_secs(2));
    assert!(matches!(ask(&[], 10), Err(Error::NameUnanswered { .. })));
}

#[test]
fn forged_and_broken_answers_are_passed_over() {
    let at = server(2, |asked| {
        let good = reply(asked, &addresses(&["192.0.2.1"]), 0);
        let forged = reply(asked, &addresses(&["192.0.2.66"]), 0);
        let mut number = forged.clone();
        number[0] ^= 1;
        let mut name = forged.clone();
        name[13] = b'x';
        let mut no_answer = forged.clone();
        no_answer[2] &= 0x7f;
        let cut = forged[..forged.len() - 1].to_vec();
        vec![number, name, no_answer, cut, Vec::new(), good]
    });
    assert_eq!(ask(&[at], 5_000).unwrap(), addresses(&["192.0.2.1"]));
}

#[test]
fn a_refusal_does_not_hide_another_servers_answer() {
    let refuses = server(2, |asked| vec![reply(asked, &[], 5)]);
    let knows = server(2, |asked| vec![reply(asked, &addresses(&["192.0.2.1"]), 0)]);
    assert_eq!(ask(&[refuses, knows], 5_000).unwrap(), addresses(&["192.0.2.1"]));
}

#[test]
fn impossible_names_are_asked_of_nobody() {
    for name in ["", ".", "a..b", "ü.example", &"x".repeat(64), &"abc.".repeat(64)] {
        let error = resolve(name, &[], None, Duration::from_secs(60)).unwrap_err();
        assert!(matches!(error, Error::NameUnknown { .. }), "{name}: {error}");
    }
    assert!(question("gw.example.", Kind::Ipv4, 1) == question("gw.example", Kind::Ipv4, 1));
}

proptest! {
    #[test]
    fn no_datagram_makes_reading_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = answer(&bytes, NAME, Kind::Ipv4, 7);
    }

    #[test]
    fn no_change_of_an_answer_makes_reading_panic(
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        length in any::<prop::sample::Index>(),
    ) {
        let asked = question(NAME, Kind::Ipv6, 7).unwrap();
        let mut bytes = reply(&asked, &addresses(&["2001:db8::1"]), 0);
        let at = at.index(bytes.len());
        bytes[at] = byte;
        bytes.truncate(length.index(bytes.len() + 1));
        if let Some(Answer::Addresses(found)) = answer(&bytes, NAME, Kind::Ipv6, 7) {
            prop_assert!((1..=ADDRESSES_MAX).contains(&found.len()));
        }
    }
}
