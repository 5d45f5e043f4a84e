//! Building blocks of rulesets, in the JSON of libnftables-json(5).

use ipnet::IpNet;
use serde_json::{Value, json};

use super::listing::entries;

/// Removes a table, which may be missing.
pub(crate) fn remove(table: &str) -> Vec<Value> {
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

/// A named set, with its elements as text: as JSON values, thousands of them would take tens of
/// megabytes.
pub(super) struct FilledSet {
    table: &'static str,
    name: String,
    elements: Vec<String>,
}

/// One transaction as text.
pub(super) fn text(commands: &[Value], sets: &[FilledSet]) -> String {
    let commands = commands.iter().map(Value::to_string);
    // Elements follow the commands that make their sets.
    let commands: Vec<String> = commands.chain(sets.iter().map(FilledSet::fill)).collect();
    format!(r#"{{"nftables":[{}]}}"#, commands.join(","))
}

/// Changes a table in place of replacing it, so that the sets that packets fill stay. `commands`
/// make it anew, and `listing` is what it has now. A set stays only if it is the same.
pub(super) fn keep_filled(commands: Vec<Value>, listing: &Value) -> Vec<Value> {
    let Some(table) = entries(listing, "table").next() else { return commands };
    let is_kept = |set: &Value| commands.iter().any(|add| is_same_set(set, &add["add"]["set"]));
    let kept: Vec<&Value> = entries(listing, "set").filter(|set| is_kept(set)).collect();
    let named = |kind: &str, entry: &Value| {
        let (family, table) = (&entry["family"], &entry["table"]);
        json!({ kind: { "family": family, "table": table, "name": entry["name"] } })
    };
    let table = json!({ "family": table["family"], "name": table["name"] });
    let mut changes = vec![json!({ "flush": { "table": table } })];
    let chains = entries(listing, "chain").map(|chain| named("chain", chain));
    let sets = entries(listing, "set").filter(|set| !kept.contains(set));
    let old = chains.chain(sets.map(|set| named("set", set)));
    changes.extend(old.map(|old| json!({ "delete": old })));
    let is_new = |add: &Value| {
        let is_table = add["add"]["table"].is_object() || add["delete"]["table"].is_object();
        !is_table && !kept.iter().any(|set| is_same_set(set, &add["add"]["set"]))
    };
    changes.extend(commands.iter().filter(|add| is_new(add)).cloned());
    changes
}

/// Whether a listed set that packets fill is as `wanted`. The kernel adds flags of its own.
fn is_same_set(listed: &Value, wanted: &Value) -> bool {
    let same = |key: &str| listed[key] == wanted[key];
    listed["timeout"].is_u64() && ["name", "type", "size", "timeout"].into_iter().all(same)
}

impl FilledSet {
    /// The command that adds the elements to the set.
    fn fill(&self) -> String {
        let Self { table, name, elements } = self;
        let elements = elements.join(",");
        let set = format!(r#""family":"inet","table":"{table}","name":"{name}""#);
        format!(r#"{{"add":{{"element":{{{set},"elem":[{elements}]}}}}}}"#)
    }

    /// The same set with at most `max` of its elements each.
    pub(super) fn parts(&self, max: usize) -> impl Iterator<Item = Self> {
        let (table, name) = (self.table, &self.name);
        self.elements.chunks(max).map(move |part| {
            let (name, elements) = (name.clone(), part.to_vec());
            Self { table, name, elements }
        })
    }

    pub(super) fn len(&self) -> usize {
        self.elements.len()
    }
}

/// A table that replaces one of the same name, built rule by rule.
pub(crate) struct Table {
    family: &'static str,
    name: &'static str,
    commands: Vec<Value>,
    sets: Vec<FilledSet>,
}

impl Table {
    pub(crate) fn new(family: &'static str, name: &'static str) -> Self {
        let mut commands = remove_of(family, name);
        commands.push(json!({ "add": { "table": { "family": family, "name": name } } }));
        Self { family, name, commands, sets: Vec::new() }
    }

    /// Adds a chain at a hook.
    pub(crate) fn base_chain(
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

    /// Adds a set for networks of one family, without overlaps, unless it is there. Returns an
    /// expression for rules.
    pub(super) fn networks(&mut self, name: &str, networks: &[IpNet]) -> Value {
        let v6 = networks.first().is_some_and(|net| net.addr().is_ipv6());
        let name = format!("{name}_v{}", if v6 { 6 } else { 4 });
        let reference = json!(format!("@{name}"));
        if self.sets.iter().any(|set| set.name == name) {
            return reference;
        }
        self.commands.push(json!({ "add": { "set": {
            "family": self.family, "table": self.name, "name": name,
            "type": if v6 { "ipv6_addr" } else { "ipv4_addr" }, "flags": ["interval"],
        } } }));
        let element = |net: &IpNet| {
            let (address, length) = (net.network(), net.prefix_len());
            format!(r#"{{"prefix":{{"addr":"{address}","len":{length}}}}}"#)
        };
        let elements = networks.iter().map(element).collect();
        self.sets.push(FilledSet { table: self.name, name, elements });
        reference
    }

    /// Adds a set with elements of several fields, as text, unless there are none.
    pub(super) fn filled(&mut self, name: &str, kind: &[&str], elements: Vec<String>) {
        if elements.is_empty() {
            return;
        }
        self.commands.push(json!({ "add": { "set": {
            "family": self.family, "table": self.name, "name": name, "type": kind,
        } } }));
        self.sets.push(FilledSet { table: self.name, name: name.to_owned(), elements });
    }

    /// Adds a set that rules fill. It has room for `max`, and forgets each after some seconds.
    pub(super) fn filled_by_rules(&mut self, name: &str, kind: &[&str], max: u32, seconds: u32) {
        // nft lists the type of a single field without brackets.
        let kind = if let [one] = kind { json!(one) } else { json!(kind) };
        self.commands.push(json!({ "add": { "set": {
            "family": self.family, "table": self.name, "name": name,
            "type": kind, "flags": ["timeout"], "size": max, "timeout": seconds,
        } } }));
    }

    /// Adds a named counter.
    pub(crate) fn counter(&mut self, name: &str) {
        self.commands.push(json!({ "add": { "counter": {
            "family": self.family, "table": self.name, "name": name,
        } } }));
    }

    /// Adds rules at the end of a chain.
    pub(crate) fn rules(&mut self, chain: &str, rules: impl IntoIterator<Item = Vec<Value>>) {
        let rule = |expr| {
            json!({ "add": { "rule": {
                "family": self.family, "table": self.name, "chain": chain, "expr": expr,
            } } })
        };
        self.commands.extend(rules.into_iter().map(rule));
    }

    pub(crate) fn into_commands(self) -> Vec<Value> {
        self.commands
    }

    /// The commands, and the sets to fill.
    pub(super) fn into_commands_and_sets(self) -> (Vec<Value>, Vec<FilledSet>) {
        (self.commands, self.sets)
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

pub(crate) fn equals(left: Value, right: Value) -> Value {
    matches("==", left, right)
}

pub(crate) fn meta(key: &str) -> Value {
    json!({ "meta": { "key": key } })
}

pub(super) fn ct(key: &str) -> Value {
    json!({ "ct": { "key": key } })
}

/// Sets a mark.
pub(super) fn set(left: Value, value: u32) -> Value {
    json!({ "mangle": { "key": left, "value": value } })
}

pub(crate) fn payload(protocol: &str, field: &str) -> Value {
    json!({ "payload": { "protocol": protocol, "field": field } })
}

pub(super) fn accept() -> Value {
    json!({ "accept": null })
}

pub(super) fn refuse() -> Value {
    json!({ "reject": { "type": "icmpx", "expr": "admin-prohibited" } })
}

pub(super) fn jump(chain: &str) -> Value {
    json!({ "jump": { "target": chain } })
}

/// A jump that does not come back to this chain.
pub(super) fn goto(chain: &str) -> Value {
    json!({ "goto": { "target": chain } })
}

pub(crate) fn drop() -> Value {
    json!({ "drop": null })
}
