//! `rove-lab`: runs scenarios.

use clap::{Parser, Subcommand};
use rove_lab::demo::{self, Screen};
use rove_lab::netns;
use rove_lab::programs::Program;
use std::process::ExitCode;

#[derive(Parser)]
#[command(version, about = "Emulated networks on which every claim about Rove is shown")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Show what Rove does: a download that survives a change of address
    Demo,
    /// A program that runs in a host of the lab
    #[command(hide = true, subcommand)]
    Program(Program),
}

fn main() -> ExitCode {
    match run(Arguments::parse().command) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("rove-lab: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> anyhow::Result<bool> {
    match command {
        Command::Program(program) => program.run().map(|()| true),
        Command::Demo => {
            let entered = netns::enter()?;
            demo::run(&entered, &mut Screen::stdout())
        }
    }
}
