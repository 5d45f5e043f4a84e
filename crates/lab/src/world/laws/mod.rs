//! The laws of the world, checked as it goes, one file each.
//!
//! A law sees what no node sees: who really sent a datagram, what every address is for, what was
//! handed in on the other side. It never looks at a node's private state.

mod amplification;
mod bounds;
mod delivery;
mod floor;
mod hijack;
mod nonces;
mod promise;
mod unlinkable;

use std::fmt;

pub(super) use amplification::Amplification;
pub(super) use bounds::{Handshakes, check_held, check_indices, check_status};
pub(super) use delivery::Delivery;
pub(super) use floor::check_floor;
pub(super) use hijack::Hijack;
pub(super) use nonces::Nonces;
pub(super) use promise::{Promised, check_promise};
pub(super) use unlinkable::Unlinkable;

/// The laws, by number and name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Law {
    /// What is delivered was sent, unaltered, by that peer, from its own address, to where it may
    /// send; and is delivered once.
    Delivery,
    /// No pair of key and nonce is used twice.
    Nonces,
    /// No datagram is sealed with a suite below the floor of either end.
    Floor,
    /// An unproven address gets at most three times the authentic bytes that came from it, and no
    /// more answers to handshakes than came in.
    Amplification,
    /// After a turn at `t`, the next timeout lies after `t`; and the world comes to rest.
    Timeout,
    /// When trouble has ended, packets get through again within [`super::BACK_WITHIN`] and 2 % of
    /// the outage; and then none is lost.
    AlwaysBack,
    /// A session's path never becomes an address that its peer did not send from; one that is only
    /// claimed gets copies, and no packet is lost to it.
    Hijack,
    /// What is not authentic, or not new, changes nothing.
    Unauthenticated,
    /// Paths, queues, indices, sockets, handshakes and what is held of connections are bounded.
    Bounds,
    /// An idle session is silent, or sends what a NAT needs and no more; and is reached at once
    /// when there is something to say.
    Silence,
    /// A revoked client gets nothing through any more, and no data is sent to where it was.
    Revocation,
    /// No node reports that two hosts use one key, because none do.
    Alarm,
    /// A restart repeats no handshake counter.
    Restart,
    /// The gateway knows whoever is enrolled, and nobody else; a restart loses none.
    Enrolment,
    /// Datagrams leave only from sockets that are open.
    Sockets,
    /// No session index is seen in two networks of a client: it takes new ones when it moves.
    Unlinkable,
    /// Data goes by the first link in order that carries; a departure that is announced and a
    /// return lose no packet. Or it goes by several together, and in sequence: none that leaves
    /// takes a packet along.
    Order,
    /// What programs read from connections was written, in that order. What the end of one believes
    /// to have arrived has arrived when trouble is over, or the end knows that it broke; and nodes
    /// have struck out what they wrote down of it.
    Promise,
}

/// A law was broken.
#[derive(Clone, Debug)]
pub(super) struct Breach {
    pub(super) law: Law,
    pub(super) what: String,
}

impl Law {
    /// Every law.
    pub const ALL: [Self; 18] = [
        Self::Delivery,
        Self::Nonces,
        Self::Floor,
        Self::Amplification,
        Self::Timeout,
        Self::AlwaysBack,
        Self::Hijack,
        Self::Unauthenticated,
        Self::Bounds,
        Self::Silence,
        Self::Revocation,
        Self::Alarm,
        Self::Restart,
        Self::Enrolment,
        Self::Sockets,
        Self::Unlinkable,
        Self::Order,
        Self::Promise,
    ];
}

impl Breach {
    pub(super) const fn new(law: Law, what: String) -> Self {
        Self { law, what }
    }
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.law, self.what)
    }
}

#[cfg(test)]
mod tests;
