//! The targets, one file each.

pub mod control;
pub mod data_header;
pub mod exchange;
pub mod frames;
pub mod handshake;
pub mod inner_packet;
pub mod sealed;
pub mod session;
pub mod world;
