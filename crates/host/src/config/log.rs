//! The `[log]` table, the same in every file.

use std::fmt;
use std::str::FromStr;

use serde::Deserialize;
use toml::Spanned;

use super::source::{ConfigError, Source};
use crate::values::Misspelt;

/// How much is logged, and in which form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct LogConfig {
    /// The least important event that is logged.
    pub level: LogLevel,
    /// The form of a line.
    pub format: LogFormat,
}

/// The least important event that is logged. Addresses and names appear at `debug` only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum LogLevel {
    /// Only failures.
    Error,
    /// Also warnings.
    Warn,
    /// Also normal events.
    #[default]
    Info,
    /// Also addresses and names.
    Debug,
    /// Also events of single packets.
    Trace,
}

/// The form of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// `[log]` as it is written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawLog {
    level: Option<Spanned<String>>,
    format: Option<Spanned<String>>,
}

impl RawLog {
    /// The checked values.
    pub fn validate(&self, source: &Source) -> Result<LogConfig, ConfigError> {
        let mut config = LogConfig::default();
        if let Some(level) = &self.level {
            config.level = source.value("log.level", level)?;
        }
        if let Some(format) = &self.format {
            config.format = source.value("log.format", format)?;
        }
        Ok(config)
    }
}

impl FromStr for LogLevel {
    type Err = Misspelt;

    fn from_str(text: &str) -> Result<Self, Misspelt> {
        match text {
            "error" => Ok(Self::Error),
            "warn" => Ok(Self::Warn),
            "info" => Ok(Self::Info),
            "debug" => Ok(Self::Debug),
            "trace" => Ok(Self::Trace),
            _ => Err(Misspelt::new(format!(
                "{text:?} is no level: write error, warn, info, debug or trace"
            ))),
        }
    }
}

impl FromStr for LogFormat {
    type Err = Misspelt;

    fn from_str(text: &str) -> Result<Self, Misspelt> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err(Misspelt::new(format!("{text:?} is no log format: write text or json"))),
        }
    }
}

impl fmt::Display for LogFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Text => "text",
            Self::Json => "json",
        })
    }
}
