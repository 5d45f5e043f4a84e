//! Every system call that Rove makes, and no protocol.

pub mod clock;
mod dns;
pub mod error;
pub mod links;
mod netlink;
mod nft;
pub mod plan;
pub mod random;
pub mod tun;
pub mod udp;
