//! Fuzz targets: one plain function from bytes to a panic, or to nothing.
//!
//! The same function is called twice over: by `tests/replay.rs` on the stable toolchain, with the
//! committed corpus, valid inputs made by the target itself and a fixed number of mutations of
//! both; and by libFuzzer, which looks for new inputs (`cargo xtask fuzz TARGET`). A target states
//! laws, not only the absence of panics. It refuses to know where its input came from.

mod between;
mod internet;
mod keyed;
pub mod mutation;
pub mod targets;

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

/// Every target.
pub const TARGETS: &[Target] = &[
    targets::bus_answer::TARGET,
    targets::control::TARGET,
    targets::control_request::TARGET,
    targets::data_header::TARGET,
    targets::dns_answer::TARGET,
    targets::exchange::TARGET,
    targets::first_bytes::TARGET,
    targets::frames::TARGET,
    targets::handshake::TARGET,
    targets::http_answer::TARGET,
    targets::inner_packet::TARGET,
    targets::invite::TARGET,
    targets::keyed_client::TARGET,
    targets::keyed_gateway::TARGET,
    targets::netlink::TARGET,
    targets::plan_journal::TARGET,
    targets::sealed::TARGET,
    targets::session::TARGET,
    targets::store_record::TARGET,
    targets::stream_frames::TARGET,
    targets::tun_merge::TARGET,
    targets::tun_split::TARGET,
    targets::world::TARGET,
];

/// The target of that name.
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}
