//! The Rove protocol, whole and pure.
//!
//! Nothing here reads a clock, opens a socket or a file, starts a thread or asks for randomness:
//! the shell says what happened and when ([`node::Node`]'s four verbs in), and takes what follows
//! from it (an [`outbox::Outbox`] of datagrams and inner packets, events, the next timeout). The
//! same bytes in the same order give the same bytes out, which is what lets the simulated world
//! run years of trouble in minutes.
//!
//! Imports go down only, siblings never meet (checked by `cargo xtask tidy`):
//! `node > peer > tunnel > paths > context > role > bonding > flow > session > codec, pack,
//! multipath, policy > path > congestion > recovery > outbox > crypto > wire > blocks > packet >
//! id, time, error, ablation`.

#![forbid(unsafe_code)]

// The tests share a pair of nodes with those outside the crate, and it names the crate.
#[cfg(test)]
extern crate self as rove_proto;

pub mod ablation;
pub mod blocks;
mod bonding;
pub mod codec;
pub mod congestion;
mod context;
pub mod crypto;
pub mod error;
pub mod flow;
pub mod id;
pub mod multipath;
pub mod node;
pub mod outbox;
pub mod pack;
pub mod packet;
pub mod path;
mod paths;
pub mod peer;
pub mod policy;
pub mod recovery;
pub mod role;
pub mod session;
pub mod time;
pub mod tunnel;
pub mod wire;
