//! Enters the lab's own user, network and mount namespaces, after raising the priority.

use super::interrupt;
use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};
use rustix::thread::UnshareFlags;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Where processes that share a terminal session share their weight (`autogroup` in sched(7)).
const AUTOGROUP: &str = "/proc/self/autogroup";
/// How often a change of it is tried, and how long is waited in between.
const AUTOGROUP_TRIES: u32 = 5;
/// See [`AUTOGROUP_TRIES`].
const AUTOGROUP_PAUSE: Duration = Duration::from_millis(50);
/// How the lab's private directories are called under the system's temporary directory.
const DIRECTORY_PREFIX: &str = "rove-lab-";

/// Proof that the process is in its own namespaces, and what to undo at the end.
#[derive(Debug)]
pub struct Entered {
    traces: Arc<Traces>,
}

/// Changes that outlive a process unless they are undone, in the order in which they are undone: on
/// drop, or at once when a signal ends the lab.
#[derive(Debug)]
struct Traces {
    directory: PrivateDirectory,
    priority: Priority,
}

/// The scheduler's grant: nice -20 and, if there is one, the session's autogroup at -20.
#[derive(Debug)]
struct Priority {
    raised: bool,
    /// The earlier value of the autogroup, if it was changed.
    autogroup_before: Option<i32>,
}

/// A directory with a file system of our own on it.
#[derive(Debug)]
struct PrivateDirectory(PathBuf);

/// The reason why the lab cannot run on this machine, and the cure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The kernel or a policy refuses new user namespaces.
    UserNamespace(Errno),
    /// A namespace was made but gives no rights in it.
    Powerless(Errno),
    /// There is no `/dev/net/tun`.
    NoTun,
    /// `/dev/net/tun` may not be opened.
    TunDenied(Errno),
    /// Another failure.
    Other(&'static str, Errno),
}

/// Moves the process into namespaces of its own, in which it is root over the network and nothing
/// else. To be called before any thread starts.
///
/// It raises the priority first, because the right to it is lost inside. Without the right the lab
/// runs all the same, and [`Entered::priority_note`] says so.
///
/// # Errors
/// What was refused, and the cure.
pub fn enter() -> Result<Entered, Refusal> {
    check_tun()?;
    // From here on a refusal drops it, and the session gets its weight back.
    let priority = Priority::raise();
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let flags = UnshareFlags::NEWUSER | UnshareFlags::NEWNET | UnshareFlags::NEWNS;
    // SAFETY: `unshare` is unsafe for CLONE_FILES only, which would leave other threads with
    // another descriptor table; it is not among the flags.
    unsafe { rustix::thread::unshare_unsafe(flags) }.map_err(Refusal::UserNamespace)?;
    // Without the right to set groups an unprivileged user must give it up before mapping one.
    write("/proc/self/setgroups", "deny").map_err(Refusal::Powerless)?;
    write("/proc/self/uid_map", &format!("0 {uid} 1")).map_err(Refusal::Powerless)?;
    write("/proc/self/gid_map", &format!("0 {gid} 1")).map_err(Refusal::Powerless)?;
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", private).map_err(Refusal::Powerless)?;
    let traces = Arc::new(Traces { directory: PrivateDirectory::mount()?, priority });
    let entered = Entered { traces: Arc::clone(&traces) };
    probe_tap()?;
    interrupt::block();
    let ended = Arc::downgrade(&traces);
    interrupt::clean_up_on_signal(move || {
        if let Some(traces) = ended.upgrade() {
            traces.remove();
        }
    })
    .map_err(|error| Refusal::Other("a thread", errno(&error)))?;
    Ok(entered)
}

impl Entered {
    /// A directory on a file system of our own: nothing in it outlives the process.
    pub fn directory(&self) -> &Path {
        &self.traces.directory.0
    }

    /// A note for people if the emulator runs at ordinary priority.
    pub fn priority_note(&self) -> Option<&'static str> {
        (!self.traces.priority.raised)
            .then_some("no right to raise the emulator's priority: expect more lateness under load")
    }
}

impl Traces {
    /// Undoes the changes that would outlive the process. A repeated undo fails harmlessly.
    fn remove(&self) {
        self.directory.remove();
        self.priority.give_back();
    }
}

impl Priority {
    /// Nice -20 for this process, and the same for its session's autogroup, without which niceness
    /// counts within the session only. Measured: real-time scheduling did worse under load.
    fn raise() -> Self {
        if rustix::process::setpriority_process(None, -20).is_err() {
            return Self { raised: false, autogroup_before: None };
        }
        // "/autogroup-25 nice 0"; absent where the kernel has none.
        let before = fs::read_to_string(AUTOGROUP)
            .ok()
            .and_then(|line| line.trim().rsplit(' ').next().and_then(|nice| nice.parse().ok()));
        // A raised session was left by a killed lab: it gets the usual value.
        let before = before.map(|nice| if nice == -20 { 0 } else { nice });
        let changed = before.is_some() && fs::write(AUTOGROUP, "-20").is_ok();
        Self { raised: true, autogroup_before: before.filter(|_| changed) }
    }

