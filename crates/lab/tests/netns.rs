//! Hosts, cards and cables for real: what the kernel of a host sees, and when.
//!
//! This test has a main function of its own, because a process that already has threads, as the
//! usual test runner's does, may not make a user namespace.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking and shows what it prints"
)]

use rove_lab::emu::{Carrier, End, Filter, LinkConfig, MS, NatConfig, NatKind, SECOND};
use rove_lab::netns::{self, Direction, Entered, HostId, Network, monotonic_ns};
use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::Duration;

type Test = (&'static str, fn(&Entered));

const TESTS: &[Test] = &[
    ("a_round_trip_takes_the_links_delay_and_no_more", a_round_trip),
    ("the_link_carries_its_rate", the_link_carries_its_rate),
    ("the_kernel_sees_the_cable_go_and_come", the_kernel_sees_the_cable),
    ("a_move_replaces_the_address_and_the_way_back", a_move_replaces_the_address),
    ("a_black_hole_is_silent_to_both_ends", a_black_hole_is_silent),
    ("a_nat_box_hides_the_client", a_nat_box_hides_the_client),
    ("a_middlebox_lets_by_what_begins_as_tls", a_middlebox_lets_by_tls),
    ("ipv6_needs_no_patience", ipv6_needs_no_patience),
    ("a_cable_joins_two_hosts_directly", a_cable_joins_two_hosts),
    ("hosts_have_their_own_resolv_conf", hosts_have_their_own_resolv_conf),
    ("a_process_dies_with_its_handle", a_process_dies_with_its_handle),
    ("a_grandchild_dies_too_and_holds_nobody_up", a_grandchild_dies_too),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == "--list") {
        TESTS.iter().for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    let filters: Vec<&String> = arguments.iter().filter(|a| !a.starts_with('-')).collect();
    let wanted = |name: &str| filters.is_empty() || filters.iter().any(|f| name.contains(*f));
    let chosen: Vec<&Test> = TESTS.iter().filter(|(name, _)| wanted(name)).collect();
    let entered = match netns::enter() {
        Ok(entered) => entered,
        Err(refusal) => {
            skip("namespaces", &refusal.to_string());
            return ExitCode::SUCCESS;
        }
    };
    let mut failed = 0;
    for (name, test) in &chosen {
        let passed = catch_unwind(AssertUnwindSafe(|| test(&entered))).is_ok();
        println!("test {name} ... {}", if passed { "ok" } else { "FAILED" });
        failed += usize::from(!passed);
    }
    let verdict = if failed == 0 { "ok" } else { "FAILED" };
    let passed = chosen.len() - failed;
    println!("\ntest result: {verdict}. {passed} passed; {failed} failed; 0 ignored");
    ExitCode::from(u8::from(failed > 0))
}

/// Something is missing that a test needs: visible, and a failure where everything must be there.
fn skip(what: &str, why: &str) {
    println!("SKIP {what}: {why}");
    let required = std::env::var("ROVE_TEST_REQUIRE").is_ok_and(|value| value == "all");
    assert!(!required, "ROVE_TEST_REQUIRE=all forbids to skip");
}

const CLIENT: &str = "198.51.100.2/24";
const SERVER: &str = "192.0.2.2/24";

fn net(text: &str) -> ipnet::IpNet {
    text.parse().unwrap()
}

/// A client behind `link`, and a server on the Internet.
struct Pair {
    network: Network,
    client: HostId,
    server: HostId,
    wlan: netns::CardId,
    access: netns::AccessId,
}

fn pair(entered: &Entered, link: LinkConfig) -> Pair {
    let mut network = Network::new(entered, 1).unwrap();
    let client = network.add_host("client").unwrap();
    let server = network.add_host("server").unwrap();
    let wlan = network.add_card(client, "wlan0").unwrap();
    let eth = network.add_card(server, "eth0").unwrap();
    let (here, there) = (net(CLIENT), net(SERVER));
    let access = network.add_access(client, link, &[here.trunc()], None).unwrap();
    let hosting = network.add_access(server, LinkConfig::ideal(), &[there.trunc()], None).unwrap();
    network.plug(wlan, access, &[here], 100).unwrap();
    network.plug(eth, hosting, &[there], 100).unwrap();
    Pair { network, client, server, wlan, access }
}

fn socket(network: &Network, host: HostId, bind: &str) -> UdpSocket {
    let socket = network.host(host).inside(|| UdpSocket::bind(bind)).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    socket
}

/// Sends from one socket to another and says when it arrived, and from where.
fn pass(from: &UdpSocket, to: &UdpSocket, address: &str) -> io::Result<(u64, SocketAddr)> {
    from.send_to(b"hello", address)?;
    let mut buffer = [0; 16];
    let (length, source) = to.recv_from(&mut buffer)?;
    assert_eq!(&buffer[..length], b"hello");
    Ok((monotonic_ns(), source))
}

fn a_round_trip(entered: &Entered) {
    let Pair { network, client, server, .. } =
        pair(entered, LinkConfig::lossless(100_000_000, 30 * MS));
    let (here, there) =
        (socket(&network, client, "0.0.0.0:0"), socket(&network, server, "0.0.0.0:7"));
    let mut trips = Vec::new();
    for _ in 0..20 {
        let start_ns = monotonic_ns();
        let (_, source) = pass(&here, &there, "192.0.2.2:7").unwrap();
        let (end_ns, _) = pass(&there, &here, &source.to_string()).unwrap();
        trips.push(end_ns - start_ns);
    }
    trips.sort_unstable();
    // Two hops of 33 bytes at 100 Mbit/s are 5 us. What is more is the machine's doing: the
    // shortest of twenty must be close.
    assert!(trips[0] >= 30 * MS, "{trips:?}");
    assert!(trips[0] < 32 * MS, "{trips:?}");
    assert!(network.take_timekeeping().unwrap().all.count() >= 40);
}

fn the_link_carries_its_rate(entered: &Entered) {
    let Pair { network, client, server, .. } =
        pair(entered, LinkConfig::lossless(8_000_000, 10 * MS));
    let (here, there) =
        (socket(&network, client, "0.0.0.0:0"), socket(&network, server, "0.0.0.0:7"));
    // 50 packets of 1,000 bytes at layer 3: exactly a millisecond each, and 64 KiB of queue.
    for _ in 0..50 {
        here.send_to(&[0; 972], "192.0.2.2:7").unwrap();
    }
    let mut buffer = [0; 1_500];
    let mut arrivals = Vec::new();
    for _ in 0..50 {
        there.recv_from(&mut buffer).unwrap();
        arrivals.push(monotonic_ns());
    }
    let length_ns = arrivals[49] - arrivals[0];
    assert!((length_ns as f64 / (49.0 * MS as f64) - 1.0).abs() < 0.15, "{length_ns} ns");
}

fn carrier(network: &Network, host: HostId, card: &str) -> String {
    let path = format!("/sys/class/net/{card}/carrier");
    let mut command = network.host(host).command("cat").unwrap();
    command.arg(path);
    let mut cat = network.host(host).spawn("cat", command).unwrap();
    cat.line_where(Duration::from_secs(5), |line| Some(line.to_owned())).unwrap()
}

fn the_kernel_sees_the_cable(entered: &Entered) {
    let Pair { network, client, server, wlan, .. } = pair(entered, LinkConfig::ideal());
    let (here, there) =
        (socket(&network, client, "0.0.0.0:0"), socket(&network, server, "0.0.0.0:7"));
    assert_eq!(carrier(&network, client, "wlan0"), "1");
    network.set_carrier(wlan, false).unwrap();
    assert_eq!(carrier(&network, client, "wlan0"), "0");
    assert!(pass(&here, &there, "192.0.2.2:7").is_err());
    network.set_carrier(wlan, true).unwrap();
    assert_eq!(carrier(&network, client, "wlan0"), "1");
    pass(&here, &there, "192.0.2.2:7").unwrap();
}

fn a_move_replaces_the_address(entered: &Entered) {
    let Pair { mut network, client, server, wlan, access } = pair(entered, LinkConfig::ideal());
    let there = socket(&network, server, "0.0.0.0:7");
    let here = socket(&network, client, "0.0.0.0:0");
    let (_, before) = pass(&here, &there, "192.0.2.2:7").unwrap();
    assert_eq!(before.ip(), net(CLIENT).addr());

    let new = net("203.0.113.9/24");
    let cafe = network.add_access(client, LinkConfig::ideal(), &[new.trunc()], None).unwrap();
    network.start_capture(wlan).unwrap();
    let usable_ns = network.plug(wlan, cafe, &[new], 100).unwrap();
    assert!(monotonic_ns() - usable_ns < SECOND);
    // An unbound socket takes the new address, and the answer finds it.
    let (_, after) = pass(&here, &there, "192.0.2.2:7").unwrap();
    assert_eq!(after.ip(), new.addr());
    pass(&there, &here, &after.to_string()).unwrap();
    let old = pass(&there, &here, &before.to_string());
    assert!(old.is_err(), "nobody has the old address: {old:?}");
    let capture = network.take_capture(wlan).unwrap();
    let ways: Vec<Direction> = capture
        .packets
        .iter()
        .filter(|packet| packet.endpoints.is_some_and(|ends| ends.source.port() > 0))
        .map(|packet| packet.direction)
        .collect();
    assert_eq!(ways, [Direction::Out, Direction::In]);
    assert_eq!(network.stats(access, End::B).unwrap().delivered, 1, "sent to the empty chair");
}

fn a_black_hole_is_silent(entered: &Entered) {
    let Pair { network, client, server, access, .. } = pair(entered, LinkConfig::ideal());
    let (here, there) =
        (socket(&network, client, "0.0.0.0:0"), socket(&network, server, "0.0.0.0:7"));
    network.set_access(access, Carrier::BlackHole).unwrap();
    assert_eq!(carrier(&network, client, "wlan0"), "1", "the link looks well");
    assert!(pass(&here, &there, "192.0.2.2:7").is_err());
    network.set_access(access, Carrier::Up).unwrap();
    pass(&here, &there, "192.0.2.2:7").unwrap();
}

fn a_nat_box_hides_the_client(entered: &Entered) {
    let Pair { mut network, client, server, wlan, .. } = pair(entered, LinkConfig::ideal());
    let inside = net("192.168.1.2/24");
    let outside = vec!["203.0.113.77".parse().unwrap()];
    let nat = NatConfig::new(NatKind::PortRestricted, outside);
    let home =
        network.add_access(client, LinkConfig::ideal(), &[inside.trunc()], Some(nat)).unwrap();
    network.plug(wlan, home, &[inside], 100).unwrap();
    let (here, there) =
        (socket(&network, client, "0.0.0.0:4000"), socket(&network, server, "0.0.0.0:7"));
    let (_, seen) = pass(&here, &there, "192.0.2.2:7").unwrap();
    assert_eq!(seen, "203.0.113.77:4000".parse().unwrap());
    pass(&there, &here, &seen.to_string()).unwrap();
    network.rebind_nat(home).unwrap();
    assert!(pass(&there, &here, &seen.to_string()).is_err(), "the old port is closed");
    let (_, moved) = pass(&here, &there, "192.0.2.2:7").unwrap();
    assert_ne!(moved.port(), 4_000);
}

/// Real connections of the kernel's: the box finds their bytes, first and later ones.
fn a_middlebox_lets_by_tls(entered: &Entered) {
    let Pair { network, client, server, access, .. } = pair(entered, LinkConfig::ideal());
    network.set_filter(access, Some(Filter::TlsPort(443))).unwrap();
    let listener = network.host(server).inside(|| TcpListener::bind("0.0.0.0:443")).unwrap();
    let connect = || {
        let connect = || TcpStream::connect("192.0.2.2:443");
        let here = network.host(client).inside(connect).unwrap();
        let there = listener.accept().unwrap().0;
        there.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        (here, there)
    };
    let hello = [22, 3, 1, 0, 5, 1, 0, 0, 1, 0];
    let (mut here, mut there) = connect();
    let mut heard = [0; 10];
    for bytes in [hello, *b"and so on."] {
        here.write_all(&bytes).unwrap();
        there.read_exact(&mut heard).unwrap();
        assert_eq!(heard, bytes);
    }
    let (mut here, mut there) = connect();
    here.write_all(b"GET / HTTP").unwrap();
    assert!(there.read(&mut heard).is_err(), "it is not TLS");
    let udp = (socket(&network, client, "0.0.0.0:0"), socket(&network, server, "0.0.0.0:443"));
    udp.1.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    assert!(pass(&udp.0, &udp.1, "192.0.2.2:443").is_err());
    network.set_filter(access, None).unwrap();
    pass(&udp.0, &udp.1, "192.0.2.2:443").unwrap();
}

fn ipv6_needs_no_patience(entered: &Entered) {
    let mut network = Network::new(entered, 1).unwrap();
    let mut hosts = Vec::new();
    for (name, address) in [("client", "2001:db8:1::2/64"), ("server", "2001:db8:2::2/64")] {
        let host = network.add_host(name).unwrap();
        let card = network.add_card(host, "eth0").unwrap();
        let prefix = net(address).trunc();
        let link = LinkConfig::lossless(10_000_000, 4 * MS);
        let access = network.add_access(host, link, &[prefix], None).unwrap();
        network.plug(card, access, &[net(address)], 100).unwrap();
        hosts.push(host);
    }
    let here = socket(&network, hosts[0], "[2001:db8:1::2]:0");
    let there = socket(&network, hosts[1], "[::]:7");
    let (_, seen) = pass(&here, &there, "[2001:db8:2::2]:7").unwrap();
    assert_eq!(seen.ip(), net("2001:db8:1::2/64").addr());
}

fn a_cable_joins_two_hosts(entered: &Entered) {
    let mut network = Network::new(entered, 1).unwrap();
    let (a, b) = (network.add_host("a").unwrap(), network.add_host("b").unwrap());
    let ends = ((a, "eth0", net("10.1.0.1/30")), (b, "eth0", net("10.1.0.2/30")));
    network.cable(ends.0, ends.1).unwrap();
    let (here, there) = (socket(&network, a, "0.0.0.0:0"), socket(&network, b, "0.0.0.0:7"));
    pass(&here, &there, "10.1.0.2:7").unwrap();
    assert_eq!(
        network.take_timekeeping().unwrap().all.count(),
        0,
        "the emulator has no part in it"
    );
}

fn hosts_have_their_own_resolv_conf(entered: &Entered) {
    if !std::path::Path::new("/etc/resolv.conf").exists() {
        return skip("resolv.conf", "this machine has none to put another over");
    }
    let system = fs::read_to_string("/etc/resolv.conf").unwrap();
    let mut network = Network::new(entered, 1).unwrap();
    let host = network.add_host("client").unwrap();
    network.host(host).set_name_servers(&["10.77.0.1".parse().unwrap()]).unwrap();
    let mut command = network.host(host).command("cat").unwrap();
    command.arg("/etc/resolv.conf");
    let mut cat = network.host(host).spawn("cat", command).unwrap();
    let line = cat.line_where(Duration::from_secs(5), |line| Some(line.to_owned())).unwrap();
    assert_eq!(line, "nameserver 10.77.0.1");
    assert_eq!(
        fs::read_to_string("/etc/resolv.conf").unwrap(),
        system,
        "the system's is as it was"
    );
}

fn a_process_dies_with_its_handle(entered: &Entered) {
    let mut network = Network::new(entered, 1).unwrap();
    let host = network.add_host("client").unwrap();
    let start = || {
        let mut command = network.host(host).command("sleep").unwrap();
        command.arg("1000");
        network.host(host).spawn("sleep", command).unwrap()
    };
    let sleeper = start();
    let path = format!("/proc/{}", sleeper.id());
    assert!(fs::exists(&path).unwrap());
    drop(sleeper);
    assert!(!fs::exists(&path).unwrap());
    let output = start().stop().unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&output.status), Some(15));
}

