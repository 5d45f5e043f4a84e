//! Changes from root to a system user: which user the node runs as, and who owns its files.
//!
//! Root without capabilities can still read root's files and open root's sockets. A node therefore
//! runs as its own user, with the capabilities that [`super::drop()`] names. This module decides
//! whether that is possible here. Whoever owns the node's directory owns its files: commands that
//! root runs become that user before they touch one.
//!
//! A directory is given to the user only if it is Rove's: just made, or by its place. Once it is
//! given, nothing in it is given any more, because the user can rename root's files in it.
//!
//! The TUN device is lent to the user's group if nobody but root can open it. A group that can is
//! never taken away from it: the user opens the device as a member of that group, or not at all.
//!
//! Links are not followed. Limits: it knows only the users in `/etc/passwd` and the groups in
//! `/etc/group`, and asks no directory service. A lent device stays lent until it is made again,
//! usually at the next boot.

use std::{
    ffi::{CString, OsStr},
    fs, io,
    mem::MaybeUninit,
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd},
        unix::{
            ffi::OsStrExt,
            fs::{DirBuilderExt as _, PermissionsExt as _},
        },
    },
    path::{Path, PathBuf},
};

use super::capabilities::KEPT;
use crate::{dns::keeper, error::Error, plan::Places};

const USERS: &str = "/etc/passwd";
const GROUPS: &str = "/etc/group";
const UID_MAP: &str = "/proc/self/uid_map";
const GID_MAP: &str = "/proc/self/gid_map";
/// The highest user ID that every Linux has.
const UID_LAST: u32 = 65_534;
const ROOT: User = User { uid: 0, gid: 0 };
const TUN: &str = "/dev/net/tun";
/// The depth of a node's directories: one with all files, and one in it with the state.
const DEPTH_MAX: u32 = 2;
/// Entries of a directory that are examined. A node has a dozen files.
const ENTRIES_MAX: usize = 4_096;
/// The groups of a process (linux/limits.h, NGROUPS_MAX).
const GROUPS_MAX: usize = 65_536;
/// Processors of 32 bits had another call for group numbers of 16 bits (setgroups(2)).
#[cfg(any(target_arch = "arm", target_arch = "x86"))]
const SYS_SETGROUPS: libc::c_long = libc::SYS_setgroups32;
#[cfg(not(any(target_arch = "arm", target_arch = "x86")))]
const SYS_SETGROUPS: libc::c_long = libc::SYS_setgroups;

/// The user that a node should run as, and the paths that it needs as that user.
#[derive(Clone, Copy, Debug)]
pub struct Leaving<'a> {
    /// The user's name.
    pub user: &'a str,
    /// The node's directory. It must exist.
    pub home: &'a Path,
    /// Whether the directory is Rove's by its place. Then it is given to the user if root owns it.
    pub is_rove_s: bool,
    /// Whether a file with that name in the directory belongs to a node.
    pub belongs: fn(&OsStr) -> bool,
    /// A file in the directory that stays root's.
    pub root_s: &'a str,
    /// Other directories that the user must be able to write to. They are not given to the user.
    pub others: &'a [&'a Path],
}

/// The user that this process runs as now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Left {
    /// The node's user.
    User,
    /// The same user as before, which was not root.
    NotRoot,
    /// Root, because the node's user could not do the work.
    Stayed(Why),
}

