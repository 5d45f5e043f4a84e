//! The tokens of a Rust file, each with its place and whether it is test code.
//!
//! Decides what is test code; refuses to know what any other token means. The parser crate drops
//! comments, and a doc comment becomes an attribute, which is dropped here.

use proc_macro2::{Delimiter, Spacing, Span, TokenStream, TokenTree};

/// Line from 1 and column from 0.
pub(crate) type Place = (usize, usize);

/// One token: a name, a bracket, `::` or another character of punctuation, or a literal.
#[derive(Debug)]
pub(crate) struct Token {
    /// Its text, a raw identifier without its `r#`; nothing for a literal and a lifetime.
    pub(crate) text: String,
    /// Where it begins.
    pub(crate) place: Place,
    /// Its last line.
    pub(crate) last_line: usize,
    /// Whether it is test code.
    pub(crate) in_test: bool,
    /// For an opening bracket the index of its closing one.
    close: usize,
}

impl Token {
    /// Whether this is the name or punctuation `text`.
    pub(crate) fn is(&self, text: &str) -> bool {
        self.text == text
    }

    /// Whether this is a name or a keyword.
    pub(crate) fn is_name(&self) -> bool {
        self.text.starts_with(|c: char| c.is_alphabetic() || c == '_')
    }
}

/// Where a span begins.
pub(crate) fn place(span: Span) -> Place {
    let start = span.start();
    (start.line, start.column)
}

/// All tokens of a file with this text. `is_test`: whether all of it is test code.
pub(crate) fn tokens(text: &str, stream: TokenStream, is_test: bool) -> Vec<Token> {
    let mut reader = Reader { lines: text.lines().collect(), found: Vec::new(), is_test };
    reader.read(stream);
    let mut found = reader.found;
    mark_tests(&mut found);
    found
}

struct Reader<'a> {
    lines: Vec<&'a str>,
    found: Vec<Token>,
    is_test: bool,
}

impl Reader<'_> {
    fn read(&mut self, stream: TokenStream) {
        let mut rest = stream.into_iter().peekable();
        while let Some(tree) = rest.next() {
            match tree {
                TokenTree::Group(group) => {
                    let (open, close) = match group.delimiter() {
                        Delimiter::Parenthesis => ("(", ")"),
                        Delimiter::Brace => ("{", "}"),
                        Delimiter::Bracket => ("[", "]"),
                        Delimiter::None => ("", ""),
                    };
                    let at = self.found.len();
                    self.push(open.to_owned(), group.span_open());
                    self.read(group.stream());
                    self.found[at].close = self.found.len();
                    self.push(close.to_owned(), group.span_close());
                }
                TokenTree::Ident(ident) => {
                    let text = ident.to_string();
                    let text = text.strip_prefix("r#").unwrap_or(&text).to_owned();
                    self.push(text, ident.span());
                }
                TokenTree::Punct(punct) if punct.as_char() == '#' && self.is_doc(punct.span()) => {
                    while !matches!(rest.next(), Some(TokenTree::Group(_)) | None) {}
                }
                TokenTree::Punct(punct) if punct.as_char() == '\'' => {
                    rest.next();
                    self.push(String::new(), punct.span());
                }
                TokenTree::Punct(punct) => {
                    let is_double = punct.as_char() == ':' && punct.spacing() == Spacing::Joint;
                    let second = rest.next_if(|next| {
                        is_double && matches!(next, TokenTree::Punct(p) if p.as_char() == ':')
                    });
                    let text = if second.is_some() { "::".to_owned() } else { punct.to_string() };
                    self.push(text, punct.span());
                }
                TokenTree::Literal(literal) => self.push(String::new(), literal.span()),
            }
        }
    }

    fn push(&mut self, text: String, span: Span) {
        let (place, last_line) = (place(span), span.end().line);
        let close = self.found.len();
        self.found.push(Token { text, place, last_line, in_test: self.is_test, close });
    }

    /// Whether a comment stands there, so that the attribute is a doc comment.
    fn is_doc(&self, span: Span) -> bool {
        let (line, column) = place(span);
        self.lines.get(line - 1).is_some_and(|text| text.chars().nth(column) == Some('/'))
    }
}

/// Marks the items, statements and fields under `#[cfg(test)]`. What is there under another
/// condition as well is no test.
fn mark_tests(tokens: &mut [Token]) {
    const ATTRIBUTE: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];
    for at in 0..tokens.len().saturating_sub(ATTRIBUTE.len()) {
        if ATTRIBUTE.iter().zip(&tokens[at..]).all(|(text, token)| token.is(text)) {
            let end = end_of_item(tokens, at + ATTRIBUTE.len());
            tokens[at..=end].iter_mut().for_each(|token| token.in_test = true);
        }
    }
}

/// The last token of the item, statement or field that begins at `at`.
fn end_of_item(tokens: &[Token], mut at: usize) -> usize {
    let last = tokens.len() - 1;
    let (mut is_item, mut to_semicolon) = (false, false);
    while at < last && !tokens[at].is(";") && (is_item || !tokens[at].is(",")) {
        match tokens[at].text.as_str() {
            ")" | "]" | "}" => return at - 1,
            "{" if !to_semicolon => return tokens[at].close,
            "use" | "static" | "type" | "let" if !is_item => (is_item, to_semicolon) = (true, true),
            "const" if !is_item && !begins_function(&tokens[at + 1]) => {
                (is_item, to_semicolon) = (true, true);
            }
            "struct" | "enum" | "union" | "mod" | "trait" | "fn" | "impl" => is_item = true,
            _ => {}
        }
        at = tokens[at].close + 1;
    }
    at.min(last)
}

/// Whether this token after `const` makes it a function.
fn begins_function(token: &Token) -> bool {
    ["fn", "unsafe", "async", "extern"].iter().any(|word| token.is(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<Token> {
        tokens(text, text.parse().expect("the text has tokens"), false)
    }

    #[test]
    fn comments_and_docs_are_dropped_and_strings_are_kept() {
        let text = "/// doc\nlet x = \"a // b\"; // c\n/** d */ #[doc(hidden)] r#fn::y 'a";
        let texts: Vec<_> = read(text).into_iter().map(|token| token.text).collect();
        let expected = ["let", "x", "=", "", ";", "#", "[", "doc", "(", "hidden", ")", "]"];
        assert_eq!(texts[..12], expected);
        assert_eq!(texts[12..], ["fn", "::", "y", ""]);
    }

    #[test]
    fn what_is_built_for_tests_only_is_marked() {
        for (text, kept) in [
            ("#[cfg(test)] mod tests { fn f() {} } fn g() {}", "fng(){}"),
            ("#[cfg(test)] use a::{b}; fn g() {}", "fng(){}"),
            ("struct S { #[cfg(test)] a: [u8; 2], b: u8 }", "structS{b:u8}"),
            ("#[cfg(test)] const A: B = B { c: 1 }; x", "x"),
            ("#[cfg(test)] const fn a() { } x", "x"),
            ("#[cfg(all(test, unix))] mod a;", "#[cfg(all(test,unix))]moda;"),
        ] {
            let tokens = read(text);
            let code = tokens.iter().filter(|token| !token.in_test);
            assert_eq!(code.map(|token| token.text.as_str()).collect::<String>(), kept);
        }
    }
}
