//! `[[link]]`: rules by which a client's links are chosen and ranked.
//!
//! A rule says which links it is about, and what is to be made of those. For each thing that can be
//! said, the first rule counts that is about the link and says it. What `rove set link.NAME.KEY`
//! said comes before all rules.

use std::str::FromStr;

pub(crate) use rove_api::LinkUse;
use rove_api::{self as api, LinkKind as Kind};
use rove_host::config::{ConfigError, Source};
use rove_host::values::{Cap, Misspelt};
use rove_os::links::LinkKind;
use serde::Deserialize;
use toml::Spanned;

/// How many rules there may be.
pub(super) const RULES_MAX: usize = 64;
/// The longest name or pattern, in bytes: interfaces have 15.
const NAME_LEN_MAX: usize = 64;
/// The highest cost.
pub(super) const COST_MAX: u16 = 1_000;

/// One thing that can be said of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkSetting {
    /// When data goes by it.
    Use(LinkUse),
    /// What data by it costs, in any unit: the cheaper link is the better one.
    Cost(u16),
    /// Whether data by it is counted and paid for.
    Metered(bool),
    /// How much may go by it.
    Cap(Cap),
    /// What it is for when that has gone by it.
    AtCap(LinkUse),
}

/// All that is said of one link; nothing where nothing is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
struct Said {
    usage: Option<LinkUse>,
    cost: Option<u16>,
    metered: Option<bool>,
    cap: Option<Cap>,
    at_cap: Option<LinkUse>,
}

/// What holds for one link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct LinkTerms {
    /// When data goes by it, before its cap is reached.
    pub usage: LinkUse,
    /// Who says so.
    pub by: UsedBy,
    /// What data by it costs.
    pub cost: u16,
    /// Whether data by it is counted and paid for.
    pub metered: bool,
    /// How much may go by it.
    pub cap: Option<Cap>,
    /// What it is for when that has gone by it.
    pub at_cap: LinkUse,
}

/// Who says when data goes by a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum UsedBy {
    /// Nobody: it is used as links are.
    #[default]
    Nobody,
    /// It is metered.
    Meter,
    /// A rule of the configuration.
    Rule,
    /// `rove set`.
    Set,
}

/// A link as rules know it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinkSeen<'a> {
    /// Its name.
    pub name: &'a str,
    /// What it is.
    pub kind: LinkKind,
    /// Whether the network that it is in is not the subscriber's own, if that is known.
    pub roaming: Option<bool>,
    /// Whether it is metered, if that is known.
    pub metered: Option<bool>,
}

/// The rules, in their order.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct LinkRules {
    /// By name, from the command line.
    set: Vec<(String, Said)>,
    rules: Vec<Rule>,
}

#[derive(Clone, Debug, PartialEq, Eq, Default)]
struct Rule {
    name: Option<String>,
    kind: Option<Kind>,
    roaming: Option<bool>,
    said: Said,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct RawLink {
    name: Option<Spanned<String>>,
    r#type: Option<Spanned<String>>,
    roaming: Option<bool>,
    r#use: Option<Spanned<String>>,
    cost: Option<Spanned<u64>>,
    metered: Option<bool>,
    cap: Option<Spanned<String>>,
    at_cap: Option<Spanned<String>>,
}

impl LinkRules {
    pub(super) fn validate(raw: &[RawLink], source: &Source) -> Result<Self, ConfigError> {
        if raw.len() > RULES_MAX {
            let message = format!("has more than {RULES_MAX} entries: leave some out");
            return Err(source.invalid(&(0..0), "link", message));
        }
        let rules = raw.iter().map(|rule| rule.validate(source)).collect::<Result<_, _>>()?;
        Ok(Self { set: Vec::new(), rules })
    }

