//! The program that libFuzzer drives: runs the target named by `ROVE_FUZZ_TARGET`.
//! Built and started by `cargo xtask fuzz`, which knows the compiler flags.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use rove_fuzz::{TARGETS, Target, target};

static CHOSEN: LazyLock<&'static Target> = LazyLock::new(|| {
    let name = std::env::var("ROVE_FUZZ_TARGET").unwrap_or_default();
    let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
    match target(&name) {
        Some(target) => target,
        None => panic!("ROVE_FUZZ_TARGET is `{name}`; the targets are {}", names.join(", ")),
    }
});

fuzz_target!(|data: &[u8]| (CHOSEN.run)(data));
