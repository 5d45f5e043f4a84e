//! `rove up`, `down`, `status`, `paths`, `reload`.

use anyhow::{Result, bail};

use super::{ask_client, output};
use crate::cli::{OutputArgs, UpArgs};
use crate::config::LogFormat;
use crate::control::Request;
use crate::home::Home;

pub(super) fn up(_home: &Home, _args: UpArgs, _log_format: Option<LogFormat>) -> Result<()> {
    bail!("this build has no data plane")
}

pub(super) fn down(home: &Home) -> Result<()> {
    ask_client(home, &Request::Down)?;
    output::line("down")
}

pub(super) fn status(home: &Home, args: OutputArgs) -> Result<()> {
    let _ = args;
    output::json(&ask_client(home, &Request::Status)?)
}

pub(super) fn paths(home: &Home, args: OutputArgs) -> Result<()> {
    let _ = args;
    output::json(&ask_client(home, &Request::Paths)?)
}

pub(super) fn reload(home: &Home) -> Result<()> {
    ask_client(home, &Request::Reload)?;
    output::line("reloaded")
}
