//! TAP devices: the network cards of emulated hosts.

use rustix::fs::{Mode, OFlags};
use std::ffi::{c_int, c_short};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Ethernet header: destination, source, type.
pub(super) const ETHERNET_HEADER: usize = 14;
/// The address of every emulated router, as the hosts' fixed neighbour entries have it. Locally
/// administered.
pub(super) const ROUTER_MAC: [u8; 6] = [0x02, 0, 0, 0, 0, 0x01];
/// Linux's longest interface name, its final zero included (`IFNAMSIZ`).
const NAME_SIZE: usize = 16;

/// `struct ifreq` with the flags member of its union, padded to its full size.
#[repr(C)]
struct InterfaceRequest {
    name: [u8; NAME_SIZE],
    flags: c_short,
    rest: [u8; 22],
}

/// One TAP device, seen from the side that plays the cable.
#[derive(Debug)]
pub(super) struct Tap {
    fd: OwnedFd,
}

impl Tap {
    /// Makes a TAP device in the network namespace of the calling thread. It has no offloads: the
    /// kernel cuts every packet to the MTU and computes its checksums before it comes out here.
    pub(super) fn create(name: &str) -> io::Result<Self> {
        if name.is_empty() || name.len() >= NAME_SIZE {
            let cause = format!("{name:?} is no interface name: 1 to 15 bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, cause));
        }
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let fd = rustix::fs::open("/dev/net/tun", flags, Mode::empty())?;
        let mut request = InterfaceRequest {
            name: [0; NAME_SIZE],
            flags: (libc::IFF_TAP | libc::IFF_NO_PI) as c_short,
            rest: [0; 22],
        };
        request.name[..name.len()].copy_from_slice(name.as_bytes());
        // SAFETY: TUNSETIFF reads and writes one `struct ifreq`; `request` is one, lives through
        // the call, and its name ends in a zero because `name` is shorter than the field.
        check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETIFF, &raw mut request) })?;
        Ok(Self { fd })
    }

    /// Plugs or unplugs the cable: the host's kernel sees its carrier come or go.
    pub(super) fn set_carrier(&self, up: bool) -> io::Result<()> {
        let up = c_int::from(up);
        // SAFETY: TUNSETCARRIER reads one `int` at the address it is given; `up` is one.
        check(unsafe { libc::ioctl(self.fd.as_raw_fd(), libc::TUNSETCARRIER, &raw const up) })
    }

    /// Takes one Ethernet frame that the host sent; `None` when there is none.
    pub(super) fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match rustix::io::read(&self.fd, buffer) {
            Ok(length) => Ok(Some(length)),
            Err(rustix::io::Errno::AGAIN) => Ok(None),
            // The interface is down (EIO) or the device is gone (EBADFD): nothing comes.
            Err(rustix::io::Errno::IO | rustix::io::Errno::BADFD) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Gives the host an IP packet in an Ethernet frame addressed to it. An interface that is
    /// down takes none: that is no error, the packet is gone as on a real cable.
    pub(super) fn send(&self, mac: [u8; 6], packet: &[u8]) -> io::Result<bool> {
        let v6 = packet.first().is_some_and(|first| first >> 4 == 6);
        let ethertype: [u8; 2] = if v6 { [0x86, 0xdd] } else { [0x08, 0x00] };
        let mut header = [0; ETHERNET_HEADER];
        header[..6].copy_from_slice(&mac);
        header[6..12].copy_from_slice(&ROUTER_MAC);
        header[12..].copy_from_slice(&ethertype);
        let parts = [io::IoSlice::new(&header), io::IoSlice::new(packet)];
        match rustix::io::writev(&self.fd, &parts) {
            Ok(_) => Ok(true),
            Err(rustix::io::Errno::IO | rustix::io::Errno::BADFD | rustix::io::Errno::AGAIN) => {
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for Tap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn check(result: c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