fn a_grandchild_dies_too(entered: &Entered) {
    let mut network = Network::new(entered, 1).unwrap();
    let host = network.add_host("client").unwrap();
    let start = |script: &str| {
        let mut command = network.host(host).command("sh").unwrap();
        command.args(["-c", script]);
        network.host(host).spawn("sh", command).unwrap()
    };
    let grandchild_of = |process: &netns::Process| {
        let line = process.line(Duration::from_secs(10)).unwrap().unwrap();
        format!("/proc/{line}/stat")
    };
    let alive = |path: &str| {
        let stat = fs::read_to_string(path).unwrap_or_default();
        stat.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with(" Z"))
    };
    let process = start("sleep 1000 & echo $!; wait");
    let path = grandchild_of(&process);
    assert!(alive(&path));
    drop(process);
    // The kill is a signal: the kernel may take a moment.
    let end = std::time::Instant::now() + Duration::from_secs(5);
    while alive(&path) {
        assert!(std::time::Instant::now() < end, "{path} is still there");
        std::thread::sleep(Duration::from_millis(5));
    }
    // One that ends and leaves a child that holds its output.
    let process = start("sleep 1000 & echo $!");
    let path = grandchild_of(&process);
    let output = process.wait(Duration::from_secs(5)).unwrap();
    assert!(output.status.success() && output.errors.is_empty());
    std::thread::sleep(Duration::from_millis(50));
    assert!(!alive(&path), "it went with its parent");
}
