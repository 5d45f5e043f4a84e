//! The source addresses of probes, and when the table of connections is nearly full.

use super::*;

#[test]
fn a_probe_comes_from_the_last_address_of_each_network() {
    let registry = |networks| Registry::new(networks, Vec::new(), Vec::new());
    for (networks, expected) in [
        ("10.77.0.0/24,fd77::/64", vec!["10.77.0.254", "fd77::ffff:ffff:ffff:fffe"]),
        ("10.77.0.0/30", vec!["10.77.0.2"]),
    ] {
        let networks: Networks = networks.parse().unwrap();
        let expected: Vec<IpAddr> = expected.iter().map(|at| at.parse().unwrap()).collect();
        assert_eq!(sources(&networks, &registry(networks)), expected);
    }
    let net: IpNet = "10.77.0.0/30".parse().unwrap();
    assert_eq!(from_the_end(net, 3), None);
}

#[test]
fn a_table_is_nearly_full_in_time() {
    assert_eq!([262_144, 1_000, 50].map(nearly_full), [235_929, 900, 45]);
}

#[test]
fn each_family_is_told_apart() {
    let v6 = End::Routing(rove_os::probe::Refused::NoRoute);
    let ends = vec![("10.77.0.254".parse().unwrap(), End::Left), ("fd77::1".parse().unwrap(), v6)];
    assert_eq!(leaves(&ends), Leaves { ipv4: Some(true), ipv6: Some(false) });
}
