//! One host: a network namespace and a mount namespace, and programs started inside.

use super::interrupt;
use super::netlink::Netlink;
use super::process::Process;
use rustix::mount::MountFlags;
use rustix::process::Signal;
use rustix::thread::{LinkNameSpaceType, UnshareFlags};
use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Settings of a fresh namespace that would make traffic nobody asked for. They are wishes: where
/// `/proc/sys` is read-only the lab runs on.
const QUIET: &[(&str, &str)] = &[
    ("net/ipv6/conf/default/accept_ra", "0"),
    ("net/ipv6/conf/default/router_solicitations", "0"),
    ("net/ipv6/conf/default/accept_dad", "0"),
    ("net/ipv4/conf/all/rp_filter", "0"),
    ("net/ipv4/conf/default/rp_filter", "0"),
];

/// A host on the emulated Internet.
pub struct Host {
    name: String,
    net: File,
    mnt: File,
    /// Any socket inside, to look up interface names.
    probe: std::net::UdpSocket,
    pub(super) netlink: Netlink,
    /// Its own files: `resolv.conf`, and whatever programs in it keep.
    directory: PathBuf,
}

impl Host {
    /// Makes a host whose own files lie in a new directory under `parent`, with nothing but a
    /// loopback interface that is up.
    pub(super) fn new(name: &str, parent: &Path) -> io::Result<Self> {
        let directory = parent.join(name);
        fs::create_dir(&directory)?;
        let resolv_conf = directory.join("resolv.conf");
        fs::write(&resolv_conf, "")?;
        // A thread of its own leaves the process' namespaces; what it opens keeps them alive.
        let (net, mnt, probe, mut netlink) = in_thread(|| {
            // SAFETY: `unshare` is unsafe for CLONE_FILES only; it is not among the flags.
            unsafe {
                rustix::thread::unshare_unsafe(
                    UnshareFlags::NEWNET | UnshareFlags::NEWNS | UnshareFlags::FS,
                )
            }?;
            mount_own(&resolv_conf);
            for (path, value) in QUIET {
                let _ = fs::write(Path::new("/proc/sys").join(path), value);
            }
            Ok((
                File::open("/proc/thread-self/ns/net")?,
                File::open("/proc/thread-self/ns/mnt")?,
                std::net::UdpSocket::bind("0.0.0.0:0")?,
                Netlink::open()?,
            ))
        })?;
        let loopback = rustix::net::netdevice::name_to_index(&probe, "lo")?;
        netlink.set_up(loopback, true)?;
        Ok(Self { name: name.to_owned(), net, mnt, probe, netlink, directory })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A directory for the files of programs in it.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Its network namespace.
    pub fn network_namespace(&self) -> BorrowedFd<'_> {
        self.net.as_fd()
    }

    /// The index of one of its interfaces.
    pub fn interface(&self, name: &str) -> io::Result<u32> {
        Ok(rustix::net::netdevice::name_to_index(&self.probe, name)?)
    }

    /// Runs a function on a thread inside the host's network: sockets that it opens belong there,
    /// wherever they are used afterwards.
    pub fn inside<R: Send>(&self, f: impl FnOnce() -> io::Result<R> + Send) -> io::Result<R> {
        in_thread(|| {
            enter_network(self.net.as_fd())?;
            f()
        })
    }

