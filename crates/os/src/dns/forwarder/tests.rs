use std::{net::Ipv4Addr, path::Path};

use proptest::prelude::*;

use super::message::{self, Answer, answer_len_max, encode, failure, fit, query};
use super::servers::Servers;
use crate::plan::Dns;

const HEADER: [u8; 12] = [7, 9, 1, 0, 0, 1, 0, 0, 0, 0, 0, 1];
const TYPE_A: [u8; 4] = [0, 1, 0, 1];
/// An option record, as EDNS has it behind the question (RFC 6891 section 6.1.2).
const EDNS: [u8; 11] = [0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0];

fn asks(name: &str) -> Vec<u8> {
    [&HEADER[..], &encode(name), &TYPE_A, &EDNS].concat()
}

fn judge(answer: &[u8], query: &[u8]) -> Answer {
    message::judge(answer, query.first_chunk().copied().unwrap_or_default(), query)
}

fn answers(query: &[u8], code: u8) -> Vec<u8> {
    let mut answer = query.to_vec();
    (answer[2], answer[3]) = (0x81, 0x80 | code);
    answer
}

#[test]
fn a_domain_contains_its_subdomains_and_no_name_that_ends_alike() {
    let is_under = |name: &str, domain: &str| query(&asks(name)).unwrap().is_under(&encode(domain));
    for name in ["corp.example", "CORP.example", "a.corp.example", "a.b.corp.eXample"] {
        assert!(is_under(name, "Corp.Example"), "{name}");
    }
    for name in ["example", "acorp.example", "corp.example.org", "corp", "."] {
        assert!(!is_under(name, "corp.example"), "{name}");
    }
    assert!(is_under("a.example", "."), "the root contains every name");
    // One label with a dot in it is another name.
    let label = [&HEADER[..], b"\x0ccorp.example\0", &TYPE_A].concat();
    assert!(!query(&label).unwrap().is_under(&encode("corp.example")));
}

#[test]
fn only_a_query_with_one_plain_question_is_forwarded() {
    let good = asks("www.example");
    assert!(query(&good).is_some());
    let changed = |at: usize, byte: u8| {
        let mut message = good.clone();
        message[at] = byte;
        message
    };
    for (why, message) in [
        ("a response", changed(2, 0x81)),
        ("an update (RFC 2136)", changed(2, 0x28)),
        ("no question", changed(5, 0)),
        ("two questions", changed(5, 2)),
        ("a compressed name", changed(12, 0xc0)),
        ("a label of 64 bytes", changed(12, 64)),
        ("a name without an end", good[..20].to_vec()),
        ("no class", good[..good.len() - EDNS.len() - 2].to_vec()),
    ] {
        assert!(query(&message).is_none(), "{why}");
    }
}

#[test]
fn an_answer_has_the_identifier_and_the_question() {
    let asked = asks("www.example");
    assert_eq!(judge(&answers(&asked, 0), &asked), Answer::Valid);
    assert_eq!(judge(&answers(&asks("WWW.example"), 3), &asked), Answer::Valid);
    for code in [2, 4, 5] {
        assert_eq!(judge(&answers(&asked, code), &asked), Answer::Refusal);
    }
    // A server that knows no EDNS, and repeats no question (RFC 6891 section 7).
    let mut header = HEADER;
    (header[2], header[3], header[5]) = (0x81, 0x81, 0);
    assert_eq!(judge(&header, &asked), Answer::Refusal);
    let mut other_id = answers(&asked, 0);
    other_id[1] ^= 1;
    for foreign in [other_id, answers(&asks("ww2.example"), 0), asked.clone(), vec![7, 9, 0x81]] {
        assert_eq!(judge(&foreign, &asked), Answer::Foreign);
    }
    let failed = failure(&asked, query(&asked).unwrap());
    assert_eq!(judge(&failed, &asked), Answer::Refusal);
}

#[test]
fn a_gateway_cannot_lead_queries_back_to_this_host() {
    let servers = Servers::new(Ipv4Addr::new(127, 0, 0, 77), Path::new("/nonexistent"));
    let named = ["127.0.0.77", "::ffff:127.0.0.77", "::1", "10.77.0.1", "fd77::1"];
    let dns = Dns {
        servers: named.iter().map(|server| server.parse().unwrap()).collect(),
        domains: vec!["corp.example".to_owned()],
        all: false,
    };
    servers.set(&dns);
    let asked = servers.of(query(&asks("www.corp.example")).unwrap());
    let asked: Vec<String> = asked.iter().map(|server| server.address.to_string()).collect();
    assert_eq!(asked, ["10.77.0.1:53", "[fd77::1]:53"]);
}

#[test]
fn an_answer_is_as_long_as_its_client_takes() {
    let asked = asks("www.example");
    let longest = |asked: &[u8]| answer_len_max(asked, query(asked).unwrap());
    assert_eq!(longest(&asked), 1_232);
    let end = asked.len() - EDNS.len();
    // No option record, half of one, one of 100 bytes, and a record of another type.
    for records in [&[][..], &[0, 0, 41, 4], &[0, 0, 41, 0, 100], &[0, 0, 16, 4, 208]] {
        assert_eq!(longest(&[&asked[..end], records].concat()), 512, "{records:?}");
    }
    let long = [&answers(&asked, 0)[..], &[9; 2_000]].concat();
    assert_eq!(fit(&long[..1_232], &asked, query(&asked).unwrap()).len(), 1_232);
    let short = fit(&long, &asked, query(&asked).unwrap());
    assert_eq!(judge(&short, &asked), Answer::Valid);
    assert_eq!((short[2], short[3], short.len()), (0x83, 0x80, end));
}

proptest! {
    #[test]
    fn no_message_makes_it_panic(
        message in proptest::collection::vec(any::<u8>(), 0..300),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let mut asked = asks("www.corp.example");
        let at = at.index(asked.len());
        asked[at] = byte;
        for one in [&message, &asked] {
            if let Some(question) = query(one) {
                let _ = (question.is_under(&encode("corp.example")), failure(one, question));
                let _ = answer_len_max(one, question);
            }
            let _ = (judge(one, &asked), judge(one, &message));
        }
    }
}
