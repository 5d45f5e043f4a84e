//! Which addresses belong to the public Internet, by the IANA special-purpose registries (RFC
//! 6890).
//!
//! An IPv6 address may stand for an IPv4 host to which packets are translated or tunnelled. It is
//! then as public as that host. Limits: a network's own NAT64 prefixes (RFC 6052, section 2.2) and
//! ISATAP cannot be recognised.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Azure's metadata and wire server, the only metadata service of a large cloud with a public
/// address. Those of the others are link-local, private, or in the shared address space.
const AZURE_WIRE_SERVER: Ipv4Addr = Ipv4Addr::new(168, 63, 129, 16);

/// Whether an address belongs to the public Internet. The documentation networks count as public,
/// because test networks use them as such.
pub fn is_global(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => is_global_v4(v4),
        IpAddr::V6(v6) => is_global_v6(v6) && embedded(v6).into_iter().flatten().all(is_global_v4),
    }
}

/// The IPv4 hosts to which packets for `address` are translated or tunnelled on their way.
pub(super) fn embedded(address: Ipv6Addr) -> [Option<Ipv4Addr>; 2] {
    let [s0, s1, s2, s3, .., s6, s7] = address.segments();
    let v4 = |high: u16, low: u16| Ipv4Addr::from(u32::from(high) << 16 | u32::from(low));
    match (s0, s1) {
        // NAT64's well-known prefix, 64:ff9b::/96 (RFC 6052, section 2.1).
        (0x0064, 0xff9b) => [Some(v4(s6, s7)), None],
        // 6to4 (RFC 3056, section 2).
        (0x2002, _) => [Some(v4(s1, s2)), None],
        // Teredo: its server, and the client's address with every bit inverted (RFC 4380,
        // section 4).
        (0x2001, 0) => [Some(v4(s2, s3)), Some(v4(!s6, !s7))],
        _ => [None, None],
    }
}

const fn is_global_v4(v4: Ipv4Addr) -> bool {
    let [a, b, c, _] = v4.octets();
    !(v4.is_private()
        || v4.is_loopback()
        || v4.is_link_local()
        || v4.is_multicast()
        || a == 0
        || a >= 240
        || (a == 100 && b & 0xc0 == 64)
        || (a == 192 && b == 0 && c == 0)
        || (a == 198 && b & 0xfe == 18)
        || v4.to_bits() == AZURE_WIRE_SERVER.to_bits())
}

/// Only 2000::/3 is allocated for global use. 64:ff9b::/96 leads into IPv4 through NAT64.
/// 64:ff9b:1::/48 leads to any addresses that its network chooses (RFC 8215), and 2001:2::/48 is
/// for benchmarks (RFC 5180).
const fn is_global_v6(v6: Ipv6Addr) -> bool {
    match v6.segments() {
        [0x0064, 0xff9b, 0, 0, 0, 0, ..] => true,
        [0x2001, 2, 0, ..] => false,
        [first, ..] => first & 0xe000 == 0x2000,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn global(address: &str) -> bool {
        is_global(address.parse().unwrap())
    }

    #[test]
    fn private_space_is_not_the_internet_however_it_is_written() {
        for address in [
            "192.0.0.1",
            "192.0.0.192",
            "fd00::1",
            "fe80::1",
            "ff02::1",
            "::1",
            "::ffff:10.0.0.1",
            "::ffff:8.8.8.8",
            "::8.8.8.8",
            "::ffff:0:8.8.8.8",
            "64:ff9b::10.0.0.1",
            "64:ff9b::169.254.169.254",
            "64:ff9b::1:808:808",
            "64:ff9b:1::8.8.8.8",
            "64:ff9b:1:fffe:a00:1::",
            "64:ff9b:2::1",
            "64::1",
            "2002:a00:1::1",
            "2002:c0a8:701::1",
            "2002:a9fe:a9fe::1",
            // Teredo of 10.0.0.1, and by way of the server 10.0.0.1.
            "2001:0:808:808::f5ff:fffe",
            "2001:0:a00:1::f7f7:f7f7",
            "2001:2::1",
            "5f00::1",
        ] {
            assert!(!global(address), "{address}");
        }
        for address in [
            "192.0.1.1",
            "2606:4700::1",
            "2001:200::1",
            "2001:db8::1",
            "64:ff9b::8.8.8.8",
            "2002:808:808::1",
            "2001:0:808:808::f7f7:f7f7",
        ] {
            assert!(global(address), "{address}");
        }
    }

    #[test]
    fn metadata_services_of_clouds_are_not_the_internet() {
        for address in [
            "169.254.169.254",
            "169.254.170.2",
            "100.100.100.200",
            "192.0.0.192",
            "168.63.129.16",
            "fd00:ec2::254",
            "fd20:ce::254",
        ] {
            assert!(!global(address), "{address}");
        }
        assert!(global("168.63.129.17"));
    }

    proptest! {
        /// An IPv6 address that stands for an IPv4 host is as public as that host.
        #[test]
        fn what_is_translated_is_as_public_as_its_target(bits: u32) {
            let v4 = Ipv4Addr::from(bits);
            let expected = is_global_v4(v4);
            let [high, low] = [(bits >> 16) as u16, bits as u16];
            let public = [0x0808, 0x0808];
            for v6 in [
                Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, low),
                Ipv6Addr::new(0x2002, high, low, 7, 0, 0, 0, 1),
                Ipv6Addr::new(0x2001, 0, high, low, 0, 0, !public[0], !public[1]),
                Ipv6Addr::new(0x2001, 0, public[0], public[1], 0, 0, !high, !low),
            ] {
                prop_assert_eq!(is_global(v6.into()), expected, "{}", v6);
                prop_assert!(embedded(v6).into_iter().flatten().any(|host| host == v4));
            }
        }
    }
}
