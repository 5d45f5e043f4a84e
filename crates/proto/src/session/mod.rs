//! A session's keys and numbers: epochs, session indices, packet number spaces with their replay
//! windows, and the control frames that arrive once and in order.
//!
//! Opens datagrams and gives out packet numbers. Knows nothing of the frames inside a datagram.

pub mod control;
pub mod epoch;
pub mod epochs;
pub mod identity;
pub mod index;
pub mod restart;
pub mod runs;
pub mod space;
