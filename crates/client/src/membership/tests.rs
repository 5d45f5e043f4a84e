//! A membership survives restarts and bad invites.

use rove_host::invite::GatewayRecord;
use rove_host::keys::OperatorKey;

use super::*;

fn invite(token: u8) -> Invite {
    let operator = OperatorKey::generate().unwrap();
    let record = GatewayRecord {
        serial: 1,
        key: PeerKey([!token; 32]),
        endpoints: vec!["192.0.2.1:4500".parse().unwrap()],
        networks: "10.77.0.0/24".parse().unwrap(),
    };
    Invite {
        operator: operator.public(),
        gateways: vec![record.sign(&operator)],
        token: Token([token; 16]),
    }
}

fn home(dir: &tempfile::TempDir) -> Home {
    Home::new(Some(dir.path().join("client"))).unwrap()
}

#[test]
fn without_an_invite_there_is_nothing_to_join() {
    let dir = tempfile::tempdir().unwrap();
    let error = Membership::open(&home(&dir), None).err().unwrap().to_string();
    assert!(error.contains("rove up INVITE"), "{error}");
}

#[test]
fn an_accepted_invite_is_needed_once() {
    let dir = tempfile::tempdir().unwrap();
    let home = home(&dir);
    let invite = invite(1);
    let mut first = Membership::open(&home, Some(&invite)).unwrap();
    assert_eq!(first.token(), Some(invite.token));
    let key = first.key.public();
    first.note_accepted(Some("192.0.2.1:4500".parse().unwrap())).unwrap();
    drop(first);
    for again in [None, Some(&invite)] {
        let next = Membership::open(&home, again).unwrap();
        assert_eq!(next.token(), None);
        assert_eq!(next.key.public(), key);
        assert_eq!(next.answered(), ["192.0.2.1:4500".parse().unwrap()]);
    }
}

#[test]
fn the_same_invite_tried_again_has_the_same_key() {
    let dir = tempfile::tempdir().unwrap();
    let home = home(&dir);
    let invite = invite(1);
    let keys = [Some(&invite), Some(&invite), None].map(|invite| {
        let membership = Membership::open(&home, invite).unwrap();
        assert!(membership.token().is_some());
        membership.key.public()
    });
    assert!(keys.iter().all(|key| *key == keys[0]));
}

#[test]
fn an_invite_that_is_refused_costs_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let home = home(&dir);
    let mut good = Membership::open(&home, Some(&invite(1))).unwrap();
    good.note_accepted(None).unwrap();
    let key = good.key.public();
    drop(good);
    let refused = Membership::open(&home, Some(&invite(2))).unwrap();
    assert_ne!(refused.key.public(), key);
    drop(refused);
    let back = Membership::open(&home, None).unwrap();
    assert_eq!(back.key.public(), key);
    assert_eq!(back.gateway.record().key, PeerKey([!1; 32]));
}

#[test]
fn a_crash_between_store_and_key_loses_neither_identity() {
    let dir = tempfile::tempdir().unwrap();
    let home = home(&dir);
    let (key_file, pending_file) = (home.key(Role::Client), pending_key_path(&home));
    let mut old = Membership::open(&home, Some(&invite(1))).unwrap();
    old.note_accepted(None).unwrap();
    let (old_key, old_text) = (old.key.public(), std::fs::read(&key_file).unwrap());
    drop(old);
    let mut new = Membership::open(&home, Some(&invite(2))).unwrap();
    let (new_key, new_text) = (new.key.public(), std::fs::read(&pending_file).unwrap());
    new.note_accepted(None).unwrap();
    drop(new);
    assert!(!pending_file.exists());
    let crash = || {
        files::replace(&key_file, files::PRIVATE, &old_text).unwrap();
        files::replace(&pending_file, files::PRIVATE, &new_text).unwrap();
    };
    crash();
    assert_eq!(Membership::open(&home, None).unwrap().key.public(), new_key);
    assert!(!pending_file.exists(), "and it is in its place now");
    // Not even another invite, which needs the place of a pending key, loses it.
    crash();
    drop(Membership::open(&home, Some(&invite(3))).unwrap());
    assert_eq!(Membership::open(&home, None).unwrap().key.public(), new_key);
    assert_ne!(new_key, old_key);

    files::replace(&key_file, files::PRIVATE, &old_text).unwrap();
    let error = Membership::open(&home, None).err().unwrap().to_string();
    assert!(error.contains("client.key is not the key that the gateway knows"), "{error}");
}

