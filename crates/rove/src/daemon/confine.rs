//! Privileges are dropped when everything that needs them is open, and before the first thread.

use std::path::{Path, PathBuf};

/// Files that plans write: the resolver's configuration, and kernel settings.
const WRITTEN: [&str; 2] = ["/etc", "/proc/sys/net"];
const RESOLV_CONF: &str = "/etc/resolv.conf";

/// Confines this process to the network and to `directories`. A kernel that cannot is told of in
/// the log: the node is as safe as on that kernel it can be.
pub(super) fn to(directories: &[&Path]) {
    let mut writable: Vec<PathBuf> = WRITTEN.iter().map(PathBuf::from).collect();
    writable.extend(directories.iter().map(|path| path.to_path_buf()));
    // The file that a link leads to may lie elsewhere.
    let resolv_conf = std::fs::canonicalize(RESOLV_CONF).ok();
    writable.extend(resolv_conf.and_then(|path| Some(path.parent()?.to_owned())));
    writable.retain(|path| path.exists());
    let writable: Vec<&Path> = writable.iter().map(PathBuf::as_path).collect();
    match rove_os::privileges::drop(&writable) {
        Ok(dropped) if dropped.files_confined => {}
        Ok(_) => tracing::info!("this kernel does not confine writing (Landlock)"),
        Err(error) => tracing::warn!(%error, "privileges are kept"),
    }
}
