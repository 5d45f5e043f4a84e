//! The kill switch, captured: what an unprotected program sends does not reach the wire.

#![allow(clippy::unwrap_used)] // a test that cannot go on fails

mod support;

use std::{
    collections::BTreeSet,
    fs, io,
    net::{IpAddr, SocketAddr},
    os::fd::AsRawFd,
    process::Command,
    time::Duration,
};

use rove_os::{
    error::Error,
    plan::{Applier, Guard, KillSwitch, MARK, MARK_INBOUND, Places, Plan, close},
    tun::{Tun, TunOptions},
    udp::{Datagrams, Ecn, ReceiveBuffer, UdpOptions, UdpSocket},
};
use support::{capture::Capture, has_program, in_namespace, in_network_of_root, net, skip_inside};

struct Host {
    capture: Capture,
    _tun: Tun,
    applier: Applier,
    dir: tempfile::TempDir,
}

const GATEWAY: &str = "203.0.113.7:443";

fn plan() -> Plan {
    Plan {
        device: "rove0".to_owned(),
        mtu: 1_400,
        addresses: vec!["10.7.0.2/24".parse().unwrap(), "fd07::2/64".parse().unwrap()],
        routes: vec!["0.0.0.0/0".parse().unwrap(), "::/0".parse().unwrap()],
        kill_switch: Some(KillSwitch {
            gateways: vec!["203.0.113.7".parse().unwrap()],
            ..KillSwitch::default()
        }),
        ..Plan::default()
    }
}

impl Host {
    fn new(plan: &Plan) -> Self {
        if !has_program("nft") {
            skip_inside("the kill switch", "the program nft is missing (package nftables)");
        }
        net::uplink(false);
        let tun =
            support::tun("TUN", TunOptions { name: "rove0", persistent: false, offload: true });
        let dir = tempfile::tempdir().unwrap();
        let resolv_conf = dir.path().join("resolv.conf");
        fs::write(&resolv_conf, "").unwrap();
        let places = Places { state: dir.path().to_owned(), resolv_conf, resolved: false };
        let mut applier = Applier::open(places).unwrap();
        let capture = Capture::start("far");
        // A cable needs a moment until it carries; besides, the kernel may announce its groups.
        let leaves = || {
            let _ = sends("192.0.2.1:9", None, 0);
            capture.take().contains(&"udp 192.0.2.1:9".to_owned())
        };
        assert!((0..100).any(|_| leaves()), "the capture sees nothing");
        applier.apply(plan).unwrap();
        capture.take();
        Self { capture, _tun: tun, applier, dir }
    }

    /// Takes everything back, and the cable away.
    fn end(mut self) {
        self.applier.undo().unwrap();
        self.applier.remove_kill_switch().unwrap();
        net::remove("far");
    }

    fn places(&self) -> Places {
        let state = self.dir.path().to_owned();
        Places { resolv_conf: state.join("resolv.conf"), state, resolved: false }
    }

    /// Tries what routing rules stop. IPv4 from the interface itself would leave here, where frames
    /// need no neighbour that answers (`ip_route_output_key_hash_rcu` in net/ipv4/route.c).
    fn assert_unrouted(&self, when: &str) {
        for remote in ["192.0.2.1:53", "192.168.5.9:80", "[2001:db8::1]:53", "[fd05::9]:80"] {
            let _ = (sends(remote, None, 0), sends(remote, Some(MARK), 0));
        }
        let _ = sends_through("wan", "[2001:db8::1]:53");
        let seen = self.capture.take();
        assert!(seen.is_empty(), "{when}: {seen:?}");
    }

    /// Tries everything that must not leave by the cable, from the interface itself too.
    fn assert_closed(&self, when: &str) {
        for remote in
            ["192.0.2.1:53", "192.0.2.1:443", "203.0.113.7:443", "192.168.5.9:80", "1.2.3.4:67"]
        {
            let _ = sends(remote, None, 0);
            let _ = sends_through("wan", remote);
        }
        for remote in ["[2001:db8::1]:53", "[fd05::9]:80", "[2001:db8::1]:547"] {
            let _ = sends(remote, None, 0);
            let _ = sends_through("wan", remote);
        }
        let seen = self.capture.take();
        assert!(seen.is_empty(), "{when}: {seen:?}");
    }
}

