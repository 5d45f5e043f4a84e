use std::collections::BTreeMap;
use std::net::IpAddr;

use proptest::prelude::*;

use super::*;
use crate::wire::inner::MAX_PACKET;

const LAPTOP: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 77, 0, 2));
const PHONE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 77, 0, 3));
const SYN: u8 = 0x02;
const ACK: u8 = 0x10;

/// An IPv4 packet from one address to another with this transport, from this fragment offset on.
fn packet(from: IpAddr, to: IpAddr, protocol: u8, offset: u16, transport: &[u8]) -> Vec<u8> {
    let (IpAddr::V4(from), IpAddr::V4(to)) = (from, to) else { panic!("IPv4 alone") };
    let len = u16::try_from(20 + transport.len()).unwrap().to_be_bytes();
    let offset = (offset / 8).to_be_bytes();
    let mut packet = vec![0x45, 0, len[0], len[1], 0, 1, offset[0], offset[1], 64, protocol, 0, 0];
    packet.extend(from.octets());
    packet.extend(to.octets());
    packet.extend(transport);
    packet
}

fn udp(from: u16, to: u16) -> Vec<u8> {
    [from.to_be_bytes(), to.to_be_bytes(), [0, 8], [0, 0]].concat()
}

fn tcp(from: u16, to: u16, flags: u8) -> Vec<u8> {
    let mut header = [from.to_be_bytes(), to.to_be_bytes()].concat();
    header.extend([0, 0, 0, 1, 0, 0, 0, 1, 0x50, flags, 1, 0, 0, 0, 0, 0]);
    header
}

fn echo(kind: u8, identifier: u16) -> Vec<u8> {
    let [high, low] = identifier.to_be_bytes();
    vec![kind, 0, 0, 0, high, low, 0, 1]
}

fn read(packet: &[u8]) -> InnerPacket<'_> {
    assert!(packet.len() <= MAX_PACKET);
    InnerPacket::whole(packet).unwrap()
}

fn at(seconds: u64) -> Instant {
    Instant::from_nanos(1_000_000_000) + Duration::from_secs(seconds)
}

/// A conversation table after a packet of the laptop.
fn after(protocol: u8, transport: &[u8]) -> Answers {
    let mut answers = Answers::new(7);
    call(&mut answers, at(0), protocol, transport);
    answers
}

fn call(answers: &mut Answers, now: Instant, protocol: u8, transport: &[u8]) {
    let packet = packet(LAPTOP, PHONE, protocol, 0, transport);
    answers.expect(now, &read(&packet));
}

/// Whether the phone may send this to the laptop.
fn may(answers: &mut Answers, now: Instant, protocol: u8, transport: &[u8]) -> bool {
    let packet = packet(PHONE, LAPTOP, protocol, 0, transport);
    answers.admit(now, &read(&packet))
}

#[test]
fn a_reply_passes_and_nothing_that_begins() {
    let mut answers = after(TCP, &tcp(40_000, 22, SYN));
    assert!(may(&mut answers, at(1), TCP, &tcp(22, 40_000, SYN | ACK)));
    assert!(may(&mut answers, at(1), TCP, &tcp(22, 40_000, ACK)));
    assert!(!may(&mut answers, at(1), TCP, &tcp(22, 40_000, SYN)), "a new connection");
    assert!(!may(&mut answers, at(1), TCP, &tcp(22, 40_001, ACK)));
    assert!(!may(&mut answers, at(1), TCP, &tcp(23, 40_000, ACK)));
    assert!(!may(&mut answers, at(1), UDP, &udp(22, 40_000)));
    assert!(!may(&mut answers, at(1), ICMP, &echo(8, 9)));

    let mut answers = after(UDP, &udp(40_000, 53));
    assert!(may(&mut answers, at(1), UDP, &udp(53, 40_000)));
    assert!(!may(&mut answers, at(1), UDP, &udp(53, 40_001)));
    assert!(!may(&mut answers, at(1), UDP, &udp(0, 0)), "the port of fragments is nobody's");

    let mut answers = after(ICMP, &echo(8, 9));
    assert!(may(&mut answers, at(1), ICMP, &echo(0, 9)));
    assert!(!may(&mut answers, at(1), ICMP, &echo(0, 10)));
    assert!(!may(&mut answers, at(1), ICMP, &echo(8, 9)), "a question of its own");

    // Neither an error nor a reply from the laptop lets the phone send.
    let mut answers = after(ICMP, &echo(0, 9));
    assert!(!may(&mut answers, at(1), ICMP, &echo(8, 9)) && answers.sets.is_empty());
}

#[test]
fn an_error_passes_that_is_about_what_was_sent() {
    let mut answers = after(UDP, &udp(40_000, 53));
    let error = |about: &[u8]| [&[3, 3, 0, 0, 0, 0, 0, 0], about].concat();
    let sent = packet(LAPTOP, PHONE, UDP, 0, &udp(40_000, 53));
    assert!(may(&mut answers, at(1), ICMP, &error(&sent)));
    let never_sent = packet(LAPTOP, PHONE, UDP, 0, &udp(40_000, 54));
    assert!(!may(&mut answers, at(1), ICMP, &error(&never_sent)));
    let of_another = packet(PHONE, LAPTOP, UDP, 0, &udp(53, 40_000));
    assert!(!may(&mut answers, at(1), ICMP, &error(&of_another)));
    let redirect = [&[5, 1, 0, 0, 10, 0, 0, 9][..], &sent].concat();
    assert!(!may(&mut answers, at(1), ICMP, &redirect));
    assert!(!may(&mut answers, at(1), ICMP, &error(&sent[..10])), "nothing to judge by");
}

