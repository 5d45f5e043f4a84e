//! What a gateway's host and its peers get, from what is configured and granted.

use rove_host::inner::network;
use rove_host::invite::TokenHash;
use rove_host::time::UnixSeconds;
use rove_host::values::HostIndex;
use rove_proto::wire::inner::Headers;

use super::*;
use crate::ledger::Standing;

const TCP: u8 = 6;
const UDP: u8 = 17;

fn config(dns: &[&str]) -> Config {
    let endpoints = vec!["vpn.example.org:4500".parse().unwrap()];
    let networks = "10.77.0.0/24".parse().unwrap();
    let dns = dns.iter().map(|server| server.parse().unwrap()).collect();
    Config::new(endpoints, networks, dns, crate::config::StoreUrl::default()).unwrap()
}

fn peer(number: u8, subnets: &[&str]) -> Peer {
    Peer {
        key: rove_proto::id::PeerKey([number; 32]).into(),
        name: format!("p{number}").parse().unwrap(),
        host: HostIndex(u32::from(number)),
        subnets: subnets.iter().map(|net| net.parse().unwrap()).collect(),
        allowed: Vec::new(),
        enrolled: UnixSeconds(0),
        invite: TokenHash([number; 32]),
        standing: Standing::Enrolled,
    }
}

fn lan(network: &str) -> Link {
    Link {
        index: 7,
        name: "lan".to_owned(),
        kind: LinkKind::Ethernet,
        up: true,
        carrier: true,
        carrier_ups: 0,
        dormant: false,
        mtu: 1_500,
        addresses: vec![network.parse().unwrap()],
        deprecated: false,
        default_v4: None,
        default_v6: None,
        routes: Vec::new(),
        attached: Vec::new(),
    }
}

#[test]
fn the_name_servers_that_clients_are_told_of_can_be_asked() {
    let config = config(&["10.20.0.53"]);
    let networks = config.networks;
    let (own, peer) = (networks.lease(HostIndex::GATEWAY).unwrap(), peer(2, &[]));
    let lease = networks.lease(peer.host).unwrap();
    // Even where they stand in a network of the gateway's own.
    let access = access(&config, &peer, &lease, &own, &[], &[lan("10.20.0.1/16")]);
    let judge = |to: &str, protocol, port| {
        access.admit(&Headers {
            source: "10.77.0.2".parse().unwrap(),
            destination: to.parse().unwrap(),
            protocol,
            ports: Some((40_000, port)),
            transport: Some(20),
        })
    };
    assert!(judge("10.20.0.53", UDP, 53).is_ok());
    assert!(judge("10.20.0.53", TCP, 53).is_ok());
    assert!(judge("10.20.0.53", TCP, 22).is_err());
    assert!(judge("10.20.0.54", UDP, 53).is_err());
}

/// Whether a client of a gateway with these links may contact an address.
fn reaches(config: &Config, links: &[Link], to: &str) -> bool {
    let networks = config.networks;
    let (own, peer) = (networks.lease(HostIndex::GATEWAY).unwrap(), peer(2, &[]));
    let lease = networks.lease(peer.host).unwrap();
    let to: IpAddr = to.parse().unwrap();
    let source = lease.addresses().find(|own| own.is_ipv4() == to.is_ipv4()).unwrap();
    access(config, &peer, &lease, &own, &[], links)
        .admit(&Headers {
            source,
            destination: to,
            protocol: TCP,
            ports: Some((40_000, 443)),
            transport: Some(20),
        })
        .is_ok()
}

#[test]
fn public_neighbours_are_the_internet_and_the_gateway_itself_is_not() {
    let wan = Link {
        addresses: ["198.51.100.2/20", "2001:db8:5::2/64", "2001:db8:6::2/128"]
            .map(|net| net.parse().unwrap())
            .into(),
        attached: vec!["2001:db8:6::/64".parse().unwrap(), "2000::/3".parse().unwrap()],
        default_v4: Some(0),
        default_v6: Some(0),
        ..lan("10.20.0.1/16")
    };
    let inside = Link { name: "br0".to_owned(), ..lan("203.0.113.1/24") };
    let services = Link { kind: LinkKind::Loopback, ..lan("192.0.2.53/32") };
    let pair = Link { default_v4: Some(1), ..lan("192.88.1.4/31") };
    let links = [wan, inside, services, lan("10.20.0.1/16"), pair];
    let with = |word: &str| Config {
        networks: "10.77.0.0/24,2001:db8:77::/64".parse().unwrap(),
        neighbours: word.parse().unwrap(),
        ..config(&[])
    };
    // For "none", "ipv4" and "all".
    for (to, expected) in [
        ("198.51.107.7", [false, true, true]),
        ("64:ff9b::198.51.107.7", [false, true, true]),
        ("198.51.100.2", [false; 3]),
        ("64:ff9b::198.51.100.2", [false; 3]),
        ("2002:c633:6402::1", [false; 3]),
        ("198.51.96.0", [false; 3]),
        ("198.51.111.255", [false; 3]),
        ("192.88.1.5", [false, true, true]),
        ("192.88.1.4", [false; 3]),
        ("203.0.113.9", [false; 3]),
        ("192.0.2.53", [false; 3]),
        ("192.0.2.54", [true; 3]),
        ("10.20.0.9", [false; 3]),
        ("2001:db8:5::9", [false, false, true]),
        ("2001:db8:5::2", [false; 3]),
        ("2001:db8:6::9", [false, false, true]),
        ("2001:db8:7::9", [true; 3]),
        // Another client.
        ("2001:db8:77::3", [false; 3]),
    ] {
        let found = ["none", "ipv4", "all"].map(|word| reaches(&with(word), &links, to));
        assert_eq!(found, expected, "{to}");
    }
}

