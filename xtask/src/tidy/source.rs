//! One Rust file as the rules see it: tokens, which of them are tests, the paths it names and its
//! functions.
//!
//! Decides what a path resolves to within its crate; refuses to know which paths are allowed.
//! Limits: macros are not expanded, so a path made by one is not seen.

use std::collections::BTreeMap;

use super::lex::{Kind, Token, tokens};

/// A Rust file, read once.
pub(crate) struct Source<'a> {
    /// Its tokens without comments, and whether each is test code.
    pub(crate) code: Vec<(Token<'a>, bool)>,
    /// Its comments.
    pub(crate) comments: Vec<Token<'a>>,
}

/// A path such as `crate::wire::Frame`, as far as the file itself tells.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Named {
    /// The segments: `crate` first for paths within the crate, otherwise another crate or a name
    /// that only the compiler can resolve.
    pub(crate) segments: Vec<String>,
    /// Where it stands.
    pub(crate) line: usize,
    /// Whether only tests see it.
    pub(crate) in_test: bool,
}

/// A function with a body.
pub(crate) struct Function<'a> {
    /// Its name.
    pub(crate) name: &'a str,
    /// Where it begins.
    pub(crate) line: usize,
    /// Lines of the body that hold code: comments are free.
    pub(crate) lines: usize,
    /// Whether it is test code.
    pub(crate) in_test: bool,
}

impl<'a> Source<'a> {
    /// Reads a file whose path within the workspace is `path`.
    pub(crate) fn new(path: &str, text: &'a str) -> Self {
        let (comments, code): (Vec<_>, Vec<_>) =
            tokens(text).into_iter().partition(|token| token.kind == Kind::Comment);
        let tests = test_spans(&code);
        let whole = is_test_file(path);
        let in_test = |at: usize| whole || tests.iter().any(|span| span.contains(&at));
        let code = code.iter().enumerate().map(|(at, token)| (*token, in_test(at))).collect();
        Self { code, comments }
    }

    /// The token at `at`, if it is `text`.
    pub(crate) fn is(&self, at: usize, text: &str) -> bool {
        self.code.get(at).is_some_and(|(token, _)| token.is(text))
    }

    /// The macros it calls, by name.
    pub(crate) fn macros(&self) -> impl Iterator<Item = (&Token<'a>, bool)> {
        self.code.iter().enumerate().filter_map(|(at, (token, in_test))| {
            let called = token.kind == Kind::Ident && self.is(at + 1, "!") && !self.is(at + 2, "=");
            called.then_some((token, *in_test))
        })
    }

    /// The modules it declares, by name and line.
    pub(crate) fn modules(&self) -> impl Iterator<Item = &Token<'a>> {
        self.code.windows(2).filter_map(|pair| match pair {
            [(keyword, _), (name, _)] if keyword.is("mod") && name.kind == Kind::Ident => {
                Some(name)
            }
            _ => None,
        })
    }

    /// Its functions, in order.
    pub(crate) fn functions(&self) -> Vec<Function<'a>> {
        let mut functions = Vec::new();
        for (at, pair) in self.code.windows(2).enumerate() {
            let [(keyword, _), (name, in_test)] = pair else { continue };
            if keyword.is("fn")
                && name.kind == Kind::Ident
                && let Some(lines) = self.body_lines(at + 2)
            {
                let (name, line) = (name.text, keyword.line);
                functions.push(Function { name, line, lines, in_test: *in_test });
            }
        }
        functions
    }

    /// Lines with code between the braces of the function whose name ends before `at`.
    fn body_lines(&self, at: usize) -> Option<usize> {
        let mut depth = 0_usize;
        let open = (at..self.code.len()).find(|&at| {
            let token = self.code[at].0;
            match token.text {
                "(" | "[" => depth += 1,
                ")" | "]" => depth = depth.saturating_sub(1),
                _ => {}
            }
            depth == 0 && (token.is("{") || token.is(";"))
        })?;
        if !self.is(open, "{") {
            return None;
        }
        let code: Vec<Token<'_>> = self.code.iter().map(|(token, _)| *token).collect();
        let close = closing(&code, open);
        let mut lines: Vec<usize> = code[open + 1..close].iter().map(|token| token.line).collect();
        lines.dedup();
        Some(lines.len())
    }

    /// Every path it names, resolved as far as its own `use` lines allow.
    pub(crate) fn paths(&self, module: &[String]) -> Vec<Named> {
        let mut reader = PathReader { source: self, found: Vec::new(), names: BTreeMap::new() };
        reader.read();
        let PathReader { found, names, .. } = reader;
        let inline = self.inline_modules();
        let resolve = |(at, mut named): (usize, Named)| {
            if let Some(full) = named.segments.first().and_then(|first| names.get(first)) {
                named.segments.splice(0..1, full.iter().cloned());
            }
            let within = inline.iter().filter(|(span, _)| span.contains(&at)).map(|(_, name)| name);
            let here: Vec<String> = module.iter().chain(within).cloned().collect();
            named.segments = absolute(&here, named.segments);
            named
        };
        found.into_iter().map(resolve).collect()
    }

    /// The spans of `mod name { .. }`, outermost first.
    fn inline_modules(&self) -> Vec<(std::ops::Range<usize>, String)> {
        let code: Vec<Token<'_>> = self.code.iter().map(|(token, _)| *token).collect();
        let mut spans = Vec::new();
        for (at, three) in code.windows(3).enumerate() {
            if let [keyword, name, brace] = three
                && keyword.is("mod")
                && brace.is("{")
            {
                spans.push((at..closing(&code, at + 2), name.text.to_owned()));
            }
        }
        spans
    }
}

