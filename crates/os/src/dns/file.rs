//! The resolver's file, resolv.conf(5).
//!
//! The original text is saved. It is restored only if the file still has the text that Rove wrote:
//! a later change by a DHCP client or a person is newer and stays. A symbolic link is replaced by a
//! file. If the link's directory cannot be changed, as on hosts with a read-only /etc, Rove writes
//! the file that the link leads to.

use std::{
    ffi::CString,
    fs::{self, OpenOptions},
    io::{self, Seek as _, Write as _},
    net::{SocketAddr, SocketAddrV6},
    os::unix::{
        ffi::OsStrExt as _,
        fs::{OpenOptionsExt, PermissionsExt, symlink},
    },
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::{error::Error, names::PORT, plan::Dns};

/// Bytes of a resolver's file that are saved; one that is longer is none.
const LEN_MAX: u64 = 64 << 10;
/// Servers that the C library asks (MAXNS of resolv.h).
const SERVERS_MAX: usize = 3;
/// Domains that it tries (MAXDNSRCH); newer ones try more.
const SEARCH_MAX: usize = 6;

/// What was there, and what we wrote.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Saved {
    original: Original,
    /// Texts of ours that the file may have: the one to be written, and before it is, also the
    /// one that it replaces.
    ours: Vec<String>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Original {
    Missing,
    Link(PathBuf),
    File { text: String, mode: u32 },
}

impl Saved {
    pub(super) fn settle(&mut self) {
        let keep = self.ours.len().saturating_sub(1);
        self.ours.drain(..keep);
    }
}

/// Saves what is there. If that is `earlier`'s text, what `earlier` saved is the original.
pub(super) fn save(dns: &Dns, earlier: Option<&Saved>, path: &Path) -> Result<Saved, Error> {
    let now = read(&place(path))?;
    if let Some(earlier) = earlier.filter(|earlier| is_ours(&now, earlier)) {
        let ours = earlier.ours.iter().cloned().chain([text(dns)]).collect();
        return Ok(Saved { original: earlier.original.clone(), ours });
    }
    Ok(Saved { original: now, ours: vec![text(dns)] })
}

/// Whether the file is still the one that we wrote.
pub(super) fn is_in_place(saved: &Saved, path: &Path) -> Result<bool, Error> {
    Ok(is_ours(&read(&place(path))?, saved))
}

/// Writes the settings.
pub(super) fn install(dns: &Dns, path: &Path) -> Result<(), Error> {
    let path = place(path);
    write(&path, &text(dns), 0o644).map_err(|error| failed("write", &path, error))
}

/// Puts the original back, unless somebody else has written since.
pub(super) fn remove(saved: &Saved, path: &Path) -> Result<(), Error> {
    let path = &*place(path);
    if !is_ours(&read(path)?, saved) {
        return Ok(());
    }
    let restored = match &saved.original {
        Original::Missing => fs::remove_file(path),
        Original::Link(target) => replace_by_link(path, target),
        Original::File { text, mode } => write(path, text, *mode),
    };
    restored.map_err(|error| failed("restore", path, error))
}

/// The servers of the saved original while Rove's text is in its place, else those of the present
/// file.
pub(super) fn servers(saved: Option<&Saved>, path: &Path) -> Vec<SocketAddr> {
    // A text that a DHCP client wrote since is newer than the original.
    let saved = saved.filter(|saved| is_in_place(saved, path).unwrap_or(true));
    let text = match saved.map(|saved| &saved.original) {
        Some(Original::File { text, mode: _ }) => text.clone(),
        Some(Original::Missing) => String::new(),
        Some(Original::Link(target)) => {
            let target = path.parent().unwrap_or(path).join(target);
            fs::read_to_string(target).unwrap_or_default()
        }
        None => fs::read_to_string(path).unwrap_or_default(),
    };
    text.lines()
        .filter_map(|line| line.trim().strip_prefix("nameserver"))
        .filter_map(|server| parse_server(server.trim()))
        .take(SERVERS_MAX)
        .collect()
}

/// An address in the form of resolv.conf(5). A link-local address names its link, as in
/// `fe80::1%eth0`.
fn parse_server(text: &str) -> Option<SocketAddr> {
    let Some((address, link)) = text.split_once('%') else {
        return Some(SocketAddr::new(text.parse().ok()?, PORT));
    };
    let index = link.parse().ok().or_else(|| crate::tun::index_of(link))?;
    Some(SocketAddrV6::new(address.parse().ok()?, PORT, 0, index).into())
}

fn is_ours(now: &Original, saved: &Saved) -> bool {
    match now {
        Original::File { text, mode: _ } => saved.ours.contains(text),
        Original::Missing | Original::Link(_) => false,
    }
}

fn text(dns: &Dns) -> String {
    let mut text =
        "# Written by rove while its tunnel is up; the original comes back after it.\n".to_owned();
    for server in dns.servers.iter().take(SERVERS_MAX) {
        text.push_str(&format!("nameserver {server}\n"));
    }
    if !dns.domains.is_empty() {
        let domains: Vec<&str> = dns.domains.iter().take(SEARCH_MAX).map(String::as_str).collect();
        text.push_str(&format!("search {}\n", domains.join(" ")));
    }
    text
}

fn read(path: &Path) -> Result<Original, Error> {
    let read = || -> io::Result<Original> {
        let about = match fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Original::Missing),
            result => result?,
        };
        if about.is_symlink() {
            return fs::read_link(path).map(Original::Link);
        }
        if !about.is_file() || about.len() > LEN_MAX {
            return Err(io::Error::other("it is no resolver's file"));
        }
        let mode = about.permissions().mode() & 0o7777;
        let bytes = fs::read(path)?;
        Ok(Original::File { text: String::from_utf8_lossy(&bytes).into_owned(), mode })
    };
    read().map_err(|error| failed("read", path, error))
}

