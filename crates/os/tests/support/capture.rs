//! What travels on a cable, as seen at its far end.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    time::Duration,
};

use super::net;

/// Frames seen at the far end of the only cable.
pub(crate) struct Capture {
    pub(crate) socket: OwnedFd,
}

impl Capture {
    pub(crate) fn start(interface: &str) -> Self {
        let protocol = (libc::ETH_P_ALL as u16).to_be();
        // SAFETY: makes a descriptor that nobody else owns.
        let fd = unsafe {
            libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_NONBLOCK, protocol.into())
        };
        assert!(fd >= 0, "{}", io::Error::last_os_error());
        // SAFETY: the descriptor was just made.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: all-zero bytes are a valid sockaddr_ll.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = protocol;
        address.sll_ifindex = net::index(interface) as i32;
        let length = size_of::<libc::sockaddr_ll>() as u32;
        // SAFETY: the address lives through the call and has the length that is given.
        let result = unsafe { libc::bind(fd, (&raw const address).cast(), length) };
        assert_eq!(result, 0, "{}", io::Error::last_os_error());
        Self { socket }
    }

    /// Sends an IP packet from the far end to every host on the cable.
    pub(crate) fn send(&self, packet: &[u8]) {
        self.send_to([0xff; 6], packet);
    }

    /// Sends an IP packet from the far end to a hardware address.
    pub(crate) fn send_to(&self, address: [u8; 6], packet: &[u8]) {
        let kind = if packet[0] >> 4 == 4 { libc::ETH_P_IP } else { libc::ETH_P_IPV6 };
        let mut frame = [address, [2, 0, 0, 0, 0, 1]].concat();
        frame.extend((kind as u16).to_be_bytes());
        frame.extend(packet);
        // SAFETY: the pointer and the length are those of a live vector.
        let sent =
            unsafe { libc::send(self.socket.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
        assert_eq!(usize::try_from(sent), Ok(frame.len()), "{}", io::Error::last_os_error());
    }

    /// What came since the last call, as "protocol destination:port", without what the kernel
    /// says by itself to have IPv6 at all.
    pub(crate) fn take(&self) -> Vec<String> {
        self.packets().iter().filter_map(|packet| describe(packet)).collect()
    }

    /// The IP packets that came since the last call.
    pub(crate) fn packets(&self) -> Vec<Vec<u8>> {
        std::thread::sleep(Duration::from_millis(30));
        let mut seen = Vec::new();
        let mut frame = [0u8; 2_048];
        loop {
            // SAFETY: the pointer and the length are those of a live, writable array.
            let got = unsafe {
                libc::recv(self.socket.as_raw_fd(), frame.as_mut_ptr().cast(), frame.len(), 0)
            };
            let Ok(got) = usize::try_from(got) else { return seen };
            seen.push(frame[14..got].to_vec());
        }
    }
}

fn describe(packet: &[u8]) -> Option<String> {
    let (protocol, destination, transport) = match packet.first()? >> 4 {
        4 => {
            let octets: [u8; 4] = packet[16..20].try_into().unwrap();
            (packet[9], IpAddr::from(octets), &packet[20..])
        }
        6 => {
            let octets: [u8; 16] = packet[24..40].try_into().unwrap();
            (packet[6], IpAddr::from(octets), &packet[40..])
        }
        _ => return None,
    };
    let port = |at: usize| u16::from_be_bytes([transport[at], transport[at + 1]]);
    match protocol {
        17 => Some(format!("udp {}", SocketAddr::new(destination, port(2)))),
        6 => Some(format!("tcp {}", SocketAddr::new(destination, port(2)))),
        1 => Some(format!("icmp {destination}")),
        // Multicast listener reports come with a hop-by-hop header, neighbour discovery without.
        0 | 58 => None,
        other => Some(format!("protocol {other} {destination}")),
    }
}