/// Why a process stayed root.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Why {
    /// There is no such user.
    #[error(
        "the user {0} does not exist: make it with `systemd-sysusers`, or `useradd --system \
         --user-group {0}`"
    )]
    NoUser(String),
    /// This user namespace, for example of a container, has only one user.
    #[error("this user namespace has no user {0}")]
    NotMapped(String),
    /// This process lacks capabilities of root.
    #[error(
        "root may not use files as the user {user} here ({why}): it lacks CAP_SETUID or \
        CAP_SETGID"
    )]
    Refused {
        /// The user.
        user: String,
        /// What the kernel said.
        why: String,
    },
    /// The directory is root's, and Rove has not made it.
    #[error("{} was not made by Rove: chown -R it to {user}, or name a new directory with --dir",
        .path.display())]
    NotMade {
        /// The directory.
        path: PathBuf,
        /// The user that should own it.
        user: String,
    },
    /// The directory is neither root's nor the user's.
    #[error("{} belongs to another user: chown it to {user}", .path.display())]
    Foreign {
        /// The directory.
        path: PathBuf,
        /// The user that should own it.
        user: String,
    },
    /// The TUN device is for the members of another group.
    #[error("{} is for the members of group {group}: make {user} one (usermod -aG {group} {user}), \
        or let everybody open it (chmod o+rw)", .path.display())]
    ForGroup {
        /// The device.
        path: PathBuf,
        /// The group's number.
        group: u32,
        /// The user that should open it.
        user: String,
    },
    /// The user cannot access the path.
    #[error("{user} may not use {}: chown it to {user}, and let others pass (chmod o+x) the \
        directories above it", .path.display())]
    Unreachable {
        /// The file or directory.
        path: PathBuf,
        /// The user that cannot access it.
        user: String,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct User {
    uid: u32,
    gid: u32,
}

/// Changes the user of this process, if it is root and the user can do its work. The process keeps
/// the capabilities of the module above, and everything that it opened as root. The node's files
/// are given to the user, or back to root if the process stays root.
///
/// With `resolver`, the node will change the settings of the host's resolver, which belong to root.
/// A small process then stays root only for that.
///
/// # Errors
/// [`Error::ThreadsRunning`] if another thread runs, because it would stay root; [`Error::Os`] if
/// the kernel refuses a part of the change.
pub fn leave_root(leaving: &Leaving<'_>, resolver: Option<&Places>) -> Result<Left, Error> {
    // SAFETY: reads the user of the process.
    if unsafe { libc::geteuid() } != 0 {
        return Ok(Left::NotRoot);
    }
    super::be_alone()?;
    let (user, group) = match find(leaving) {
        Ok(found) => found,
        Err(why) => {
            take_back(leaving);
            return Ok(Left::Stayed(why));
        }
    };
    give(leaving, user);
    become_user(user, group, leaving.user, resolver)?;
    Ok(Left::User)
}

/// For a command that root runs on the files of a node: changes the user of this process to the
/// owner of the node's directory, if that is the node's user. It has then the same rights as the
/// node, and no file there can lead it to one of root's. Gives nothing away.
///
/// # Errors
/// As [`leave_root`].
pub fn become_owner(user: &str, home: &Path, resolver: Option<&Places>) -> Result<bool, Error> {
    let Some(owner) = owning_user(user, home) else { return Ok(false) };
    super::be_alone()?;
    become_user(owner, None, user, resolver)?;
    Ok(true)
}

/// Runs `work` with the owner's rights to files, if the node's user owns the directory. Files that
/// it makes belong to that user.
///
/// # Errors
/// The process may not take these rights. Then nothing runs.
pub fn as_owner<T>(user: &str, home: &Path, work: impl FnOnce() -> T) -> Result<T, Error> {
    match owning_user(user, home) {
        Some(owner) => as_user(owner, work)
            .map_err(|error| Error::os(format!("use files as the user {user}"), error)),
        None => Ok(work()),
    }
}

/// The node's user, if it owns the directory and this process is root.
fn owning_user(user: &str, home: &Path) -> Option<User> {
    // SAFETY: reads the user of the process.
    if unsafe { libc::geteuid() } != 0 {
        return None;
    }
    let user = user_named(&fs::read_to_string(USERS).unwrap_or_default(), user)?;
    let is_known = is_mapped(UID_MAP, user.uid) && is_mapped(GID_MAP, user.gid);
    (is_known && owner_of(home) == Some(user.uid)).then_some(user)
}

fn become_user(
    user: User,
    group: Option<u32>,
    name: &str,
    resolver: Option<&Places>,
) -> Result<(), Error> {
    if let Some(places) = resolver {
        keeper::start(places)
            .map_err(|error| Error::os("start a process that keeps the resolver", error))?;
    }
    switch(user, group).map_err(|error| Error::os(format!("become the user {name}"), error))
}

/// Makes a node's directory with that mode, and gives it to the user, if this process is root and
/// there is such a user. One that is there already keeps its owner.
///
/// # Errors
/// Those of mkdir(2); a directory that is there already is none.
pub fn make_home(user: &str, home: &Path, mode: u32) -> io::Result<()> {
    let made = |path: &Path| fs::DirBuilder::new().mode(mode).create(path);
    if let Err(error) = made(home) {
        let is_there = || fs::metadata(home).is_ok_and(|about| about.is_dir());
        if error.kind() == io::ErrorKind::AlreadyExists && is_there() {
            return Ok(());
        }
        let parent = home.parent().filter(|_| error.kind() == io::ErrorKind::NotFound);
        let parent = parent.ok_or(error)?;
        fs::DirBuilder::new().recursive(true).mode(mode).create(parent)?;
        made(home)?;
    }
    // SAFETY: reads the user of the process.
    if unsafe { libc::geteuid() } != 0 {
        return Ok(());
    }
    let user = user_named(&fs::read_to_string(USERS).unwrap_or_default(), user);
    let Some(user) = user.filter(|user| is_mapped(UID_MAP, user.uid)) else { return Ok(()) };
    // A user that cannot pass the directories above would only lock root out.
    let can_pass = as_user(user, || may_access(home, libc::F_OK)).unwrap_or(false);
    if can_pass {
        own(&open(None, home, libc::O_DIRECTORY)?, user.uid, user.gid)?;
    }
    Ok(())
}

/// Gives the node's files to the user, if this process is root. The process stays root.
///
/// # Errors
/// The reason why it cannot.
pub fn adopt(leaving: &Leaving<'_>) -> Result<(), Why> {
    // SAFETY: reads the user of the process.
    if unsafe { libc::geteuid() } != 0 {
        return Ok(());
    }
    find(leaving).map(|(user, _)| give(leaving, user))
}

/// The user, if it can do the node's work, and another group that it needs for that.
fn find(leaving: &Leaving<'_>) -> Result<(User, Option<u32>), Why> {
    let name = || leaving.user.to_owned();
    // In a user namespace with one user, the host's other users do not matter.
    if !is_mapped(UID_MAP, 1) && !is_mapped(UID_MAP, UID_LAST) {
        return Err(Why::NotMapped(name()));
    }
    let users = fs::read_to_string(USERS).unwrap_or_default();
    let user = user_named(&users, leaving.user).ok_or_else(|| Why::NoUser(name()))?;
    if !is_mapped(UID_MAP, user.uid) || !is_mapped(GID_MAP, user.gid) {
        return Err(Why::NotMapped(name()));
    }
    let path = leaving.home;
    let refused = |error: io::Error| Why::Refused { user: name(), why: error.to_string() };
    if !as_user(user, || may_access(path, libc::F_OK)).map_err(refused)? {
        return Err(Why::Unreachable { path: path.to_owned(), user: name() });
    }
    match owner_of(path) {
        Some(0) if !leaving.is_rove_s => {
            return Err(Why::NotMade { path: path.to_owned(), user: name() });
        }
        Some(owner) if [0, user.uid].contains(&owner) => {}
        Some(_) | None => return Err(Why::Foreign { path: path.to_owned(), user: name() }),
    }
    let group = lend_tun(user, leaving.user)?;
    let unreachable = as_user(user, || {
        let others = leaving.others.iter().map(|path| (*path, libc::W_OK | libc::X_OK));
        let tun = Path::new(TUN);
        let how = if group.is_some() { libc::F_OK } else { libc::R_OK | libc::W_OK };
        let tun = tun.exists().then_some((tun, how));
        let mut needed = others.chain(tun);
        needed.find(|&(path, how)| !may_access(path, how)).map(|(path, _)| path.to_owned())
    });
    let unreachable = unreachable.map_err(refused)?;
    unreachable.map_or(Ok((user, group)), |path| Err(Why::Unreachable { path, user: name() }))
}

/// The user with that name in the text of passwd(5).
fn user_named(users: &str, name: &str) -> Option<User> {
    users.lines().find_map(|line| {
        let mut fields = line.strip_prefix(name)?.strip_prefix(':')?.split(':');
        let uid = fields.nth(1)?.parse().ok().filter(|&uid| uid != 0)?;
        let gid = fields.next()?.parse().ok().filter(|&gid| gid != 0)?;
        Some(User { uid, gid })
    })
}

/// Whether a user namespace maps the ID, by its lines of "inside outside count".
fn is_mapped(map: &str, id: u32) -> bool {
    fs::read_to_string(map).unwrap_or_default().lines().any(|line| {
        let mut numbers = line.split_whitespace().map(|number| number.parse::<u32>().ok());
        let first = numbers.next().flatten();
        let count = numbers.nth(1).flatten();
        first.zip(count).is_some_and(|(first, count)| {
            id.checked_sub(first).is_some_and(|offset| offset < count)
        })
    })
}

/// Lets the user's group open the TUN device if only root may, as in containers. On most hosts
/// everybody may open it, since only CAP_NET_ADMIN can create an interface with it. If it is for
/// another group, returns that group, which must have the user as a member.
fn lend_tun(user: User, name: &str) -> Result<Option<u32>, Why> {
    let path = Path::new(TUN);
    let Ok(tun) = open(None, path, 0) else { return Ok(None) };
    let Ok(about) = about(&tun) else { return Ok(None) };
    let (group, is_for_group) = (about.st_gid, about.st_mode & 0o060 == 0o060);
    if about.st_mode & 0o006 == 0o006 || (is_for_group && group == user.gid) {
        return Ok(None);
    }
    let groups = fs::read_to_string(GROUPS).unwrap_or_default();
    match members(&groups, group) {
        Some(members) if is_for_group && members.contains(&name) => return Ok(Some(group)),
        Some(_) if is_for_group => {
            let (path, user) = (path.to_owned(), name.to_owned());
            return Err(Why::ForGroup { path, group, user });
        }
        // No such group is left, so it has no members.
        Some(_) | None => {}
    }
    // If this fails, the process stays root and reports the reason.
    if about.st_uid == 0 && own(&tun, u32::MAX, user.gid).is_ok() {
        let path = PathBuf::from(format!("/proc/self/fd/{}", tun.as_raw_fd()));
        let mode = fs::Permissions::from_mode((about.st_mode & 0o7777) | 0o060);
        let _ = fs::set_permissions(path, mode);
    }
    Ok(None)
}

/// The members of the group with that number, in the text of group(5). `None` if there is no such
/// group.
fn members(groups: &str, group: u32) -> Option<Vec<&str>> {
    groups
        .lines()
        .find_map(|line| {
            let mut fields = line.split(':').skip(2);
            (fields.next()?.parse() == Ok(group)).then(|| fields.next().unwrap_or_default())
        })
        .map(|members| members.split(',').map(str::trim).collect())
}

/// The owner of a directory.
fn owner_of(dir: &Path) -> Option<u32> {
    Some(about(&open(None, dir, libc::O_DIRECTORY).ok()?).ok()?.st_uid)
}

/// Gives the node's files in root's directory to `user`, and at last the directory. In a directory
/// that the user has already, the user may have given root's files the names of its own.
fn give(leaving: &Leaving<'_>, user: User) {
    let Ok(home) = open(None, leaving.home, libc::O_DIRECTORY) else { return };
    if is_root_s(&home) {
        give_entries(&home, user, leaving.belongs, 1);
        give_one(&home, user);
    }
    if let Ok(secret) = open(Some(&home), Path::new(leaving.root_s), 0) {
        // An earlier version gave it away.
        give_one(&secret, ROOT);
    }
}

/// Takes the node's files back, for a process that stays root.
fn take_back(leaving: &Leaving<'_>) {
    let Ok(home) = open(None, leaving.home, libc::O_DIRECTORY) else { return };
    give_one(&home, ROOT);
    give_entries(&home, ROOT, leaving.belongs, 1);
}

fn is_root_s(file: &OwnedFd) -> bool {
    about(file).is_ok_and(|about| about.st_uid == 0)
}

fn give_entries(dir: &OwnedFd, user: User, belongs: fn(&OsStr) -> bool, depth: u32) {
    // A directory that cannot be listed was already given to a user who lets nobody else list it.
    let listed = fs::read_dir(format!("/proc/self/fd/{}", dir.as_raw_fd()));
    for entry in listed.into_iter().flatten().flatten().take(ENTRIES_MAX) {
        let name = entry.file_name();
        if !belongs(&name) {
            continue;
        }
        if depth < DEPTH_MAX
            && let Ok(inner) = open(Some(dir), Path::new(&name), libc::O_DIRECTORY)
            && (is_root_s(&inner) || user == ROOT)
        {
            give_entries(&inner, user, |_| true, depth + 1);
        }
        let Ok(file) = open(Some(dir), Path::new(&name), 0) else { continue };
        give_one(&file, user);
    }
}

/// Skips links, and files that have a second name elsewhere, because their owner is unknown.
fn give_one(file: &OwnedFd, user: User) {
    let Ok(about) = about(file) else { return };
    let kind = about.st_mode & libc::S_IFMT;
    let is_ours = match kind {
        libc::S_IFDIR => true,
        libc::S_IFREG => about.st_nlink == 1,
        _ => false,
    };
    if is_ours && about.st_uid != user.uid && (about.st_uid == 0 || user == ROOT) {
        // If this fails, opening the file later fails and reports the error.
        let _ = own(file, user.uid, user.gid);
    }
}

/// Opens the object at a path itself, without following a link and not for reading.
fn open(dir: Option<&OwnedFd>, path: &Path, flags: libc::c_int) -> io::Result<OwnedFd> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // A directory is opened so that it can be listed.
    let how = if flags == libc::O_DIRECTORY { libc::O_RDONLY } else { libc::O_PATH };
    let dir = dir.map_or(libc::AT_FDCWD, AsRawFd::as_raw_fd);
    let flags = how | flags | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    // SAFETY: the path ends with NUL and lives through the call.
    let mut fd = unsafe { libc::openat(dir, path.as_ptr(), flags) };
    if fd < 0 && how == libc::O_RDONLY {
        // SAFETY: as above.
        fd = unsafe { libc::openat(dir, path.as_ptr(), flags | libc::O_PATH) };
    }
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just opened and belongs to nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn about(file: &OwnedFd) -> io::Result<libc::stat> {
    let mut about = MaybeUninit::uninit();
    // SAFETY: fstat writes one struct, which lives through the call.
    if unsafe { libc::fstat(file.as_raw_fd(), about.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded and has written it.
    Ok(unsafe { about.assume_init() })
}

/// Changes the owner of an open file.
fn own(file: &OwnedFd, uid: u32, gid: u32) -> io::Result<()> {
    let itself = libc::AT_EMPTY_PATH;
    // SAFETY: the empty path ends with NUL.
    check(unsafe { libc::fchownat(file.as_raw_fd(), c"".as_ptr(), uid, gid, itself) })
}

/// Whether the present user may access a file or directory in this way.
fn may_access(path: &Path, how: libc::c_int) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return false };
    // Calls the system call itself, which checks the file system user. The C library's function
    // does not.
    let result = unsafe {
        libc::syscall(libc::SYS_faccessat2, libc::AT_FDCWD, path.as_ptr(), how, libc::AT_EACCESS)
    };
    // A kernel before 5.8 lacks this call. A refusal then shows when the file is opened.
    result == 0 || io::Error::last_os_error().raw_os_error() == Some(libc::ENOSYS)
}

/// Runs `look` with the user's rights to files, without any capability for files and without the
/// groups of root. Nothing runs if the process cannot have exactly these rights.
fn as_user<T>(user: User, look: impl FnOnce() -> T) -> io::Result<T> {
    let before = Rights::now()?;
    // The node runs without other groups, too: see `switch`.
    let during = Rights { uid: user.uid, gid: user.gid, groups: Vec::new() };
    let seen = during.take().map(|()| look());
    before.take()?;
    seen
}

/// With what a thread opens files (credentials(7)).
#[derive(PartialEq, Eq)]
struct Rights {
    uid: u32,
    gid: u32,
    groups: Vec<libc::gid_t>,
}

impl Rights {
    fn now() -> io::Result<Self> {
        let mut groups = vec![0; GROUPS_MAX];
        let room = libc::c_int::try_from(groups.len()).unwrap_or(libc::c_int::MAX);
        // SAFETY: the list has room for so many groups and lives through the call.
        let count = unsafe { libc::getgroups(room, groups.as_mut_ptr()) };
        check(count)?;
        groups.truncate(usize::try_from(count).unwrap_or_default());
        // SAFETY: an impossible number changes nothing, and the present one is returned
        // (setfsuid(2)).
        let (uid, gid) = unsafe { (libc::setfsuid(u32::MAX), libc::setfsgid(u32::MAX)) };
        Ok(Self { uid: uid.cast_unsigned(), gid: gid.cast_unsigned(), groups })
    }

    /// Gives this thread these rights. setfsuid reports no error, so the result is compared.
    fn take(&self) -> io::Result<()> {
        let groups = self.groups.as_ptr();
        // SAFETY: the list has that length and lives through the call; the others take numbers.
        // The system call itself changes only this thread, as setfsuid does.
        unsafe {
            let result = libc::syscall(SYS_SETGROUPS, self.groups.len(), groups);
            if result != 0 {
                return Err(io::Error::last_os_error());
            }
            libc::setfsgid(self.gid);
            libc::setfsuid(self.uid);
        }
        let has_all = Self::now()? == *self;
        if has_all { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EPERM)) }
    }
}