    /// Gives the session its weight back.
    fn give_back(&self) {
        let Some(before) = self.autogroup_before else { return };
        // The kernel takes one change in 100 ms from who is not the machine's root.
        for _ in 0..AUTOGROUP_TRIES {
            match fs::write(AUTOGROUP, before.to_string()) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    std::thread::sleep(AUTOGROUP_PAUSE);
                }
                Ok(()) | Err(_) => break,
            }
        }
    }
}

impl Drop for Priority {
    fn drop(&mut self) {
        self.give_back();
    }
}

impl PrivateDirectory {
    /// A new tmpfs in the system's temporary directory, visible to this process alone. Empty
    /// directories of killed labs are removed.
    fn mount() -> Result<Self, Refusal> {
        let parent = std::env::temp_dir();
        sweep(&parent);
        let directory = Self(parent.join(format!("{DIRECTORY_PREFIX}{}", std::process::id())));
        fs::create_dir_all(&directory.0)
            .map_err(|error| Refusal::Other("a private directory", errno(&error)))?;
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        rustix::mount::mount("tmpfs", &directory.0, "tmpfs", flags, None)
            .map_err(|error| Refusal::Other("a private file system", error))?;
        Ok(directory)
    }

    fn remove(&self) {
        let _ = rustix::mount::unmount(&self.0, UnmountFlags::DETACH);
        let _ = fs::remove_dir(&self.0);
    }
}

impl Drop for PrivateDirectory {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Removes the empty directories of labs that are dead.
fn sweep(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.strip_prefix(DIRECTORY_PREFIX));
        let dead = owner.is_some_and(|pid| {
            pid.bytes().all(|digit| digit.is_ascii_digit())
                && !Path::new("/proc").join(pid).exists()
        });
        if dead {
            // Not ours or not empty: then it stays.
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// Opens and closes the TUN device, so that a refusal comes early and names the true cause.
///
/// # Errors
/// Why it is not available.
pub fn check_tun() -> Result<(), Refusal> {
    let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC;
    match rustix::fs::open("/dev/net/tun", flags, rustix::fs::Mode::empty()) {
        Ok(_) => Ok(()),
        Err(Errno::NOENT | Errno::NODEV | Errno::NXIO) => Err(Refusal::NoTun),
        Err(error) => Err(Refusal::TunDenied(error)),
    }
}

/// Makes one TAP device in the new namespace, and closes it: some policies let a user into a
/// namespace and refuse every right there.
fn probe_tap() -> Result<(), Refusal> {
    match super::tap::Tap::create("probe") {
        Ok(_) => Ok(()),
        Err(error) => Err(Refusal::Powerless(errno(&error))),
    }
}

fn write(path: &str, text: &str) -> Result<(), Errno> {
    fs::write(path, text).map_err(|error| errno(&error))
}

fn errno(error: &io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::INVAL, Errno::from_raw_os_error)
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let io_error = |errno: &Errno| io::Error::from(*errno);
        match self {
            Self::UserNamespace(errno) => {
                let cause = io_error(errno);
                write!(f, "this machine refuses user namespaces ({cause}); {}", namespace_cure())
            }
            Self::Powerless(errno) => write!(
                f,
                "a user namespace has no rights here ({}); {}",
                io_error(errno),
                namespace_cure()
            ),
            Self::NoTun => write!(
                f,
                "there is no /dev/net/tun; load it with `sudo modprobe tun`, or start the \
                 container with `--device /dev/net/tun`"
            ),
            Self::TunDenied(errno) => write!(
                f,
                "/dev/net/tun may not be opened ({}); allow it with `sudo chmod 666 /dev/net/tun` \
                 (the usual mode), or run this with sudo",
                io_error(errno)
            ),
            Self::Other(what, errno) => {
                write!(f, "{what} was refused inside of a user namespace ({})", io_error(errno))
            }
        }
    }
}

impl std::error::Error for Refusal {}

/// The switch that most likely is off, by looking at each.
fn namespace_cure() -> &'static str {
    let reads =
        |path: &str, value: &str| fs::read_to_string(path).is_ok_and(|text| text.trim() == value);
    if reads("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1") {
        "allow them with `sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0`, or run this \
         with sudo"
    } else if reads("/proc/sys/kernel/unprivileged_userns_clone", "0") {
        "allow them with `sudo sysctl kernel.unprivileged_userns_clone=1`, or run this with sudo"
    } else if reads("/proc/sys/user/max_user_namespaces", "0") {
        "allow them with `sudo sysctl user.max_user_namespaces=10000`"
    } else {
        "in a container, start it with `--privileged` or a seccomp profile that allows unshare(2)"
    }
}
