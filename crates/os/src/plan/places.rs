//! The paths of files that plans use, and which of them a plan writes on this host.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::dns::resolved;

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
        if self.lead_to_resolved() {
            return Vec::new();
        }
        let directory = self.resolv_conf.parent().map(Path::to_owned);
        let linked = fs::canonicalize(&self.resolv_conf).ok();
        let linked = linked.filter(|path| path.parent() != self.resolv_conf.parent());
        directory.into_iter().chain(linked).collect()
    }

    /// Whether systemd-resolved answers this host's names, and may be used.
    pub(crate) fn lead_to_resolved(&self) -> bool {
        self.resolved && resolved::resolves_for_this_host(&self.resolv_conf)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn only_what_a_plan_replaces_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        let resolv_conf = dir.path().join("resolv.conf");
        let state = dir.path().to_owned();
        let places = Places { state, resolv_conf: resolv_conf.clone(), resolved: true };
        assert_eq!(places.resolver_files(), [dir.path()], "a file that is not there yet");
        fs::write(&resolv_conf, "nameserver 192.0.2.53\n").unwrap();
        assert_eq!(places.resolver_files(), [dir.path()]);
        fs::remove_file(&resolv_conf).unwrap();
        let target = fs::canonicalize(elsewhere.path()).unwrap().join("resolv.conf");
        fs::write(&target, "nameserver 192.0.2.53\n").unwrap();
        symlink(&target, &resolv_conf).unwrap();
        assert_eq!(places.resolver_files(), [dir.path().to_owned(), target]);
    }
}
