//! Errors between Rove and the operating system.
//!
//! Each error that a person can cause or cure has its own text: first the cause, then the cure
//! after a colon. Any other error is [`Error::Os`], which names the step that failed and the
//! kernel's reason.

use std::{
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use ipnet::IpNet;

use crate::privileges;

/// A refusal of the operating system, or of its present state.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// `/dev/net/tun` does not exist.
    #[error(
        "this machine has no TUN device (/dev/net/tun): load it with `modprobe tun`, or give the \
         container the device with `--device /dev/net/tun`"
    )]
    NoTunDevice,

    /// The process may not configure what it needs.
    #[error("no permission to {what}{}", privileges::cure_of_refusal())]
    NoPrivilege {
        /// What was tried, after "no permission to".
        what: String,
    },

    /// The process may not open a file.
    #[error("cannot {what} {}: {}", path.display(), privileges::why_denied(path))]
    FileDenied {
        /// The action that failed, as the word after "cannot".
        what: &'static str,
        /// The file.
        path: PathBuf,
    },

    /// IPv6 is off on the tunnel's interface, and this process cannot turn it on.
    #[error(
        "IPv6 is off on {interface} (disable_ipv6 is 1), and /proc/sys is read-only here: start \
         the container with `--sysctl net.ipv6.conf.default.disable_ipv6=0`"
    )]
    Ipv6Off {
        /// The interface.
        interface: String,
    },

    /// Another process holds the TUN of this name.
    #[error(
        "the interface {name} is in use by another process: stop that process, or choose another \
         name"
    )]
    TunBusy {
        /// The interface's name.
        name: String,
    },

    /// The name cannot be an interface's name.
    #[error("{name:?} cannot name an interface: use 1 to 15 letters, digits, - or _")]
    BadInterfaceName {
        /// The name as it was given.
        name: String,
    },

    /// There is no such interface (any more).
    #[error("there is no interface {name}: check `rove paths` or `ip link` for its name")]
    NoInterface {
        /// The interface's name.
        name: String,
    },

    /// The UDP port is taken.
    #[error("UDP port {} of {} is in use: stop the other program or choose another port",
        addr.port(), addr.ip())]
    PortInUse {
        /// The address that could not be bound.
        addr: SocketAddr,
    },

    /// The TCP port is taken.
    #[error("TCP port {} of {} is in use: stop the other program, choose another port, or let it \
        stand behind this one as the web server", addr.port(), addr.ip())]
    TcpPortInUse {
        /// The address that could not be bound.
        addr: SocketAddr,
    },

    /// The name for TLS is none.
    #[error("{name:?} is no name for TLS: give a host name or an address")]
    BadServerName {
        /// The name as it was given.
        name: String,
    },

    /// A proxy that cannot be asked.
    #[error("the proxy cannot be asked: {why}: write http://USER:PASSWORD@HOST:PORT")]
    BadProxy {
        /// What is wrong.
        why: String,
    },

    /// TLS could not be set up.
    #[error("cannot set up TLS: {why}: use plain TCP")]
    Tls {
        /// What the library said.
        why: String,
    },

    /// No interface carries the address.
    #[error("no interface of this machine has the address {}: use one of its own", addr.ip())]
    AddressNotLocal {
        /// The address that could not be bound.
        addr: SocketAddr,
    },

    /// A network of the tunnel is also a network of a local interface.
    #[error(
        "the tunnel's network {tunnel} overlaps {local} on {interface}: choose another network \
         for the tunnel, or leave that one"
    )]
    AddressOverlap {
        /// The tunnel's network.
        tunnel: IpNet,
        /// The local network.
        local: IpNet,
        /// The interface with the local network.
        interface: String,
    },

    /// A plan that contradicts itself.
    #[error("the plan cannot be carried out: {why}")]
    BadPlan {
        /// What contradicts what, and the cure.
        why: String,
    },

    /// The `nft` program is missing.
    #[error(
        "{what} needs the program nft, which is not installed: install the package nftables \
         (`apt install nftables`, `dnf install nftables` or `apk add nftables`)"
    )]
    NftMissing {
        /// The part that needs `nft`: "the gateway's firewall", "the guard" or "the kill switch".
        what: &'static str,
    },

    /// The `nft` program is there, and cannot be started.
    #[error(
        "{what} needs the program nft, but {program} cannot be started ({why}): mend that \
         (`chmod 755 {program}`, or install the package nftables again)"
    )]
    NftUnusable {
        /// The part that needs `nft`.
        what: &'static str,
        /// The program's file.
        program: String,
        /// The kernel's error.
        why: String,
    },

    /// `nft` did not finish: what it was to do may be done or not.
    #[error(
        "nft did not install {what} within {seconds} s: try again, and check that \
         `nft list ruleset` answers"
    )]
    NftSilent {
        /// What was being installed.
        what: &'static str,
        /// How long it was waited for.
        seconds: u64,
    },

    /// `nft` refused a transaction.
    #[error(
        "nft refused to install {what}: {said}: check `nft list ruleset` and the kernel's nf_tables"
    )]
    NftRefused {
        /// What was being installed.
        what: &'static str,
        /// The first line that nft printed.
        said: String,
    },

    /// A kernel setting must change, but this process cannot change it.
    #[error(
        "the kernel setting {setting} is {now} and has to be {wanted}, and /proc/sys is read-only \
         here: start the container with `--sysctl {setting}={wanted}`"
    )]
    SettingReadOnly {
        /// The setting, as sysctl(8) writes it.
        setting: String,
        /// Its value.
        now: String,
        /// The value that it needs.
        wanted: String,
    },

    /// systemd-resolved refused.
    #[error(
        "systemd-resolved refused the tunnel's DNS settings: {said}: check `resolvectl status`"
    )]
    Resolved {
        /// What it answered.
        said: String,
    },

    /// Only some domains are to be asked in the tunnel, and the forwarder for that cannot listen.
    #[error(
        "Rove cannot listen for DNS queries on a loopback address ({why}), so all names are asked \
         where they were: if another DNS server has port 53 of all addresses, let it ask the \
         gateway's servers for the domains, or bind it to its own addresses"
    )]
    NamesCannotBeSplit {
        /// The kernel's error.
        why: String,
    },

    /// The resolver's file cannot be read, written or put back.
    #[error(
        "cannot {what} {}: {why}: mend that, or leave DNS alone with `dns = \"leave\"` in \
         client.toml", path.display()
    )]
    ResolverFile {
        /// The action that failed, as the words after "cannot".
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The kernel's error, worded so that it leads to the cause.
        why: String,
    },

    /// A name server says that the name has no address.
    #[error("the name {name} has no address: check how it is written")]
    NameUnknown {
        /// The name.
        name: String,
    },

    /// No name server answered.
    #[error("no name server answers for {name}: check this machine's network and its DNS")]
    NameUnanswered {
        /// The name.
        name: String,
    },

    /// Another process of Rove uses the directory.
    #[error(
        "another rove (process {pid}) already uses {}: stop it, or give --dir another directory",
        dir.display()
    )]
    SecondInstance {
        /// The directory.
        dir: PathBuf,
        /// The process that holds it, "unknown" when it did not say.
        pid: String,
    },

    /// Privileges were to be dropped too late.
    #[error("privileges must be dropped before the first thread starts, and {threads} run already")]
    ThreadsRunning {
        /// How many threads the process has.
        threads: usize,
    },

    /// The process that changes the resolver's settings for this one does not run any more.
    #[error(
        "the process rove-resolver, which changes this host's name servers for Rove, has ended, \
         and Rove gave up the rights to start it again: run `rove down` as root, which restores \
         the name servers, and connect again"
    )]
    ResolverEnded,

    /// The process that changes the resolver's settings for this one does not run now.
    #[error(
        "the process rove-resolver (process {process}), which changes this host's name servers \
         for Rove, is stopped: let it go on with `kill -CONT {process}`"
    )]
    ResolverStopped {
        /// Its number.
        process: i32,
    },

    /// Anything else that the kernel refused. The cause is part of the line, so it is no `source`:
    /// a chain of errors would print it twice.
    #[error("cannot {what}: {}", plainly(cause))]
    Os {
        /// What was tried, after "cannot".
        what: String,
        /// What the kernel said.
        cause: io::Error,
    },
}

