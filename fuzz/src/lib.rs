//! Fuzz targets: one plain function from bytes to a panic, or to nothing.
//!
//! The same function is called twice over: by `tests/replay.rs` on the stable toolchain, with the
//! committed corpus, valid inputs made by the target itself and a fixed number of mutations of
//! both; and by libFuzzer, which looks for new inputs (`cargo xtask fuzz TARGET`). A target states
//! laws, not only the absence of panics. It refuses to know where its input came from.

mod between;
mod internet;
mod keyed;
mod list;
pub mod mutation;
pub mod targets;

pub use list::{TARGETS, target};

/// Something that eats hostile bytes.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name: of its file in `src/targets/` and of its folder in `corpus/`.
    pub name: &'static str,
    /// Takes any bytes; panics when a law is broken.
    pub run: fn(&[u8]),
    /// Valid inputs made from values, so that mutations start deep inside the format, and follow
    /// it when it changes.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// How many mutations of known inputs the replay tries: about a second's worth at most.
    pub mutations: usize,
}