fn sends(remote: &str, mark: Option<u32>, port: u16) -> Result<(), String> {
    let remote: SocketAddr = remote.parse().unwrap();
    let any = if remote.is_ipv4() { "0.0.0.0" } else { "::" };
    let local = SocketAddr::new(any.parse().unwrap(), port);
    send(UdpOptions { local, ipv6_only: true, interface: None, mark }, remote)
}

/// As a program would that chooses its own interface, past all routing.
fn sends_through(interface: &str, remote: &str) -> Result<(), String> {
    let remote: SocketAddr = remote.parse().unwrap();
    let local = if remote.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let local = local.parse().unwrap();
    let interface = Some(interface);
    send(UdpOptions { local, ipv6_only: true, interface, mark: None }, remote)
}

fn send(options: UdpOptions<'_>, remote: SocketAddr) -> Result<(), String> {
    let mut socket = UdpSocket::bind(options).map_err(|error| error.to_string())?;
    let contents = b"secret";
    let datagrams =
        Datagrams { remote, source: None, ecn: Ecn::NotCapable, contents, segment: None };
    socket.send(datagrams).map_err(|error| error.to_string())
}

#[test]
fn only_the_tunnels_own_datagrams_leave() {
    in_namespace("only_the_tunnels_own_datagrams_leave", || {
        let host = Host::new(&plan());
        host.assert_closed("with the tunnel up");
        sends(GATEWAY, Some(MARK), 0).unwrap();
        assert_eq!(host.capture.take(), [format!("udp {GATEWAY}")]);
        // A refusal is told at once.
        let started = std::time::Instant::now();
        sends_through("wan", "192.0.2.1:9").unwrap_err();
        assert!(started.elapsed() < Duration::from_secs(1));
    });
}

#[test]
fn dhcp_stays_open() {
    in_namespace("dhcp_stays_open", || {
        let host = Host::new(&plan());
        // From the interface, as a DHCP client does.
        let local = "0.0.0.0:68".parse().unwrap();
        let client = UdpOptions { local, ipv6_only: false, interface: Some("wan"), mark: None };
        send(client, "192.168.5.1:67".parse().unwrap()).unwrap();
        let local = "[::]:546".parse().unwrap();
        let client = UdpOptions { local, ipv6_only: true, interface: Some("wan"), mark: None };
        send(client, "[ff02::1:2]:547".parse().unwrap()).unwrap();
        broadcast("0.0.0.0:68", "255.255.255.255:67");
        let servers = ["udp 192.168.5.1:67", "udp [ff02::1:2]:547", "udp 255.255.255.255:67"];
        assert_eq!(host.capture.take(), servers);
        // Other hosts are no servers of this link: the ports alone open nothing.
        for (local, remote) in [
            ("0.0.0.0:68", "192.0.2.1:67"),
            ("0.0.0.0:68", "192.168.6.1:67"),
            ("[::]:546", "[2001:db8::1]:547"),
            ("[::]:546", "[fd05::1]:547"),
        ] {
            let (local, remote): (SocketAddr, SocketAddr) =
                (local.parse().unwrap(), remote.parse().unwrap());
            for interface in [Some("wan"), None] {
                let _ = send(UdpOptions { local, ipv6_only: true, interface, mark: None }, remote);
            }
        }
        assert_eq!(host.capture.take(), [""; 0]);
    });
}

