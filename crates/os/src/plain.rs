//! Opens a node's own files: ordinary files alone, and never by waiting.
//!
//! A node's directory belongs to the node's user. Commands that root runs read it too. That user
//! could have put a link there that leads to a file of root, or a FIFO on which `open` waits for
//! ever. Both are refused. This module does not know what a file contains.
//!
//! Limit: a device is refused after it was opened, and the node's user can make none.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::Path,
};

/// Opens `path` as `options` say, if it is an ordinary file and no link.
///
/// # Errors
/// Those of open(2), and an error that names the kind of the object.
pub fn open(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    match open_with(path, options, libc::O_NOFOLLOW) {
        Err(error) if error.raw_os_error() == Some(libc::ELOOP) => {
            Err(io::Error::other("it is a link, which Rove does not follow here: remove it"))
        }
        opened => opened,
    }
}

/// The same for a file that the operator may replace by a link, like a configuration.
///
/// # Errors
/// As [`open`].
pub fn open_followed(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    open_with(path, options, 0)
}

fn open_with(path: &Path, options: &mut OpenOptions, flags: libc::c_int) -> io::Result<File> {
    let opened = options.custom_flags(libc::O_NONBLOCK | flags).open(path);
    let file = match opened {
        // A FIFO without a reader, or a socket (open(2), ENXIO).
        Err(error) if error.raw_os_error() == Some(libc::ENXIO) => return Err(not_ordinary()),
        opened => opened?,
    };
    if file.metadata()?.is_file() { Ok(file) } else { Err(not_ordinary()) }
}

/// Whether the open file has this one name, so that nobody reaches it by a name elsewhere.
///
/// # Errors
/// Those of fstat(2).
pub fn has_one_name(file: &File) -> io::Result<bool> {
    Ok(file.metadata()?.nlink() == 1)
}

fn not_ordinary() -> io::Error {
    io::Error::other("it is no ordinary file: remove it")
}

#[cfg(test)]
mod tests {
    use std::{ffi::CString, fs, os::unix::ffi::OsStrExt as _};

    use super::*;

    #[test]
    fn links_and_fifos_are_refused_without_waiting() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("file"), "x").unwrap();
        std::os::unix::fs::symlink(at("file"), at("link")).unwrap();
        let fifo = CString::new(at("fifo").as_os_str().as_bytes()).unwrap();
        // SAFETY: the string ends with NUL and lives through the call.
        assert_eq!(unsafe { libc::mkfifo(fifo.as_ptr(), 0o600) }, 0);
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        for read in [true, false] {
            let open = |name: &str| open(&at(name), OpenOptions::new().read(read).append(!read));
            open("file").unwrap();
            for name in ["link", "fifo", "socket"] {
                let error = open(name).unwrap_err().to_string();
                assert!(error.ends_with(": remove it"), "{name}: {error}");
            }
        }
        let directory = open(dir.path(), OpenOptions::new().read(true));
        assert!(directory.unwrap_err().to_string().contains("no ordinary file"));
        open_followed(&at("link"), OpenOptions::new().read(true)).unwrap();
    }
}
