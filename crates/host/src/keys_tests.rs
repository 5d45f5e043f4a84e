//! Keys survive their files, and nothing else passes for one.

use super::*;

#[test]
fn an_operator_key_signs_what_its_public_half_verifies() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("operator.key");
    let key = OperatorKey::generate().unwrap();
    key.create(&path).unwrap();
    let loaded = OperatorKey::load(&path).unwrap();
    assert_eq!(loaded.public(), key.public());
    let signature = loaded.sign(b"message");
    assert!(key.public().verifies(b"message", &signature));
    assert!(!key.public().verifies(b"massage", &signature));
}

#[test]
fn a_static_key_is_the_same_after_its_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("client.key");
    let key = StaticKey::generate().unwrap();
    key.create(&path).unwrap();
    let loaded = StaticKey::load(&path).unwrap();
    assert_eq!(loaded.public(), key.public());
    assert_eq!(loaded.secret(), key.secret());
    assert!(key.create(&path).is_err(), "a key is never overwritten");
}

#[test]
fn a_damaged_key_file_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("gateway.key");
    for content in ["", "rove-static-key-1 \n", "rove-operator-key-1 aaaa\n", "\u{0}"] {
        files::replace(&path, files::PRIVATE, content.as_bytes()).unwrap();
        let error = StaticKey::load(&path).unwrap_err().to_string();
        assert!(error.contains("gateway.key holds no rove-static-key-1"), "{error}");
    }
}

#[test]
fn secrets_do_not_appear_in_debug_output() {
    let key = StaticKey::generate().unwrap();
    let shown = format!("{key:?}");
    assert!(!shown.contains(key.file_text().split(' ').nth(1).unwrap().trim()));
    assert_eq!(shown.len(), "StaticKey(peer:00000000)".len());
}
