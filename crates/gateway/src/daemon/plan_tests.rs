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
    let firewall = firewall(&config, udp.into_iter(), tcp.into_iter());
    let expected = Firewall { nat: true, udp_ports: vec![53, 4_500], tcp_ports: vec![443] };
    assert_eq!(firewall, expected);
    let config = Config { nat: false, ..config };
    assert!(!super::firewall(&config, [].into_iter(), [].into_iter()).nat);
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
