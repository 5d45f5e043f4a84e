//! What the networks of a story are like, what its client makes of them, and how it knows the
//! gateway.
//!
//! Decides what can be asked for. What it refuses to know: how a ground makes it.

use crate::emu::{End, Filtering, LinkConfig, PipeConfig};
use crate::world::Heuristic;

/// What the networks are like.
#[derive(Clone, Debug)]
pub struct Terrain {
    /// The links by which the client reaches each of its networks.
    pub link: LinkConfig,
    /// The links that the client has beside that one from the beginning, each in a network of its
    /// own: at most [`Self::BESIDE_MAX`].
    pub beside: Vec<LinkConfig>,
    /// What all of these lead through beyond them, as what others send does that takes the open
    /// route beside the tunnel: one queue for all, each way. Nothing unless it is said.
    pub bottleneck: Option<LinkConfig>,
    /// What the client makes of its links.
    pub mode: Mode,
    /// How client and gateway choose among links that carry together, as the configuration has
    /// it: one of [`SCHEDULERS`].
    pub scheduler: &'static str,
    /// What carries datagrams, as the configuration has it: one of [`TRANSPORTS`].
    pub transport: &'static str,
    /// Which paths carry together, where all links do.
    pub spread: Spread,
    /// Whether paths that lead through one queue take there what one would: that they do not is
    /// told in virtual time only.
    pub couples: bool,
    /// Whether a path is sent on as others do beside somebody who fills its queue: that it is not
    /// is told in virtual time only.
    pub competes: bool,
    /// Whether what came by several paths is delivered in sequence: that it is not is told in
    /// virtual time only.
    pub reorders: bool,
    /// Whether both ends fall back to single sends where segmented ones lose more: that they do
    /// not is told in virtual time only.
    pub judges_offload: bool,
    /// The name of a heuristic that both ends of the tunnel go without: in virtual time only, and
    /// in a lab that is built for it.
    pub without: Option<&'static str>,
    /// Both ends call this function for each heuristic that they ask for, in their own thread: in
    /// virtual time only, and in a lab that is built for it.
    pub asks: Option<fn(Heuristic)>,
    /// Which connections both ends of the tunnel assist.
    pub assist: Assist,
    /// What is between the client's first network and the Internet.
    pub edge: Edge,
    /// The way from there to the gateway, in nanoseconds; as long back.
    pub beyond_ns: u64,
    /// The IP versions of the client's networks.
    pub families: Families,
    /// How the client knows the gateway.
    pub known: Known,
    /// Whether the client is told that talks which are no voice are wanted early.
    pub early: bool,
    /// What the client is told of the server's addresses: which is of which level, 1 to 3.
    pub levels: &'static [(u8, u8)],
    /// How many clients there are; all but the first only wait to be called.
    pub clients: usize,
}

/// Other load on the machines of client and gateway: one program per core that never sleeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Load {
    /// No other load.
    #[default]
    None,
    /// Programs of the same priority as the tested programs.
    Equal,
    /// Programs of raised priority.
    Raised,
}

impl Load {
    /// The load with this name: `none`, `equal` or `raised`.
    pub fn named(name: &str) -> Self {
        match name {
            "equal" => Self::Equal,
            "raised" => Self::Raised,
            _ => Self::None,
        }
    }
}

/// What a client makes of several links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// One carries, and no other is prepared.
    Single,
    /// One carries; by the others it could go on at once.
    #[default]
    Backup,
    /// All carry.
    Full,
}

/// By what names links that carry together are chosen among, the usual one first.
pub const SCHEDULERS: &[&str] =
    &["earliest", "rtt", "round-robin", "redundant", "loss", "rate", "latency"];

/// By what names what carries datagrams is asked for, the usual one first.
pub const TRANSPORTS: &[&str] = &["auto", "udp", "tcp", "mptcp"];

/// Which paths a client's links carry by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spread {
    /// Whether there is one to each of the gateway's addresses by each link, or one by each.
    pub mesh: bool,
    /// How many there are from one address to the other.
    pub subflows: u8,
}

impl Default for Spread {
    fn default() -> Self {
        Self::ONE
    }
}

impl Spread {
    /// One by each link.
    pub const ONE: Self = Self { mesh: false, subflows: 1 };
}

/// Which connections are acknowledged where they enter the tunnel, as the configuration has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Assist {
    /// None.
    Off,
    /// Those that send much, where links carry together.
    #[default]
    On,
}

/// The IP versions of the client's networks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Families {
    /// The same in all of them.
    Same,
    /// The first has IPv4 only, the one that the client moves to IPv6 only; the gateway is known
    /// by an address of each.
    Differ,
}

/// How the client knows the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// By its addresses.
    ByAddress,
    /// By two of one family, both of which it has.
    ByTwoAddresses,
    /// By a name, which always leads to where the gateway is; who has asked may keep the answer for
    /// so many seconds.
    ByName {
        /// The time to live of the records.
        keep_s: u64,
    },
}

/// What is between a network and the Internet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// Whatever the ground has there: the story does not depend on it.
    Any,
    /// Nothing: the client has an address of the Internet's.
    Open,
    /// A NAT box that filters, and forgets.
    Nat {
        /// Whom it lets in.
        filtering: Filtering,
        /// How long after a mapping's last packet from inside, in nanoseconds.
        expiry_ns: u64,
    },
}

impl Terrain {
    /// The most links beside the first: four in all are a mesh.
    pub const BESIDE_MAX: usize = 3;

    /// Links like this, whatever is behind them.
    pub const fn of(link: LinkConfig) -> Self {
        let (edge, families, known) = (Edge::Any, Families::Same, Known::ByAddress);
        Self {
            link,
            beside: Vec::new(),
            bottleneck: None,
            mode: Mode::Full,
            scheduler: SCHEDULERS[0],
            transport: TRANSPORTS[0],
            spread: Spread::ONE,
            couples: true,
            competes: true,
            reorders: true,
            judges_offload: true,
            without: None,
            asks: None,
            assist: Assist::On,
            edge,
            beyond_ns: 0,
            families,
            known,
            early: false,
            levels: &[],
            clients: 1,
        }
    }

    /// What the gateway's own link is like, by its ends, of which the first is the gateway.
    pub fn beyond(&self) -> [(End, PipeConfig); 2] {
        let LinkConfig { up, down } = self.bottleneck.clone().unwrap_or_default();
        [(End::A, down), (End::B, up)].map(|(end, pipe)| {
            (end, PipeConfig { delay_ns: pipe.delay_ns + self.beyond_ns, ..pipe })
        })
    }

    /// The round trip between client and gateway, in nanoseconds, serialisation left aside.
    pub const fn round_trip_ns(&self) -> u64 {
        self.link.round_trip_ns() + 2 * self.beyond_ns
    }
}
