//! The rules of a gateway: NAT for the networks of the tunnel.

use ipnet::IpNet;
use serde_json::{Value, json};

use super::ruleset::{address, chain, matches, meta, networks_by_family, replace, rule};
use crate::plan::NAT_TABLE;

/// NAT for the networks of the tunnel, towards every interface but the tunnel.
pub(super) fn nat(device: &str, networks: &[IpNet]) -> Vec<Value> {
    let mut commands = replace(NAT_TABLE);
    commands.push(chain(NAT_TABLE, "postrouting", "nat", "postrouting", 100, "accept"));
    for family in networks_by_family(networks) {
        let source = address("saddr", &family);
        commands.push(rule(
            NAT_TABLE,
            "postrouting",
            vec![
                matches("!=", meta("oifname"), json!(device)),
                source,
                json!({ "masquerade": null }),
            ],
        ));
    }
    commands
}
