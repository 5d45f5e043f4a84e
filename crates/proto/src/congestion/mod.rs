//! Congestion control: how fast each path is sent on.
//!
//! `controller` is the contract, `short_queue` the controller in use. The other files are its
//! parts: each owns its state, is handed values and answers with values, and none knows the
//! controller. Parts measure (`round`, `trip`, `queue`), set the pace (`pacer`, `growth`,
//! `startup`), or are heuristics.

mod ceiling;
mod competition;
mod controller;
mod cubic;
mod fast;
mod growth;
#[cfg(test)]
mod model;
mod pacer;
mod policed;
mod queue;
mod round;
mod short_queue;
mod startup;
pub mod status;
mod trial;
mod trip;
mod variation;

pub use controller::{Conditions, Controller, Findings};
pub use pacer::CREDIT;
pub use short_queue::ShortQueue;
