//! The parts of a DNS message that the forwarder reads: identifier, flags and question (RFC 1035
//! section 4.1).
//!
//! It refuses names that are compressed, because the first name of a message cannot be.

use std::borrow::Cow;

/// Bytes of the identifier, which is the first field.
pub(crate) const ID_LEN: usize = 2;
/// Bytes of the longest message (RFC 1035 section 4.2.2).
pub(super) const MESSAGE_LEN_MAX: usize = u16::MAX as usize;
const HEADER_LEN: usize = 12;
/// Bytes of a UDP answer that any client can take (RFC 1035 section 2.3.4).
const ANSWER_LEN_MIN: usize = 512;
/// How an option record begins: the root's name and its type. The bytes that the client can take
/// follow (RFC 6891 section 6.1.2).
const OPTION_RECORD: [u8; 3] = [0, 0, 41];
/// Bytes of a name with its length bytes (RFC 1035 section 2.3.4).
const NAME_LEN_MAX: usize = 255;
const LABEL_LEN_MAX: u8 = 63;
/// Behind the name: type and class.
const TYPE_AND_CLASS: usize = 4;
/// The byte of flags that begins with "this is a response"; its other bits here.
const RESPONSE: u8 = 0x80;
const OPCODE: u8 = 0x78;
const TRUNCATED: u8 = 0x02;
const RECURSION_DESIRED: u8 = 0x01;
/// The second byte of flags.
const RECURSION_AVAILABLE: u8 = 0x80;
const CODE: u8 = 0x0f;
pub(super) const SERVER_FAILURE: u8 = 2;
const NOT_IMPLEMENTED: u8 = 4;
const REFUSED: u8 = 5;

/// The one question of a query.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Question<'a> {
    /// Labels, each behind its length, and the zero byte at the end.
    name: &'a [u8],
    /// The same with type and class.
    whole: &'a [u8],
}

/// The question of a query; `None` if the message is none, or has not exactly one question.
pub(crate) fn query(message: &[u8]) -> Option<Question<'_>> {
    let [_, _, flags, _, 0, 1, ..] = message else { return None };
    (flags & (RESPONSE | OPCODE) == 0).then(|| question(message)).flatten()
}

fn question(message: &[u8]) -> Option<Question<'_>> {
    let rest = message.get(HEADER_LEN..)?;
    let mut end = 0;
    loop {
        let length = *rest.get(end)?;
        end += 1;
        if length == 0 {
            break;
        }
        end += usize::from(length);
        if length > LABEL_LEN_MAX || end >= NAME_LEN_MAX {
            return None;
        }
    }
    Some(Question { name: &rest[..end], whole: rest.get(..end + TYPE_AND_CLASS)? })
}

impl Question<'_> {
    /// Whether the name is `domain` ([`encode`]) or below it.
    pub(crate) fn is_under(&self, domain: &[u8]) -> bool {
        let mut at = 0;
        while self.name.len() - at > domain.len() {
            at += 1 + usize::from(self.name[at]);
        }
        self.name[at..].eq_ignore_ascii_case(domain)
    }

    /// Whether a server repeated it, perhaps with other letters' case in the name. The bytes of a
    /// type are no letters: 65 (HTTPS) is not 97.
    fn is_echoed_by(self, echoed: Question<'_>) -> bool {
        let length = self.name.len();
        self.name.eq_ignore_ascii_case(echoed.name)
            && self.whole[length..] == echoed.whole[length..]
    }
}

/// A domain as the names of messages are written.
pub(crate) fn encode(domain: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(domain.len() + 2);
    for label in domain.trim_end_matches('.').split('.').filter(|label| !label.is_empty()) {
        bytes.push(label.len().min(LABEL_LEN_MAX.into()) as u8);
        bytes.extend(label.bytes().take(LABEL_LEN_MAX.into()));
    }
    bytes.push(0);
    bytes
}

/// What a server's message means for a query.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    /// It answers the query.
    Valid,
    /// It answers that the server cannot or will not say: another server may.
    Refusal,
    /// It answers something else.
    Foreign,
}

/// Judges a message from the server that was asked `query` with this identifier.
pub(crate) fn judge(message: &[u8], id: [u8; ID_LEN], query: &[u8]) -> Answer {
    let [id0, id1, flags, more, questions @ ..] = message else { return Answer::Foreign };
    if id != [*id0, *id1] || flags & RESPONSE == 0 {
        return Answer::Foreign;
    }
    let code = more & CODE;
    let is_same = match (question(query), question(message)) {
        (Some(asked), Some(echoed)) => asked.is_echoed_by(echoed),
        (Some(_), None) | (None, _) => false,
    };
    match (questions, code) {
        // A server that does not understand EDNS may repeat nothing (RFC 6891 section 7).
        ([0, 0, ..], 1..) => Answer::Refusal,
        ([0, 1, ..], SERVER_FAILURE | NOT_IMPLEMENTED | REFUSED) if is_same => Answer::Refusal,
        ([0, 1, ..], _) if is_same => Answer::Valid,
        _ => Answer::Foreign,
    }
}

/// Bytes of the longest UDP answer that the client of this query takes. It tells them in an option
/// record, which must be the first record behind the question. Otherwise the answer is shortened
/// more than needed, and the client asks again over TCP.
pub(crate) fn answer_len_max(query: &[u8], question: Question<'_>) -> usize {
    let records = query.get(HEADER_LEN + question.whole.len()..).unwrap_or_default();
    match records.strip_prefix(&OPTION_RECORD) {
        Some(&[high, low, ..]) => usize::from(u16::from_be_bytes([high, low])).max(ANSWER_LEN_MIN),
        Some(_) | None => ANSWER_LEN_MIN,
    }
}

/// The answer as the client of this query takes it over UDP.
pub(crate) fn fit<'a>(answer: &'a [u8], query: &[u8], question: Question<'_>) -> Cow<'a, [u8]> {
    if answer.len() > answer_len_max(query, question) {
        truncated(answer, question).into()
    } else {
        answer.into()
    }
}

/// The beginning of an answer that is too long for UDP: its header and question, marked as
/// truncated. A client then asks over TCP (RFC 7766 section 5).
fn truncated(answer: &[u8], question: Question<'_>) -> Vec<u8> {
    let mut short = answer[..HEADER_LEN].to_vec();
    short[ID_LEN] |= TRUNCATED;
    short[4..].copy_from_slice(&[0, 1, 0, 0, 0, 0, 0, 0]);
    short.extend(question.whole);
    short
}

/// The answer that no server could be asked.
pub(crate) fn failure(message: &[u8], question: Question<'_>) -> Vec<u8> {
    let mut answer = message[..ID_LEN].to_vec();
    let desired = message[ID_LEN] & RECURSION_DESIRED;
    answer.extend([RESPONSE | desired, RECURSION_AVAILABLE | SERVER_FAILURE]);
    answer.extend([0, 1, 0, 0, 0, 0, 0, 0]);
    answer.extend(question.whole);
    answer
}
