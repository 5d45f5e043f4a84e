//! The common part of the configuration files of clients and gateways: reading TOML, error
//! messages, and the tables that both files have.
//!
//! Two steps: serde reads the `Raw` shape and refuses unknown keys; then every value becomes a type
//! that needs no more checks. Every error names file, line, key and cure.

mod interface;
mod log;
mod persistence;
mod rules;
mod saving;
mod security;
mod source;

pub use interface::InterfaceName;
pub use log::{LogConfig, LogFormat, LogLevel, RawLog};
pub use persistence::{Persistence, RawPersistence};
pub use rules::{Device, FlowRules, RawDevice, RawRule};
pub use saving::{DataUse, RawSaving, Saving};
pub use security::{RawSecurity, Security};
pub use source::{ConfigError, Source};
