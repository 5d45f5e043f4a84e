use super::*;
use crate::wire::data::OVERHEAD;
use crate::wire::frame::Frame;

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

/// A path by which full datagrams come, `apart_us` apart, of which `is_lost` says which do not.
struct Stream {
    owed: Owed,
    window: ReplayWindow,
    apart_us: u64,
    number: u64,
    reports: Vec<Feedback>,
    /// Between the arrival of the first datagram that a report tells of and the report.
    waited_us: u64,
}

const FULL_BYTES: usize = 1_452;

impl Stream {
    fn every(apart_us: u64) -> Self {
        Self {
            owed: Owed::default(),
            window: ReplayWindow::default(),
            apart_us,
            number: 0,
            reports: Vec::new(),
            waited_us: 0,
        }
    }

    fn pass(&mut self, datagrams: u64, bytes: usize, is_lost: impl Fn(u64) -> bool) {
        for _ in 0..datagrams {
            let now_us = self.number * self.apart_us;
            while let Some(due) = self.owed.due().filter(|due| *due <= us(now_us)) {
                self.report(due);
            }
            if !is_lost(self.number) {
                let newest = self.window.commit(us(now_us), self.number);
                self.owed.received(us(now_us), bytes, newest, Elicits::Pace);
                if self.owed.due().is_some_and(|due| due <= us(now_us)) {
                    self.report(us(now_us));
                }
            }
            self.number += 1;
        }
    }

    fn report(&mut self, now: Instant) {
        let waited = now.saturating_since(self.owed.unreported_at).as_micros();
        self.waited_us = self.waited_us.max(waited.try_into().unwrap());
        self.reports.extend(self.owed.report(now, PathSerial(0), &self.window));
    }

    /// Layer-3 bytes of the reports for each of what they tell of: IPv4 and UDP headers, the
    /// tunnel's own, and the frame.
    fn share(&self) -> f64 {
        let frames = self.reports.iter().map(|report| {
            let mut frame = Vec::new();
            Frame::Feedback(*report).emit(&mut frame);
            28 + OVERHEAD + frame.len()
        });
        frames.sum::<usize>() as f64 / self.owed.bytes() as f64
    }
}

fn us(us: u64) -> Instant {
    Instant::from_nanos(us * 1_000)
}

#[test]
fn what_is_said_of_a_filled_path_is_less_than_a_hundredth_of_it() {
    for (apart_us, mbps) in [(39, 300), (118, 100), (1_184, 10), (2_368, 5)] {
        for every in [u64::MAX, 200, 100, 50] {
            let mut stream = Stream::every(apart_us);
            stream.pass(20_000, FULL_BYTES, |number| number % every == every - 1);
            let share = stream.share();
            assert!(share < 0.01, "{mbps} Mbit/s, one of {every} lost: {share}");
            // Nor is it said so rarely that the sender doubts the path.
            assert!(stream.waited_us <= 20_000, "{mbps} Mbit/s: {} us", stream.waited_us);
        }
    }
}

#[test]
fn of_a_filled_path_that_is_slow_little_is_said_as_well() {
    for (apart_us, mbps) in [(6_245, 1.86), (9_600, 1.21), (11_500, 1.01)] {
        let mut stream = Stream::every(apart_us);
        stream.pass(5_000, FULL_BYTES, |_| false);
        // 40 ms is the longest wait, and each report has 82 bytes.
        let share = stream.share();
        assert!(share < 0.022, "{mbps} Mbit/s: {share}, and 0.056 if each is told of alone");
        assert!(stream.waited_us <= 40_000, "{mbps} Mbit/s: {} us", stream.waited_us);
    }
}

#[test]
fn small_datagrams_of_a_filled_path_wait_no_longer() {
    let mut stream = Stream::every(2_368);
    stream.pass(1_000, FULL_BYTES, |_| false);
    stream.waited_us = 0;
    stream.pass(20, 200, |_| false);
    stream.waited_us = 0;
    stream.pass(100, 200, |_| false);
    assert!(stream.waited_us <= 10_000, "{} us", stream.waited_us);
}

#[test]
fn a_gap_is_told_of_six_times_and_again_when_something_comes_late() {
    let mut stream = Stream::every(1_184);
    stream.pass(400, FULL_BYTES, |number| number == 200);
    let gap = |report: &&Feedback| report.runs[1].0 > 0;
    let told = stream.reports.iter().filter(gap).count();
    assert_eq!(told, TOLD_TIMES);
    let reach = |report: &Feedback| report.reaches(200) && !report.acknowledges(200);
    assert!(stream.reports.iter().any(reach), "nobody hears that it is missing");
    let newest = stream.window.commit(us(400 * 1_184), 200);
    stream.owed.received(us(400 * 1_184), FULL_BYTES, newest, Elicits::Pace);
    stream.report(us(400 * 1_184));
    assert!(stream.reports.last().unwrap().acknowledges(200));
    // The last word is all that is known.
    let mut stream = Stream::every(1_184);
    stream.pass(400, FULL_BYTES, |number| number == 200);
    let last = stream.owed.last_report(us(500_000), PathSerial(0), &stream.window).unwrap();
    assert!(last.reaches(200) && last.acknowledges(100));
}