#[test]
fn what_is_allowed_by_name_passes_the_firewall_those_of_this_host_first() {
    let destinations = |third: u8| {
        (0..=255u8).map(move |last| format!("10.9.{third}.{last}/32:80").parse().unwrap())
    };
    let mut peers: Vec<Peer> = (2..8).map(|number| peer(number, &[])).collect();
    for (peer, third) in peers.iter_mut().zip(0..) {
        peer.allowed = destinations(third).collect();
    }
    let last = "192.0.2.0/24".parse().unwrap();
    peers[5].allowed.push(last);
    let config = config(&["9.9.9.9"]);
    let registry = |peers: &[Peer]| Registry::new(config.networks, peers.to_vec(), Vec::new());
    let admitted =
        |peers: &[Peer]| super::admitted(&config, &registry(peers), &[lan("192.0.2.1/24")]);
    let few = admitted(&peers[..1]);
    assert_eq!(few.len(), 257);
    assert!(few.contains(&Destination { to: "9.9.9.9/32".parse().unwrap(), port: Some(53) }));
    let many = admitted(&peers);
    assert_eq!((many.len(), many[0].to), (LIST_MAX, last.network));
    peers[5].standing = Standing::Revoked { at: UnixSeconds(1) };
    assert_ne!(admitted(&peers)[0].to, last.network);
}

#[test]
fn a_client_gets_a_part_of_the_hosts_table_of_connections() {
    for (max, share) in [
        (None, 8_192),
        (Some(1_000), 256),
        (Some(4_096), 512),
        (Some(262_144), 8_192),
        (Some(u64::MAX), 8_192),
    ] {
        assert_eq!(share_of(max), share);
    }
}

#[test]
fn a_network_of_the_hosts_own_wins_over_a_subnet_behind_a_peer() {
    let config = config(&[]);
    let networks = config.networks;
    let own = networks.lease(HostIndex::GATEWAY).unwrap();
    let office = peer(2, &["192.168.1.0/24", "192.168.7.0/24"]);
    let lease = networks.lease(office.host).unwrap();
    let registry = Registry::new(networks, vec![office.clone()], Vec::new());
    for (links, expected) in [
        (vec![], vec!["192.168.1.0/24", "192.168.7.0/24"]),
        (vec![lan("192.168.1.5/24")], vec!["192.168.7.0/24"]),
    ] {
        let plan = gateway(&config, &own, &registry, &links);
        let expected: Vec<IpNet> = expected.iter().map(|net| net.parse().unwrap()).collect();
        assert_eq!(plan.routes, expected);
        plan.check(&links).unwrap();
        let behind = behind(&config, &office, &office.subnets, &links);
        let access = access(&config, &office, &lease, &own, &behind, &links);
        let own: Vec<IpNet> = access.own().iter().filter_map(network).collect();
        assert_eq!(own[1..], expected, "nor may the peer send from there");
    }
}

#[test]
fn the_firewall_knows_every_port_that_is_listened_at_once() {
    let config = config(&[]);
    let at = |places: &[&str]| -> Vec<SocketAddr> {
        places.iter().map(|place| place.parse().unwrap()).collect()
    };
    let (udp, tcp) = (at(&["[::]:4500", "192.0.2.1:53", "192.0.2.7:4500"]), at(&["[::]:443"]));
    let firewall = firewall(&config, Vec::new(), true, udp.into_iter(), tcp.into_iter());
    let (udp_ports, tcp_ports) = (vec![53, 4_500], vec![443]);
    let share = Some(share());
    let expected = Firewall { nat: true, udp_ports, tcp_ports, share, ..Firewall::default() };
    assert_eq!(firewall, expected);
    let config = Config { nat: false, ..config };
    assert!(!super::firewall(&config, Vec::new(), true, [].into_iter(), [].into_iter()).nat);
}

#[test]
fn no_store_keeps_the_gateway_from_starting() {
    let config = config(&[]);
    let networks = config.networks;
    let own = networks.lease(HostIndex::GATEWAY).unwrap();
    let subnets = |n: u8| (0..=255).map(|m| format!("192.{n}.{m}.0/24")).collect::<Vec<_>>();
    let peers = (2..8).map(|n| {
        let subnets = subnets(n);
        peer(n, &subnets.iter().map(String::as_str).collect::<Vec<_>>())
    });
    let registry = Registry::new(networks, peers.collect(), Vec::new());
    gateway(&config, &own, &registry, &[]).check(&[]).unwrap();
}

#[test]
fn what_lies_behind_a_peer_is_what_it_advertises_and_was_granted() {
    let config = config(&[]);
    let office = peer(2, &["192.168.4.0/22", "fd07::/64"]);
    for (advertised, expected) in [
        (vec![], vec![]),
        (vec!["192.168.4.0/22"], vec!["192.168.4.0/22"]),
        (vec!["192.168.5.0/24", "192.168.5.0/24"], vec!["192.168.5.0/24"]),
        (vec!["192.168.0.0/16", "192.168.5.0/24"], vec!["192.168.4.0/22", "192.168.5.0/24"]),
        (vec!["192.168.8.0/24", "10.0.0.0/8"], vec![]),
        (vec!["0.0.0.0/0", "::/0"], vec!["192.168.4.0/22", "fd07::/64"]),
    ] {
        let nets = |texts: &[&str]| texts.iter().map(|net| net.parse().unwrap()).collect();
        let (advertised, expected): (Vec<IpNet>, Vec<IpNet>) = (nets(&advertised), nets(&expected));
        assert_eq!(behind(&config, &office, &advertised, &[]), expected);
    }
}