#[test]
fn no_handshake_counter_is_used_twice() {
    let dir = tempfile::tempdir().unwrap();
    let home = home(&dir);
    let invite = invite(1);
    let mut used = 0;
    for _ in 0..3 {
        let mut membership = Membership::open(&home, Some(&invite)).unwrap();
        assert!(membership.counter() > used);
        // Far more than is reserved at once, then a crash.
        for counter in membership.counter()..membership.counter() + 5_000 {
            assert!(counter < membership.counter.reserved);
            membership.note_counter(counter).unwrap();
            used = counter;
        }
    }
}

#[test]
fn no_token_remains_after_acceptance() {
    let dir = tempfile::tempdir().unwrap();
    let home = home(&dir);
    let mut membership = Membership::open(&home, Some(&invite(3))).unwrap();
    membership.note_accepted(None).unwrap();
    let facts = membership.store.read(Table::Facts).unwrap();
    let token = encoding::to_text(&[3; 16]);
    for value in facts.values() {
        assert!(!String::from_utf8_lossy(value).contains(&token));
    }
}

#[test]
fn memberships_of_every_release_load() {
    use std::os::unix::fs::PermissionsExt;
    let crates = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let compat = crates.join("rove/tests/compat");
    for release in ["0.1.0"] {
        let dir = tempfile::tempdir().unwrap();
        for name in ["client.key", "client.redb"] {
            let copy = dir.path().join(name);
            std::fs::copy(compat.join(release).join("client").join(name), &copy).unwrap();
            std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(0o600)).unwrap();
        }
        let membership =
            Membership::open(&Home::new(Some(dir.path().to_owned())).unwrap(), None).unwrap();
        assert_eq!(membership.token(), None);
        assert!(membership.counter() > 1);
        assert_eq!(membership.answered(), ["192.0.2.1:4500".parse().unwrap()]);
        let gateway = membership.gateway.record();
        assert_eq!(gateway.endpoints[1].to_string(), "vpn.example.org:443");
        assert_eq!(gateway.networks.to_string(), "10.77.0.0/24,fd77::/64");
    }
}

#[test]
fn where_the_gateway_is_outlives_a_crash_and_is_not_stored_at_every_hop() {
    let dir = tempfile::tempdir().unwrap();
    let home = home(&dir);
    let at = |port| std::net::SocketAddr::from(([192, 0, 2, 1], port));
    let mut membership = Membership::open(&home, Some(&invite(1))).unwrap();
    membership.note_accepted(Some(at(1))).unwrap();
    membership.note_announced(&[at(2), at(1)]).unwrap();
    drop(membership);
    let mut membership = Membership::open(&home, None).unwrap();
    assert_eq!(membership.announced(), [at(2), at(1)]);
    membership.note_answered(at(2)).unwrap();
    let many: Vec<_> = (1..=20).map(at).collect();
    membership.note_announced(&many).unwrap();
    assert_eq!((membership.answered()[0], membership.announced().len()), (at(2), ADDRESSES_MAX));
    drop(membership);
    let mut membership = Membership::open(&home, None).unwrap();
    assert_eq!(membership.answered(), [at(2), at(1)], "the first is stored at once");
    assert_eq!(membership.announced(), [at(2), at(1)], "and the next later");
    membership.note_answered(at(1)).unwrap();
    membership.note_announced(&many).unwrap();
    membership.settle().unwrap();
    drop(membership);
    let membership = Membership::open(&home, None).unwrap();
    assert_eq!(membership.announced().len(), ADDRESSES_MAX);
}
