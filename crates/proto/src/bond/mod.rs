//! Many links as one: what waits for a turn, who goes where, and how it becomes a sequence again.
//!
//! Knows packets, times and rates, not addresses or keys: the peer says which paths there are.

pub mod codel;
pub mod entry;
pub mod reorder;

/// What is made of the links that a client has.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Mode {
    /// One path carries and no other is prepared.
    Single,
    /// One path carries; by every other link one is proven ahead of need.
    #[default]
    Backup,
    /// What every link can carry, together.
    Full,
}
