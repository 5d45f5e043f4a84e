//! Files are whole and private, and errors say so.

use std::os::unix::fs::PermissionsExt;

use super::*;

#[test]
fn a_new_file_is_private_and_never_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("key");
    create(&path, PRIVATE, b"one").unwrap();
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, PRIVATE);
    let error = create(&path, PRIVATE, b"two").unwrap_err().to_string();
    assert!(error.contains("exists already"), "{error}");
    assert_eq!(read_secret(&path).unwrap().as_slice(), b"one");
}

#[test]
fn a_secret_that_others_can_read_is_refused_with_the_cure() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("key");
    create(&path, PRIVATE, b"one").unwrap();
    for mode in [0o640, 0o604, 0o660, 0o610] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let error = read_secret(&path).unwrap_err().to_string();
        assert!(error.ends_with(&format!("chmod 600 {}", path.display())), "{error}");
    }
}

#[test]
fn a_secret_is_not_read_through_a_link() {
    let dir = tempfile::tempdir().unwrap();
    create(&dir.path().join("key"), PRIVATE, b"one").unwrap();
    std::os::unix::fs::symlink("key", dir.path().join("link")).unwrap();
    assert!(read_secret(&dir.path().join("link")).is_err());
}

#[test]
fn replacements_at_once_are_each_whole_and_leave_nothing_beside() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::thread::scope(|scope| {
        for content in [b"one", b"two"] {
            let path = &path;
            scope.spawn(move || (0..50).for_each(|_| replace(path, PRIVATE, content).unwrap()));
        }
    });
    assert!([b"one", b"two"].contains(&fs::read(&path).unwrap().as_slice().try_into().unwrap()));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn what_is_missing_is_named() {
    let error = read_text(Path::new("/nonexistent/file")).unwrap_err().to_string();
    assert_eq!(error, "/nonexistent/file does not exist");
}
