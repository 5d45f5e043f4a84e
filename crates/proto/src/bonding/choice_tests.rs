use super::*;

const WIFI: PathId = PathId(1);
const CABLE: PathId = PathId(2);

fn at(ms: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(10_000 + ms)
}

fn way(path: PathId, lateness_ms: u64, loss: f64) -> Choice {
    let lateness = Duration::from_millis(lateness_ms);
    Choice { path, lateness, loss, is_doubtful: false, rate: 1e6, room: 1_200 }
}

fn chosen(now: Instant, flow: &mut LiveFlow, choices: &[Choice]) -> PathId {
    choose(now, flow, false, choices).unwrap().0
}

#[test]
fn the_earliest_carries_and_of_those_alike_the_one_that_loses_least() {
    assert_eq!(
        chosen(at(0), &mut LiveFlow::default(), &[way(WIFI, 0, 0.0), way(CABLE, 9, 0.0)]),
        WIFI
    );
    assert_eq!(
        chosen(at(0), &mut LiveFlow::default(), &[way(WIFI, 0, 0.02), way(CABLE, 1, 0.0)]),
        CABLE
    );
    assert_eq!(
        chosen(at(0), &mut LiveFlow::default(), &[way(WIFI, 0, 0.02), way(CABLE, 9, 0.0)]),
        WIFI
    );
    assert_eq!(
        chosen(at(0), &mut LiveFlow::default(), &[way(WIFI, 0, 0.02), way(CABLE, 1, 0.01)]),
        WIFI
    );
    assert_eq!(choose(at(0), &mut LiveFlow::default(), false, &[]), None);
}

#[test]
fn it_stays_with_its_path_while_no_other_is_earlier_by_what_is_felt() {
    let mut call = LiveFlow::default();
    assert_eq!(chosen(at(0), &mut call, &[way(WIFI, 0, 0.0), way(CABLE, 2, 0.0)]), WIFI);
    for ms in (0..2_000).step_by(20) {
        let (wifi, cable) = if ms % 40 == 0 { (0, 2) } else { (2, 0) };
        let mut choices = [way(WIFI, wifi, 0.0), way(CABLE, cable, 0.0)];
        choices.sort_by_key(|choice| choice.lateness);
        assert_eq!(choose(at(ms), &mut call, false, &choices), Some((WIFI, false)));
    }
    let better = [way(CABLE, 0, 0.0), way(WIFI, 3, 0.0)];
    assert_eq!(choose(at(2_000), &mut call, false, &better), Some((CABLE, true)));
    // What it has just left has to be much better for it to go back at once.
    let back = [way(WIFI, 0, 0.0), way(CABLE, 15, 0.0)];
    assert_eq!(choose(at(2_020), &mut call, false, &back), Some((CABLE, true)));
    assert_eq!(choose(at(2_499), &mut call, false, &back), Some((CABLE, true)));
    assert_eq!(choose(at(2_500), &mut call, false, &back), Some((WIFI, true)));
}

#[test]
fn a_path_in_doubt_is_left_unless_all_are() {
    let mut call = LiveFlow::default();
    assert_eq!(chosen(at(0), &mut call, &[way(WIFI, 0, 0.0), way(CABLE, 40, 0.0)]), WIFI);
    let doubtful = Choice { is_doubtful: true, ..way(WIFI, 0, 0.0) };
    let both = [doubtful, Choice { is_doubtful: true, ..way(CABLE, 1, 0.0) }];
    assert_eq!(chosen(at(1), &mut call, &both), WIFI);
    assert_eq!(choose(at(2), &mut call, false, &[way(CABLE, 40, 0.0), doubtful]).unwrap().0, CABLE);
    assert!(doubtful.expected_loss(false) > 0.1, "and a copy leaves");
}

#[test]
fn a_gateway_answers_by_the_path_by_which_a_flow_comes() {
    let choices = [way(WIFI, 0, 0.0), way(CABLE, 1, 0.0)];
    let far = [way(WIFI, 0, 0.0), way(CABLE, 5, 0.0)];
    let came = |path, ms| {
        let mut flow = LiveFlow::default();
        flow.came = Some((path, at(ms)));
        flow
    };
    assert_eq!(choose(at(10), &mut came(CABLE, 0), true, &choices), Some((CABLE, false)));
    assert_eq!(choose(at(10), &mut came(CABLE, 0), true, &far), Some((WIFI, false)), "if it may");
    assert_eq!(choose(at(600), &mut came(CABLE, 0), true, &choices).unwrap().0, WIFI, "long ago");
    assert_eq!(choose(at(10), &mut came(CABLE, 0), false, &choices).unwrap().0, WIFI, "a client");
    let mut call = came(WIFI, 0);
    assert_eq!(choose(at(0), &mut call, true, &choices).unwrap().0, WIFI);
    // Copies come by both: that is no reason to change.
    (call.came, call.came_back_at) = (Some((CABLE, at(100))), Some(at(90)));
    assert_eq!(choose(at(101), &mut call, true, &choices).unwrap().0, WIFI);
    call.came = Some((CABLE, at(600)));
    assert_eq!(choose(at(601), &mut call, true, &choices).unwrap().0, CABLE, "it has moved");
}

#[test]
fn copies_have_a_budget() {
    let mut spent = Spent::default();
    let budget = copies(1e6);
    let sent = |spent: &mut Spent, now| (0..1_000).filter(|_| spent.take(now, budget, 200)).count();
    assert_eq!(sent(&mut spent, at(0)), 160, "32,000 bytes at once");
    assert_eq!(sent(&mut spent, at(500)), 80, "and as many in a second");
    assert_eq!(sent(&mut spent, at(500)), 0);
    assert_eq!(sent(&mut spent, at(60_000)), 160);
    assert_eq!(copies(1e7).rate, 200_000.0, "or 2 % of what there is");
}

#[test]
fn what_is_remembered_is_bounded_and_forgotten_when_it_is_of_no_use() {
    let mut recent = Recent::default();
    let framing = Framing::Once { bucket: 1, sequence: 2 };
    let mut push = |ms, path| {
        recent.push(at(ms), (path, None, Strength::default()), framing, Pieces::whole(&[7; 100]))
    };
    for _ in 0..2 * RECENT_MAX {
        push(0, WIFI);
    }
    push(10, CABLE);
    assert_eq!(recent.packets.len(), RECENT_MAX);
    assert_eq!(recent.until(WIFI), Some(at(60)));
    assert_eq!(recent.until(CABLE), Some(at(70)));
    for ms in 61..61 + 2 * RECENT_MAX as u64 {
        recent.push(at(ms), (CABLE, None, Strength::default()), framing, Pieces::whole(&[7; 50]));
    }
    assert_eq!(recent.until(WIFI), None);
    let sent = recent.take(CABLE).unwrap();
    assert_eq!((sent.frame.len(), sent.path), (56, CABLE));
}