fn broadcast(local: &str, remote: &str) {
    use std::net::UdpSocket;
    let socket = UdpSocket::bind(local).unwrap();
    // SAFETY: the value and its length are those of a live C string.
    let bound = unsafe {
        let name = c"wan";
        let (level, option) = (libc::SOL_SOCKET, libc::SO_BINDTODEVICE);
        libc::setsockopt(socket.as_raw_fd(), level, option, name.as_ptr().cast(), 4)
    };
    assert_eq!(bound, 0, "{}", io::Error::last_os_error());
    socket.set_broadcast(true).unwrap();
    socket.send_to(b"secret", remote).unwrap();
}

/// Another program may have the right to set the mark of the tunnel's datagrams.
#[test]
fn the_mark_is_of_use_to_roves_user_alone() {
    in_network_of_root("the_mark_is_of_use_to_roves_user_alone", || {
        let guard = Some(Guard::default());
        for plan in [plan(), Plan { guard: guard.clone(), ..plan() }, only_guarded(guard)] {
            let host = Host::new(&plan);
            for mark in [MARK, MARK_INBOUND] {
                let remotes = ["192.0.2.1:9", "203.0.113.7:443", "[2001:db8::1]:9"];
                let send = move || remotes.map(|remote| drop(sends(remote, Some(mark), 0)));
                let as_another = move || {
                    // SAFETY: the call changes the credentials of this thread alone.
                    unsafe { libc::setfsuid(500) };
                    send();
                };
                std::thread::spawn(as_another).join().unwrap();
                assert_eq!(host.capture.take(), [""; 0], "{mark:x}, {plan:?}");
                send();
                let ours = remotes.map(|remote| format!("udp {remote}")).to_vec();
                assert_eq!(host.capture.take(), if mark == MARK { ours } else { vec![] });
            }
            host.end();
        }
    });
}

fn only_guarded(guard: Option<Guard>) -> Plan {
    Plan { kill_switch: None, guard, ..plan() }
}

#[test]
fn neighbour_discovery_stays_open() {
    in_namespace("neighbour_discovery_stays_open", || {
        let host = Host::new(&plan());
        net::neighbours("wan", true);
        // The router has to be found before the tunnel's datagram can leave.
        sends("[2001:db8::1]:443", Some(MARK), 0).unwrap();
        let solicits =
            |packet: &Vec<u8>| packet[0] >> 4 == 6 && packet[6] == 58 && packet[40] == 135;
        assert!((0..50).any(|_| host.capture.packets().iter().any(solicits)));
    });
}

/// Sends an ICMPv6 message of a program's own, past all routing.
fn discover(kind: u8, hops: u32, to: &str) {
    use socket2::{Domain, Protocol, Socket, Type};
    let socket = Socket::new(Domain::IPV6, Type::RAW, Some(Protocol::ICMPV6)).unwrap();
    socket.bind_device(Some(b"wan")).unwrap();
    socket.set_unicast_hops_v6(hops).unwrap();
    socket.set_multicast_hops_v6(hops).unwrap();
    let to = SocketAddr::new(to.parse().unwrap(), 0);
    let _ = socket.send_to(&[&[kind, 0, 0, 0][..], b"secret secret secret"].concat(), &to.into());
}

#[test]
fn neighbour_discovery_leaves_for_neighbours_alone() {
    in_namespace("neighbour_discovery_leaves_for_neighbours_alone", || {
        let [group, near, local] = ["ff02::1:ff00:9", "fd05::9", "fe80::9"];
        for plan in [plan(), only_guarded(Some(Guard::default()))] {
            let host = Host::new(&plan);
            let messages = || -> BTreeSet<(u8, u8, String)> {
                let packets = host.capture.packets().into_iter();
                let sent = packets.filter(|packet| packet.ends_with(b"secret secret secret"));
                let told = |packet: Vec<u8>| {
                    let to: [u8; 16] = packet[24..40].try_into().unwrap();
                    (packet[40], packet[7], IpAddr::from(to).to_string())
                };
                sent.map(told).collect()
            };
            for (kind, hops, to) in [
                // To the Internet, also with the right hop limit, and by a router.
                (135, 255, "2001:db8::1"),
                (136, 255, "2001:db8::1"),
                (133, 255, "2001:db8::1"),
                (135, 64, near),
                (136, 64, local),
                (135, 64, group),
                (143, 1, "2001:db8::1"),
                (143, 64, "2001:db8::1"),
                (143, 64, "ff02::16"),
                (143, 1, near),
            ] {
                discover(kind, hops, to);
            }
            assert_eq!(messages(), BTreeSet::new(), "{plan:?}");
            let meant = [
                (133, 255, "ff02::2"),
                (135, 255, group),
                (135, 255, near),
                (136, 255, near),
                (136, 255, local),
                (143, 1, "ff02::16"),
            ];
            meant.iter().for_each(|(kind, hops, to)| discover(*kind, u32::from(*hops), to));
            let meant = meant.map(|(kind, hops, to)| (kind, hops, to.to_owned()));
            assert_eq!(messages(), BTreeSet::from(meant), "{plan:?}");
            host.end();
        }
    });
}

