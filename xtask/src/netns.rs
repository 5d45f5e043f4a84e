//! The step of the real programs in network namespaces: they live in real time, so who takes the
//! processors away can make one fail. Each telling is watched by itself. A test that failed in one
//! while the machine was starved is told again, alone, and says so; any other failure is one.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use std::{iter, thread, vec};

use crate::integration::{NETNS, cargo_test, integration_tests};
use crate::report;
use crate::run::{Tested, cargo, run as run_command, try_tests};
use crate::starved::{self, Looks};
use crate::tally::Tally;

/// Tests that load the machine to its limit, or compare real time with virtual time.
const ALONE: [&str; 2] = ["netns_flood", "netns_agreement"];
/// The longest ones, which begin first: no worker is left alone with one at the end.
const LONG: [&str; 3] = ["netns_controls", "netns_compared", "netns_stories"];
/// Files of tests that run side by side: most of them wait for real time to pass.
const WORKERS: usize = 3;
/// How often a test is told that fails while the machine is starved, the first time included. Each
/// of these failures says nothing; this only bounds the time that is spent on it.
const TOLD_MAX: u32 = 5;
/// How long such a spell may last: what failed twice is told again after a pause.
const SPELL: Duration = Duration::from_secs(120);
/// Tests that fail for such a reason are few; where more do there is another.
const EXCUSED_MAX: usize = 16;

/// The tests between namespaces. Tests that need the machine to themselves run first. Then
/// [`WORKERS`] workers take one file of tests after the other; within a file, one test runs at a
/// time. Everything is built before, the laboratory's `rove` too, so that no test waits for the
/// compiler.
///
/// # Errors
/// What failed.
pub(crate) fn run() -> Result<Tally, String> {
    let mut names: Vec<String> =
        integration_tests()?.into_iter().filter(|name| name.starts_with(NETNS)).collect();
    let mut build = vec!["test", "--workspace", "--locked", "--no-run"];
    for name in &names {
        build.extend(["--test", name]);
    }
    run_command(cargo(&build))?;
    run_command(cargo(&["build", "--locked", "--bin", "rove"]))?;
    names.sort_by_key(|name| LONG.iter().position(|long| long == name).unwrap_or(LONG.len()));
    let (alone, beside): (Vec<_>, Vec<_>) =
        names.into_iter().partition(|name| ALONE.contains(&name.as_str()));
    let mut all = tell_each(&Mutex::new(alone.into_iter()));
    let queue = Mutex::new(beside.into_iter());
    let workers = thread::scope(|scope| {
        let workers = [(); WORKERS].map(|()| scope.spawn(|| tell_each(&queue)));
        workers.map(|worker| worker.join().map_err(|_| "a worker panicked".to_owned()))
    });
    for told in workers {
        all.extend(told?);
    }
    let (mut tally, mut errors) = (Tally::default(), Vec::new());
    for (name, told) in all {
        let mut again = |test: &str, time: u32, looks: Looks| {
            report::line(format_args!("AGAIN {test}, time {time} of {TOLD_MAX}: {looks}"));
            if time > 2 {
                thread::sleep(SPELL);
            }
            Telling::of(&name, &["--exact", test])
        };
        match told.and_then(|told| settle(told, &mut again)) {
            Ok(of_file) => tally.add(of_file),
            Err(error) => errors.push(error),
        }
    }
    if !errors.is_empty() {
        return Err(errors.join("; "));
    }
    if tally.passed == 0 {
        return Err("no test ran: a step that tests nothing proves nothing".to_owned());
    }
    Ok(tally)
}

/// Takes one file of tests after the other, until there is none.
fn tell_each(queue: &Mutex<vec::IntoIter<String>>) -> Vec<(String, Result<Telling, String>)> {
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
    iter::from_fn(next).map(|name| (name.clone(), Telling::of(&name, &[]))).collect()
}

/// One run of some tests, and what was seen of the machine meanwhile.
#[derive(Default)]
struct Telling {
    tested: Tested,
    looks: Looks,
}

/// What a telling comes to.
enum Outcome {
    Passed(Tally),
    /// What failed may have failed because the machine was starved.
    Excused(Tally, Looks),
    /// Why, in a line.
    Failed(String),
}

/// Tells a test of that name alone, for the second time or a later one. The looks are those of the
/// telling in which it failed last.
type Again<'a> = dyn FnMut(&str, u32, Looks) -> Result<Telling, String> + 'a;

impl Telling {
    /// Runs a file of integration tests, one test at a time; `harness` goes to the program.
    fn of(name: &str, harness: &[&str]) -> Result<Self, String> {
        let names = [name.to_owned()];
        let command = cargo_test(&names, &[&["--test-threads=1"], harness].concat());
        let (tested, looks) = starved::watched(|| try_tests(command));
        Ok(Self { tested: tested?, looks })
    }

    fn outcome(self) -> Outcome {
        let Self { tested: Tested { tally, failure }, looks } = self;
        let is_excused =
            looks.excuse() && tally.is_explained() && tally.failures.len() <= EXCUSED_MAX;
        match failure {
            None => Outcome::Passed(tally),
            Some(_) if is_excused => Outcome::Excused(tally, looks),
            Some(failure) => Outcome::Failed(format!("{failure}; {looks}")),
        }
    }
}

