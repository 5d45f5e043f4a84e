//! A session's keys and numbers: epochs, session indices, packet number spaces with their replay
//! windows, and the control frames that arrive once and in order.
//!
//! **Decides** which epoch is sent under and which are received under, which index and number a
//! datagram gets, and whether a datagram that arrives is authentic and new ([`epoch`], [`epochs`]).
//!
//! **Refuses to know** the frames inside a datagram, addresses that work, and what is sent when.
//!
//! **Answers.** `Epoch::open` returns the plaintext, or a [`DropReason`](crate::error::DropReason)
//! if the datagram changes nothing. `Epoch::lane` returns the packet number space to send in, or
//! `None` if the peer issued no index for it, or the keys are used up.
//!
//! **Bounds:** `PENDING_MAX` epochs that wait for their first datagram, `LANES_MAX` packet number
//! spaces to receive in, `PARKED_MAX` of paths that were given up, `QUEUE_MAX` control frames.

pub mod control;
pub mod epoch;
pub mod epochs;
pub mod identity;
pub mod index;
pub mod restart;
pub mod runs;
pub mod space;
