//! The parts of a DNS message that the forwarder reads: identifier, flags and question (RFC 1035
//! section 4.1).
//!
//! It refuses names that are compressed, because the first name of a message cannot be.

/// Bytes of the identifier, which is the first field.
pub(super) const ID_LEN: usize = 2;
/// Bytes of the longest message (RFC 1035 section 4.2.2).
pub(super) const MESSAGE_LEN_MAX: usize = u16::MAX as usize;
const HEADER_LEN: usize = 12;
/// Bytes of a name with its length bytes (RFC 1035 section 2.3.4).
const NAME_LEN_MAX: usize = 255;
const LABEL_LEN_MAX: u8 = 63;
/// Behind the name: type and class.
const TYPE_AND_CLASS: usize = 4;
/// The byte of flags that begins with "this is a response"; its other bits here.
const RESPONSE: u8 = 0x80;
const OPCODE: u8 = 0x78;
const RECURSION_DESIRED: u8 = 0x01;
/// The second byte of flags.
const RECURSION_AVAILABLE: u8 = 0x80;
const CODE: u8 = 0x0f;
pub(super) const SERVER_FAILURE: u8 = 2;
const NOT_IMPLEMENTED: u8 = 4;
const REFUSED: u8 = 5;

/// The one question of a query.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Question<'a> {
    /// Labels, each behind its length, and the zero byte at the end.
    name: &'a [u8],
    /// The same with type and class.
    whole: &'a [u8],
}

/// The question of a query; `None` if the message is none, or has not exactly one question.
pub(super) fn query(message: &[u8]) -> Option<Question<'_>> {
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
    pub(super) fn is_under(&self, domain: &[u8]) -> bool {
        let mut at = 0;
        while self.name.len() - at > domain.len() {
            at += 1 + usize::from(self.name[at]);
        }
        self.name[at..].eq_ignore_ascii_case(domain)
    }
}

/// A domain as the names of messages are written.
pub(super) fn encode(domain: &str) -> Vec<u8> {
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
pub(super) enum Answer {
    /// It answers the query.
    Valid,
    /// It answers that the server cannot or will not say: another server may.
    Refusal,
    /// It answers something else.
    Foreign,
}

/// Judges a message from the server that was asked `query`.
pub(super) fn judge(message: &[u8], query: &[u8]) -> Answer {
    let [id0, id1, flags, more, questions @ ..] = message else { return Answer::Foreign };
    if !query.starts_with(&[*id0, *id1]) || flags & RESPONSE == 0 {
        return Answer::Foreign;
    }
    let code = more & CODE;
    let asked = question(query).map(|question| question.whole);
    let echoed = question(message).map(|question| question.whole);
    let is_same = match (asked, echoed) {
        (Some(asked), Some(echoed)) => asked.eq_ignore_ascii_case(echoed),
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

/// The answer that no server could be asked.
pub(super) fn failure(message: &[u8], question: Question<'_>) -> Vec<u8> {
    let mut answer = message[..ID_LEN].to_vec();
    let desired = message[ID_LEN] & RECURSION_DESIRED;
    answer.extend([RESPONSE | desired, RECURSION_AVAILABLE | SERVER_FAILURE]);
    answer.extend([0, 1, 0, 0, 0, 0, 0, 0]);
    answer.extend(question.whole);
    answer
}
