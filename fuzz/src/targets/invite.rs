//! Invites as people paste them, and records about gateways that operators sign.
//!
//! The input is `what 1 | bytes`: the text of an invite; its body, which is then given the right
//! checksum; or a record, which is then signed.

use rove::fuzz::{invite, invite_of, record, true_invite, true_record};

use crate::Target;

/// The target. A signature costs some 50 us, hence the few mutations.
pub const TARGET: Target = Target { name: "invite", run, seeds, mutations: 10_000 };

/// The longest line of an error.
const LINE_MAX: usize = 400;
/// Characters of an invite that no error may repeat: less than its token.
const SECRET_MIN: usize = 16;

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
