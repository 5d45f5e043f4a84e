//! How full the kernel's table of tracked connections is. If it is full, the kernel drops every
//! packet that begins a connection (nf_conntrack, "table full, dropping packet").
//!
//! The table belongs to the network namespace, and its maximum to the whole host.
//!
//! Also tells whether other programs need the entries of the gateway's own datagrams: their filters
//! may accept only known connections, and their NAT may have changed a port. Limits: it sees
//! iptables of the older form only by its kernel modules.

use std::{fs, path::Path};

use crate::{nft, plan::FILTER_TABLE_PREFIX};

/// Modules of iptables' older form, whose rules nft does not list.
const LEGACY: [&str; 4] = ["iptable_filter", "iptable_nat", "ip6table_filter", "ip6table_nat"];
/// Statements that use or change connections; `xt` are those of iptables.
const USES: [&str; 7] = ["xt", "dnat", "snat", "redirect", "masquerade", "tproxy", "synproxy"];

/// The table of the present network namespace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tracked {
    /// Connections in it.
    pub connections: u64,
    /// The most that the kernel keeps.
    pub max: u64,
}

/// Reads the kernel's counters; `None` if it tracks no connections, or no more than it likes.
pub fn tracked() -> Option<Tracked> {
    let read = |name: &str| -> Option<u64> {
        let path = format!("/proc/sys/net/netfilter/nf_conntrack_{name}");
        fs::read_to_string(path).ok()?.trim().parse().ok()
    };
    let (connections, max) = (read("count")?, read("max")?);
    (max > 0).then_some(Tracked { connections, max })
}

/// Whether rules of other programs may depend on the connections of this host's own packets. If it
/// cannot be found out, they may.
pub fn is_used_by_others() -> bool {
    let is_loaded = |module: &&str| Path::new("/sys/module").join(module).exists();
    LEGACY.iter().any(is_loaded) || nft::ruleset().map_or(true, |ruleset| has_foreign_use(&ruleset))
}

fn has_foreign_use(ruleset: &serde_json::Value) -> bool {
    let is_use = |key: &str| USES.contains(&key) || key == "ct" || key.starts_with("ct ");
    let rules = nft::entries(ruleset, "rule");
    let mut foreign =
        rules.filter(|rule| !nft::text(rule, "table").starts_with(FILTER_TABLE_PREFIX));
    foreign.any(|rule| nft::has_key(rule, &is_use))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_rules_of_others_that_use_connections_count() {
        let found = |table: &str, statement| {
            has_foreign_use(&json!({ "nftables": [
                { "metainfo": {} },
                { "rule": { "family": "ip", "table": table, "chain": "c", "expr": [statement] } },
            ] }))
        };
        let state = json!({ "match": { "left": { "ct": { "key": "state" } }, "right": "new" } });
        for statement in [
            state.clone(),
            json!({ "xt": { "type": "match", "name": "conntrack" } }),
            json!({ "ct helper": "ftp" }),
            json!({ "redirect": { "port": 4500 } }),
            json!({ "dnat": { "addr": "192.0.2.1" } }),
        ] {
            assert!(found("filter", statement.clone()), "{statement}");
        }
        assert!(!found("rove_gateway", state));
        assert!(!found("filter", json!({ "drop": null })));
        assert!(!has_foreign_use(&json!("?")));
    }
}