#[test]
fn answers_to_the_tunnel_come_in_and_nothing_else_does() {
    in_namespace("answers_to_the_tunnel_come_in_and_nothing_else_does", || {
        let host = Host::new(&plan());
        let options = |mark| UdpOptions {
            local: "192.168.5.2:4000".parse().unwrap(),
            ipv6_only: false,
            interface: None,
            mark,
        };
        let mut socket = UdpSocket::bind(options(Some(MARK))).unwrap();
        let contents = b"hello";
        let remote = "198.51.100.1:443".parse().unwrap();
        let datagrams =
            Datagrams { remote, source: None, ecn: Ecn::NotCapable, contents, segment: None };
        socket.send(datagrams).unwrap();
        let mut buffer = ReceiveBuffer::new(4);
        let mut heard = Vec::new();
        let senders = ["198.51.100.1:443", "203.0.113.7:4500", "192.0.2.66:443"];
        for sender in senders {
            inject("far", sender.parse().unwrap(), "192.168.5.2:4000".parse().unwrap());
        }
        for _ in 0..20 {
            std::thread::sleep(Duration::from_millis(10));
            socket.receive(&mut buffer, |meta, _| heard.push(meta.remote.to_string())).unwrap();
        }
        // The one that was asked, and a gateway that speaks first from a new port.
        assert_eq!(heard, senders[..2]);
        // Anybody can send from the gateway's address. Only the tunnel's own sockets hear that.
        let other = std::net::UdpSocket::bind("192.168.5.2:5000").unwrap();
        other.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        inject("far", "203.0.113.7:443".parse().unwrap(), "192.168.5.2:5000".parse().unwrap());
        assert!(other.recv_from(&mut [0; 16]).is_err(), "a forged datagram came in");
        drop(host);
    });
}

/// Puts a datagram on the cable at its far end.
fn inject(interface: &str, from: SocketAddr, to: SocketAddr) {
    let (IpAddr::V4(source), IpAddr::V4(destination)) = (from.ip(), to.ip()) else { panic!() };
    let mut packet = vec![0x45, 0, 0, 32, 0, 1, 0, 0, 64, 17, 0, 0];
    packet.extend(source.octets());
    packet.extend(destination.octets());
    let sum =
        packet.chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum::<u32>();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    for word in [from.port(), to.port(), 12, 0] {
        packet.extend(word.to_be_bytes());
    }
    packet.extend(b"news");
    let target = fs::read_to_string("/proc/net/dev").unwrap();
    assert!(target.contains(interface));
    let mac = mac_of("wan");
    let frame = [&mac[..], &[2, 0, 0, 0, 0, 9], &[8, 0], &packet].concat();
    let capture = Capture::start(interface);
    // SAFETY: the pointer and the length are those of a live slice.
    let sent =
        unsafe { libc::send(capture.socket.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
    assert_eq!(sent, frame.len() as isize, "{}", io::Error::last_os_error());
}

fn mac_of(name: &str) -> Vec<u8> {
    // SAFETY: all-zero bytes are a valid ifreq.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (slot, byte) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *slot = byte as libc::c_char;
    }
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    // SAFETY: SIOCGIFHWADDR fills one ifreq, which lives through the call.
    let mac = unsafe {
        assert_eq!(libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFHWADDR, &raw mut request), 0);
        request.ifr_ifru.ifru_hwaddr.sa_data
    };
    mac[..6].iter().map(|&byte| byte as u8).collect()
}

