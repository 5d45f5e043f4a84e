//! `[paths]`: what a client makes of its links.

use std::fmt;
use std::str::FromStr;

pub(crate) use rove_api::{LinkMode, PathManager, RecoveryFor, TransportChoice};
use rove_host::config::{ConfigError, Source};
use rove_host::values::Misspelt;
use rove_proto::multipath::scheduler::Scheduler;
use rove_proto::multipath::{Manager, Mode, Recovery, SUBFLOWS_MAX, Spread};
use serde::Deserialize;
use toml::Spanned;

/// What is made of the links.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct PathsConfig {
    /// How many of them carry.
    pub mode: LinkMode,
    /// How those that carry together are chosen among.
    pub scheduler: LinkScheduler,
    /// What connections shall have by repair, where links carry together.
    pub recovery: RecoveryFor,
    /// With mode `full`: by which ways.
    pub manager: PathManager,
    /// With mode `full`: how many paths carry from one address to the other.
    pub subflows: Subflows,
    /// What carries datagrams to the gateway.
    pub transport: TransportChoice,
    /// Somebody chose the scheduler, be it the usual one: then it is said if that has no effect.
    pub is_scheduler_set: bool,
}

/// A number of paths from one address to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subflows(u8);

/// How links that carry together are chosen among, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct LinkScheduler(pub Scheduler);

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawPaths {
    mode: Option<Spanned<String>>,
    scheduler: Option<Spanned<String>>,
    recovery: Option<Spanned<String>>,
    manager: Option<Spanned<String>>,
    subflows: Option<Spanned<u64>>,
    transport: Option<Spanned<String>>,
}

impl RawPaths {
    pub(super) fn validate(&self, source: &Source) -> Result<PathsConfig, ConfigError> {
        let mut config = PathsConfig::default();
        if let Some(mode) = &self.mode {
            config.mode = source.value("paths.mode", mode)?;
        }
        if let Some(scheduler) = &self.scheduler {
            config.scheduler = source.value("paths.scheduler", scheduler)?;
            config.is_scheduler_set = true;
        }
        if let Some(recovery) = &self.recovery {
            config.recovery = source.value("paths.recovery", recovery)?;
        }
        if let Some(manager) = &self.manager {
            config.manager = source.value("paths.manager", manager)?;
        }
        if let Some(subflows) = &self.subflows {
            let checked = Subflows::new(*subflows.get_ref());
            let invalid = |error| source.invalid(&subflows.span(), "paths.subflows", error);
            config.subflows = checked.map_err(invalid)?;
        }
        if let Some(transport) = &self.transport {
            config.transport = source.value("paths.transport", transport)?;
        }
        Ok(config)
    }
}

impl PathsConfig {
    /// Which paths carry together, for the core.
    pub const fn spread(&self) -> Spread {
        let manager = match self.manager {
            PathManager::OnePerLink => Manager::OnePerLink,
            PathManager::FullMesh => Manager::FullMesh,
        };
        Spread { manager, subflows: self.subflows.0 }
    }

    /// The mode, for the core.
    pub const fn core_mode(&self) -> Mode {
        match self.mode {
            LinkMode::Full => Mode::Full,
            LinkMode::Backup => Mode::Backup,
            LinkMode::Single => Mode::Single,
        }
    }

    /// What the repair of losses is tuned for, for the core.
    pub const fn core_recovery(&self) -> Recovery {
        match self.recovery {
            RecoveryFor::Throughput => Recovery::Throughput,
            RecoveryFor::Latency => Recovery::Latency,
        }
    }

    /// Of each that is other than usual and does nothing why, and the cure.
    pub(super) fn all_idle(&self) -> impl Iterator<Item = String> {
        let usual = Self::default();
        let unusual = [
            ("scheduler", self.is_scheduler_set || self.scheduler != usual.scheduler),
            ("recovery", self.recovery != usual.recovery),
            ("manager", self.manager != usual.manager),
            ("subflows", self.subflows != usual.subflows),
        ];
        let unusual = unusual.into_iter().filter(|(_, is_unusual)| *is_unusual);
        unusual.filter_map(|(setting, _)| self.idle(setting))
    }

    /// Why `setting`, of how links carry together, does nothing now, and the cure.
    pub fn idle(&self, setting: &str) -> Option<String> {
        let (mode, full) = (self.mode, LinkMode::Full);
        if mode != full {
            return Some(format!(
                "{setting} does nothing with mode {mode}: `rove set mode {full}`"
            ));
        }
        let is_kernels = self.transport == TransportChoice::Mptcp && setting != "manager";
        is_kernels.then(|| {
            format!(
                "{setting} does nothing with transport mptcp, where the kernel spreads one \
                 connection: leave out transport"
            )
        })
    }
}

impl Subflows {
    /// The number.
    pub const fn number(self) -> u8 {
        self.0
    }

    /// This many paths, if that is allowed.
    pub fn new(number: u64) -> Result<Self, Misspelt> {
        let number = u8::try_from(number).ok().filter(|n| (1..=SUBFLOWS_MAX).contains(n));
        let wrong = || Misspelt::new(format!("write a number from 1 to {SUBFLOWS_MAX}"));
        Ok(Self(number.ok_or_else(wrong)?))
    }
}

impl FromStr for Subflows {
    type Err = Misspelt;

    fn from_str(text: &str) -> Result<Self, Misspelt> {
        Self::new(text.parse().unwrap_or(0))
    }
}

impl Default for Subflows {
    fn default() -> Self {
        Self(1)
    }
}

impl fmt::Display for Subflows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for LinkScheduler {
    type Err = Misspelt;

    fn from_str(text: &str) -> Result<Self, Misspelt> {
        Scheduler::named(text).map(Self).ok_or_else(|| {
            let names = Scheduler::ALL.map(Scheduler::name);
            let (last, others) = names.split_last().unwrap_or((&"", &[]));
            let others = others.join(", ");
            Misspelt::new(format!("{text:?} is no scheduler: write {others} or {last}"))
        })
    }
}

impl fmt::Display for LinkScheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name())
    }
}
