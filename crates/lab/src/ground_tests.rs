use super::*;

fn moved(began_ms: u64, done_ms: u64) -> Moment {
    Moment::new(Act::Relocate, began_ms * MS, done_ms * MS)
}

fn gap(from_ms: u64, to_ms: u64) -> Gap {
    Gap { from_ns: from_ms * MS, to_ns: to_ms * MS }
}

/// Arrivals from 20 ms on, with these standstills and moves, of a flow that should end at 3 s.
fn run(last_ms: u64, gaps: Vec<Gap>, moments: Vec<Moment>) -> FlowRun {
    let run = FlowRun::new(0, 3 * SECOND, Some((20 * MS, last_ms * MS)), gaps);
    FlowRun { moments, ..run }
}

#[test]
fn a_standstill_belongs_to_the_move_that_made_it() {
    // The second move takes the address away at 990 ms, and the gap begins with the last arrival
    // before that; it takes 10 ms until the new one is there, and 100 ms until data comes.
    let gaps = vec![gap(500, 545), gap(989, 1_100)];
    let flow = run(3_000, gaps, vec![moved(500, 502), moved(990, 1_000)]);
    assert_eq!(flow.still_ms(), [43.0, 100.0]);
    assert_eq!(flow.back_ms(), [43.0, 100.0]);
    assert_eq!(flow.still_from_loss_ms(), [45.0, 110.0], "from the end of the old address");
}

#[test]
fn a_flow_that_never_comes_back_stood_still_to_its_end() {
    let flow = run(1_010, vec![gap(500, 545)], vec![moved(500, 502), moved(999, 1_000)]);
    assert_eq!(flow.still_ms(), [43.0, 1_990.0]);
    let dead = FlowRun { moments: vec![moved(500, 502)], ..FlowRun::new(0, SECOND, None, vec![]) };
    assert_eq!((dead.still_ms(), dead.back_ms()), (vec![498.0], vec![498.0]));
}

#[test]
fn a_move_without_an_answer_counts_to_the_next() {
    let mut flow = run(3_000, vec![], vec![moved(500, 502), moved(990, 1_000)]);
    flow.see(|moment| {
        let at_ns = moment.done_ns;
        if at_ns > 900 * MS { vec![] } else { vec![(at_ns + MS, false), (at_ns + 41 * MS, true)] }
    });
    assert_eq!(flow.resumption_ms(), [41.0, 2_000.0]);
    assert_eq!(flow.signalling_ms(), [40.0, 2_000.0]);
}

#[test]
fn a_pair_of_which_one_is_lost_says_nothing() {
    let series =
        |us: &[Option<u64>]| RoundTrips(us.iter().map(|us| us.map(|us| us * 1_000)).collect());
    let bare = series(&[Some(40), Some(41), None]);
    let tunnelled = series(&[Some(45), None, Some(50)]);
    assert_eq!(tunnelled.longer_than(&bare), [5.0]);
    assert_eq!(tunnelled.microseconds(), [45.0, 50.0]);
}

#[test]
fn a_flow_keeps_its_length_however_often_it_speaks() {
    let flow = Flow::after(SECOND, 3 * SECOND);
    assert_eq!((flow.count, flow.length_ns()), (3_000, 4 * SECOND));
    let sparse = flow.every(20 * MS).upwards();
    assert_eq!((sparse.count, sparse.length_ns()), (150, 4 * SECOND));
    assert_eq!((flow.to, sparse.to), (Receiver::Client, Receiver::Server));
}

#[test]
fn what_outlasts_is_more_than_links_let_through_until_it_is_over() {
    let bulk = Connections::outlasting(Receiver::Client, 8, 30 * SECOND);
    // A megabyte a second, and some time to open.
    assert_eq!((bulk.length, bulk.to), (35_000_000, Receiver::Client));
    assert_eq!(Connections::outlasting(Receiver::Server, 8, 1).length, 5_001_000);
}