/// An error of the kernel as people read it: for common ones of disks, cause and cure.
pub fn plainly(error: &io::Error) -> String {
    let text = match error.raw_os_error() {
        Some(libc::ENOSPC) => "the disk is full: make room on it",
        Some(libc::EDQUOT) => "the disk quota is used up: make room, or raise it",
        Some(libc::EROFS) => {
            "the file system is read-only: mount it read-write (`mount -o remount,rw`); the \
             kernel's log (`dmesg`) says if the disk is faulty"
        }
        Some(libc::EIO) => "the disk reports an error: see the kernel's log (`dmesg`)",
        Some(libc::EMFILE | libc::ENFILE) => {
            "too many files are open: raise the limit (`ulimit -n`)"
        }
        Some(_) | None => return error.to_string(),
    };
    text.to_owned()
}

impl Error {
    /// The error for a step named `what` ("read the list of links") that failed with `cause`;
    /// refusals for want of privilege become [`Error::NoPrivilege`].
    pub(crate) fn os(what: impl Into<String>, cause: io::Error) -> Self {
        match cause.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => Self::NoPrivilege { what: what.into() },
            Some(_) | None => Self::Os { what: what.into(), cause },
        }
    }

    /// The error for a file that could not be opened to `what` ("read").
    pub(crate) fn file(what: &'static str, path: &Path, cause: io::Error) -> Self {
        if cause.kind() == io::ErrorKind::PermissionDenied {
            return Self::FileDenied { what, path: path.to_owned() };
        }
        Self::Os { what: format!("{what} {}", path.display()), cause }
    }

    /// Whether the packet filter is missing here, or cannot do the requested work. Then nothing of
    /// the requested transaction is in place.
    pub(crate) fn is_of_packet_filter(&self) -> bool {
        self.is_without_nft() || matches!(self, Self::NftRefused { .. })
    }

    /// Whether the program `nft` did not run.
    pub(crate) fn is_without_nft(&self) -> bool {
        matches!(self, Self::NftMissing { .. } | Self::NftUnusable { .. })
    }
}

#[cfg(test)]
#[path = "error_tests.rs"]
mod tests;
