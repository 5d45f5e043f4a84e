//! `[persistence]`, which clients and gateways have in common.

use serde::Deserialize;
use toml::Spanned;

use super::source::{ConfigError, Source};
use crate::values::Lifetime;

/// A day: through a night and a flight.
const TIMEOUT: Lifetime = Lifetime::from_seconds(24 * 3_600);
const TIMEOUT_MIN: Lifetime = Lifetime::from_seconds(60);
const TIMEOUT_MAX: Lifetime = Lifetime::from_seconds(30 * 86_400);

/// How long what is away is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Persistence {
    /// How long a session is kept, keys and all, without a word from its other end: 1 minute to 30
    /// days. Later a handshake makes a new one, with the same inner addresses.
    pub timeout: Lifetime,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawPersistence {
    timeout: Option<Spanned<String>>,
}

impl RawPersistence {
    pub(super) fn validate(&self, source: &Source) -> Result<Persistence, ConfigError> {
        let Some(raw) = &self.timeout else { return Ok(Persistence::default()) };
        let key = "persistence.timeout";
        let timeout: Lifetime = source.value(key, raw)?;
        if !(TIMEOUT_MIN..=TIMEOUT_MAX).contains(&timeout) {
            let what = format!("{timeout} is not between {TIMEOUT_MIN} and {TIMEOUT_MAX}");
            return Err(source.invalid(&raw.span(), key, what));
        }
        Ok(Persistence { timeout })
    }
}

impl Default for Persistence {
    fn default() -> Self {
        Self { timeout: TIMEOUT }
    }
}
