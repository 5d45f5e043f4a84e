//! `[[rule]]` and `[[device]]`, which clients and gateways have in common: what the user wants for
//! some flows.
//!
//! A rule names flows by any number of conditions. A device is a rule for one address or subnet
//! behind a client, with a name. Rules come before devices, and smaller subnets before larger ones.

use std::net::IpAddr;
use std::ops::Range;

use ipnet::IpNet;
use rove_proto::crypto::Floor;
use rove_proto::flow::classify::Class;
use rove_proto::flow::overrides::{
    Asks, Copies, Goal, OVERRIDES_MAX, Override, Overrides, Selector,
};
use rove_proto::flow::priority::Level;
use rove_proto::packet::Strength;
use rove_proto::wire::control::Prefix;
use rove_proto::wire::inner::{TCP, UDP};
use serde::Deserialize;
use toml::Spanned;

use super::persistence::one_of;
use super::security::strength;
use super::source::{ConfigError, Source};
use crate::values::{Destination, parse_network};

/// Protocols that have a word (IANA, protocol numbers).
const PROTOCOLS: [(&str, u8); 6] =
    [("tcp", TCP), ("udp", UDP), ("icmp", 1), ("icmpv6", 58), ("gre", 47), ("esp", 50)];
/// Characters of a device's name at most: a column of a table has room for so many.
const NAME_MAX: usize = 32;
/// The properties that a rule may set, for errors.
const PROPERTIES: &str = "strength, priority, goal or copies";

/// What the user wants for some flows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlowRules {
    /// Rules in the order in which they count, each with what people call it. Those of devices are
    /// the last.
    entries: Vec<(String, Override)>,
    /// The devices, the smallest subnets first.
    devices: Vec<Device>,
}

/// An address or a subnet behind a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Its name. Several addresses may have the same one.
    pub name: String,
    /// Its address, or its subnet.
    pub network: IpNet,
    /// What its flows are to have.
    pub asks: Asks,
}

/// `[[rule]]` as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawRule {
    to: Option<Spanned<String>>,
    device: Option<Spanned<String>>,
    port: Option<Spanned<u16>>,
    protocol: Option<Spanned<String>>,
    class: Option<Spanned<String>>,
    user: Option<Spanned<String>>,
    strength: Option<Spanned<u16>>,
    priority: Option<Spanned<i64>>,
    goal: Option<Spanned<String>>,
    copies: Option<Spanned<String>>,
}

/// `[[device]]` as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawDevice {
    name: Spanned<String>,
    address: Spanned<String>,
    strength: Option<Spanned<u16>>,
    priority: Option<Spanned<i64>>,
    goal: Option<Spanned<String>>,
    copies: Option<Spanned<String>>,
}

/// The properties of a table, and its name for errors.
struct RawAsks<'a> {
    table: &'static str,
    strength: Option<&'a Spanned<u16>>,
    priority: Option<&'a Spanned<i64>>,
    goal: Option<&'a Spanned<String>>,
    copies: Option<&'a Spanned<String>>,
}

impl FlowRules {
    /// The checked values of all `[[rule]]` and `[[device]]`.
    pub fn validate(
        rules: &[Spanned<RawRule>],
        devices: &[Spanned<RawDevice>],
        source: &Source,
    ) -> Result<Self, ConfigError> {
        let devices = devices.iter().map(|raw| raw.get_ref().validate(source));
        let mut devices: Vec<Device> = devices.collect::<Result<_, _>>()?;
        devices.sort_by_key(|device| u8::MAX - device.network.prefix_len());
        let mut entries = Vec::new();
        for (number, raw) in (1..).zip(rules) {
            let label = format!("rule {number}");
            let all = raw.get_ref().validate(source, &raw.span(), &devices)?;
            entries.extend(all.into_iter().map(|rule| (label.clone(), rule)));
        }
        entries.extend(devices.iter().map(|device| {
            let of = Selector { device: Some(prefix(device.network)), ..Selector::default() };
            (format!("device {}", device.name), Override { of, asks: device.asks })
        }));
        if entries.len() > OVERRIDES_MAX {
            let what = format!(
                "rules and devices are more than {OVERRIDES_MAX} together, and a rule for a device \
                 counts once for each of its addresses: leave some out"
            );
            return Err(source.invalid(&(0..0), "rule", what));
        }
        Ok(Self { entries, devices })
    }

