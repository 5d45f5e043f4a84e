//! The numbers of the data thread's event sources.

use mio::Token;

pub(super) const WAKE: Token = Token(0);
pub(super) const TUN: Token = Token(1);
pub(super) const STREAMS: Token = Token(2);
pub(super) const COPIED: Token = Token(3);
pub(super) const FIRST_SOCKET: usize = 4;
