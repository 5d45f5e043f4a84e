//! Many links as one: what waits for a turn, who goes where, and how it becomes a sequence again.
//!
//! Out: packets wait at the tunnel's `entry`, each flow in a queue of its own, until a path has
//! need of one; the `scheduler` that the client asked for says which path gets it, `numbers` what
//! its place in the sequence is, and `lines` keep it until that path may carry it; what is small
//! waits for none of this. In: `reorder` puts in sequence what came by several paths, or a second
//! time. Knows packets, times and rates, not addresses or keys: `bonding` says which paths
//! there are, and each path's congestion controller how much it carries.

mod abandoned;
pub mod bottleneck;
pub(crate) mod bucket;
pub mod codel;
pub mod far;
pub mod fq_codel;
mod numbers;
pub mod path_queues;
mod progress;
pub mod reorder;
pub mod scheduler;
mod settings;
pub mod snapshot;

pub use numbers::Numbers;
pub use settings::{Manager, Mode, Recovery, SUBFLOWS_MAX, Spread};
