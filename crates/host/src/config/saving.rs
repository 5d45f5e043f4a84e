//! `[saving]`, which clients and gateways have in common: how bytes are saved on the links.

pub use rove_api::DataUse;
use rove_proto::codec::SavingConfig;
use rove_proto::codec::allowed::{Allowed, BITS_MIN, RULES_MAX, Rule, WEB_PORTS};
use rove_proto::codec::coding::Coding;
use rove_proto::codec::dictionary;
use rove_proto::crypto::Features;
use rove_proto::wire::control::{End, Prefix};
use serde::Deserialize;
use toml::Spanned;

use super::source::{ConfigError, Source};
use crate::values::Destination;

/// The word for a rule that compresses nothing, and lets packets of its flows share datagrams.
const JOIN: &str = "join";

/// How bytes are saved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Saving {
    /// Whether headers that stay the same travel once, if the other end wants that, too.
    pub headers: bool,
    /// Whether packets that wait for the same path share datagrams.
    pub aggregate: bool,
    /// Client: whether compressed packets are padded to a multiple of 32 bytes.
    pub pad: bool,
    /// Client: when the session uses as little data as it can.
    pub data: DataUse,
    /// Client: the flows that are compressed; the first rule that matches counts, and there are at
    /// most [`RULES_MAX`].
    pub compress: Vec<Rule>,
}

/// `[saving]` as it is written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawSaving {
    headers: Option<bool>,
    aggregate: Option<bool>,
    pad: Option<bool>,
    data: Option<Spanned<String>>,
    compress: Option<Spanned<Vec<Spanned<RawRule>>>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRule {
    to: Spanned<String>,
    with: Option<Spanned<String>>,
}

impl RawSaving {
    /// The checked values of a client's file.
    pub fn validate(&self, source: &Source) -> Result<Saving, ConfigError> {
        let mut saving = Saving::default();
        saving.headers = self.headers.unwrap_or(saving.headers);
        saving.aggregate = self.aggregate.unwrap_or(saving.aggregate);
        saving.pad = self.pad.unwrap_or(saving.pad);
        if let Some(raw) = &self.data {
            saving.data = source.value("saving.data", raw)?;
        }
        if let Some(raw) = &self.compress {
            if raw.get_ref().len() > RULES_MAX {
                let what = format!("has more than {RULES_MAX} entries: leave some out");
                return Err(source.invalid(&raw.span(), "saving.compress", what));
            }
            let rules = raw.get_ref().iter().map(|rule| RawRule::validate(rule, source));
            saving.compress = rules.collect::<Result<_, _>>()?;
        }
        Ok(saving)
    }

    /// The checked values of a gateway's file: its clients say which flows are compressed.
    pub fn validate_gateway(&self, source: &Source) -> Result<Saving, ConfigError> {
        let of_client = "belongs in client.toml: each client says it for its own flows, and the \
                         gateway follows";
        if let Some(raw) = &self.compress {
            return Err(source.invalid(&raw.span(), "saving.compress", of_client));
        }
        if let Some(raw) = &self.data {
            return Err(source.invalid(&raw.span(), "saving.data", of_client));
        }
        if self.pad.is_some() {
            return Err(source.invalid(&(0..0), "saving.pad", of_client));
        }
        self.validate(source)
    }
}

impl RawRule {
    fn validate(raw: &Spanned<Self>, source: &Source) -> Result<Rule, ConfigError> {
        let Self { to, with } = raw.get_ref();
        let key = "saving.compress.to";
        let end: Destination = source.value(key, to)?;
        let (address, bits) = (end.network.network(), end.network.prefix_len());
        if bits < BITS_MIN {
            let what = format!(
                "{:?} is not a destination that you know: name a network of at least /{BITS_MIN}",
                to.get_ref()
            );
            return Err(source.invalid(&to.span(), key, what));
        }
        if let Some(port) = end.port.filter(|port| WEB_PORTS.contains(port)) {
            let what = format!(
                "port {port} carries web pages, which are never compressed: lengths would tell \
                 secrets; leave the rule out"
            );
            return Err(source.invalid(&to.span(), key, what));
        }
        let coding = match with {
            Some(with) => coding(source, with)?,
            None => Coding::LZ4,
        };
        let network = Prefix { address, bits };
        Ok(Rule { end: End { network, port: end.port }, coding })
    }
}

/// How a rule's flows are compressed: an algorithm, or the name of a dictionary.
fn coding(source: &Source, with: &Spanned<String>) -> Result<Coding, ConfigError> {
    let word = with.get_ref().as_str();
    let with_dictionary = || Some(Coding::with_dictionary(dictionary::named(word)?.number));
    let found = match word {
        "lz4" => Some(Coding::LZ4),
        "zstd" => Some(Coding::ZSTD),
        JOIN => Some(Coding::NONE),
        _ => with_dictionary(),
    };
    found.ok_or_else(|| {
        let names: Vec<_> = dictionary::ALL.iter().map(|one| format!("\"{}\"", one.name)).collect();
        let what = format!(
            "{word:?} is not one of \"lz4\", \"zstd\", \"{JOIN}\", or of the dictionaries {}",
            names.join(", ")
        );
        source.invalid(&with.span(), "saving.compress.with", what)
    })
}

impl Saving {
    /// The features that this node announces.
    pub fn features(&self) -> Features {
        Features::CONTENT | if self.headers { Features::COMPACT } else { Features::NONE }
    }

    /// The settings of the core. `is_metered` if the link in use is.
    pub fn core(&self, is_metered: bool) -> SavingConfig {
        let frugal = match self.data {
            DataUse::Save => true,
            DataUse::Normal => false,
            DataUse::Auto => is_metered,
        };
        SavingConfig {
            aggregates: self.aggregate || frugal,
            pads: self.pad,
            frugal,
            compress: Allowed::new(&self.compress),
            ..SavingConfig::default()
        }
    }
}

impl Default for Saving {
    fn default() -> Self {
        Self {
            headers: false,
            aggregate: true,
            pad: false,
            data: DataUse::default(),
            compress: Vec::new(),
        }
    }
}

#[cfg(test)]
#[path = "saving_tests.rs"]
mod tests;
