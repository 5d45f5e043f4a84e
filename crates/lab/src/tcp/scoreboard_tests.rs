use super::*;

fn board(segments: u64) -> Scoreboard {
    let mut board = Scoreboard::default();
    for index in 0..segments {
        board.push(Sent {
            from: index * 10,
            to: index * 10 + 10,
            sent_ns: index,
            fate: Fate::Flying,
            again: false,
            snapshot: Snapshot::default(),
        });
    }
    board
}

#[test]
fn what_is_lost_and_sent_again_is_counted_once() {
    let mut board = board(5);
    assert_eq!(board.arrive(20, 40).len(), 2);
    assert_eq!(board.arrive(20, 40).len(), 0, "no news");
    assert_eq!((board.in_flight(), board.arrived(), board.highest_arrived()), (3, 2, 40));
    assert!(board.lose(0));
    assert!(!board.lose(0));
    assert_eq!((board.in_flight(), board.lost(), board.first_lost()), (2, 1, Some(0)));
    board.resend(0, 9, Snapshot::default());
    assert_eq!((board.in_flight(), board.lost(), board.resent()), (3, 1, 1));
    assert_eq!(board.first_lost(), None);
    assert!(board.lose(0), "the copy, too");
    assert_eq!(board.first_lost(), Some(0));
    board.find_again();
    assert_eq!((board.in_flight(), board.lost()), (3, 0));
    let gone = board.acknowledge(30);
    assert_eq!(gone.len(), 3);
    assert_eq!((board.len(), board.in_flight(), board.arrived()), (2, 1, 1));
}

#[test]
fn a_loss_probe_counts_as_what_it_probes() {
    let mut board = board(2);
    board.probe(1, 5, Snapshot::default());
    assert_eq!((board.in_flight(), board.resent(), board.lost()), (2, 0, 0));
    assert!(board.get(1).is_some_and(|sent| sent.again && sent.sent_ns == 5));
}

#[test]
fn what_was_sent_again_and_not_lost_flies_twice_until_one_is() {
    let mut board = board(2);
    board.lose(1);
    board.resend(1, 5, Snapshot::default());
    board.find_again();
    assert_eq!((board.in_flight(), board.resent(), board.lost()), (3, 1, 0));
    board.lose(1);
    assert_eq!((board.in_flight(), board.resent(), board.lost()), (2, 1, 1));
}

#[test]
fn parts_of_segments_do_not_count() {
    let mut board = board(3);
    assert!(board.arrive(12, 29).is_empty());
    assert_eq!(board.arrive(9, 25).len(), 1);
    board.acknowledge(5);
    assert_eq!(board.head().map(|head| (head.from, head.to)), Some((5, 10)));
}

#[test]
fn what_was_thrown_away_flies_again() {
    let mut board = board(3);
    board.arrive(10, 30);
    board.renege();
    assert_eq!((board.in_flight(), board.arrived(), board.highest_arrived()), (3, 0, 0));
}
