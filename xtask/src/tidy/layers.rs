//! Imports inside `rove-proto` go down only and siblings never meet; `rove-lab` knows the protocol
//! and the engine in its simulated world only. Test code is free: it may look at anything it tests.

use super::source::Source;
use super::tree::{Finding, Tree};

/// The modules of `rove-proto`, highest level first.
const LEVELS: &[&[&str]] = &[
    &["node"],
    &["peer"],
    &["tunnel"],
    &["paths"],
    &["context"],
    &["role"],
    &["bonding"],
    &["flow"],
    &["session"],
    &["codec", "pack", "multipath", "policy"],
    &["path"],
    &["congestion"],
    &["recovery"],
    &["outbox"],
    &["crypto"],
    &["wire"],
    &["blocks"],
    &["packet"],
    &["id", "time", "error", "ablation"],
];

const PROTO: &str = "crates/proto/src/";
const LAB: &str = "crates/lab/src/";
const WORLD: &str = "crates/lab/src/world";

fn level(module: &str) -> Option<usize> {
    LEVELS.iter().position(|modules| modules.contains(&module))
}

/// The import table inside `rove-proto`.
pub(crate) fn proto_modules(tree: &Tree, findings: &mut Vec<Finding>) {
    for (path, source) in tree.sources(PROTO) {
        let module = module_of(&path[PROTO.len()..]);
        let Some(here) = module.first() else {
            unknown_modules(path, source, findings);
            continue;
        };
        let Some(from) = level(here) else { continue };
        for named in &source.paths(&module) {
            let [root, there, ..] = named.segments.as_slice() else { continue };
            if root != "crate" || there == here {
                continue;
            }
            if level(there).is_some_and(|to| to > from) {
                continue;
            }
            findings.push(Finding {
                path: path.to_owned(),
                line: named.line,
                what: format!("`{here}` imports `crate::{there}`"),
                why: "imports go down only, siblings never meet (ARCHITECTURE.md)",
                cure: "pass the value in from above, or move what both need to a lower module",
            });
        }
    }
}

/// `lib.rs` may name everything, but only modules that have a place in the table.
fn unknown_modules(path: &str, source: &Source, findings: &mut Vec<Finding>) {
    for module in source.modules().filter(|module| level(&module.text).is_none()) {
        findings.push(Finding {
            path: path.to_owned(),
            line: module.place.0,
            what: format!("module `{}` has no place in the import table", module.text),
            why: "imports go down only, so every module needs a level",
            cure: "make it part of an existing module, or record a decision and give it a level",
        });
    }
}

/// `rove-lab` outside its world stands for the outside: it must not know the protocol.
pub(crate) fn lab_knows_the_protocol_in_its_world_only(tree: &Tree, findings: &mut Vec<Finding>) {
    for (path, source) in tree.sources(LAB).filter(|(path, _)| !path.starts_with(WORLD)) {
        for named in source.paths(&module_of(&path[LAB.len()..])) {
            let Some(first) = named.segments.first() else { continue };
            if matches!(first.as_str(), "rove_proto" | "rove_engine") {
                findings.push(Finding {
                    path: path.to_owned(),
                    line: named.line,
                    what: format!("the lab names `{first}`"),
                    why: "outside its world the lab is the outside: it sees datagrams, no protocol",
                    cure: "move the code to world/, or do without",
                });
            }
        }
    }
}

/// The module path of a file below `src/`: `a/b.rs` and `a/b/mod.rs` are `[a, b]`.
fn module_of(file: &str) -> Vec<String> {
    let stem = file.trim_end_matches(".rs");
    let stem = stem.strip_suffix("/mod").unwrap_or(stem);
    if matches!(stem, "lib" | "main") {
        return Vec::new();
    }
    stem.split('/').map(str::to_owned).collect()
}
