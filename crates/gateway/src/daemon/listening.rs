//! The sockets that a gateway listens on: where they are bound, and which number the core knows
//! each by.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use anyhow::{Result, ensure};
use rove_host::data::FIRST_SOCKET_OF_CORE;
use rove_os::plan::MARK;
use rove_os::udp::{UdpOptions, UdpSocket};
use rove_proto::id::SocketId;

/// What listens, by the numbers that the core knows. A socket stays open until the process ends.
#[derive(Debug, Default)]
pub(super) struct Listening {
    bound: BTreeMap<SocketId, SocketAddr>,
}

impl Listening {
    /// Binds one more socket. A host without IPv6 listens on IPv4 only.
    pub(super) fn open(&mut self, local: SocketAddr) -> Result<(SocketId, UdpSocket)> {
        let number = u32::try_from(self.bound.len())?;
        ensure!(
            number < FIRST_SOCKET_OF_CORE,
            "{number} sockets listen already: restart the gateway, which closes the old ones"
        );
        let bind = |local| {
            let mark = Some(MARK);
            UdpSocket::bind(UdpOptions { local, ipv6_only: false, interface: None, mark })
        };
        let socket = match bind(local) {
            Err(rove_os::error::Error::Os { .. }) if local.ip().is_unspecified() => {
                bind((Ipv4Addr::UNSPECIFIED, local.port()).into())
            }
            opened => opened,
        }?;
        let number = SocketId(number);
        self.bound.insert(number, socket.local());
        Ok((number, socket))
    }

    /// Opens all of these addresses, in order.
    pub(super) fn open_all(&mut self, places: &[SocketAddr]) -> Result<Vec<(SocketId, UdpSocket)>> {
        places.iter().map(|&local| self.open(local)).collect()
    }

    /// The socket that receives what is sent to `address` of this host, and can answer from there.
    pub(super) fn socket_of(&self, address: SocketAddr) -> Option<SocketId> {
        let found = self.bound.iter().find(|&(_, &bound)| serves(bound, address));
        found.map(|(&socket, _)| socket)
    }

    /// Every place that is listened at, in the order of opening.
    pub(super) fn places(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        self.bound.values().copied()
    }

    /// These were opened last, and nobody wants them.
    pub(super) fn forget(&mut self, sockets: impl IntoIterator<Item = SocketId>) {
        for socket in sockets {
            self.bound.remove(&socket);
        }
    }

    /// Where a socket is bound.
    pub(super) fn local(&self, socket: SocketId) -> Option<SocketAddr> {
        self.bound.get(&socket).copied()
    }
}

/// Whether what comes to `address` comes to a socket bound to `bound`.
pub(super) fn serves(bound: SocketAddr, address: SocketAddr) -> bool {
    let every = match bound.ip() {
        IpAddr::V4(ip) => ip.is_unspecified() && address.is_ipv4(),
        IpAddr::V6(ip) => ip.is_unspecified(),
    };
    bound.port() == address.port() && (every || bound.ip() == address.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_socket_is_found_by_the_address_that_it_serves() {
        let mut listening = Listening::default();
        let (every, socket) = listening.open(at("127.0.0.1:0")).unwrap();
        assert_eq!((every, listening.local(every)), (SocketId(0), Some(socket.local())));
        let port = socket.local().port();
        assert!(listening.socket_of(at(&format!("127.0.0.1:{port}"))).is_some());
        assert!(listening.socket_of(at(&format!("127.0.0.2:{port}"))).is_none());
        let (every, socket) = listening.open(at("0.0.0.0:0")).unwrap();
        let port = socket.local().port();
        assert_eq!(listening.socket_of(at(&format!("127.0.0.2:{port}"))), Some(every));
        assert!(listening.socket_of(at(&format!("[::1]:{port}"))).is_none(), "of the other family");
        let (bound, _again) = (listening.bound.len(), socket);
        assert!(listening.open(at(&format!("0.0.0.0:{port}"))).is_err(), "taken");
        assert_eq!(listening.bound.len(), bound);
    }
}
