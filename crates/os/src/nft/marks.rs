//! Packets with another program's mark that a filter of Rove refused: which marks they had, and how
//! many there were.
//!
//! A mark may select a route that leads past the tunnel (ip-rule(8), `fwmark`). The program then
//! gets EPERM, and no route for unmarked packets shows why. Each filter notes the marks in a set of
//! its own table. It does not know which rule of routing a mark selects.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{
    listing::entries,
    packets::Rule,
    ruleset::{Table, drop, matches, meta, refuse},
};

/// The set of the marks of refused packets.
pub(super) const MARKED: &str = "marked";
/// Marks that are known at a time. Hosts have rules for a few; further ones are not counted.
const MARKS_MAX: u32 = 64;
/// How long a mark is remembered after the last refused packet. A person who looks for the cause
/// has some minutes, and a problem that was solved does not stay for long.
const MARKS_SECONDS: u32 = 600;

/// Marked packets that were refused.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Marked {
    /// Their marks, of the last minutes.
    pub(crate) marks: BTreeSet<u32>,
    /// How many there were since the filter was set.
    pub(crate) packets: u64,
}

/// The chain that notes the marks of packets and refuses them, and that for packets that are about
/// to leave, where the kernel takes no refusal.
pub(super) const NOTED: &str = "noted";
pub(super) const LATE_NOTED: &str = "late_noted";

/// Makes both chains, and their set.
pub(super) fn make_chains(table: &mut Table) {
    make_set(table);
    for (chain, verdict) in [(NOTED, refuse()), (LATE_NOTED, drop())] {
        table.chain(chain);
        table.rules(chain, [note(), vec![verdict]]);
    }
}

/// Makes the set that [`note`] fills.
pub(super) fn make_set(table: &mut Table) {
    table.filled_by_rules(MARKED, &["mark"], MARKS_MAX, MARKS_SECONDS);
}

/// Counts a marked packet and notes its mark. The next rule refuses the packet.
pub(super) fn note() -> Rule {
    let update =
        json!({ "set": { "op": "update", "elem": meta("mark"), "set": format!("@{MARKED}") } });
    vec![matches("!=", meta("mark"), json!(0)), json!({ "counter": null }), update]
}

/// The marks in a listing of the set. A mark that has a name on this host is left out.
pub(super) fn marks_in(set: &Value) -> BTreeSet<u32> {
    let elements = entries(set, "set").filter_map(|set| set.get("elem")?.as_array());
    let value = |element: &Value| match element.pointer("/elem/val") {
        Some(value) => value.as_u64(),
        None => element.as_u64(),
    };
    let marks = elements.flatten().filter_map(value);
    marks.filter_map(|mark| u32::try_from(mark).ok()).collect()
}

/// The packets that the rules of a table's listing have counted.
pub(super) fn packets_in(table: &Value) -> u64 {
    let expressions = entries(table, "rule").filter_map(|rule| rule.get("expr")?.as_array());
    let counted = expressions.flatten().filter_map(|one| one.pointer("/counter/packets")?.as_u64());
    counted.fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_and_packets_are_read_from_listings() {
        let listing = |entry: Value| json!({ "nftables": [{ "metainfo": {} }, entry] });
        let elements = json!([
            { "elem": { "val": 1, "expires": 599 } },
            { "elem": { "val": 4_294_967_295u32, "expires": 3 } },
            7,
            { "elem": { "val": "named", "expires": 3 } },
            { "elem": { "val": 4_294_967_296u64, "expires": 3 } },
        ]);
        let set = listing(json!({ "set": { "name": MARKED, "elem": elements } }));
        assert_eq!(marks_in(&set), BTreeSet::from([1, 7, u32::MAX]));
        assert_eq!(marks_in(&listing(json!({ "set": { "name": MARKED } }))), BTreeSet::new());
        let counter = json!({ "counter": { "packets": 5, "bytes": 60 } });
        let rule = listing(json!({ "rule": { "expr": [note()[0], counter, { "drop": null }] } }));
        assert_eq!(packets_in(&rule), 5);
        assert_eq!(packets_in(&json!("?")), 0);
        assert_eq!(marks_in(&Value::Null), BTreeSet::new());
    }
}