/// Whether all of a file is test code: what cargo builds only for tests, and `tests.rs` or
/// `.._tests.rs` beside a module.
pub(crate) fn is_test_file(path: &str) -> bool {
    path.contains("/tests/") || path.ends_with("/tests.rs") || path.ends_with("_tests.rs")
}

/// `crate`, `self` and `super` at the front made one form: `crate` and the rest.
fn absolute(here: &[String], segments: Vec<String>) -> Vec<String> {
    let ups = segments.iter().take_while(|segment| *segment == "super").count();
    let relative = segments.first().is_some_and(|first| first == "self") || ups > 0;
    if !relative {
        return segments;
    }
    let skip = if ups > 0 { ups } else { 1 };
    let base = &here[..here.len().saturating_sub(ups)];
    let root = std::iter::once("crate".to_owned());
    root.chain(base.iter().cloned()).chain(segments.into_iter().skip(skip)).collect()
}

/// The index of what closes the brace or bracket at `open`, or the last index.
pub(super) fn closing(code: &[Token<'_>], open: usize) -> usize {
    let (start, end) = match code[open].text {
        "{" => ("{", "}"),
        "[" => ("[", "]"),
        _ => ("(", ")"),
    };
    let mut depth = 0_usize;
    for (at, token) in code.iter().enumerate().skip(open) {
        if token.is(start) {
            depth += 1;
        } else if token.is(end) {
            depth -= 1;
            if depth == 0 {
                return at;
            }
        }
    }
    code.len().saturating_sub(1).max(open + 1).min(code.len())
}

/// The spans of items under `#[cfg(test)]`. What is there under another condition as well is no
/// test.
fn test_spans(code: &[Token<'_>]) -> Vec<std::ops::RangeInclusive<usize>> {
    let mut spans = Vec::new();
    for start in 0..code.len() {
        if !(code[start].is("#") && code.get(start + 1).is_some_and(|token| token.is("["))) {
            continue;
        }
        let end = closing(code, start + 1).min(code.len() - 1);
        let attribute = &code[start + 1..=end];
        let for_tests = ["[", "cfg", "(", "test", ")", "]"];
        if attribute.len() == for_tests.len()
            && attribute.iter().zip(for_tests).all(|(token, text)| token.is(text))
        {
            spans.push(start..=item_end(code, end + 1));
        }
    }
    spans
}

/// The end of the item that begins at `at`: its closing brace, or the semicolon before any brace.
fn item_end(code: &[Token<'_>], at: usize) -> usize {
    let last = code.len() - 1;
    for (index, token) in code.iter().enumerate().skip(at) {
        if token.is("{") {
            return closing(code, index).min(last);
        }
        if token.is(";") {
            return index;
        }
    }
    last
}

/// Collects paths, and the names that `use` gives to them.
struct PathReader<'s, 'a> {
    source: &'s Source<'a>,
    found: Vec<(usize, Named)>,
    names: BTreeMap<String, Vec<String>>,
}

impl PathReader<'_, '_> {
    fn read(&mut self) {
        let mut at = 0;
        while at < self.source.code.len() {
            at = if self.source.is(at, "use") {
                self.use_tree(at + 1, &[])
            } else if self.begins_path(at) {
                self.plain(at)
            } else {
                at + 1
            };
        }
    }

    fn begins_path(&self, at: usize) -> bool {
        let ident = self.source.code[at].0.kind == Kind::Ident;
        let inside = at > 0 && (self.source.is(at - 1, "::") || self.source.is(at - 1, "."));
        ident && !inside && self.source.is(at + 1, "::")
    }

    /// `a::b::c` in code; returns the index after it.
    fn plain(&mut self, start: usize) -> usize {
        let mut segments = vec![self.source.code[start].0.text.to_owned()];
        let mut at = start + 1;
        while self.source.is(at, "::")
            && let Some((token, _)) = self.source.code.get(at + 1)
            && token.kind == Kind::Ident
        {
            segments.push(token.text.to_owned());
            at += 2;
        }
        self.push(start, segments);
        at
    }

    /// The tree of a `use` from `at` on, below `prefix`; returns the index after it.
    fn use_tree(&mut self, start: usize, prefix: &[String]) -> usize {
        let mut segments = prefix.to_vec();
        let mut at = start;
        let mut alias = None;
        while let Some((token, _)) = self.source.code.get(at) {
            match token.text {
                "::" => {}
                "{" => return self.use_group(at + 1, &segments),
                "as" => {
                    alias = self.source.code.get(at + 1).map(|(name, _)| name.text.to_owned());
                    at += 1;
                }
                "*" => segments.push("*".to_owned()),
                text if token.kind == Kind::Ident => segments.push(text.to_owned()),
                _ => break,
            }
            at += 1;
        }
        if segments.last().is_some_and(|last| last == "self") {
            segments.pop();
        }
        let name = alias.or_else(|| segments.last().cloned()).filter(|name| name != "*");
        if let Some(name) = name
            && segments.len() > 1
        {
            self.names.insert(name, segments.clone());
        }
        self.push(start, segments);
        at
    }

    fn use_group(&mut self, start: usize, prefix: &[String]) -> usize {
        let mut at = start;
        while at < self.source.code.len() && !self.source.is(at, "}") {
            let next = if self.source.is(at, ",") { at + 1 } else { self.use_tree(at, prefix) };
            // Source that does not compile must not hold the reader up.
            at = next.max(at + 1);
        }
        at + 1
    }

    fn push(&mut self, at: usize, segments: Vec<String>) {
        if let Some((token, in_test)) = self.source.code.get(at) {
            self.found.push((at, Named { segments, line: token.line, in_test: *in_test }));
        }
    }
}
