//! Answers of the kernel: links, addresses and routes, and those of generic families.
//!
//! The input is `which 1 | datagram`: an even number for routing, an odd one for a generic family.

use rove_os::fuzz::{generic_answer, route_messages};

use crate::Target;

/// The target.
pub const TARGET: Target = Target { name: "netlink", run, seeds, mutations: 100_000 };

/// The least bytes of a message, and of an attribute.
const MESSAGE_MIN: usize = 16;
const ATTRIBUTE_MIN: usize = 4;
/// The question that is answered, and the family that answers.
const SEQUENCE: u32 = 9;
const FAMILY: u16 = 28;

fn run(data: &[u8]) {
    let Some((which, datagram)) = data.split_first() else { return };
    if which & 1 == 0 {
        let understood = route_messages(datagram);
        assert!(understood <= datagram.len() / MESSAGE_MIN, "{understood} messages");
        return;
    }
    let (messages, attributes, signal) = generic_answer(datagram, SEQUENCE, FAMILY);
    assert!(messages <= datagram.len() / MESSAGE_MIN, "{messages} messages");
    assert!(attributes <= datagram.len() / ATTRIBUTE_MIN, "{attributes} attributes");
    assert!(signal.is_none_or(|dbm| (-127..0).contains(&dbm)), "a signal of {signal:?} dBm");
}

fn seeds() -> Vec<Vec<u8>> {
    let attribute = |kind: u16, value: &[u8]| {
        let length = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
        let mut bytes = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
        bytes.extend_from_slice(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    };
    let message = |kind: u16, body: &[u8]| {
        let length = u32::try_from(16 + body.len()).unwrap_or(0);
        let mut bytes = length.to_ne_bytes().to_vec();
        bytes.extend([kind.to_ne_bytes(), [2, 0]].concat());
        bytes.extend([SEQUENCE.to_ne_bytes(), 7u32.to_ne_bytes()].concat());
        bytes.extend_from_slice(body);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    };
    let seed = |which: u8, messages: &[Vec<u8>]| [&[which], &messages.concat()[..]].concat();
    // A link of Ethernet, an address, a default route (linux/rtnetlink.h).
    let link = [
        &[0, 0, 1, 0, 3, 0, 0, 0, 0x43, 0x10, 1, 0, 0, 0, 0, 0][..],
        &attribute(3, b"eth0\0"),
        &attribute(4, &1_500u32.to_ne_bytes()),
        &attribute(16, &[6]),
    ]
    .concat();
    let address = [
        &[2, 24, 0x80, 0, 3, 0, 0, 0][..],
        &attribute(1, &[192, 0, 2, 7]),
        &attribute(2, &[192, 0, 2, 7]),
        &attribute(3, b"eth0\0"),
    ]
    .concat();
    let route = [
        &[2, 0, 0, 0, 254, 3, 0, 1, 0, 0, 0, 0][..],
        &attribute(5, &[192, 0, 2, 1]),
        &attribute(4, &3u32.to_ne_bytes()),
        &attribute(6, &100u32.to_ne_bytes()),
    ]
    .concat();
    // A Wi-Fi station (nl80211): interface, address, and known properties.
    let station = [
        &[19, 1, 0, 0][..],
        &attribute(3, &3u32.to_ne_bytes()),
        &attribute(21 | 0x8000, &[attribute(7, &[0xb2]), attribute(13, &[0xb0])].concat()),
    ]
    .concat();
    vec![
        seed(0, &[message(16, &link), message(20, &address), message(24, &route)]),
        seed(0, &[message(16, &link)]),
        seed(0, &[message(20, &address)]),
        seed(0, &[message(24, &route), message(3, &[0; 4])]),
        seed(0, &[message(2, &(-19i32).to_ne_bytes())]),
        seed(1, &[message(FAMILY, &station), message(3, &[0; 4])]),
        seed(1, &[message(FAMILY, &station), message(FAMILY, &station)]),
        seed(1, &[message(2, &(-2i32).to_ne_bytes())]),
    ]
}
