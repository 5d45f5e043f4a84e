//! Why a stream ended, or did not open.

use std::{io, net::SocketAddr};

/// The end of a stream. It carries nothing any more; another one may.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// Nobody listens there, or a firewall says so.
    #[error(
        "{to} refuses TCP connections: check that the gateway (or the proxy) listens there, or \
         give another port"
    )]
    Refused {
        /// The gateway's address, or the proxy's.
        to: SocketAddr,
    },

    /// No route, no answer, or the interface is gone.
    #[error("{to} cannot be reached by TCP: {source}: check this link, or take another")]
    Unreachable {
        /// The gateway's address, or the proxy's.
        to: SocketAddr,
        /// What the kernel said.
        source: io::Error,
    },

    /// 407 of the proxy (RFC 9110 section 15.5.8).
    #[error(
        "the proxy {proxy} wants a user and a password that it knows: write them into the proxy's \
         address as http://USER:PASSWORD@HOST:PORT"
    )]
    ProxyAuthentication {
        /// The proxy.
        proxy: SocketAddr,
    },

    /// Any other refusal of the proxy.
    #[error(
        "the proxy {proxy} does not connect to {target}: it answers {status} {reason}: ask whoever \
         runs it to allow CONNECT to that port"
    )]
    ProxyRefused {
        /// The proxy.
        proxy: SocketAddr,
        /// What it was asked for.
        target: String,
        /// The status, 100 to 599.
        status: u16,
        /// The words beside it, printable and short.
        reason: String,
    },

    /// Something else than a proxy.
    #[error("{proxy} does not answer like an HTTP proxy ({why}): check the proxy's address")]
    ProxyAnswer {
        /// Where a proxy was expected.
        proxy: SocketAddr,
        /// What is wrong with the answer.
        why: &'static str,
    },

    /// TLS failed.
    #[error(
        "no TLS 1.3 with {to}: {why}: check that a Rove gateway listens there, or try plain TCP"
    )]
    Tls {
        /// The other end.
        to: SocketAddr,
        /// What went wrong.
        why: String,
    },

    /// TLS works, but the other end did not choose `rove/1`.
    #[error(
        "{to} speaks TLS but is no Rove gateway: check the address and the port, or whether \
         something between opens TLS"
    )]
    NotRove {
        /// The other end.
        to: SocketAddr,
    },

    /// No datagram is that long, so the other end is not Rove or the bytes are damaged.
    #[error(
        "the stream is not Rove's: it tells of a datagram of {length} bytes: check the gateway's \
         address and port"
    )]
    BadLength {
        /// The length that was read.
        length: usize,
    },

    /// The other end closed the stream.
    #[error("the other end closed the stream: another one can be opened")]
    Ended,

    /// The stream broke: reset, timed out, link gone.
    #[error("the stream broke: {0}: another one can be opened")]
    Broken(io::Error),
}

impl StreamError {
    /// What a read or write that failed means for the stream.
    pub(super) fn broken(error: io::Error) -> Self {
        // TLS that was cut off says so in this way.
        let is_end = error.kind() == io::ErrorKind::UnexpectedEof;
        if is_end { Self::Ended } else { Self::Broken(error) }
    }
}
