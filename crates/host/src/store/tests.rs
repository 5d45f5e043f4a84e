//! A store keeps what it was given, and any other file is one clear error.

use std::fs;
use std::path::Path;

use proptest::prelude::*;

use super::*;

const ROLE: &str = "gateway";

fn filled(path: &Path) -> EmbeddedStore {
    let mut store = EmbeddedStore::create(path, ROLE).unwrap();
    let writes: Vec<Write> = (0..200u8)
        .map(|n| Write::put(Table::ALL[usize::from(n) % 4], [n], vec![n; usize::from(n) * 9]))
        .collect();
    store.commit(&writes).unwrap();
    store
}

fn everything(store: &EmbeddedStore) -> Vec<Records> {
    Table::ALL.iter().map(|&table| store.read(table).unwrap()).collect()
}

#[test]
fn records_survive_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let mut store = filled(&path);
    store.commit(&[Write::remove(Table::Peers, [0]), Write::put(Table::Peers, [4], [9])]).unwrap();
    let before = everything(&store);
    drop(store);
    let store = EmbeddedStore::open(&path, ROLE).unwrap();
    assert_eq!(everything(&store), before);
    assert_eq!(before[0].get(&[4][..]), Some(&vec![9]));
    assert_eq!(before[0].get(&[0][..]), None);
}

#[test]
fn the_ends_of_a_table_are_found_without_the_rest() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = EmbeddedStore::create(&dir.path().join("store"), ROLE).unwrap();
    assert_eq!(store.ends(Table::Audit).unwrap(), None);
    assert!(store.last(Table::Audit, 3).unwrap().is_empty());
    let writes: Vec<Write> = (10..20u8).map(|n| Write::put(Table::Audit, [n], [n])).collect();
    store.commit(&writes).unwrap();
    assert_eq!(store.ends(Table::Audit).unwrap(), Some((vec![10], vec![19])));
    let keys: Vec<_> = store.last(Table::Audit, 2).unwrap().into_keys().collect();
    assert_eq!(keys, [[18], [19]]);
    assert_eq!(store.last(Table::Audit, 99).unwrap(), store.read(Table::Audit).unwrap());
    let empty: Vec<Write> = (10..20u8).map(|n| Write::remove(Table::Audit, [n])).collect();
    store.commit(&empty).unwrap();
    assert_eq!(store.ends(Table::Audit).unwrap(), None);
}

#[test]
fn only_its_owner_can_read_it() {
    use std::os::unix::fs::MetadataExt;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    drop(filled(&path));
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
}

#[test]
fn one_process_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let _open = filled(&path);
    assert!(matches!(EmbeddedStore::open(&path, ROLE), Err(StoreError::InUse(_))));
}

#[test]
fn what_is_no_store_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    assert!(matches!(EmbeddedStore::open(&path, ROLE), Err(StoreError::Missing(_))));
    for content in [&b""[..], b"x", b"SQLite format 3\0 and more", &[0; 5000]] {
        fs::write(&path, content).unwrap();
        assert!(matches!(EmbeddedStore::open(&path, ROLE), Err(StoreError::Foreign(_))));
        assert_eq!(fs::read(&path).unwrap(), content, "a foreign file is left as it was");
    }
    fs::remove_file(&path).unwrap();
    drop(filled(&path));
    assert!(matches!(EmbeddedStore::open(&path, "client"), Err(StoreError::Foreign(_))));
}

#[test]
fn a_later_version_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let mut store = filled(&path);
    let about = r#"{"format":2,"role":"gateway","more":true}"#;
    store.commit(&[Write::put(Table::Facts, *b"about", about)]).unwrap();
    drop(store);
    assert!(matches!(EmbeddedStore::open(&path, ROLE), Err(StoreError::Newer(_))));
}

#[test]
fn a_truncated_store_is_damaged() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    drop(filled(&path));
    let whole = fs::read(&path).unwrap();
    for keep in [16, 100, 512, 4096, 8192, whole.len() / 2, whole.len() - 1] {
        fs::write(&path, &whole[..keep]).unwrap();
        let error = EmbeddedStore::open(&path, ROLE).err();
        let error = error.unwrap_or_else(|| panic!("{keep} bytes of {} opened", whole.len()));
        assert_eq!(error.to_string().lines().count(), 1);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn overwritten_bytes_never_panic_and_never_change_a_record(
        hits in proptest::collection::vec((0.0f64..1.0, any::<[u8; 16]>()), 1..12),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store");
        let store = filled(&path);
        let before = everything(&store);
        drop(store);
        let mut content = fs::read(&path).unwrap();
        for (place, bytes) in hits {
            // Half of the hits in the first pages, where the structure is.
            let span = if bytes[0] & 1 == 0 { 32_768.min(content.len()) } else { content.len() };
            let start = (place * (span - bytes.len()) as f64) as usize;
            content[start..start + bytes.len()].copy_from_slice(&bytes);
        }
        fs::write(&path, &content).unwrap();
        match EmbeddedStore::open(&path, ROLE) {
            Ok(store) => prop_assert_eq!(everything(&store), before),
            Err(error) => prop_assert_eq!(error.to_string().lines().count(), 1),
        }
    }
}

#[test]
fn of_two_stores_that_are_made_at_once_one_stays() {
    let dir = tempfile::tempdir().unwrap();
    for round in 0..20 {
        let path = dir.path().join(format!("store-{round}"));
        let (other, go) = (dir.path().join("other"), std::sync::Barrier::new(2));
        fs::write(&other, "").unwrap();
        // Another process finishes its store while this one makes its own.
        let is_made = std::thread::scope(|scope| {
            let linked = scope.spawn(|| {
                go.wait();
                fs::hard_link(&other, &path).is_ok()
            });
            go.wait();
            let made = EmbeddedStore::create(&path, ROLE).is_ok();
            (made, linked.join().unwrap())
        });
        assert!(is_made.0 != is_made.1, "{is_made:?}");
        assert_eq!(fs::read(&path).unwrap().is_empty(), is_made.1);
    }
}
