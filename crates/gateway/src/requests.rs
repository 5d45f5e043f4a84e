//! The operator's actions on a gateway. They use the control socket while the gateway runs, and its
//! files otherwise.

use std::path::Path;

use anyhow::{Context, Result, bail};
use rove_api::{Moved, Request};
use rove_host::control::{self, AskError};
use rove_host::dictionary::{DictionaryName, SignedDictionary};
use rove_host::home::{Home, Role};
use rove_host::time::wall_clock;
use rove_host::values::{Endpoint, Networks};
use rove_host::{confine, files};
use rove_os::lock::Lock;
use rove_os::plan::{Applier, Places};
use rove_proto::codec::dictionary;
use serde::de::DeserializeOwned;

use crate::backup::write;
use crate::config::Config;
use crate::gateway::{Gateway, relocation, when_free};
use crate::identity::Identity;

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

/// Moves the gateway to another endpoint. The record about it is signed here if this process has
/// opened the operator's key: the running gateway cannot read it.
pub fn relocate(home: &Home, to: &Endpoint) -> Result<Moved> {
    let record = relocation::sign(home, to)?;
    ask(home, &Request::Move { endpoint: to.to_string(), record })
}

/// A signed configuration.
#[derive(Debug)]
pub struct Signed {
    /// Where clients reach the gateway.
    pub endpoints: Vec<Endpoint>,
    /// The inner networks.
    pub networks: Networks,
    /// Whether it was not signed before.
    pub is_new: bool,
}

/// Signs the endpoints and networks that gateway.toml names, with the operator's key.
pub fn sign(home: &Home) -> Result<Signed> {
    let config = Config::load(&Gateway::find(home)?)?;
    let is_new = Identity::sign_config(home, &config)?;
    Ok(Signed { endpoints: config.endpoints, networks: config.networks, is_new })
}

/// Signs a dictionary with the operator's key. Without a number it gets the first one that
/// gateway.toml does not use.
pub fn sign_dictionary(
    home: &Home,
    name: &DictionaryName,
    number: Option<u8>,
    content: &[u8],
) -> Result<SignedDictionary> {
    let config = Config::load(&Gateway::find(home)?)?;
    let taken = |number: &u8| config.saving.dictionaries.iter().any(|it| it.number() == *number);
    let free = || (dictionary::ADDED_FROM..dictionary::NUMBERS).find(|number| !taken(number));
    let number = number.or_else(free).context(
        "gateway.toml has as many dictionaries as there may be: name the --number of one to \
         replace",
    )?;
    Identity::sign_dictionary(home, (number, name), content)
}

/// Writes a new file `to` with the gateway's configuration, identity and ledger.
pub fn backup(home: &Home, to: &Path) -> Result<()> {
    let text = confine::as_owner(home, || write(home, ask(home, &Request::Snapshot)?))??;
    match files::create(to, files::PRIVATE, text.as_bytes()) {
        Err(files::FileError::Exists(to)) => {
            bail!("{} exists already: choose another file for the backup", to.display())
        }
        Err(files::FileError::Missing(to)) => {
            bail!("the directory of {} does not exist: make it, or choose another", to.display())
        }
        written => Ok(written?),
    }
}

/// What taking down a stopped gateway came to.
#[derive(Debug)]
pub struct TakenDown {
    /// It had left something.
    pub was_left: bool,
    /// What the operator should know although everything is removed.
    pub warning: Option<String>,
}

/// Removes the interface, routes and NAT that a stopped gateway left on this host.
pub fn down(home: &Home) -> Result<TakenDown> {
    Gateway::find(home)?;
    let state = home.state(Role::Gateway);
    if !state.exists() {
        return Ok(TakenDown { was_left: false, warning: None });
    }
    // A lock that cannot be made, as on a read-only file system, is not held.
    let lock = Lock::take(&state);
    if let Err(rove_os::error::Error::SecondInstance { .. }) = lock {
        bail!("the gateway runs: stop it first")
    }
    let mut applier = Applier::open(Places::usual(&state))?;
    let was_left = applier.has_leftovers();
    if was_left {
        applier.leave()?;
    }
    let warning = applier.unwritten().map(|why| {
        format!(
            "everything is removed, but the record of it stays: {why}. Then run `rove gateway \
             down` again"
        )
    });
    Ok(TakenDown { was_left, warning })
}
