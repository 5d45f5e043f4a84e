//! Privileges are dropped when everything that needs them is open, and before the first thread.
//!
//! Root without capabilities still owns root's files, so what may be written is named, and is
//! little: the node's own directories, the kernel's network settings, the device by which a deleted
//! interface is made again, and for a client on a host without systemd-resolved the directory of
//! resolv.conf.

use std::path::{Path, PathBuf};

use anyhow::Result;
use rove_os::error::Error;
use rove_os::privileges::Writable;

/// Kernel settings that plans change.
const SETTINGS: &str = "/proc/sys/net";
/// Where interfaces come from.
const TUN: &str = "/dev/net/tun";

/// Confines a node that changes no resolver's settings to the network and to `directories`. See
/// [`with_resolver`].
pub(super) fn to(directories: &[&Path]) -> Result<()> {
    with_resolver(directories, &[])
}

/// Confines this process to the network, to `directories`, and to replacing `resolver`, the files
/// of the host's resolver. A kernel that cannot is told of in the log: the node is as safe as on
/// that kernel it can be. A thread that runs already would keep everything: that is an error.
pub(super) fn with_resolver(directories: &[&Path], resolver: &[PathBuf]) -> Result<()> {
    let own = directories.iter().copied().chain([SETTINGS, TUN].map(Path::new));
    let own = own.map(Writable::Within);
    let replaced = resolver.iter().map(|path| Writable::Replaced(path));
    let writable: Vec<Writable<'_>> = own.chain(replaced).collect();
    match rove_os::privileges::drop(&writable) {
        Ok(dropped) if dropped.files_confined => {}
        Ok(_) => tracing::info!("this kernel does not confine writing (Landlock)"),
        Err(error @ Error::ThreadsRunning { .. }) => return Err(error.into()),
        Err(error) => tracing::warn!(%error, "privileges are kept"),
    }
    Ok(())
}
