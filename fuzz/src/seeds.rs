//! Writes the valid inputs that a target makes from values into a folder, for libFuzzer to start
//! from: `seeds TARGET FOLDER`. Called by `cargo xtask fuzz`.

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match words.as_slice() {
        [target, folder] => write(target, Path::new(folder)),
        _ => Err("usage: seeds TARGET FOLDER".to_owned()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("seeds: {error}");
            ExitCode::FAILURE
        }
    }
}

fn write(name: &str, folder: &Path) -> Result<(), String> {
    let target = rove_fuzz::target(name).ok_or_else(|| format!("there is no target `{name}`"))?;
    for (number, seed) in (target.seeds)().iter().enumerate() {
        let path = folder.join(format!("seed-{number}"));
        std::fs::write(&path, seed).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(())
}
