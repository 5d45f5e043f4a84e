//! Who gets in, who does not, and that a restart remembers.

use std::path::Path;

use proptest::prelude::*;

use super::registry::{AllowError, NewInviteError, RevokeError};
use super::*;
use crate::invite::{Token, TokenHash};
use crate::store::EmbeddedStore;
use crate::values::{HostIndex, PeerName};

const NOW: UnixSeconds = UnixSeconds(1_000_000);
const LATER: UnixSeconds = UnixSeconds(1_000_000 + 86_400);

fn name(text: &str) -> PeerName {
    text.parse().unwrap()
}

fn key(n: u8) -> PeerKey {
    PeerKey([n; 32])
}

fn token(n: u8) -> TokenHash {
    Token([n; 16]).hash()
}

fn terms(text: &str, uses: u32) -> InviteTerms {
    InviteTerms { name: name(text), uses, expires: LATER, subnets: Vec::new() }
}

fn ledger(path: &Path) -> Ledger {
    let file = path.join("store");
    let store = if file.exists() {
        EmbeddedStore::open(&file, "gateway")
    } else {
        EmbeddedStore::create(&file, "gateway")
    };
    Ledger::open(Box::new(store.unwrap()), "10.77.0.0/24,fd77::/64".parse().unwrap()).unwrap()
}

fn invite(ledger: &mut Ledger, text: &str, uses: u32, with: TokenHash) {
    let change = ledger.registry().invite(terms(text, uses), with, NOW).unwrap();
    ledger.make(change, NOW).unwrap();
}

fn enrol(ledger: &mut Ledger, who: PeerKey, with: TokenHash) -> Result<Enrolment, Refusal> {
    let outcome = ledger.registry().enrol(who, Some(with), NOW)?;
    if let Enrolment::New(change) = &outcome {
        ledger.make(change.clone(), NOW).unwrap();
    }
    Ok(outcome)
}

#[test]
fn peers_get_the_next_address_in_order_of_enrolment() {
    let dir = tempfile::tempdir().unwrap();
    let mut ledger = ledger(dir.path());
    invite(&mut ledger, "phone", 1, token(1));
    invite(&mut ledger, "laptop", 1, token(2));
    enrol(&mut ledger, key(9), token(2)).unwrap();
    enrol(&mut ledger, key(8), token(1)).unwrap();
    let lease = |n| {
        let peer = ledger.registry().peer(key(n)).unwrap();
        (peer.name.to_string(), ledger.registry().lease(peer).unwrap().v4.unwrap().to_string())
    };
    assert_eq!(lease(9), ("laptop".to_owned(), "10.77.0.2/24".to_owned()));
    assert_eq!(lease(8), ("phone".to_owned(), "10.77.0.3/24".to_owned()));
}

#[test]
fn a_token_is_used_once_and_its_first_user_may_repeat_itself() {
    let dir = tempfile::tempdir().unwrap();
    let mut ledger = ledger(dir.path());
    invite(&mut ledger, "phone", 1, token(1));
    assert!(matches!(enrol(&mut ledger, key(1), token(1)), Ok(Enrolment::New(_))));
    assert_eq!(enrol(&mut ledger, key(1), token(1)), Ok(Enrolment::Known));
    assert_eq!(enrol(&mut ledger, key(2), token(1)), Err(Refusal::Used));
    assert_eq!(enrol(&mut ledger, key(2), token(3)), Err(Refusal::Unknown));
    let registry = ledger.registry();
    assert_eq!(registry.enrol(key(2), None, NOW), Err(Refusal::NotEnrolled));
}

#[test]
fn an_expired_invite_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let mut ledger = ledger(dir.path());
    invite(&mut ledger, "phone", 1, token(1));
    let late = ledger.registry().enrol(key(1), Some(token(1)), LATER);
    assert_eq!(late, Err(Refusal::Expired));
}

#[test]
fn an_invite_with_many_uses_numbers_its_peers() {
    let dir = tempfile::tempdir().unwrap();
    let mut ledger = ledger(dir.path());
    invite(&mut ledger, "team", 3, token(1));
    invite(&mut ledger, "team-2", 1, token(2));
    enrol(&mut ledger, key(9), token(2)).unwrap();
    for n in 1..=3 {
        enrol(&mut ledger, key(n), token(1)).unwrap();
    }
    assert_eq!(enrol(&mut ledger, key(4), token(1)), Err(Refusal::Used));
    let names: Vec<String> = ledger.registry().peers().map(|peer| peer.name.to_string()).collect();
    assert_eq!(names, ["team", "team-3", "team-4", "team-2"]);
}

