//! What of a plan is not as it was put in place: for status, log and whoever decides what to do.

use std::{fmt, time::Instant};

use super::{item::Item, present::Standing};

/// One difference between a plan and the host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Deviation {
    /// Which part of the plan.
    pub part: Part,
    /// The thing itself, as people know it: `the route to 0.0.0.0/0 in table 29295`.
    pub what: String,
    /// Missing or changed.
    pub standing: Standing,
    /// What was done about it.
    pub outcome: Outcome,
}

/// The parts of a plan, those first whose loss is worst.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Part {
    /// The tunnel's interface.
    Device,
    /// The kill switch.
    KillSwitch,
    /// Packet filters and NAT.
    Filter,
    /// Addresses, routes, rules.
    Routing,
    /// Kernel settings, forwarding among them.
    Setting,
    /// Name servers.
    Dns,
    /// MPTCP's subflows.
    Subflow,
}

/// What was done about a deviation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Nothing: it was only looked at, or waits for its interface.
    Found,
    /// It is in place again.
    PutBack,
    /// Somebody keeps taking it away: it is put back then.
    Waits(Instant),
    /// It could not be put back: why.
    Failed(String),
}

impl Deviation {
    pub(super) fn new(item: &Item, standing: Standing, outcome: Outcome) -> Self {
        Self { part: Part::of(item), what: item.to_string(), standing, outcome }
    }
}

impl Part {
    fn of(item: &Item) -> Self {
        match item {
            Item::Device { .. } => Self::Device,
            Item::KillSwitch(_) => Self::KillSwitch,
            Item::Gateway(_) | Item::Guard(_) => Self::Filter,
            Item::Address { .. } | Item::Route { .. } | Item::Rule { .. } => Self::Routing,
            Item::Sysctl { .. } => Self::Setting,
            Item::Dns { .. } => Self::Dns,
            Item::MptcpLimit(..) | Item::Subflow(_) => Self::Subflow,
        }
    }
}

/// `the routing rule ... is missing`.
impl fmt::Display for Deviation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = match self.standing {
            Standing::InPlace => "is in place",
            Standing::Missing => "is missing",
            Standing::Changed => "was changed",
        };
        write!(f, "{} {how}", self.what)
    }
}
