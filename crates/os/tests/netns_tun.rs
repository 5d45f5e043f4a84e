//! The TUN against a real kernel: TCP and UDP of its sockets go through two TUNs that a thread of
//! ours joins, with every packet cut by the one and joined by the other.

#![allow(clippy::unwrap_used)] // a test that cannot go on fails

mod support;

use std::{
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream, UdpSocket},
    os::fd::AsRawFd,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use rove_os::{
    error::Error,
    tun::{Read, Segment, Tun, TunOptions},
};
use support::{in_namespace, net};

const MTU_SEEN_MAX: usize = 1_500;
const TIME_MAX: Duration = Duration::from_secs(20);

fn options(name: &str, offload: bool) -> TunOptions<'_> {
    TunOptions { name, persistent: false, offload }
}

/// What passed through the bridge in one direction.
#[derive(Clone, Copy, Debug, Default)]
struct Passed {
    reads: usize,
    packets: usize,
    calls: usize,
    longest: usize,
}

/// Carries packets from the one TUN to the other until there are none, with the addresses
/// translated so that one namespace can hold both ends.
fn carry(from: &mut Tun, to: &mut Tun) -> (Passed, bool) {
    let mut passed = Passed::default();
    let mut packets: Vec<Vec<u8>> = Vec::new();
    let mut idle = true;
    while packets.len() < 256 {
        let got = from
            .read(|Segment { header, payload, .. }, _| {
                packets.push([header, payload].concat());
            })
            .unwrap();
        match got {
            Read::Packets(_) => (idle, passed.reads) = (false, passed.reads + 1),
            Read::Empty => break,
            Read::Malformed => panic!("the kernel wrote what is no packet"),
        }
    }
    for packet in &mut packets {
        passed.longest = passed.longest.max(packet.len());
        translate(packet);
    }
    let written = to.write(packets.iter().map(Vec::as_slice)).unwrap();
    passed.packets = written.packets;
    passed.calls = written.calls;
    (passed, idle)
}

/// Puts the addresses of the other side in the place of this side's: what 10.9.a.1 sends to
/// 10.9.a.2 arrives from 10.9.b.2 at 10.9.b.1, where a + b = 1.
fn translate(packet: &mut [u8]) {
    if packet[0] >> 4 != 4 {
        return;
    }
    let (source, destination) = (packet[14], packet[18]);
    packet[14] = 1 - source;
    packet[15] = 2;
    packet[18] = 1 - destination;
    packet[19] = 1;
    fix_checksums(packet);
}

fn fold(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

fn words(bytes: &[u8]) -> u32 {
    bytes.chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(*w.get(1).unwrap_or(&0))).sum()
}

fn fix_checksums(packet: &mut [u8]) {
    packet[10..12].fill(0);
    let sum = !fold(words(&packet[..20]));
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    let field = match packet[9] {
        6 => 36,
        17 => 26,
        _ => return,
    };
    packet[field..field + 2].fill(0);
    let length = packet.len() - 20;
    let sum = words(&packet[12..20]) + u32::from(packet[9]) + length as u32 + words(&packet[20..]);
    packet[field..field + 2].copy_from_slice(&(!fold(sum)).to_be_bytes());
}

struct Bridge {
    stop: Arc<AtomicBool>,
    /// What passed, and whether both TUNs still write super-packets.
    thread: thread::JoinHandle<(Passed, bool)>,
}

impl Bridge {
    fn start(offload: bool) -> Self {
        let mut one = support::tun("TUN", options("one", offload));
        let mut two = support::tun("TUN", options("two", offload));
        for (name, address) in [("one", "10.9.0.1/24"), ("two", "10.9.1.1/24")] {
            net::address(name, address);
            net::up(name);
        }
        let stop = Arc::new(AtomicBool::new(false));
        let told = stop.clone();
        let thread = thread::spawn(move || {
            let mut total = Passed::default();
            let started = Instant::now();
            while !told.load(Ordering::Relaxed) && started.elapsed() < TIME_MAX {
                let (there, idle_there) = carry(&mut one, &mut two);
                let (back, idle_back) = carry(&mut two, &mut one);
                for passed in [there, back] {
                    total.reads += passed.reads;
                    total.packets += passed.packets;
                    total.calls += passed.calls;
                    total.longest = total.longest.max(passed.longest);
                }
                if idle_there && idle_back {
                    wait([one.as_raw_fd(), two.as_raw_fd()]);
                }
            }
            (total, one.merging() && two.merging())
        });
        Self { stop, thread }
    }

