//! `--set key=value`: all settings are checked before anything changes.

use crate::world::Heuristic;
use std::collections::BTreeMap;
use std::fmt;

/// The greatest number of settings.
const MAX_SETTINGS: usize = 64;

/// Settings that every scenario understands.
pub const EVERYWHERE: &[Setting] = &[
    Setting::flag("control", false, "break the mechanism: the run must fail"),
    Setting::flag("bare", false, "the bare link in place of Rove"),
    Setting::text("rove", "another binary than the one that was built"),
    Setting::text(
        "capture",
        "files for the client's TCP packets in virtual time, as pcap: of DIR/NAME.EXT those of \
         each story (a scenario may tell many) are in DIR/NAME-SEED-STORY.EXT, counted from 1, and \
         the server's beside, with .server after that",
    ),
    Setting::choice(
        "busy",
        &["none", "equal", "raised"],
        "what keeps both cores of client and gateway busy: nothing, or programs that never sleep, \
         of the same or of raised priority",
    ),
    Setting::choice(
        "without",
        WITHOUT,
        "the heuristic that the tunnel goes without, in virtual time, in a lab that is built with \
         the cargo feature ablation",
    ),
    Setting::number(
        "attempts",
        5,
        (1, 5),
        "how often the story is told at most while the emulator is late",
    ),
];

/// The names of heuristics; that for none first.
const WITHOUT: &[&str] = &{
    let mut words = ["nothing"; Heuristic::NAMES.len() + 1];
    let (_, names) = words.split_at_mut(1);
    names.copy_from_slice(Heuristic::NAMES);
    words
};

/// A key that a scenario understands.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// The text before the `=`.
    pub key: &'static str,
    /// The values after it.
    pub kind: Kind,
    /// One line of help.
    pub help: &'static str,
}

/// The kind of a setting, and its default.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// `true` or `false`.
    Flag(bool),
    /// A whole number.
    Number {
        /// The default.
        default: u64,
        /// The smallest allowed.
        min: u64,
        /// The greatest allowed.
        max: u64,
    },
    /// One of several words; the first is the default.
    Choice(&'static [&'static str]),
    /// Any text.
    Text(&'static str),
}

/// The settings, checked against those that a scenario understands.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    known: Vec<Setting>,
    set: BTreeMap<String, String>,
}

/// The fault of a setting; the text names the cure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadSetting(String);

impl Setting {
    /// True or false.
    pub const fn flag(key: &'static str, default: bool, help: &'static str) -> Self {
        Self { key, kind: Kind::Flag(default), help }
    }

    /// A whole number with its smallest and greatest value.
    pub const fn number(
        key: &'static str,
        default: u64,
        (min, max): (u64, u64),
        help: &'static str,
    ) -> Self {
        Self { key, kind: Kind::Number { default, min, max }, help }
    }

    /// One of several words; the first is the default.
    pub const fn choice(
        key: &'static str,
        words: &'static [&'static str],
        help: &'static str,
    ) -> Self {
        Self { key, kind: Kind::Choice(words), help }
    }

    /// Any text; empty by default.
    pub const fn text(key: &'static str, help: &'static str) -> Self {
        Self { key, kind: Kind::Text(""), help }
    }
}

impl Settings {
    /// Checks `key=value` texts against the common settings and a scenario's own.
    ///
    /// # Errors
    /// The first text that is not understood, with the valid ones.
    pub fn parse(own: &[Setting], texts: &[String]) -> Result<Self, BadSetting> {
        if texts.len() > MAX_SETTINGS {
            return Err(BadSetting(format!("more than {MAX_SETTINGS} settings")));
        }
        let known: Vec<Setting> = EVERYWHERE.iter().chain(own).copied().collect();
        let mut set = BTreeMap::new();
        for text in texts {
            let Some((key, value)) = text.split_once('=') else {
                return Err(BadSetting(format!("--set {text}: write --set KEY=VALUE")));
            };
            let Some(setting) = known.iter().find(|setting| setting.key == key) else {
                let keys: Vec<_> = known.iter().map(|setting| setting.key).collect();
                let keys = keys.join(", ");
                return Err(BadSetting(format!("--set {text}: the keys are {keys}")));
            };
            setting.check(value).map_err(|cure| BadSetting(format!("--set {text}: {cure}")))?;
            set.insert(key.to_owned(), value.to_owned());
        }
        Ok(Self { known, set })
    }

