//! How a stream is opened, and how far it is.

use std::net::SocketAddr;

use super::proxy::Proxy;

/// How to open a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamOptions<'a> {
    /// Local address; port zero lets the kernel choose. `None`: by the kernel's routes.
    pub local: Option<SocketAddr>,
    /// Through this interface only (`SO_BINDTODEVICE`).
    pub interface: Option<&'a str>,
    /// Mark of every packet (`SO_MARK`), by which policy rules let it pass by the tunnel.
    pub mark: Option<u32>,
    /// The gateway, by which the stream is known; connected to, unless there is a proxy.
    pub remote: SocketAddr,
    /// MPTCP where both kernels have it, else TCP.
    /// [`Stream::transport`](super::Stream::transport) tells which.
    pub mptcp: bool,
    /// What surrounds the frames.
    pub security: Security<'a>,
    /// An HTTP proxy to pass through.
    pub proxy: Option<Proxy<'a>>,
}

/// What surrounds the frames, for the eyes of the network; it protects nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Security<'a> {
    /// A preface, then frames.
    Plain,
    /// TLS 1.3 with ALPN `rove/1`.
    Tls {
        /// The name or address in the first message, readable by the network (RFC 6066 section 3).
        server_name: &'a str,
    },
}

/// What carries a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transport {
    /// TCP (RFC 9293).
    Tcp,
    /// Multipath TCP (RFC 8684), spoken by both ends.
    Mptcp,
}

/// How far a stream is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// TCP connects, to the gateway or the proxy.
    Connecting,
    /// The proxy was asked.
    AskingProxy,
    /// TLS shakes hands.
    Securing,
    /// Datagrams travel.
    Open,
    /// It ended, or broke: nothing travels any more.
    Closed,
}
