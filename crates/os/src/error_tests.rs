//! The lines that people read, word for word.

use std::{io, path::PathBuf};

use super::Error;

#[test]
fn every_line_names_cause_and_cure_on_one_line() {
    let lines = [
        (Error::NoTunDevice, "modprobe tun"),
        (Error::NoPrivilege { what: "set a mark".to_owned() }, "CAP_NET_ADMIN"),
        (
            Error::FileDenied { what: "open", path: PathBuf::from("/dev/net/tun") },
            "cannot open /dev/net/tun: permission denied",
        ),
        (Error::Ipv6Off { interface: "rove0".to_owned() }, "default.disable_ipv6=0"),
        (
            Error::NftUnusable {
                what: "the guard",
                program: "/usr/sbin/nft".to_owned(),
                why: "it is not executable".to_owned(),
            },
            "chmod 755 /usr/sbin/nft",
        ),
        (Error::TunBusy { name: "rove0".to_owned() }, "stop that process"),
        (Error::BadInterfaceName { name: "a\nb".to_owned() }, "1 to 15 letters"),
        (Error::NoInterface { name: "wan".to_owned() }, "ip link"),
        (Error::PortInUse { addr: "[::]:443".parse().unwrap() }, "UDP port 443 of :: is in use"),
        (Error::AddressNotLocal { addr: "192.0.2.1:1".parse().unwrap() }, "one of its own"),
        (Error::NftMissing { what: "the gateway's firewall" }, "install the package nftables"),
        (
            Error::NftRefused { what: "the gateway's firewall", said: "no".to_owned() },
            "nft list ruleset",
        ),
        (
            Error::NftSilent { what: "the gateway's firewall", seconds: 10 },
            "nft did not install the gateway's firewall within 10 s",
        ),
        (
            Error::SettingReadOnly {
                setting: "net.ipv4.conf.all.forwarding".to_owned(),
                now: "0".to_owned(),
                wanted: "1".to_owned(),
            },
            "--sysctl net.ipv4.conf.all.forwarding=1",
        ),
        (Error::Resolved { said: "no".to_owned() }, "resolvectl status"),
        (
            Error::NamesCannotBeSplit { why: "in use".to_owned() },
            "let it ask the gateway's servers for the domains",
        ),
        (
            Error::SecondInstance { dir: PathBuf::from("/etc/rove"), pid: "7".to_owned() },
            "another rove (process 7) already uses /etc/rove: stop it",
        ),
        (Error::NameUnknown { name: "x.example".to_owned() }, "how it is written"),
        (Error::NameUnanswered { name: "x.example".to_owned() }, "its DNS"),
        (Error::BadPlan { why: "its MTU is 3".to_owned() }, "cannot be carried out"),
        (Error::ResolverEnded, "run `rove down` as root"),
    ];
    for (error, part) in lines {
        let line = error.to_string();
        assert!(line.contains(part), "{line}");
        assert!(!line.contains('\n') && !line.contains("  "), "{line:?}");
    }
}

#[test]
fn errors_of_disks_name_a_cure_and_are_no_chain() {
    for (code, part) in [
        (libc::ENOSPC, "the disk is full: make room"),
        (libc::EROFS, "read-only: mount it read-write"),
        (libc::EIO, "dmesg"),
    ] {
        let error = Error::os("write a file", io::Error::from_raw_os_error(code));
        let line = error.to_string();
        assert!(line.contains(part) && !line.contains("os error"), "{line}");
        // A printed chain would repeat the cause.
        assert!(std::error::Error::source(&error).is_none());
    }
}

#[test]
fn want_of_privilege_is_told_from_other_refusals() {
    for (code, lacks) in [(libc::EPERM, true), (libc::EACCES, true), (libc::EIO, false)] {
        let error = Error::os("set a mark", io::Error::from_raw_os_error(code));
        assert_eq!(matches!(error, Error::NoPrivilege { .. }), lacks);
    }
    let error = Error::os("set a mark", io::Error::other("odd"));
    assert_eq!(error.to_string(), "cannot set a mark: odd");
}
