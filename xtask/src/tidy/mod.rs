//! The house rules that a program can check: the import table, sizes, names, bans, links, and the
//! limits of the structure.
//!
//! Each rule is a function from the tree of files to findings, so that each is tested on a tree of
//! a few lines. Every finding names file, line, what is wrong, why it matters and what to do. What
//! the compiler, clippy and rustfmt check is left to them.

mod bans;
mod citations;
mod crates;
mod figures;
mod layers;
mod limits;
mod links;
mod modules;
mod sizes;
mod source;
#[cfg(test)]
mod tests;
mod text;
mod tokens;
mod tree;

use std::fs;
use std::path::Path;

use crate::report;
use tree::{Finding, Tree};

/// A rule adds what it finds.
type Rule = fn(&Tree, &mut Vec<Finding>);

const RULES: &[Rule] = &[
    crates::import_table,
    crates::lock_file,
    layers::proto_modules,
    layers::lab_knows_the_protocol_in_its_world_only,
    bans::names,
    bans::the_core_is_told,
    bans::unsafe_code,
    bans::stubs,
    source_is_read,
    sizes::check,
    text::module_docs,
    text::spaces,
    text::paths_of_a_machine,
    links::markdown,
    citations::sections,
    citations::decisions,
];

/// Checks the files of the repository at `root`: those git knows and those it would add.
/// `is_final`: whether a limit above its figure is a finding, not a hint.
///
/// # Errors
/// When a rule is broken, after each finding is printed, or when the files cannot be read.
pub(crate) fn run(root: &Path, is_final: bool) -> Result<(), String> {
    let tree = Tree::load(root)?;
    let mut findings = check(&tree);
    let mut hints = sizes::hints(&tree);
    let limits::Verdict { findings: above, loose } = limits::check(&tree);
    findings.extend(above);
    if is_final { &mut findings } else { &mut hints }.extend(loose);
    for hint in &hints {
        report::line(format_args!("hint: {hint}"));
    }
    for finding in &findings {
        report::line(finding);
    }
    match findings.len() {
        0 => {
            report::line(format_args!("{} files, {} rules: tidy", tree.files.len(), RULES.len()));
            Ok(())
        }
        count => Err(format!("{count} findings")),
    }
}

/// Prints each figure of the structure and what it is made of.
///
/// # Errors
/// When the files cannot be read.
pub(crate) fn figures(root: &Path) -> Result<(), String> {
    limits::report(&Tree::load(root)?).iter().for_each(report::line);
    Ok(())
}

/// Sets each limit of the structure that is above its figure to it.
///
/// # Errors
/// When the files cannot be read or written.
pub(crate) fn tighten(root: &Path) -> Result<(), String> {
    let text = limits::tightened(&Tree::load(root)?);
    fs::write(root.join(limits::FILE), text).map_err(|error| format!("{}: {error}", limits::FILE))
}

/// Every finding, in order.
fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for rule in RULES {
        rule(tree, &mut findings);
    }
    findings.sort();
    findings.dedup();
    findings
}

/// Every Rust file can be read.
fn source_is_read(tree: &Tree, findings: &mut Vec<Finding>) {
    for (path, source) in tree.sources("") {
        if let Some((line, error)) = &source.error {
            findings.push(Finding {
                path: path.to_owned(),
                line: *line,
                what: error.clone(),
                why: "no rule can look into a file that does not compile",
                cure: "see what `cargo check` says",
            });
        }
    }
}
