//! No peer takes the memory from the others: laws of [`Memory`] alone.

use proptest::prelude::*;

use super::*;

const MAX: usize = 1 << 20;
/// Bytes that a connection asks for at once.
const PIECE: usize = 1_000;

/// A peer with as many connections as it likes.
#[derive(Clone, Default)]
struct Client {
    account: Account,
    /// Bytes that each of its connections holds.
    connections: Vec<usize>,
}

impl Client {
    fn held(&self) -> usize {
        self.connections.iter().sum()
    }

    /// Takes as much as it gets, connection by connection, at most `most` in all.
    fn grab(&mut self, memory: &mut Memory, most: usize) {
        memory.serve(&mut self.account);
        let mut full = 0;
        while full < 2 && self.held() + PIECE <= most {
            let held = self.connections.last().copied().unwrap_or(usize::MAX / 2);
            if memory.take(held, PIECE).is_ok() {
                *self.connections.last_mut().unwrap() += PIECE;
                full = 0;
            } else {
                self.connections.push(0);
                full += 1;
            }
        }
        memory.serve(&mut self.account);
    }

    /// Up to `bytes` of its data are delivered.
    fn drain(&mut self, memory: &mut Memory, mut bytes: usize) {
        memory.serve(&mut self.account);
        for held in &mut self.connections {
            let given = (*held).min(bytes);
            memory.give_back(given);
            *held -= given;
            bytes -= given;
        }
        memory.serve(&mut self.account);
    }
}

fn shared() -> Memory {
    let mut memory = Memory::new(MAX);
    memory.share_among(2);
    memory
}

#[test]
fn who_is_alone_on_a_node_has_all_but_the_share_of_one() {
    let (mut memory, mut only) = (Memory::new(MAX), Client::default());
    only.grab(&mut memory, MAX);
    assert!(only.held() > MAX * 7 / 8 - 2 * PIECE, "{}", only.held());
}

#[test]
fn one_client_leaves_something_and_a_late_one_gets_its_part_as_the_other_goes_on() {
    let (mut memory, mut first, mut late) = (shared(), Client::default(), Client::default());
    first.grab(&mut memory, MAX);
    assert!(first.held() > MAX * 2 / 5, "it gets nearly half: {}", first.held());
    late.grab(&mut memory, MAX);
    assert!(late.held() > MAX / 5, "at once: {}", late.held());
    for _ in 0..100 {
        first.drain(&mut memory, 10 * PIECE);
        first.grab(&mut memory, MAX);
        late.grab(&mut memory, MAX);
    }
    let (first, late) = (first.held(), late.held());
    assert!(first.abs_diff(late) < MAX / 10, "{first} and {late}");
}

#[test]
fn of_eleven_that_want_all_each_gets_its_part_in_the_end() {
    let mut memory = shared();
    let mut greedy = vec![Client::default(); 11];
    for _ in 0..100 {
        for client in &mut greedy {
            client.grab(&mut memory, MAX);
            client.drain(&mut memory, 10 * PIECE);
        }
    }
    let held: Vec<usize> = greedy.iter().map(Client::held).collect();
    assert!(held.iter().all(|held| *held > MAX / 20), "{held:?}");
}

#[test]
fn memory_that_others_filled_is_not_short_for_who_has_little() {
    let (mut memory, mut first, mut late) = (shared(), Client::default(), Client::default());
    first.grab(&mut memory, MAX);
    let mut second = Client::default();
    second.grab(&mut memory, MAX);
    assert!(memory.used() > MAX / 2);
    memory.serve(&mut first.account);
    assert!(memory.is_short());
    memory.serve(&mut first.account);
    late.grab(&mut memory, 5 * PIECE);
    memory.serve(&mut late.account);
    assert!(!memory.is_short());
}

#[test]
fn one_client_does_not_take_all_blocks_nor_all_connections() {
    let mut memory = shared();
    let (mut first, mut late) = (Account::default(), Account::default());
    memory.serve(&mut first);
    while memory.borrow(1).is_ok() {}
    while !memory.is_crowded() {
        memory.one_flow_more();
    }
    while memory.take_for_oldest(PIECE) {}
    memory.serve(&mut first);
    memory.serve(&mut late);
    assert!((0..8).all(|_| memory.borrow(1).is_ok()));
    assert!((0..Memory::FLOWS_MAX / 10).all(|_| {
        memory.one_flow_more();
        !memory.is_crowded()
    }));
    assert!((0..20).all(|_| memory.take_for_oldest(PIECE)), "oldest segments have room");
}

proptest! {
    /// Whatever three other clients do, a client that holds nothing can still hold a sixteenth of
    /// the memory that connections may use.
    #[test]
    fn whoever_holds_nothing_finds_something(
        steps in proptest::collection::vec((0usize..3, any::<bool>(), 0usize..MAX), 1..60),
    ) {
        let mut memory = shared();
        let mut others = vec![Client::default(); 3];
        for (who, grabs, bytes) in steps {
            if grabs {
                others[who].grab(&mut memory, bytes);
            } else {
                others[who].drain(&mut memory, bytes);
            }
            let sum: usize = others.iter().map(Client::held).sum();
            prop_assert_eq!(sum, memory.used());
            let (mut copy, mut new) = (memory.clone(), Client::default());
            new.grab(&mut copy, MAX);
            let part = MAX / 8 * 7 / 16 - 2 * PIECE;
            prop_assert!(new.held() >= part, "{} is less than {part}", new.held());
        }
        for other in &mut others {
            other.drain(&mut memory, MAX);
            prop_assert_eq!(other.account, Account::default());
        }
        prop_assert_eq!(memory.used(), 0);
    }
}
