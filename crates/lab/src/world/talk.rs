//! Connections in a world of random operations: what runs over them, and that what was promised to
//! their ends happens once trouble is over.
//!
//! Limits: both ends are patient ([`Config`] as Linux has it), and no program closes before all is
//! said. A connection that has not ended by the end of a [`super::Op::Settle`] is given up there by
//! both ends: what comes after wants idle links.

use crate::emu::Rng;
use crate::tcp::CongestionControl;

/// Addresses of the server, to which they are opened in turn.
pub(super) const SERVERS: u8 = 3;

/// What runs over a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Talk {
    /// Bytes that the client says.
    pub up: u32,
    /// Bytes that the server says.
    pub down: u32,
    /// Milliseconds between two pieces of them; 0 for as fast as TCP takes it.
    pub every_ms: u16,
    /// How both ends control congestion.
    pub congestion: CongestionControl,
    /// Whether both probe a silent peer.
    pub keeps_alive: bool,
    /// Whether both read slowly, from a small buffer.
    pub sips: bool,
}

impl Talk {
    /// One by chance, which takes at most 130 seconds on a good network.
    pub(super) fn draw(rng: &mut Rng) -> Self {
        use CongestionControl::{Bbr, Cubic, Reno};
        let every_ms = [0, 0, 20, 200, 1_000][rng.below(5) as usize];
        let most = [1, 3_000, 100_000, if every_ms == 0 { 1_000_000 } else { 100_000 }];
        let mut some = || {
            let kind = rng.below(4) as usize;
            1 + rng.below(most[kind]) as u32
        };
        let (up, down) = (some(), some());
        let (up, down) = [(up, 0), (0, down), (up, down)][rng.below(3) as usize];
        let congestion = [Reno, Cubic, Bbr][rng.below(3) as usize];
        let (keeps_alive, sips) = (rng.chance(0.4), rng.chance(0.3));
        Self { up, down, every_ms, congestion, keeps_alive, sips }
    }
}
