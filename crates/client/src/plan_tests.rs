//! Subflows of MPTCP begin where the configuration says.

use rove_os::links::{Link, LinkKind};

use super::*;
use crate::config::{LinkTerms, LinkUse};
use crate::ranking::{Standing, but_for};

fn link() -> Link {
    Link {
        index: 7,
        name: "link".to_owned(),
        kind: LinkKind::Ethernet,
        up: true,
        carrier: true,
        carrier_ups: 0,
        dormant: false,
        mtu: 1_500,
        addresses: Vec::new(),
        deprecated: false,
        default_v4: None,
        default_v6: None,
        routes: Vec::new(),
        attached: Vec::new(),
    }
}

#[test]
fn subflows_begin_at_each_link_where_mptcp_is_wanted() {
    let ranked = |name: &str, addresses: &[&str], usage| Ranked {
        link: Link {
            name: name.to_owned(),
            addresses: addresses.iter().map(|net| net.parse().unwrap()).collect(),
            ..link()
        },
        standing: Standing::Sound,
        signal: None,
        terms: LinkTerms::default(),
        usage,
        is_going: false,
    };
    let links = [
        ranked("eth0", &["192.0.2.7/24", "2001:db8::7/64", "192.0.2.8/24"], LinkUse::Always),
        ranked("wwan0", &["10.9.0.2/32"], LinkUse::Backup),
    ];
    let wanted = PathsConfig {
        transport: TransportChoice::Mptcp,
        mode: LinkMode::Full,
        ..PathsConfig::default()
    };
    let told_without = |paths: &PathsConfig, away| {
        let tell = |endpoint: mptcp::Endpoint| {
            let mptcp::Endpoint { link, address, backup, mesh } = endpoint;
            let backup = if backup { " backup" } else { "" };
            let mesh = if mesh { " mesh" } else { "" };
            format!("{link} {address}{backup}{mesh}")
        };
        subflows(paths, but_for(&links, away)).into_iter().map(tell).collect::<Vec<_>>()
    };
    let told = |paths: &PathsConfig| told_without(paths, None);
    let all = ["eth0 192.0.2.7", "eth0 2001:db8::7", "wwan0 10.9.0.2 backup"];
    assert_eq!(told(&wanted), all);
    assert_eq!(told_without(&wanted, Some("eth0")), all[2..], "a rehearsal without it");
    let leaving = Ranked { is_going: true, ..links[0].clone() };
    let leaving = subflows(&wanted, [leaving].iter());
    assert!(leaving.iter().all(|endpoint| endpoint.backup), "a link that is about to go");
    let mesh = PathsConfig { manager: PathManager::FullMesh, ..wanted };
    assert_eq!(told(&mesh)[0], "eth0 192.0.2.7 mesh");
    let backup = PathsConfig { mode: LinkMode::Backup, ..wanted };
    assert_eq!(told(&backup)[..2], ["eth0 192.0.2.7 backup", "eth0 2001:db8::7 backup"]);
    let none: [&str; 0] = [];
    assert_eq!(told(&PathsConfig { mode: LinkMode::Single, ..wanted }), none);
    for transport in [TransportChoice::Auto, TransportChoice::Udp, TransportChoice::Tcp] {
        assert_eq!(told(&PathsConfig { transport, ..wanted }), none);
    }
    let many: Vec<_> = (0..9).map(|_| ranked("x", &["10.9.0.3/32"], LinkUse::Always)).collect();
    assert_eq!(subflows(&wanted, many.iter()).len(), mptcp::ENDPOINTS_MAX);
}
