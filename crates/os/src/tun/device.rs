//! Opening a TUN: `/dev/net/tun` and its ioctls (Documentation/networking/tuntap.rst).

use std::{
    ffi::CString,
    fs::{File, OpenOptions},
    io,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::fs::OpenOptionsExt,
    },
    path::Path,
};

use super::vnet::VNET_LEN;
use crate::error::Error;

const TUN_DEVICE: &str = "/dev/net/tun";

// linux/if_tun.h; libc does not have them on every target.
const TUN_F_CSUM: libc::c_ulong = 0x01;
const TUN_F_TSO4: libc::c_ulong = 0x02;
const TUN_F_TSO6: libc::c_ulong = 0x04;
const TUN_F_TSO_ECN: libc::c_ulong = 0x08;
const TUN_F_USO4: libc::c_ulong = 0x20;
const TUN_F_USO6: libc::c_ulong = 0x40;
const OFFLOAD_TCP: libc::c_ulong = TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6 | TUN_F_TSO_ECN;
const OFFLOAD_UDP: libc::c_ulong = TUN_F_USO4 | TUN_F_USO6;

/// How to open a TUN.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TunOptions<'a> {
    /// Name of the interface, 1 to 15 bytes; one `%d` in it lets the kernel choose a number.
    pub name: &'a str,
    /// The interface outlives the process, with its addresses and routes, and is adopted by the
    /// next [`Tun::open`](super::Tun::open) of the same name.
    pub persistent: bool,
    /// Ask for super-packets. Without it (and where it is refused) every packet travels alone.
    pub offload: bool,
}

/// What the kernel agreed to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offload {
    /// Packets carry a `virtio_net_hdr`, and checksums may be left to us.
    pub vnet_header: bool,
    /// TCP super-packets, both directions.
    pub tcp: bool,
    /// UDP super-packets, both directions (Linux 6.2).
    pub udp: bool,
}

/// An opened TUN.
pub(super) struct Device {
    pub(super) fd: OwnedFd,
    pub(super) name: String,
    pub(super) offload: Offload,
    pub(super) adopted: bool,
}

pub(super) fn open(options: TunOptions<'_>) -> Result<Device, Error> {
    check_name(options.name)?;
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open(TUN_DEVICE)
        .map_err(open_error)?;
    let adopted = index_of(options.name).is_some();
    let (name, vnet_header) = attach(&file, options)?;
    set_owner(&file)?;
    if vnet_header {
        set_header_size(&file)?;
    }
    set_persistent(&file, options.persistent)?;
    let (tcp, udp) = if vnet_header { agree_on_offload(&file) } else { (false, false) };
    let offload = Offload { vnet_header, tcp, udp };
    Ok(Device { fd: OwnedFd::from(file), name, offload, adopted })
}

/// Letters, digits, `-`, `_` and `.`, and `%d` once: what the kernel takes and what can be shown,
/// used as a file name and put into a rule without quoting.
pub(crate) fn check_name(name: &str) -> Result<(), Error> {
    let plain = name.replacen("%d", "0", 1);
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let good = (1..libc::IFNAMSIZ).contains(&plain.len())
        && plain.bytes().all(allowed)
        && !plain.starts_with('.');
    if good { Ok(()) } else { Err(Error::BadInterfaceName { name: name.to_owned() }) }
}

fn open_error(error: io::Error) -> Error {
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => Error::NoTunDevice,
        Some(_) | None => Error::file("open", Path::new(TUN_DEVICE), error),
    }
}

/// The kernel's number of an interface.
pub(crate) fn index_of(name: &str) -> Option<u32> {
    let name = CString::new(name).ok()?;
    // SAFETY: the argument is a string that ends with NUL and lives through the call.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    (index != 0).then_some(index)
}

/// Takes the interface, with the header in front of packets where wanted and possible.
fn attach(file: &File, options: TunOptions<'_>) -> Result<(String, bool), Error> {
    if options.offload {
        match try_attach(file, options.name, libc::IFF_VNET_HDR) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {}
            result => return result.map(|name| (name, true)).map_err(attach_error(options.name)),
        }
    }
    try_attach(file, options.name, 0).map(|name| (name, false)).map_err(attach_error(options.name))
}

fn attach_error(name: &str) -> impl FnOnce(io::Error) -> Error {
    move |error| match error.raw_os_error() {
        Some(libc::EBUSY) => Error::TunBusy { name: name.to_owned() },
        // An interface of another kind has this name, or the TUN has several queues.
        Some(libc::EINVAL) => Error::TunBusy { name: name.to_owned() },
        Some(_) | None => Error::os(format!("create the interface {name}"), error),
    }
}

fn try_attach(file: &File, name: &str, flags: libc::c_int) -> io::Result<String> {
    // SAFETY: all-zero bytes are a valid ifreq: an empty name and an integer union.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (slot, byte) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *slot = byte as libc::c_char;
    }
    let flags = libc::IFF_TUN | libc::IFF_NO_PI | flags;
    request.ifr_ifru.ifru_flags = flags as libc::c_short;
    // SAFETY: TUNSETIFF reads and writes one ifreq, which lives through the call.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    let name = request.ifr_name.iter().take_while(|&&byte| byte != 0);
    Ok(name.map(|&byte| char::from(byte as u8)).collect())
}

/// Only this process's user may take the interface while no process has it, besides who may
/// administer the network. Without an owner everybody might (`tun_not_capable` in
/// drivers/net/tun.c), and send and read as every client of a gateway that is being restarted.
fn set_owner(file: &File) -> Result<(), Error> {
    // SAFETY: takes no arguments and cannot fail.
    let user = unsafe { libc::geteuid() };
    set(file, libc::TUNSETOWNER, libc::c_ulong::from(user))
        .map_err(|error| Error::os("give the TUN to its user", error))
}

/// A persistent interface may have another size from its last user.
fn set_header_size(file: &File) -> Result<(), Error> {
    let size = VNET_LEN as libc::c_int;
    // SAFETY: TUNSETVNETHDRSZ reads one integer, which lives through the call.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETVNETHDRSZ, &raw const size) };
    if result < 0 {
        return Err(Error::os("set the size of the TUN's headers", io::Error::last_os_error()));
    }
    Ok(())
}

fn set_persistent(file: &File, persistent: bool) -> Result<(), Error> {
    set(file, libc::TUNSETPERSIST, libc::c_ulong::from(persistent))
        .map_err(|error| Error::os("decide whether the TUN outlives the process", error))
}

/// Whether TCP and UDP super-packets were granted. None at all is fine, too.
fn agree_on_offload(file: &File) -> (bool, bool) {
    if set(file, libc::TUNSETOFFLOAD, OFFLOAD_TCP | OFFLOAD_UDP).is_ok() {
        return (true, true);
    }
    if set(file, libc::TUNSETOFFLOAD, OFFLOAD_TCP).is_ok() {
        return (true, false);
    }
    // A persistent interface may still have offloads from its last owner: take them off.
    let _ = set(file, libc::TUNSETOFFLOAD, 0);
    (false, false)
}

fn set(file: &File, request: libc::Ioctl, value: libc::c_ulong) -> io::Result<()> {
    // SAFETY: these TUN requests take an integer and touch no memory of ours.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), request, value) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