#[test]
fn the_lan_opens_only_when_allowed_and_never_for_dns() {
    in_namespace("the_lan_opens_only_when_allowed_and_never_for_dns", || {
        let mut host = Host::new(&plan());
        host.assert_closed("without the LAN");
        let open = Plan { allow_lan: true, ..plan() };
        host.applier.apply(&open).unwrap();
        sends("192.168.5.9:80", None, 0).unwrap();
        sends("[fd05::9]:80", None, 0).unwrap();
        let _ = sends("192.168.5.9:53", None, 0);
        let _ = sends("[fd05::9]:853", None, 0);
        let _ = sends_through("wan", "192.0.2.1:80");
        assert_eq!(host.capture.take(), ["udp 192.168.5.9:80", "udp [fd05::9]:80"]);
        host.applier.apply(&plan()).unwrap();
        host.assert_closed("after the LAN was closed again");
    });
}

#[test]
fn what_is_excluded_from_the_tunnel_stays_open() {
    in_namespace("what_is_excluded_from_the_tunnel_stays_open", || {
        let exclude = vec!["198.51.100.0/24".parse().unwrap(), "198.51.100.0/25".parse().unwrap()];
        let host = Host::new(&Plan { exclude, ..plan() });
        sends("198.51.100.200:80", None, 0).unwrap();
        assert_eq!(host.capture.take(), ["udp 198.51.100.200:80"]);
        host.assert_closed("with an exclusion");
    });
}

#[test]
fn it_stands_after_a_crash_through_the_sweep_and_the_next_start() {
    in_namespace("it_stands_after_a_crash_through_the_sweep_and_the_next_start", || {
        let mut host = Host::new(&plan());
        // The process is gone, and its TUN with it.
        net::remove("rove0");
        host.assert_closed("after a crash");
        host.applier = Applier::open(host.places()).unwrap();
        host.assert_closed("after the next start");
        host.applier.undo().unwrap();
        host.assert_closed("after the sweep");
        let tun =
            Tun::open(TunOptions { name: "rove0", persistent: false, offload: true }).unwrap();
        host.applier.apply(&plan()).unwrap();
        host.assert_closed("with the next plan");
        drop(tun);
        host.applier.undo().unwrap();
        host.applier.remove_kill_switch().unwrap();
        sends("192.0.2.1:53", None, 0).unwrap();
        assert_eq!(host.capture.take(), ["udp 192.0.2.1:53"], "removing it opens nothing");
    });
}

