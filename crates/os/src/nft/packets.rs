//! What rules of a client say of a packet: its direction, its ends, its networks.

use ipnet::IpNet;
use serde_json::{Value, json};

use super::ruleset::{Table, accept, address, equals, meta, networks_by_family, payload};
use crate::plan::{Connection, LocalNetwork};

pub(super) type Rule = Vec<Value>;

/// Whether the kernel can look up the socket of a packet (`CONFIG_NFT_SOCKET`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sockets {
    Matched,
    Unknown,
}

/// The direction of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    In,
    Out,
}

impl Way {
    /// The expression for the packet's link.
    pub(super) fn link(self) -> Value {
        meta(if self == Self::In { "iifname" } else { "oifname" })
    }

    /// The field with the address of the other end.
    pub(super) const fn remote(self) -> &'static str {
        if matches!(self, Self::In) { "saddr" } else { "daddr" }
    }

    /// The fields with the address and the port of this end.
    pub(super) const fn local(self) -> [&'static str; 2] {
        if matches!(self, Self::In) { ["daddr", "dport"] } else { ["saddr", "sport"] }
    }

    pub(super) const fn opposite(self) -> Self {
        if matches!(self, Self::In) { Self::Out } else { Self::In }
    }

    /// Both ends of a connection, the one that sends first.
    pub(super) const fn ends<T: Copy>(self, local: T, remote: T) -> [T; 2] {
        if matches!(self, Self::In) { [remote, local] } else { [local, remote] }
    }
}

/// Applies `verdict` to packets of these connections.
pub(super) fn of_flows(
    protocol: &str,
    flows: &[Connection],
    way: Way,
    verdict: &Value,
) -> Vec<Rule> {
    let of_family = |v6: bool| {
        let ends = |flow: &Connection| {
            let [from, to] = way.ends(flow.local, flow.remote);
            let [from, to] = [from, to].map(|end| (end.ip().to_string(), end.port()));
            json!({ "concat": [from.0, from.1, to.0, to.1] })
        };
        let flows = flows.iter().filter(|flow| flow.remote.is_ipv6() == v6);
        let ends: Vec<Value> = flows.map(ends).collect();
        let ip = if v6 { "ip6" } else { "ip" };
        let fields = json!({ "concat": [
            payload(ip, "saddr"), payload(protocol, "sport"),
            payload(ip, "daddr"), payload(protocol, "dport"),
        ] });
        let rule = vec![equals(fields, json!({ "set": ends })), verdict.clone()];
        (!ends.is_empty()).then_some(rule)
    };
    [false, true].into_iter().filter_map(of_family).collect()
}

/// Accepts packets to (or from) excluded networks, which are in named sets: there may be thousands,
/// and both directions share a set.
pub(super) fn excluded(table: &mut Table, name: &str, way: Way, networks: &[IpNet]) -> Vec<Rule> {
    let mut rule = |family: Vec<IpNet>| {
        if family.iter().any(|net| net.prefix_len() == 0) {
            return vec![address(way.remote(), &family), accept()];
        }
        let ip = if family.iter().any(|net| net.addr().is_ipv6()) { "ip6" } else { "ip" };
        let set = table.networks(name, &family);
        vec![equals(payload(ip, way.remote()), set), accept()]
    };
    networks_by_family(networks).into_iter().map(&mut rule).collect()
}

/// Accepts packets to (or from) a network on its own link.
pub(super) fn on_link(local: &LocalNetwork, way: Way) -> Rule {
    let net = address(way.remote(), &[local.net]);
    vec![equals(way.link(), json!(local.link)), net, accept()]
}

pub(super) fn kind_of_destination() -> Value {
    json!({ "fib": { "result": "type", "flags": ["daddr"] } })
}

pub(super) fn socket(key: &str) -> Value {
    json!({ "socket": { "key": key } })
}
