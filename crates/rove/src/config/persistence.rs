//! `[persistence]`, which clients and gateways have in common.

use rove_proto::flow::Hold;
use serde::Deserialize;
use toml::Spanned;

use super::source::{ConfigError, Source};
use crate::values::Lifetime;

/// A day: through a night and a flight.
const TIMEOUT: Lifetime = Lifetime::from_seconds(24 * 3_600);
const TIMEOUT_MIN: Lifetime = Lifetime::from_seconds(60);
const TIMEOUT_MAX: Lifetime = Lifetime::from_seconds(30 * 86_400);
const MEBIBYTE: usize = 1 << 20;
/// Room for what is on its way of a dozen fast connections.
const MEMORY_MB: u16 = 64;
const MEMORY_MB_MIN: u16 = 1;
const MEMORY_MB_MAX: u16 = 16_384;

/// How long what is away is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Persistence {
    /// How long a session is kept, keys and all, without a word from its other end: 1 minute to 30
    /// days. Later a handshake makes a new one, with the same inner addresses.
    pub timeout: Lifetime,
    /// What is done for open TCP connections while there is no way.
    pub hold: Hold,
    /// How much of them may be kept together, in bytes: 1 MB to 16 GB.
    pub memory: usize,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawPersistence {
    timeout: Option<Spanned<String>>,
    hold: Option<Spanned<String>>,
    memory_mb: Option<Spanned<u16>>,
}

impl RawPersistence {
    pub(super) fn validate(&self, source: &Source) -> Result<Persistence, ConfigError> {
        let mut persistence = Persistence::default();
        if let Some(raw) = &self.timeout {
            let key = "persistence.timeout";
            let timeout: Lifetime = source.value(key, raw)?;
            if !(TIMEOUT_MIN..=TIMEOUT_MAX).contains(&timeout) {
                let what = format!("{timeout} is not between {TIMEOUT_MIN} and {TIMEOUT_MAX}");
                return Err(source.invalid(&raw.span(), key, what));
            }
            persistence.timeout = timeout;
        }
        if let Some(raw) = &self.hold {
            persistence.hold = match raw.get_ref().as_str() {
                "full" => Hold::Full,
                "reinject" => Hold::Reinject,
                "off" => Hold::Off,
                other => {
                    let what = format!("\"{other}\" is not one of \"full\", \"reinject\", \"off\"");
                    return Err(source.invalid(&raw.span(), "persistence.hold", what));
                }
            };
        }
        if let Some(raw) = &self.memory_mb {
            let megabytes = *raw.get_ref();
            if !(MEMORY_MB_MIN..=MEMORY_MB_MAX).contains(&megabytes) {
                let what =
                    format!("{megabytes} is not between {MEMORY_MB_MIN} and {MEMORY_MB_MAX}");
                return Err(source.invalid(&raw.span(), "persistence.memory_mb", what));
            }
            persistence.memory = usize::from(megabytes) * MEBIBYTE;
        }
        Ok(persistence)
    }
}

impl Default for Persistence {
    fn default() -> Self {
        let memory = usize::from(MEMORY_MB) * MEBIBYTE;
        Self { timeout: TIMEOUT, hold: Hold::Reinject, memory }
    }
}
