//! What a session promises, told between two nodes and by an attacker who sees all that they say:
//! a file for each promise. One program, so that both nodes are built once.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

mod eve;
#[path = "../pair/mod.rs"]
mod pair;

mod attacker;
mod batches;
mod bonding;
mod compact;
mod copied;
mod dead_links;
mod first_packet;
mod flows;
mod forged_announcements;
mod gateway_moves;
mod hold;
mod keepalive;
mod links;
mod live;
mod newcomers;
mod noticed;
mod offload;
mod overrides;
mod path_mtu;
mod policing;
mod profiles;
mod questions;
mod rekey;
mod saving;
mod shared_key;
mod slowing;
mod spread;
mod streams;
mod voids;
