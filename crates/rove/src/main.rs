//! `rove`: the one binary.
#![forbid(unsafe_code)]
#![allow(
    unreachable_pub,
    reason = "a binary has no outside: pub says that an item is for other modules than its own"
)]

mod config;
mod encoding;
mod files;
mod invite;
mod keys;
mod ledger;
mod quiet;
mod store;
mod values;

fn main() {
    quiet::install();
}
