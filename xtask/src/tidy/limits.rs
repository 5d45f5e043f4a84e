//! The largest value that each figure of the structure may have: `xtask/limits.toml`.
//!
//! Decides what is too much. A limit follows its figure down and never up, so what was gained
//! stays. A figure below its limit is a hint on a desk and a finding in the test command, so that
//! whoever makes a figure smaller can land that first.

use super::figures::{Figures, measure};
use super::tree::{Finding, Tree};

/// Where the limits stand.
pub(crate) const FILE: &str = "xtask/limits.toml";

/// A limit of lines is a multiple of this and leaves room for half of it: not every line more or
/// less is news.
const LINES_STEP: usize = 250;

/// Figures that are zero where no limit stands.
const ZERO: &[&str] = &["circle_files", "side_circle_files", "call_circle_files", "outside"];

/// A line `key = number` of the file.
struct Limit<'a> {
    key: &'a str,
    value: usize,
    line: usize,
}

/// What is wrong with figures and limits.
#[derive(Default)]
pub(crate) struct Verdict {
    /// Figures above their limit, and lines that make no sense.
    pub(crate) findings: Vec<Finding>,
    /// Limits above their figure.
    pub(crate) loose: Vec<Finding>,
}

/// Compares the figures of the tree with the limits in it.
pub(crate) fn check(tree: &Tree) -> Verdict {
    let mut verdict = Verdict::default();
    let (limits, wrong) = read(tree.text(FILE));
    let figures = measured(tree, &limits);
    let mut find = |line: usize, what: String, cure: &'static str| {
        let why = "parts that know each other in circles are understood only all together";
        verdict.findings.push(Finding { path: FILE.to_owned(), line, what, why, cure });
    };
    for line in wrong {
        find(line, "no `key = number`".to_owned(), "write one, or a comment");
    }
    for limit in limits.iter().filter(|limit| !figures.contains_key(limit.key)) {
        let what = format!("`{}` names no figure", limit.key);
        find(limit.line, what, "see `cargo xtask tidy --figures`");
    }
    for (key, figure) in &figures {
        let limit = limits.iter().find(|limit| limit.key == key);
        let is_zero = ZERO.iter().any(|kind| key.split('.').next() == Some(kind));
        let Some((value, line)) =
            limit.map(|limit| (limit.value, limit.line)).or_else(|| is_zero.then_some((0, 1)))
        else {
            continue;
        };
        if figure.value > value {
            let name = figure.details.first().map_or("", String::as_str);
            find(
                line,
                format!("`{key}` is {} ({name}), its limit is {value}", figure.value),
                "`cargo xtask tidy --figures` says what it is made of; cut the part, return a \
                 value in place of a call, or move what both need to a third file",
            );
        }
    }
    for limit in &limits {
        let Some(tight) = tight(&figures, limit.key).filter(|tight| *tight < limit.value) else {
            continue;
        };
        verdict.loose.push(Finding {
            path: FILE.to_owned(),
            line: limit.line,
            what: format!("set this line to `{} = {tight}`, it is {}", limit.key, limit.value),
            why: "the figure is better than its limit, and what was gained stays",
            cure: "or run `cargo xtask tidy --tighten` and commit it",
        });
    }
    verdict
}

/// The file with each limit that is above its figure set to it.
pub(crate) fn tightened(tree: &Tree) -> String {
    let (limits, _) = read(tree.text(FILE));
    let figures = measured(tree, &limits);
    let mut text = String::new();
    for (number, line) in (1..).zip(tree.text(FILE).lines()) {
        let limit = limits.iter().find(|limit| limit.line == number);
        let tight = limit.and_then(|limit| Some((limit, tight(&figures, limit.key)?)));
        match tight.filter(|(limit, tight)| *tight < limit.value) {
            Some((limit, tight)) => text += &format!("{} = {tight}", limit.key),
            None => text += line,
        }
        text.push('\n');
    }
    text
}

