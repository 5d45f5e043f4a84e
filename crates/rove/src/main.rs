//! `rove`: the command line over the libraries of client and gateway.
//!
//! It turns arguments into an exit code: 0 for success, 1 for a failure with one line that names
//! cause and cure, 2 for wrong usage. `cli` parses the arguments, `command` runs them and prints.

#![forbid(unsafe_code)]

mod cli;
mod command;

use std::process::ExitCode;

fn main() -> ExitCode {
    rove_host::quiet::install();
    rove_host::signals::survive_file_limit();
    rove_os::privileges::forbid_dumps();
    let cli = cli::parse();
    match command::run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let line = format!("{error:#}").replace(['\n', '\r'], " ");
            let line = rove_host::log::printable(&line, "");
            // If standard error is closed, there is nowhere to report this.
            let _ = rove_host::log::print(std::io::stderr(), &format!("rove: {line}"));
            ExitCode::FAILURE
        }
    }
}
