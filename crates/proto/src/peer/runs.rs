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

use super::epochs::Standing;
use super::{Context, Event, Peer, Role};
use crate::time::{Duration, Instant};
use crate::wire::control::Control;

/// Runs remembered besides the present one. If more hosts share the key, they are noticed when they
/// return the next time.
const REMEMBERED_MAX: usize = 8;
/// How long an alarm lasts after the last return. Two hosts that both have traffic displace each
/// other within a minute, and a person should still see the alarm later.
pub const ALARM_TIME: Duration = Duration::from_secs(600);

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

    /// The alarm after another return. The flag is true if the alarm is new.
    fn noticed(before: Option<Self>, now: Instant) -> (Self, bool) {
        match before.filter(|before| before.stands(now)) {
            Some(before) => (Self { last: now, ..before }, false),
            None => (Self { since: now, last: now }, true),
        }
    }
}

/// The runs of a client's program that its gateway knows.
#[derive(Debug, Default)]
pub(super) struct Runs {
    present: Option<u64>,
    before: VecDeque<u64>,
}

impl Runs {
    /// Notes the client's present run. Returns whether this run was replaced by another one before.
    fn returns(&mut self, run: u64) -> bool {
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

impl Peer {
    /// Client: sends the number of this run.
    pub(super) fn name_run(&mut self, cx: &Context<'_>) {
        if let Role::Client(connector) = &self.role {
            self.control.push(cx.now, &Control::Run(connector.run));
        }
    }

    /// Gateway: takes the number of the client's run.
    pub(super) fn take_run(&mut self, cx: &mut Context<'_>, standing: Standing, run: u64) {
        // A frame under old keys may be late, and does not show which host is active now.
        if !self.at_gateway() || standing == Standing::Previous || !self.runs.returns(run) {
            return;
        }
        self.note_shared_key(cx);
        self.warn_of_shared_key(cx);
    }

    /// Gateway: reports to a client that another host uses its key, if the alarm lasts.
    pub(super) fn warn_of_shared_key(&mut self, cx: &mut Context<'_>) {
        if self.shared_key.is_some_and(|shared| shared.stands(cx.now)) {
            self.control.push(cx.now, &Control::KeyIsShared);
            self.send_control(cx);
        }
    }

    /// Client: takes the gateway's report that another host uses its key.
    pub(super) fn take_shared_key(&mut self, cx: &mut Context<'_>) {
        if !self.at_gateway() {
            self.note_shared_key(cx);
        }
    }

    fn note_shared_key(&mut self, cx: &mut Context<'_>) {
        let (shared, is_news) = SharedKey::noticed(self.shared_key, cx.now);
        self.shared_key = Some(shared);
        if is_news {
            cx.tell(Event::KeyIsShared { peer: self.key });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_run_that_was_replaced_returns() {
        let mut runs = Runs::default();
        let heard = [7, 7, 8, 8, 9, 8, 8, 7, 9];
        let returned: Vec<bool> = heard.iter().map(|&run| runs.returns(run)).collect();
        let expected = [false, false, false, false, false, true, false, true, true];
        assert_eq!(returned, expected);
    }

    #[test]
    fn a_host_that_restarts_for_ever_returns_never_and_costs_no_memory() {
        let mut runs = Runs::default();
        assert!((0..1_000).all(|run| !runs.returns(run)));
        assert_eq!(runs.before.len(), REMEMBERED_MAX);
    }
}