#[test]
fn a_revoked_peer_stays_out_until_a_new_invite() {
    let dir = tempfile::tempdir().unwrap();
    let mut ledger = ledger(dir.path());
    invite(&mut ledger, "phone", 2, token(1));
    enrol(&mut ledger, key(1), token(1)).unwrap();
    let change = ledger.registry().revoke(&name("phone"), NOW).unwrap();
    ledger.make(change, NOW).unwrap();
    assert_eq!(enrol(&mut ledger, key(1), token(1)), Err(Refusal::Revoked));
    assert_eq!(enrol(&mut ledger, key(2), token(1)), Err(Refusal::Expired), "withdrawn too");
    let again = ledger.registry().revoke(&name("phone"), NOW);
    assert_eq!(again, Err(RevokeError::Already(name("phone"))));
    let unknown = ledger.registry().revoke(&name("tablet"), NOW);
    assert_eq!(unknown, Err(RevokeError::Unknown(name("tablet"))));
    invite(&mut ledger, "phone", 1, token(2));
    assert!(matches!(enrol(&mut ledger, key(1), token(2)), Ok(Enrolment::New(_))));
    assert_eq!(ledger.registry().peer(key(1)).unwrap().host, HostIndex(3), "not the old address");
}

#[test]
fn names_and_subnets_belong_to_one() {
    let dir = tempfile::tempdir().unwrap();
    let mut ledger = ledger(dir.path());
    let with_subnet = |text: &str, subnet: &str| InviteTerms {
        subnets: vec![subnet.parse().unwrap()],
        ..terms(text, 1)
    };
    let change =
        ledger.registry().invite(with_subnet("office", "192.168.0.0/16"), token(1), NOW).unwrap();
    ledger.make(change, NOW).unwrap();
    let registry = ledger.registry();
    let taken = registry.invite(terms("office", 1), token(2), NOW);
    assert_eq!(taken, Err(NewInviteError::NameInvited(name("office"))));
    for subnet in ["192.168.5.0/24", "0.0.0.0/0", "10.77.0.128/25"] {
        let refused = registry.invite(with_subnet("home", subnet), token(2), NOW);
        assert!(matches!(refused, Err(NewInviteError::Subnet(..))), "{subnet}");
    }
    let shared = InviteTerms { uses: 2, ..with_subnet("home", "192.0.2.0/24") };
    assert_eq!(registry.invite(shared, token(2), NOW), Err(NewInviteError::SharedSubnet));
    for uses in [0, u32::MAX] {
        assert_eq!(registry.invite(terms("x", uses), token(2), NOW), Err(NewInviteError::Uses));
    }
}

#[test]
fn allow_lists_grow_and_can_be_reset() {
    let dir = tempfile::tempdir().unwrap();
    let mut ledger = ledger(dir.path());
    invite(&mut ledger, "phone", 1, token(1));
    enrol(&mut ledger, key(1), token(1)).unwrap();
    let list = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<_>>();
    for (add, reset, expect) in [
        (list(&["10.1.0.0/16"]), false, list(&["10.1.0.0/16"])),
        (list(&["10.0.0.5:22", "10.1.0.0/16"]), false, list(&["10.0.0.5:22", "10.1.0.0/16"])),
        (list(&[]), true, list(&[])),
    ] {
        let change = ledger.registry().allow(&name("phone"), &add, reset).unwrap();
        ledger.make(change, NOW).unwrap();
        assert_eq!(ledger.registry().peer(key(1)).unwrap().allowed, expect);
    }
    let many: Vec<_> = (0..65u8).map(|n| format!("10.{n}.0.0/16").parse().unwrap()).collect();
    let refused = ledger.registry().allow(&name("phone"), &many, false);
    assert_eq!(refused, Err(AllowError::TooMany(name("phone"))));
}

#[test]
fn a_restart_remembers_everything() {
    let dir = tempfile::tempdir().unwrap();
    let mut before = ledger(dir.path());
    invite(&mut before, "phone", 2, token(1));
    enrol(&mut before, key(1), token(1)).unwrap();
    before.note_refusal(key(5), Refusal::Used, NOW).unwrap();
    let (registry, audit) = (before.registry().clone(), before.audit(10).unwrap());
    drop(before);
    let after = ledger(dir.path());
    assert_eq!(*after.registry(), registry);
    assert_eq!(after.audit(10).unwrap(), audit);
    assert_eq!(audit.len(), 3);
}

