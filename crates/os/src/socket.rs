//! The common part of all sockets: the link that their packets use, and options that no crate
//! knows. Content and addresses are the work of `udp`, `stream` and `portal`.

use std::{io, os::fd::AsRawFd};

use socket2::Socket;

use crate::error::Error;

/// The level of MPTCP's options (linux/mptcp.h).
pub(crate) const SOL_MPTCP: libc::c_int = 284;

/// Gives the socket's packets a mark, by which routes are chosen, and lets them leave by one
/// interface alone.
///
/// # Errors
/// [`Error::NoInterface`] where there is none of that name; else what the kernel says.
pub(crate) fn lead(
    socket: &Socket,
    interface: Option<&str>,
    mark: Option<u32>,
) -> Result<(), Error> {
    if let Some(mark) = mark {
        socket.set_mark(mark).map_err(|error| Error::os("mark the packets of a socket", error))?;
    }
    let Some(name) = interface else { return Ok(()) };
    socket.bind_device(Some(name.as_bytes())).map_err(|error| match error.raw_os_error() {
        Some(libc::ENODEV) => Error::NoInterface { name: name.to_owned() },
        Some(_) | None => Error::os(format!("bind a socket to {name}"), error),
    })
}

/// Sets an option that is one number.
///
/// # Errors
/// What the kernel says.
pub(crate) fn set_option(
    socket: &Socket,
    level: libc::c_int,
    option: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    // SAFETY: the option's value is one int that lives through the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
