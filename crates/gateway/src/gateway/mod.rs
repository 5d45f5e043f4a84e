//! A gateway as it lies in its directory: configuration, identity and ledger.
//!
//! Decides what a new gateway consists of and whether the files of an old one fit together: the
//! endpoints and networks of the configuration are those that the operator signed. The running
//! gateway and the offline commands start from the same [`Gateway`].

pub(crate) mod desk;
pub(crate) mod relocation;

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rove_host::home::{Home, Role};
use rove_host::keys::OperatorKey;
use rove_host::store::{EmbeddedStore, StoreError};
use rove_host::values::{HostIndex, Lease};
use rove_host::{confine, files};

use crate::config::{Config, StoreUrl};
use crate::identity::Identity;
use crate::ledger::Ledger;

/// How long somebody may hold the files who does not answer: a command that works on them, or a
/// gateway that is just starting.
const IN_USE_WITHIN: Duration = Duration::from_secs(5);
/// How soon the files are looked at again.
const IN_USE_PAUSE: Duration = Duration::from_millis(20);

/// A gateway's configuration, identity and memory.
pub(crate) struct Gateway {
    /// Where it lies.
    pub home: Home,
    /// What it is to do.
    pub config: Config,
    /// Who it is.
    pub identity: Identity,
    /// Who belongs to it.
    pub ledger: Ledger,
}

impl Gateway {
    /// Makes the files of a new gateway. Nothing that exists is overwritten.
    pub(crate) fn init(home: &Home, config: &Config) -> Result<()> {
        let store = store_path(home, config);
        let role = Role::Gateway;
        let new =
            [home.config(role), home.key(role), home.operator_key(), home.record(), store.clone()];
        if let Some(there) = new.iter().find(|path| path.exists()) {
            return Err(files::FileError::Exists(there.clone()).into());
        }
        confine::make_home(home)?;
        let operator = OperatorKey::generate()?;
        // The only file that is not the node's user's.
        operator.create(&home.operator_key())?;
        confine::as_owner(home, || {
            Identity::create(home, config, &operator)?;
            EmbeddedStore::create(&store, role.name())?;
            // Last, so that a directory with a configuration is a complete one.
            files::create(&home.config(role), files::PRIVATE, config.to_text().as_bytes())?;
            Ok(())
        })?
    }

    /// The configuration of the gateway that is in `home`.
    pub(crate) fn find(home: &Home) -> Result<PathBuf> {
        let path = home.config(Role::Gateway);
        anyhow::ensure!(
            path.exists(),
            "no gateway in {}: run `rove gateway init`, or name its directory with --dir",
            home.dir().display()
        );
        Ok(path)
    }

    /// Reads and checks everything.
    pub(crate) fn open(home: &Home) -> Result<Self> {
        let config = Config::load(&Self::find(home)?)?;
        let identity = Identity::load(home, &config)?;
        config.saving.verify(identity.operator)?;
        let store = EmbeddedStore::open(&store_path(home, &config), Role::Gateway.name())?;
        let ledger = Ledger::open(Box::new(store), config.networks)?;
        Ok(Self { home: home.clone().without_operator_key(), config, identity, ledger })
    }

    /// Reads and checks everything, to run.
    pub(crate) fn open_to_run(home: &Home) -> Result<Self> {
        when_free(|| Self::open(home))
    }

    /// The directory in which the store lies.
    pub(crate) fn store_directory(&self) -> PathBuf {
        store_directory_of(&self.home, &self.config)
    }

    /// The gateway's own inner addresses.
    pub(crate) fn lease(&self) -> Result<Lease> {
        let lease = self.config.networks.lease(HostIndex::GATEWAY);
        lease.context("the inner networks have no room for the gateway")
    }
}

/// Tries what needs the files, again while another process has them for a moment.
pub(crate) fn when_free<T>(mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
    let give_up = Instant::now() + IN_USE_WITHIN;
    loop {
        match attempt() {
            Err(error) if is_in_use(&error) && Instant::now() < give_up => {
                thread::sleep(IN_USE_PAUSE);
            }
            done => return done,
        }
    }
}

fn is_in_use(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref::<StoreError>(), Some(StoreError::InUse(_)))
}

/// The directory of the store of the gateway in `home`.
pub(crate) fn store_directory(home: &Home) -> Result<PathBuf> {
    Ok(store_directory_of(home, &Config::load(&Gateway::find(home)?)?))
}

fn store_directory_of(home: &Home, config: &Config) -> PathBuf {
    let path = store_path(home, config);
    path.parent().map_or_else(|| home.dir().to_owned(), Path::to_owned)
}

/// The file of the embedded store.
pub(crate) fn store_path(home: &Home, config: &Config) -> PathBuf {
    let StoreUrl::Embedded(file) = &config.store;
    home.dir().join(file)
}

#[cfg(test)]
mod tests;
