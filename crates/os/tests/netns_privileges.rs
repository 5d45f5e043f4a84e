//! What is left after privileges were dropped is enough, and no more.

#![allow(clippy::unwrap_used)] // a test that cannot go on fails

mod support;

use std::{fs, io, path::Path};

use rove_os::{
    plan::{Applier, Dns, Firewall, KillSwitch, MARK, Places, Plan, own_user},
    privileges::{self, Writable},
    tun::TunOptions,
    udp::{UdpOptions, UdpSocket},
    users,
};
use support::{has_program, in_fork, in_namespace, net};

fn status(key: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let value = status.lines().find_map(|line| line.strip_prefix(key)).unwrap();
    u64::from_str_radix(value.trim_start_matches(':').trim(), 16).unwrap()
}

const NET_BIND_SERVICE: u64 = 1 << 10;
const NET_ADMIN: u64 = 1 << 12;
const NET_RAW: u64 = 1 << 13;

#[test]
fn later_sockets_and_plans_work_and_nothing_else() {
    in_namespace("later_sockets_and_plans_work_and_nothing_else", || in_fork(drop_and_go_on));
}

fn drop_and_go_on() {
    net::veth("wan", "far");
    net::up("wan");
    let dir = tempfile::tempdir().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let etc = tempfile::tempdir().unwrap();
    let resolv_conf = etc.path().join("resolv.conf");
    fs::write(&resolv_conf, "nameserver 192.0.2.53\n").unwrap();
    let tun = support::tun("TUN", TunOptions { name: "rove0", persistent: false, offload: true });
    // Taken down, and perhaps still on the kernel's list.
    std::thread::spawn(|| {}).join().unwrap();
    let within = [dir.path(), Path::new("/proc/sys/net"), Path::new("/dev/net/tun")];
    let mut writable = within.map(Writable::Within).to_vec();
    writable.push(Writable::Replaced(etc.path()));
    let dropped = privileges::drop(&writable).unwrap();

    let kept = NET_BIND_SERVICE | NET_ADMIN | NET_RAW;
    for set in ["CapEff", "CapPrm", "CapBnd"] {
        assert_eq!(status(set) & !kept, 0, "{set}");
    }
    assert_eq!(status("CapEff"), kept);
    assert_eq!(status("NoNewPrivs"), 1);
    let path = std::ffi::CString::new(dir.path().to_str().unwrap()).unwrap();
    // SAFETY: the path ends with NUL and lives through the calls.
    unsafe {
        assert_eq!(libc::chroot(path.as_ptr()), -1, "CAP_SYS_CHROOT is still there");
        assert_eq!(libc::sethostname(path.as_ptr(), 1), -1, "CAP_SYS_ADMIN is still there");
    }
    if dropped.files_confined {
        fs::write(elsewhere.path().join("file"), "x").unwrap_err();
        // Where a file may be replaced, nothing else may be made.
        fs::create_dir(etc.path().join("cron.d")).unwrap_err();
        std::os::unix::net::UnixListener::bind(etc.path().join("socket")).unwrap_err();
    } else {
        support::skip("confinement of files", "this kernel has no Landlock");
    }

    if dropped.calls_filtered {
        // Without the filter, these calls are allowed for every process or with the remaining
        // capabilities.
        // SAFETY: the calls take plain numbers.
        unsafe {
            assert_eq!(libc::unshare(libc::CLONE_NEWUSER), -1, "other namespaces can be made");
            assert_eq!(io::Error::last_os_error().raw_os_error(), Some(libc::ENOSYS));
            let packets = libc::socket(libc::AF_PACKET, libc::SOCK_DGRAM, 0);
            assert_eq!(packets, -1, "raw packets can be sent");
            assert_eq!(io::Error::last_os_error().raw_os_error(), Some(libc::ENOSYS));
        }
    } else {
        support::skip("the filter of system calls", "this kernel has no seccomp");
    }

    // What the session of a day needs later.
    open_sockets();
    let places = Places { state: dir.path().to_owned(), resolv_conf, resolved: false };
    let mut applier = Applier::open(places).unwrap();
    let mut plan = Plan {
        device: tun.name().to_owned(),
        mtu: 1_400,
        addresses: vec!["10.7.0.2/24".parse().unwrap()],
        routes: vec!["0.0.0.0/0".parse().unwrap()],
        forward: true,
        dns: Some(Dns { servers: vec!["10.7.0.1".parse().unwrap()], ..Dns::default() }),
        ..Plan::default()
    };
    if has_program("nft") {
        plan.firewall = Some(Firewall { nat: true, ..Firewall::default() });
        plan.kill_switch = Some(KillSwitch::default());
    } else {
        support::skip("nft after the drop", "the program nft is missing");
    }
    applier.apply(&plan).unwrap();
    applier.undo().unwrap();
    applier.remove_kill_switch().unwrap();
}

/// The privileged port of a later address, and what a rule for a user needs.
fn open_sockets() {
    let local = "0.0.0.0:443".parse().unwrap();
    UdpSocket::bind(UdpOptions {
        local,
        ipv6_only: false,
        interface: Some("wan"),
        mark: Some(MARK),
    })
    .unwrap();
    net::up("lo");
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let own = socket.local_addr().unwrap();
    let user = users::user_of(17, own, "127.0.0.1:9".parse().unwrap()).unwrap();
    assert_eq!(user, Some(own_user()));
}

#[test]
fn a_second_thread_is_reason_to_refuse() {
    // The test itself is one of two.
    let error = privileges::drop(&[]).unwrap_err();
    assert!(matches!(error, rove_os::error::Error::ThreadsRunning { .. }), "{error}");
}