    /// From now on this holds for the link of that name, whatever the rules say.
    pub(crate) fn set(&mut self, name: &str, setting: LinkSetting) -> Result<(), Misspelt> {
        let place = self.set.iter().position(|(set, _)| set == name);
        let place = match place {
            Some(place) => place,
            None if self.set.len() < RULES_MAX => {
                self.set.push((name.to_owned(), Said::default()));
                self.set.len() - 1
            }
            None => {
                let what = format!("more than {RULES_MAX} links are set: write rules instead");
                return Err(Misspelt::new(what));
            }
        };
        let said = &mut self.set[place].1;
        match setting {
            LinkSetting::Use(usage) => said.usage = Some(usage),
            LinkSetting::Cost(cost) => said.cost = Some(cost),
            LinkSetting::Metered(metered) => said.metered = Some(metered),
            LinkSetting::Cap(cap) => said.cap = Some(cap),
            LinkSetting::AtCap(usage) => said.at_cap = Some(usage),
        }
        Ok(())
    }

    /// What holds for a link. A metered one stands by, unless something else is said: who has to
    /// count what it carries says so, or the network does, and a link that carries a share of
    /// everything is soon expensive. So a modem of which nobody knows is taken for metered.
    pub(crate) fn terms(&self, link: LinkSeen<'_>) -> LinkTerms {
        let set = self.set.iter().filter(|(name, _)| name == link.name).map(|(_, said)| said);
        let rules = self.rules.iter().filter(|rule| rule.is_about(link)).map(|rule| &rule.said);
        let set_use = set.clone().any(|said| said.usage.is_some());
        let all: Vec<&Said> = set.chain(rules).collect();
        let metered = all.iter().find_map(|said| said.metered).or(link.metered);
        let metered = metered.unwrap_or(link.kind == LinkKind::Cellular);
        let (usage, by) = match (all.iter().find_map(|said| said.usage), metered) {
            (Some(usage), _) => (usage, if set_use { UsedBy::Set } else { UsedBy::Rule }),
            (None, true) => (LinkUse::Backup, UsedBy::Meter),
            // It is another way over a link that is there, and a slower one.
            (None, false) if link.kind == LinkKind::Clat => (LinkUse::Backup, UsedBy::Nobody),
            (None, false) => (LinkUse::Always, UsedBy::Nobody),
        };
        let at_cap = all.iter().find_map(|said| said.at_cap).unwrap_or(LinkUse::Never);
        LinkTerms {
            usage,
            by,
            cost: all.iter().find_map(|said| said.cost).unwrap_or(0),
            metered,
            cap: all.iter().find_map(|said| said.cap).filter(|cap| !cap.is_none()),
            at_cap: at_cap.max(usage), // a cap makes nothing more of a link
        }
    }
}

impl RawLink {
    fn validate(&self, source: &Source) -> Result<Rule, ConfigError> {
        let mut rule = Rule { roaming: self.roaming, ..Rule::default() };
        if let Some(name) = &self.name {
            let text = name.get_ref();
            if text.is_empty() || text.len() > NAME_LEN_MAX {
                let what = "is no name of a link: write one, where * stands for anything";
                return Err(source.invalid(&name.span(), "link.name", what));
            }
            rule.name = Some(text.clone());
        }
        if let Some(kind) = &self.r#type {
            rule.kind = Some(source.value("link.type", kind)?);
        }
        if let Some(usage) = &self.r#use {
            rule.said.usage = Some(source.value("link.use", usage)?);
        }
        if let Some(cost) = &self.cost {
            let checked = u16::try_from(*cost.get_ref()).ok().filter(|cost| *cost <= COST_MAX);
            let what = format!("is no cost: write a number from 0 to {COST_MAX}");
            rule.said.cost =
                Some(checked.ok_or_else(|| source.invalid(&cost.span(), "link.cost", what))?);
        }
        if let Some(cap) = &self.cap {
            rule.said.cap = Some(source.value("link.cap", cap)?);
        }
        if let Some(usage) = &self.at_cap {
            rule.said.at_cap = Some(source.value::<AtCap>("link.at-cap", usage)?.0);
        }
        rule.said.metered = self.metered;
        Ok(rule)
    }
}

