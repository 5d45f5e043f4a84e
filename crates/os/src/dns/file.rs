//! The resolver's file, resolv.conf(5).
//!
//! Rove's text carries what it replaced, as comments behind its own lines, and a checksum. So the
//! original lies where only root may write, and whoever restores it needs no word of the node.
//!
//! While the file names the forwarder of a split tunnel, the original's search list and options
//! stay in effect: names of the local network resolve as before.
//!
//! A text that another program writes while Rove is up is the new original, with two exceptions,
//! because names would resolve nowhere after the tunnel's end. A text that somebody made from
//! Rove's, for example with an editor, is no original: the one of before is kept, which
//! [`Replaced`] remembers. A text of another program that copied the servers which Rove named
//! becomes the original without them, and if it names no other server, the one of before is kept.
//! Servers with public addresses stay in it, because they can be reached without the tunnel.
//!
//! It is restored only if the file is still as Rove wrote it: a later change by a DHCP client or a
//! person is newer and stays. A symbolic link is replaced by a file. If the link's directory cannot
//! be changed, as on hosts with a read-only /etc, Rove writes the file that the link leads to.
//!
//! Limits: of the original's mode only the permission bits come back. After a crash, nobody
//! remembers what a text replaced that another program has overwritten since.

mod carried;

use std::{
    ffi::CString,
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Seek as _, Write as _},
    net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV6},
    os::unix::{
        ffi::OsStrExt as _,
        fs::{OpenOptionsExt, PermissionsExt, symlink},
    },
    path::{Path, PathBuf},
};

use ipnet::{IpNet, Ipv4Net};

use self::carried::Original;
use crate::{
    error::Error,
    names::PORT,
    plain,
    plan::{Dns, is_private},
};

/// Bytes of a resolver's file; one that is longer is none. An original of this length fits into
/// Rove's text, see [`carried`].
const LEN_MAX: u64 = 64 << 10;
/// Servers that the C library asks (MAXNS of resolv.h).
const SERVERS_MAX: usize = 3;
/// Domains that it tries (MAXDNSRCH); newer ones try more.
const SEARCH_MAX: usize = 6;
/// Addresses behind a carrier's NAT (RFC 6598), which inner networks may use.
const SHARED: IpNet = IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(100, 64, 0, 0), 10));
/// How the lines of an original begin that hold beside the forwarder, too.
const KEPT: [&str; 4] = ["search", "domain", "options", "sortlist"];
/// Bytes of these lines that are kept. Both lists fit into the room that [`carried`] leaves.
const KEPT_LEN_MAX: usize = 8 << 10;

/// The servers that the file names.
#[derive(Clone, Copy, Debug)]
pub(super) enum Named<'a> {
    /// The tunnel's, for all names.
    Tunnel(&'a Dns),
    /// The forwarder that splits names.
    Forwarder(Ipv4Addr),
}

/// What this process replaced last.
#[derive(Debug, Default)]
pub(super) struct Replaced(Option<Before>);

#[derive(Debug)]
struct Before {
    original: Original,
    /// The servers that Rove named in its place and that need Rove.
    named: Vec<IpAddr>,
}

impl Replaced {
    /// The original behind what is there now.
    fn original(&self, found: Original) -> Original {
        match (&self.0, &found) {
            (Some(before), Original::File { text, mode }) => {
                before.instead_of(text, *mode).unwrap_or(found)
            }
            (Some(_) | None, _) => found,
        }
    }
}

impl Before {
    fn new(named: Named<'_>, original: &Original) -> Self {
        let named = match named {
            Named::Tunnel(dns) => dns.servers.clone(),
            Named::Forwarder(address) => vec![address.into()],
        };
        let needs_rove = |server: &IpAddr| {
            let net = IpNet::from(*server);
            is_private(&net) || SHARED.contains(&net) || server.is_loopback()
        };
        Self { original: original.clone(), named: named.into_iter().filter(needs_rove).collect() }
    }

    /// The original instead of a text that was found, if that text leads to servers which need
    /// Rove.
    fn instead_of(&self, text: &[u8], mode: u32) -> Option<Original> {
        if matches!(&self.original, Original::File { text: before, .. } if before == text) {
            return None;
        }
        if carried::is_made_of_ours(text) {
            return Some(self.original.clone());
        }
        let server_of = |line: &[u8]| parse_line(&String::from_utf8_lossy(line));
        let lines: Vec<&[u8]> = text.split_inclusive(|&byte| byte == b'\n').collect();
        let is_ours =
            |line: &&[u8]| server_of(line).is_some_and(|server| self.named.contains(&server.ip()));
        if !lines.iter().any(is_ours) {
            return None;
        }
        let others: Vec<&[u8]> = lines.into_iter().filter(|line| !is_ours(line)).collect();
        let is_rest = others.iter().any(|line| server_of(line).is_some());
        Some(if is_rest {
            Original::File { text: others.concat(), mode }
        } else {
            self.original.clone()
        })
    }
}

/// Whether the file is as Rove wrote it for these settings.
pub(super) fn is_in_place(named: Named<'_>, path: &Path) -> Result<bool, Error> {
    let text = read(path).map_err(|error| failed("read", path, error))?;
    let ours = text.as_deref().and_then(carried::read);
    Ok(ours.is_some_and(|ours| ours.lines == lines(named, &replaced(path, &ours.original))))
}

/// Whether the file can be read, as it must be before it is replaced.
pub(super) fn check(path: &Path) -> Result<(), Error> {
    read(path).map(drop).map_err(|error| failed("read", path, error))
}

