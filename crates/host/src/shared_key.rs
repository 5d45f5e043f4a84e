//! The messages for the case that two hosts use one key, for example after a disk was cloned.
//!
//! This module contains the texts. The core notices the case and decides how long the alarm lasts.

use rove_api::Problem;
use rove_proto::node::{PeerStatus, SharedKey};
use rove_proto::time::Instant;

use crate::time::ago;

/// The effect of the two hosts on each other.
const CAUSE: &str = "a disk or a directory was copied; each host takes the session from the other, \
                     so both lose most of their packets";

/// Since when two hosts use the key of this session's client, in seconds since 1970. `None` if this
/// was not noticed lately.
pub fn since(session: &PeerStatus, now: Instant) -> Option<u64> {
    let SharedKey { since, .. } = session.shared_key.filter(|shared| shared.stands(now))?;
    Some(ago(now.saturating_since(since)).0)
}

/// The problem, for the user of the client.
pub fn at_client(session: &PeerStatus, now: Instant) -> Option<Problem> {
    let what = "another host uses the key of this client".to_owned();
    let cure = "ask the gateway's operator for an invite with a new name, and on one of the two \
                hosts run `rove down`, then `rove up INVITE`: that gives it a key of its own";
    problem(what, cure, session, now)
}

/// The problem, for the gateway's operator. `name` is the client's.
pub fn at_gateway(name: &str, session: &PeerStatus, now: Instant) -> Option<Problem> {
    let what = format!("two hosts use the key of {name}");
    let cure = "make an invite with a new name (`rove gateway invite NAME`), and on one of the \
                two hosts run `rove down`, then `rove up INVITE`; if nobody knows the other host, \
                `rove gateway revoke` the client and invite it anew";
    problem(what, cure, session, now)
}

fn problem(what: String, cure: &str, session: &PeerStatus, now: Instant) -> Option<Problem> {
    let (since, cause, cure) = (since(session, now)?, CAUSE.to_owned(), cure.to_owned());
    Some(Problem { part: Some("other".to_owned()), what, since, cause, cure })
}

/// The problem in one line, for the log.
pub fn line(problem: &Problem) -> String {
    format!("{}: {}. Cure: {}", problem.what, problem.cause, problem.cure)
}