impl Rule {
    fn is_about(&self, link: LinkSeen<'_>) -> bool {
        self.name.as_ref().is_none_or(|pattern| matches(pattern.as_bytes(), link.name.as_bytes()))
            && self.kind.is_none_or(|kind| kind == kind_of(link.kind))
            && self.roaming.is_none_or(|roaming| link.roaming == Some(roaming))
    }
}

/// Whether `pattern` stands for `name`: `*` for any bytes, `?` for one. Takes no longer than their
/// lengths' product.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut read) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while read < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, read));
                at += 1;
            }
            Some(&byte) if byte == b'?' || byte == name[read] => {
                at += 1;
                read += 1;
            }
            Some(_) | None => {
                // The last star stands for one byte more.
                let Some((place, from)) = star else { return false };
                star = Some((place, from + 1));
                (at, read) = (place + 1, from + 1);
            }
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

/// The word of configuration and status for a kind of link.
pub(crate) const fn kind_of(kind: LinkKind) -> Kind {
    match kind {
        LinkKind::Ethernet => Kind::Ethernet,
        LinkKind::Wireless => Kind::Wifi,
        LinkKind::Cellular => Kind::Cellular,
        LinkKind::Loopback | LinkKind::Tunnel | LinkKind::Clat | LinkKind::Other => Kind::Other,
    }
}

/// What a link may be for when its cap is reached.
struct AtCap(LinkUse);

impl FromStr for AtCap {
    type Err = Misspelt;

    fn from_str(text: &str) -> Result<Self, Misspelt> {
        match text.parse() {
            Ok(usage @ (LinkUse::Backup | LinkUse::Never)) => Ok(Self(usage)),
            Ok(LinkUse::Always) => Err(Misspelt::new(
                "a link that is used whatever went by it has no cap: write backup or never, or \
                 leave out the cap",
            )),
            Err(_) => {
                Err(Misspelt::new(format!("{text:?} is no use at a cap: write backup or never")))
            }
        }
    }
}

impl LinkSetting {
    /// The setting that `key` names, with the value that `text` spells.
    pub fn parse(key: &str, text: &str) -> Result<Self, Misspelt> {
        match key {
            "use" => Ok(Self::Use(text.parse()?)),
            "cost" => {
                let cost = text.parse().ok().filter(|cost| *cost <= COST_MAX);
                let what = || format!("{text:?} is no cost: write a number from 0 to {COST_MAX}");
                Ok(Self::Cost(cost.ok_or_else(|| Misspelt::new(what()))?))
            }
            "metered" => match text {
                "true" | "yes" => Ok(Self::Metered(true)),
                "false" | "no" => Ok(Self::Metered(false)),
                _ => Err(Misspelt::new(format!("{text:?} is no answer: write yes or no"))),
            },
            "cap" => Ok(Self::Cap(text.parse()?)),
            "at-cap" => Ok(Self::AtCap(text.parse::<AtCap>()?.0)),
            _ => Err(Misspelt::new(format!(
                "a link has no {key:?}: write use, cost, metered, cap or at-cap"
            ))),
        }
    }

    /// The setting of a request.
    pub fn of_request(setting: api::LinkSetting) -> Result<Self, Misspelt> {
        match setting {
            api::LinkSetting::Use(usage) => Ok(Self::Use(usage)),
            api::LinkSetting::Cost(cost) => Self::parse("cost", &cost.to_string()),
            api::LinkSetting::Metered(metered) => Ok(Self::Metered(metered)),
            api::LinkSetting::Cap(cap) => Self::parse("cap", &cap),
            api::LinkSetting::AtCap(usage) => Self::parse("at-cap", usage.word()),
        }
    }

    /// The same in a request.
    pub fn in_request(self) -> api::LinkSetting {
        match self {
            Self::Use(usage) => api::LinkSetting::Use(usage),
            Self::Cost(cost) => api::LinkSetting::Cost(cost),
            Self::Metered(metered) => api::LinkSetting::Metered(metered),
            Self::Cap(cap) => api::LinkSetting::Cap(cap.to_string()),
            Self::AtCap(usage) => api::LinkSetting::AtCap(usage),
        }
    }
}

#[cfg(test)]
#[path = "link_tests.rs"]
mod tests;
