//! Notices that the memory of this machine may have been copied, so that another machine goes on
//! with the same keys.
//!
//! Two signs count:
//! - The kernel tells that the virtual machine has another generation ID, as after a snapshot was
//!   resumed: the uevent `NEW_VMGENID=1` (drivers/virt/vmgenid.c, from Linux 6.10), where the
//!   hypervisor has such a device.
//! - CLOCK_BOOTTIME has moved on against CLOCK_MONOTONIC: the machine was suspended (to disk,
//!   perhaps, whose image can be resumed twice).
//!
//! It decides nothing about keys. Limits: a hypervisor without a generation ID, an older kernel and
//! a restored container give neither sign, and between the resumption and the kernel's notice some
//! milliseconds pass.

use std::{
    io,
    mem::MaybeUninit,
    os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
};

use crate::clock;

/// The multicast group of the kernel's own uevents (lib/kobject_uevent.c).
const GROUP_KERNEL: u32 = 1;
/// The kernel's longest uevent (UEVENT_BUFFER_SIZE) with its header line.
const MESSAGE_LEN_MAX: usize = 4_096;
/// Messages that one look reads; what is left makes the socket readable again.
const READ_MAX: usize = 256;
/// What the kernel says of a new generation.
const NEW_GENERATION: &[u8] = b"NEW_VMGENID=1";
/// A smaller jump between the clocks is no suspension, which takes longer.
const JUMP_MIN_NS: i64 = 1_000_000;

/// Watches for both signs.
#[derive(Debug)]
pub struct Watch {
    events: Option<OwnedFd>,
    clocks: Clocks,
}

impl Watch {
    /// Begins to watch. Where the kernel's events are refused, only the clocks tell.
    pub fn new() -> Self {
        Self { events: open().ok(), clocks: Clocks::default() }
    }

    /// The socket that becomes readable with each event of the kernel.
    pub fn descriptor(&self) -> Option<RawFd> {
        self.events.as_ref().map(AsRawFd::as_raw_fd)
    }

    /// Whether the machine was suspended since the last call. Costs three readings of clocks.
    pub fn was_suspended(&mut self) -> bool {
        let read = || {
            let before = clock::read(libc::CLOCK_MONOTONIC)?;
            let boot = clock::read(libc::CLOCK_BOOTTIME)?;
            Some((before, boot, clock::read(libc::CLOCK_MONOTONIC)?))
        };
        read().is_some_and(|(before, boot, after)| self.clocks.have_jumped(before, boot, after))
    }

    /// Reads the kernel's events. Returns whether one of them tells of another generation.
    pub fn has_new_generation(&mut self) -> bool {
        let Some(events) = &self.events else { return false };
        let mut message = [0; MESSAGE_LEN_MAX];
        for _ in 0..READ_MAX {
            match receive(events, &mut message) {
                Ok(Some(message)) if tells_of_generation(message) => return true,
                Ok(_) => {}
                // The kernel had no room for some, which may have been that one.
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => return true,
                Err(_) => break,
            }
        }
        false
    }
}

impl Default for Watch {
    fn default() -> Self {
        Self::new()
    }
}

/// The largest difference that the clocks can have had so far.
#[derive(Debug)]
struct Clocks {
    most_ns: i64,
}

impl Default for Clocks {
    fn default() -> Self {
        Self { most_ns: i64::MAX - JUMP_MIN_NS }
    }
}

impl Clocks {
    /// Takes readings of CLOCK_BOOTTIME between two of CLOCK_MONOTONIC. However long this thread
    /// waits for the processor in between, the difference of the clocks lies between the two that
    /// the readings allow.
    fn have_jumped(&mut self, before: u64, boot: u64, after: u64) -> bool {
        let (least, most) =
            (boot.cast_signed() - after.cast_signed(), boot.cast_signed() - before.cast_signed());
        let jumped = least > self.most_ns + JUMP_MIN_NS;
        self.most_ns = if jumped { most } else { self.most_ns.min(most) };
        jumped
    }
}

/// Whether a uevent tells of another generation: a header line, then `KEY=value`, each with a NUL.
fn tells_of_generation(message: &[u8]) -> bool {
    message.split(|&byte| byte == 0).skip(1).any(|pair| pair == NEW_GENERATION)
}

