//! What an operator is answered, and what it means for the host.

use ipnet::IpNet;
use rove_host::home::{Home, Role};
use rove_os::links::{Link, LinkKind};

use super::Gateway;
use crate::backup::{restore, write};
use crate::config::{Config, StoreUrl};
use crate::subnets::clash;

fn link(name: &str, addresses: &[&str]) -> Link {
    Link {
        index: 1,
        name: name.to_owned(),
        kind: LinkKind::Ethernet,
        up: true,
        carrier: true,
        carrier_ups: 0,
        dormant: false,
        mtu: 1_500,
        addresses: addresses.iter().map(|net| net.parse().unwrap()).collect(),
        deprecated: false,
        default_v4: None,
        default_v6: None,
        routes: Vec::new(),
        attached: Vec::new(),
    }
}

#[test]
fn a_subnet_behind_a_peer_is_no_network_of_the_host() {
    let links = [
        link("lan", &["192.168.1.7/24", "2001:db8:1::7/64"]),
        link("rove-gw", &["10.77.0.1/24"]),
        link("wan", &["203.0.113.9/32"]),
    ];
    for (subnet, expected) in [
        ("192.168.1.0/24", Some("lan")),
        ("192.168.1.128/25", Some("lan")),
        ("192.168.0.0/16", Some("lan")),
        ("2001:db8::/32", Some("lan")),
        ("0.0.0.0/0", Some("lan")),
        ("192.168.2.0/24", None),
        ("203.0.113.0/24", None),
        ("10.77.0.0/16", None),
    ] {
        let subnet: IpNet = subnet.parse().unwrap();
        let found = clash(&subnet, &links, "rove-gw").map(|(_, name)| name);
        assert_eq!(found, expected, "{subnet}");
    }
}

/// A new gateway in a directory of its own.
fn home(dir: &tempfile::TempDir, name: &str) -> Home {
    let home = Home::new(Some(dir.path().join(name))).unwrap();
    let endpoints = vec!["vpn.example.org:4500".parse().unwrap()];
    let networks = "10.77.0.0/24".parse().unwrap();
    let config = Config::new(endpoints, networks, Vec::new(), StoreUrl::default());
    Gateway::init(&home, &config.unwrap()).unwrap();
    home
}

#[test]
fn a_backup_that_cannot_be_used_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let home = home(&dir, "gateway");
    let file = dir.path().join("backup");
    let snapshot = Gateway::open(&home).unwrap().ledger.snapshot().unwrap();
    let config = home.config(Role::Gateway);
    let good = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, good.replace("nat = true", "nat = 3")).unwrap();
    rove_host::files::create(
        &file,
        rove_host::files::PRIVATE,
        write(&home, snapshot).unwrap().as_bytes(),
    )
    .unwrap();
    std::fs::write(&config, &good).unwrap();
    let error = format!("{:#}", restore(&home, &file).unwrap_err());
    assert!(error.contains("backup/gateway.toml:") && error.contains("gateway.nat"), "{error}");
    assert_eq!(std::fs::read_to_string(&config).unwrap(), good);
    Gateway::open(&home).unwrap();
}

#[test]
fn nothing_is_restored_under_a_running_gateway_or_command() {
    let dir = tempfile::tempdir().unwrap();
    let home = home(&dir, "gateway");
    let file = dir.path().join("backup");
    let open = Gateway::open(&home).unwrap();
    let text = write(&home, open.ledger.snapshot().unwrap()).unwrap();
    rove_host::files::create(&file, rove_host::files::PRIVATE, text.as_bytes()).unwrap();
    let error = restore(&home, &file).unwrap_err().to_string();
    assert!(error.contains("is in use by another rove"), "{error}");
    drop(open);
    let state = home.state(Role::Gateway);
    rove_host::files::make_directory(&state).unwrap();
    let lock = rove_os::lock::Lock::take(&state).unwrap();
    let error = restore(&home, &file).unwrap_err().to_string();
    assert_eq!(error, "the gateway runs: stop it before you restore a backup");
    drop(lock);
    restore(&home, &file).unwrap();
}
