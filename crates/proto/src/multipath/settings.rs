//! What a client may ask for: which of its links carry, by which paths, and what flows have by
//! repair.

/// What is made of the links that a client has.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Mode {
    /// One path carries, and no other is prepared: where it dies, one is looked for then.
    Single,
    /// One path carries; by every other link one is proven ahead of need.
    Backup,
    /// What every link can carry, together.
    #[default]
    Full,
}

/// What a flow has by having its losses mended.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Recovery {
    /// What the links carry in sum: as much of it may wait at the entry as lasts until a gap is
    /// mended.
    #[default]
    Throughput,
    /// A short queue at the entry, as if nothing were mended, and less of the sum where something
    /// is lost.
    Latency,
}

impl Recovery {
    /// Its number on the wire (docs/spec/wire.md#4-control).
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The one with that number on the wire; `None` for one of a later version.
    pub const fn numbered(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Throughput),
            1 => Some(Self::Latency),
            _ => None,
        }
    }
}

/// Which paths carry together, where the mode is [`Mode::Full`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Spread {
    /// From which links to which of the gateway's addresses.
    pub manager: Manager,
    /// How many paths lead from one address to the other, each by a port of its own; 1 to
    /// [`SUBFLOWS_MAX`].
    pub subflows: u8,
}

/// What decides which paths there are (Lukaszewski's thesis, 2.2.2: the path managers of MPTCP).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Manager {
    /// Each link has its best.
    #[default]
    OnePerLink,
    /// Each link has one to each of the gateway's addresses.
    FullMesh,
}

/// Paths from one address to another.
pub const SUBFLOWS_MAX: u8 = 4;

impl Default for Spread {
    fn default() -> Self {
        Self { manager: Manager::default(), subflows: 1 }
    }
}
