use proptest::prelude::*;

use super::message::{Answer, encode, failure, judge, query};

const HEADER: [u8; 12] = [7, 9, 1, 0, 0, 1, 0, 0, 0, 0, 0, 1];
const TYPE_A: [u8; 4] = [0, 1, 0, 1];
/// An option record, as EDNS has it behind the question (RFC 6891 section 6.1.2).
const EDNS: [u8; 11] = [0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0];

fn asks(name: &str) -> Vec<u8> {
    [&HEADER[..], &encode(name), &TYPE_A, &EDNS].concat()
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
            }
            let _ = (judge(one, &asked), judge(one, &message));
        }
    }
}
