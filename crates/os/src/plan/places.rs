//! Where plans keep files.

use std::path::{Path, PathBuf};

use crate::dns;

/// Where the host keeps what a plan changes besides the kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Places {
    /// Directory of ours, for the journal. It must exist, and be ours alone.
    pub state: PathBuf,
    /// The resolver's configuration, usually `/etc/resolv.conf`.
    pub resolv_conf: PathBuf,
    /// Whether systemd-resolved may be asked. Tests and containers say no.
    pub resolved: bool,
}

impl Places {
    /// The usual ones, with the journal in `state`.
    pub fn usual(state: &Path) -> Self {
        Self {
            state: state.to_owned(),
            resolv_conf: PathBuf::from("/etc/resolv.conf"),
            resolved: true,
        }
    }

    /// Where plans with DNS write on this host as it is now: nowhere while systemd-resolved
    /// resolves, else the directory in which the resolver's file is replaced, and the file itself
    /// where a link leads to it.
    pub fn resolver_files(&self) -> Vec<PathBuf> {
        dns::written(self)
    }
}