    /// The checked values of a gateway's file, which knows the users of no client.
    pub fn validate_gateway(
        rules: &[Spanned<RawRule>],
        devices: &[Spanned<RawDevice>],
        source: &Source,
    ) -> Result<Self, ConfigError> {
        if let Some(raw) = rules.iter().find_map(|rule| rule.get_ref().user.as_ref()) {
            let what = "belongs in client.toml: only a client knows its users; name a device here";
            return Err(source.invalid(&raw.span(), "rule.user", what));
        }
        Self::validate(rules, devices, source)
    }

    /// The rules for the core.
    pub fn core(&self) -> Overrides {
        Overrides::new(&self.entries.iter().map(|(_, rule)| *rule).collect::<Vec<_>>())
    }

    /// What people call the rule with this number of the core, counted from 1.
    pub fn label(&self, number: u8) -> Option<&str> {
        let place = usize::from(number).checked_sub(1)?;
        self.entries.get(place).map(|(label, _)| label.as_str())
    }

    /// The devices, the smallest subnets first.
    pub fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// The device with this address.
    pub fn device_of(&self, address: IpAddr) -> Option<&Device> {
        self.devices.iter().find(|device| device.network.contains(&address))
    }

    /// Rules without effect, since all flows have that strength anyway, and what to do.
    pub fn idle(&self, strength: Floor) -> Vec<String> {
        let is_idle = |asks: &Asks| asks.strength.is_some_and(|it| Floor::from(it) <= strength);
        let mut idle: Vec<String> = self
            .entries
            .iter()
            .filter(|(_, rule)| is_idle(&rule.asks))
            .map(|(label, _)| {
                format!(
                    "the strength of {label} changes nothing: [security] has as much for all \
                     flows; leave it out, or lower security.strength"
                )
            })
            .collect();
        idle.dedup();
        idle
    }
}

impl RawRule {
    /// The rule, once for each address of a device that it names.
    fn validate(
        &self,
        source: &Source,
        span: &Range<usize>,
        devices: &[Device],
    ) -> Result<Vec<Override>, ConfigError> {
        let to = self.to.as_ref().map(|to| source.value::<Destination>("rule.to", to));
        let to = to.transpose()?;
        let port = self.port.as_ref().map(|port| *port.get_ref());
        if let (Some(raw), Some(Destination { port: Some(_), .. })) = (&self.port, to) {
            let what = "stands in `to` as well: leave out one of the two";
            return Err(source.invalid(&raw.span(), "rule.port", what));
        }
        let protocol = self.protocol.as_ref();
        let protocol = protocol.map(|raw| one_of(source, "rule.protocol", raw, &PROTOCOLS));
        let classes = Class::ALL.map(|class| (class.label(), class));
        let class = self.class.as_ref().map(|raw| one_of(source, "rule.class", raw, &classes));
        let asks = self.asks().validate(source)?;
        if asks == Asks::default() {
            let what = format!("says nothing: add {PROPERTIES}");
            return Err(source.invalid(span, "rule", what));
        }
        let of = Selector {
            device: None,
            destination: to.map(|to| prefix(to.network)),
            port: to.and_then(|to| to.port).or(port),
            protocol: protocol.transpose()?,
            class: class.transpose()?,
            user: self.user.as_ref().map(|raw| user(source, raw)).transpose()?,
        };
        let addresses = self.addresses(source, devices)?;
        let with = |device| Override { of: Selector { device, ..of }, asks };
        Ok(addresses.into_iter().map(with).collect())
    }