    /// The same with this setting, unchecked.
    #[must_use]
    pub(super) fn with(&self, key: &str, value: &str) -> Self {
        let mut other = self.clone();
        other.set.insert(key.to_owned(), value.to_owned());
        other
    }

    /// The settings, for the report.
    pub const fn set(&self) -> &BTreeMap<String, String> {
        &self.set
    }

    /// A flag; false when the scenario has no such setting.
    pub fn flag(&self, key: &str) -> bool {
        match self.set.get(key) {
            Some(value) => value == "true",
            None => matches!(self.kind(key), Some(Kind::Flag(true))),
        }
    }

    /// A number; 0 when the scenario has no such setting.
    pub fn number(&self, key: &str) -> u64 {
        let set = self.set.get(key).and_then(|value| value.parse().ok());
        set.or_else(|| match self.kind(key)? {
            Kind::Number { default, .. } => Some(default),
            Kind::Flag(_) | Kind::Choice(_) | Kind::Text(_) => None,
        })
        .unwrap_or(0)
    }

    /// A word or a text; empty when the scenario has no such setting.
    pub fn text(&self, key: &str) -> &str {
        match (self.set.get(key), self.kind(key)) {
            (Some(value), _) => value,
            (None, Some(Kind::Choice(words))) => words.first().copied().unwrap_or(""),
            (None, Some(Kind::Text(default))) => default,
            (None, Some(Kind::Flag(_) | Kind::Number { .. }) | None) => "",
        }
    }

    fn kind(&self, key: &str) -> Option<Kind> {
        self.known.iter().find(|setting| setting.key == key).map(|setting| setting.kind)
    }
}

impl Setting {
    /// The key with its default or its choices, as a help text has it.
    pub fn usage(&self) -> String {
        let key = self.key;
        match self.kind {
            Kind::Flag(default) => format!("{key}={default}"),
            Kind::Number { default, .. } => format!("{key}={default}"),
            Kind::Choice(words) => format!("{key}={}", words.join("|")),
            Kind::Text(_) => format!("{key}=..."),
        }
    }

    /// The fault of a value, as an instruction.
    fn check(&self, value: &str) -> Result<(), String> {
        match self.kind {
            Kind::Flag(_) if matches!(value, "true" | "false") => Ok(()),
            Kind::Flag(_) => Err("say true or false".to_owned()),
            Kind::Number { min, max, .. } => match value.parse::<u64>() {
                Ok(number) if (min..=max).contains(&number) => Ok(()),
                _ => Err(format!("say a number from {min} to {max}")),
            },
            Kind::Choice(words) if words.contains(&value) => Ok(()),
            Kind::Choice(words) => Err(format!("say one of {}", words.join(", "))),
            Kind::Text(_) => Ok(()),
        }
    }
}

impl fmt::Display for BadSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadSetting {}

#[cfg(test)]
mod tests {
    use super::{Setting, Settings};

    const OWN: &[Setting] = &[
        Setting::number("moves", 20, (1, 100), ""),
        Setting::choice("place", &["distant", "local"], ""),
    ];

    fn parse(texts: &[&str]) -> Result<Settings, String> {
        let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
        Settings::parse(OWN, &texts).map_err(|error| error.to_string())
    }

    #[test]
    fn defaults_hold_until_something_is_set() {
        let settings = parse(&[]).unwrap();
        assert_eq!((settings.number("moves"), settings.text("place")), (20, "distant"));
        assert!(!settings.flag("control") && !settings.flag("unheard of"));
        let settings = parse(&["moves=5", "place=local", "control=true"]).unwrap();
        assert_eq!((settings.number("moves"), settings.text("place")), (5, "local"));
        assert!(settings.flag("control"));
    }

    #[test]
    fn what_is_not_understood_is_answered_with_what_would_be() {
        let said = |text| parse(&[text]).unwrap_err();
        assert_eq!(said("moves"), "--set moves: write --set KEY=VALUE");
        assert_eq!(said("moves=0"), "--set moves=0: say a number from 1 to 100");
        assert_eq!(said("place=moon"), "--set place=moon: say one of distant, local");
        assert_eq!(said("control=1"), "--set control=1: say true or false");
        assert_eq!(
            said("x=1"),
            "--set x=1: the keys are control, bare, rove, capture, busy, without, attempts, moves, \
             place"
        );
    }
}
