//! The operator's actions on a gateway. They use the control socket while the gateway runs, and its
//! files otherwise.

use std::path::Path;

use anyhow::{Result, bail};
use rove_api::Request;
use rove_host::control::{self, AskError};
use rove_host::home::{Home, Role};
use rove_host::time::wall_clock;
use rove_os::lock::Lock;
use rove_os::plan::{Applier, Places};
use serde::de::DeserializeOwned;

use crate::backup::write;
use crate::config::Config;
use crate::gateway::{Gateway, when_free};

/// Makes the files of a new gateway in `home`. Nothing that exists is overwritten.
pub fn init(home: &Home, config: &Config) -> Result<()> {
    Gateway::init(home, config)
}

/// Asks the running gateway, else its files. `T` is the type of the answer to this request.
pub fn ask<T: DeserializeOwned>(home: &Home, request: &Request) -> Result<T> {
    let socket = home.socket(Role::Gateway)?;
    when_free(|| match control::ask(&socket, request) {
        Err(AskError::NotRunning) => {
            let answer = Gateway::open(home)?.answer(request.clone(), wall_clock())?.stored()?;
            Ok(serde_json::from_value(serde_json::to_value(answer)?)?)
        }
        answered => Ok(answered?),
    })
}

/// Writes a new file `to` with the gateway's configuration, identity and ledger.
pub fn backup(home: &Home, to: &Path) -> Result<()> {
    write(home, ask(home, &Request::Snapshot)?, to)
}

/// Removes the interface, routes and NAT that a stopped gateway left on this host. Returns whether
/// there were any.
pub fn down(home: &Home) -> Result<bool> {
    Gateway::find(home)?;
    let state = home.state(Role::Gateway);
    if !state.exists() {
        return Ok(false);
    }
    let _lock = match Lock::take(&state) {
        Err(rove_os::error::Error::SecondInstance { .. }) => {
            bail!("the gateway runs: stop it first")
        }
        taken => taken?,
    };
    let mut applier = Applier::open(Places::usual(&state))?;
    let is_left = applier.has_leftovers();
    if is_left {
        applier.undo()?;
    }
    Ok(is_left)
}