fn switch(user: User, group: Option<u32>) -> io::Result<()> {
    super::drop_bounding_set(&KEPT)?;
    super::prctl(libc::PR_SET_KEEPCAPS, 1, 0)?;
    let groups: Vec<libc::gid_t> = group.into_iter().collect();
    // SAFETY: the list has that length and lives through the call; the others take numbers.
    unsafe {
        check(libc::setgroups(groups.len(), groups.as_ptr()))?;
        check(libc::setresgid(user.gid, user.gid, user.gid))?;
        check(libc::setresuid(user.uid, user.uid, user.uid))?;
    }
    super::set_capabilities(&KEPT)?;
    super::keep_for_children()?;
    super::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0)?;
    super::forbid_dumps();
    Ok(())
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_by_the_whole_name_and_is_never_root() {
        let users = "root:x:0:0::/:/bin/sh\nrover:x:7:7::/:\nrove:x:977:976::/:/sbin/nologin\n";
        assert_eq!(user_named(users, "rove"), Some(User { uid: 977, gid: 976 }));
        assert_eq!(user_named(users, "root"), None);
        assert_eq!(user_named("rove:x:0:976::/:\n", "rove"), None);
        assert_eq!(user_named("rove:x:977\n", "rove"), None, "a broken line");
        assert_eq!(user_named("", "rove"), None);
    }

    #[test]
    fn a_groups_members_are_found_by_its_number() {
        let groups = "root:x:0:\nbad\nvpn:x:990:alice, rove\nrove:x:976:\n";
        assert_eq!(members(groups, 990), Some(vec!["alice", "rove"]));
        assert_eq!(members(groups, 976), Some(vec![""]));
        assert_eq!(members(groups, 99), None);
        assert_eq!(members("vpn:x:990", 990), Some(vec![""]), "a broken line");
    }

    #[test]
    fn what_is_no_file_of_its_own_is_not_given_away() {
        let dir = tempfile::tempdir().unwrap();
        let outside = dir.path().join("outside");
        fs::write(&outside, "").unwrap();
        let home = dir.path().join("home");
        fs::create_dir(&home).unwrap();
        std::os::unix::fs::symlink(&outside, home.join("link")).unwrap();
        fs::hard_link(&outside, home.join("twin")).unwrap();
        let home = open(None, &home, libc::O_DIRECTORY).unwrap();
        for name in ["link", "twin"] {
            let file = open(Some(&home), Path::new(name), 0).unwrap();
            let about = about(&file).unwrap();
            let is_link = about.st_mode & libc::S_IFMT == libc::S_IFLNK;
            assert!(is_link || about.st_nlink == 2, "{name} was followed");
        }
        assert!(open(Some(&home), Path::new("link"), libc::O_DIRECTORY).is_err());
    }
}
