//! What clients are told of a gateway's addresses.

use super::*;

fn link(addresses: &[&str], default: bool) -> Link {
    Link {
        index: 2,
        name: "eth0".to_owned(),
        kind: LinkKind::Ethernet,
        up: true,
        carrier: true,
        carrier_ups: 0,
        dormant: false,
        mtu: 1_500,
        addresses: addresses.iter().map(|text| text.parse().unwrap()).collect(),
        deprecated: false,
        default_v4: default.then_some(0),
        default_v6: default.then_some(0),
        routes: Vec::new(),
        attached: Vec::new(),
    }
}

/// `endpoints` of a host with `links`, which once had the addresses `had` as well.
fn told(endpoints: &[&str], links: &[&Link], had: &[&str]) -> Vec<String> {
    let endpoints: Vec<SocketAddr> = endpoints.iter().map(|at| at.parse().unwrap()).collect();
    let own = links.iter().flat_map(|link| link.addresses.iter().map(ipnet::IpNet::addr));
    let once_ours = had.iter().map(|ip| ip.parse().unwrap()).chain(own).collect();
    let addresses = addresses(&endpoints, links, &[4500], &once_ours);
    addresses.iter().map(SocketAddr::to_string).collect()
}

#[test]
fn the_operators_endpoints_come_first_then_the_hosts_own_addresses() {
    let links = [&link(&["192.0.2.1/24", "2001:db8::1/64", "192.168.1.1/24"], true)];
    let told = told(&["203.0.113.9:9", "192.0.2.1:4500"], &links, &[]);
    assert_eq!(told, ["203.0.113.9:9", "192.0.2.1:4500", "[2001:db8::1]:4500"]);
}

#[test]
fn an_address_that_was_lost_comes_last_and_one_in_front_stays() {
    let links = [&link(&["192.0.2.7/24"], true)];
    let lost = told(&["192.0.2.1:4500"], &links, &["192.0.2.1"]);
    assert_eq!(lost, ["192.0.2.7:4500", "192.0.2.1:4500"]);
    let in_front = told(&["198.51.100.1:4500"], &links, &[]);
    assert_eq!(in_front, ["198.51.100.1:4500", "192.0.2.7:4500"]);
}

#[test]
fn private_addresses_are_told_by_a_private_gateway_alone() {
    let lan = link(&["192.168.1.10/24"], true);
    let bridge = link(&["172.17.0.1/16"], false);
    let private = told(&["192.168.1.9:4500"], &[&lan, &bridge], &["192.168.1.9"]);
    assert_eq!(private, ["192.168.1.10:4500", "192.168.1.9:4500"]);
    assert_eq!(told(&["198.51.100.1:4500"], &[&lan, &bridge], &[]), ["198.51.100.1:4500"]);
}

#[test]
fn what_leads_nowhere_is_not_told_and_there_is_a_bound() {
    let many: Vec<String> = (1..=20).map(|n| format!("192.0.2.{n}/24")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let told = told(&["127.0.0.1:4500", "[::]:4500"], &[&link(&many, true)], &[]);
    assert_eq!(told.len(), ADDRESSES_MAX);
    assert!(told.iter().all(|at| at.starts_with("192.0.2.")), "{told:?}");
}
