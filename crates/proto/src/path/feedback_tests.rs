use super::*;

fn ms(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

#[test]
fn the_first_datagram_is_reported_soon_the_stream_rarely() {
    let (mut owed, mut window) = (Owed::default(), ReplayWindow::default());
    let newest = window.commit(ms(0), 0);
    owed.received(ms(0), 100, newest, Elicits::Feedback);
    assert_eq!(owed.due(), Some(ms(10)));
    let report = owed.report(ms(10), PathSerial(3), &window).unwrap();
    assert_eq!((report.largest, report.received, report.delay_us), (0, 1, 10_000));
    assert_eq!(owed.due(), None);
    let newest = window.commit(ms(20), 1);
    owed.received(ms(20), 100, newest, Elicits::Feedback);
    assert_eq!(owed.due(), Some(ms(120)));
    for number in 2..=u64::from(DATAGRAMS_MAX) {
        let newest = window.commit(ms(30), number);
        owed.received(ms(30), 100, newest, Elicits::Feedback);
    }
    assert_eq!(owed.due(), Some(ms(30)), "a burst is reported at once");
}

#[test]
fn feedback_for_feedback_is_never_owed() {
    let mut owed = Owed::default();
    owed.received(ms(0), 60, true, Elicits::Nothing);
    assert_eq!(owed.due(), None);
}