    /// The addresses of the device; one that is none if the rule names no device.
    fn addresses(
        &self,
        source: &Source,
        devices: &[Device],
    ) -> Result<Vec<Option<Prefix>>, ConfigError> {
        let Some(raw) = &self.device else { return Ok(vec![None]) };
        let name = raw.get_ref();
        let named = devices.iter().filter(|device| device.name == *name);
        let named: Vec<_> = named.map(|device| Some(prefix(device.network))).collect();
        if !named.is_empty() {
            return Ok(named);
        }
        match parse_network(name) {
            Ok(network) => Ok(vec![Some(prefix(network))]),
            Err(_) => {
                let what = format!(
                    "{name:?} is neither the name of a [[device]] nor an address: write for \
                     example \"192.168.7.20\" or \"192.168.7.0/24\""
                );
                Err(source.invalid(&raw.span(), "rule.device", what))
            }
        }
    }

    const fn asks(&self) -> RawAsks<'_> {
        let Self { strength, priority, goal, copies, .. } = self;
        RawAsks {
            table: "rule",
            strength: strength.as_ref(),
            priority: priority.as_ref(),
            goal: goal.as_ref(),
            copies: copies.as_ref(),
        }
    }
}

impl RawDevice {
    fn validate(&self, source: &Source) -> Result<Device, ConfigError> {
        let Self { name, address, strength, priority, goal, copies } = self;
        let text = name.get_ref();
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if text.is_empty() || text.len() > NAME_MAX || !text.chars().all(is_plain) {
            let what = format!(
                "{text:?} is no name: write up to {NAME_MAX} letters, digits, hyphens, dots and \
                 underscores"
            );
            return Err(source.invalid(&name.span(), "device.name", what));
        }
        if parse_network(text).is_ok() {
            let what = format!("{text:?} is an address: give the device a name");
            return Err(source.invalid(&name.span(), "device.name", what));
        }
        let network = parse_network(address.get_ref())
            .map_err(|error| source.invalid(&address.span(), "device.address", error))?;
        let asks = RawAsks {
            table: "device",
            strength: strength.as_ref(),
            priority: priority.as_ref(),
            goal: goal.as_ref(),
            copies: copies.as_ref(),
        };
        Ok(Device { name: text.clone(), network, asks: asks.validate(source)? })
    }
}

impl RawAsks<'_> {
    fn validate(&self, source: &Source) -> Result<Asks, ConfigError> {
        let key = |name: &str| format!("{}.{name}", self.table);
        let level = |raw: &Spanned<i64>| {
            let number = *raw.get_ref();
            u8::try_from(number).ok().and_then(Level::numbered).ok_or_else(|| {
                let what = format!("{number} is no level: write 1, 2 or 3");
                source.invalid(&raw.span(), &key("priority"), what)
            })
        };
        let goals = Goal::ALL.map(|goal| (goal.label(), goal));
        let copies = Copies::ALL.map(|copies| (copies.label(), copies));
        let floor = strength(source, &key("strength"), self.strength)?;
        let goal = self.goal.map(|raw| one_of(source, &key("goal"), raw, &goals));
        let copies = self.copies.map(|raw| one_of(source, &key("copies"), raw, &copies));
        Ok(Asks {
            strength: floor.map(of_floor),
            level: self.priority.map(level).transpose()?,
            copies: copies.transpose()?,
            goal: goal.transpose()?,
        })
    }
}

/// The number of a user of this host, from the number itself or from a name.
fn user(source: &Source, raw: &Spanned<String>) -> Result<u32, ConfigError> {
    let text = raw.get_ref();
    let number = text.parse().ok().or_else(|| rove_os::users::number_of(text));
    number.ok_or_else(|| {
        let what = format!(
            "no user in /etc/passwd is called {text:?}: write another name, or the user's number"
        );
        source.invalid(&raw.span(), "rule.user", what)
    })
}

/// The strength of a flow that reaches `floor`.
fn of_floor(floor: Floor) -> Strength {
    let reaches = |strength: &Strength| Floor::from(*strength) >= floor;
    Strength::ALL.into_iter().find(reaches).unwrap_or(Strength::Bits256)
}

fn prefix(network: IpNet) -> Prefix {
    Prefix { address: network.network(), bits: network.prefix_len() }
}

#[cfg(test)]
#[path = "rules_tests.rs"]
mod tests;
