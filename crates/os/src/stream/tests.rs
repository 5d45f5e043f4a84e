//! Framing and CONNECT against any bytes, cut anywhere. Streams themselves are tested from
//! outside, in `tests/streams.rs`.

use proptest::prelude::*;

use super::{
    StreamError,
    carrier::cut,
    frame::{self, DATAGRAM_LEN_MAX, FRAME_LEN_MAX},
    proxy::{self, Basic, Exchange, Proxy},
};
use crate::{
    error::Error,
    http::{self, ANSWER_LEN_MAX, Answer},
};

fn frames(datagrams: &[Vec<u8>]) -> Vec<u8> {
    let frame = |datagram: &Vec<u8>| {
        let length = frame::length(datagram.len()).unwrap();
        [&length[..], datagram].concat()
    };
    datagrams.iter().flat_map(frame).collect()
}

/// What comes out when `bytes` arrive in pieces of these lengths, over and over.
fn reassemble(bytes: &[u8], pieces: &[usize]) -> (Vec<Vec<u8>>, Result<(), StreamError>) {
    let (mut datagrams, mut partial) = (Vec::new(), Vec::new());
    let (mut rest, mut lengths) = (bytes, pieces.iter().cycle());
    while !rest.is_empty() {
        let (now, later) = rest.split_at(rest.len().min(*lengths.next().unwrap()));
        let mut room = vec![0; partial.len()];
        room.extend_from_slice(now);
        let done = cut(&mut partial, &mut room, &mut |datagram: &mut [u8]| {
            datagrams.push(datagram.to_vec());
        });
        if done.is_err() {
            return (datagrams, done);
        }
        assert!(partial.len() < FRAME_LEN_MAX, "{} bytes are held", partial.len());
        rest = later;
    }
    (datagrams, Ok(()))
}

#[test]
fn lengths_that_no_datagram_has_are_refused_both_ways() {
    for length in [0, DATAGRAM_LEN_MAX + 1, 65_535, 65_536 + 1] {
        assert_eq!(frame::length(length), None);
    }
    for length in [0, DATAGRAM_LEN_MAX + 1, 65_535] {
        let mut bytes = frames(&[vec![7; 3]]);
        bytes.extend_from_slice(&(length as u16).to_be_bytes());
        let (before, error) = reassemble(&bytes, &[1]);
        assert_eq!(before, [vec![7; 3]]);
        assert!(
            matches!(error, Err(StreamError::BadLength { length: told }) if told == length),
            "{error:?}"
        );
    }
    assert_eq!(frame::length(DATAGRAM_LEN_MAX), Some([0x05, 0xc0]));
}

