//! Parsers of hostile text and bytes, opened only to the fuzz targets (feature `fuzz`). Each
//! function passes them to the code that a running process uses, and returns the result as plain
//! values. The properties to check are beside the targets in `fuzz/`.

use std::cell::Cell;
use std::str::FromStr;
use std::sync::LazyLock;

use serde::{Serialize, de::DeserializeOwned};

use crate::config::{LinkScheduler, LinkSetting};
use crate::control::{Asked, Reply, Request, answer};
use crate::invite::{GatewayRecord, Invite, SignedRecord, Token, of_body, signed};
use crate::keys::OperatorKey;
use crate::ledger::{AuditEntry, InviteRecord, LedgerSnapshot, Peer, Reach};
use crate::values::{Destination, Endpoint, Lifetime, PeerName};

/// The operator who signs the records that [`record`] reads.
static OPERATOR: LazyLock<OperatorKey> =
    LazyLock::new(|| OperatorKey::generate().expect("a key can be made"));

/// An invite as somebody pastes it, read and written again.
///
/// # Errors
/// The error message for the person.
pub fn invite(text: &str) -> Result<String, String> {
    let invite = text.parse::<Invite>().map_err(|error| error.to_string())?;
    Ok(invite.to_text())
}

/// The text of an invite with this body and a correct checksum, as an attacker would make it so
/// that all of it is parsed.
pub fn invite_of(body: &[u8]) -> String {
    of_body(body)
}

/// The body of a true invite for two gateways.
pub fn true_invite() -> String {
    let gateways = vec![a_record(1).sign(&OPERATOR), a_record(2).sign(&OPERATOR)];
    Invite { operator: OPERATOR.public(), gateways, token: Token([9; 16]) }.to_text()
}

/// An operator's record of a gateway, without the signature.
pub fn true_record() -> Vec<u8> {
    let signed = a_record(7).sign(&OPERATOR);
    let bytes = signed.as_bytes();
    bytes[..bytes.len() - 64].to_vec()
}

fn a_record(serial: u64) -> GatewayRecord {
    let endpoints = ["vpn.example.org:4500", "[2001:db8::1]:443"];
    GatewayRecord {
        serial,
        key: rove_proto::id::PeerKey([7; 32]),
        endpoints: endpoints.iter().filter_map(|text| text.parse().ok()).collect(),
        networks: "10.77.0.0/24,fd77::/64".parse().expect("networks"),
    }
}

/// Reads a record that an operator signed, whatever its contents, and signs it again.
pub fn record(body: &[u8]) -> Option<Vec<u8>> {
    let bytes = signed(body, &OPERATOR);
    let record = SignedRecord::verify(&bytes, OPERATOR.public())?;
    let again = record.record().clone().sign(&OPERATOR);
    assert_eq!(again.record(), record.record(), "signed again it says the same");
    Some(again.as_bytes()[..again.as_bytes().len() - 64].to_vec())
}

/// A node's answer to one line of a control connection, and whether the line was a valid request.
pub fn control_request(line: &[u8]) -> (String, bool) {
    let taken = Cell::new(false);
    let reply = answer(line, &|asked: Asked| {
        taken.set(true);
        said_again(&asked.request);
        asked.reply.send(Reply::Ok(rove_api::Done {}.into())).is_ok()
    });
    (serde_json::to_string(&reply).unwrap_or_default(), taken.get())
}

fn said_again(request: &Request) {
    let text = serde_json::to_string(request).expect("a request can be written");
    let again = serde_json::from_str::<Request>(&text).expect("and read again");
    assert_eq!(again, *request, "{text}");
    parse_values(again);
}

/// Parses the values in a request that have a spelling of their own, as a node does.
#[expect(clippy::wildcard_enum_match_arm, reason = "the other requests have no such value")]
fn parse_values(request: Request) {
    match request {
        Request::Rehearse { lasts, .. } => keeps_meaning::<Lifetime>(&lasts),
        Request::SetScheduler { scheduler } => keeps_meaning::<LinkScheduler>(&scheduler),
        Request::SetLink { setting, .. } => {
            if let Ok(parsed) = LinkSetting::of_request(setting) {
                assert_eq!(LinkSetting::of_request(parsed.in_request()), Ok(parsed));
            }
        }
        Request::PeerPaths { name: Some(name) } | Request::Revoke { name } => {
            keeps_meaning::<PeerName>(&name);
        }
        Request::Invite { name, expires, .. } => {
            keeps_meaning::<PeerName>(&name);
            keeps_meaning::<Lifetime>(&expires);
        }
        Request::Allow { destinations, .. } => {
            destinations.iter().for_each(|text| keeps_meaning::<Destination>(text));
        }
        Request::Move { endpoint } => keeps_meaning::<Endpoint>(&endpoint),
        _ => {}
    }
}

/// If the text spells a value, checks that the value's own spelling means the same.
fn keeps_meaning<T: FromStr + ToString + PartialEq>(text: &str) {
    if let Ok(value) = text.parse::<T>() {
        let again = value.to_string().parse::<T>();
        assert!(again.is_ok_and(|again| again == value), "{text:?} means something else");
    }
}

/// Whether a command accepts a node's answer line as a reply.
pub fn control_reply(line: &[u8]) -> bool {
    is_stable::<Reply<serde_json::Value>>(line)
}

/// The kinds of record of a gateway's store that these bytes form: peers, invites, the addresses
/// where peers were reached, the audit log, and a whole store in a backup.
pub fn store_record(bytes: &[u8]) -> [bool; 5] {
    [
        is_stable::<Peer>(bytes),
        is_stable::<InviteRecord>(bytes),
        is_stable::<Reach>(bytes),
        is_stable::<AuditEntry>(bytes),
        serde_json::from_slice::<LedgerSnapshot>(bytes).is_ok(),
    ]
}

/// Whether the bytes are a value. If so, checks that it stays the same when written and read again.
fn is_stable<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(bytes: &[u8]) -> bool {
    let Ok(value) = serde_json::from_slice::<T>(bytes) else { return false };
    let text = serde_json::to_vec(&value).expect("what was read can be written");
    let again = serde_json::from_slice::<T>(&text).expect("what was written can be read");
    assert_eq!(again, value, "written again it means something else");
    true
}
