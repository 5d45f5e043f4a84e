//! The first bytes of a connection to the gateway's TCP port: Rove's preface, TLS that offers
//! `rove/1`, or data for the web server behind it.
//!
//! The input is `bytes that arrive at once 1 | bytes`; zero means all at once.

use rove_os::fuzz::{Taken, first_bytes, true_hello};
use rove_os::stream::PREFACE;

use super::in_pieces;
use crate::Target;

/// The target. A TLS handshake costs some 100 us, hence the few mutations.
pub const TARGET: Target = Target { name: "first_bytes", run, seeds, mutations: 5_000 };

/// The type of a TLS record with a handshake message.
const HANDSHAKE: u8 = 22;

fn run(data: &[u8]) {
    let (bytes, pieces) = in_pieces(data);
    let whole = first_bytes(&[bytes]);
    let taken = first_bytes(&pieces);
    // TLS may wait for more bytes before it reads the data behind the first message.
    let waits = |taken| bytes[0] == HANDSHAKE && matches!(taken, Taken::Unclear | Taken::Gone);
    let same = taken == whole || (waits(taken) && waits(whole));
    assert!(same, "cut in pieces it is {taken:?}, whole {whole:?}");
    // Nobody completes a handshake of TLS without the server's answer.
    assert_eq!(taken == Taken::Rove, bytes.starts_with(&PREFACE));
    if PREFACE.starts_with(bytes) && bytes != PREFACE {
        assert_eq!(taken, Taken::Unclear);
    } else if bytes[0] != HANDSHAKE && bytes[0] != PREFACE[0] {
        assert_eq!(taken, Taken::Foreign);
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let seed = |at_once: u8, bytes: &[u8]| [&[at_once], bytes].concat();
    let ours = true_hello("vpn.example.org");
    let by_address = true_hello("192.0.2.1");
    // The same offer of another protocol, and a record that promises more than comes.
    let other: Vec<u8> = replaced(&ours, b"rove/1", b"http/1");
    let mut long = ours.clone();
    long[3..5].copy_from_slice(&16_384u16.to_be_bytes());
    vec![
        seed(0, &PREFACE),
        seed(3, &PREFACE),
        seed(0, &[&PREFACE[..], &[0, 3, 1, 2, 3]].concat()),
        seed(0, &ours),
        seed(100, &ours),
        seed(0, &by_address),
        seed(0, &other),
        seed(0, &long),
        seed(0, &[&ours[..], &[20, 3, 3, 0, 1, 1], &[23, 3, 3, 0, 4, 1, 2, 3, 4]].concat()),
        seed(0, b"GET / HTTP/1.1\r\nHost: vpn.example.org\r\n\r\n"),
        seed(0, b"SSH-2.0-OpenSSH_9.9\r\n"),
        seed(1, &[22, 3, 1, 0, 4, 1, 0, 0, 0]),
        Vec::new(),
    ]
}

fn replaced(bytes: &[u8], old: &[u8], new: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    if let Some(at) = bytes.windows(old.len()).position(|part| part == old) {
        bytes[at..at + old.len()].copy_from_slice(new);
    }
    bytes
}
