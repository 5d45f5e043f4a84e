//! A lane is one path in one direction under one epoch: a session index, a serial, numbers.
//!
//! Nonces come from here, so here is the rule that no (key, nonce) repeats: a lane's numbers only
//! grow, and a serial is given to one lane within its epoch.

use super::PathId;
use super::feedback::{Flight, Owed};
use super::replay::ReplayWindow;
use crate::id::{PacketNumber, PathSerial, SessionIndex};
use crate::outbox::RunSeal;
use crate::time::Instant;

/// The sending half of a path within an epoch.
#[derive(Clone, Debug)]
pub struct TxLane {
    /// The path that it sends on.
    pub path: PathId,
    /// What seals its datagrams: key, the receiver's index, serial.
    pub seal: RunSeal,
    next: PacketNumber,
    /// What left and what the peer said of it.
    pub flight: Flight,
}

impl TxLane {
    /// A lane that has sent nothing.
    pub fn new(path: PathId, seal: RunSeal) -> Self {
        Self { path, seal, next: 0, flight: Flight::default() }
    }

    /// The number of the next datagram, taken: no other datagram will get it.
    pub fn take_number(&mut self, now: Instant, len: usize, eliciting: bool) -> PacketNumber {
        let number = self.next;
        self.next += 1;
        self.flight.sent(now, number, len, eliciting);
        number
    }
}

/// The receiving half of a path within an epoch.
#[derive(Clone, Debug)]
pub struct RxLane {
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
}

impl RxLane {
    /// A lane on which nothing arrived yet.
    pub fn new(index: SessionIndex, serial: PathSerial) -> Self {
        Self { index, serial, path: None, window: ReplayWindow::default(), owed: Owed::default() }
    }
}
