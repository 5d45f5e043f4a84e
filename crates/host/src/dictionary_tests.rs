//! A signed dictionary is what its operator signed, or it is refused.

use super::*;

const CONTENT: &[u8] = b"\"meter\":\"kWh\",\"total\":";

fn signed(operator: &OperatorKey) -> SignedDictionary {
    let name = "meters".parse().unwrap();
    SignedDictionary::sign(operator, 8, &name, CONTENT).unwrap()
}

#[test]
fn a_line_says_what_was_signed() {
    let operator = OperatorKey::generate().unwrap();
    let signed = signed(&operator);
    let read: SignedDictionary = format!(" {signed}\n").parse().unwrap();
    assert_eq!(read, signed);
    assert_eq!((read.number(), read.name()), (8, "meters"));
    assert_eq!(read.added(), &Added::new(8, CONTENT).unwrap());
    assert!(read.is_signed_by(operator.public()));
    assert!(!read.is_signed_by(OperatorKey::generate().unwrap().public()));
}

#[test]
fn no_changed_byte_keeps_the_signature() {
    let operator = OperatorKey::generate().unwrap();
    let bytes = signed(&operator).bytes;
    for place in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[place] ^= 1;
        let text = format!("{TEXT_LABEL}{}", encoding::to_text(&changed));
        let read = text.parse::<SignedDictionary>();
        assert!(!read.is_ok_and(|read| read.is_signed_by(operator.public())), "byte {place}");
    }
    for len in 0..bytes.len() {
        let text = format!("{TEXT_LABEL}{}", encoding::to_text(&bytes[..len]));
        let read = text.parse::<SignedDictionary>();
        assert!(!read.is_ok_and(|read| read.is_signed_by(operator.public())));
    }
}

#[test]
fn what_the_core_would_not_take_is_not_signed() {
    let operator = OperatorKey::generate().unwrap();
    let name = "meters".parse().unwrap();
    for (number, content) in
        [(7, CONTENT), (16, CONTENT), (8, &[7; 7][..]), (8, &[b'a'; 4_097][..])]
    {
        let error = SignedDictionary::sign(&operator, number, &name, content).unwrap_err();
        assert!(error.to_string().contains("from 8 to 15 and 8 to 4096 bytes"), "{error}");
    }
    for name in ["", "Meters", "a b", "lz4", "senml", &"a".repeat(33)] {
        assert!(name.parse::<DictionaryName>().is_err(), "{name}");
    }
    assert!("senml".parse::<DictionaryName>().is_err_and(|it| it.to_string().contains("already")));
    for text in ["", "rove-dictionary-1", "rove-dictionary-1 !", "rove-dictionary-1 aaaa"] {
        assert!(text.parse::<SignedDictionary>().is_err(), "{text}");
    }
}
