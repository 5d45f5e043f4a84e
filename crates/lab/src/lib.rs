//! Emulated networks on which every claim about Rove is shown.

pub mod arrivals;
pub mod demo;
pub mod emu;
pub mod ground;
pub mod netns;
pub mod programs;
pub mod scenario;
pub mod tcp;
pub mod udp;
pub mod world;
