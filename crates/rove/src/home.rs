//! Where a node keeps its files: everything of one node lies in one directory.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Unix socket addresses hold 108 bytes with the final zero (unix(7)).
const SOCKET_BYTES_MAX: usize = 107;

/// A node's directory. The files of a gateway and of a client have different names, so one host may
/// be both.
#[derive(Clone, Debug)]
pub struct Home {
    dir: PathBuf,
    /// Whether it was named, rather than the usual one.
    named: bool,
}

/// The usual directory of root, which is that of the system's units.
const SYSTEM: &str = "/etc/rove";

/// Which of the nodes that a directory may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A gateway.
    Gateway,
    /// A client.
    Client,
}

impl Role {
    /// Its name, with which its files begin.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gateway => "gateway",
            Self::Client => "client",
        }
    }
}

impl Home {
    /// The directory that was named, else the usual one.
    pub fn new(dir: Option<PathBuf>) -> Result<Self> {
        let named = dir.is_some();
        let dir = match dir {
            Some(dir) => dir,
            None if rustix::process::geteuid().is_root() => PathBuf::from(SYSTEM),
            None => user_state().context("no home directory is known: name one with --dir")?,
        };
        // A background process changes its working directory.
        let dir = std::path::absolute(&dir).with_context(|| dir.display().to_string())?;
        Ok(Self { dir, named })
    }

    /// A hint at the client that somebody may have meant who named no directory and whose own is
    /// not that of the system's units.
    pub fn other(&self) -> Option<String> {
        let system = Self { dir: PathBuf::from(SYSTEM), named: true };
        let elsewhere = !self.named && self.dir != system.dir;
        let runs = || system.file(Role::Client, "sock").exists();
        (elsewhere && runs()).then(|| format!("this host's client is asked with --dir {SYSTEM}"))
    }

    /// The directory itself.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// `gateway.toml` or `client.toml`.
    pub fn config(&self, role: Role) -> PathBuf {
        self.file(role, "toml")
    }

    /// The static key.
    pub fn key(&self, role: Role) -> PathBuf {
        self.file(role, "key")
    }

    /// The operator's signing key, unless it is kept elsewhere.
    pub fn operator_key(&self) -> PathBuf {
        self.dir.join("operator.key")
    }

    /// What the operator signed about this gateway.
    pub fn record(&self) -> PathBuf {
        self.file(Role::Gateway, "record")
    }

    /// The store of a client.
    pub fn client_store(&self) -> PathBuf {
        self.file(Role::Client, "redb")
    }

    /// What the background process of a client logs.
    pub fn client_log(&self) -> PathBuf {
        self.file(Role::Client, "log")
    }

    /// The directory of the lock that says that a node runs, and of the journal of what it changed
    /// on this host.
    pub fn state(&self, role: Role) -> PathBuf {
        self.file(role, "state")
    }

    /// The control socket.
    pub fn socket(&self, role: Role) -> Result<PathBuf> {
        let path = self.file(role, "sock");
        let length = path.as_os_str().len();
        anyhow::ensure!(
            length <= SOCKET_BYTES_MAX,
            "{} is {length} bytes long and a socket's path may have {SOCKET_BYTES_MAX}: choose a \
             shorter --dir",
            path.display()
        );
        Ok(path)
    }

    fn file(&self, role: Role, kind: &str) -> PathBuf {
        self.dir.join(format!("{}.{kind}", role.name()))
    }
}

/// The XDG base directory specification's place for state.
fn user_state() -> Option<PathBuf> {
    let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")));
    Some(state?.join("rove"))
}
