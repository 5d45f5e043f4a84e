//! Fewer bytes for the same inner packets.
//!
//! - Headers: of which the constant fields were sent once ([`header`]), which flows have such a
//!   template, and under which ID ([`contexts`]).
//! - Compression: which flows may be compressed ([`allowed`]), the decision about each packet
//!   ([`entries`], [`sampling`]), how it is written ([`coding`]), and the algorithms
//!   ([`compression`], [`dictionary`]).
//!
//! Bytes in, bytes out: knows no path, no peer and no keys. The caller says what it may use.

pub mod allowed;
pub mod coding;
pub mod compression;
pub mod contexts;
pub mod dictionary;
pub mod entries;
pub mod header;
pub mod sampling;

use allowed::Allowed;
use dictionary::Dictionaries;
use entries::Decides;

/// How a node saves bytes on inner packets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SavingConfig {
    /// Whether packets that wait for the same path share datagrams.
    pub aggregates: bool,
    /// Client: whether compressed packets are padded to a multiple of
    /// [`PADDED_TO`](compression::PADDED_TO) bytes, at both ends.
    pub pads: bool,
    /// Whether as few bytes as possible leave: no copies of realtime packets and DNS queries.
    pub frugal: bool,
    /// Client: the flows that are compressed, at both ends.
    pub compress: Allowed,
    /// The dictionaries that this end has. They are taken when the node begins, and stay.
    pub dictionaries: Dictionaries,
    /// How this end decides whether compression pays.
    pub decides: Decides,
}

impl Default for SavingConfig {
    fn default() -> Self {
        Self {
            aggregates: true,
            pads: false,
            frugal: false,
            compress: Allowed::default(),
            dictionaries: Dictionaries::default(),
            decides: Decides::default(),
        }
    }
}
