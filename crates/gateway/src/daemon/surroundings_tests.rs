//! The source addresses of probes, and what is made of their ends.

use rove_os::probe::Hook;

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
fn a_host_without_a_route_for_ipv6_has_no_problem_if_ipv4_works() {
    let end = |v4: &End, v6: &End| -> Ends {
        vec![("10.77.0.254".parse().unwrap(), v4.clone()), ("fd77::1".parse().unwrap(), v6.clone())]
    };
    let none = End::Routing(Refused::NoRoute);
    let filter = End::Filter(Hook::Forward, vec!["inet filter forward".to_owned()]);
    let whats = |ends: &Ends| -> Vec<String> {
        of_ends(ends, "rove0").into_iter().map(|finding| finding.what).collect()
    };
    assert_eq!(whats(&end(&End::Left, &none)), [""; 0]);
    assert_eq!(leaves(&end(&End::Left, &none)), Leaves { ipv4: Some(true), ipv6: Some(false) });
    assert_eq!(whats(&end(&none, &End::Left)).len(), 1);
    let both = whats(&end(&none, &none));
    assert!(both.len() == 1 && both[0].contains("IPv4 and IPv6"), "{both:?}");
    assert_eq!(whats(&end(&filter, &none)).len(), 2);
    let chain = whats(&end(&filter, &End::Left));
    assert!(chain[0].contains("IPv4 packets") && chain[0].ends_with("inet filter forward"));
}

#[test]
fn a_table_is_nearly_full_in_time() {
    assert_eq!([262_144, 1_000, 50].map(nearly_full), [235_929, 900, 45]);
}
