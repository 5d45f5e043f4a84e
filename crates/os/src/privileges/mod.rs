//! Gives up privileges that the process no longer needs, in two steps.
//!
//! [`leave_root()`] comes first, before the node reads any file. From then on the process runs as
//! its own user, if that user exists.
//!
//! [`drop()`] is called once everything that needs more privileges is done: keys are read, the
//! control socket exists and belongs to its group, `/dev/net/tun` is open, and ports below 1024 are
//! bound if they are wanted. Afterwards this process and its children (`nft`)
//! - have CAP_NET_ADMIN (marks, routes, rules, nftables, a TUN that is opened again), CAP_NET_RAW
//!   (`SO_BINDTODEVICE` before Linux 5.7) and CAP_NET_BIND_SERVICE (another socket on 443). They
//!   have no other capability and no way to regain one, since set-uid programs and file
//!   capabilities have no effect;
//! - keep their user. If that is still root, the process can read root's files and open root's
//!   sockets;
//! - may write files only below the given paths, if the kernel has Landlock (5.13). Reading files
//!   and starting programs is not restricted;
//! - may make only the system calls on a list, if the kernel has seccomp filters.

mod capabilities;
mod refusals;
mod syscalls;
mod user;

use std::{
    fs, io,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use landlock::{
    ABI, AccessFs, CompatLevel, Compatible as _, PathBeneath, PathFd, Ruleset, RulesetAttr as _,
    RulesetCreatedAttr as _,
};

use crate::error::Error;

use self::capabilities::KEPT;
pub(crate) use self::refusals::cure_of_refusal;
pub use self::refusals::why_denied;
pub use self::user::{Leaving, Left, Why, adopt, as_owner, become_owner, leave_root, make_home};

/// Capabilities that a kernel could have; beyond its last one prctl says EINVAL.
const CAP_MAX: u32 = 63;
/// Version 3 of the interface: two words of 32 bits per set.
const CAPABILITY_VERSION: u32 = 0x2008_0522;
/// The newest set of file rights that is asked for; older kernels grant what they know.
const LANDLOCK: ABI = ABI::V5;

/// How long a thread that has ended may still be listed: the one that joined it is told a moment
/// before the kernel takes it off the list.
const ENDING: Duration = Duration::from_millis(50);
const ENDING_PAUSE: Duration = Duration::from_millis(1);

/// Where the output of children goes that nobody wants.
const NULL: &str = "/dev/null";

/// What could be given up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dropped {
    /// Landlock restricts writing.
    pub files_confined: bool,
    /// System calls are filtered.
    pub calls_filtered: bool,
}

/// What may still be written. A path that does not exist grants nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Writable<'a> {
    /// A file, or everything in and below a directory.
    Within(&'a Path),
    /// Ordinary files and links below a directory may be made, written, renamed and removed, and
    /// nothing else: what replacing a file as a whole takes. Landlock knows rights of whole
    /// hierarchies only, so there is nothing narrower for a file whose directory is not ours.
    Replaced(&'a Path),
}

/// Gives up everything but what the module names, for this thread and all that start later.
/// `writable` is what plans and the process itself write: the state directory, `/proc/sys/net`,
/// and what [`crate::plan::Places::resolver_files`] names.
///
/// # Errors
/// [`Error::ThreadsRunning`] if another thread runs, which would keep what it has;
/// [`Error::Os`] when the kernel refuses.
pub fn drop(writable: &[Writable<'_>]) -> Result<Dropped, Error> {
    be_alone()?;
    let failed = |error| Error::os("drop privileges", error);
    drop_bounding_set(&KEPT).map_err(failed)?;
    set_capabilities(&KEPT).map_err(failed)?;
    keep_for_children().map_err(failed)?;
    prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0).map_err(failed)?;
    let files_confined = confine_files(writable).map_err(failed)?;
    let calls_filtered = syscalls::filter().map_err(failed)?;
    Ok(Dropped { files_confined, calls_filtered })
}

/// The same without any capability, for a process that keeps another user's rights to files.
pub(crate) fn drop_all(writable: &[Writable<'_>]) -> Result<(), Error> {
    let failed = |error| Error::os("drop privileges", error);
    drop_bounding_set(&[]).map_err(failed)?;
    set_capabilities(&[]).map_err(failed)?;
    prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0).map_err(failed)?;
    confine_files(writable).map_err(failed)?;
    syscalls::filter().map_err(failed)?;
    Ok(())
}

/// Keeps the memory of this process, with its keys, out of core dumps and away from processes of
/// the same user (`PR_SET_DUMPABLE`, prctl(2)). A change of user or a new program resets the
/// protection from other processes.
pub fn forbid_dumps() {
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: setrlimit reads one struct, which lives through the call.
    unsafe { libc::setrlimit(libc::RLIMIT_CORE, &raw const none) };
    // Neither call can fail, because a process may always lower its own limits.
    let _ = prctl(libc::PR_SET_DUMPABLE, 0, 0);
}

fn be_alone() -> Result<(), Error> {
    let give_up = Instant::now() + ENDING;
    loop {
        let threads = fs::read_dir("/proc/self/task").map_or(0, Iterator::count);
        if threads <= 1 {
            return Ok(());
        }
        if Instant::now() >= give_up {
            return Err(Error::ThreadsRunning { threads });
        }
        thread::sleep(ENDING_PAUSE);
    }
}

/// What can never be had again. Dropping needs CAP_SETPCAP; a process that was started without
/// it has nothing but what it was given.
fn drop_bounding_set(kept: &[u32]) -> io::Result<()> {
    for capability in (0..=CAP_MAX).filter(|capability| !kept.contains(capability)) {
        match prctl(libc::PR_CAPBSET_DROP, capability.into(), 0) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => break,
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => break,
            result => result?,
        }
    }
    Ok(())
}

