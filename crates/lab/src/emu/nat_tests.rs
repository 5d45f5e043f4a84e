//! The axes of RFC 4787, each alone.

use super::*;

const OUTSIDE: &str = "203.0.113.9";

fn end(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn packet(source: &str, destination: &str) -> Endpoints {
    let (source, destination) = (end(source), end(destination));
    Endpoints { protocol: Protocol::Udp, source, destination }
}

fn nat(mapping: Mapping, filtering: Filtering) -> Nat {
    let outside = vec![OUTSIDE.parse().unwrap()];
    let usual = NatConfig::new(NatKind::FullCone, outside);
    Nat::new(NatConfig { mapping, filtering, ..usual }, Rng::new(3))
}

#[test]
fn mapping_decides_which_remotes_share_a_port() {
    let inside = "10.0.0.2:5000";
    for (mapping, same_address, other_address) in [
        (Mapping::EndpointIndependent, true, true),
        (Mapping::AddressDependent, true, false),
        (Mapping::AddressAndPortDependent, false, false),
    ] {
        let mut nat = nat(mapping, Filtering::None);
        let first = nat.outbound(0, &packet(inside, "198.51.100.1:53")).unwrap();
        assert_eq!(first, end("203.0.113.9:5000"), "its own port, being free");
        let port = nat.outbound(0, &packet(inside, "198.51.100.1:54")).unwrap();
        let address = nat.outbound(0, &packet(inside, "198.51.100.2:53")).unwrap();
        assert_eq!(port == first, same_address, "{mapping:?}");
        assert_eq!(address == first, other_address, "{mapping:?}");
        let again = nat.outbound(1, &packet(inside, "198.51.100.1:53")).unwrap();
        assert_eq!(again, first, "a mapping is kept");
    }
}

#[test]
fn filtering_decides_who_may_answer() {
    let outside = "203.0.113.9:5000";
    for (filtering, stranger, other_port) in [
        (Filtering::None, true, true),
        (Filtering::Endpoint, false, true),
        (Filtering::Port, false, false),
    ] {
        let mut nat = nat(Mapping::EndpointIndependent, filtering);
        nat.outbound(0, &packet("10.0.0.2:5000", "198.51.100.1:53"));
        let admitted = |source: &str| nat.inbound(1, &packet(source, outside)).is_some();
        assert!(admitted("198.51.100.1:53"), "{filtering:?}");
        assert_eq!(admitted("198.51.100.1:54"), other_port, "{filtering:?}");
        assert_eq!(admitted("198.51.100.2:53"), stranger, "{filtering:?}");
        let nobody = packet("198.51.100.1:53", "203.0.113.9:5001");
        assert_eq!(nat.inbound(1, &nobody), None, "no mapping there");
        let udp = packet("198.51.100.1:53", outside);
        let tcp = Endpoints { protocol: Protocol::Tcp, ..udp };
        assert_eq!(nat.inbound(1, &tcp), None, "another protocol");
    }
}

#[test]
fn a_mapping_expires_when_the_inside_is_silent() {
    let mut nat = nat(Mapping::EndpointIndependent, Filtering::None);
    let out = packet("10.0.0.2:5000", "198.51.100.1:53");
    let back = packet("198.51.100.1:53", "203.0.113.9:5000");
    nat.outbound(0, &out);
    assert!(nat.inbound(119 * SECOND, &back).is_some());
    assert!(nat.inbound(120 * SECOND, &back).is_none(), "answers alone do not keep it alive");
    nat.outbound(121 * SECOND, &out);
    nat.outbound(200 * SECOND, &out);
    assert!(nat.inbound(319 * SECOND, &back).is_some(), "a packet from inside does");
}

#[test]
fn an_expired_mapping_leaves_its_port_to_others() {
    let mut nat = nat(Mapping::EndpointIndependent, Filtering::None);
    let remote = "198.51.100.1:53";
    nat.outbound(0, &packet("10.0.0.2:5000", remote));
    let busy = nat.outbound(1, &packet("10.0.0.3:5000", remote)).unwrap();
    assert_ne!(busy.port(), 5000);
    let free = nat.outbound(200 * SECOND, &packet("10.0.0.4:5000", remote)).unwrap();
    assert_eq!(free.port(), 5000);
    let back = nat.inbound(200 * SECOND, &packet(remote, "203.0.113.9:5000"));
    assert_eq!(back, Some(end("10.0.0.4:5000")));
}

#[test]
fn rebinding_moves_ports_and_keeps_who_may_answer() {
    let mut nat = nat(Mapping::EndpointIndependent, Filtering::Port);
    let out = packet("10.0.0.2:5000", "198.51.100.1:53");
    let before = nat.outbound(0, &out).unwrap();
    nat.rebind();
    let after = nat.outbound(1, &out).unwrap();
    assert_ne!(before, after);
    assert_eq!(before.ip(), after.ip());
    let to = |end: SocketAddr| packet("198.51.100.1:53", &end.to_string());
    assert_eq!(nat.inbound(1, &to(before)), None);
    assert_eq!(nat.inbound(1, &to(after)), Some(end("10.0.0.2:5000")));
}

#[test]
fn a_reboot_forgets_and_may_change_the_address() {
    let mut nat = nat(Mapping::EndpointIndependent, Filtering::None);
    let out = packet("10.0.0.2:5000", "198.51.100.1:53");
    nat.outbound(0, &out);
    nat.reboot(Some("203.0.113.10".parse().unwrap()));
    assert_eq!(nat.inbound(1, &packet("198.51.100.1:53", "203.0.113.9:5000")), None);
    assert_eq!(nat.outbound(1, &out).unwrap(), end("203.0.113.10:5000"));
}

#[test]
fn a_family_without_an_outside_address_is_a_firewall() {
    let mut nat = nat(Mapping::EndpointIndependent, Filtering::Port);
    let out = packet("[2001:db8::2]:5000", "[2001:db8:1::1]:53");
    assert_eq!(nat.outbound(0, &out).unwrap(), out.source, "not translated");
    let back = packet("[2001:db8:1::1]:53", "[2001:db8::2]:5000");
    assert_eq!(nat.inbound(1, &back), Some(out.source));
    let stranger = packet("[2001:db8:1::2]:53", "[2001:db8::2]:5000");
    assert_eq!(nat.inbound(1, &stranger), None, "but filtered");
    nat.rebind();
    assert_eq!(nat.inbound(1, &back), Some(out.source), "it has no ports to change");
}

#[test]
fn a_full_table_makes_room_and_stays_bounded() {
    let mut nat = nat(Mapping::EndpointIndependent, Filtering::None);
    let inside = |n: usize| format!("10.0.{}.{}:5000", n / 250, n % 250 + 1);
    for n in 0..MAX_MAPPINGS + 10 {
        let out = packet(&inside(n), "198.51.100.1:53");
        assert!(nat.outbound(n as u64, &out).is_some(), "{n}");
        assert!(nat.mappings.len() <= MAX_MAPPINGS);
        assert_eq!(nat.mappings.len(), nat.by_outside.len());
    }
    let first = packet(&inside(0), "198.51.100.1:53");
    assert!(!nat.mappings.contains_key(&InsideKey {
        protocol: Protocol::Udp,
        inside: first.source,
        remote: None
    }));
}
