//! `[saving]`, which clients and gateways have in common: how bytes are saved on the links.

pub use rove_api::DataUse;
use rove_proto::codec::SavingConfig;
use rove_proto::codec::allowed::{Allowed, BITS_MIN, RULES_MAX, Rule, WEB_PORTS};
use rove_proto::codec::coding::Coding;
use rove_proto::codec::dictionary::{self, ADDED_MAX, Agreed, Dictionaries};
use rove_proto::crypto::Features;
use rove_proto::wire::control::{End, Prefix};
use serde::Deserialize;
use toml::Spanned;

use super::source::{ConfigError, Source};
use crate::dictionary::SignedDictionary;
use crate::keys::OperatorPublic;
use crate::values::{Destination, Misspelt};

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
    /// Dictionaries of the operator, whose signatures are checked by [`Self::verify`].
    pub dictionaries: Vec<SignedDictionary>,
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
    dictionaries: Option<Spanned<Vec<Spanned<String>>>>,
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
        if let Some(raw) = &self.dictionaries {
            saving.dictionaries = dictionaries(source, raw)?;
        }
        if let Some(raw) = &self.compress {
            if raw.get_ref().len() > RULES_MAX {
                let what = format!("has more than {RULES_MAX} entries: leave some out");
                return Err(source.invalid(&raw.span(), "saving.compress", what));
            }
            let added = &saving.dictionaries;
            let rules = raw.get_ref().iter().map(|rule| RawRule::validate(rule, source, added));
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
    fn validate(
        raw: &Spanned<Self>,
        source: &Source,
        added: &[SignedDictionary],
    ) -> Result<Rule, ConfigError> {
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
            Some(with) => coding(source, with, added)?,
            None => Coding::LZ4,
        };
        let network = Prefix { address, bits };
        Ok(Rule { end: End { network, port: end.port }, coding })
    }
}

/// The operator's dictionaries, each with a name and a number of its own.
fn dictionaries(
    source: &Source,
    raw: &Spanned<Vec<Spanned<String>>>,
) -> Result<Vec<SignedDictionary>, ConfigError> {
    let key = "saving.dictionaries";
    let all: Vec<SignedDictionary> = source.list(key, raw, ADDED_MAX)?;
    for (place, one) in all.iter().enumerate() {
        let (name, number) = (one.name(), one.number());
        let is_same = |it: &&SignedDictionary| it.number() == number || it.name() == name;
        if let Some(other) = all[..place].iter().find(is_same) {
            let what = format!(
                "{name} (number {number}) and {} (number {}) cannot be told apart: have one signed \
                 anew with `rove gateway dictionary`",
                other.name(),
                other.number()
            );
            return Err(source.invalid(&raw.span(), key, what));
        }
    }
    Ok(all)
}

/// How a rule's flows are compressed: an algorithm, or the name of a dictionary.
fn coding(
    source: &Source,
    with: &Spanned<String>,
    added: &[SignedDictionary],
) -> Result<Coding, ConfigError> {
    let word = with.get_ref().as_str();
    let with_dictionary = || {
        let of_program = dictionary::named(word).map(|one| one.number);
        let of_operator = added.iter().find(|one| one.name() == word);
        let number = of_program.or_else(|| of_operator.map(SignedDictionary::number));
        number.map(Coding::with_dictionary)
    };
    let found = match word {
        "lz4" => Some(Coding::LZ4),
        "zstd" => Some(Coding::ZSTD),
        JOIN => Some(Coding::NONE),
        _ => with_dictionary(),
    };
    found.ok_or_else(|| {
        let names = dictionary::ALL.iter().map(|one| one.name);
        let names = names.chain(added.iter().map(SignedDictionary::name));
        let names: Vec<_> = names.map(|name| format!("{name:?}")).collect();
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

    /// The name of the first dictionary of a rule that is not among those that both ends have.
    pub fn lacking(&self, agreed: Agreed) -> Option<&str> {
        let mut numbers = self.compress.iter().map(|rule| rule.coding.dictionary());
        let lacking = numbers.find(|number| !agreed.has(*number))?;
        let of_operator = self.dictionaries.iter().find(|one| one.number() == lacking);
        let of_program = dictionary::numbered(lacking).map(|one| one.name);
        of_program.or_else(|| of_operator.map(SignedDictionary::name))
    }

    /// Checks that the service's operator signed all dictionaries.
    ///
    /// # Errors
    /// If one was not: its name, and the cure.
    pub fn verify(&self, operator: OperatorPublic) -> Result<(), Misspelt> {
        match self.dictionaries.iter().find(|one| !one.is_signed_by(operator)) {
            Some(one) => Err(Misspelt::new(format!(
                "saving.dictionaries: {} is not signed by the operator of this gateway: copy the \
                 line that `rove gateway dictionary` printed there",
                one.name()
            ))),
            None => Ok(()),
        }
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
            dictionaries: Dictionaries::with(
                self.dictionaries.iter().map(|one| one.added().clone()).collect(),
            ),
            ..SavingConfig::default()
        }
    }
}

impl Default for Saving {
    fn default() -> Self {
        Self {
            headers: true,
            aggregate: true,
            pad: false,
            data: DataUse::default(),
            compress: Vec::new(),
            dictionaries: Vec::new(),
        }
    }
}

#[cfg(test)]
#[path = "saving_tests.rs"]
mod tests;
