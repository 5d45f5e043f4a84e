//! What the allow-list allows, and what nothing allows.

use proptest::prelude::*;

use super::*;
use crate::wire::control::Prefix;
use crate::wire::inner::{TCP, UDP};

const CODING: Coding = Coding::LZ4;

fn rule(address: [u8; 4], bits: u8, port: Option<u16>) -> Rule {
    let network = Prefix { address: address.into(), bits };
    Rule { end: End { network, port }, coding: CODING }
}

fn ends(near: ([u8; 4], u16), far: ([u8; 4], u16)) -> Ends {
    Ends { near: (near.0.into(), near.1), far: (far.0.into(), far.1), protocol: TCP }
}

#[test]
fn only_ends_that_the_user_named_are_compressed() {
    let allowed = Allowed::new(&[rule([192, 0, 2, 0], 24, Some(1_883))]);
    let device = ([10, 0, 0, 1], 40_000);
    assert_eq!(allowed.coding(&ends(device, ([192, 0, 2, 9], 1_883))), Some(CODING));
    assert_eq!(allowed.coding(&ends(([192, 0, 2, 9], 1_883), device)), Some(CODING), "far side");
    assert_eq!(allowed.coding(&ends(device, ([192, 0, 2, 9], 1_884))), None, "another port");
    assert_eq!(allowed.coding(&ends(device, ([192, 0, 3, 9], 1_883))), None, "another network");
    assert!(Allowed::default().is_empty());
    assert_eq!(Allowed::default().coding(&ends(device, ([192, 0, 2, 9], 1_883))), None);
}

#[test]
fn no_rule_allows_a_web_port() {
    for port in WEB_PORTS {
        let allowed =
            Allowed::new(&[rule([192, 0, 2, 9], 32, Some(port)), rule([10, 0, 0, 0], 8, None)]);
        for (near, far) in [(40_000, port), (port, 40_000)] {
            let ends = ends(([10, 0, 0, 1], near), ([192, 0, 2, 9], far));
            assert_eq!(allowed.coding(&ends), None, "{near} to {far}");
            assert_eq!(allowed.coding(&Ends { protocol: UDP, ..ends }), None, "{near} to {far}");
        }
    }
}

#[test]
fn a_rule_for_everybody_names_nobody() {
    let all = Allowed::new(&[rule([0, 0, 0, 0], 0, None), rule([0, 0, 0, 0], 1, None)]);
    assert!(all.is_empty());
    let many = vec![rule([10, 0, 0, 0], 8, None); RULES_MAX + 1];
    assert_eq!(Allowed::new(&many).rules().len(), RULES_MAX);
}

#[test]
fn what_begins_like_the_web_is_known_however_little_of_it_there_is() {
    let shown: [&[u8]; 13] = [
        b"GET / HTTP/1.1\r\n",
        b"PROPFIND /dav HTTP/1.1",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n",
        b"P",
        b"HTT",
        &[22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3],
        &[23, 3, 3, 0x48, 0],
        &[22],
        &[22, 3],
        &[22, 0xfe, 0xfd, 0, 0],
        &[0xc3, 0, 0, 0, 1, 8],
        &[0xd3, 0x6b, 0x33, 0x43, 0xcf, 8],
    ];
    for payload in shown {
        assert!(shows_web(payload), "{payload:?}");
    }
    let others: [&[u8]; 10] = [
        b"",
        b"{\"temperature\":21.5}",
        b"GETTER value",
        b"get the text of a file", // methods are in capitals (RFC 9110, 9.1)
        b"EHLO example.net\r\n",
        &[0x10, 0x1b, 0, 4, b'M', b'Q', b'T', b'T', 4],
        &[0x40, 1, 0x7d, 0x34],
        &[22, 4, 1, 2, 0],
        &[23, 3, 3, 0x48, 1],
        &[0xc3, 0, 0, 0, 9, 8],
    ];
    for payload in others {
        assert!(!shows_web(payload), "{payload:?}");
    }
}

proptest! {
    /// A beginning of what shows the web shows it too: cutting a stream elsewhere hides nothing.
    #[test]
    fn no_cut_hides_the_web(which in 0..HTTP.len(), cut in 1usize..12) {
        let start = HTTP[which];
        prop_assert!(shows_web(&start[..cut.min(start.len())]));
    }
}
