//! The step of the real programs in network namespaces: they live in real time, so who takes the
//! processors away can make one fail. Such a failure is told again, alone, and both are shown.

use std::thread;
use std::time::Duration;

use crate::report;
use crate::run::{Tested, cargo, root, run as run_command, run_tests, try_tests};
use crate::starved;
use crate::steps::{NETNS, cargo_test, integration_tests};
use crate::tally::Tally;

/// The one that loads the machine to its limit.
const FLOOD: &str = "netns_flood";
/// Where those are that are told in real time.
const STORIES: &str = "crates/lab/tests";
/// How often a test is told that failed while the machine was starved, the first time included.
const TOLD_MAX: u32 = 5;
/// Such spells last: what failed twice is told again after a while.
const SPELL: Duration = Duration::from_secs(120);
/// Tests that fail for such a reason are few; where more do there is another.
const EXCUSED_MAX: usize = 16;

/// Which tests of namespaces run when.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Lane {
    /// With the machine to itself.
    Before,
    /// Those that are told in real time.
    Stories,
    /// The rest, beside the stories.
    Beside,
}

impl Lane {
    fn of(name: &str) -> Self {
        match name {
            FLOOD => Self::Before,
            _ if root().join(STORIES).join(format!("{name}.rs")).is_file() => Self::Stories,
            _ => Self::Beside,
        }
    }
}

/// The namespaces' tests, in two lanes: the laboratory tells its stories in real time and waits for
/// most of it, and the daemon's and the system's tests run meanwhile. Each lane is one test at a
/// time. What loads the machine to its limit comes before, and so does all that is to be built, the
/// laboratory's `rove` too: no lane is to wait for the other's compiler.
///
/// # Errors
/// What failed.
pub(crate) fn run() -> Result<Tally, String> {
    let names: Vec<String> =
        integration_tests()?.into_iter().filter(|name| name.starts_with(NETNS)).collect();
    let mut build = vec!["test", "--workspace", "--locked", "--no-run"];
    for name in &names {
        build.extend(["--test", name]);
    }
    run_command(cargo(&build))?;
    run_command(cargo(&["build", "--locked", "--bin", "rove"]))?;
    let of_lane = |lane: Lane| -> Vec<String> {
        names.iter().filter(|name| Lane::of(name) == lane).cloned().collect()
    };
    let tell = |lane: Lane| {
        let names = of_lane(lane);
        let tested = match names.is_empty() {
            true => Ok(Tested::default()),
            false => try_tests(cargo_test(&names, &["--test-threads=1"])),
        };
        (tested, names)
    };
    let (lanes, worst) = starved::watched(|| {
        let before = tell(Lane::Before);
        let (told, beside) = thread::scope(|scope| {
            let told = scope.spawn(|| tell(Lane::Stories));
            let beside = tell(Lane::Beside);
            let panicked = |_| (Err("the lane of the stories panicked".to_owned()), Vec::new());
            (told.join().unwrap_or_else(panicked), beside)
        });
        [before, told, beside]
    });
    let (mut tally, mut errors) = (Tally::default(), Vec::new());
    for (tested, names) in lanes {
        match tested.and_then(|tested| settle(tested, &names, worst)) {
            Ok(of_lane) => tally.add(of_lane),
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

/// What a lane comes to: where the machine was starved, what failed in it is told again.
fn settle(tested: Tested, names: &[String], worst: u64) -> Result<Tally, String> {
    let Tested { mut tally, failure } = tested;
    let Some(failure) = failure else { return Ok(tally) };
    let is_excused =
        starved::excuses(worst) && tally.is_explained() && tally.failures.len() <= EXCUSED_MAX;
    if !is_excused {
        return Err(failure);
    }
    for name in tally.failures.clone() {
        for told in 2..=TOLD_MAX {
            if told > 2 {
                thread::sleep(SPELL);
            }
            starved::wait_for_calm();
            report::line(format_args!(
                "AGAIN {name}, time {told} of {TOLD_MAX}: at worst {worst} % of the processor time \
                 were not given"
            ));
            let again = run_tests(cargo_test(names, &["--test-threads=1", "--exact", &name]));
            if again.is_ok_and(|again| again.passed == 1) {
                tally.passed_after_all(&name);
                break;
            }
        }
        if tally.failures.contains(&name) {
            return Err(format!("{failure}; {name} failed {TOLD_MAX} times"));
        }
    }
    Ok(tally)
}
