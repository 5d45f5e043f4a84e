//! Every system call that Rove makes, and no protocol.

pub mod clock;
pub mod error;
pub mod links;
mod netlink;
pub mod random;
pub mod tun;
pub mod udp;
