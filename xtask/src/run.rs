//! Runs a tool from the root of the workspace, shows what it says, and keeps count of the tests.

use std::io::{BufRead as _, BufReader, Read};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;

use crate::report;
use crate::tally::Tally;

/// How the variables begin in which cargo tells a program about its own package.
const PACKAGE_VARIABLES: [&str; 2] = ["CARGO_PKG_", "CARGO_MANIFEST_"];

/// The root of the workspace: one above this package. Cargo says where that is when it runs us; a
/// program kept from an earlier build may have been made elsewhere.
pub(crate) fn root() -> PathBuf {
    let package = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let package = package.unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")));
    package.parent().unwrap_or(&package).to_owned()
}

/// Cargo with these arguments, in the root of the workspace. What cargo told this program about its
/// package stays here: there are build scripts that ask for it, and would run again, and all that
/// depends on them be built again, whenever another package's program calls cargo.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(root());
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if PACKAGE_VARIABLES.iter().any(|prefix| text.starts_with(prefix)) {
            command.env_remove(name);
        }
    }
    command
}

/// Runs a command to its end, its output shown as it comes.
///
/// # Errors
/// When it cannot be started or ends with anything but success.
pub(crate) fn run(mut command: Command) -> Result<(), String> {
    let shown = show(&command);
    report::line(format_args!("$ {shown}"));
    let status = command.status().map_err(|error| cannot_start(&command, &error))?;
    if status.success() { Ok(()) } else { Err(format!("`{shown}` ended with {status}")) }
}

/// What a `cargo test` said, and how it ended if not with success.
#[derive(Default, Debug)]
pub(crate) struct Tested {
    pub(crate) tally: Tally,
    pub(crate) failure: Option<String>,
}

/// Runs a `cargo test` to its end, counting tests and skips. Skips are told on either output: the
/// test harness captures the one, and tests that run in processes of their own use the other.
///
/// # Errors
/// When it cannot be started or ends with anything but success.
pub(crate) fn run_tests(command: Command) -> Result<Tally, String> {
    let tested = try_tests(command)?;
    tested.failure.map_or(Ok(tested.tally), Err)
}

/// The same, for who wants to know what failed.
///
/// # Errors
/// When it cannot be started.
pub(crate) fn try_tests(command: Command) -> Result<Tested, String> {
    count_tests(command, |line| report::line(line))
}

/// The same; what a reader should see goes to `tell`.
fn count_tests(mut command: Command, tell: fn(&str)) -> Result<Tested, String> {
    let shown = show(&command);
    tell(&format!("$ {shown}"));
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| cannot_start(&command, &error))?;
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let (mut tally, told_aside) = thread::scope(|scope| {
        let aside = scope.spawn(move || read(err, tell));
        (read(out, tell), aside.join().unwrap_or_default())
    });
    tally.add(told_aside);
    let status = child.wait().map_err(|error| format!("waiting for `{shown}`: {error}"))?;
    let failure = (!status.success()).then(|| format!("`{shown}` ended with {status}"));
    Ok(Tested { tally, failure })
}

/// Counts what an output says until it ends, and shows of it what a reader should see.
fn read(output: Option<impl Read>, tell: fn(&str)) -> Tally {
    let mut tally = Tally::default();
    let Some(output) = output else { return tally };
    for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line);
        if tally.read(&line) {
            tell(&line);
        }
    }
    tally
}

/// The command as a person would type it, without the path of the tool.
fn show(command: &Command) -> String {
    let program = PathBuf::from(command.get_program());
    let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let words = command.get_args().map(|word| word.to_string_lossy().into_owned());
    std::iter::once(name).chain(words).collect::<Vec<_>>().join(" ")
}

fn cannot_start(command: &Command, error: &std::io::Error) -> String {
    format!("cannot start `{}`: {error}; is it installed and on the path?", show(command))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skips_are_counted_on_either_output() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo SKIP a: one; echo SKIP b: two >&2; echo chatter >&2"]);
        // Nothing of it is shown: it would be counted as a skip of this test.
        let tested = count_tests(command, |_| ()).unwrap();
        assert_eq!(tested.failure, None);
        assert_eq!(tested.tally.skipped.keys().collect::<Vec<_>>(), ["a: one", "b: two"]);
    }
}
