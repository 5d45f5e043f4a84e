//! The user whose sockets send the tunnel's datagrams, as a packet filter sees it.
//!
//! A filter compares users in the user namespace that owns the network namespace (`nft_meta.c`).
//! If this process is in another one, its own number of its user says nothing there.

use std::{
    fs::{self, File},
    io,
    os::{
        fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
        unix::fs::MetadataExt as _,
    },
};

/// ioctl_ns(2): a descriptor of the user namespace that owns a namespace.
const NS_GET_USERNS: libc::Ioctl = 0xb701;

/// The user of this process; `None` if a packet filter may know it by another number.
pub(super) fn sender() -> Option<u32> {
    let is_known = owner_of_network().and_then(|owner| {
        let (owner, own) = (owner.metadata()?, fs::metadata("/proc/self/ns/user")?);
        Ok((owner.dev(), owner.ino()) == (own.dev(), own.ino()))
    });
    // SAFETY: the call has no arguments and cannot fail.
    is_known.unwrap_or(false).then(|| unsafe { libc::geteuid() })
}

/// The user namespace that owns the network namespace of this thread.
fn owner_of_network() -> io::Result<File> {
    let network = File::open("/proc/thread-self/ns/net")?;
    // SAFETY: the descriptor lives through the call, which takes no argument.
    let owner = unsafe { libc::ioctl(network.as_raw_fd(), NS_GET_USERNS) };
    if owner < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just made, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(owner) }.into())
}
