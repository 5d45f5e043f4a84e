//! Streams against a real kernel: marks, interfaces, and a kernel without MPTCP.

#![allow(clippy::unwrap_used)] // a test that cannot go on fails

mod support;

use std::os::fd::AsRawFd;

use rove_os::{
    error::Error,
    stream::{Security, Stream, StreamError, StreamOptions, Transport},
};
use support::{
    in_namespace, net,
    streams::{Gateway, carry, failure},
};

const OPTIONS: StreamOptions<'_> = StreamOptions {
    local: None,
    interface: None,
    mark: None,
    remote: std::net::SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 1),
    mptcp: true,
    security: Security::Plain,
    proxy: None,
};

#[test]
fn a_stream_has_its_mark_its_interface_and_its_address() {
    in_namespace("a_stream_has_its_mark_its_interface_and_its_address", || {
        net::address("lo", "10.1.0.1/32");
        for mptcp in [true, false] {
            let mut gateway = Gateway::new("127.0.0.1:0", None);
            let options = StreamOptions {
                local: Some("10.1.0.1:0".parse().unwrap()),
                interface: Some("lo"),
                mark: Some(0x726f),
                remote: gateway.address(),
                mptcp,
                ..OPTIONS
            };
            let mut client = Stream::connect(&options, 0).unwrap();
            let mut ours = gateway.open(&mut client).unwrap();
            let (mut mark, mut length) = (0u32, 4);
            // SAFETY: the option's value is four bytes, and so is `mark`.
            let result = unsafe {
                libc::getsockopt(
                    client.as_raw_fd(),
                    libc::SOL_SOCKET,
                    libc::SO_MARK,
                    (&raw mut mark).cast(),
                    &raw mut length,
                )
            };
            assert_eq!((result, mark), (0, 0x726f));
            assert_eq!(client.local(), Some([10, 1, 0, 1].into()));
            assert_eq!(ours.remote().ip().to_string(), "10.1.0.1");
            carry(&mut client, &mut ours, 100_000, 1_400);
        }
    });
}

#[test]
fn a_kernel_without_mptcp_gives_tcp() {
    in_namespace("a_kernel_without_mptcp_gives_tcp", || {
        if std::fs::write("/proc/sys/net/mptcp/enabled", "0").is_err() {
            support::skip_inside("MPTCP", "this kernel has none to switch off");
        }
        let mut gateway = Gateway::new("127.0.0.1:0", None);
        let options = StreamOptions { remote: gateway.address(), ..OPTIONS };
        let mut client = Stream::connect(&options, 0).unwrap();
        let mut ours = gateway.open(&mut client).unwrap();
        assert_eq!((client.transport(), ours.transport()), (Transport::Tcp, Transport::Tcp));
        carry(&mut ours, &mut client, 100_000, 1_400);
    });
}

#[test]
fn what_cannot_be_reached_is_told_at_once() {
    in_namespace("what_cannot_be_reached_is_told_at_once", || {
        let remote = "192.0.2.1:443".parse().unwrap();
        let error = Stream::connect(&StreamOptions { remote, ..OPTIONS }, 0).unwrap_err();
        assert!(matches!(error, Error::Os { .. }), "{error}");
        // A neighbour that does not answer is found out after three seconds; here, it is unplugged.
        net::veth("here", "there");
        net::address("here", "192.0.2.2/24");
        net::up("here");
        net::up("there");
        let remote = "192.0.2.1:443".parse().unwrap();
        let stream = Stream::connect(&StreamOptions { remote, ..OPTIONS }, 0).unwrap();
        let error = failure(stream);
        assert!(matches!(error, StreamError::Unreachable { to, .. } if to == remote), "{error}");
    });
}

#[test]
fn a_port_is_one_listeners_and_is_free_again_at_once() {
    in_namespace("a_port_is_one_listeners_and_is_free_again_at_once", || {
        let mut gateway = Gateway::new("127.0.0.1:443", None);
        let options = rove_os::stream::ListenOptions {
            local: &[gateway.address()],
            ipv6_only: false,
            mark: Some(0x726f),
            backend: None,
        };
        let error = rove_os::stream::Listener::bind(&options).unwrap_err();
        assert!(
            matches!(error, Error::TcpPortInUse { addr } if addr == gateway.address()),
            "{error}"
        );
        let options = StreamOptions { remote: gateway.address(), ..OPTIONS };
        let mut client = Stream::connect(&options, 0).unwrap();
        // The gateway's end closes first, which leaves the port in TIME_WAIT.
        drop(gateway.open(&mut client).unwrap());
        drop(failure(client));
        drop(gateway);
        let mut gateway = Gateway::new("127.0.0.1:443", None);
        let mut client = Stream::connect(&options, 0).unwrap();
        gateway.open(&mut client).unwrap();
    });
}
