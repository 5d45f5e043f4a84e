//! The subflows of an MPTCP stream, as the kernel reports them (linux/mptcp.h, `MPTCP_TCPINFO` and
//! `MPTCP_SUBFLOW_ADDRS`, since Linux 5.16).
//!
//! There are two requests, each with an array as its reply, in the order of the subflows. If the
//! two do not match, because a subflow came or went in between, the result is empty. A request asks
//! for the entry length that this module reads: a newer kernel with longer entries returns this
//! part of them.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    os::fd::AsRawFd,
    time::Duration,
};

use socket2::Socket;

use crate::socket::SOL_MPTCP;

/// Subflows that are told of: the first, and as many more as the kernel's limit allows.
pub const SUBFLOWS_MAX: usize = 9;

const MPTCP_TCPINFO: libc::c_int = 2;
const MPTCP_SUBFLOW_ADDRS: libc::c_int = 3;

/// Bytes of `struct mptcp_subflow_data`, which stands before the entries.
const HEAD_LEN: usize = 16;
/// Bytes of an address in `struct mptcp_subflow_addrs`, which has ours and theirs.
const ADDRESS_LEN: usize = 128;
/// Bytes that are read of `struct tcp_info` (linux/tcp.h), to the end of `tcpi_bytes_sent`,
const INFO_LEN: usize = 208;
/// and where its fields are.
const RTT_AT: usize = 68;
const BYTES_RECEIVED_AT: usize = 128;
const BYTES_SENT_AT: usize = 200;

/// One TCP connection of an MPTCP stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Subflow {
    /// Our address.
    pub local: SocketAddr,
    /// Theirs.
    pub remote: SocketAddr,
    /// Bytes of data that it sent, what it repeated included.
    pub tx_bytes: u64,
    /// Bytes of data that it received, in its order.
    pub rx_bytes: u64,
    /// Its round trip, smoothed.
    pub rtt: Duration,
}

/// The subflows of a stream that is one of MPTCP; none of another.
pub(super) fn subflows(socket: &Socket) -> Vec<Subflow> {
    let addresses = entries(socket, MPTCP_SUBFLOW_ADDRS, 2 * ADDRESS_LEN).unwrap_or_default();
    let infos = entries(socket, MPTCP_TCPINFO, INFO_LEN).unwrap_or_default();
    if addresses.len() != infos.len() {
        return Vec::new();
    }
    addresses.iter().zip(&infos).filter_map(|(addresses, info)| read(addresses, info)).collect()
}

fn read(addresses: &[u8], info: &[u8]) -> Option<Subflow> {
    let long = |at: usize| Some(u64::from_ne_bytes(*info.get(at..)?.first_chunk()?));
    let rtt = u32::from_ne_bytes(*info.get(RTT_AT..)?.first_chunk()?);
    Some(Subflow {
        local: address(addresses.get(..ADDRESS_LEN)?)?,
        remote: address(addresses.get(ADDRESS_LEN..)?)?,
        tx_bytes: long(BYTES_SENT_AT)?,
        rx_bytes: long(BYTES_RECEIVED_AT)?,
        rtt: Duration::from_micros(u64::from(rtt)),
    })
}

/// `struct sockaddr_in` or `struct sockaddr_in6` (ip(7), ipv6(7)).
fn address(bytes: &[u8]) -> Option<SocketAddr> {
    let family = libc::c_int::from(u16::from_ne_bytes(*bytes.first_chunk()?));
    let port = u16::from_be_bytes(*bytes.get(2..)?.first_chunk()?);
    let ip = match family {
        libc::AF_INET => IpAddr::from(*bytes.get(4..)?.first_chunk::<4>()?),
        libc::AF_INET6 => IpAddr::from(*bytes.get(8..)?.first_chunk::<16>()?),
        _ => return None,
    };
    Some(SocketAddr::new(ip.to_canonical(), port))
}

/// What the kernel says of each subflow: at most `wanted` bytes each, and zeroes where it knows
/// fewer.
fn entries(socket: &Socket, option: libc::c_int, wanted: usize) -> io::Result<Vec<Vec<u8>>> {
    let mut bytes = vec![0u8; HEAD_LEN + SUBFLOWS_MAX * wanted];
    let number = |number: usize| u32::try_from(number).unwrap_or(u32::MAX).to_ne_bytes();
    // size_subflow_data and size_user; the kernel fills in num_subflows and size_kernel.
    bytes[..4].copy_from_slice(&number(HEAD_LEN));
    bytes[12..16].copy_from_slice(&number(wanted));
    let mut length = libc::socklen_t::try_from(bytes.len()).unwrap_or(0);
    // SAFETY: the kernel reads and writes at most `length` bytes, which live through the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            SOL_MPTCP,
            option,
            bytes.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    let count = u32::from_ne_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]) as usize;
    let entries = bytes[HEAD_LEN..].chunks_exact(wanted).take(count);
    Ok(entries.map(<[u8]>::to_vec).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_read_as_the_header_files_have_it() {
        let mut addresses = vec![0u8; 2 * ADDRESS_LEN];
        addresses[..2].copy_from_slice(&2u16.to_ne_bytes());
        addresses[2..8].copy_from_slice(&[0x11, 0x94, 10, 2, 0, 2]);
        addresses[ADDRESS_LEN..ADDRESS_LEN + 2].copy_from_slice(&10u16.to_ne_bytes());
        addresses[ADDRESS_LEN + 3] = 80;
        addresses[ADDRESS_LEN + 8..ADDRESS_LEN + 12].copy_from_slice(&[0x20, 1, 0xd, 0xb8]);
        let mut info = vec![0u8; INFO_LEN];
        info[RTT_AT..RTT_AT + 4].copy_from_slice(&20_500u32.to_ne_bytes());
        info[BYTES_RECEIVED_AT..BYTES_RECEIVED_AT + 8].copy_from_slice(&7u64.to_ne_bytes());
        info[BYTES_SENT_AT..].copy_from_slice(&(1u64 << 40).to_ne_bytes());
        let expected = Subflow {
            local: "10.2.0.2:4500".parse().unwrap(),
            remote: "[2001:db8::]:80".parse().unwrap(),
            tx_bytes: 1 << 40,
            rx_bytes: 7,
            rtt: Duration::from_micros(20_500),
        };
        assert_eq!(read(&addresses, &info), Some(expected));
        assert_eq!(read(&addresses[..ADDRESS_LEN], &info), None);
        assert_eq!(read(&addresses, &info[..204]), None);
        assert_eq!(read(&[0; 256], &info), None);
    }
}
