//! The states against the tables of the specification.

use super::*;

const TABLES: &str = include_str!("../../../../docs/spec/paths.md");
const NOW: Instant = Instant::ZERO;
const TRUSTS: [&str; 3] = ["claimed", "chosen", "proven"];
const HEALTHS: [&str; 3] = ["good", "silent", "gone"];

/// The rows under a heading: event, the states that it changes, and the state after it.
fn rows(heading: &str) -> Vec<(&'static str, Vec<&'static str>, &'static str)> {
    let part = TABLES.split("\n## ").find_map(|part| part.strip_prefix(heading)).unwrap();
    let lines = part.lines().filter(|line| line.starts_with('|')).skip(2);
    let cells = lines.map(|line| line.split('|').map(str::trim).collect::<Vec<_>>());
    cells.map(|cell| (cell[1], cell[2].split(", ").collect(), cell[3])).collect()
}

fn state(trust: &str, health: &str) -> State {
    let trust = match trust {
        "claimed" => Trust::Claimed { received: 0, sent: 0, instead_of: None },
        "chosen" => Trust::Chosen,
        "proven" => Trust::Proven,
        other => panic!("no trust is called {other}"),
    };
    let health = match health {
        "good" => Health::Good,
        "silent" => Health::Silent { since: NOW },
        "gone" => Health::Gone,
        other => panic!("no health is called {other}"),
    };
    State { trust, health }
}

fn happen(event: &str, state: &mut State) {
    match event {
        "proven" => state.move_to_proven(),
        "led elsewhere" => state.move_to_chosen(),
        "overdue" => state.move_to_silent(NOW),
        "answered" => drop(state.move_from_silent()),
        "given up" => state.move_to_gone(),
        "heard again" => state.move_from_gone(),
        other => panic!("no event is called {other}"),
    }
}

/// The state after an event, as the rows say.
fn after<'a>(rows: &[(&str, Vec<&'static str>, &'a str)], event: &str, before: &'a str) -> &'a str {
    let row = rows.iter().find(|(of, from, _)| *of == event && from.contains(&before));
    row.map_or(before, |&(_, _, to)| to)
}

#[test]
fn each_event_changes_what_its_row_says_and_nothing_else() {
    let (trusts, healths) = (rows("Trust\n"), rows("Health\n"));
    let events: std::collections::BTreeSet<_> =
        trusts.iter().chain(&healths).map(|(event, ..)| *event).collect();
    assert_eq!(events.len(), 6, "{events:?}");
    for event in events {
        for (trust, health) in TRUSTS.iter().flat_map(|trust| HEALTHS.map(|it| (*trust, it))) {
            let mut state = state(trust, health);
            happen(event, &mut state);
            let expected =
                self::state(after(&trusts, event, trust), after(&healths, event, health));
            assert_eq!(state, expected, "{event} of a path that is {trust} and {health}");
        }
    }
}

#[test]
fn an_answer_to_a_path_that_was_not_silent_tells_nothing_new() {
    for health in HEALTHS {
        let mut state = state("proven", health);
        assert_eq!(state.move_from_silent(), health == "silent");
    }
}

#[test]
fn a_claimed_address_gets_three_times_what_came_from_it() {
    let mut state = state("claimed", "good");
    assert!(!state.allows(1));
    state.received(100);
    assert!(state.allows(300) && !state.allows(301));
    state.sent(299);
    assert!(state.allows(1) && !state.allows(2));
    state.move_to_proven();
    assert!(state.allows(1_000_000));
}
