//! `[qos]`: what a client wants to be early, and what it prefers, by where it goes.

use std::collections::BTreeMap;

use rove_host::config::{ConfigError, Source};
use rove_host::values::Destination;
use rove_proto::flow::live::Early;
use rove_proto::flow::priority::{Level, PRIORITIES_MAX, Priorities};
use rove_proto::wire::control::{ENDS_MAX, End, Prefix};
use serde::Deserialize;
use toml::Spanned;

/// Which flows are treated in another way than by what they look like.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct QosConfig {
    /// Destinations whose flows leave early, both ways: at most [`ENDS_MAX`].
    pub low_latency: Vec<Destination>,
    /// Destinations and their levels, each once: at most [`PRIORITIES_MAX`].
    pub priority: Vec<(Destination, Level)>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawQos {
    low_latency: Option<Spanned<Vec<Spanned<String>>>>,
    priority: Option<Spanned<BTreeMap<Spanned<String>, Spanned<i64>>>>,
}

impl RawQos {
    pub(super) fn validate(&self, source: &Source) -> Result<QosConfig, ConfigError> {
        let mut config = QosConfig::default();
        if let Some(list) = &self.low_latency {
            config.low_latency = source.list("qos.low_latency", list, ENDS_MAX)?;
        }
        if let Some(table) = &self.priority {
            config.priority = levels(source, table)?;
        }
        Ok(config)
    }
}

/// The destinations of `[qos] priority`, each with its level.
fn levels(
    source: &Source,
    table: &Spanned<BTreeMap<Spanned<String>, Spanned<i64>>>,
) -> Result<Vec<(Destination, Level)>, ConfigError> {
    const KEY: &str = "qos.priority";
    if table.get_ref().len() > PRIORITIES_MAX {
        let message = format!("has more than {PRIORITIES_MAX} entries: leave some out");
        return Err(source.invalid(&table.span(), KEY, message));
    }
    let mut levels: Vec<(Destination, Level)> = Vec::new();
    for (destination, number) in table.get_ref() {
        let to: Destination = source.value(KEY, destination)?;
        let level = u8::try_from(*number.get_ref()).ok().and_then(Level::numbered);
        let level = level.ok_or_else(|| {
            let message = format!("{} is no level: write 1, 2 or 3", number.get_ref());
            source.invalid(&number.span(), KEY, message)
        })?;
        if levels.iter().any(|&(known, _)| known == to) {
            let message = format!("{to} stands there twice: leave one out");
            return Err(source.invalid(&destination.span(), KEY, message));
        }
        levels.push((to, level));
    }
    Ok(levels)
}

impl QosConfig {
    /// What is wanted early, for the core.
    pub(crate) fn early(&self) -> Early {
        Early::new(&self.low_latency.iter().map(end).collect::<Vec<_>>())
    }

    /// What is preferred, for the core.
    pub(crate) fn priorities(&self) -> Priorities {
        let named = self.priority.iter().map(|(to, level)| (end(to), *level));
        Priorities::new(&named.collect::<Vec<_>>())
    }
}

/// A destination for the core.
fn end(to: &Destination) -> End {
    let network = Prefix { address: to.network.network(), bits: to.network.prefix_len() };
    End { network, port: to.port }
}
