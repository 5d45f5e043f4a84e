//! Configuration files: TOML, checked as a whole before anything is touched.
//!
//! Two steps: serde reads the `Raw` shape and refuses unknown keys; then every value becomes a type
//! that needs no more checks. Every error names file, line, key and cure. A missing client file
//! means the defaults; a missing gateway file is an error, since nobody can guess its endpoints.

mod client;
mod dns;
mod gateway;
mod hop;
mod interface;
mod link;
mod log;
mod paths;
mod persistence;
mod proxy;
mod qos;
mod relocation;
mod source;

pub use client::ClientConfig;
pub use dns::DnsChoice;
pub use gateway::{GatewayConfig, StoreUrl};
pub use hop::{HopConfig, HopSource};
pub use link::{LinkSeen, LinkSetting, LinkTerms, LinkUse, UsedBy, kind_of};
pub use log::{LogConfig, LogFormat, LogLevel};
pub use paths::{
    LinkMode, LinkScheduler, PathManager, PathsConfig, RecoveryFor, Subflows, TransportChoice,
};
pub use persistence::Persistence;
pub use proxy::{ProxyChoice, ProxyUrl};
pub use relocation::Relocation;

#[cfg(test)]
mod tests;
