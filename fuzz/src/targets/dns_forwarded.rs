//! Queries of any program of the host, and answers of name servers to them, as the DNS forwarder of
//! a split tunnel passes them on.
//!
//! The input is `length of the query 2 | query | answer`. The query is sent to the server with the
//! identifier that the answer begins with.

use rove_os::fuzz::{Forwarded, dns_forwarded, dns_passed_on};

use crate::Target;

/// The target.
pub const TARGET: Target = Target { name: "dns_forwarded", run, seeds, mutations: 100_000 };

/// The tunnel's domain.
const DOMAIN: &str = "corp.example";
/// Bytes of an answer that every client takes (RFC 1035 section 2.3.4).
const SHORT: usize = 512;
/// Where the question begins.
const HEADER_LEN: usize = 12;

fn run(data: &[u8]) {
    let Some((length, rest)) = data.split_first_chunk() else { return };
    let length = usize::from(u16::from_be_bytes(*length)).min(rest.len());
    let (query, answer) = rest.split_at(length);
    let Some(Forwarded { is_inside, failure, answer_len_max }) = dns_forwarded(query, DOMAIN)
    else {
        assert!(dns_passed_on(answer, [0; 2], query).is_none(), "an answer to no query");
        return;
    };
    let labels = labels(query);
    let is_under = labels.ends_with(&[b"corp".to_vec(), b"example".to_vec()]);
    assert_eq!(is_inside, is_under, "{labels:?}");
    assert!((SHORT..=usize::from(u16::MAX)).contains(&answer_len_max));
    let failed = dns_passed_on(&failure, [query[0], query[1]], query);
    assert_eq!(failed, Some(Err(failure)), "a failure is a refusal, and short");

    let Some(id) = answer.first_chunk() else { return };
    let Some(passed_on) = dns_passed_on(answer, *id, query) else { return };
    assert!(dns_passed_on(answer, [id[0], !id[1]], query).is_none(), "another identifier");
    if let Ok(valid) = &passed_on {
        // The low byte of the type. Letters that differ in case differ in bit 5.
        let at = HEADER_LEN + labels.iter().map(|label| 1 + label.len()).sum::<usize>() + 2;
        for bit in [0x01, 0x20] {
            let mut other = query.to_vec();
            other[at] ^= bit;
            assert!(dns_passed_on(answer, *id, &other).is_none(), "another question");
        }
        assert_eq!(dns_passed_on(valid, *id, query), Some(Ok(valid.clone())), "still an answer");
    }
    let sent = passed_on.unwrap_or_else(|refusal| refusal);
    assert!(sent.len() <= answer_len_max, "{} of {answer_len_max} bytes", sent.len());
    assert!(sent == answer || sent[2] & 2 != 0, "a shorter answer says so");
}

/// The labels of the first name, in small letters.
fn labels(message: &[u8]) -> Vec<Vec<u8>> {
    let (mut labels, mut left) = (Vec::new(), &message[HEADER_LEN..]);
    while let Some((&length, rest)) = left.split_first().filter(|(length, _)| **length > 0) {
        let (label, rest) = rest.split_at(length.into());
        labels.push(label.to_ascii_lowercase());
        left = rest;
    }
    labels
}

fn seeds() -> Vec<Vec<u8>> {
    /// An option record: 1,232 bytes are taken.
    const EDNS: [u8; 11] = [0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0];
    const INSIDE: &[u8] = b"\x03www\x04Corp\x07example\x00";
    let header = |flags: [u8; 2], questions: u8| [7, 9, flags[0], flags[1], 0, questions];
    let message = |head: [u8; 6], name: &[u8], more: &[u8]| {
        [&head[..], &[0; 6], name, &[0, 1, 0, 1], more].concat()
    };
    let asks = |name: &[u8]| message(header([1, 0], 1), name, &EDNS);
    let input = |query: &[u8], answer: &[u8]| {
        let length = u16::try_from(query.len()).unwrap_or(u16::MAX).to_be_bytes();
        [&length, query, answer].concat()
    };
    let answers = |code: u8, more: &[u8]| message(header([0x81, 0x80 | code], 1), INSIDE, more);
    let inside = asks(INSIDE);
    vec![
        input(&inside, &answers(0, &EDNS)),
        input(&inside, &answers(0, &[7; 1_300])),
        input(&message(header([1, 0], 1), INSIDE, &[]), &answers(3, &[7; 600])),
        input(&inside, &answers(2, &[7; 1_300])),
        // No question is repeated (RFC 6891 section 7).
        input(&inside, &[&header([0x81, 0x81], 0)[..], &[0; 6]].concat()),
        input(&asks(b"\x08evilcorp\x07example\x00"), &[]),
        input(&asks(b"\x0ccorp.example\x00"), &[]),
        input(&asks(b"\x00"), &[]),
    ]
}
