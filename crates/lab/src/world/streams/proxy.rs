//! An HTTP proxy on the Internet (CONNECT, RFC 9110, section 9.3.6): it ends a client's connection,
//! begins one of its own to where it is asked to, and passes on what comes by either, no more than
//! the other one gets rid of. Whatever ends one of them ends both.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Where it listens.
pub(in crate::world) const LISTENS: SocketAddr =
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(198, 18, 0, 2)), 3_128);
/// What it is asked, and what it says when it is done: the lengths are what counts.
pub(in crate::world) const ASKED: &[u8] =
    b"CONNECT gateway:443 HTTP/1.1\r\nHost: gateway:443\r\n\r\n";
pub(in crate::world) const GRANTED: &[u8] = b"HTTP/1.1 200 OK\r\n\r\n";
