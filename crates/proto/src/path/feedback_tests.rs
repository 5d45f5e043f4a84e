use super::*;

fn ms(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

fn feedback(largest: u64, received: u64) -> Feedback {
    let mut runs = [(0, 0); crate::wire::frame::FEEDBACK_RUNS_MAX];
    runs[0] = (1, 0);
    Feedback {
        serial: PathSerial(0),
        largest,
        delay_us: 0,
        arrived_us: 0,
        received,
        bytes: 0,
        runs,
    }
}

#[test]
fn the_first_datagram_is_reported_soon_the_stream_rarely() {
    let (mut owed, mut window) = (Owed::default(), ReplayWindow::default());
    let newest = window.commit(ms(0), 0);
    owed.received(ms(0), 100, newest, true);
    assert_eq!(owed.due(), Some(ms(10)));
    let report = owed.report(ms(10), PathSerial(3), &window).unwrap();
    assert_eq!((report.largest, report.received, report.delay_us), (0, 1, 10_000));
    assert_eq!(owed.due(), None);
    let newest = window.commit(ms(20), 1);
    owed.received(ms(20), 100, newest, true);
    assert_eq!(owed.due(), Some(ms(120)));
    for number in 2..=u64::from(DATAGRAMS_MAX) {
        let newest = window.commit(ms(30), number);
        owed.received(ms(30), 100, newest, true);
    }
    assert_eq!(owed.due(), Some(ms(30)), "a burst is reported at once");
}

#[test]
fn feedback_for_feedback_is_never_owed() {
    let mut owed = Owed::default();
    owed.received(ms(0), 60, true, false);
    assert_eq!(owed.due(), None);
}

#[test]
fn a_sample_a_settlement_and_no_loss() {
    let (mut flight, mut rtt) = (Flight::default(), Rtt::default());
    for number in 0..4 {
        flight.sent(ms(number), number, 1_000, true);
    }
    assert_eq!(flight.unanswered_since(), Some(ms(0)));
    let news = flight.acknowledged(ms(41), &feedback(1, 2), &mut rtt);
    assert_eq!(news, Some(News { sent_at: Some(ms(1)) }));
    assert_eq!(rtt.measured(), Some(Duration::from_millis(40)));
    assert_eq!(flight.unanswered_since(), Some(ms(2)), "two are still open");
    assert!(flight.acknowledged(ms(43), &feedback(3, 4), &mut rtt).is_some());
    assert_eq!(flight.unanswered_since(), None);
    assert!(flight.loss().share() < 1e-9);
    assert_eq!(flight.acknowledged(ms(44), &feedback(2, 3), &mut rtt), None, "old news");
}

#[test]
fn loss_shows() {
    let (mut flight, mut rtt) = (Flight::default(), Rtt::default());
    let mut received = 0;
    for number in 0..10_000u64 {
        flight.sent(ms(number), number, 1_000, true);
        if number % 10 != 0 {
            received += 1;
        }
        if number % 64 == 63 {
            flight.acknowledged(ms(number), &feedback(number, received), &mut rtt);
        }
    }
    let share = flight.loss().share();
    assert!((0.08..0.12).contains(&share), "{share}");
}

#[test]
fn feedback_about_what_was_never_sent_is_ignored() {
    let (mut flight, mut rtt) = (Flight::default(), Rtt::default());
    flight.sent(ms(0), 0, 100, true);
    assert_eq!(flight.acknowledged(ms(1), &feedback(7, 8), &mut rtt), None);
    assert_eq!(flight.unanswered_since(), Some(ms(0)));
}
