//! All code of the one binary `rove`. Its `main.rs` only calls [`main`].
//!
//! It turns arguments into an exit code: 0 for success, 1 for a failure with one line that names
//! cause and cure, 2 for wrong usage. The commands are in `command`; a running node is in `daemon`.
//!
//! It is a library for one reason: a binary cannot be fuzzed. The feature `fuzz` opens its parsers
//! of hostile bytes to the fuzz targets. Nothing else uses this library.

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

/// Runs the command that the process's arguments name.
pub fn main() -> ExitCode {
    quiet::install();
    rove_os::privileges::forbid_dumps();
    let cli = cli::parse();
    match command::run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let line = format!("{error:#}").replace(['\n', '\r'], " ");
            // If standard error is closed, there is nowhere to report this.
            let _ = writeln!(std::io::stderr(), "rove: {line}");
            ExitCode::FAILURE
        }
    }
}
