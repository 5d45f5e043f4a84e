//! The networks of a scenario, how its client uses them, and how the client finds the gateway.
//!
//! This module defines what a scenario may ask for. It does not know the backend.

use crate::emu::{End, Filtering, LinkConfig, PipeConfig};
use crate::world::Heuristic;

/// The networks.
#[derive(Clone, Debug)]
pub struct Terrain {
    /// The links between the client and each of its networks.
    pub link: LinkConfig,
    /// Further links of the client from the beginning, each in a network of its own: at most
    /// [`Self::BESIDE_MAX`].
    pub beside: Vec<LinkConfig>,
    /// One queue for each direction that all links share beyond them, and so does the traffic of
    /// others on the open route beside the tunnel. None by default.
    pub bottleneck: Option<LinkConfig>,
    /// How the client uses several links.
    pub mode: Mode,
    /// The scheduler of client and gateway for several links, as in the configuration: one of
    /// [`SCHEDULERS`].
    pub scheduler: &'static str,
    /// The transport, as in the configuration: one of [`TRANSPORTS`].
    pub transport: &'static str,
    /// The paths in use, in mode `full`.
    pub spread: Spread,
    /// Whether paths that share a bottleneck are coupled. `false` in virtual time only.
    pub couples: bool,
    /// Whether a path uses CUBIC's window beside a competitor that fills the queue. `false` in
    /// virtual time only.
    pub competes: bool,
    /// Whether packets from several paths are delivered in order. `false` in virtual time only.
    pub reorders: bool,
    /// Whether both ends fall back to single sends if segmented ones lose more. `false` in virtual
    /// time only.
    pub judges_offload: bool,
    /// The name of a heuristic that both tunnel ends leave out: in virtual time only, and in a lab
    /// that is built for it.
    pub without: Option<&'static str>,
    /// Both ends call this function for each heuristic that they ask for, in their own thread: in
    /// virtual time only, and in a lab that is built for it.
    pub asks: Option<fn(Heuristic)>,
    /// The flows with the server that both tunnel ends compress. In virtual time only.
    pub compress: Compress,
    /// Whether packets that wait share datagrams. `false` in virtual time only.
    pub aggregates: bool,
    /// Whether both tunnel ends leave out headers that the other one knows.
    pub elides: bool,
    /// The connections that both tunnel ends acknowledge locally.
    pub assist: Assist,
    /// The device between the client's first network and the Internet.
    pub edge: Edge,
    /// One-way delay from there to the gateway, in nanoseconds; the same in the other direction.
    pub beyond_ns: u64,
    /// The IP versions of the client's networks.
    pub families: Families,
    /// How the client finds the gateway.
    pub known: Known,
    /// Whether the client's configuration asks for low latency for calls that are not RTP.
    pub early: bool,
    /// Priorities of the server's addresses in the client's configuration: address and level, 1 to
    /// 3.
    pub levels: &'static [(u8, u8)],
    /// The number of clients. All but the first only wait to be called.
    pub clients: usize,
}

/// The flows that are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compress {
    /// No flow.
    #[default]
    Off,
    /// Each flow that pays.
    PerFlow,
    /// All flows, if they pay together.
    Together,
    /// All flows, whether it pays or not.
    All,
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

/// How a client uses several links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// One link carries traffic, and no other path is prepared.
    Single,
    /// One link carries traffic; the others can take over at once.
    #[default]
    Backup,
    /// All links carry traffic.
    Full,
}

/// The names of schedulers, the default first.
pub const SCHEDULERS: &[&str] =
    &["earliest", "rtt", "round-robin", "redundant", "loss", "rate", "latency"];

/// The names of transports, the default first.
pub const TRANSPORTS: &[&str] = &["auto", "udp", "tcp", "mptcp"];

/// The paths of a client's links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spread {
    /// Whether each link has a path to each of the gateway's addresses, or one path.
    pub mesh: bool,
    /// Paths for each pair of addresses.
    pub subflows: u8,
}

impl Default for Spread {
    fn default() -> Self {
        Self::ONE
    }
}

impl Spread {
    /// One path on each link.
    pub const ONE: Self = Self { mesh: false, subflows: 1 };
}

/// Connections that are acknowledged where they enter the tunnel, as in the configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Assist {
    /// None.
    Off,
    /// Bulk connections, if several links carry traffic.
    #[default]
    On,
}

/// The IP versions of the client's networks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Families {
    /// The same in all of them.
    Same,
    /// The first has IPv4 only, and the one that the client moves to has IPv6 only. The gateway is
    /// known by an address of each.
    Differ,
}

/// How the client finds the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// By its addresses.
    ByAddress,
    /// By two addresses of one family; the gateway has both.
    ByTwoAddresses,
    /// By a name that always resolves to the gateway's present address. Resolvers may cache the
    /// answer for this many seconds.
    ByName {
        /// The time to live of the records.
        keep_s: u64,
    },
}

/// The device between a network and the Internet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// Any that the backend has: the scenario does not depend on it.
    Any,
    /// None: the client has an address of the Internet.
    Open,
    /// A NAT that filters, and whose mappings expire.
    Nat {
        /// The packets that it lets in.
        filtering: Filtering,
        /// Lifetime of a mapping after its last packet from inside, in nanoseconds.
        expiry_ns: u64,
    },
}

impl Terrain {
    /// The most links beside the first: four in all are a mesh.
    pub const BESIDE_MAX: usize = 3;

    /// Links like this one, behind any device.
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
            compress: Compress::Off,
            aggregates: true,
            elides: false,
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

    /// The gateway's own link, by its ends; the first end is the gateway.
    pub fn beyond(&self) -> [(End, PipeConfig); 2] {
        let LinkConfig { up, down } = self.bottleneck.clone().unwrap_or_default();
        [(End::A, down), (End::B, up)].map(|(end, pipe)| {
            (end, PipeConfig { delay_ns: pipe.delay_ns + self.beyond_ns, ..pipe })
        })
    }

    /// The round trip between client and gateway, in nanoseconds, without serialisation.
    pub const fn round_trip_ns(&self) -> u64 {
        self.link.round_trip_ns() + 2 * self.beyond_ns
    }
}
