//! The content of packet frames in fewer bytes, and back: bytes in, bytes out.
//!
//! - [`header`]: headers of which the constant fields were sent once;
//! - [`contexts`]: which flows have such a template, and under which ID.
//!
//! Knows no paths, no keys and no peers, and does not decide which packets are sent so. The caller
//! says what it may use.

pub mod contexts;
pub mod header;
