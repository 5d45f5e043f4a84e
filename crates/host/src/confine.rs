//! Drops privileges in two steps, both before the first thread. A node stops being root before it
//! reads its first file. Once everything is open, it gives up all privileges that it does not need.
//!
//! Then it may write only to the node's own directories, the kernel's network settings, and the TUN
//! device, which creates a deleted interface again. A client that had to stay root, on a host
//! without systemd-resolved, may also write to the directory of resolv.conf.

use std::path::{Path, PathBuf};

use anyhow::Result;
use rove_os::error::Error;
use rove_os::plan::Places;
use rove_os::privileges::{self, Leaving, Left, Why, Writable};

use crate::files::{self, FileError};
use crate::home::{Home, OPERATOR_KEY};

/// The user that nodes run as. Members of the group with the same name may control them.
const USER: &str = "rove";

/// Kernel settings that plans change.
const SETTINGS: &str = "/proc/sys/net";
/// The device that creates interfaces.
const TUN: &str = "/dev/net/tun";

/// Makes this process run as the user, if it can do the node's work. `others` are
/// directories elsewhere that the node writes to. If the node will change the resolver's settings,
/// `resolver` contains the paths of these.
pub fn leave_root(home: &Home, others: &[&Path], resolver: Option<&Places>) -> Result<Left> {
    let others: Vec<&Path> = others.iter().copied().filter(|path| *path != home.dir()).collect();
    Ok(privileges::leave_root(&leaving(home, &others), resolver)?)
}

/// Gives the node's files in `/etc/rove` to the user that the node runs as, if root owns that
/// directory and the user exists.
pub fn adopt(home: &Home) {
    // If this fails, the node cannot use its files and reports that.
    let _ = privileges::adopt(&leaving(home, &[]));
}

/// Makes this process the node's user, if it is root and that user owns the node's directory: root
/// must not be led by files that the user wrote. `resolver` is as for [`leave_root`].
pub fn become_owner(home: &Home, resolver: Option<&Places>) -> Result<()> {
    privileges::become_owner(USER, home.dir(), resolver)?;
    Ok(())
}

/// Runs `work` with the node's user's rights to files, if this process is root and that user owns
/// the node's directory.
pub fn as_owner<T>(home: &Home, work: impl FnOnce() -> T) -> Result<T> {
    Ok(privileges::as_owner(USER, home.dir(), work)?)
}

/// Makes the node's directory, for its user if there is one, or takes one that is there.
pub fn make_home(home: &Home) -> Result<(), FileError> {
    privileges::make_home(USER, home.dir(), files::DIRECTORY)
        .map_err(|cause| FileError::system(home.dir(), cause))
}

fn leaving<'a>(home: &'a Home, others: &'a [&'a Path]) -> Leaving<'a> {
    let is_rove_s = home.is_usual_of_root();
    let root_s = OPERATOR_KEY;
    Leaving { user: USER, home: home.dir(), is_rove_s, belongs: Home::owns, root_s, others }
}

/// Logs the user that the node runs as.
pub fn tell(left: &Left) {
    match left {
        Left::User => tracing::debug!(user = USER, "not root any more"),
        Left::NotRoot => {}
        // This is normal in containers and test networks.
        Left::Stayed(why @ Why::NotMapped(_)) => tracing::debug!(%why, "still root"),
        Left::Stayed(why) => tracing::warn!("still root, without what only root may do: {why}"),
    }
}

/// Confines a node that changes no resolver's settings to the network and to `directories`. See
/// [`with_resolver`].
pub fn to(directories: &[&Path]) -> Result<()> {
    with_resolver(directories, &[])
}

/// Confines this process to the network, to `directories`, and to replacing `resolver`, the files
/// of the host's resolver. A kernel that cannot is told of in the log: the node is as safe as on
/// that kernel it can be. A thread that runs already would keep everything: that is an error.
pub fn with_resolver(directories: &[&Path], resolver: &[PathBuf]) -> Result<()> {
    let own = directories.iter().copied().chain([SETTINGS, TUN].map(Path::new));
    let own = own.map(Writable::Within);
    let replaced = resolver.iter().map(|path| Writable::Replaced(path));
    let writable: Vec<Writable<'_>> = own.chain(replaced).collect();
    match privileges::drop(&writable) {
        Ok(dropped) => {
            if !dropped.files_confined {
                tracing::info!("this kernel does not confine writing (Landlock)");
            }
            if !dropped.calls_filtered {
                tracing::info!("this kernel does not filter system calls (seccomp)");
            }
        }
        Err(error @ Error::ThreadsRunning { .. }) => return Err(error.into()),
        Err(error) => tracing::warn!(%error, "privileges are kept"),
    }
    Ok(())
}
