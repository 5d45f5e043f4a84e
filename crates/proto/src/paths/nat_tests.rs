//! What is learned of a NAT, question by question.

use super::*;

const LEAST: Duration = Duration::from_secs(25);
const PATH: PathId = PathId(7);

/// Two keepalives from one network, and the question that follows.
fn asked() -> (NatTimeout, Duration) {
    let mut nat = NatTimeout::default();
    let of = Some((LinkId(1), IpAddr::from([192, 0, 2, 1])));
    assert_eq!((nat.begin(of), nat.wants_test(LEAST)), (None, None), "not idle yet");
    nat.begin(of);
    let length = nat.wants_test(LEAST).unwrap();
    nat.begin_test(Instant::ZERO, PATH, length, 0);
    assert_eq!(nat.wants_test(LEAST), None, "one question at a time");
    (nat, length)
}

/// Asks until enough is known of a NAT that forgets after `forgets`.
fn learn(forgets: Duration) -> (Duration, u32) {
    let (mut nat, _) = asked();
    let (mut now, mut questions) = (Instant::ZERO, 0);
    loop {
        questions += 1;
        assert!(questions < 30, "it never ends");
        let echo = nat.question(now, PATH, 5).unwrap();
        now = now + echo.delay;
        let next = if echo.delay < forgets {
            nat.take_answer((PATH, 5), None, Some(LEAST)).unwrap()
        } else {
            now = now + GRACE;
            match nat.take_unanswered(now, true).unwrap().again {
                Some((length, tries)) => {
                    nat.begin_test(now, PATH, length, tries);
                    Next::Ask(PATH)
                }
                None => match nat.wants_test(LEAST) {
                    Some(less) => {
                        nat.begin_test(now, PATH, less, 0);
                        Next::Ask(PATH)
                    }
                    None => Next::End(PATH),
                },
            }
        };
        if next == Next::End(PATH) {
            return (nat.interval(LEAST), questions);
        }
    }
}

#[test]
fn the_interval_comes_close_to_what_the_nat_remembers() {
    for seconds in [30, 60, 119, 180, 240] {
        let forgets = Duration::from_secs(seconds);
        let (interval, questions) = learn(forgets);
        assert!(interval < forgets, "{seconds} s: {interval:?}");
        assert!(interval >= (forgets * 80 / 100).max(LEAST), "{seconds} s: {interval:?}");
        assert!(questions < 12, "{seconds} s: {questions} questions");
    }
    assert_eq!(learn(Duration::from_secs(900)).0, INTERVAL_MAX * MARGIN / 100);
    assert_eq!(learn(Duration::from_secs(20)).0, LEAST);
}

#[test]
fn what_was_sent_meanwhile_leaves_the_question_open() {
    let (mut nat, _) = asked();
    let echo = nat.question(Instant::ZERO, PATH, 5).unwrap();
    let meanwhile = Some(Instant::ZERO + echo.delay / 2);
    assert_eq!(nat.take_answer((PATH, 4), None, Some(LEAST)), None, "another token");
    assert_eq!(nat.take_answer((PATH, 5), meanwhile, Some(LEAST)), Some(Next::Ask(PATH)));
    assert_eq!(nat.interval(LEAST), LEAST, "nothing is learned");
    let again = nat.question(Instant::ZERO, PATH, 6).unwrap();
    assert_eq!(again.delay, echo.delay);
}

#[test]
fn another_network_is_another_nat_but_no_number_comes_twice() {
    let (mut nat, _) = asked();
    assert_eq!((nat.take_number(), nat.take_number()), (0, 1));
    let other = Some((LinkId(2), IpAddr::from([192, 0, 2, 1])));
    assert_eq!(nat.begin(other), Some(PATH), "its path is of no more use");
    assert_eq!((nat.answer_due(), nat.take_number()), (None, 2));
}

#[test]
fn a_mapping_that_changes_while_nobody_speaks_was_forgotten() {
    let (mut nat, length) = asked();
    nat.question(Instant::ZERO, PATH, 5).unwrap();
    nat.take_answer((PATH, 5), None, None).unwrap();
    assert!(nat.interval(LEAST) > LEAST);
    nat.observe("192.0.2.9:1".parse().unwrap());
    nat.observe("192.0.2.9:2".parse().unwrap());
    assert_eq!((nat.interval(LEAST), nat.forgets), (LEAST, Some(length)));
}
