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
        let moment = Moment { now: Instant::now(), at: 1_800_000_000, today: Some(today) };
        Self { caps: Caps::open(state), moment }
    }

    fn after(&mut self, seconds: u64) -> &mut Self {
        self.moment.now += Duration::from_secs(seconds);
        self.moment.at += seconds;
        self
    }

    fn on(&mut self, month: u8, day: u8) -> &mut Self {
        self.in_year(2026, month, day)
    }

    fn in_year(&mut self, year: i32, month: u8, day: u8) -> &mut Self {
        self.moment.today = Some(Day { year, month, day });
        self
    }

    fn sees(&mut self, counter: u64) -> &mut Self {
        self.sees_of("wwan0", Some(counter))
    }

    fn sees_of(&mut self, name: &str, counter: Option<u64>) -> &mut Self {
        self.caps.look(&[(name, CAP, counter)], self.moment);
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

#[test]
fn a_counter_that_cannot_be_read_is_read_again_soon() {
    let state = tempfile::tempdir().unwrap();
    let mut course = Course::new(state.path());
    course.sees(100).after(5).sees(300).after(5).sees_of("wwan0", None);
    assert_eq!(course.caps.due(), Some(course.moment.now + LOOK_MAX));
    assert_eq!(course.used(), [200, 200]);
    course.after(5).sees(1_200);
    assert_eq!(course.used(), [1_100, 1_100], "what went by meanwhile counts");
    // The same where the clock shows no day.
    course.moment.today = None;
    course.after(5).sees(1_300);
    assert_eq!(course.caps.due(), Some(course.moment.now + LOOK_MAX));
    course.caps.look(&[], course.moment);
    assert_eq!(course.caps.due(), None, "nothing has a cap");
}

#[test]
fn that_counters_cannot_be_read_is_told_once() {
    let state = tempfile::tempdir().unwrap();
    let mut course = Course::new(state.path());
    for (error, is_blind) in [(Some("no"), true), (Some("no"), true), (None, false)] {
        course.caps.note_blind(error.as_ref().map(|error| error as &dyn std::fmt::Display));
        assert_eq!(course.caps.is_blind, is_blind);
    }
}

#[test]
fn of_a_month_that_is_over_nothing_is_kept() {
    let state = tempfile::tempdir().unwrap();
    let mut course = Course::new(state.path());
    for link in 0..LINKS_MAX {
        course.after(1).sees_of(&format!("veth{link}"), Some(5));
    }
    assert!(!course.caps.is_full);
    course.after(1).sees(0).after(1).sees(2_000);
    assert!(course.caps.is_full, "it is told of");
    assert!(!course.caps.is_reached("wwan0", Some(CAP)), "there is no room");
    assert_eq!(course.caps.due(), Some(course.moment.now + LOOK_FULL));
    course.after(1).on(12, 1).sees(2_500);
    assert_eq!(course.caps.links.keys().collect::<Vec<_>>(), ["wwan0"]);
    assert!(!course.caps.is_full);
    course.after(1).sees(3_500);
    assert!(course.caps.is_reached("wwan0", Some(CAP)));
    let written = std::fs::read_to_string(state.path().join(NAME)).unwrap();
    assert!(!written.contains("veth"), "{written}");
    // Who is there keeps what went by around midnight.
    course.after(1).in_year(2027, 1, 1).sees(3_600);
    assert_eq!(course.used(), [100, 100]);
}

#[test]
fn a_clock_that_was_far_ahead_was_wrong() {
    let state = tempfile::tempdir().unwrap();
    let mut course = Course::new(state.path());
    course.after(5).in_year(2036, 2, 7).sees(0).sees_of("usb0", Some(0)).after(61).sees(2_000);
    assert!(course.caps.is_reached("wwan0", Some(CAP)));
    let mut again = Course::new(state.path());
    again.after(5).sees(2_000);
    let due = again.caps.due();
    assert_eq!(due, Some(again.moment.now + LOOK_FULL), "the clock was set meanwhile, perhaps");
    again.after(590).sees(2_100);
    assert!(again.caps.is_reached("wwan0", Some(CAP)));
    again.after(10).sees(2_200);
    assert_eq!(again.used(), [0, 0], "it is believed");
    assert_eq!(again.caps.links.keys().collect::<Vec<_>>(), ["wwan0"]);
    again.after(5).sees(2_500).after(5).on(11, 30).sees(2_600);
    assert_eq!(again.used(), [100, 400], "and days are days again");
}

#[test]
fn a_clock_that_is_not_set_yet_forgets_nothing() {
    let state = tempfile::tempdir().unwrap();
    let mut course = Course::new(state.path());
    course.sees(0).after(5).sees_of("wwan1", Some(0)).after(5).sees(900);
    course.after(5).in_year(1970, 1, 1).sees(1_100);
    course.after(300).sees(1_150);
    assert_eq!(course.used(), [1_150, 1_150]);
    course.after(5).on(11, 29).sees(1_200);
    assert_eq!(course.used(), [1_200, 1_200]);
    // Another time it takes as long anew.
    course.after(600).on(8, 1).sees(1_200).after(590).sees(1_300);
    assert_eq!(course.used(), [1_300, 1_300]);
    assert_eq!(course.caps.links.len(), 2);
    // A day is what a journey across the date line makes of it.
    course.after(5).on(11, 28).sees(1_300).after(1_000).sees(1_400);
    assert_eq!(course.used(), [1_400, 1_400]);
}

#[test]
fn days_follow_each_other() {
    let number = |year, month, day| number(Day { year, month, day });
    for (before, after) in [
        (number(2026, 11, 30), number(2026, 12, 1)),
        (number(2026, 12, 31), number(2027, 1, 1)),
        (number(2027, 2, 28), number(2027, 3, 1)),
        (number(2028, 2, 28), number(2028, 2, 29)),
        (number(2028, 2, 29), number(2028, 3, 1)),
        (number(2000, 2, 29), number(2000, 3, 1)),
        (number(2100, 2, 28), number(2100, 3, 1)),
    ] {
        assert_eq!(before + 1, after);
    }
}
