//! What is counted, and what survives.

use super::*;

const CAP: Cap = Cap { bytes: 1_000, period: Period::Day };
const MONTHLY: Cap = Cap { period: Period::Month, ..CAP };

/// Time as it passes here.
struct Course {
    caps: Caps,
    moment: Moment,
}

impl Course {
    fn new(state: &Path) -> Self {
        let today = Day { year: 2026, month: 11, day: 29 };
        let moment = Moment { now: Instant::now(), at: 1_800_000_000, today };
        Self { caps: Caps::open(state), moment }
    }

    fn after(&mut self, seconds: u64) -> &mut Self {
        self.moment.now += Duration::from_secs(seconds);
        self.moment.at += seconds;
        self
    }

    fn on(&mut self, month: u8, day: u8) -> &mut Self {
        self.moment.today = Day { year: 2026, month, day };
        self
    }

    fn sees(&mut self, counter: u64) -> &mut Self {
        self.caps.look(&[("wwan0", CAP, counter)], self.moment);
        self
    }

    fn used(&self) -> [u64; 2] {
        [CAP, MONTHLY].map(|cap| self.caps.used("wwan0", cap).unwrap())
    }
}

#[test]
fn what_goes_by_is_counted_until_the_cap_is_reached() {
    let state = tempfile::tempdir().unwrap();
    let mut course = Course::new(state.path());
    course.sees(5_000_000); // what was before this process is not ours to count
    assert_eq!(course.used(), [0, 0]);
    course.after(10).sees(5_000_800);
    assert_eq!(course.used(), [800, 800]);
    assert!(!course.caps.is_reached("wwan0", Some(CAP)));
    // 80 bytes each second: half of the time that is left.
    let next = course.caps.due().unwrap() - course.moment.now;
    assert!((1.2..1.3).contains(&next.as_secs_f32()), "{next:?}");
    course.after(10).sees(5_001_000);
    assert!(course.caps.is_reached("wwan0", Some(CAP)));
    assert!(!course.caps.is_reached("wwan0", None));
    assert!(!course.caps.is_reached("eth0", Some(CAP)));
    assert_eq!(course.caps.due(), Some(course.moment.now + LOOK_FULL));
}

#[test]
fn a_new_day_and_a_new_month_begin_at_nothing() {
    let state = tempfile::tempdir().unwrap();
    let mut course = Course::new(state.path());
    course.sees(0).after(30).sees(900).after(30).on(11, 30).sees(950);
    assert_eq!(course.used(), [50, 950]);
    course.after(30).on(12, 1).sees(960);
    assert_eq!(course.used(), [10, 10]);
    course.after(30).on(11, 29).sees(970);
    assert_eq!(course.used(), [20, 20], "a clock that goes back begins no new day");
    // Nobody looked for hours: on which day that was is not known.
    course.after(50_000).on(12, 2).sees(1_970);
    assert_eq!(course.used(), [0, 1_020]);
}

#[test]
fn counts_survive_the_process_and_the_host() {
    let state = tempfile::tempdir().unwrap();
    let mut course = Course::new(state.path());
    course.sees(100).after(61).sees(400); // a minute later it is on the disk
    assert_eq!(course.used(), [300, 300]);
    course.after(5).sees(450); // and this is not, when the process is killed
    let mut again = Course::new(state.path());
    again.after(80).sees(700);
    assert_eq!(again.used(), [600, 600], "the kernel went on counting");
    again.caps.write();
    let mut rebooted = Course::new(state.path());
    rebooted.caps.boot = "another".to_owned();
    rebooted.after(200).sees(50);
    assert_eq!(rebooted.used(), [650, 650], "its counter began at nothing");
    rebooted.after(5).sees(20);
    assert_eq!(rebooted.used(), [670, 670], "as does that of a modem that is plugged again");
}

#[test]
fn a_file_that_does_not_read_counts_as_none() {
    let state = tempfile::tempdir().unwrap();
    std::fs::write(state.path().join(NAME), b"{\"wwan0\": 5}").unwrap();
    let mut course = Course::new(state.path());
    course.sees(7).after(61).sees(8);
    assert_eq!(course.used(), [1, 1]);
    course.after(61).sees(8);
    assert!(state.path().join(NAME).exists());
    assert_eq!(Course::new(state.path()).used(), [1, 1]);
}
