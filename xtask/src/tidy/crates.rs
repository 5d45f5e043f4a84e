//! Which crate may know which, from their `Cargo.toml`; and that the lock file is committed and
//! names no registry but the public one.

use super::tree::{Finding, Tree};

/// The import table between crates: each crate and those it may depend on, for tests too.
const TABLE: &[(&str, &[&str])] = &[
    ("rove-proto", &[]),
    ("rove-engine", &["rove-proto"]),
    ("rove-os", &[]),
    ("rove-api", &[]),
    ("rove-host", &["rove-proto", "rove-engine", "rove-os", "rove-api"]),
    ("rove-client", &["rove-proto", "rove-os", "rove-api", "rove-host"]),
    ("rove-gateway", &["rove-proto", "rove-os", "rove-api", "rove-host"]),
    ("rove-lab", &["rove-proto", "rove-engine"]),
    ("rove", &["rove-proto", "rove-os", "rove-api", "rove-host", "rove-client", "rove-gateway"]),
    (
        "rove-fuzz",
        &[
            "rove-proto",
            "rove-engine",
            "rove-lab",
            "rove-os",
            "rove-api",
            "rove-host",
            "rove-client",
            "rove-gateway",
        ],
    ),
    ("xtask", &[]),
];

/// The pure crates: time, bytes and randomness come in from outside.
const PURE: &[&str] = &["rove-proto", "rove-engine"];

/// Crates that would bring a clock, a socket, randomness or a log into a pure crate.
const IMPURE: &[&str] = &[
    "async-std",
    "crossbeam-channel",
    "getrandom",
    "libc",
    "log",
    "mio",
    "nix",
    "parking_lot",
    "quinn-udp",
    "rand",
    "rustix",
    "smol",
    "socket2",
    "tokio",
    "tracing",
    "tun-rs",
    "zbus",
];

/// The one registry that the lock file may name.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Crates depend on each other as the table says.
pub(crate) fn import_table(tree: &Tree, findings: &mut Vec<Finding>) {
    for (path, text) in tree.texts().filter(|(path, _)| path.ends_with("Cargo.toml")) {
        let manifest = Manifest::read(text);
        let Some(package) = manifest.package else { continue };
        let Some((_, allowed)) = TABLE.iter().find(|(name, _)| *name == package) else {
            findings.push(Finding {
                path: path.to_owned(),
                line: 1,
                what: format!("crate `{package}` is not in the import table"),
                why: "every crate has its place, and no further split without a measured reason",
                cure: "make it a module of an existing crate, or record a decision and add it here",
            });
            continue;
        };
        for dependency in &manifest.dependencies {
            let name = dependency.name;
            let ours = TABLE.iter().any(|(crate_name, _)| *crate_name == name);
            let impure = PURE.contains(&package) && !dependency.tests && IMPURE.contains(&name);
            if (ours && !allowed.contains(&name)) || impure {
                findings.push(Finding {
                    path: path.to_owned(),
                    line: dependency.line,
                    what: format!("`{package}` depends on `{name}`"),
                    why: if ours {
                        "the import table between crates does not allow it"
                    } else {
                        "the core is pure: no clock, socket, randomness or log of its own"
                    },
                    cure: "let the shell do it and tell the core, or move the code",
                });
            }
        }
    }
}

/// The lock file is there and names the public registry only.
pub(crate) fn lock_file(tree: &Tree, findings: &mut Vec<Finding>) {
    let Some(Some(lock)) = tree.files.get("Cargo.lock") else {
        findings.push(Finding {
            path: "Cargo.lock".to_owned(),
            line: 1,
            what: "the lock file is missing".to_owned(),
            why: "everyone must build the same dependencies",
            cure: "commit it",
        });
        return;
    };
    for (number, line) in (1..).zip(lock.lines()) {
        if let Some(source) = line.strip_prefix("source = ")
            && source.trim_matches('"') != REGISTRY
        {
            findings.push(Finding {
                path: "Cargo.lock".to_owned(),
                line: number,
                what: format!("a dependency comes from {source}"),
                why: "only crates.io is there for everyone",
                cure: "depend on a published version",
            });
        }
    }
}

/// What is read of a `Cargo.toml`. Limit: a dependency renamed by `package =` is seen by the new
/// name only.
struct Manifest<'a> {
    package: Option<&'a str>,
    dependencies: Vec<Dependency<'a>>,
}

struct Dependency<'a> {
    name: &'a str,
    line: usize,
    tests: bool,
}

impl<'a> Manifest<'a> {
    fn read(text: &'a str) -> Self {
        let mut manifest = Self { package: None, dependencies: Vec::new() };
        let mut section = "";
        for (number, line) in (1..).zip(text.lines()) {
            if let Some(header) = line.strip_prefix('[') {
                section = header.trim_end_matches([']', ' ']);
                if let Some((table, name)) = section.rsplit_once('.') {
                    manifest.add(table, name, number);
                }
            } else if section == "package" && line.starts_with("name") {
                manifest.package = line.split('"').nth(1);
            } else if let Some(key) = key_of(line) {
                manifest.add(section, key, number);
            }
        }
        manifest
    }

    fn add(&mut self, table: &str, name: &'a str, line: usize) {
        let kind = table.rsplit('.').next().unwrap_or(table);
        if matches!(kind, "dependencies" | "dev-dependencies" | "build-dependencies")
            && table != "workspace.dependencies"
        {
            let tests = kind == "dev-dependencies";
            self.dependencies.push(Dependency { name: name.trim_matches('"'), line, tests });
        }
    }
}

/// The key of a `key = value` or `key.sub = value` line; nothing for the lines of a long array.
fn key_of(line: &str) -> Option<&str> {
    let begins = line.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '"');
    let (key, _) = line.split_once('=').filter(|_| begins)?;
    key.trim().split('.').next()
}
