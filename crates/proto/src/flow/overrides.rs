//! The user's rules for flows. They override what this node would decide by itself.
//!
//! A rule says for which flows it is, and what it asks for them. Each property of a flow comes from
//! the first rule that matches the flow and says something about this property. So a rule for one
//! device can set the strength, and a later one for a destination the priority, of the same flow.
//!
//! A flow is named as its client sees it: the *device* is its end behind the client, the
//! *destination* the end behind the gateway. So both ends of a tunnel understand the same rules,
//! each for what it sends.
//!
//! A rule for a user needs the user of a flow, which only the shell can find out (`Whose`). Until
//! it has answered, a flow is sealed as strongly as any such rule asks that may be for it.
//!
//! Decides nothing about packets, and nothing that a rule could weaken: `policy` takes the maximum
//! of a rule's strength and what holds anyway. Bounds: [`OVERRIDES_MAX`] rules.

use std::sync::Arc;

use super::tuple::Tuple;
use crate::packet::{Class, Level, Strength};
pub use crate::packet::{Copies, Goal};
use crate::wire::control::Prefix;

/// The most rules. Every flow that begins is compared with all of them, about 10 ns each. Twice as
/// many would take as long as the handshake of a flow takes on one core of a small router.
pub const OVERRIDES_MAX: usize = 128;

/// Rules in their order.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Overrides {
    /// Shared by all sessions of a node.
    rules: Arc<[Override]>,
    /// The highest strength that a rule asks for.
    strongest: Strength,
    /// Whether a rule is for a user.
    asks_users: bool,
}

/// One rule.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Override {
    /// For which flows it is.
    pub of: Selector,
    /// What it asks for them.
    pub asks: Asks,
}

/// Which flows a rule is for: those that meet every condition that is there.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Selector {
    /// The addresses of the end behind the client.
    pub device: Option<Prefix>,
    /// The addresses of the end behind the gateway.
    pub destination: Option<Prefix>,
    /// The port of the end behind the gateway.
    pub port: Option<u16>,
    /// The IP protocol number.
    pub protocol: Option<u8>,
    /// What the flow was recognised as.
    pub class: Option<Class>,
    /// The number of the user of the client's host whose flow it is.
    pub user: Option<u32>,
}

/// Whose flow it is.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) enum Whose {
    /// Nobody was asked.
    #[default]
    Unasked,
    /// The shell was asked, and has not answered.
    Asked,
    /// That of this user of the host behind this end, or of none of them.
    Known(Option<u32>),
}

/// What a rule asks for; `None` leaves a property to later rules, and to this node.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Asks {
    /// The least strength of the suite that seals the flow's packets.
    pub strength: Option<Strength>,
    /// How much the flow is preferred to others.
    pub level: Option<Level>,
    /// Whether copies of its realtime packets leave.
    pub copies: Option<Copies>,
    /// What the flow is to have above all.
    pub goal: Option<Goal>,
}

/// Which end of a tuple is the device.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Devices {
    /// The local one: this node is the client.
    #[default]
    Local,
    /// The remote one: this node is the gateway.
    Remote,
}

/// What holds for one flow, and by which rules.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Decided {
    /// The least strength of the suite that seals its packets.
    pub strength: Option<By<Strength>>,
    /// How much it is preferred to others.
    pub level: Option<By<Level>>,
    /// Whether copies of its realtime packets leave.
    pub copies: Option<By<Copies>>,
    /// What it is to have above all.
    pub goal: Option<By<Goal>>,
    /// The highest strength of rules that may be for the user of the flow, while he is not known.
    pub meanwhile: Strength,
}

impl Decided {
    /// The least strength of the suite that seals its packets now.
    pub fn asked(&self) -> Strength {
        self.strength.map(|by| by.value).unwrap_or_default().max(self.meanwhile)
    }
}

/// A value that a rule gave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct By<T> {
    /// The value.
    pub value: T,
    /// The rule's number, counted from 1.
    pub rule: u8,
}

impl Overrides {
    /// Rules in their order, of which the first [`OVERRIDES_MAX`] count.
    pub fn new(rules: &[Override]) -> Self {
        let rules: Arc<[_]> = rules.iter().take(OVERRIDES_MAX).copied().collect();
        let strengths = rules.iter().filter_map(|rule| rule.asks.strength);
        let strongest = strengths.max().unwrap_or_default();
        let asks_users = rules.iter().any(|rule| rule.of.user.is_some());
        Self { strongest, asks_users, rules }
    }

    /// Whether there is no rule.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// The highest strength that a rule asks for: what is sealed so is sealed well enough for every
    /// flow.
    pub(super) const fn strongest(&self) -> Strength {
        self.strongest
    }

    /// Whether the user of a flow has to be known.
    pub(super) const fn asks_users(&self) -> bool {
        self.asks_users
    }

    /// The levels that rules give.
    pub(super) fn levels(&self) -> impl Iterator<Item = Level> {
        self.rules.iter().filter_map(|rule| rule.asks.level)
    }

    /// What holds for a flow of this class and user.
    pub(super) fn decide(
        &self,
        devices: Devices,
        tuple: &Tuple,
        (class, whose): (Class, Whose),
    ) -> Decided {
        let mut decided = Decided::default();
        for (rule, one) in (1..).zip(self.rules.iter()) {
            if !one.of.is_met(devices, tuple, class) {
                continue;
            }
            let is_its_user = match (one.of.user, whose) {
                (None, _) => Some(true),
                (Some(user), Whose::Known(of)) => Some(of == Some(user)),
                (Some(_), Whose::Unasked | Whose::Asked) => None,
            };
            if is_its_user.is_none() {
                let strength = one.asks.strength.unwrap_or_default();
                decided.meanwhile = decided.meanwhile.max(strength);
            }
            if is_its_user == Some(true) {
                let Asks { strength, level, copies, goal } = one.asks;
                note(&mut decided.strength, strength, rule);
                note(&mut decided.level, level, rule);
                note(&mut decided.copies, copies, rule);
                note(&mut decided.goal, goal, rule);
            }
        }
        decided
    }
}

/// The first rule that says something counts.
fn note<T>(decided: &mut Option<By<T>>, asked: Option<T>, rule: u8) {
    if decided.is_none() {
        *decided = asked.map(|value| By { value, rule });
    }
}

impl Selector {
    /// Whether a flow of this class meets every condition but that of the user.
    fn is_met(&self, devices: Devices, tuple: &Tuple, class: Class) -> bool {
        let (device, destination) = match devices {
            Devices::Local => (tuple.local, tuple.remote),
            Devices::Remote => (tuple.remote, tuple.local),
        };
        self.device.is_none_or(|it| it.contains(device.0))
            && self.destination.is_none_or(|it| it.contains(destination.0))
            && self.port.is_none_or(|port| port == destination.1)
            && self.protocol.is_none_or(|protocol| protocol == tuple.protocol)
            && self.class.is_none_or(|it| it == class)
    }
}

#[cfg(test)]
#[path = "overrides_tests.rs"]
mod tests;