/// Every figure and what it is made of, as lines.
pub(crate) fn report(tree: &Tree) -> Vec<String> {
    let (limits, _) = read(tree.text(FILE));
    let mut lines = Vec::new();
    for (key, figure) in measured(tree, &limits) {
        lines.push(format!("{key} = {}", figure.value));
        lines.extend(figure.details.iter().map(|detail| format!("    {detail}")));
    }
    lines
}

fn measured(tree: &Tree, limits: &[Limit<'_>]) -> Figures {
    let assigned = limits.iter().filter_map(|limit| limit.key.strip_prefix("assigned."));
    let fields: Vec<&str> = assigned.filter_map(|rest| rest.split('.').next()).collect();
    measure(tree, &fields)
}

/// The smallest limit that this figure keeps.
fn tight(figures: &Figures, key: &str) -> Option<usize> {
    let value = figures.get(key)?.value;
    let is_lines = key.starts_with("code.");
    let with_room = (value + LINES_STEP / 2).next_multiple_of(LINES_STEP);
    Some(if is_lines { with_room } else { value })
}

/// The limits, and the lines that are neither a limit nor a comment.
fn read(text: &str) -> (Vec<Limit<'_>>, Vec<usize>) {
    let (mut limits, mut wrong) = (Vec::new(), Vec::new());
    for (line, text) in (1..).zip(text.lines()) {
        let text = text.split('#').next().unwrap_or(text).trim();
        match text.split_once(" = ").and_then(|(key, value)| Some((key, value.parse().ok()?))) {
            Some((key, value)) => limits.push(Limit { key, value, line }),
            None if text.is_empty() => {}
            None => wrong.push(line),
        }
    }
    (limits, wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is found, and which limits are loose, in a crate with one circle of two files.
    fn judged(limits: &str) -> (Vec<String>, Vec<String>) {
        let tree = tree(limits);
        let verdict = check(&tree);
        let what = |found: Vec<Finding>| found.into_iter().map(|it| it.what).collect();
        (what(verdict.findings), what(verdict.loose))
    }

    fn tree(limits: &str) -> Tree {
        let mut tree = Tree::default();
        for (path, text) in [
            (FILE, limits),
            ("x/Cargo.toml", ""),
            ("x/src/lib.rs", "mod a; mod b;"),
            ("x/src/a.rs", "use super::b::B; pub struct A; impl A { fn f() {} }"),
            ("x/src/b.rs", "use crate::a::A; pub struct B;"),
        ] {
            tree.files.insert(path.to_owned(), Some(text.to_owned()));
        }
        tree
    }

    const KEPT: &str = "# Circles.\ncircle_files.x = 2\nside_circle_files.x = 2\n";

    #[test]
    fn a_figure_keeps_its_limit_and_the_limit_follows_it() {
        let none = Vec::<String>::new();
        assert_eq!(judged(KEPT), (none.clone(), none.clone()));
        let (found, _) = judged("");
        assert_eq!(found.len(), 2, "no limit of a circle is none: {found:?}");
        let above = KEPT.replace("\ncircle_files.x = 2", "\ncircle_files.x = 1");
        let what = "`circle_files.x` is 2 (circle of 2 files), its limit is 1";
        assert_eq!(judged(&above), (vec![what.to_owned()], none.clone()));
        let below = KEPT.to_owned() + "largest.x.methods = 3 # A\ncode.x = 500\n";
        let (found, loose) = judged(&below);
        assert_eq!(found, none);
        let [methods, lines] = [("largest.x.methods = 1", 3), ("code.x = 250", 500)]
            .map(|(line, now)| format!("set this line to `{line}`, it is {now}"));
        assert_eq!(loose, [methods, lines]);
        assert_eq!(
            tightened(&tree(&below)),
            format!("{KEPT}largest.x.methods = 1\ncode.x = 250\n")
        );
    }

    #[test]
    fn lines_that_mean_nothing_are_found() {
        let text = KEPT.to_owned() + "circle_files = 1\nlargest.x.methods: 2\n";
        assert_eq!(judged(&text).0, ["no `key = number`", "`circle_files` names no figure"]);
    }
}
