//! News of links, addresses, routes and rules, reduced to "something changed".

use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd},
};

use netlink_sys::{Socket, protocols::NETLINK_ROUTE};

use crate::error::Error;

/// Groups of linux/rtnetlink.h: links, addresses, routes and rules of both families. Rules are
/// among them because some network managers remove what they did not make.
const GROUPS: [u32; 7] = [
    libc::RTNLGRP_LINK,
    libc::RTNLGRP_IPV4_IFADDR,
    libc::RTNLGRP_IPV4_ROUTE,
    libc::RTNLGRP_IPV4_RULE,
    libc::RTNLGRP_IPV6_IFADDR,
    libc::RTNLGRP_IPV6_ROUTE,
    RTNLGRP_IPV6_RULE,
];
const RTNLGRP_IPV6_RULE: u32 = 19;

/// Messages that one [`Monitor::drain`] reads; what is left makes the socket readable again.
const DRAIN_MAX: usize = 1_024;

/// A socket that becomes readable when links, addresses, routes or rules change.
///
/// What changed is not told: one plugged cable makes eight messages and each alone means little.
/// The caller waits until it has been quiet for a moment and takes a new
/// [`crate::links::snapshot`].
#[derive(Debug)]
pub struct Monitor {
    socket: Socket,
}

impl Monitor {
    /// Begins to listen in the present network namespace.
    ///
    /// # Errors
    /// [`Error::Os`] where a sandbox forbids netlink.
    pub fn open() -> Result<Self, Error> {
        let what = "listen to changes of links (netlink)";
        let open = || -> io::Result<Socket> {
            let mut socket = Socket::new(NETLINK_ROUTE)?;
            socket.bind_auto()?;
            socket.set_non_blocking(true)?;
            for group in GROUPS {
                socket.add_membership(group)?;
            }
            Ok(socket)
        };
        Ok(Self { socket: open().map_err(|error| Error::os(what, error))? })
    }

    /// Throws away all news; returns whether there was any. News that the kernel had no room to
    /// keep count as some.
    ///
    /// # Errors
    /// [`Error::Os`] when the socket is of no use any more.
    pub fn drain(&mut self) -> Result<bool, Error> {
        let mut changed = false;
        // The message is not looked at, so it may be cut off.
        let mut room = [0u8; 64];
        for _ in 0..DRAIN_MAX {
            // SAFETY: the pointer and the length are those of a live, writable array.
            let got =
                unsafe { libc::recv(self.as_raw_fd(), room.as_mut_ptr().cast(), room.len(), 0) };
            if got >= 0 {
                changed = true;
                continue;
            }
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::ENOBUFS) => changed = true,
                Some(libc::EINTR) => {}
                Some(libc::EAGAIN) => break,
                Some(_) | None => return Err(Error::os("hear of changes of links", error)),
            }
        }
        Ok(changed)
    }
}

impl AsFd for Monitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor belongs to the socket, which is borrowed as long as this is.
        unsafe { BorrowedFd::borrow_raw(self.socket.as_raw_fd()) }
    }
}

impl AsRawFd for Monitor {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}