    /// Lets the host forward packets between its links, both families.
    ///
    /// # Errors
    /// Where `/proc/sys` is read-only, as in some containers.
    pub fn enable_forwarding(&self) -> io::Result<()> {
        self.inside(|| {
            fs::write("/proc/sys/net/ipv4/ip_forward", "1")?;
            // Absent where the kernel has no IPv6: then there is nothing to forward.
            match fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "1") {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                Ok(()) | Err(_) => Ok(()),
            }
        })
        .map_err(|error| {
            io::Error::new(
                error.kind(),
                format!(
                    "a host of the lab may not forward packets ({error}); /proc/sys must be \
                     writable: run outside of the container, or start it with --privileged"
                ),
            )
        })
    }

    /// Sets how often the host's TCP sends a segment again before it gives a connection up
    /// (`tcp_retries2` of ip-sysctl).
    ///
    /// # Errors
    /// Where `/proc/sys` is read-only, as in some containers.
    pub fn set_tcp_retries(&self, retries: u32) -> io::Result<()> {
        self.inside(|| fs::write("/proc/sys/net/ipv4/tcp_retries2", retries.to_string()))
    }

    /// Sets by what the host's TCP and MPTCP control their rate where no program says it
    /// (`tcp_congestion_control` of ip-sysctl).
    ///
    /// # Errors
    /// `PermissionDenied` for what the machine keeps for its own root, which is whatever it names
    /// in no `tcp_allowed_congestion_control`; and where `/proc/sys` is read-only.
    pub fn set_congestion(&self, name: &str) -> io::Result<()> {
        self.inside(|| fs::write("/proc/sys/net/ipv4/tcp_congestion_control", name))
    }

    /// Writes the host's own `/etc/resolv.conf`.
    pub fn set_name_servers(&self, servers: &[IpAddr]) -> io::Result<()> {
        let text: String = servers.iter().map(|server| format!("nameserver {server}\n")).collect();
        fs::write(self.directory.join("resolv.conf"), text)
    }

    /// A command that will run inside the host, in the host's own directory, at ordinary priority
    /// and in a process group of its own. The kernel kills it when the thread that starts it ends:
    /// start it from one that lasts.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> io::Result<Command> {
        self.command_at(program, 0)
    }

    /// The same with this niceness, which may be negative if the lab raised its own limit.
    pub fn command_at(
        &self,
        program: impl AsRef<std::ffi::OsStr>,
        nice: i32,
    ) -> io::Result<Command> {
        let (net, mnt) = (self.net.try_clone()?, self.mnt.try_clone()?);
        let lab = rustix::process::getpid();
        let mut command = Command::new(program);
        command.process_group(0);
        let directory = CString::new(self.directory.as_os_str().as_bytes())?;
        // SAFETY: between fork and exec only system calls are made, nothing is allocated and no
        // lock is taken: rustix calls the kernel directly, and an `io::Error` made from an error
        // number does not allocate.
        unsafe {
            command.pre_exec(move || {
                rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
                // The lab may have died before the line above.
                if rustix::process::getppid() != Some(lab) {
                    return Err(rustix::io::Errno::CHILD.into());
                }
                enter_network(net.as_fd())?;
                rustix::thread::move_into_link_name_space(
                    mnt.as_fd(),
                    Some(LinkNameSpaceType::Mount),
                )?;
                // Changing the mount namespace has changed the working directory to its root.
                rustix::process::chdir(directory.as_c_str())?;
                // Who may not has not raised it either: he runs the lab under nice(1).
                let _ = rustix::process::setpriority_process(None, nice);
                interrupt::unblock_all();
                Ok(())
            });
        }
        Ok(command)
    }

    /// Starts a command made by [`Host::command`]; its output is read line by line.
    pub fn spawn(&self, what: &str, command: Command) -> io::Result<Process> {
        let name = format!("{what} on {}", self.name);
        Process::spawn(&name, command)
            .map_err(|error| io::Error::new(error.kind(), format!("cannot start {name}: {error}")))
    }
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Host").field("name", &self.name).finish_non_exhaustive()
    }
}

fn enter_network(net: BorrowedFd<'_>) -> rustix::io::Result<()> {
    rustix::thread::move_into_link_name_space(net, Some(LinkNameSpaceType::Network))
}

/// Puts the host's own `resolv.conf` over the system's, and a `/sys` that shows its own network;
/// where either is refused the host does without.
fn mount_own(resolv_conf: &Path) {
    let _ = rustix::mount::mount_bind(resolv_conf, "/etc/resolv.conf");
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    let _ = rustix::mount::mount("sysfs", "/sys", "sysfs", flags, None);
}

/// Runs a function on a thread of its own and waits for it.
fn in_thread<R: Send>(f: impl FnOnce() -> io::Result<R> + Send) -> io::Result<R> {
    std::thread::scope(|scope| {
        scope.spawn(f).join().unwrap_or_else(|_| Err(io::Error::other("a helper thread died")))
    })
}
