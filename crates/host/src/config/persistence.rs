//! `[persistence]`, which clients and gateways have in common.

use rove_proto::flow::Hold;
use rove_proto::flow::classify::Class;
use rove_proto::flow::rules::{Assist, Matches, RULES_MAX, Rule, Rules};
use rove_proto::wire::control::Prefix;
use serde::Deserialize;
use toml::Spanned;

use super::source::{ConfigError, Source};
use crate::values::{Destination, Lifetime};

/// A day: through a night and a flight.
const TIMEOUT: Lifetime = Lifetime::from_seconds(24 * 3_600);
const TIMEOUT_MIN: Lifetime = Lifetime::from_seconds(60);
const TIMEOUT_MAX: Lifetime = Lifetime::from_seconds(30 * 86_400);
const MEBIBYTE: usize = 1 << 20;
/// Room for what is on its way of a dozen fast connections.
const MEMORY_MB: u16 = 64;
const MEMORY_MB_MIN: u16 = 1;
const MEMORY_MB_MAX: u16 = 16_384;

/// The words for what is done for connections.
const HOLDS: [(&str, Hold); 3] =
    [("full", Hold::Full), ("reinject", Hold::Reinject), ("off", Hold::Off)];

/// What a TCP connection is recognised as.
const CLASSES: [Class; 3] = [Class::Interactive, Class::Names, Class::Bulk];

/// The words for which connections are assisted.
const ASSISTS: [(&str, Assist); 2] = [("on", Assist::On), ("off", Assist::Off)];

/// How long what is away is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Persistence {
    /// How long a session is kept, keys and all, without a word from its other end: 1 minute to 30
    /// days. Later a handshake makes a new one, with the same inner addresses.
    pub timeout: Lifetime,
    /// What is done for open TCP connections while there is no way, where no rule says otherwise.
    pub hold: Hold,
    /// Which TCP connections are acknowledged where they enter the tunnel while several links
    /// carry.
    pub assist: Assist,
    /// What is done for some of them; the first that matches counts, and there are at most
    /// [`RULES_MAX`].
    pub rules: Vec<Rule>,
    /// How much of them may be kept together, in bytes: 1 MB to 16 GB.
    pub memory: usize,
}

/// `[persistence]` as it is written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawPersistence {
    timeout: Option<Spanned<String>>,
    hold: Option<Spanned<String>>,
    assist: Option<Spanned<String>>,
    memory_mb: Option<Spanned<u16>>,
    rules: Option<Spanned<Vec<Spanned<RawRule>>>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRule {
    to: Option<Spanned<String>>,
    class: Option<Spanned<String>>,
    hold: Spanned<String>,
}

impl RawPersistence {
    /// The checked values.
    pub fn validate(&self, source: &Source) -> Result<Persistence, ConfigError> {
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
            persistence.hold = one_of(source, "persistence.hold", raw, &HOLDS)?;
        }
        if let Some(raw) = &self.assist {
            persistence.assist = one_of(source, "persistence.assist", raw, &ASSISTS)?;
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
        if let Some(raw) = &self.rules {
            if raw.get_ref().len() > RULES_MAX {
                let what = format!("has more than {RULES_MAX} entries: leave some out");
                return Err(source.invalid(&raw.span(), "persistence.rules", what));
            }
            let rules = raw.get_ref().iter().map(|rule| RawRule::validate(rule, source));
            persistence.rules = rules.collect::<Result<_, _>>()?;
        }
        Ok(persistence)
    }
}

impl RawRule {
    fn validate(raw: &Spanned<Self>, source: &Source) -> Result<Rule, ConfigError> {
        let Self { to, class, hold } = raw.get_ref();
        let of = match (to, class) {
            (Some(to), None) => {
                let to: Destination = source.value("persistence.rules.to", to)?;
                let (address, bits) = (to.network.network(), to.network.prefix_len());
                Matches::End { network: Prefix { address, bits }, port: to.port }
            }
            (None, Some(class)) => {
                let classes = CLASSES.map(|class| (class.label(), class));
                Matches::Class(one_of(source, "persistence.rules.class", class, &classes)?)
            }
            (None, None) | (Some(_), Some(_)) => {
                let what = "needs either to, for example to = \"192.0.2.0/24:443\", or class, for \
                            example class = \"interactive\"";
                return Err(source.invalid(&raw.span(), "persistence.rules", what));
            }
        };
        Ok(Rule { of, hold: one_of(source, "persistence.rules.hold", hold, &HOLDS)? })
    }
}

/// One of a few words.
pub(super) fn one_of<T: Copy>(
    source: &Source,
    key: &str,
    raw: &Spanned<String>,
    words: &[(&str, T)],
) -> Result<T, ConfigError> {
    let word = raw.get_ref();
    let found = words.iter().find(|(known, _)| known == word);
    found.map(|&(_, value)| value).ok_or_else(|| {
        let known: Vec<String> = words.iter().map(|(known, _)| format!("\"{known}\"")).collect();
        let what = format!("{word:?} is not one of {}", known.join(", "));
        source.invalid(&raw.span(), key, what)
    })
}

impl Persistence {
    /// What is done for which connections.
    pub fn rules(&self) -> Rules {
        Rules::new(self.hold, &self.rules).assisting(self.assist)
    }
}

impl Default for Persistence {
    fn default() -> Self {
        let memory = usize::from(MEMORY_MB) * MEBIBYTE;
        let (hold, assist) = (Hold::Full, Assist::default());
        Self { timeout: TIMEOUT, hold, assist, rules: Vec::new(), memory }
    }
}
