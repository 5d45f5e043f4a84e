//! What may not be written: names that say nothing, what would make the core impure, `unsafe`
//! outside its two homes, and work left undone.

use super::source::{Named, is_test_file};
use super::tree::{Finding, Tree};

/// Names that say nothing about what is inside.
const EMPTY_NAMES: &[&str] = &["shared", "common", "util", "utils", "manager", "helpers"];

/// Paths that the core may not name: it is told the time, the bytes and the randomness.
const IMPURE_PATHS: &[&[&str]] = &[
    &["std", "env"],
    &["std", "fs"],
    &["std", "os"],
    &["std", "process"],
    &["std", "hash", "RandomState"],
    &["std", "collections", "hash_map", "RandomState"],
    &["std", "sync", "Mutex"],
    &["std", "sync", "RwLock"],
    &["std", "sync", "OnceLock"],
    &["std", "sync", "LazyLock"],
    &["std", "sync", "atomic"],
    &["std", "sync", "mpsc"],
    &["std", "thread"],
    &["std", "io", "stdin"],
    &["std", "io", "stdout"],
    &["std", "io", "stderr"],
    &["std", "net", "TcpListener"],
    &["std", "net", "TcpStream"],
    &["std", "net", "ToSocketAddrs"],
    &["std", "net", "UdpSocket"],
    &["std", "time", "Instant"],
    &["std", "time", "SystemTime"],
    &["std", "time", "UNIX_EPOCH"],
    &["tokio"],
];

/// Collections whose order of iteration differs from run to run.
const UNORDERED: &[&str] = &["HashMap", "HashSet"];

/// Macros that reach the outside from within the core.
const OUTSIDE_MACROS: &[&str] = &["print", "println", "eprint", "eprintln", "dbg", "thread_local"];

/// Where `unsafe` may stand.
const UNSAFE_HOMES: &[&str] = &["crates/os/", "crates/lab/src/netns"];

/// How many lines above an `unsafe` its reason may begin.
const SAFETY_LINES: usize = 12;

/// Macros of work left undone.
const STUBS: &[&str] = &["todo", "unimplemented", "dbg"];

/// No crate and no module has a name that says nothing.
pub(crate) fn names(tree: &Tree, findings: &mut Vec<Finding>) {
    let mut found = |path: &str, line: usize, name: &str| {
        findings.push(Finding {
            path: path.to_owned(),
            line,
            what: format!("`{name}` is no name"),
            why: "it says nothing about what is inside, so everything ends up there",
            cure: "name it for what it does",
        });
    };
    for (path, source) in tree.sources("") {
        for module in source.modules().filter(|module| EMPTY_NAMES.contains(&module.text.as_str()))
        {
            found(path, module.place.0, &module.text);
        }
        let stem = path.rsplit('/').next().unwrap_or(path).trim_end_matches(".rs");
        let folder = path.rsplit('/').nth(1).filter(|_| stem == "mod").unwrap_or(stem);
        if EMPTY_NAMES.contains(&folder) {
            found(path, 1, folder);
        }
    }
    for path in tree.files.keys().filter(|path| path.ends_with("Cargo.toml")) {
        let folder = path.rsplit('/').nth(1).unwrap_or_default();
        if EMPTY_NAMES.contains(&folder) {
            found(path, 1, folder);
        }
    }
}

/// The core does not ask: no clock, file, socket, thread, environment, console or unordered map.
pub(crate) fn the_core_is_told(tree: &Tree, findings: &mut Vec<Finding>) {
    let mut found = |path: &str, line: usize, what: String| {
        findings.push(Finding {
            path: path.to_owned(),
            line,
            what,
            why: "the core is pure: the same input gives the same output, so it can be simulated",
            cure: "let the shell do it and tell the core; BTreeMap for an ordered map",
        });
    };
    for (path, source) in tree.sources("crates/proto/src/") {
        for named in &source.paths(&[]) {
            if let Some(banned) = IMPURE_PATHS.iter().find(|banned| begins(named, banned)) {
                found(path, named.line, format!("the core names `{}`", banned.join("::")));
            }
        }
        for token in source.tokens.iter().filter(|token| !token.in_test) {
            if UNORDERED.iter().any(|name| token.is(name)) || token.is("async") {
                found(path, token.place.0, format!("the core says `{}`", token.text));
            }
        }
        let is_banned = |name: &str| OUTSIDE_MACROS.contains(&name);
        for name in source.macros().filter(|name| !name.in_test && is_banned(&name.text)) {
            found(path, name.place.0, format!("the core calls `{}!`", name.text));
        }
    }
}

/// `unsafe` stands in its two homes only, each with its reason.
pub(crate) fn unsafe_code(tree: &Tree, findings: &mut Vec<Finding>) {
    for (path, source) in tree.sources("") {
        let home = UNSAFE_HOMES.iter().any(|home| path.starts_with(home));
        for (at, token) in source.tokens.iter().enumerate() {
            if !token.is("unsafe") {
                continue;
            }
            let reason_in = |line: usize| {
                let near = line.saturating_sub(SAFETY_LINES)..=line;
                source.reasons.iter().any(|line| near.contains(line))
            };
            let needs_reason = source.is(at + 1, "{") || source.is(at + 1, "impl");
            let (what, why, cure) = if !home {
                (
                    "`unsafe` outside its homes",
                    "it lives in crates/os and crates/lab/src/netns, where its readers look",
                    "use a safe interface of those, or move the call there",
                )
            } else if needs_reason && !reason_in(token.place.0) {
                (
                    "`unsafe` without its reason",
                    "a reader must be able to check each one",
                    "write a `// SAFETY:` comment right above it",
                )
            } else {
                continue;
            };
            let (path, what) = (path.to_owned(), what.to_owned());
            findings.push(Finding { path, line: token.place.0, what, why, cure });
        }
    }
}

/// No work left undone, and no test switched off.
pub(crate) fn stubs(tree: &Tree, findings: &mut Vec<Finding>) {
    let mut found = |path: &str, line: usize, what: String| {
        findings.push(Finding {
            path: path.to_owned(),
            line,
            what,
            why: "work left undone looks like work done",
            cure: "finish it or take it out; a test that cannot run here says SKIP",
        });
    };
    for (path, source) in tree.sources("") {
        for name in source.macros().filter(|name| STUBS.contains(&name.text.as_str())) {
            found(path, name.place.0, format!("`{}!`", name.text));
        }
        for (at, token) in source.tokens.iter().enumerate() {
            if token.is("ignore") && at > 0 && source.is(at - 1, "[") {
                let kind = if is_test_file(path) { "a test file" } else { "this file" };
                found(path, token.place.0, format!("`#[ignore]` in {kind}"));
            }
        }
    }
}

fn begins(named: &Named, banned: &[&str]) -> bool {
    let root = named.segments.first().map(String::as_str);
    let root = if root == Some("core") { Some("std") } else { root };
    root == banned.first().copied()
        && named.segments.len() >= banned.len()
        && named.segments.iter().zip(banned).skip(1).all(|(a, b)| a == b)
}
