//! Which host has something to do next, without asking all of them.
//!
//! Decides the order in which they get their turn: that of [`HostId`], whenever several are due at
//! once.
//! Knows nothing of what they do. What it was told may be out of date, as that of a machine that
//! was switched off: who is woken looks again.

use std::collections::BTreeSet;

use super::host_id::{HostId, PerHost};

/// When each host wants to be woken, and who has something in its inbox.
#[derive(Debug, Default)]
pub(super) struct Wakes {
    due_ns: PerHost<Option<u64>>,
    order: BTreeSet<(u64, HostId)>,
    busy: BTreeSet<HostId>,
}

impl Wakes {
    /// Of so many gateways and clients.
    pub(super) fn new(gateways: usize, clients: usize) -> Self {
        Self { due_ns: PerHost::of(gateways, clients, |_| None), ..Self::default() }
    }

    /// When anybody wants to be woken next.
    pub(super) fn next_ns(&self) -> Option<u64> {
        self.order.first().map(|&(at_ns, _)| at_ns)
    }

    /// `host` wants to be woken then.
    pub(super) fn set(&mut self, host: HostId, due_ns: Option<u64>) {
        if let Some(before_ns) = std::mem::replace(&mut self.due_ns[host], due_ns) {
            self.order.remove(&(before_ns, host));
        }
        self.order.extend(due_ns.map(|at_ns| (at_ns, host)));
    }

    /// Who wants to be woken now.
    pub(super) fn due(&self, now_ns: u64) -> Vec<HostId> {
        let due = self.order.range(..(now_ns + 1, HostId::FIRST));
        let mut due: Vec<_> = due.map(|&(_, host)| host).collect();
        due.sort_unstable();
        due
    }

    /// Something waits in the inbox of `host`.
    pub(super) fn put(&mut self, host: HostId) {
        self.busy.insert(host);
    }

    /// In whose inbox something waits; asked about once.
    pub(super) fn take_busy(&mut self) -> BTreeSet<HostId> {
        std::mem::take(&mut self.busy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::host_id::GATEWAY;

    #[test]
    fn each_has_its_turn_when_it_said_last() {
        let mut wakes = Wakes::new(1, 2);
        let [first, second] = [0, 1].map(HostId::Client);
        wakes.set(second, Some(5));
        wakes.set(GATEWAY, Some(7));
        wakes.set(first, Some(5));
        assert_eq!((wakes.next_ns(), wakes.due(4)), (Some(5), vec![]));
        assert_eq!(wakes.due(7), [GATEWAY, first, second]);
        wakes.set(second, Some(9));
        wakes.set(first, None);
        assert_eq!((wakes.next_ns(), wakes.due(8)), (Some(7), vec![GATEWAY]));
    }
}
