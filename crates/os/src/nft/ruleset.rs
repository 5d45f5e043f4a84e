//! Building blocks of rulesets, in the JSON of libnftables-json(5).

use ipnet::IpNet;
use serde_json::{Value, json};

/// Removes a table, which may be missing.
pub(super) fn remove(table: &str) -> Vec<Value> {
    remove_of("inet", table)
}

/// The same for a table of another family.
pub(super) fn remove_of(family: &str, table: &str) -> Vec<Value> {
    vec![
        json!({ "add": { "table": { "family": family, "name": table } } }),
        json!({ "delete": { "table": { "family": family, "name": table } } }),
    ]
}

pub(super) fn replace(table: &str) -> Vec<Value> {
    let mut commands = remove(table);
    commands.push(json!({ "add": { "table": { "family": "inet", "name": table } } }));
    commands
}

/// A table that replaces one of the same name, built rule by rule.
pub(super) struct Table {
    family: &'static str,
    name: &'static str,
    commands: Vec<Value>,
}

impl Table {
    pub(super) fn new(family: &'static str, name: &'static str) -> Self {
        let mut commands = remove_of(family, name);
        commands.push(json!({ "add": { "table": { "family": family, "name": name } } }));
        Self { family, name, commands }
    }

    /// Adds a chain at a hook.
    pub(super) fn base_chain(
        &mut self,
        name: &str,
        kind: &str,
        (hook, priority): (&str, i32),
        policy: &str,
    ) {
        self.commands.push(json!({ "add": { "chain": {
            "family": self.family, "table": self.name, "name": name,
            "type": kind, "hook": hook, "prio": priority, "policy": policy,
        } } }));
    }

    /// Adds a chain that other chains jump to.
    pub(super) fn chain(&mut self, name: &str) {
        self.commands.push(json!({ "add": { "chain": {
            "family": self.family, "table": self.name, "name": name,
        } } }));
    }

    /// Adds rules at the end of a chain.
    pub(super) fn rules(&mut self, chain: &str, rules: impl IntoIterator<Item = Vec<Value>>) {
        let rule = |expr| {
            json!({ "add": { "rule": {
                "family": self.family, "table": self.name, "chain": chain, "expr": expr,
            } } })
        };
        self.commands.extend(rules.into_iter().map(rule));
    }

    pub(super) fn into_commands(self) -> Vec<Value> {
        self.commands
    }
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
    if networks.iter().any(|net| net.prefix_len() == 0) {
        // A set cannot contain the network of all addresses.
        return equals(meta("nfproto"), json!(if v6 { "ipv6" } else { "ipv4" }));
    }
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

pub(super) fn ct(key: &str) -> Value {
    json!({ "ct": { "key": key } })
}

/// Sets a mark.
pub(super) fn set(left: Value, value: u32) -> Value {
    json!({ "mangle": { "key": left, "value": value } })
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

pub(super) fn drop() -> Value {
    json!({ "drop": null })
}