/// Writes the settings, and behind them what they replace: the present file, or what a text of
/// Rove's in its place has replaced.
pub(super) fn install(
    named: Named<'_>,
    path: &Path,
    replaced_last: &mut Replaced,
) -> Result<(), Error> {
    let path = &*place(path);
    let original = original(path).map_err(|error| failed("read", path, error))?;
    let original = replaced_last.original(original);
    replaced_last.0 = Some(Before::new(named, &original));
    let text = carried::write(&lines(named, &replaced(path, &original)), &original);
    write(path, &text, 0o644).map_err(|error| failed("write", path, error))
}

/// Puts the original back, unless somebody else has written since.
pub(super) fn remove(path: &Path, replaced_last: &Replaced) -> Result<(), Error> {
    let path = &*place(path);
    let text = read(path).map_err(|error| failed("read", path, error))?.unwrap_or_default();
    let ours = carried::read(&text).map(|ours| ours.original);
    // Whoever put a link there since manages the file that it leads to.
    let before = replaced_last.0.as_ref().filter(|_| !is_link(path));
    let instead = || before?.instead_of(&text, mode(path).ok()?);
    let Some(original) = ours.or_else(instead) else { return Ok(()) };
    let restored = match original {
        Original::Missing => fs::remove_file(path),
        Original::Link(target) => replace_by_link(path, &target),
        Original::File { text, mode } => write(path, &text, mode),
    };
    restored.map_err(|error| failed("restore", path, error))
}

/// The servers of the original while Rove's text is in its place, else those of the present file.
pub(super) fn servers(path: &Path) -> Vec<SocketAddr> {
    let now = read(path).ok().flatten().unwrap_or_default();
    let text = match carried::read(&now) {
        None => String::from_utf8_lossy(&now).into_owned(),
        Some(ours) => replaced(path, &ours.original),
    };
    text.lines().filter_map(parse_line).take(SERVERS_MAX).collect()
}

/// The text that resolvers would read at `path` without Rove's.
fn replaced(path: &Path, original: &Original) -> String {
    let linked;
    let text = match original {
        Original::Missing => return String::new(),
        Original::File { text, mode: _ } => text,
        Original::Link(target) => {
            let target = path.parent().unwrap_or(path).join(target);
            linked = read(&target).ok().flatten().unwrap_or_default();
            &linked
        }
    };
    String::from_utf8_lossy(text).into_owned()
}

/// The server that a line names.
fn parse_line(line: &str) -> Option<SocketAddr> {
    parse_server(line.trim().strip_prefix("nameserver")?.trim())
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

/// The lines that resolvers read, in place of the text `original`.
fn lines(named: Named<'_>, original: &str) -> String {
    let dns = match named {
        Named::Tunnel(dns) => dns,
        Named::Forwarder(address) => return forwarder_lines(address, original),
    };
    let mut text = String::new();
    for server in dns.servers.iter().take(SERVERS_MAX) {
        text.push_str(&format!("nameserver {server}\n"));
    }
    if !dns.domains.is_empty() {
        let domains: Vec<&str> = dns.domains.iter().take(SEARCH_MAX).map(String::as_str).collect();
        text.push_str(&format!("search {}\n", domains.join(" ")));
    }
    text
}

fn forwarder_lines(address: Ipv4Addr, original: &str) -> String {
    let mut text = format!("nameserver {address}\n");
    let is_kept =
        |line: &&str| line.split_whitespace().next().is_some_and(|keyword| KEPT.contains(&keyword));
    for line in original.lines().filter(is_kept) {
        if text.len() + line.len() < KEPT_LEN_MAX {
            text.push_str(&format!("{}\n", line.trim()));
        }
    }
    text
}

/// What Rove's text at `path` replaces, or has replaced.
fn original(path: &Path) -> io::Result<Original> {
    if is_link(path) {
        let target = fs::read_link(path)?;
        if target.as_os_str().as_bytes().contains(&b'\n') {
            return Err(io::Error::other("the name that the link leads to has a line feed"));
        }
        return Ok(Original::Link(target));
    }
    let Some(text) = read(path)? else { return Ok(Original::Missing) };
    if let Some(ours) = carried::read(&text) {
        return Ok(ours.original);
    }
    Ok(Original::File { text, mode: mode(path)? })
}

fn is_link(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|about| about.is_symlink())
}

fn mode(path: &Path) -> io::Result<u32> {
    Ok(fs::metadata(path)?.permissions().mode() & carried::MODE_MASK)
}

/// The text of the file, through a link that leads to it; `None` if there is none.
fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let file = match plain::open_followed(path, OpenOptions::new().read(true)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let mut text = Vec::new();
    file.take(carried::LEN_MAX + 1).read_to_end(&mut text)?;
    let is_ours = carried::read(&text).is_some();
    let longest = if is_ours { carried::LEN_MAX } else { LEN_MAX };
    if text.len() as u64 > longest {
        return Err(io::Error::other("it is no resolver's file"));
    }
    Ok(Some(text))
}

/// The file that is written.
fn place(path: &Path) -> PathBuf {
    let target =
        (is_link(path) && !may_change_directory(path)).then(|| fs::canonicalize(path).ok());
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
fn write(path: &Path, text: &[u8], mode: u32) -> io::Result<()> {
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
fn overwrite(path: &Path, text: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o644);
    let mut file = plain::open(path, &mut options)?;
    let mut before = Vec::new();
    io::Read::by_ref(&mut file).take(carried::LEN_MAX).read_to_end(&mut before)?;
    let mut put = |bytes: &[u8]| {
        file.rewind()?;
        file.write_all(bytes)?;
        file.set_len(bytes.len() as u64)?;
        file.sync_all()
    };
    put(text).inspect_err(|_| drop(put(&before)))
}

/// Makes the file anew: what a crash left there, or somebody put there, is removed.
fn create(path: &Path, text: &[u8], mode: u32) -> io::Result<()> {
    let _ = fs::remove_file(path);
    let mut file: File = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text)?;
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
