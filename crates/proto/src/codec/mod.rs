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