proptest! {
    #[test]
    fn frames_come_out_as_they_went_in_however_they_are_cut(
        datagrams in prop::collection::vec(
            prop::collection::vec(any::<u8>(), 1..=DATAGRAM_LEN_MAX), 0..20),
        pieces in prop::collection::vec(1usize..3_000, 1..10),
    ) {
        let (arrived, error) = reassemble(&frames(&datagrams), &pieces);
        prop_assert_eq!(arrived, datagrams);
        prop_assert!(error.is_ok());
    }

    #[test]
    fn any_bytes_mean_the_same_however_they_are_cut(
        bytes in prop::collection::vec(
            prop_oneof![4 => Just(0u8), 1 => any::<u8>()], 0..2_000),
        pieces in prop::collection::vec(1usize..100, 1..10),
    ) {
        let (whole, whole_end) = reassemble(&bytes, &[usize::MAX]);
        let (cut, cut_end) = reassemble(&bytes, &pieces);
        prop_assert_eq!(whole, cut);
        prop_assert_eq!(format!("{whole_end:?}"), format!("{cut_end:?}"));
    }

    #[test]
    fn more_bytes_never_change_an_answer_that_is_complete(
        bytes in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..300),
            "HTTP/1\\.[01x] [0-9]{2,4}( [ -~]{0,9})?(\r\n[ -~]{0,20}){0,4}\r\n\r\n[a-z]{0,9}"
                .prop_map(String::into_bytes),
        ],
    ) {
        let mut settled: Option<Result<Option<Answer>, &str>> = None;
        for end in 0..=bytes.len() {
            let now = http::read(&bytes[..end]);
            if let Some(before) = &settled {
                prop_assert_eq!(before, &now);
            } else if now != Ok(None) {
                settled = Some(now);
            }
        }
    }

    #[test]
    fn nothing_in_a_request_begins_another_line(
        target in prop_oneof![".{0,40}", "[a-z.]{1,20}:[0-9]{1,6}"],
        user in ".{0,20}",
        password in ".{0,20}",
        is_known in any::<bool>(),
    ) {
        let authorization = is_known.then_some(Basic { user: &user, password: &password });
        let address = "127.0.0.1:1".parse().unwrap();
        let proxy = Proxy { address, target: &target, authorization };
        match proxy::request(&proxy) {
            Ok(bytes) => {
                let text = String::from_utf8(bytes).unwrap();
                let lines: Vec<_> = text.split("\r\n").collect();
                prop_assert_eq!(lines.len(), if is_known { 5 } else { 4 });
                prop_assert_eq!(lines[0], format!("CONNECT {target} HTTP/1.1"));
                prop_assert_eq!(lines[1], format!("Host: {target}"));
                prop_assert_eq!(&lines[lines.len() - 2..], &["", ""]);
                prop_assert!(!text.contains(|c: char| c.is_control() && !"\r\n".contains(c)));
            }
            Err(error) => {
                let is_told = matches!(error, Error::BadProxy { .. });
                prop_assert!(is_told, "{}", error);
            }
        }
    }
}

#[test]
fn an_answer_is_read_strictly() {
    let read = |text: &str| http::read(text.as_bytes());
    let answer = |status, reason: &str, length| {
        Ok(Some(Answer { status, reason: reason.to_owned(), length }))
    };
    assert_eq!(read("HTTP/1.1 200 OK\r\n\r\n"), answer(200, "OK", 19));
    assert_eq!(read("HTTP/1.0 200\r\n\r\n"), answer(200, "", 16));
    assert_eq!(read("HTTP/1.1 200 OK\r\nVia: x\r\n\r\nmore"), answer(200, "OK", 27));
    assert_eq!(read("HTTP/1.1 407 \u{1b}[2JWho?\r\n\r\n"), answer(407, "[2JWho?", 25));
    for odd in ["HTTP/1.1 99 x", "HTTP/1.1 600 x", "HTTP/1.1 2000", "HTTP/1.x 200 x", "HTTP/1.1200"]
    {
        assert_eq!(read(&format!("{odd}\r\n\r\n")), Err("its answer has no status"), "{odd}");
    }
    for other in ["SSH-2.0-x\r\n", "H2", "\0", "HTTP/2 200\r\n\r\n"] {
        assert_eq!(read(other), Err("its answer does not begin with HTTP/1"), "{other}");
    }
    let endless = format!("HTTP/1.1 200 OK\r\nX: {}", "y".repeat(ANSWER_LEN_MAX));
    assert_eq!(read(&endless), Err("its answer does not end"));
    assert_eq!(read(&endless[..ANSWER_LEN_MAX - 1]), Ok(None));
}

#[test]
fn a_password_is_shown_nowhere() {
    let authorization = Some(Basic { user: "ann", password: "secret" });
    let target = "vpn.example:443";
    let proxy = Proxy { address: "127.0.0.1:1".parse().unwrap(), target, authorization };
    let exchange = Exchange::new(&proxy).unwrap();
    let shown = format!("{proxy:?} {exchange:?}");
    assert!(!shown.contains("secret") && !shown.contains("YW5u"), "{shown}");
    let request = String::from_utf8(proxy::request(&proxy).unwrap()).unwrap();
    // RFC 7617, section 2: base64 of "ann:secret".
    assert!(request.contains("Proxy-Authorization: Basic YW5uOnNlY3JldA==\r\n"), "{request}");
}
