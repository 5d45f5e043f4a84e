//! Dictionaries that an operator signs, as they stand in a configuration file.
//!
//! The input is `what 1 | bytes`: the text of a dictionary, or the bytes that it encodes.

use std::sync::LazyLock;

use rove_host::dictionary::SignedDictionary;
use rove_host::encoding;
use rove_host::keys::{OperatorKey, OperatorPublic};

use crate::Target;

/// The target. A signature costs some 50 us, hence the few mutations.
pub const TARGET: Target = Target { name: "dictionary", run, seeds, mutations: 10_000 };

/// The label in front of the encoded bytes.
const LABEL: &str = "rove-dictionary-1 ";
/// The longest line of an error.
const LINE_MAX: usize = 400;

/// An operator who signed nothing that comes from outside.
static OPERATOR: LazyLock<OperatorPublic> =
    LazyLock::new(|| OperatorKey::generate().expect("a key can be made").public());

fn run(data: &[u8]) {
    let Some((what, bytes)) = data.split_first() else { return };
    match what % 2 {
        0 => read(&String::from_utf8_lossy(bytes)),
        _ => read(&format!("{LABEL}{}", encoding::to_text(bytes))),
    }
}

fn read(text: &str) {
    match text.parse::<SignedDictionary>() {
        Ok(one) => {
            assert!(!one.is_signed_by(*OPERATOR), "nobody has that key");
            assert_eq!(one.to_string().parse(), Ok(one), "it changes whenever it is written");
        }
        Err(error) => {
            let line = error.to_string();
            assert!(line.len() <= LINE_MAX && !line.contains(char::is_control), "{line:?}");
        }
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let seed = |what: u8, bytes: &[u8]| [&[what], bytes].concat();
    let body = [&[1, 8, 6][..], b"meters", b"\"meter\":\"kWh\",\"total\":", &[7; 64]].concat();
    let text = format!("{LABEL}{}", encoding::to_text(&body));
    vec![
        seed(0, text.as_bytes()),
        seed(0, LABEL.as_bytes()),
        seed(1, &body),
        seed(1, &body[..70]),
        seed(1, &[2; 80]),
    ]
}
