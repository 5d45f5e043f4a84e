//! Checks that the systemd units start existing commands in the right order, and confine them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use support::netns::skip;
use support::{Ran, rove};

/// The highest allowed result of `systemd-analyze security` for a unit, from 0 (confined) to 10
/// (not confined).
const EXPOSURE_MAX: f64 = 2.5;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The units and their text, by name.
fn units() -> Vec<(PathBuf, String)> {
    let entries = fs::read_dir(root().join("packaging/systemd")).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut units: Vec<_> = paths
        .filter(|path| path.extension().is_some_and(|extension| extension == "service"))
        .map(|path| (path.clone(), fs::read_to_string(path).unwrap()))
        .collect();
    units.sort();
    assert_eq!(units.len(), 3);
    units
}

/// The values of a setting, in the order of the file.
fn values<'a>(unit: &'a str, setting: &str) -> Vec<&'a str> {
    let lines = unit.lines().filter_map(|line| line.split_once('='));
    lines.filter(|(name, _)| *name == setting).map(|(_, value)| value).collect()
}

#[test]
fn the_units_call_commands_that_there_are() {
    // The path at which the README's steps install the program.
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let installed = readme.lines().find_map(|line| line.split_once("target/release/rove "));
    let program = format!("{}rove ", installed.unwrap().1);
    assert!(program.starts_with('/') && program.ends_with("/rove "), "{program}");
    for (path, unit) in units() {
        let mut commands = 0;
        for setting in ["ExecStartPre", "ExecStart", "ExecReload"] {
            for command in values(&unit, setting) {
                let command = command.trim_start_matches('+');
                if command.starts_with("/bin/kill ") {
                    continue;
                }
                let line = command.strip_prefix(&program);
                let line = line.unwrap_or_else(|| panic!("{command}, not {program}"));
                // With --help, all arguments are parsed and nothing is executed.
                rove(line.split_whitespace().chain(["--help"])).ok();
                commands += 1;
            }
        }
        assert!(commands > 0, "{}", path.display());
    }
}

#[test]
fn the_units_start_after_what_flushes_the_packet_filter() {
    for (path, unit) in units() {
        let after = values(&unit, "After").join(" ");
        let flushes = "nftables.service";
        assert!(after.split(' ').any(|name| name == flushes), "{}: {after}", path.display());
    }
}

#[test]
fn the_units_are_confined() {
    let version = Command::new("systemd-analyze").arg("--version").stdin(Stdio::null()).output();
    if let Err(error) = version {
        return skip("the exposure of the units", &format!("systemd-analyze: {error}"));
    }
    for (path, unit) in units() {
        let mut command = Command::new("systemd-analyze");
        command.args(["security", "--no-pager", "--offline=true"]).arg(&path);
        let said = Ran::of(command.stdin(Stdio::null()).output().unwrap());
        let exposure = said.out.lines().find_map(|line| {
            let words = line.split_once("Overall exposure level")?.1;
            words.split_whitespace().find_map(|word| word.parse::<f64>().ok())
        });
        let exposure = exposure.unwrap_or_else(|| panic!("{}{}", said.out, said.err));
        assert!(exposure < EXPOSURE_MAX, "{}: {exposure}\n{}", path.display(), said.out);
        // These settings hardly change the score, but they protect keys and files.
        for (setting, value) in [
            ("LimitCORE", "0"),
            ("UMask", "0077"),
            ("ProtectProc", "invisible"),
            ("ProtectSystem", "strict"),
            ("RestrictSUIDSGID", "yes"),
        ] {
            assert_eq!(values(&unit, setting), [value], "{setting} in {}", path.display());
        }
    }
}