/// The file that is written.
fn place(path: &Path) -> PathBuf {
    let is_link = fs::symlink_metadata(path).is_ok_and(|about| about.is_symlink());
    let target = (is_link && !may_change_directory(path)).then(|| fs::canonicalize(path).ok());
    target.flatten().unwrap_or_else(|| path.to_owned())
}

fn may_change_directory(path: &Path) -> bool {
    let directory = path.parent().map(|path| CString::new(path.as_os_str().as_bytes()));
    let Some(Ok(directory)) = directory else { return false };
    // SAFETY: the string is alive and ends with a zero byte; nothing is written.
    unsafe { libc::access(directory.as_ptr(), libc::W_OK) == 0 }
}

/// Replaces the file at once; where it is a mount of its own, as in containers, and cannot be
/// replaced, writes into it.
fn write(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    let new = beside(path);
    let replaced = create(&new, text, mode).and_then(|()| fs::rename(&new, path));
    match replaced {
        Ok(()) => Ok(()),
        Err(error) => {
            let _ = fs::remove_file(&new);
            match error.raw_os_error() {
                Some(libc::EBUSY | libc::EACCES | libc::EPERM | libc::EROFS | libc::EXDEV) => {
                    overwrite(path, text)
                }
                Some(_) | None => Err(error),
            }
        }
    }
}

/// Overwrites the existing file in place. If that fails, for example on a full disk, writes the
/// previous text again, which has room there.
fn overwrite(path: &Path, text: &str) -> io::Result<()> {
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(false).mode(0o644).open(path)?;
    let before = fs::read(path)?;
    let mut put = |bytes: &[u8]| {
        file.rewind()?;
        file.write_all(bytes)?;
        file.set_len(bytes.len() as u64)?;
        file.sync_all()
    };
    put(text.as_bytes()).inspect_err(|_| drop(put(&before)))
}

fn create(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())?;
    // The mask of the process shall not decide who can resolve names.
    file.set_permissions(fs::Permissions::from_mode(mode))?;
    file.sync_all()
}

fn replace_by_link(path: &Path, target: &Path) -> io::Result<()> {
    let new = beside(path);
    let _ = fs::remove_file(&new);
    symlink(target, &new)?;
    fs::rename(&new, path)
}

fn beside(path: &Path) -> PathBuf {
    path.with_extension("rove-new")
}

fn failed(what: &'static str, path: &Path, error: io::Error) -> Error {
    let why = match error.raw_os_error() {
        Some(libc::EPERM) => {
            "it must not be changed (`lsattr` shows an i for immutable)".to_owned()
        }
        Some(libc::EACCES) => "this program has no permission".to_owned(),
        Some(libc::EROFS) => "its file system is mounted read-only".to_owned(),
        Some(libc::ENOSPC | libc::EDQUOT) => "the disk is full".to_owned(),
        Some(_) | None => error.to_string(),
    };
    Error::ResolverFile { what, path: path.to_owned(), why }
}

#[cfg(test)]
mod tests;