fn open() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: takes numbers.
    let fd = unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_KOBJECT_UEVENT) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just opened and belongs to nobody else.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: zeros are a valid address.
    let mut address: libc::sockaddr_nl = unsafe { MaybeUninit::zeroed().assume_init() };
    address.nl_family = libc::AF_NETLINK as libc::sa_family_t;
    address.nl_groups = GROUP_KERNEL;
    let length = size_of::<libc::sockaddr_nl>() as libc::socklen_t;
    // SAFETY: the address lives through the call and has that length.
    let bound = unsafe { libc::bind(fd, (&raw const address).cast(), length) };
    if bound != 0 { Err(io::Error::last_os_error()) } else { Ok(socket) }
}

/// One message; `None` if it is not the kernel's.
fn receive<'m>(events: &OwnedFd, message: &'m mut [u8]) -> io::Result<Option<&'m [u8]>> {
    // SAFETY: zeros are a valid address.
    let mut from: libc::sockaddr_nl = unsafe { MaybeUninit::zeroed().assume_init() };
    let mut length = size_of::<libc::sockaddr_nl>() as libc::socklen_t;
    // SAFETY: buffer and address are live and writable, and have these lengths.
    let got = unsafe {
        libc::recvfrom(
            events.as_raw_fd(),
            message.as_mut_ptr().cast(),
            message.len(),
            0,
            (&raw mut from).cast(),
            &raw mut length,
        )
    };
    let got = usize::try_from(got).map_err(|_| io::Error::last_os_error())?;
    // Any process can send to this socket, but only the kernel has the number 0 (netlink(7)).
    Ok((from.nl_pid == 0).then_some(&message[..got]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_suspension_moves_the_clocks_apart() {
        let mut clocks = Clocks::default();
        let ms = 1_000_000;
        let hour = 3_600_000 * ms;
        assert!(!clocks.have_jumped(0, hour, 1), "the first look");
        // This thread waits for the processor for a second, between the readings of either pair.
        assert!(!clocks.have_jumped(10 * ms, hour + 1_010 * ms, 1_010 * ms));
        assert!(!clocks.have_jumped(2_000 * ms, hour + 2_000 * ms, 3_000 * ms));
        assert!(!clocks.have_jumped(4_000 * ms, hour + 4_000 * ms, 4_000 * ms));
        let slept = hour + 250 * ms;
        assert!(clocks.have_jumped(5_000 * ms, slept + 5_000 * ms, 5_000 * ms));
        assert!(!clocks.have_jumped(5_001 * ms, slept + 5_001 * ms, 5_001 * ms), "told once");
        assert!(clocks.have_jumped(6_000 * ms, slept + hour + 6_000 * ms, 6_000 * ms));
    }

    #[test]
    fn this_machine_was_not_suspended() {
        let mut watch = Watch::new();
        for _ in 0..1_000 {
            assert!(!watch.was_suspended());
        }
    }

    #[test]
    fn the_kernels_notice_is_told_from_others() {
        let notice = b"change@/devices/pci0000:00/QEMUVGID:00\0ACTION=change\0\
            DEVPATH=/devices/pci0000:00/QEMUVGID:00\0SUBSYSTEM=platform\0NEW_VMGENID=1\0SEQNUM=7\0";
        assert!(tells_of_generation(notice));
        // Somebody with access to sysfs can make an event, whose keys have a prefix.
        for other in [
            &b"change@/devices/x\0ACTION=change\0SYNTH_ARG_NEW_VMGENID=1\0"[..],
            b"NEW_VMGENID=1",
            b"change@/devices/x\0NEW_VMGENID=10\0",
            b"",
        ] {
            assert!(!tells_of_generation(other), "{}", String::from_utf8_lossy(other));
        }
    }

    #[test]
    fn what_another_process_sends_is_not_believed() {
        let mut watch = Watch::new();
        let Some(ours) = watch.descriptor() else { return };
        let mut address = MaybeUninit::<libc::sockaddr_nl>::zeroed();
        let mut length = size_of::<libc::sockaddr_nl>() as libc::socklen_t;
        // SAFETY: the address is live and writable, and has that length.
        let named =
            unsafe { libc::getsockname(ours, address.as_mut_ptr().cast(), &raw mut length) };
        assert_eq!(named, 0);
        let theirs = open().unwrap();
        let notice = b"change@/devices/x\0NEW_VMGENID=1\0";
        // SAFETY: message and address are live and have these lengths.
        let sent = unsafe {
            // The address is that of the socket alone, without its group.
            (*address.as_mut_ptr()).nl_groups = 0;
            libc::sendto(
                theirs.as_raw_fd(),
                notice.as_ptr().cast(),
                notice.len(),
                0,
                address.as_ptr().cast(),
                length,
            )
        };
        assert_eq!(usize::try_from(sent).ok(), Some(notice.len()));
        assert!(!watch.has_new_generation());
    }
}
