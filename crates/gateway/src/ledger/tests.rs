//! Who gets in, who does not, and that a restart remembers.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use proptest::prelude::*;
use rove_host::invite::{Token, TokenHash};
use rove_host::store::{EmbeddedStore, Ends};
use rove_host::values::{HostIndex, PeerName, SUBNETS_MAX};

use super::registry::{AllowError, NewInviteError, RevokeError};
use super::*;

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

fn revoke(ledger: &mut Ledger, text: &str) -> Change {
    let change = ledger.registry().revoke(&name(text), NOW).unwrap();
    ledger.make(change.clone(), NOW).unwrap();
    change
}

/// Allows these, and no others.
fn allow(ledger: &mut Ledger, text: &str, destinations: &[&str]) {
    let destinations: Vec<_> = destinations.iter().map(|text| text.parse().unwrap()).collect();
    let change = ledger.registry().allow(&name(text), &destinations, true, NOW).unwrap();
    ledger.make(change, NOW).unwrap();
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
fn a_revoked_key_stays_out_and_its_person_comes_back_by_another() {
    let dir = tempfile::tempdir().unwrap();
    let mut ledger = ledger(dir.path());
    invite(&mut ledger, "phone", 2, token(1));
    enrol(&mut ledger, key(1), token(1)).unwrap();
    revoke(&mut ledger, "phone");
    assert_eq!(enrol(&mut ledger, key(1), token(1)), Err(Refusal::Revoked));
    assert_eq!(enrol(&mut ledger, key(2), token(1)), Err(Refusal::Expired), "withdrawn too");
    let again = ledger.registry().revoke(&name("phone"), NOW);
    assert_eq!(again, Err(RevokeError::Already(name("phone"))));
    let unknown = ledger.registry().revoke(&name("tablet"), NOW);
    assert_eq!(unknown, Err(RevokeError::Unknown(name("tablet"))));
    invite(&mut ledger, "phone", 1, token(2));
    assert_eq!(enrol(&mut ledger, key(1), token(2)), Err(Refusal::Revoked));
    assert!(matches!(enrol(&mut ledger, key(2), token(2)), Ok(Enrolment::New(_))));
    assert_eq!(ledger.registry().peer(key(2)).unwrap().host, HostIndex(3), "not the old address");
}

#[test]
fn who_is_revoked_cannot_come_back_by_the_line_it_came_by() {
    let dir = tempfile::tempdir().unwrap();
    let mut ledger = ledger(dir.path());
    invite(&mut ledger, "team", 10, token(1));
    invite(&mut ledger, "guest", 1, token(2));
    for n in 1..=3 {
        enrol(&mut ledger, key(n), token(1)).unwrap();
    }
    let change = revoke(&mut ledger, "team-3");
    let names = |invites: &[InviteRecord]| {
        invites.iter().map(|invite| invite.name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(names(&change.invites), ["team"]);
    assert_eq!(enrol(&mut ledger, key(4), token(1)), Err(Refusal::Expired));
    // The others stay, and so does an invite that has nothing to do with it.
    assert!(ledger.registry().peer(key(1)).unwrap().is_enrolled());
    enrol(&mut ledger, key(5), token(2)).unwrap();
    assert_eq!(names(&revoke(&mut ledger, "team").invites), [""; 0], "it is withdrawn already");
}

#[test]
fn an_invite_is_given_only_where_an_address_is_free() {
    let invite = |registry: &Registry, text: &str, uses| {
        registry.invite(terms(text, uses), token(registry.invites().count() as u8), NOW)
    };
    let networks: Networks = "10.77.0.0/29,fd77::/64".parse().unwrap();
    let mut registry = Registry::new(networks, Vec::new(), Vec::new());
    // Of .1 to .6 the gateway has the first.
    let refused = |taken| Err(NewInviteError::NoAddress { networks, room: 5, taken });
    assert_eq!(invite(&registry, "all", 6), refused(0));
    let change = invite(&registry, "team", 4).unwrap();
    registry.apply(change);
    assert_eq!(invite(&registry, "pair", 2), refused(4));
    for n in 1..=4 {
        let Ok(Enrolment::New(change)) = registry.enrol(key(n), Some(token(0)), NOW) else {
            panic!("there is room");
        };
        registry.apply(change);
    }
    let change = invite(&registry, "last", 1).unwrap();
    registry.apply(change);
    assert_eq!(invite(&registry, "late", 1), refused(5));
    let change = registry.revoke(&name("team-2"), NOW).unwrap();
    registry.apply(change);
    assert!(invite(&registry, "late", 1).is_ok());
}

#[test]
fn subnets_are_bounded_for_one_and_for_all() {
    let subnet = |n: usize| format!("192.{}.{}.0/24", 168 + n / 256, n % 256).parse().unwrap();
    let networks: Networks = "10.0.0.0/16".parse().unwrap();
    let mut registry = Registry::new(networks, Vec::new(), Vec::new());
    let mut given = 0;
    let mut invite = |registry: &Registry, count: usize| {
        let subnets = (given..given + count).map(subnet).collect();
        let n = given / SUBNETS_MAX;
        let terms = InviteTerms { subnets, ..terms(&format!("n{n}"), 1) };
        let change = registry.invite(terms, TokenHash([n as u8; 32]), NOW)?;
        given += count;
        Ok(change)
    };
    assert_eq!(invite(&registry, SUBNETS_MAX + 1), Err(NewInviteError::ManySubnets));
    for _ in 0..SUBNETS_IN_ALL_MAX / SUBNETS_MAX {
        let change = invite(&registry, SUBNETS_MAX).unwrap();
        registry.apply(change);
    }
    assert_eq!(invite(&registry, 1), Err(NewInviteError::SubnetsFull));
    // Invites that expire give theirs back.
    let terms = InviteTerms { subnets: vec![subnet(0)], ..terms("late", 1) };
    assert!(registry.invite(terms, TokenHash([255; 32]), LATER).is_ok());
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
        let change = ledger.registry().allow(&name("phone"), &add, reset, NOW).unwrap();
        ledger.make(change, NOW).unwrap();
        assert_eq!(ledger.registry().peer(key(1)).unwrap().allowed, expect);
    }
    let many: Vec<_> = (0..65u8).map(|n| format!("10.{n}.0.0/16").parse().unwrap()).collect();
    let refused = ledger.registry().allow(&name("phone"), &many, false, NOW);
    assert_eq!(refused, Err(AllowError::TooMany(name("phone"))));
}

#[test]
fn what_is_allowed_before_the_enrolment_comes_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut before = ledger(dir.path());
    invite(&mut before, "team", 2, token(1));
    for destination in ["10.1.0.0/16", "10.0.0.5:22"] {
        let destinations = [destination.parse().unwrap()];
        let change = before.registry().allow(&name("team"), &destinations, false, NOW).unwrap();
        before.make(change, NOW).unwrap();
    }
    drop(before);
    let mut ledger = ledger(dir.path());
    enrol(&mut ledger, key(1), token(1)).unwrap();
    enrol(&mut ledger, key(2), token(1)).unwrap();
    for n in [1, 2] {
        let peer = ledger.registry().peer(key(n)).unwrap();
        let allowed: Vec<String> = peer.allowed.iter().map(ToString::to_string).collect();
        assert_eq!(allowed, ["10.0.0.5/32:22", "10.1.0.0/16"]);
    }
    let nobody = ledger.registry().allow(&name("phone"), &[], true, NOW);
    assert_eq!(nobody, Err(AllowError::Unknown(name("phone"))));
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
fn strangers_push_nothing_out_of_the_log_but_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let mut ledger = ledger(dir.path());
    invite(&mut ledger, "phone", 1, token(1));
    ledger.refusals = Ring::open(&*ledger.store, Table::Refusals, 3).unwrap();
    for n in 0..20 {
        ledger.note_refusal(key(n), Refusal::Unknown, NOW).unwrap();
    }
    let shown = |ledger: &Ledger| -> Vec<String> {
        let events = ledger.audit(100).unwrap().into_iter().map(|entry| entry.event);
        let shown = events.map(|event| match event {
            AuditEvent::Refused { key, .. } => format!("refused {}", key.0[0]),
            event @ (AuditEvent::Invited { .. }
            | AuditEvent::Enrolled { .. }
            | AuditEvent::Revoked { .. }
            | AuditEvent::Withdrawn { .. }
            | AuditEvent::Allowed { .. }
            | AuditEvent::Restored) => format!("{event:?}"),
        });
        shown.collect()
    };
    let invited = AuditEvent::Invited { name: name("phone"), uses: 1 };
    let refused = [17, 18, 19].map(|n| format!("refused {n}"));
    let expected = [vec![format!("{invited:?}")], refused.to_vec()].concat();
    assert_eq!(shown(&ledger), expected);
    assert_eq!(ledger.store.read(Table::Refusals).unwrap().len(), 3, "and the file does not grow");
    drop(ledger);
    assert_eq!(shown(&self::ledger(dir.path())), expected);
}

/// A store on a disk that can be full.
struct Disk {
    store: EmbeddedStore,
    full: Arc<AtomicBool>,
}

impl Store for Disk {
    fn read(&self, table: Table) -> Result<Records, StoreError> {
        self.store.read(table)
    }

    fn last(&self, table: Table, count: usize) -> Result<Records, StoreError> {
        self.store.last(table, count)
    }

    fn ends(&self, table: Table) -> Result<Option<Ends>, StoreError> {
        self.store.ends(table)
    }

    fn commit(&mut self, writes: &[Write]) -> Result<(), StoreError> {
        if self.full.load(Ordering::Relaxed) {
            return Err(StoreError::System { path: "disk".into(), what: "full".to_owned() });
        }
        self.store.commit(writes)
    }
}

#[test]
fn what_is_taken_away_does_not_wait_for_a_disk() {
    let dir = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::create(&dir.path().join("store"), "gateway").unwrap();
    let full = Arc::<AtomicBool>::default();
    let store = Box::new(Disk { store, full: Arc::clone(&full) });
    let mut ledger = Ledger::open(store, "10.77.0.0/24".parse().unwrap()).unwrap();
    for (n, text) in [(1, "laptop"), (2, "phone")] {
        invite(&mut ledger, text, 1, token(n));
        enrol(&mut ledger, key(n), token(n)).unwrap();
    }
    full.store(true, Ordering::Relaxed);
    for (text, n) in [("laptop", 1), ("phone", 2)] {
        let change = ledger.registry().revoke(&name(text), NOW).unwrap();
        assert!(ledger.make_in_any_case(change, NOW).is_err());
        assert!(!ledger.registry().peer(key(n)).unwrap().is_enrolled());
    }
    // What is given waits, and leaves nothing behind.
    let change = ledger.registry().invite(terms("tablet", 1), token(3), NOW).unwrap();
    assert!(ledger.make(change, NOW).is_err());
    assert!(ledger.settle().is_err() && ledger.is_in_debt());
    full.store(false, Ordering::Relaxed);
    // Any later change takes along what is owed.
    ledger.note_refusal(key(9), Refusal::Unknown, NOW).unwrap();
    assert!(!ledger.is_in_debt());
    let registry = ledger.registry().clone();
    drop(ledger);
    let after = self::ledger(dir.path());
    assert_eq!(after.registry().peers().collect::<Vec<_>>(), registry.peers().collect::<Vec<_>>());
    assert!(after.registry().open_invites(NOW).next().is_none());
    let events = after.audit(100).unwrap().into_iter().map(|entry| entry.event);
    let revoked = events.filter(|event| matches!(event, AuditEvent::Revoked { .. })).count();
    assert_eq!(revoked, 2);
}

#[test]
fn an_old_backup_gives_nothing_back_that_was_taken_since() {
    let dir = tempfile::tempdir().unwrap();
    let mut ledger = ledger(dir.path());
    invite(&mut ledger, "phone", 1, token(1));
    invite(&mut ledger, "team", 3, token(2));
    invite(&mut ledger, "laptop", 1, token(3));
    enrol(&mut ledger, key(1), token(1)).unwrap();
    enrol(&mut ledger, key(3), token(3)).unwrap();
    allow(&mut ledger, "laptop", &["10.0.0.0/8"]);
    let old = ledger.snapshot().unwrap();
    enrol(&mut ledger, key(2), token(2)).unwrap();
    allow(&mut ledger, "laptop", &["10.1.0.0/16"]);
    invite(&mut ledger, "radio", 1, token(4));
    revoke(&mut ledger, "phone");
    let (restored, dropped) = old.over(ledger.snapshot().unwrap(), NOW);
    assert_eq!(dropped, Dropped { peers: vec![name("team")], invites: vec![name("radio")] });
    let mut store = EmbeddedStore::create(&dir.path().join("other"), "gateway").unwrap();
    restored.write_to(&mut store).unwrap();
    let networks = "10.77.0.0/24".parse().unwrap();
    let ledger = Ledger::open(Box::new(store), networks).unwrap();
    assert!(!ledger.registry().peer(key(1)).unwrap().is_enrolled());
    assert!(ledger.registry().peer(key(2)).is_none());
    let laptop = ledger.registry().peer(key(3)).unwrap();
    assert!(laptop.is_enrolled());
    assert_eq!(laptop.allowed, ["10.1.0.0/16".parse().unwrap()], "no more than now");
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

#[test]
fn the_way_to_a_peer_and_its_counter_are_remembered_while_it_belongs() {
    let dir = tempfile::tempdir().unwrap();
    let mut first = ledger(dir.path());
    for n in 1..=3 {
        invite(&mut first, &format!("peer-{n}"), 1, token(n));
        enrol(&mut first, key(n), token(n)).unwrap();
    }
    let reach = |index| {
        let (local, remote) = ("192.0.2.1:4500", "[2001:db8::1]:9");
        Reach { local: local.parse().unwrap(), remote: remote.parse().unwrap(), index }
    };
    let changes = (1..=4).map(|n| (key(n), Some(reach(u32::from(n)))));
    let counters = |from: u8| (from..=4).map(|n| (key(n), u64::from(n) << 40)).collect();
    first.note_sessions(&changes.collect(), &counters(2)).unwrap();
    let newer = [(key(1), Some(reach(9))), (key(2), None)];
    first.note_sessions(&newer.into_iter().collect(), &counters(3)).unwrap();
    drop(first);
    let mut again = ledger(dir.path());
    let known = [(key(1), reach(9)), (key(3), reach(3))];
    assert_eq!(again.reaches().unwrap(), known.into_iter().collect());
    let known_counters = [(key(2), 2 << 40), (key(3), 3 << 40)];
    assert_eq!(again.counters().unwrap(), known_counters.into_iter().collect());
    revoke(&mut again, "peer-3");
    assert_eq!(again.reaches().unwrap(), known[..1].iter().copied().collect());
    assert_eq!(again.counters().unwrap(), known_counters[..1].iter().copied().collect());
}

#[test]
fn an_expired_invite_stays_expired_when_the_clock_goes_back_and_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    {
        let mut ledger = ledger(path);
        invite(&mut ledger, "phone", 1, token(1));
        let time = ledger.time(LATER);
        assert_eq!(ledger.registry().enrol(key(1), Some(token(1)), time), Err(Refusal::Expired));
        ledger.note_refusal(key(1), Refusal::Expired, LATER).unwrap();
        let time = ledger.time(NOW);
        assert_eq!(ledger.registry().enrol(key(1), Some(token(1)), time), Err(Refusal::Expired));
    }
    let mut ledger = ledger(path);
    let time = ledger.time(NOW);
    assert_eq!(ledger.registry().enrol(key(1), Some(token(1)), time), Err(Refusal::Expired));
    assert!(ledger.behind().is_some_and(|behind| behind.since == NOW), "and that is told");

    // A new invite works meanwhile.
    let terms = InviteTerms { expires: UnixSeconds(time.0 + 3_600), ..terms("tablet", 1) };
    let change = ledger.registry().invite(terms, token(2), time).unwrap();
    ledger.make(change, NOW).unwrap();
    let time = ledger.time(NOW);
    assert!(ledger.registry().enrol(key(2), Some(token(2)), time).is_ok());

    // The operator says that the clock is right: so it is from now on, and after a restart.
    ledger.reset_time(NOW).unwrap();
    assert_eq!((ledger.time(NOW), ledger.behind()), (NOW, None));
    drop(ledger);
    let mut ledger = self::ledger(path);
    assert_eq!(ledger.time(NOW), NOW);
    assert!(ledger.registry().enrol(key(1), Some(token(1)), NOW).is_ok());
}

#[test]
fn the_latest_time_outlives_a_backup_and_its_restore() {
    let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut first = ledger(dir.path());
    first.time(LATER);
    let backup = first.snapshot().unwrap();
    let text = serde_json::to_string(&backup).unwrap();
    let (restored, _) = serde_json::from_str::<LedgerSnapshot>(&text)
        .unwrap()
        .over(LedgerSnapshot { latest: Some(NOW), ..LedgerSnapshot::default() }, NOW);
    let file = other.path().join("store");
    restored.write_to(&mut EmbeddedStore::create(&file, "gateway").unwrap()).unwrap();
    assert_eq!(ledger(other.path()).time(NOW), LATER);

    // One that knows no latest time, as 0.1 wrote it, reads too.
    let old = text.replace(&format!(",\"latest\":{}", LATER.0), "");
    assert_eq!(serde_json::from_str::<LedgerSnapshot>(&old).unwrap().latest, None);
}