#[repr(C)]
struct CapabilityHeader {
    version: u32,
    pid: libc::c_int,
}

#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct CapabilityData {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

fn set_capabilities(kept: &[u32]) -> io::Result<()> {
    let mut header = CapabilityHeader { version: CAPABILITY_VERSION, pid: 0 };
    let mut data = [CapabilityData::default(); 2];
    // SAFETY: the header and both words of data live through the call and have the layout of
    // version 3 (capget(2)).
    let result = unsafe { libc::syscall(libc::SYS_capget, &raw mut header, data.as_mut_ptr()) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    let kept = kept.iter().fold(0, |set, capability| set | 1 << capability);
    let left = data[0].permitted & kept;
    let sets = CapabilityData { effective: left, permitted: left, inheritable: left };
    let had = data;
    let data = [sets, CapabilityData::default()];
    if data == had {
        // A seccomp filter around this process may forbid this call.
        return Ok(());
    }
    // SAFETY: as above.
    let result = unsafe { libc::syscall(libc::SYS_capset, &raw mut header, data.as_ptr()) };
    if result != 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// A user other than root hands capabilities to `nft` only if they are ambient (capabilities(7)).
fn keep_for_children() -> io::Result<()> {
    for capability in KEPT {
        match prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_RAISE as u64, capability.into()) {
            // We do not have it ourselves.
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => {}
            result => result?,
        }
    }
    Ok(())
}

fn prctl(option: libc::c_int, first: u64, second: u64) -> io::Result<()> {
    let (first, second) = (first as libc::c_ulong, second as libc::c_ulong);
    let zero: libc::c_ulong = 0;
    // SAFETY: the options used here take numbers and touch no memory.
    let result = unsafe { libc::prctl(option, first, second, zero, zero) };
    if result != 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Whether writing is confined; a kernel without Landlock, or with it turned off, is no error.
fn confine_files(writable: &[Writable<'_>]) -> io::Result<bool> {
    let write = AccessFs::from_write(LANDLOCK);
    let replace = AccessFs::WriteFile
        | AccessFs::MakeReg
        | AccessFs::MakeSym
        | AccessFs::RemoveFile
        | AccessFs::Truncate;
    let confine = || -> Result<landlock::RestrictionStatus, landlock::RulesetError> {
        let mut ruleset = Ruleset::default()
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(write)?
            .create()?;
        for writable in writable.iter().copied().chain([Writable::Within(Path::new(NULL))]) {
            let (path, rights) = match writable {
                Writable::Within(path) => (path, write),
                Writable::Replaced(path) => (path, replace),
            };
            let Ok(fd) = PathFd::new(path) else { continue };
            // A file can have fewer rights than a directory.
            let rights =
                if path.is_dir() { rights } else { rights & AccessFs::from_file(LANDLOCK) };
            ruleset = ruleset.add_rule(PathBeneath::new(fd, rights))?;
        }
        ruleset.restrict_self()
    };
    let status = confine().map_err(io::Error::other)?;
    Ok(status.ruleset != landlock::RulesetStatus::NotEnforced)
}
