//! Real hosts on the emulated Internet, without root: network namespaces of the lab's own.
//!
//! The process first moves into a user namespace of its own ([`enter`]), where it may make network
//! namespaces. Each [`Host`] is one, with its own mount namespace so that `/etc/resolv.conf` may
//! differ. A network card of a host is a TAP device whose other side the emulator thread holds;
//! what a program in the host sends comes out there, passes through [`crate::emu::Internet`] in
//! real time, and goes into the TAP device of the host at the other end.
//!
//! A TAP and not a TUN, because a VPN looks at its host's links: a TAP is Ethernet to the kernel,
//! with carrier, neighbours and duplicate address detection, while a TUN is just what a link
//! monitor must skip, being somebody's tunnel.
//!
//! What it decides: how namespaces, devices and threads are set up and taken down. What it refuses
//! to know: what a link is like (that is `emu`) and what is being measured (that is `scenario`).
//! Everything here disappears with the process, however it dies: namespaces when their last file
//! descriptor closes, programs by the kernel's parent-death signal, files on a private tmpfs. What
//! a program has started itself goes with its [`Process`]; only a lab that is killed leaves it.
//!
//! Limits: timing is as good as the machine's scheduling: [`Timekeeping`] says how good that was,
//! and [`Machine`] how evenly its processors worked.
//! `unsafe` stands in this folder for the system calls that have no safe wrapper.

mod emulator;
mod enter;
mod host;
mod interrupt;
mod lateness;
mod lines;
mod machine;
mod netlink;
mod network;
mod process;
mod tap;
mod times;

pub use emulator::{Capture, Captured, Direction, Emulator, Shell};
pub use enter::{Entered, Refusal, check_tun, enter};
pub use host::Host;
pub use lateness::Timekeeping;
pub use machine::Machine;
pub use network::{Access, AccessId, CardId, HostId, Network};
pub use process::{Process, ProcessOutput};
pub use times::Times;

/// Nanoseconds on `CLOCK_MONOTONIC`, which all namespaces of a machine share: what a program in
/// one host notes can be compared with what a program in another notes.
pub fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * crate::emu::SECOND + now.tv_nsec as u64
}
