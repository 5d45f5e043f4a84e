//! Whether two hosts use one key: a cloned disk, or a copied directory.
//!
//! In each epoch a client names the run of its program by a random number. One host has one run at
//! a time, so a run that comes back after another took its place proves that both are alive. An
//! honest client gives no cause for this, however it roams, restarts, or is set back to a backup:
//! no run of it comes back.
//!
//! Decides only what is reported. Neither host has a better right to the key, so both stay, and
//! displace each other until a person gives one of them a key of its own. Only a client that holds
//! the key can name a run, so nobody else can raise this alarm.
//!
//! Limits: a machine that was resumed twice from one memory image has one run, and is not noticed.

use std::collections::VecDeque;

use super::epochs::Standing;
use super::{Context, Event, Peer, Role};
use crate::time::{Duration, Instant};
use crate::wire::control::Control;

/// Runs that are remembered beside the present one. Hosts beyond are noticed with their next
/// return.
const REMEMBERED_MAX: usize = 8;
/// How long an alarm stands after the last return: two hosts that both have traffic displace each
/// other within a minute, and a person should still see it when she looks.
pub const ALARM_TIME: Duration = Duration::from_secs(600);

/// Two hosts use one key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SharedKey {
    /// When that was first noticed.
    pub since: Instant,
    /// When it was noticed last.
    pub last: Instant,
}

impl SharedKey {
    /// Whether it is still so, as far as anybody can tell.
    pub fn stands(&self, now: Instant) -> bool {
        now.saturating_since(self.last) < ALARM_TIME
    }

    /// Noticed again, or for the first time in a while; the second is news.
    fn noticed(before: Option<Self>, now: Instant) -> (Self, bool) {
        match before.filter(|before| before.stands(now)) {
            Some(before) => (Self { last: now, ..before }, false),
            None => (Self { since: now, last: now }, true),
        }
    }
}

/// The runs of a client's program, as its gateway heard of them.
#[derive(Debug, Default)]
pub(super) struct Runs {
    present: Option<u64>,
    before: VecDeque<u64>,
}

impl Runs {
    /// The client has this run now. Returns whether it is one that another had taken the place of.
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
    /// Client: names the run of this program.
    pub(super) fn name_run(&mut self, cx: &Context<'_>) {
        if let Role::Client(connector) = &self.role {
            self.control.push(cx.now, &Control::Run(connector.run));
        }
    }

    /// Gateway: the client names the run of its program.
    pub(super) fn take_run(&mut self, cx: &mut Context<'_>, standing: Standing, run: u64) {
        // Under old keys it may be late, and says nothing of who is there now.
        if !self.at_gateway() || standing == Standing::Previous || !self.runs.returns(run) {
            return;
        }
        self.note_shared_key(cx);
        self.warn_of_shared_key(cx);
    }

    /// Gateway: tells a client that another host uses its key, if that is so.
    pub(super) fn warn_of_shared_key(&mut self, cx: &mut Context<'_>) {
        if self.shared_key.is_some_and(|shared| shared.stands(cx.now)) {
            self.control.push(cx.now, &Control::KeyIsShared);
            self.send_control(cx);
        }
    }

    /// Client: the gateway says that another host uses its key.
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
