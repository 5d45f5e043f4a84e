//! What rulesets are made of, in the JSON of libnftables-json(5).

use ipnet::IpNet;
use serde_json::{Value, json};

/// Removes a table, which need not be there.
pub(super) fn remove(table: &str) -> Vec<Value> {
    vec![
        json!({ "add": { "table": { "family": "inet", "name": table } } }),
        json!({ "delete": { "table": { "family": "inet", "name": table } } }),
    ]
}

pub(super) fn replace(table: &str) -> Vec<Value> {
    let mut commands = remove(table);
    commands.push(json!({ "add": { "table": { "family": "inet", "name": table } } }));
    commands
}

/// The networks of each family that has any, without overlaps, which a set cannot have.
pub(super) fn networks_by_family(networks: &[IpNet]) -> Vec<Vec<IpNet>> {
    let (v4, v6) = IpNet::aggregate(&networks.to_vec())
        .into_iter()
        .partition::<Vec<_>, _>(|net| net.addr().is_ipv4());
    [v4, v6].into_iter().filter(|family| !family.is_empty()).collect()
}

/// Matches an address against networks of one family.
pub(super) fn address(field: &str, networks: &[IpNet]) -> Value {
    let v6 = networks.first().is_some_and(|net| net.addr().is_ipv6());
    let prefix = |net: &IpNet| {
        let address = net.network().to_string();
        json!({ "prefix": { "addr": address, "len": net.prefix_len() } })
    };
    let set: Vec<Value> = networks.iter().map(prefix).collect();
    equals(payload(if v6 { "ip6" } else { "ip" }, field), json!({ "set": set }))
}

pub(super) fn chain(
    table: &str,
    name: &str,
    kind: &str,
    hook: &str,
    priority: i32,
    policy: &str,
) -> Value {
    json!({ "add": { "chain": {
        "family": "inet", "table": table, "name": name,
        "type": kind, "hook": hook, "prio": priority, "policy": policy,
    } } })
}

pub(super) fn rule(table: &str, chain: &str, expr: Vec<Value>) -> Value {
    json!({ "add": { "rule": {
        "family": "inet", "table": table, "chain": chain, "expr": expr,
    } } })
}

pub(super) fn matches(op: &str, left: Value, right: Value) -> Value {
    json!({ "match": { "op": op, "left": left, "right": right } })
}

pub(super) fn equals(left: Value, right: Value) -> Value {
    matches("==", left, right)
}

pub(super) fn meta(key: &str) -> Value {
    json!({ "meta": { "key": key } })
}

pub(super) fn payload(protocol: &str, field: &str) -> Value {
    json!({ "payload": { "protocol": protocol, "field": field } })
}

pub(super) fn accept() -> Value {
    json!({ "accept": null })
}

pub(super) fn refuse() -> Value {
    json!({ "reject": { "type": "icmpx", "expr": "admin-prohibited" } })
}
