//! Everything in the one binary `rove`, whose `main.rs` only calls [`main`].
//!
//! From arguments to an exit code: 0 done, 1 failed with one line that names cause and cure, 2
//! wrong usage. What a command does is in `command`; a node that runs is in `daemon`.
//!
//! It is a library for one reason: a binary cannot be fuzzed. The feature `fuzz` opens what reads
//! hostile bytes to the fuzz targets, and nothing else uses this as a library.

#![forbid(unsafe_code)]
#![allow(
    unreachable_pub,
    reason = "no library for others: pub says that an item is for other modules than its own"
)]

mod cli;
mod command;
mod config;
mod control;
mod daemon;
mod encoding;
mod files;
#[cfg(feature = "fuzz")]
pub mod fuzz;
mod gateway;
mod home;
mod invite;
mod keys;
mod ledger;
mod membership;
mod quiet;
mod store;
mod values;

use std::io::Write;
use std::process::ExitCode;

/// Runs the command that the arguments of the process name.
pub fn main() -> ExitCode {
    quiet::install();
    rove_os::privileges::forbid_dumps();
    let cli = cli::parse();
    match command::run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let line = format!("{error:#}").replace(['\n', '\r'], " ");
            // With standard error gone nobody is left to tell.
            let _ = writeln!(std::io::stderr(), "rove: {line}");
            ExitCode::FAILURE
        }
    }
}
