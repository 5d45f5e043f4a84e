//! What is to be done for which connection while there is no way: the first rule that matches.
//!
//! Decided once for each connection, when it is first seen, from its two ends and its class alone;
//! rules that come later are for connections that come later. Knows neither memory nor paths:
//! whether what is wanted can be done shows when the way is lost (`hold`).

use std::sync::Arc;

use super::classify::Class;
use super::tuple::Tuple;
use crate::wire::control::{End, Prefix};

/// The most rules: every connection that begins is held against all of them.
pub const RULES_MAX: usize = 64;

/// What is done for connections, each by the first rule that matches it.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Rules {
    /// What is done where no rule matches.
    otherwise: Hold,
    /// Shared by all sessions of a node.
    rules: Arc<[Rule]>,
    assist: Assist,
}

/// What is done for connections while there is no way.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Hold {
    /// What is outstanding is kept, acknowledged when the way is lost, and delivered later.
    #[default]
    Full,
    /// The oldest segments are sent again when there is a way again; nothing is acknowledged.
    Reinject,
    /// Nothing.
    Off,
}

/// Which connections are acknowledged at the tunnel's entry while there is a way.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Assist {
    /// None.
    Off,
    /// Those that send much, where paths carry together.
    #[default]
    On,
}

/// What is done for some connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rule {
    /// For which.
    pub of: Matches,
    /// What is done for them.
    pub hold: Hold,
}

/// Connections that a rule is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Matches {
    /// Those with an end there, on whichever side: a gateway sees it on the other side than its
    /// client does.
    End {
        /// The end's address.
        network: Prefix,
        /// The end's port; `None` for any.
        port: Option<u16>,
    },
    /// Those that were recognised as this.
    Class(Class),
}

/// What is done for one connection, and by whose word.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Choice {
    pub(super) hold: Hold,
    pub(super) by: By,
}

/// By whose word it is.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum By {
    /// What is done where no rule matches.
    #[default]
    Setting,
    /// The rule of this number, counted from 1.
    Rule(u8),
    /// Nobody said otherwise, and who asks for a name asks again sooner than an old answer would be
    /// of use.
    Names,
}

impl Rules {
    /// Rules in their order, of which the first [`RULES_MAX`] count, and what is done where none
    /// matches.
    pub fn new(otherwise: Hold, rules: &[Rule]) -> Self {
        Self {
            otherwise,
            rules: rules.iter().take(RULES_MAX).copied().collect(),
            assist: Assist::default(),
        }
    }

    /// The same, with other connections assisted.
    pub fn assisting(self, assist: Assist) -> Self {
        Self { assist, ..self }
    }

    /// Which connections are assisted, of those that are kept.
    pub(super) const fn assist(&self) -> Assist {
        self.assist
    }

    /// Whether nothing is done for any connection.
    pub(super) fn is_off(&self) -> bool {
        self.otherwise == Hold::Off && self.rules.iter().all(|rule| rule.hold == Hold::Off)
    }

    /// What is done for a connection.
    pub(super) fn choose(&self, tuple: &Tuple, class: Class) -> Choice {
        for (number, rule) in (1..).zip(self.rules.iter()) {
            if rule.of.is_met(tuple, class) {
                return Choice { hold: rule.hold, by: By::Rule(number) };
            }
        }
        match (self.otherwise, class) {
            (Hold::Full | Hold::Reinject, Class::Names) => {
                Choice { hold: Hold::Reinject, by: By::Names }
            }
            (hold, Class::Interactive | Class::Names | Class::Bulk | Class::RealTime) => {
                Choice { hold, by: By::Setting }
            }
        }
    }
}

impl From<Hold> for Rules {
    /// The same for every connection.
    fn from(hold: Hold) -> Self {
        Self::new(hold, &[])
    }
}

