//! Differences between a plan and the host, for status, the log, and the code that acts on them.

use std::{fmt, time::Instant};

use super::{item::Item, present::Standing};
use crate::error::Error;

/// One difference between a plan and the host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Deviation {
    /// The part of the plan.
    pub part: Part,
    /// The item as people know it: `the route to 0.0.0.0/0 in table 29295`.
    pub what: String,
    /// Missing, changed or unknown.
    pub standing: Standing,
    /// The action taken.
    pub outcome: Outcome,
}

/// The parts of a plan. The worst losses come first.
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

/// The action taken on a deviation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// None: the item was only examined, or waits for its interface.
    Found,
    /// The item was restored.
    PutBack,
    /// Another program keeps removing the item. It is restored at this time.
    Waits(Instant),
    /// The item could not be restored, for this reason.
    Failed(String),
}

impl Deviation {
    /// A packet filter that cannot be looked at, for this reason.
    pub(super) fn unknown(item: &Item, why: &Error) -> Self {
        Self::new(item, Standing::Unknown, Outcome::Failed(why.to_string()))
    }

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
            Item::Address { .. }
            | Item::Route { .. }
            | Item::Excluded { .. }
            | Item::Rule { .. } => Self::Routing,
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
            Standing::Unknown => "cannot be checked",
        };
        write!(f, "{} {how}", self.what)
    }
}
