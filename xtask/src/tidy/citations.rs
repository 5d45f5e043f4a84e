//! Code cites the specification by section, and decisions that exist.
//!
//! A citation is `docs/spec/FILE.md#SECTION` in a comment, where the section is the anchor of a
//! heading, as in a link. Each section is cited beside the code that keeps it, or by a test. So a
//! reader finds the rule of a piece of code, and the code of a rule. A decision is cited by
//! `docs/decisions/NNNN` or `decision NNNN`.

use std::collections::BTreeSet;

use super::links::headings;
use super::tree::{Finding, Tree};

/// The specification.
const SPEC: &str = "docs/spec/";
/// The records of decisions, whose names begin with their numbers.
const DECISIONS: &str = "docs/decisions/";

/// Sections that are cited exist, and all are cited.
pub(crate) fn sections(tree: &Tree, findings: &mut Vec<Finding>) {
    let mut cited = BTreeSet::new();
    // Its own samples would cite what is not there.
    for (path, text) in tree.rust().filter(|(path, _)| !path.starts_with("xtask/")) {
        for (line, comment) in (1..).zip(text.lines()) {
            let Some((_, comment)) = comment.split_once("//") else { continue };
            for (at, _) in comment.match_indices(SPEC) {
                let citation = word(&comment[at..], "/.-_#");
                if section(tree, citation) {
                    cited.insert(citation);
                    continue;
                }
                findings.push(Finding {
                    path: path.to_owned(),
                    line,
                    what: format!("`{citation}` is no section of the specification"),
                    why: "a reader looks for the rule that the code keeps",
                    cure: "write docs/spec/FILE.md#SECTION, with the anchor of a heading",
                });
            }
        }
    }
    let pages = tree.texts().filter(|(path, _)| path.starts_with(SPEC) && path.ends_with(".md"));
    for (path, text) in pages {
        for (line, section) in leaves(text) {
            if !cited.contains(format!("{path}#{section}").as_str()) {
                findings.push(Finding {
                    path: path.to_owned(),
                    line,
                    what: format!("no code cites `{path}#{section}`"),
                    why: "a rule without code or test is a promise that nobody keeps",
                    cure: "cite it in the comment of the code that keeps it",
                });
            }
        }
    }
}

/// Decisions that are cited exist.
pub(crate) fn decisions(tree: &Tree, findings: &mut Vec<Finding>) {
    for (path, text) in tree.texts() {
        for (number, line) in (1..).zip(text.lines()) {
            let cited = [DECISIONS, "decision "].into_iter().flat_map(|before| {
                line.match_indices(before).map(|(at, _)| word(&line[at + before.len()..], ""))
            });
            let is_number = |text: &&str| text.len() == 4 && text.parse::<u16>().is_ok();
            let exists = |number: &str| {
                let page = format!("{DECISIONS}{number}-");
                tree.files.range(page.clone()..).next().is_some_and(|(it, _)| it.starts_with(&page))
            };
            for decision in cited.filter(is_number).filter(|number| !exists(number)) {
                findings.push(Finding {
                    path: path.to_owned(),
                    line: number,
                    what: format!("there is no decision {decision}"),
                    why: "a reader looks for the reason",
                    cure: "cite a page of docs/decisions, or give the reason here",
                });
            }
        }
    }
}

/// The letters, digits and `others` at the start, without a full stop at the end.
fn word<'a>(text: &'a str, others: &str) -> &'a str {
    let end = text.find(|c: char| !c.is_alphanumeric() && !others.contains(c));
    text[..end.unwrap_or(text.len())].trim_end_matches('.')
}

/// Whether a citation names a section that exists.
fn section(tree: &Tree, citation: &str) -> bool {
    let Some((page, section)) = citation.split_once('#') else { return false };
    headings(tree.text(page)).any(|(_, _, heading)| heading == section)
}

/// The sections without a section in them, but for the title: line and anchor.
fn leaves(text: &str) -> Vec<(usize, String)> {
    let headings: Vec<_> = headings(text).collect();
    let is_leaf = |at: usize| headings.get(at + 1).is_none_or(|next| next.1 <= headings[at].1);
    let leaves = headings.iter().enumerate().filter(|(at, it)| it.1 > 1 && is_leaf(*at));
    leaves.map(|(_, (line, _, anchor))| (*line, anchor.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let mut tree = Tree::default();
        let pages = [
            ("docs/spec/wire.md", "# Wire\n\n## 1. Data\n\n### Sealed\n\n## 2. Frames\n"),
            ("docs/decisions/0001-a-core.md", "# Core\n"),
        ];
        for (path, text) in pages.iter().chain(files) {
            tree.files.insert((*path).to_owned(), Some((*text).to_owned()));
        }
        let mut findings = Vec::new();
        sections(&tree, &mut findings);
        decisions(&tree, &mut findings);
        findings.into_iter().map(|it| it.what).collect()
    }

    const ALL: (&str, &str) =
        ("a.rs", "//! Seals (docs/spec/wire.md#sealed).\n// See docs/spec/wire.md#2-frames.\n");

    #[test]
    fn each_section_is_cited_and_each_citation_names_one() {
        assert_eq!(found(&[ALL]), [""; 0]);
        assert_eq!(found(&[]).len(), 2, "neither `sealed` nor `2-frames`");
        for (bad, cited) in [
            ("// docs/spec/wire.md", "docs/spec/wire.md"),
            ("f(); // docs/spec/wire.md#none, section 2", "docs/spec/wire.md#none"),
            ("/// docs/spec/none.md#sealed.", "docs/spec/none.md#sealed"),
        ] {
            let what = format!("`{cited}` is no section of the specification");
            assert_eq!(found(&[ALL, ("b.rs", bad)]), [what]);
        }
        assert_eq!(found(&[ALL, ("b.rs", "f(\"docs/spec/wire.md\")")]), [""; 0], "no comment");
    }

    #[test]
    fn a_decision_that_is_cited_exists() {
        let good = "decision 0001, docs/decisions/0001, docs/decisions/0001-a-core.md, decision 7";
        assert_eq!(found(&[ALL, ("a.md", good)]), [""; 0]);
        for bad in ["(decision 0002)", "// docs/decisions/0002."] {
            assert_eq!(found(&[ALL, ("a.toml", bad)]), ["there is no decision 0002"]);
        }
    }
}
