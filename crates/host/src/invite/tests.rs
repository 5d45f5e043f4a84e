//! An invite reads back, and nothing else reads as one.

use proptest::prelude::*;

use super::pasted::PASTED_BYTES_MAX;
use super::*;
use crate::keys::OperatorKey;
use rove_proto::id::PeerKey;

fn record(serial: u64) -> GatewayRecord {
    GatewayRecord {
        serial,
        key: PeerKey([7; 32]),
        endpoints: vec![
            "vpn.example.org:4500".parse().unwrap(),
            "[2001:db8::1]:1".parse().unwrap(),
        ],
        networks: "10.77.0.0/24,fd77::/64".parse().unwrap(),
    }
}

fn invite(operator: &OperatorKey) -> Invite {
    Invite {
        operator: operator.public(),
        gateways: vec![record(1).sign(operator), record(2).sign(operator)],
        token: Token([9; 16]),
    }
}

#[test]
fn an_invite_reads_back_in_either_case() {
    let invite = invite(&OperatorKey::generate().unwrap());
    let text = invite.to_text();
    assert!(text.starts_with("rove://"));
    assert_eq!(text.parse::<Invite>().unwrap(), invite);
    assert_eq!(text.to_ascii_uppercase().parse::<Invite>().unwrap(), invite);
    assert_eq!(format!("  {text}\n").parse::<Invite>().unwrap(), invite);
}

#[test]
fn an_invite_is_found_in_what_people_paste() {
    let invite = invite(&OperatorKey::generate().unwrap());
    let line = invite.to_text();
    let wrapped = |between: &str| {
        let lines: Vec<&[u8]> = line.as_bytes().chunks(72).collect();
        let lines = lines.iter().map(|line| std::str::from_utf8(line).unwrap());
        lines.collect::<Vec<_>>().join(between)
    };
    for text in [
        format!("\u{feff}{line}\r\n"),
        format!("<{line}>"),
        format!("\"{line}\"."),
        format!("\u{201c}{line}\u{201d},"),
        format!("**{line}**"),
        format!("Hello,\n\nyour invite is {line}. It is valid for a day.\n\nRegards, Anna\n"),
        format!("invite:{line};"),
        format!("<a href=\"{line}\">{line}</a>"),
        format!("<a href=\"{line}\">{}...</a>", &line[..40]),
        format!("> {}\n", wrapped("\n> ")),
        wrapped("\r\n    "),
        wrapped("=\n"),
        wrapped("\u{200b}"),
        format!("ro\nve{}", &line[4..]),
        format!("{line} {}", line.to_ascii_uppercase()),
    ] {
        assert_eq!(text.parse::<Invite>().as_ref(), Ok(&invite), "{text}");
    }
}

#[test]
fn of_two_invites_none_is_guessed_and_no_error_repeats_one() {
    let operator = OperatorKey::generate().unwrap();
    let first = invite(&operator);
    let second = Invite { token: Token([8; 16]), ..first.clone() };
    let both = format!("{}\n{}\n", first.to_text(), second.to_text());
    assert_eq!(both.parse::<Invite>(), Err(InviteError::Several));
    let long = format!("{}{}", " ".repeat(PASTED_BYTES_MAX), first.to_text());
    assert_eq!(long.parse::<Invite>(), Err(InviteError::Long));
    let broken = &first.to_text()[..300];
    for text in [broken, &both, "rove://", "rove://2", "hello", ""] {
        let error = text.parse::<Invite>().unwrap_err();
        assert!(!error.to_string().contains(&broken[10..30]), "{error}");
    }
}

#[test]
fn every_changed_or_missing_character_is_damage() {
    let text = invite(&OperatorKey::generate().unwrap()).to_text();
    for position in SCHEME.len()..text.len() {
        let mut changed = text.clone().into_bytes();
        changed[position] = if changed[position] == b'a' { b'b' } else { b'a' };
        let changed = String::from_utf8(changed).unwrap();
        assert_eq!(changed.parse::<Invite>(), Err(InviteError::Damaged), "at {position}");
        assert_eq!(text[..position].parse::<Invite>(), Err(InviteError::Damaged));
    }
}

#[test]
fn a_gateway_that_another_operator_signed_is_forged() {
    let operator = OperatorKey::generate().unwrap();
    let mut forged = invite(&operator);
    forged.gateways[1] = record(3).sign(&OperatorKey::generate().unwrap());
    assert_eq!(forged.to_text().parse::<Invite>(), Err(InviteError::Forged));
}

#[test]
fn a_later_version_is_named_as_such() {
    let mut bytes = vec![2, 1, 2, 3];
    bytes.extend(checksum(&bytes));
    let text = format!("{SCHEME}{}", encoding::to_text(&bytes));
    assert_eq!(text.parse::<Invite>(), Err(InviteError::Version(2)));
}

#[test]
fn no_private_key_and_no_token_is_shown_by_debug() {
    let shown = format!("{:?}", invite(&OperatorKey::generate().unwrap()));
    assert!(!shown.contains('9'), "{shown}");
}

proptest! {
    #[test]
    fn no_text_panics(text in "\\PC{0,200}") {
        let _ = text.parse::<Invite>();
        let _ = format!("{SCHEME}{text}").parse::<Invite>();
    }

    #[test]
    fn no_body_with_a_right_checksum_panics(
        body in proptest::collection::vec(any::<u8>(), 0..400),
    ) {
        let mut bytes = vec![VERSION];
        bytes.extend(body);
        bytes.extend(checksum(&bytes));
        let text = format!("{SCHEME}{}", encoding::to_text(&bytes));
        prop_assert!(text.parse::<Invite>().is_err());
    }

    #[test]
    fn no_signed_bytes_panic(body in proptest::collection::vec(any::<u8>(), 0..200)) {
        // Signed by the true operator, so that the parser behind the signature is reached.
        let operator = OperatorKey::generate().unwrap();
        let mut body = body;
        if let Some(first) = body.first_mut() { *first = 1; }
        let mut signed = body.clone();
        signed.extend(operator.sign(&[&b"rove gateway record v1\0"[..], &body].concat()));
        let _ = SignedRecord::verify(&signed, operator.public());
    }
}
