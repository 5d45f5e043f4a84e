//! Shell completions and manual pages, generated from the command line's own definition.

use std::path::Path;

use anyhow::{Context, Result};
use clap::CommandFactory;

use super::output;
use crate::cli::Cli;

pub(super) fn completions(shell: clap_complete::Shell) -> Result<()> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "rove", &mut text);
    output::print(&String::from_utf8_lossy(&text))
}

pub(super) fn manual(directory: &Path) -> Result<()> {
    clap_mangen::generate_to(Cli::command(), directory)
        .with_context(|| format!("cannot write manual pages into {}", directory.display()))
}