/// The result of a file of tests, once each test of it that failed while the machine was starved
/// has passed or failed for good.
fn settle(told: Telling, again: &mut Again<'_>) -> Result<Tally, String> {
    let (mut tally, looks) = match told.outcome() {
        Outcome::Passed(tally) => return Ok(tally),
        Outcome::Failed(why) => return Err(why),
        Outcome::Excused(tally, looks) => (tally, looks),
    };
    for name in tally.failures.clone() {
        tally.passed_after_all(&name, settle_one(&name, looks, again)?);
    }
    Ok(tally)
}

/// The same for one test, which failed when the machine looked like this.
fn settle_one(name: &str, mut looks: Looks, again: &mut Again<'_>) -> Result<Tally, String> {
    for time in 2..=TOLD_MAX {
        looks = match again(name, time, looks)?.outcome() {
            Outcome::Passed(tally) if tally.passed > 0 => return Ok(tally),
            Outcome::Passed(_) => return Err(format!("{name} was to be told again, and is gone")),
            Outcome::Failed(why) => return Err(format!("{name}, time {time}: {why}")),
            Outcome::Excused(_, looks) => looks,
        };
    }
    Err(format!("{name} failed {TOLD_MAX} times; {looks}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALM: Looks = Looks::of(20, 0);
    const STARVED: Looks = Looks::of(20, 1);

    /// A telling in which these failed and one more passed.
    fn failed(names: &[&str], looks: Looks) -> Telling {
        let mut tally = Tally::default();
        for name in names {
            tally.read(&format!("test {name} ... FAILED"));
        }
        tally.read(&format!("test result: FAILED. 1 passed; {} failed; 0 ignored", names.len()));
        tally.read("    `-p rove --test netns_a`");
        Telling { tested: Tested { tally, failure: Some("it ended badly".to_owned()) }, looks }
    }

    /// A telling in which so many passed.
    fn passed(tests: usize, looks: Looks) -> Telling {
        let mut tally = Tally::default();
        tally.read(&format!("test result: ok. {tests} passed; 0 failed; 0 ignored"));
        Telling { tested: Tested { tally, failure: None }, looks }
    }

    /// What a file comes to with these tellings after the first, and which were called for.
    fn settled(first: Telling, later: Vec<Telling>) -> (Result<Tally, String>, Vec<String>) {
        let (mut later, mut called) = (later.into_iter(), Vec::new());
        let mut again = |name: &str, time: u32, looks: Looks| {
            assert_eq!(looks, STARVED, "nothing else is told again");
            called.push(format!("{name} {time}"));
            later.next().ok_or_else(|| "told too often".to_owned())
        };
        let outcome = settle(first, &mut again);
        (outcome, called)
    }

    #[test]
    fn what_fails_on_a_calm_machine_is_not_told_again() {
        let (outcome, called) = settled(failed(&["a"], CALM), vec![]);
        let why = outcome.unwrap_err();
        assert!(why.contains("it ended badly") && why.contains("0 of 20 looks"), "{why}");
        assert!(called.is_empty());
    }

    #[test]
    fn what_fails_on_a_starved_machine_is_told_again_until_it_passes() {
        let first = failed(&["a", "b"], STARVED);
        let later = vec![failed(&["a"], STARVED), passed(1, CALM), passed(1, STARVED)];
        let (outcome, called) = settled(first, later);
        let tally = outcome.unwrap();
        assert_eq!((tally.passed, tally.failed, tally.failures.len()), (3, 0, 0));
        assert_eq!(called, ["a 2", "a 3", "b 2"]);
    }

    #[test]
    fn what_fails_again_on_a_calm_machine_has_failed() {
        let later = vec![failed(&["a"], CALM), passed(1, CALM)];
        let (outcome, called) = settled(failed(&["a"], STARVED), later);
        assert!(outcome.unwrap_err().starts_with("a, time 2: "));
        assert_eq!(called, ["a 2"]);
    }

    #[test]
    fn what_never_passes_is_told_so_often_and_no_more() {
        let later = (1..=TOLD_MAX).map(|_| failed(&["a"], STARVED)).collect();
        let (outcome, called) = settled(failed(&["a"], STARVED), later);
        assert!(outcome.unwrap_err().starts_with("a failed 5 times; 1 of 20 looks"));
        assert_eq!(called, ["a 2", "a 3", "a 4", "a 5"]);
    }

    #[test]
    fn nothing_is_excused_that_has_no_name_or_too_many() {
        let mut killed = failed(&["a"], STARVED);
        killed.tested.tally.read("    `-p rove --test netns_b`");
        assert!(settled(killed, vec![passed(1, CALM)]).0.is_err());
        let names: Vec<String> = (0..=EXCUSED_MAX).map(|at| format!("t{at}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let (outcome, called) = settled(failed(&names, STARVED), vec![passed(1, CALM)]);
        assert!(outcome.is_err() && called.is_empty());
    }

    #[test]
    fn what_does_not_run_when_it_is_told_again_has_not_passed() {
        let (outcome, _) = settled(failed(&["a"], STARVED), vec![passed(0, CALM)]);
        assert!(outcome.unwrap_err().contains("gone"));
    }
}
