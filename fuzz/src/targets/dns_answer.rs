//! Answers of name servers, which any network can forge.
//!
//! The input is `kind of address 1 | datagram`. The datagram answers the query with the number that
//! it begins with.

use rove_os::fuzz::{dns_answer, dns_question};

use crate::Target;

/// The target.
pub const TARGET: Target = Target { name: "dns_answer", run, seeds, mutations: 100_000 };

const NAME: &str = "vpn.example.org";
/// Addresses that are taken from one answer.
const ADDRESSES_MAX: usize = 16;

fn run(data: &[u8]) {
    let Some((kind, datagram)) = data.split_first() else { return };
    let v6 = kind & 1 == 1;
    let number = datagram.first_chunk().map_or(0, |number| u16::from_be_bytes(*number));
    let Some(answer) = dns_answer(datagram, NAME, v6, number) else { return };
    let asked = dns_question(NAME, v6, number).expect("a name that can be asked for");
    let echoed = datagram.get(12..asked.len()).expect("an answer repeats its question");
    assert!(echoed.eq_ignore_ascii_case(&asked[12..]), "an answer to another question");
    assert!(dns_answer(datagram, NAME, v6, number.wrapping_add(1)).is_none(), "another number");
    assert!(dns_answer(datagram, NAME, !v6, number).is_none(), "another kind");
    let Ok(addresses) = answer else { return };
    assert!(addresses.len() <= ADDRESSES_MAX, "{} addresses", addresses.len());
    for (place, address) in addresses.iter().enumerate() {
        assert_eq!(address.is_ipv6(), v6);
        assert!(!addresses[..place].contains(address), "{address} twice");
    }
}

fn seeds() -> Vec<Vec<u8>> {
    /// A name that stands in the question.
    const POINTER: [u8; 2] = [0xc0, 12];
    let record = |name: &[u8], kind: u8, data: &[u8]| {
        let length = u8::try_from(data.len()).unwrap_or(u8::MAX);
        [name, &[0, kind, 0, 1, 0, 0, 0, 60, 0, length], data].concat()
    };
    let answer = |v6: bool, flags: [u8; 2], records: &[Vec<u8>]| {
        let mut datagram = dns_question(NAME, v6, 0x1234).unwrap_or_default();
        datagram[2..4].copy_from_slice(&flags);
        datagram[7] = u8::try_from(records.len()).unwrap_or(u8::MAX);
        [&[u8::from(v6)], &datagram[..], &records.concat()].concat()
    };
    let fine = [0x81, 0x80];
    let v4 = |last: u8| record(&POINTER, 1, &[198, 51, 100, last]);
    let v6 = record(&POINTER, 28, &[0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    let alias = record(&POINTER, 5, b"\x04edge\x07example\x00");
    let named = record(b"\x04edge\x07example\x00", 1, &[198, 51, 100, 9]);
    let many: Vec<Vec<u8>> = (0..20).map(v4).collect();
    vec![
        answer(false, fine, &[v4(1)]),
        answer(false, fine, &[v4(1), v4(1), v4(2)]),
        answer(false, fine, &[alias, named]),
        answer(false, fine, &many),
        answer(true, fine, &[v6.clone(), v4(1)]),
        answer(true, fine, &[]),
        answer(false, [0x81, 0x83], &[]),
        answer(false, [0x81, 0x82], &[]),
        answer(false, [0x83, 0x80], &[v4(1)]),
        answer(true, fine, &[record(b"\x3f", 28, &[0; 16]), v6]),
    ]
}