    fn stop(self) -> (Passed, bool) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

fn wait(fds: [i32; 2]) {
    let mut polled = fds.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
    // SAFETY: two pollfds that live through the call.
    unsafe { libc::poll(polled.as_mut_ptr(), 2, 10) };
}

const TRANSFER_LEN: usize = 24 << 20;

fn pattern(at: usize) -> u8 {
    (at.wrapping_mul(2_654_435_761) >> 13) as u8
}

/// One TCP transfer through the bridge, every byte compared.
fn transfer(offload: bool) -> Passed {
    let bridge = Bridge::start(offload);
    let listener = TcpListener::bind("10.9.1.1:9000").unwrap();
    let sender = thread::spawn(|| {
        let mut stream = TcpStream::connect("10.9.0.2:9000").unwrap();
        stream.set_write_timeout(Some(TIME_MAX)).unwrap();
        let bytes: Vec<u8> = (0..TRANSFER_LEN).map(pattern).collect();
        stream.write_all(&bytes).unwrap();
    });
    let (mut stream, peer) = listener.accept().unwrap();
    assert_eq!(peer.ip().to_string(), "10.9.1.2");
    stream.set_read_timeout(Some(TIME_MAX)).unwrap();
    let started = Instant::now();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let took = started.elapsed();
    sender.join().unwrap();
    assert_eq!(bytes.len(), TRANSFER_LEN);
    assert!(bytes.iter().enumerate().all(|(at, &byte)| byte == pattern(at)));
    let (passed, merging) = bridge.stop();
    assert_eq!(merging, offload, "the kernel refused super-packets");
    eprintln!("offload {offload}: {TRANSFER_LEN} bytes in {took:?}, {passed:?}");
    passed
}

#[test]
fn tcp_survives_cutting_and_joining() {
    in_namespace("tcp_survives_cutting_and_joining", || {
        let passed = transfer(true);
        assert!(passed.longest <= MTU_SEEN_MAX, "a packet longer than the MTU was handed over");
        assert!(passed.packets > 2 * passed.reads, "super-packets were not read: {passed:?}");
        assert!(passed.packets > 2 * passed.calls, "packets were not joined: {passed:?}");
    });
}

#[test]
fn tcp_works_without_offload() {
    in_namespace("tcp_works_without_offload", || {
        let passed = transfer(false);
        assert!(passed.longest <= MTU_SEEN_MAX);
        assert_eq!(passed.reads, passed.packets);
        assert_eq!(passed.packets, passed.calls);
    });
}

#[test]
fn udp_super_packets_arrive_as_datagrams() {
    in_namespace("udp_super_packets_arrive_as_datagrams", || {
        let bridge = Bridge::start(true);
        let receiver = UdpSocket::bind("10.9.1.1:9000").unwrap();
        receiver.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let sender = UdpSocket::bind("10.9.0.1:0").unwrap();
        let size: libc::c_int = 1_000;
        // SAFETY: the option's value is an int that lives through the call.
        let result = unsafe {
            libc::setsockopt(
                sender.as_raw_fd(),
                libc::SOL_UDP,
                libc::UDP_SEGMENT,
                (&raw const size).cast(),
                4,
            )
        };
        assert_eq!(result, 0, "this kernel has no UDP_SEGMENT");
        let bytes: Vec<u8> = (0..20_500).map(pattern).collect();
        sender.send_to(&bytes, "10.9.0.2:9000").unwrap();
        let mut got: Vec<u8> = Vec::new();
        let mut room = [0; 2_000];
        while got.len() < bytes.len() {
            let (length, _) = receiver.recv_from(&mut room).unwrap();
            assert_eq!(length, 1_000.min(bytes.len() - got.len()));
            got.extend(&room[..length]);
        }
        assert_eq!(got, bytes);
        let (passed, merging) = bridge.stop();
        assert!(merging, "the kernel refused super-packets: {passed:?}");
    });
}

#[test]
fn a_persistent_tun_is_adopted() {
    in_namespace("a_persistent_tun_is_adopted", || {
        let keep = TunOptions { name: "keep", persistent: true, offload: true };
        let first = support::tun("TUN", keep);
        assert!(!first.adopted());
        net::address("keep", "10.9.0.1/24");
        let busy = Tun::open(keep).unwrap_err();
        assert!(matches!(busy, Error::TunBusy { ref name } if name == "keep"), "{busy}");
        let index = net::index("keep");
        drop(first);
        let second = Tun::open(keep).unwrap();
        assert!(second.adopted());
        assert_eq!(net::index("keep"), index);
        drop(second);
        // Taken over as an ordinary one it goes with its owner.
        let last = Tun::open(TunOptions { persistent: false, ..keep }).unwrap();
        drop(last);
        let name = std::ffi::CString::new("keep").unwrap();
        // SAFETY: the name ends with NUL and lives through the call.
        assert_eq!(unsafe { libc::if_nametoindex(name.as_ptr()) }, 0);
    });
}

#[test]
fn a_removed_interface_is_named() {
    in_namespace("a_removed_interface_is_named", || {
        let mut tun = support::tun("TUN", options("gone", true));
        assert_eq!(tun.read(|_, _| ()).unwrap(), Read::Empty);
        net::remove("gone");
        let error = tun.read(|_, _| ()).unwrap_err();
        assert!(matches!(error, Error::NoInterface { .. }), "{error}");
        let packet = [0x45; 40];
        let error = tun.write([&packet[..]]).unwrap_err();
        assert!(matches!(error, Error::NoInterface { .. }), "{error}");
    });
}

#[test]
fn what_is_no_packet_is_refused_and_counted() {
    in_namespace("what_is_no_packet_is_refused_and_counted", || {
        let mut tun = support::tun("TUN", options("odd", true));
        net::up("odd");
        let written = tun.write([&[0u8; 40][..], &[][..], &[0x45; 3][..]]).unwrap();
        assert_eq!(written.packets + written.refused, 3);
        assert!(written.refused >= 1);
    });
}

#[test]
fn bad_names_are_refused_before_the_kernel_sees_them() {
    for name in ["", "sixteen-letters-", "a b", "a/b", "%d%d", "..", "ü"] {
        let error = Tun::open(options(name, true)).unwrap_err();
        assert!(matches!(error, Error::BadInterfaceName { .. }), "{name}: {error}");
    }
}
