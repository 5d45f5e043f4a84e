//! Links and their changes, as the kernel tells them.

#![allow(clippy::unwrap_used)] // a test that cannot go on fails

mod support;

use std::{
    os::fd::AsRawFd,
    time::{Duration, Instant},
};

use rove_os::{
    links::{self, Link, LinkKind, Monitor},
    tun::TunOptions,
};
use support::{in_namespace, net};

const PATIENCE: Duration = Duration::from_secs(5);

fn link(name: &str) -> Link {
    let links = links::snapshot().unwrap();
    links.into_iter().find(|link| link.name == name).unwrap()
}

/// Waits until the snapshot satisfies, as carrier and addresses need a moment.
fn eventually(name: &str, good: impl Fn(&Link) -> bool) -> Link {
    let started = Instant::now();
    loop {
        let link = link(name);
        if good(&link) {
            return link;
        }
        assert!(started.elapsed() < PATIENCE, "{link:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_snapshot_tells_addresses_carrier_and_default_routes() {
    in_namespace("a_snapshot_tells_addresses_carrier_and_default_routes", || {
        let loopback = link("lo");
        assert_eq!((loopback.kind, loopback.up), (LinkKind::Loopback, true));
        assert!(!loopback.usable());

        net::veth("wan", "far");
        net::address("wan", "10.1.0.2/24");
        net::address("wan", "fd01::2/64");
        net::up("wan");
        let down = link("wan");
        assert_eq!((down.kind, down.up, down.carrier), (LinkKind::Ethernet, true, false));
        assert!(!down.usable());

        net::up("far");
        net::address("wan", "169.254.7.7/16");
        net::route("0.0.0.0/0", Some("10.1.0.1"), "wan");
        net::route("::/0", Some("fd01::1"), "wan");
        let up = eventually("wan", |link| link.carrier);
        assert!(up.usable());
        assert_eq!(up.mtu, 1_500);
        assert_eq!(up.default_v4, Some(0));
        assert_eq!(up.default_v6, Some(1_024));
        // Neither 169.254.7.7 nor the link-local address that the kernel makes.
        let expected = ["10.1.0.2/24", "fd01::2/64"].map(|net| net.parse().unwrap());
        assert_eq!(up.addresses, expected);
        assert_eq!(link("far").default_v4, None);
    });
}

#[test]
fn what_runs_out_or_waits_may_still_carry() {
    in_namespace("what_runs_out_or_waits_may_still_carry", || {
        net::veth("wan", "far");
        net::address("wan", "10.1.0.2/24");
        net::up("wan");
        net::up("far");
        let fresh = eventually("wan", |link| link.carrier);
        assert!(!fresh.deprecated);
        net::deprecate_address("wan", "10.1.0.2/24");
        let old = link("wan");
        assert!(old.usable() && old.deprecated);
        assert_eq!(old.addresses, fresh.addresses);
        net::address("wan", "10.1.0.3/24");
        let renumbered = link("wan");
        assert!(!renumbered.deprecated);
        assert_eq!(renumbered.addresses, ["10.1.0.3/24".parse().unwrap()]);
        net::dormant("wan");
        let dormant = eventually("wan", |link| link.dormant);
        assert!(dormant.may_carry() && !dormant.usable());
    });
}

#[test]
fn our_own_tunnel_is_no_link_to_use() {
    in_namespace("our_own_tunnel_is_no_link_to_use", || {
        let options = TunOptions { name: "rove0", persistent: false, offload: true };
        let _tun = support::tun("TUN", options);
        net::address("rove0", "10.7.0.2/24");
        net::up("rove0");
        let tunnel = eventually("rove0", |link| link.carrier);
        assert_eq!(tunnel.kind, LinkKind::Tunnel);
        assert!(!tunnel.usable());
    });
}

/// Whether the monitor tells of a change within `time`.
fn hears(monitor: &mut Monitor, time: Duration) -> bool {
    let mut polled = libc::pollfd { fd: monitor.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one pollfd that lives through the call.
    unsafe { libc::poll(&raw mut polled, 1, time.as_millis() as libc::c_int) };
    monitor.drain().unwrap()
}

/// Throws away news until it has been quiet for a while.
fn settle(monitor: &mut Monitor) {
    let started = Instant::now();
    while hears(monitor, Duration::from_millis(300)) {
        assert!(started.elapsed() < 4 * PATIENCE, "never quiet");
    }
}

#[test]
fn every_kind_of_change_is_heard() {
    in_namespace("every_kind_of_change_is_heard", || {
        let mut monitor = Monitor::open().unwrap();
        let changes: [(&str, fn()); 8] = [
            ("a new link", || net::veth("wan", "far")),
            ("a link set up", || net::up("wan")),
            ("carrier", || net::up("far")),
            ("an IPv4 address", || net::address("wan", "10.1.0.2/24")),
            ("an IPv6 address", || net::address("wan", "fd01::2/64")),
            ("a route", || net::route("10.5.0.0/16", Some("10.1.0.1"), "wan")),
            ("an address taken away", || net::remove_address("wan", "fd01::2/64")),
            ("a link taken away", || net::remove("wan")),
        ];
        for (what, change) in changes {
            settle(&mut monitor);
            change();
            assert!(hears(&mut monitor, PATIENCE), "{what} was not heard");
        }
        settle(&mut monitor);
        assert!(!hears(&mut monitor, Duration::from_millis(50)));
    });
}

#[test]
fn news_beyond_what_the_kernel_keeps_is_still_news() {
    in_namespace("news_beyond_what_the_kernel_keeps_is_still_news", || {
        let mut monitor = Monitor::open().unwrap();
        for _ in 0..600 {
            net::address("lo", "10.1.0.2/32");
            net::remove_address("lo", "10.1.0.2/32");
        }
        assert!(monitor.drain().unwrap());
        settle(&mut monitor);
        net::address("lo", "10.1.0.2/32");
        assert!(hears(&mut monitor, PATIENCE));
        assert!(link("lo").addresses.contains(&"10.1.0.2/32".parse().unwrap()));
    });
}
