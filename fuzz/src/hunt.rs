//! Looks for inputs that break a target: random mutations of known inputs from a seed, for some
//! seconds. `hunt TARGET SECONDS [SEED]`. It needs neither coverage flags nor a C++ compiler, and
//! finds less than `cargo xtask fuzz`. It leaves an input that breaks the target in
//! `artifacts/TARGET/`.

use std::fs;
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rove_fuzz::mutation::Mutator;

/// How long one input may take before it counts as a hang: a thousand times the usual time.
const INPUT_TIME_MAX: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        [target, seconds] => hunt(target, seconds, "1"),
        [target, seconds, seed] => hunt(target, seconds, seed),
        _ => Err("usage: hunt TARGET SECONDS [SEED]".to_owned()),
    };
    match outcome {
        Ok(line) => {
            // A reader who closed the pipe has seen enough.
            let _ = writeln!(std::io::stdout(), "{line}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("hunt: {error}");
            ExitCode::FAILURE
        }
    }
}

fn hunt(name: &str, seconds: &str, seed: &str) -> Result<String, String> {
    let target = rove_fuzz::target(name).ok_or_else(|| format!("there is no target `{name}`"))?;
    let number = |text: &str| text.parse::<u64>().map_err(|error| format!("{text}: {error}"));
    let time = Duration::from_secs(number(seconds)?);
    let mut mutator = Mutator::new(number(seed)?);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut known = (target.seeds)();
    for entry in fs::read_dir(folder.join("corpus").join(name)).into_iter().flatten().flatten() {
        known.push(fs::read(entry.path()).map_err(|error| error.to_string())?);
    }
    let (start, mut tried) = (Instant::now(), 0u64);
    while start.elapsed() < time {
        let input = mutator.input(&known);
        let begun = Instant::now();
        let broken = catch_unwind(AssertUnwindSafe(|| (target.run)(&input))).is_err();
        if broken || begun.elapsed() > INPUT_TIME_MAX {
            let folder = folder.join("artifacts").join(name);
            let path = folder.join(format!("seed-{seed}-{tried}"));
            fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
            fs::write(&path, &input).map_err(|error| error.to_string())?;
            return Err(format!("input {tried} breaks `{name}`: {}", path.display()));
        }
        tried += 1;
    }
    Ok(format!("{name}: {tried} inputs, none of which breaks it"))
}
