use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::flow::pep::cache::Payload;
use crate::flow::pep::memory::Memory;
use crate::flow::pep::tcp::STALE;
use crate::flow::rules::Rules;
use crate::time::Duration;
use crate::wire::tcp::Seq;

fn tuple(number: u32) -> Tuple {
    let port = u16::try_from(number % 60_000).unwrap();
    let local = [10, 0, 0, u8::try_from(number / 60_000).unwrap()].into();
    Tuple { local: (local, port), remote: ([192, 0, 2, 1].into(), 443), protocol: 6 }
}

fn flow(number: u32) -> Connection {
    let used_at = Instant::ZERO + Duration::from_millis(u64::from(number));
    Connection::new(tuple(number), &Rules::default(), used_at)
}

/// Adds a connection, as the owner of the table does.
fn add(table: &mut Table, now: Instant, number: u32) -> FlowId {
    if let Some(id) = table.in_the_way(now, false) {
        table.remove(id);
    }
    table.insert(flow(number)).unwrap()
}

#[test]
fn one_that_ended_makes_room_for_the_next() {
    let mut table = Table::new(1);
    let now = Instant::ZERO + Duration::from_secs(1_000);
    let id = add(&mut table, now, 0);
    add(&mut table, now, 1);
    table.get_mut(id).unwrap().stage(Stage::Closed, None);
    let next = add(&mut table, now, 2);
    assert_eq!((next.index(), table.len()), (id.index(), 2));
    assert!(table.get(id).is_none() && table.get(next).is_some(), "the old name finds no flow");
}

#[test]
fn a_full_table_lets_go_of_what_is_missed_least_and_owes_nothing() {
    let mut table = Table::new(1);
    let now = Instant::ZERO + Duration::from_secs(1_000);
    for number in 0..CONNECTIONS_MAX as u32 {
        let id = table.insert(flow(number)).unwrap();
        let flow = table.get_mut(id).unwrap();
        let state = if number == 9 { Stage::Closed } else { Stage::Established };
        flow.stage(state, (number < 9).then_some(Seq(1)));
    }
    add(&mut table, now, 50_000);
    assert_eq!(table.len(), CONNECTIONS_MAX);
    assert_eq!(table.find(&tuple(9)), None, "it had ended");
    add(&mut table, now, 50_001);
    assert_eq!(table.find(&tuple(16)), None, "the oldest of those looked at next");
    for number in 2..3 * CONNECTIONS_MAX as u32 {
        add(&mut table, now, 50_000 + number);
    }
    assert!((0..9).all(|number| table.find(&tuple(number)).is_some()), "they are owed");
}

#[test]
fn ten_thousand_idle_connections_take_less_than_ten_megabytes() {
    let records = size_of::<Connection>() + size_of::<Flow>();
    let size = records + size_of::<Option<Box<Flow>>>() + 4 * SPARE;
    assert!(size * 10_000 < 7_000_000, "{size} bytes each");
}

proptest! {
    #[test]
    fn it_finds_what_a_map_finds(
        operations in proptest::collection::vec((any::<bool>(), 0u32..60), 1..300),
    ) {
        let (mut table, mut model, mut old) = (Table::new(3), BTreeMap::new(), Vec::new());
        for (adds, number) in operations {
            match (adds, model.get(&number).copied()) {
                (true, None) => {
                    let id = table.insert(flow(number));
                    model.insert(number, id.unwrap());
                }
                (false, Some(id)) => {
                    table.remove(id);
                    model.remove(&number);
                    old.push(id);
                }
                (true, Some(_)) | (false, None) => {}
            }
            prop_assert_eq!(table.len(), model.len());
            prop_assert!(old.iter().all(|&id| table.get(id).is_none()));
            for number in 0..60 {
                prop_assert_eq!(table.find(&tuple(number)), model.get(&number).copied());
            }
        }
    }
}

#[test]
fn what_is_kept_of_a_connection_that_died_without_a_word_is_let_go_of() {
    let (mut table, mut memory) = (Table::new(1), Memory::new(1 << 20));
    for number in 0..10 {
        let used_at = Instant::ZERO + STALE * (number % 2);
        let mut flow = Connection::new(tuple(number), &Rules::default(), used_at);
        let bytes = (&[7; 100][..], &[][..]);
        let payload = Payload { seq: Seq(1), bytes, home: None, sum: 0, push: false };
        flow.keep_bytes(&mut memory, payload);
        table.insert(flow).unwrap();
    }
    assert_eq!(memory.used(), 1_000);
    for _ in 0..3 {
        table.let_go_of_stale(Instant::ZERO + STALE, |flow| flow.release(&mut memory));
    }
    assert_eq!(memory.used(), 500, "half of them are in use");
}

#[test]
fn a_flow_that_becomes_a_connection_is_the_same_flow_and_stays_when_that_ends() {
    let mut table = Table::new(1);
    let now = Instant::ZERO;
    let id = table.observe(now, &tuple(1));
    assert_eq!((table.find(&tuple(1)), table.len()), (None, 0), "it is no connection");
    assert_eq!(table.insert(flow(1)), Some(id));
    assert_eq!((table.find(&tuple(1)), table.observe(now, &tuple(1))), (Some(id), id));
    table.remove(id);
    assert_eq!((table.find(&tuple(1)), table.id_of(&tuple(1))), (None, Some(id)));
    // A connection that is observed is not known any longer than it lasts.
    let id = table.insert(flow(2)).unwrap();
    assert_eq!(table.observe(now, &tuple(2)), id);
    table.remove(id);
    assert_eq!((table.id_of(&tuple(2)), table.len()), (None, 0));
}

#[test]
fn others_keep_no_connection_from_making_room() {
    let mut table = Table::new(1);
    let now = Instant::ZERO + Duration::from_secs(1_000);
    for number in 0..2 * OTHERS_MAX as u32 {
        table.observe(now, &tuple(number));
    }
    let known = (0..table.places()).filter(|&number| table.at(number).is_some()).count();
    assert!(known <= OTHERS_MAX, "{known}");
    let id = table.insert(flow(50_000)).unwrap();
    assert_eq!(table.in_the_way(now, true), Some(id), "behind all of them");
}
