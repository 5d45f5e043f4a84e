//! What the end of an open connection was told has arrived has arrived, or the end hears that it
//! may not have: a node that acknowledges in another's name keeps its word, or breaks the
//! connection. And once nothing is owed any more, nothing is written down.
//!
//! Judged when trouble is over and everything has come to rest; until then a node may owe. What is
//! read, and in which order, is judged with every byte.

use super::{Breach, Law};

/// One direction of a connection.
#[derive(Clone, Debug)]
pub(in crate::world) struct Promised {
    /// Which connection, and who sends.
    pub(in crate::world) who: String,
    /// Bytes that the sending end believes to have arrived.
    pub(in crate::world) acknowledged: u64,
    /// Bytes that the receiving machine was ever given, in order.
    pub(in crate::world) arrived: u64,
    /// Whether the sending end knows that the connection did not end well.
    pub(in crate::world) knows: bool,
}

/// Checks one direction of a connection that rests.
pub(in crate::world) fn check_promise(promised: &Promised) -> Result<(), Breach> {
    let Promised { who, acknowledged, arrived, knows } = promised;
    if acknowledged <= arrived || *knows {
        return Ok(());
    }
    let what = format!("{who}: {acknowledged} bytes were acknowledged, {arrived} have arrived");
    Err(Breach::new(Law::Promise, what))
}
