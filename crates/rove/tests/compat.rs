//! Files of earlier releases load for ever: `tests/compat/RELEASE` keeps what each release wrote.
//! The keys in them are nobody's.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::Value;
use support::{rove, rove_in};

const RELEASES: [&str; 1] = ["0.1.0"];

fn release(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/compat").join(name)
}

/// A copy as private as the original was: version control keeps no such modes.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let copy = to.join(entry.file_name());
        fs::copy(entry.path(), &copy).unwrap();
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o600)).unwrap();
    }
}

fn peers(dir: &Path) -> Value {
    serde_json::from_str(&rove_in(dir, "gateway peers --json").ok()).unwrap()
}

#[test]
fn every_release_is_kept() {
    let kept = fs::read_dir(release(""))
        .unwrap()
        .filter(|entry| entry.as_ref().unwrap().file_type().unwrap().is_dir());
    assert_eq!(kept.count(), RELEASES.len(), "add new releases to RELEASES");
}

#[test]
fn gateways_of_every_release_load() {
    for name in RELEASES {
        let dir = tempfile::tempdir().unwrap();
        copy(&release(name).join("gateway"), dir.path());
        let expected = fs::read_to_string(release(name).join("peers.json")).unwrap();
        let expected: Value = serde_json::from_str(&expected).unwrap();
        let mut found = peers(dir.path());
        // Later versions may add keys, and invites expire.
        for (peer, expected) in found["peers"]
            .as_array_mut()
            .unwrap()
            .iter_mut()
            .zip(expected["peers"].as_array().unwrap())
        {
            let known = expected.as_object().unwrap();
            peer.as_object_mut().unwrap().retain(|key, _| known.contains_key(key));
        }
        assert_eq!(found["peers"], expected["peers"], "{name}");
        // It goes on from there: names are taken, the identity holds.
        let error = rove_in(dir.path(), "gateway invite laptop").fails();
        assert!(error.contains("laptop is a peer already"), "{error}");
        assert!(rove_in(dir.path(), "gateway invite watch").ok().starts_with("rove://"));
    }
}

#[test]
fn backups_of_every_release_restore() {
    for name in RELEASES {
        let dir = tempfile::tempdir().unwrap();
        let (file, gateway) = (dir.path().join("backup"), dir.path().join("gateway"));
        fs::copy(release(name).join("gateway.backup"), &file).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        rove_in(&gateway, &format!("gateway restore {}", file.display())).ok();
        let original = dir.path().join("original");
        copy(&release(name).join("gateway"), &original);
        assert_eq!(peers(&gateway), peers(&original), "{name}");
    }
}

#[test]
fn invites_of_every_release_are_read() {
    for name in RELEASES {
        let invite = fs::read_to_string(release(name).join("invite.txt")).unwrap();
        let dir = tempfile::tempdir().unwrap();
        // Read and verified before anything else can go wrong: then only the timeout, or the lack
        // of a privilege, is left.
        let long = dir.path().join("x".repeat(100));
        let ran = rove(["up", invite.trim(), "--foreground", "--dir", long.to_str().unwrap()]);
        assert_eq!(ran.code, Some(1), "{name}: {}", ran.err);
        assert!(ran.err.contains("choose a shorter --dir"), "{name}: {}", ran.err);
    }
}
