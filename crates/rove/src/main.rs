//! `rove`: the one binary.
//!
//! From arguments to an exit code: 0 done, 1 failed with one line that names cause and cure, 2
//! wrong usage. What a command does is in [`command`]; a node that runs is in [`daemon`].

#![forbid(unsafe_code)]
#![allow(
    unreachable_pub,
    reason = "a binary has no outside: pub says that an item is for other modules than its own"
)]

mod cli;
mod command;
mod config;
mod control;
mod daemon;
mod encoding;
mod files;
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

use clap::Parser;

fn main() -> ExitCode {
    quiet::install();
    let cli = cli::Cli::parse();
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
