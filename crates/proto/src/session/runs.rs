//! Detects that two hosts use one key, because of a cloned disk or a copied directory.
//!
//! In each epoch a client sends a random number that identifies the run of its program. One host
//! has one run at a time. If a run returns after another took its place, both are alive. An honest
//! client never causes this by roaming, by restarting or by a restored backup, because none of
//! these makes an old run return.
//!
//! This module decides only what is reported. Neither host has a better right to the key. So both
//! stay, and displace each other until a person gives one of them its own key. Only a client that
//! holds the key can send a run number, so nobody else can raise this alarm.
//!
//! Limits: two machines resumed from one memory image have the same run, and are not noticed.

use std::collections::VecDeque;

use crate::time::{Duration, Instant};

/// Runs remembered besides the present one. If more hosts share the key, they are noticed when they
/// return the next time.
const REMEMBERED_MAX: usize = 8;
/// How long an alarm lasts after the last return. Two hosts that both have traffic displace each
/// other within a minute, and a person should still see the alarm later.
pub const ALARM_TIME: Duration = Duration::from_secs(120);

/// Two hosts use one key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SharedKey {
    /// When this was first noticed.
    pub since: Instant,
    /// When this was last noticed.
    pub last: Instant,
}

impl SharedKey {
    /// Whether the alarm still lasts.
    pub fn stands(&self, now: Instant) -> bool {
        now.saturating_since(self.last) < ALARM_TIME
    }
}

/// The alarm that two hosts use the client's key, and at its gateway the runs that may raise it.
#[derive(Debug, Default)]
pub(crate) struct KeyAlarm {
    raised: Option<SharedKey>,
    present: Option<u64>,
    before: VecDeque<u64>,
}

impl KeyAlarm {
    /// Raises the alarm, or prolongs it. Returns whether it is new.
    pub(crate) fn raise(&mut self, now: Instant) -> bool {
        let lasting = self.raised.filter(|alarm| alarm.stands(now));
        self.raised =
            Some(SharedKey { since: lasting.map_or(now, |alarm| alarm.since), last: now });
        lasting.is_none()
    }

    /// Whether the alarm was raised and still lasts.
    pub(crate) fn lasts(&self, now: Instant) -> bool {
        self.raised.is_some_and(|alarm| alarm.stands(now))
    }

    /// The last alarm, for people.
    pub(crate) const fn raised(&self) -> Option<SharedKey> {
        self.raised
    }

    /// Notes the client's present run. Returns whether this run was replaced by another one before.
    pub(crate) fn returns(&mut self, run: u64) -> bool {
        let Some(replaced) = self.present.replace(run).filter(|&replaced| replaced != run) else {
            return false;
        };
        let place = self.before.iter().position(|&known| known == run);
        place.and_then(|place| self.before.remove(place));
        if self.before.len() >= REMEMBERED_MAX {
            self.before.pop_front();
        }
        self.before.push_back(replaced);
        place.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_run_that_was_replaced_returns() {
        let mut runs = KeyAlarm::default();
        let heard = [7, 7, 8, 8, 9, 8, 8, 7, 9];
        let returned: Vec<bool> = heard.iter().map(|&run| runs.returns(run)).collect();
        let expected = [false, false, false, false, false, true, false, true, true];
        assert_eq!(returned, expected);
    }

    #[test]
    fn a_host_that_restarts_for_ever_returns_never_and_costs_no_memory() {
        let mut runs = KeyAlarm::default();
        assert!((0..1_000).all(|run| !runs.returns(run)));
        assert_eq!(runs.before.len(), REMEMBERED_MAX);
    }
}
