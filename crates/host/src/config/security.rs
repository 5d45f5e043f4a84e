//! `[security]`, which clients and gateways have in common: how strong the cipher is, and what the
//! other end is told of it.

use rove_proto::crypto::{Features, Floor};
use rove_proto::policy::Sealing;
use serde::Deserialize;
use toml::Spanned;

use super::source::{ConfigError, Source};

/// The key lengths that suites have, in bits, and the strength that each is.
const STRENGTHS: [(u16, Floor); 2] = [(128, Floor::BITS_128), (256, Floor::BITS_256)];

/// How this node and its peers seal datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Security {
    /// The least strength of all its sessions, in both directions. The higher floor of the two ends
    /// holds.
    pub floor: Floor,
    /// The strength that this node seals with, unless the floor is higher.
    pub strength: Floor,
    /// Whether profile IDs are redrawn for every datagram, if the other end wants that, too.
    pub profiles: bool,
    /// Whether each datagram uses another suite than the one before.
    pub change: bool,
    /// Whether datagrams with packets are padded to a multiple of 128 bytes.
    pub pad: bool,
}

/// `[security]` as it is written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawSecurity {
    floor: Option<Spanned<u16>>,
    strength: Option<Spanned<u16>>,
    profiles: Option<bool>,
    change: Option<Spanned<bool>>,
    pad: Option<Spanned<bool>>,
}

impl RawSecurity {
    /// The checked values.
    pub fn validate(&self, source: &Source) -> Result<Security, ConfigError> {
        let usual = Security::default();
        let floor = strength(source, "security.floor", self.floor.as_ref())?;
        let floor = floor.unwrap_or(usual.floor);
        let wish = strength(source, "security.strength", self.strength.as_ref())?;
        if let Some(raw) = self.strength.as_ref().filter(|_| wish.is_some_and(|it| it < floor)) {
            let what = "is below security.floor: raise it, or leave it out";
            return Err(source.invalid(&raw.span(), "security.strength", what));
        }
        let profiles = self.profiles.unwrap_or(usual.profiles);
        for (key, raw) in [("security.change", &self.change), ("security.pad", &self.pad)] {
            if let Some(raw) = raw.as_ref().filter(|raw| *raw.get_ref() && !profiles) {
                let what = "needs `profiles = true` here and at the other end";
                return Err(source.invalid(&raw.span(), key, what));
            }
        }
        let is_on = |raw: &Option<Spanned<bool>>| raw.as_ref().is_some_and(|raw| *raw.get_ref());
        Ok(Security {
            floor,
            strength: wish.unwrap_or(usual.strength),
            profiles,
            change: is_on(&self.change),
            pad: is_on(&self.pad),
        })
    }
}

/// A strength by the length of its keys.
pub(super) fn strength(
    source: &Source,
    key: &str,
    raw: Option<&Spanned<u16>>,
) -> Result<Option<Floor>, ConfigError> {
    let Some(raw) = raw else { return Ok(None) };
    let bits = *raw.get_ref();
    match STRENGTHS.into_iter().find(|(length, _)| *length == bits) {
        Some((_, strength)) => Ok(Some(strength)),
        None => {
            let what = format!("{bits} is not 128 or 256, the lengths of keys in bits");
            Err(source.invalid(&raw.span(), key, what))
        }
    }
}

impl Security {
    /// The features that this node announces for it.
    pub const fn features(&self) -> Features {
        if self.profiles { Features::PROFILES } else { Features::NONE }
    }

    /// How the core seals.
    pub const fn sealing(&self) -> Sealing {
        Sealing { strength: self.strength, changes: self.change, pads: self.pad }
    }
}

impl Default for Security {
    fn default() -> Self {
        Self {
            floor: Floor::BITS_128,
            strength: Floor::BITS_256,
            profiles: false,
            change: false,
            pad: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn read(text: &str) -> Result<Security, String> {
        let source = Source::new(Path::new("test.toml"), text);
        let raw: RawSecurity = source.parse().map_err(|error| error.to_string())?;
        raw.validate(&source).map_err(|error| error.to_string())
    }

    #[test]
    fn the_default_is_one_strong_suite_and_no_announcement() {
        let security = read("").unwrap();
        assert_eq!((security, security.features()), (Security::default(), Features::NONE));
        assert_eq!(security.sealing(), Sealing::default());
    }

    #[test]
    fn floors_are_key_lengths() {
        assert_eq!(read("floor = 256").unwrap().floor, Floor::BITS_256);
        let both = read("floor = 128\nstrength = 128").unwrap();
        assert_eq!((both.floor, both.strength), (Floor::BITS_128, Floor::BITS_128));
        for wrong in ["floor = 0", "floor = 192", "strength = 1"] {
            assert!(read(wrong).unwrap_err().contains("is not 128 or 256"), "{wrong}");
        }
        let below = read("floor = 256\nstrength = 128").unwrap_err();
        assert!(below.contains("security.strength: is below security.floor"), "{below}");
    }

    #[test]
    fn what_the_other_end_has_to_understand_is_announced() {
        let all = read("profiles = true\nchange = true\npad = true").unwrap();
        assert_eq!(all.features(), Features::PROFILES);
        assert!(all.sealing().changes && all.sealing().pads);
        for alone in ["change = true", "pad = true"] {
            assert!(read(alone).unwrap_err().contains("needs `profiles = true`"), "{alone}");
        }
        assert_eq!(read("change = false\npad = false").unwrap(), Security::default());
    }
}
