//! Files that share the methods of one type call each other in one direction only.
//!
//! A type whose `impl` blocks are spread over files is readable only if those files have an order:
//! else each of them can be understood only together with all the others. Limits: a call is a name
//! after `self.` or `Self::` that another file gives the same type, so calls through another
//! variable are not seen.

use std::collections::{BTreeMap, BTreeSet};

use super::lex::Kind;
use super::source::{Source, closing};
use super::{Finding, Tree};

/// Where types may not be spread without an order.
const FOLDER: &str = "crates/proto/src/";

/// Per file the methods that it gives a type, and the methods that it calls of that type.
#[derive(Default)]
struct Part<'a> {
    line: usize,
    gives: BTreeSet<&'a str>,
    calls: BTreeSet<&'a str>,
}

/// Per type and file its part; types are told apart by the first module that they are used in.
type Parts<'a> = BTreeMap<(String, String), BTreeMap<&'a str, Part<'a>>>;

/// Finds each type whose files call each other in a circle.
pub(crate) fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    let sources: Vec<_> = tree.sources(FOLDER).collect();
    let mut parts = Parts::new();
    for (path, source) in &sources {
        let module = path[FOLDER.len()..].split(['/', '.']).next().unwrap_or_default();
        for (name, part) in impls(source) {
            let files = parts.entry((module.to_owned(), name.to_owned())).or_default();
            let all =
                files.entry(path).or_insert_with(|| Part { line: part.line, ..Part::default() });
            all.gives.extend(part.gives);
            all.calls.extend(part.calls);
        }
    }
    for ((_, name), files) in &parts {
        let circle = largest_circle(files);
        let Some(&(path, line)) = circle.first() else { continue };
        let others: Vec<_> = circle.iter().map(|(path, _)| &path[FOLDER.len()..]).collect();
        findings.push(Finding {
            path: path.to_owned(),
            line,
            what: format!("`{name}` is spread over files in a circle: {}", others.join(" ")),
            why: "a file is understood without those that call it",
            cure: "return a value and let the caller go on, or move what both need to a third file",
        });
    }
}

/// The inherent `impl` blocks outside tests: the type, and what they give and call.
fn impls<'a>(source: &Source<'a>) -> Vec<(&'a str, Part<'a>)> {
    let mut found = Vec::new();
    let code: Vec<_> = source.code.iter().map(|(token, _)| *token).collect();
    for at in 0..code.len() {
        let (token, in_test) = source.code[at];
        if !token.is("impl") || in_test {
            continue;
        }
        let Some(open) = (at..code.len()).find(|&at| code[at].is("{") || code[at].is(";")) else {
            continue;
        };
        let head = &code[at + 1..open];
        let is_inherent = !head.iter().any(|token| token.is("for") || token.is("->"));
        let name = head.iter().find(|token| token.kind == Kind::Ident);
        let Some(name) = name.filter(|_| is_inherent && code[open].is("{")) else { continue };
        let body = &code[open..closing(&code, open)];
        let mut part = Part { line: token.line, ..Part::default() };
        for four in body.windows(4) {
            let [first, second, third, fourth] = four else { continue };
            if first.is("fn") && second.kind == Kind::Ident {
                part.gives.insert(second.text);
            }
            let is_called = first.is("self") && second.is(".") && fourth.is("(");
            let is_named = first.is("Self") && second.is("::");
            if (is_called || is_named) && third.kind == Kind::Ident {
                part.calls.insert(third.text);
            }
        }
        found.push((name.text, part));
    }
    found
}

/// The files, with the line of their first block, of the largest set in which each file calls all
/// others, directly or through others.
fn largest_circle<'a>(files: &BTreeMap<&'a str, Part<'a>>) -> Vec<(&'a str, usize)> {
    let calls = |from: &Part<'_>, to: &Part<'_>| {
        from.calls.iter().any(|name| to.gives.contains(name) && !from.gives.contains(name))
    };
    let reached = |start: &'a str| {
        let (mut seen, mut next) = (BTreeSet::new(), vec![start]);
        while let Some(path) = next.pop() {
            let called = files.iter().filter(|(_, to)| calls(&files[path], to));
            next.extend(called.map(|(&to, _)| to).filter(|&to| seen.insert(to)));
        }
        seen
    };
    let reach: BTreeMap<_, _> = files.keys().map(|&path| (path, reached(path))).collect();
    let circle = |path: &'a str| -> Vec<_> {
        let together = reach[path].iter().filter(|&&other| reach[other].contains(path));
        together.map(|&other| (other, files[other].line)).collect()
    };
    files
        .keys()
        .map(|&path| circle(path))
        .filter(|it| it.len() > 1)
        .max_by_key(Vec::len)
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is found in files of one module, each with its text.
    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let mut tree = Tree::default();
        for (name, text) in files {
            tree.files.insert(format!("{FOLDER}peer/{name}.rs"), Some((*text).to_owned()));
        }
        let mut findings = Vec::new();
        check(&tree, &mut findings);
        findings.iter().map(|finding| finding.what.clone()).collect()
    }

    const A: (&str, &str) = ("a", "impl Peer { fn one(&self) { self.two(); } }");
    const B: (&str, &str) = ("b", "impl Peer { fn two(&self) { Self::three(); } }");
    const C: (&str, &str) = ("c", "impl Peer { fn three() { } fn four(&self) { self.one() } }");

    #[test]
    fn a_circle_of_files_is_found_with_all_of_them() {
        let what = "`Peer` is spread over files in a circle: peer/a.rs peer/b.rs peer/c.rs";
        assert_eq!(found(&[A, B, C]), [what]);
    }

    #[test]
    fn an_order_is_no_circle() {
        assert_eq!(found(&[A, B]), [""; 0]);
        let other = ("c", "impl Path { fn four(&self) { self.one() } }");
        assert_eq!(found(&[A, B, other]), [""; 0], "another type");
        let test = ("c", "#[cfg(test)]\nmod tests { impl Peer { fn three() { self.one() } } }");
        assert_eq!(found(&[A, B, test]), [""; 0], "a test");
        let own = ("a", "impl Peer { fn one(&self) { self.two(); } fn two(&self) { self.one() } }");
        assert_eq!(found(&[own]), [""; 0], "one file");
    }
}
