//! Invites as people paste them, and records about gateways that operators sign.
//!
//! The input is `what 1 | bytes`: the text of an invite; its body, which is then given the right
//! checksum; or a record, which is then signed.

use std::sync::LazyLock;

use rove_host::invite::{GatewayRecord, Invite, SignedRecord, Token};
use rove_host::keys::OperatorKey;
use rove_host::testing::{invite_of, record_of};
use rove_proto::id::PeerKey;

use crate::Target;

/// The target. A signature costs some 50 us, hence the few mutations.
pub const TARGET: Target = Target { name: "invite", run, seeds, mutations: 10_000 };

/// The longest line of an error.
const LINE_MAX: usize = 400;
/// Characters of an invite that no error may repeat: less than its token.
const SECRET_MIN: usize = 16;

/// The operator who signs the records that [`record`] reads.
static OPERATOR: LazyLock<OperatorKey> =
    LazyLock::new(|| OperatorKey::generate().expect("a key can be made"));

fn run(data: &[u8]) {
    let Some((what, bytes)) = data.split_first() else { return };
    match what % 3 {
        0 => read(&String::from_utf8_lossy(bytes)),
        1 => read(&invite_of(bytes)),
        _ => {
            if let Some(again) = record(bytes) {
                assert_eq!(record(&again), Some(again), "it changes whenever it is signed");
            }
        }
    }
}

fn read(text: &str) {
    match invite(text) {
        Ok(again) => assert_eq!(invite(&again), Ok(again), "it changes whenever it is written"),
        Err(line) => {
            assert!(line.len() <= LINE_MAX && !line.contains(char::is_control), "{line:?}");
            let letters: Vec<char> = text.chars().collect();
            let is_secret = |part: &&[char]| part.iter().all(|letter| letter.is_alphanumeric());
            for part in letters.windows(SECRET_MIN).filter(is_secret) {
                let part: String = part.iter().collect();
                assert!(!line.contains(&part), "the error repeats the invite: {line:?}");
            }
        }
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let seed = |what: u8, bytes: &[u8]| [&[what], bytes].concat();
    let text = true_invite();
    let (front, back) = text.split_at(text.len() / 2);
    vec![
        seed(0, text.as_bytes()),
        seed(0, text.to_ascii_uppercase().as_bytes()),
        seed(0, format!("{front}\n  {back}\n").as_bytes()),
        seed(0, format!("\u{feff}Your invite: <{text}>.").as_bytes()),
        seed(0, b"https://vpn.example.org"),
        seed(0, b"rove://"),
        seed(1, &[1, 7]),
        seed(1, &[2; 80]),
        seed(2, &true_record()),
        seed(2, &[1; 60]),
    ]
}

/// An invite as somebody pastes it, read and written again.
fn invite(text: &str) -> Result<String, String> {
    let invite = text.parse::<Invite>().map_err(|error| error.to_string())?;
    Ok(invite.to_text())
}

/// A true invite for two gateways.
fn true_invite() -> String {
    let gateways = vec![a_record(1).sign(&OPERATOR), a_record(2).sign(&OPERATOR)];
    Invite { operator: OPERATOR.public(), gateways, token: Token([9; 16]) }.to_text()
}

/// An operator's record of a gateway, without the signature.
fn true_record() -> Vec<u8> {
    let signed = a_record(7).sign(&OPERATOR);
    let bytes = signed.as_bytes();
    bytes[..bytes.len() - 64].to_vec()
}

fn a_record(serial: u64) -> GatewayRecord {
    let endpoints = ["vpn.example.org:4500", "[2001:db8::1]:443"];
    GatewayRecord {
        serial,
        key: PeerKey([7; 32]),
        endpoints: endpoints.iter().filter_map(|text| text.parse().ok()).collect(),
        networks: "10.77.0.0/24,fd77::/64".parse().expect("networks"),
    }
}

/// Reads a record that an operator signed, whatever its contents, and signs it again.
fn record(body: &[u8]) -> Option<Vec<u8>> {
    let bytes = record_of(body, &OPERATOR);
    let record = SignedRecord::verify(&bytes, OPERATOR.public())?;
    let again = record.record().clone().sign(&OPERATOR);
    assert_eq!(again.record(), record.record(), "signed again it says the same");
    Some(again.as_bytes()[..again.as_bytes().len() - 64].to_vec())
}