impl Matches {
    fn is_met(&self, tuple: &Tuple, class: Class) -> bool {
        match self {
            Self::Class(of) => *of == class,
            Self::End { network, port } => {
                let end = End { network: *network, port: *port };
                end.means(tuple.local) || end.means(tuple.remote)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::inner::TCP;

    fn tuple(local: [u8; 4], remote: ([u8; 4], u16)) -> Tuple {
        let remote = (remote.0.into(), remote.1);
        Tuple { local: (local.into(), 40_000), remote, protocol: TCP }
    }

    fn end(address: [u8; 4], bits: u8, port: Option<u16>, hold: Hold) -> Rule {
        let network = Prefix { address: address.into(), bits };
        Rule { of: Matches::End { network, port }, hold }
    }

    #[test]
    fn the_first_that_matches_wins() {
        let rules = [
            end([192, 0, 2, 0], 24, Some(443), Hold::Off),
            Rule { of: Matches::Class(Class::Interactive), hold: Hold::Full },
            end([192, 0, 2, 0], 24, None, Hold::Reinject),
        ];
        let rules = Rules::new(Hold::Off, &rules);
        let choose = |port, class| {
            let choice = rules.choose(&tuple([10, 0, 0, 1], ([192, 0, 2, 9], port)), class);
            (choice.hold, choice.by)
        };
        assert_eq!(choose(443, Class::Bulk), (Hold::Off, By::Rule(1)));
        assert_eq!(choose(443, Class::Interactive), (Hold::Off, By::Rule(1)));
        assert_eq!(choose(22, Class::Interactive), (Hold::Full, By::Rule(2)));
        assert_eq!(choose(80, Class::Bulk), (Hold::Reinject, By::Rule(3)));
        let elsewhere = rules.choose(&tuple([10, 0, 0, 1], ([192, 0, 3, 9], 443)), Class::Bulk);
        assert_eq!(elsewhere, Choice { hold: Hold::Off, by: By::Setting });
    }

    #[test]
    fn either_end_is_as_good_and_a_port_is_that_ends() {
        let near = Rules::new(Hold::Off, &[end([10, 0, 0, 1], 32, None, Hold::Full)]);
        let from = tuple([10, 0, 0, 1], ([192, 0, 2, 9], 443));
        let to = Tuple { local: from.remote, remote: from.local, protocol: TCP };
        assert_eq!(near.choose(&from, Class::Bulk).by, By::Rule(1));
        assert_eq!(near.choose(&to, Class::Bulk).by, By::Rule(1));
        let port = Rules::new(Hold::Off, &[end([10, 0, 0, 1], 32, Some(443), Hold::Full)]);
        assert_eq!(port.choose(&from, Class::Bulk).by, By::Setting, "the other end's port");
    }

    #[test]
    fn names_are_not_held_unless_somebody_says_so() {
        let tuple = tuple([10, 0, 0, 1], ([192, 0, 2, 53], 53));
        let usual = Rules::from(Hold::Full).choose(&tuple, Class::Names);
        assert_eq!(usual, Choice { hold: Hold::Reinject, by: By::Names });
        let rule = Rule { of: Matches::Class(Class::Names), hold: Hold::Full };
        let said = Rules::new(Hold::Off, &[rule]).choose(&tuple, Class::Names);
        assert_eq!(said, Choice { hold: Hold::Full, by: By::Rule(1) });
    }

    #[test]
    fn so_many_and_no_more() {
        let none = end([127, 0, 0, 1], 32, None, Hold::Off);
        let mut rules = vec![none; RULES_MAX + 1];
        rules[RULES_MAX] = end([0, 0, 0, 0], 0, None, Hold::Full);
        let rules = Rules::new(Hold::Off, &rules);
        assert!(rules.is_off(), "the last one does not count");
        let choice = rules.choose(&tuple([10, 0, 0, 1], ([192, 0, 2, 9], 443)), Class::Bulk);
        assert_eq!(choice.by, By::Setting);
        assert!(!Rules::new(Hold::Off, &[end([0, 0, 0, 0], 0, None, Hold::Full)]).is_off());
    }
}