#[test]
fn a_flood_of_refusals_writes_little() {
    let dir = tempfile::tempdir().unwrap();
    let mut ledger = ledger(dir.path());
    for n in 0..200 {
        ledger.note_refusal(key(n), Refusal::Unknown, NOW).unwrap();
    }
    assert_eq!(ledger.audit(1000).unwrap().len(), REFUSALS_PER_MINUTE_MAX as usize);
    ledger.note_refusal(key(1), Refusal::Unknown, UnixSeconds(NOW.0 + 60)).unwrap();
    assert_eq!(ledger.audit(1000).unwrap().len(), REFUSALS_PER_MINUTE_MAX as usize + 1);
}

#[test]
fn an_old_backup_gives_nothing_back_that_was_taken_since() {
    let dir = tempfile::tempdir().unwrap();
    let mut ledger = ledger(dir.path());
    invite(&mut ledger, "phone", 1, token(1));
    invite(&mut ledger, "team", 3, token(2));
    enrol(&mut ledger, key(1), token(1)).unwrap();
    let old = ledger.snapshot().unwrap();
    enrol(&mut ledger, key(2), token(2)).unwrap();
    let change = ledger.registry().revoke(&name("phone"), NOW).unwrap();
    ledger.make(change, NOW).unwrap();
    let restored = old.over(ledger.snapshot().unwrap(), LATER);
    let mut store = EmbeddedStore::create(&dir.path().join("other"), "gateway").unwrap();
    restored.write_to(&mut store).unwrap();
    let networks = "10.77.0.0/24".parse().unwrap();
    let ledger = Ledger::open(Box::new(store), networks).unwrap();
    assert!(!ledger.registry().peer(key(1)).unwrap().is_enrolled());
    let uses: Vec<u32> = ledger.registry().open_invites(NOW).map(|invite| invite.used).collect();
    assert_eq!(uses, [1], "the use that was spent since stays spent");
    assert_eq!(ledger.audit(1).unwrap()[0].event, AuditEvent::Restored);
}

/// What an operator and clients may do, in any order.
#[derive(Clone, Debug)]
enum Op {
    Invite { name: u8, uses: u32, token: u8 },
    Enrol { key: u8, token: u8 },
    Revoke { name: u8 },
    Wait { seconds: u64 },
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        (0..6u8, 1..4u32, 0..8u8).prop_map(|(name, uses, token)| Op::Invite { name, uses, token }),
        (0..12u8, 0..8u8).prop_map(|(key, token)| Op::Enrol { key, token }),
        (0..6u8).prop_map(|name| Op::Revoke { name }),
        (0..30_000u64).prop_map(|seconds| Op::Wait { seconds }),
    ]
}

proptest! {
    #[test]
    fn no_two_members_share_a_name_or_an_address(ops in proptest::collection::vec(op(), 0..60)) {
        let networks: Networks = "10.0.0.0/29".parse().unwrap();
        let mut registry = Registry::new(networks, Vec::new(), Vec::new());
        let mut now = NOW;
        for op in ops {
            let change = match op {
                Op::Invite { name: n, uses, token: t } => {
                    let expires = UnixSeconds(now.0 + 20_000);
                    let terms = InviteTerms { expires, ..terms(&format!("n{n}"), uses) };
                    // A token is random and never issued twice.
                    let fresh = registry.enrol(key(99), Some(token(t)), now);
                    (fresh == Err(Refusal::Unknown))
                        .then(|| registry.invite(terms, token(t), now).ok())
                        .flatten()
                }
                Op::Enrol { key: k, token: t } => {
                    match registry.enrol(key(k), Some(token(t)), now) {
                        Ok(Enrolment::New(change)) => Some(change),
                        Ok(Enrolment::Known) | Err(_) => None,
                    }
                }
                Op::Revoke { name: n } => registry.revoke(&name(&format!("n{n}")), now).ok(),
                Op::Wait { seconds } => {
                    now.0 += seconds;
                    None
                }
            };
            if let Some(change) = change {
                registry.apply(change);
            }
            let members: Vec<&Peer> = registry.peers().filter(|peer| peer.is_enrolled()).collect();
            for (position, peer) in members.iter().enumerate() {
                prop_assert!(registry.lease(peer).is_some());
                prop_assert!(peer.host >= HostIndex::FIRST_CLIENT);
                for other in &members[..position] {
                    prop_assert_ne!(&peer.name, &other.name);
                    prop_assert_ne!(peer.host, other.host);
                }
            }
            for invite in registry.open_invites(now) {
                prop_assert!(invite.used < invite.uses);
            }
        }
    }
}
