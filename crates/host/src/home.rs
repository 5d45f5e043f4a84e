//! Where a node keeps its files: everything of one node lies in one directory.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};

use crate::files::{self, FileError};

/// Unix socket addresses hold 108 bytes with the final zero (unix(7)).
const SOCKET_BYTES_MAX: usize = 107;

/// A node's directory. The files of a gateway and of a client have different names, so one host may
/// be both.
#[derive(Clone, Debug)]
pub struct Home {
    dir: PathBuf,
    /// Whether it was named, rather than the usual one.
    named: bool,
    /// The operator's key, opened while this process was root.
    operator: Option<Arc<File>>,
}

/// The usual directory of root, which is that of the system's units.
const SYSTEM: &str = "/etc/rove";

/// The name of the operator's key.
pub(crate) const OPERATOR_KEY: &str = "operator.key";

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
            None => usual(rustix::process::geteuid().is_root(), |name| env::var_os(name))
                .context("no home directory is known: name one with --dir")?,
        };
        // A background process changes its working directory.
        let dir = std::path::absolute(&dir).with_context(|| dir.display().to_string())?;
        Ok(Self { dir, named, operator: None })
    }

    /// A hint at the client that somebody may have meant who named no directory and whose own is
    /// not that of the system's units.
    pub fn other(&self) -> Option<String> {
        let system = Self { dir: PathBuf::from(SYSTEM), named: true, operator: None };
        let elsewhere = !self.named && self.dir != system.dir;
        let runs = || system.file(Role::Client, "sock").exists();
        (elsewhere && runs()).then(|| format!("this host's client is asked with --dir {SYSTEM}"))
    }

    /// Whether the directory is Rove's by its place: nobody else keeps files there.
    pub fn is_usual_of_root(&self) -> bool {
        self.dir == Path::new(SYSTEM)
    }

    /// The same with the operator's key open, if it is there and root's. The key stays root's, so a
    /// process that will not be root any more opens it before, and reads it only to sign.
    pub fn with_operator_key(mut self) -> Result<Self, FileError> {
        self.operator = files::open_root_s(&self.operator_key())?.map(Arc::new);
        Ok(self)
    }

    /// The same without the operator's key, for a process that goes on.
    pub fn without_operator_key(self) -> Self {
        Self { operator: None, ..self }
    }

    /// The operator's key, if it was opened.
    pub fn opened_operator_key(&self) -> Option<&File> {
        self.operator.as_deref()
    }

    /// The directory itself.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Whether a file with that name in the directory belongs to a node's user. The directory may
    /// contain other files, and the operator's key stays root's.
    pub fn owns(name: &OsStr) -> bool {
        let name = name.to_string_lossy();
        let of_role =
            |role: Role| name.strip_prefix(role.name()).is_some_and(|rest| rest.starts_with('.'));
        let is_store = Path::new(&*name).extension().is_some_and(|extension| extension == "redb");
        of_role(Role::Gateway) || of_role(Role::Client) || is_store
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
        self.dir.join(OPERATOR_KEY)
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

/// The directory that nobody has to name: for users other than root, the place of the XDG base
/// directory specification for state. `variable` is the environment.
fn usual(is_root: bool, variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    if is_root {
        return Some(PathBuf::from(SYSTEM));
    }
    let absolute = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")));
    Some(state?.join("rove"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_directory_is_that_of_the_user() {
        let home = ("HOME", "/users/ana");
        for (is_root, variables, expected) in [
            (true, &[home, ("XDG_STATE_HOME", "/state")][..], Some("/etc/rove")),
            (true, &[], Some("/etc/rove")),
            (false, &[home], Some("/users/ana/.local/state/rove")),
            (false, &[home, ("XDG_STATE_HOME", "/state")], Some("/state/rove")),
            (false, &[("XDG_STATE_HOME", "/state")], Some("/state/rove")),
            // The specification ignores what is not absolute, and an empty one is not.
            (false, &[home, ("XDG_STATE_HOME", "state")], Some("/users/ana/.local/state/rove")),
            (false, &[home, ("XDG_STATE_HOME", "")], Some("/users/ana/.local/state/rove")),
            (false, &[("HOME", "ana")], None),
            (false, &[], None),
        ] {
            let variable = |name: &str| {
                let found = variables.iter().find(|(key, _)| *key == name);
                found.map(|(_, value)| OsString::from(value))
            };
            let found = usual(is_root, variable);
            assert_eq!(found, expected.map(PathBuf::from), "{is_root} {variables:?}");
        }
    }

    #[test]
    fn what_a_node_does_not_make_is_not_its() {
        for name in ["gateway.toml", "client.state", "client.log.old", "a.redb"] {
            assert!(Home::owns(OsStr::new(name)), "{name}");
        }
        for name in ["thesis.tex", "gateways.toml", "client", ".ssh", "operator.key", ""] {
            assert!(!Home::owns(OsStr::new(name)), "{name}");
        }
    }

    #[test]
    fn a_named_directory_is_absolute_from_then_on() {
        let home = Home::new(Some("some/where".into())).unwrap();
        assert_eq!(home.dir(), env::current_dir().unwrap().join("some/where"));
        assert_eq!(home.other(), None, "it was named");
    }
}
