//! Rust source as tokens, each with its line: enough to tell code from comments and strings.
//!
//! Decides where tokens begin and end; refuses to know what they mean. No macro is expanded and a
//! file that does not compile gives some tokens all the same: the compiler judges that elsewhere.

/// One token of a source file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Token<'a> {
    /// What kind of thing it is.
    pub(crate) kind: Kind,
    /// Its text, quotes included; a raw identifier without its `r#`.
    pub(crate) text: &'a str,
    /// The line it begins on, from 1.
    pub(crate) line: usize,
}

/// The kinds of token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// A name or a keyword.
    Ident,
    /// One character of punctuation, or `::`.
    Punct,
    /// A number, string, byte string or character.
    Literal,
    /// `'a`.
    Lifetime,
    /// Any comment, its markers included.
    Comment,
}

impl Token<'_> {
    /// Whether this is the name, keyword or punctuation `text`.
    pub(crate) fn is(&self, text: &str) -> bool {
        matches!(self.kind, Kind::Ident | Kind::Punct) && self.text == text
    }
}

/// All tokens of `text`, comments included.
pub(crate) fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut lexer = Lexer { text, at: 0, line: 1 };
    let mut tokens = Vec::new();
    while let Some(token) = lexer.next_token() {
        tokens.push(token);
    }
    tokens
}

struct Lexer<'a> {
    text: &'a str,
    at: usize,
    line: usize,
}

impl<'a> Lexer<'a> {
    fn next_token(&mut self) -> Option<Token<'a>> {
        let space = self.rest().len() - self.rest().trim_start().len();
        self.advance(space);
        let (start, line) = (self.at, self.line);
        let first = self.rest().chars().next()?;
        let kind = self.kind_and_length(first);
        let (kind, length) = kind;
        self.advance(length);
        let text = &self.text[start..self.at];
        let text = match kind {
            Kind::Ident => text.strip_prefix("r#").unwrap_or(text),
            Kind::Punct | Kind::Literal | Kind::Lifetime | Kind::Comment => text,
        };
        Some(Token { kind, text, line })
    }

    fn kind_and_length(&self, first: char) -> (Kind, usize) {
        let rest = self.rest();
        if rest.starts_with("//") {
            return (Kind::Comment, rest.find('\n').unwrap_or(rest.len()));
        }
        if rest.starts_with("/*") {
            return (Kind::Comment, block_comment(rest));
        }
        if let Some(length) = string(rest) {
            return (Kind::Literal, length);
        }
        if first == '\'' {
            return quote(rest);
        }
        if first.is_alphabetic() || first == '_' {
            let raw = if rest.starts_with("r#") { 2 } else { 0 };
            return (Kind::Ident, raw + word(&rest[raw..]));
        }
        if first.is_ascii_digit() {
            return (Kind::Literal, number(rest));
        }
        let double = rest.starts_with("::");
        (Kind::Punct, if double { 2 } else { first.len_utf8() })
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn advance(&mut self, length: usize) {
        self.line += self.rest()[..length].matches('\n').count();
        self.at += length;
    }
}

/// The length of the letters, digits and underscores at the start.
fn word(rest: &str) -> usize {
    rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len())
}

/// Comments nest. One that never ends reaches to the end of the file.
fn block_comment(rest: &str) -> usize {
    let bytes = rest.as_bytes();
    let (mut depth, mut at) = (0_usize, 0);
    while at < bytes.len() {
        match &bytes[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    rest.len()
}

/// The length of the string literal at the start, of any kind, if there is one.
fn string(rest: &str) -> Option<usize> {
    let prefix = word(rest);
    let (raw, after) = match &rest[..prefix] {
        "" | "b" | "c" => (false, &rest[prefix..]),
        "r" | "br" | "cr" => (true, &rest[prefix..]),
        _ => return None,
    };
    if !raw {
        return after.starts_with('"').then(|| prefix + quoted(after, b'"'));
    }
    let hashes = after.len() - after.trim_start_matches('#').len();
    let body = after[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let length = body.find(&end).map_or(body.len(), |at| at + end.len());
    Some(prefix + hashes + 1 + length)
}

/// The length of what stands between two `quote`s, both included, backslashes respected.
fn quoted(rest: &str, quote: u8) -> usize {
    let bytes = rest.as_bytes();
    let mut at = 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            byte if byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// A character literal or a lifetime: both begin with a quote.
fn quote(rest: &str) -> (Kind, usize) {
    let mut chars = rest.chars().skip(1);
    match (chars.next(), chars.next()) {
        (Some('\\'), _) => (Kind::Literal, quoted(rest, b'\'')),
        (Some(inner), Some('\'')) => (Kind::Literal, 2 + inner.len_utf8()),
        _ => (Kind::Lifetime, 1 + word(&rest[1..])),
    }
}

/// A number; the point belongs to it only before a digit, so that `0..5` is three tokens.
fn number(rest: &str) -> usize {
    let whole = word(rest);
    let fraction =
        rest[whole..].strip_prefix('.').filter(|f| f.starts_with(|c: char| c.is_ascii_digit()));
    fraction.map_or(whole, |fraction| whole + 1 + word(fraction))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(source: &str) -> Vec<&str> {
        tokens(source).iter().map(|token| token.text).collect()
    }

    #[test]
    fn code_comments_and_strings_are_told_apart() {
        let source = "let x = \"a // b\"; // c \"d\"\n/* e /* f */ g */ y";
        assert_eq!(
            texts(source),
            ["let", "x", "=", "\"a // b\"", ";", "// c \"d\"", "/* e /* f */ g */", "y"]
        );
    }

    #[test]
    fn raw_strings_characters_and_lifetimes() {
        assert_eq!(
            texts(r####"r#"a"b"# b"\"" 'x' '\'' 'a r#fn br"z" '"' c"d""####),
            [r##"r#"a"b"#"##, r#"b"\"""#, "'x'", r"'\''", "'a", "fn", "br\"z\"", "'\"'", "c\"d\""]
        );
    }

    #[test]
    fn numbers_ranges_and_paths() {
        assert_eq!(
            texts("1.5 0..n a::b 1_000u64"),
            ["1.5", "0", ".", ".", "n", "a", "::", "b", "1_000u64"]
        );
    }

    #[test]
    fn lines_count_from_one_and_run_through_strings() {
        let lines: Vec<usize> = tokens("a\n\"b\n\"\nc").iter().map(|token| token.line).collect();
        assert_eq!(lines, [1, 2, 4]);
    }

    #[test]
    fn unfinished_source_ends_all_the_same() {
        for source in ["\"", "'", "/*", "r#\"", "'\\", "r#", "\"\\", "b\"é\\"] {
            tokens(source);
        }
    }
}