#[test]
fn replacing_it_opens_nothing_for_an_instant() {
    in_namespace("replacing_it_opens_nothing_for_an_instant", || {
        let mut host = Host::new(&plan());
        let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let told = stop.clone();
        let sender = std::thread::spawn(move || {
            let local = "0.0.0.0:0".parse().unwrap();
            let interface = Some("wan");
            let options = UdpOptions { local, ipv6_only: false, interface, mark: None };
            let mut socket = UdpSocket::bind(options).unwrap();
            let remote = "192.0.2.1:9".parse().unwrap();
            let contents = b"leak";
            let mut tries = 0u64;
            while !told.load(std::sync::atomic::Ordering::Relaxed) && tries < 50_000_000 {
                let ecn = Ecn::NotCapable;
                let _ =
                    socket.send(Datagrams { remote, source: None, ecn, contents, segment: None });
                tries += 1;
            }
            tries
        });
        for round in 0..30u8 {
            let gateways = vec![IpAddr::from([203, 0, 113, round])];
            let switch = Some(KillSwitch { gateways, ..KillSwitch::default() });
            host.applier.apply(&Plan { kill_switch: switch, ..plan() }).unwrap();
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        let tries = sender.join().unwrap();
        assert!(tries > 1_000, "the sender hardly tried: {tries}");
        let seen = host.capture.take();
        assert!(seen.is_empty(), "{} of {tries} leaked: {seen:?}", seen.len());
    });
}

#[test]
fn nft_shows_the_rules_as_they_are_meant() {
    in_namespace("nft_shows_the_rules_as_they_are_meant", || {
        let _host = Host::new(&Plan { allow_lan: true, ..plan() });
        let output = Command::new("nft").args(["list", "ruleset"]).output().unwrap();
        let rules = String::from_utf8(output.stdout).unwrap();
        for expected in [
            "hook output priority filter; policy drop;",
            "hook input priority filter; policy drop;",
            "hook forward priority filter; policy drop;",
            "meta mark 0x0000726f meta skuid 0 ct mark set 0x0000726f accept",
            "ip daddr { 169.254.0.0/16, 255.255.255.255 } udp sport 68 udp dport 67 accept",
            "ip saddr 203.0.113.7 socket mark 0x0000726f accept",
            "oifname \"rove0\" accept",
        ] {
            assert!(rules.contains(expected), "{expected} is missing in {rules}");
        }
    });
}

fn hide_nft() {
    // An empty file system over every place where nft could be.
    for dir in ["/usr/sbin", "/sbin", "/usr/local/sbin", "/usr/local/bin", "/bin", "/usr/bin"] {
        support::hide(dir);
    }
}

#[test]
fn one_that_could_not_be_installed_does_not_stand() {
    in_namespace("one_that_could_not_be_installed_does_not_stand", || {
        let mut host = Host::new(&Plan { kill_switch: None, ..plan() });
        hide_nft();
        let error = host.applier.apply(&plan()).unwrap_err();
        assert!(matches!(error, Error::NftMissing { what: "the kill switch" }), "{error}");
        assert!(!host.applier.kill_switch_stands());
        host.applier.undo().unwrap();
        host.applier.remove_kill_switch().unwrap();
        assert!(!host.dir.path().join("plan.json").exists(), "nor does the next process say so");
    });
}

#[test]
fn after_a_boot_it_comes_back_or_goes_for_good() {
    in_namespace("after_a_boot_it_comes_back_or_goes_for_good", || {
        let mut host = Host::new(&plan());
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        let path = host.dir.path().join("plan.json");
        // The rules are gone, and the journal is of another life.
        let reboot = |applier: &mut Applier| {
            applier.undo().unwrap();
            Command::new("nft").args(["flush", "ruleset"]).status().unwrap();
            let text = fs::read_to_string(&path).unwrap();
            assert!(text.contains(boot.trim()));
            fs::write(&path, text.replace(boot.trim(), "another")).unwrap();
        };
        reboot(&mut host.applier);
        host.applier = Applier::open(host.places()).unwrap();
        host.applier.apply(&Plan { kill_switch: None, ..plan() }).unwrap();
        host.assert_closed("after the next plan, which has none");

        reboot(&mut host.applier);
        hide_nft();
        host.applier = Applier::open(host.places()).unwrap();
        let error = host.applier.stand_kill_switch().unwrap_err();
        assert!(matches!(error, Error::NftMissing { what: "the kill switch" }), "{error}");
        // Without a filter the boot unit closes the host by routing rules.
        close().unwrap();
        close().unwrap();
        host.assert_unrouted("closed by rules");
        assert!(host.applier.kill_switch_is_there().unwrap());
        host.applier.undo().unwrap();
        host.assert_unrouted("closed by rules, after the sweep");
        host.applier.remove_kill_switch().unwrap();
        assert!(!path.exists());
        sends("192.0.2.1:53", None, 0).unwrap();
        assert_eq!(host.capture.take(), ["udp 192.0.2.1:53"]);
    });
}
