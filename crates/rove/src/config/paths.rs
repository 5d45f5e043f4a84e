//! `[paths]`: what a client makes of its links.

use std::fmt;
use std::str::FromStr;

use rove_proto::bond::Mode;
use rove_proto::bond::choice::Scheduler;
use serde::{Deserialize, Serialize};
use toml::Spanned;

use super::source::{ConfigError, Source};
use crate::values::{Misspelt, serialise_as_text};

/// What is made of the links.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct PathsConfig {
    /// How many of them carry.
    pub mode: LinkMode,
    /// How those that carry together are chosen among.
    pub scheduler: LinkScheduler,
}

/// How many links carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LinkMode {
    /// All, together.
    Full,
    /// One; by each of the others a path is proven before it is needed.
    #[default]
    Backup,
    /// One, and no other is prepared.
    Single,
}

/// How links that carry together are chosen among, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct LinkScheduler(pub Scheduler);

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawPaths {
    mode: Option<Spanned<String>>,
    scheduler: Option<Spanned<String>>,
}

impl RawPaths {
    pub(super) fn validate(&self, source: &Source) -> Result<PathsConfig, ConfigError> {
        let mut config = PathsConfig::default();
        if let Some(mode) = &self.mode {
            config.mode = source.value("paths.mode", mode)?;
        }
        if let Some(scheduler) = &self.scheduler {
            config.scheduler = source.value("paths.scheduler", scheduler)?;
        }
        Ok(config)
    }
}

impl LinkMode {
    /// The same for the core.
    pub const fn in_core(self) -> Mode {
        match self {
            Self::Full => Mode::Full,
            Self::Backup => Mode::Backup,
            Self::Single => Mode::Single,
        }
    }
}

impl FromStr for LinkMode {
    type Err = Misspelt;

    fn from_str(text: &str) -> Result<Self, Misspelt> {
        match text {
            "full" => Ok(Self::Full),
            "backup" => Ok(Self::Backup),
            "single" => Ok(Self::Single),
            _ => Err(Misspelt::new(format!("{text:?} is no mode: write full, backup or single"))),
        }
    }
}

impl fmt::Display for LinkMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "full",
            Self::Backup => "backup",
            Self::Single => "single",
        })
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

serialise_as_text!(LinkScheduler);
