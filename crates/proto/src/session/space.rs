//! A lane is one path in one direction under one epoch: a session index, a serial, numbers.
//!
//! Nonces come from here, so here is the rule that no (key, nonce) repeats: a lane's numbers only
//! grow, and a serial is given to one lane within its epoch.

use crate::id::{PacketNumber, PathSerial, SessionIndex};
use crate::outbox::RunSeal;
use crate::path::PathId;
use crate::recovery::feedback::Owed;
use crate::recovery::replay::ReplayWindow;
use crate::time::Instant;
use crate::wire::data::expand_number;

/// The sending half of a path within an epoch.
#[derive(Clone, Debug)]
pub(crate) struct TxSpace {
    /// The path that it sends on.
    pub path: PathId,
    /// What seals its datagrams: key, the receiver's index, serial.
    pub seal: RunSeal,
    next: PacketNumber,
}

impl TxSpace {
    /// A lane that has sent nothing.
    pub(crate) const fn new(path: PathId, seal: RunSeal) -> Self {
        Self { path, seal, next: 0 }
    }

    /// The number of the next datagram, taken: no other datagram will get it.
    pub(crate) const fn take_number(&mut self) -> PacketNumber {
        let number = self.next;
        self.next += 1;
        number
    }
}

/// The receiving half of a path within an epoch.
#[derive(Clone, Debug)]
pub(crate) struct RxSpace {
    /// The index that this node issued for it.
    pub index: SessionIndex,
    /// The path part of its nonces.
    pub serial: PathSerial,
    /// The path that its datagrams arrive by; `None` before the first.
    pub path: Option<PathId>,
    /// Which numbers arrived.
    pub window: ReplayWindow,
    /// What feedback it owes.
    pub owed: Owed,
    /// Which numbers, lost here, were delivered by another path.
    elsewhere: ReplayWindow,
}

impl RxSpace {
    /// A lane on which nothing arrived yet.
    pub(crate) fn new(index: SessionIndex, serial: PathSerial) -> Self {
        Self {
            index,
            serial,
            path: None,
            window: ReplayWindow::default(),
            owed: Owed::default(),
            elsewhere: ReplayWindow::default(),
        }
    }

    /// What the datagram with these low bits carried has come by another path. Returns whether it
    /// is to be delivered: it arrived neither here nor there before.
    pub(crate) fn take_retransmitted(&mut self, now: Instant, number: u32) -> bool {
        let number = expand_number(self.window.highest(), number);
        let new = self.window.check(number).and_then(|()| self.elsewhere.check(number)).is_ok();
        if new {
            self.elsewhere.commit(now, number);
            // Few are lost, and what comes late may be as far back as on any lane.
            self.elsewhere.widen_like(&self.window);
        }
        new
    }

    /// Whether what the datagram `number` carries was delivered by another path already.
    pub(crate) fn was_retransmitted(&self, number: PacketNumber) -> bool {
        self.elsewhere.has(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_far_behind_a_repair_is_delivered_all_the_same() {
        const FAST: u64 = 40_000;
        let now = Instant::from_nanos(1);
        let mut lane = RxSpace::new(SessionIndex(1), PathSerial(0));
        for number in (0..FAST).filter(|number| ![5, FAST - 1].contains(number)) {
            lane.window.commit(now, number);
        }
        assert!(lane.window.check(5).is_ok(), "the window of a fast path reaches back so far");
        let low = |number: u64| u32::try_from(number).unwrap();
        assert!(lane.take_retransmitted(now, low(FAST - 1)));
        assert!(!lane.take_retransmitted(now, low(FAST - 1)) && !lane.was_retransmitted(5));
        assert!(lane.was_retransmitted(FAST - 1) && lane.take_retransmitted(now, 5));
        assert!(lane.was_retransmitted(5));
    }
}