#[test]
fn later_fragments_of_a_reply_pass() {
    let mut answers = after(UDP, &udp(40_000, 53));
    let fragment = |protocol| packet(PHONE, LAPTOP, protocol, 1_480, &[1; 64]);
    let later = fragment(UDP);
    assert!(answers.admit(at(1), &read(&later)));
    let later = fragment(TCP);
    assert!(!answers.admit(at(1), &read(&later)));
}

#[test]
fn a_conversation_lasts_as_long_as_a_mapping_of_a_nat() {
    for (protocol, question, reply, seconds) in [
        (UDP, udp(40_000, 53), udp(53, 40_000), 300),
        (TCP, tcp(40_000, 22, SYN), tcp(22, 40_000, ACK), 124 * 60),
        (ICMP, echo(8, 9), echo(0, 9), 60),
        (47, vec![0; 8], vec![0; 8], 600),
    ] {
        let mut answers = after(protocol, &question);
        assert!(may(&mut answers, at(seconds - 1), protocol, &reply), "and this renews it");
        assert!(may(&mut answers, at(2 * seconds - 2), protocol, &reply));
        assert!(!may(&mut answers, at(3 * seconds), protocol, &reply), "{protocol}");
    }
}

#[test]
fn many_conversations_take_no_more_room_than_allowed_and_the_latest_stay() {
    let mut answers = Answers::new(7);
    for number in 0..60_000u16 {
        call(&mut answers, at(0), UDP, &udp(1 + number, 53));
        assert!(may(&mut answers, at(0), UDP, &udp(53, 1 + number)), "{number}");
    }
    assert_eq!(answers.sets.len() * WAYS, ANSWERS_MAX);
    let still = (0..60_000u16).filter(|n| may(&mut answers, at(0), UDP, &udp(53, 1 + n))).count();
    assert!(still <= ANSWERS_MAX, "{still}");
    assert!(still > ANSWERS_MAX * 9 / 10, "{still}: places stay empty");
}

#[test]
fn room_is_made_of_what_has_ended() {
    let mut answers = Answers::new(7);
    for number in 0..20_000u16 {
        // One a second, each good for a minute.
        call(&mut answers, at(u64::from(number)), ICMP, &echo(8, number));
    }
    assert!(answers.sets.len() * WAYS <= ANSWERS_MAX / 4, "{} sets", answers.sets.len());
}

/// Input of the property: the sender, protocol, ports, and time.
type Said = (bool, bool, u16, u16, u8, u64);

proptest! {
    /// The phone may send a packet only if the laptop sent its counterpart, and not too long ago.
    /// While there is room, the converse holds too.
    #[test]
    fn nothing_passes_that_nobody_asked_for(
        said in prop::collection::vec(
            (any::<bool>(), any::<bool>(), 1u16..5, 1u16..5, any::<u8>(), 0u64..400), 0..200,
        ),
    ) {
        let mut answers = Answers::new(7);
        let mut asked: BTreeMap<(bool, u16, u16), u64> = BTreeMap::new();
        let mut now = 0;
        let said: Vec<Said> = said;
        for (is_laptop, is_tcp, from, to, flags, pause) in said {
            now += pause;
            let (protocol, lasts) = if is_tcp { (TCP, 124 * 60) } else { (UDP, 300) };
            let of = |from, to| if is_tcp { tcp(from, to, flags) } else { udp(from, to) };
            if is_laptop {
                call(&mut answers, at(now), protocol, &of(from, to));
                asked.insert((is_tcp, from, to), now);
                continue;
            }
            let passed = may(&mut answers, at(now), protocol, &of(from, to));
            let known = asked.get_mut(&(is_tcp, to, from)).filter(|then| now - **then < lasts);
            let begins = is_tcp && flags & (SYN | ACK) == SYN;
            prop_assert_eq!(passed, known.is_some() && !begins);
            if let Some(then) = known.filter(|_| passed) {
                *then = now;
            }
        }
    }

    /// No packet of a hostile client reaches a host that did not contact it.
    #[test]
    fn a_reply_goes_to_whom_asked_alone(
        to: [u8; 4],
        protocol in prop_oneof![Just(ICMP), Just(TCP), Just(UDP), any::<u8>()],
        is_later_fragment: bool,
        kind in prop_oneof![Just(0u8), Just(3), Just(8), any::<u8>()],
        bytes in prop::collection::vec(any::<u8>(), 0..20),
        quotes: bool,
    ) {
        prop_assume!(IpAddr::from(to) != LAPTOP);
        let mut answers = after(protocol, &tcp(40_000, 53, ACK));
        let sent = packet(LAPTOP, PHONE, protocol, 0, &tcp(40_000, 53, ACK));
        let mut transport = [&[kind, 0], &bytes[..]].concat();
        if quotes {
            transport.resize(8, 0);
            transport.extend(&sent);
        }
        let offset = if is_later_fragment { 1_480 } else { 0 };
        let packet = packet(PHONE, to.into(), protocol, offset, &transport);
        prop_assert!(!answers.admit(at(1), &read(&packet)));
    }
}
