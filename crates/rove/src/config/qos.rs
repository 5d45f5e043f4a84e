//! `[qos]`: what a client wants to be early, and by where it goes.

use rove_proto::flow::live::Early;
use rove_proto::wire::control::{ENDS_MAX, End, Prefix};
use serde::Deserialize;
use toml::Spanned;

use super::source::{ConfigError, Source};
use crate::values::Destination;

/// Which flows are treated in another way than by what they look like.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QosConfig {
    /// Destinations whose flows leave early, both ways: at most [`ENDS_MAX`].
    pub low_latency: Vec<Destination>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawQos {
    low_latency: Option<Spanned<Vec<Spanned<String>>>>,
}

impl RawQos {
    pub(super) fn validate(&self, source: &Source) -> Result<QosConfig, ConfigError> {
        let mut config = QosConfig::default();
        if let Some(list) = &self.low_latency {
            config.low_latency = source.list("qos.low_latency", list, ENDS_MAX)?;
        }
        Ok(config)
    }
}

impl QosConfig {
    /// The same for the core.
    pub fn early(&self) -> Early {
        let end = |to: &Destination| End {
            network: Prefix { address: to.network.network(), bits: to.network.prefix_len() },
            port: to.port,
        };
        Early::new(&self.low_latency.iter().map(end).collect::<Vec<_>>())
    }
}
