//! The paths of files that plans use.

use std::path::{Path, PathBuf};

use crate::dns;

/// The paths of the configuration that a plan changes outside the kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Places {
    /// Directory for the journal. It must exist, and no other program may use it.
    pub state: PathBuf,
    /// The resolver's configuration, usually `/etc/resolv.conf`.
    pub resolv_conf: PathBuf,
    /// Whether systemd-resolved may be used. Tests and containers set this to false.
    pub resolved: bool,
}

impl Places {
    /// The usual paths, with the journal in `state`.
    pub fn usual(state: &Path) -> Self {
        Self {
            state: state.to_owned(),
            resolv_conf: PathBuf::from("/etc/resolv.conf"),
            resolved: true,
        }
    }

    /// The paths that a plan with DNS writes to on this host now. None if systemd-resolved is in
    /// use. Otherwise the directory in which the resolver's file is replaced, and the file itself
    /// if a link leads to it.
    pub fn resolver_files(&self) -> Vec<PathBuf> {
        dns::written(self)
    }
}
