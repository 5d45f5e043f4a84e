//! One Rust file as the rules see it: its tokens, its functions, and what each of its modules
//! defines, imports, names and calls.
//!
//! Decides what stands in the file; refuses to know what a path leads to (`modules` does) and what
//! is allowed. Limits: macros are not expanded. What a macro is given is read for paths, and for
//! calls if it reads as a list of expressions. The type of a variable is known if it is written.

#![expect(clippy::wildcard_enum_match_arm, reason = "the parser's enums list all of the language")]

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{LexError, Span, TokenStream};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use super::tokens::{Place, Token, place, tokens};

/// A Rust file, read once.
#[derive(Default)]
pub(crate) struct Source {
    /// Its tokens, tests included.
    pub(crate) tokens: Vec<Token>,
    /// The lines with a comment that gives the reason of an `unsafe`.
    pub(crate) reasons: Vec<usize>,
    /// The file itself and then its inline modules, each after the one around it. Without tests.
    pub(crate) scopes: Vec<Scope>,
    /// Its functions with a body, without tests.
    pub(crate) functions: Vec<Function>,
    /// Why and where it could not be read. Then the rest is empty.
    pub(crate) error: Option<(usize, String)>,
}

/// A module as far as one file shows it.
#[derive(Default)]
pub(crate) struct Scope {
    /// The inline modules around it and itself.
    pub(crate) path: Vec<String>,
    /// The scope around it.
    pub(crate) parent: Option<usize>,
    /// The modules that it declares as files.
    pub(crate) declared: Vec<String>,
    /// What it defines.
    pub(crate) items: Vec<Item>,
    /// Its `impl` blocks.
    pub(crate) impls: Vec<Impl>,
    /// The leaves of its `use` trees.
    pub(crate) uses: Vec<Use>,
    /// The paths of two and more names in its code, each with its line.
    pub(crate) paths: Vec<(Vec<String>, usize)>,
    /// Every name in its code.
    pub(crate) words: BTreeSet<String>,
    /// The calls of methods on what has a known type.
    pub(crate) calls: Vec<Call>,
    span: Option<(Place, Place)>,
}

/// Something that a module defines.
pub(crate) struct Item {
    pub(crate) name: String,
    pub(crate) is_type: bool,
    /// The fields of a struct or union: name, written type if it is a path, and whether they can
    /// be seen outside.
    pub(crate) fields: Vec<(String, Option<Vec<String>>, bool)>,
}

/// An `impl` block.
pub(crate) struct Impl {
    pub(crate) target: Vec<String>,
    pub(crate) is_of_trait: bool,
    pub(crate) line: usize,
    pub(crate) methods: Vec<String>,
}

/// A leaf of a `use` tree.
pub(crate) struct Use {
    pub(crate) path: Vec<String>,
    /// The name that it binds, `*` for all.
    pub(crate) bound: String,
    pub(crate) is_public: bool,
    pub(crate) line: usize,
}

/// A call of a method.
pub(crate) struct Call {
    pub(crate) on: Receiver,
    pub(crate) method: String,
}

/// What a method is called on.
pub(crate) enum Receiver {
    /// A value of the type at this path.
    Type(Vec<String>),
    /// A field of another.
    Field(Box<Self>, String),
}

/// A function with a body.
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) line: usize,
    /// Lines of the body that hold code: comments are free.
    pub(crate) lines: usize,
}

/// A path such as `crate::wire::Frame`, as far as the file itself tells.
#[derive(Debug)]
pub(crate) struct Named {
    /// The segments: `crate` first for paths within the crate, otherwise another crate or a name
    /// that only the compiler can resolve.
    pub(crate) segments: Vec<String>,
    pub(crate) line: usize,
}

impl Source {
    /// Reads a file whose path within the workspace is `path`.
    pub(crate) fn new(path: &str, text: &str) -> Self {
        let stream: TokenStream = match text.parse() {
            Ok(stream) => stream,
            Err(error) => return Self::unread(LexError::span(&error), &error),
        };
        let tokens = tokens(text, stream.clone(), is_test_file(path));
        let file: syn::File = match syn::parse2(stream) {
            Ok(file) => file,
            Err(error) => return Self::unread(error.span(), &error),
        };
        let mut reader = Reader::new(&tokens);
        reader.visit_file(&file);
        let Reader { mut scopes, functions, .. } = reader;
        add_words(&tokens, &mut scopes);
        let is_reason =
            |line: &str| line.split_once("//").is_some_and(|(_, c)| c.contains("SAFETY"));
        let reasons = (1..).zip(text.lines()).filter(|(_, line)| is_reason(line));
        let reasons = reasons.map(|(number, _)| number).collect();
        Self { tokens, reasons, scopes, functions, error: None }
    }

    fn unread(span: Span, error: &dyn std::fmt::Display) -> Self {
        Self { error: Some((place(span).0, error.to_string())), ..Self::default() }
    }

    /// The token at `at`, if it is `text`.
    pub(crate) fn is(&self, at: usize, text: &str) -> bool {
        self.tokens.get(at).is_some_and(|token| token.is(text))
    }

    /// The macros it calls, by name.
    pub(crate) fn macros(&self) -> impl Iterator<Item = &Token> {
        self.tokens.iter().enumerate().filter_map(|(at, token)| {
            let is_called = token.is_name() && self.is(at + 1, "!") && !self.is(at + 2, "=");
            is_called.then_some(token)
        })
    }

    /// The modules it declares, by name, those of tests included.
    pub(crate) fn modules(&self) -> impl Iterator<Item = &Token> {
        let pairs = self.tokens.windows(2);
        pairs.filter_map(|pair| (pair[0].is("mod") && pair[1].is_name()).then_some(&pair[1]))
    }

    /// Lines with code, without tests.
    pub(crate) fn code_lines(&self, text: &str) -> usize {
        let texts: Vec<&str> = text.lines().collect();
        let mut lines = BTreeSet::new();
        for token in self.tokens.iter().filter(|token| !token.in_test) {
            let of_token = token.place.0..=token.last_line;
            lines.extend(of_token.filter(|line| !texts[line - 1].trim().is_empty()));
        }
        lines.len()
    }

    /// Every path it names outside tests, resolved as far as its own `use` lines allow. `module`
    /// is where the file stands in its crate.
    pub(crate) fn paths(&self, module: &[String]) -> Vec<Named> {
        let mut found = Vec::new();
        for scope in &self.scopes {
            let here: Vec<String> = module.iter().chain(&scope.path).cloned().collect();
            let is_path = |used: &&Use| used.path.len() > 1;
            let bound = scope.uses.iter().filter(is_path).map(|used| (&used.bound, &used.path));
            let names: BTreeMap<_, _> = bound.collect();
            let uses = scope.uses.iter().map(|used| (&used.path, used.line));
            let in_code = scope.paths.iter().map(|(path, line)| (path, *line));
            for (path, line) in uses.chain(in_code) {
                let mut segments = path.clone();
                if let Some(full) = path.first().and_then(|first| names.get(first)) {
                    segments.splice(0..1, full.iter().cloned());
                }
                found.push(Named { segments: absolute(&here, segments), line });
            }
        }
        found
    }
}

/// Whether all of a file is test code: what cargo builds only for tests, and `tests.rs` or
/// `.._tests.rs` beside a module.
pub(crate) fn is_test_file(path: &str) -> bool {
    let is_in = |folder: &str| path.split('/').rev().skip(1).any(|part| part == folder);
    let name = path.rsplit('/').next().unwrap_or(path);
    ["tests", "benches", "examples"].into_iter().any(is_in)
        || name == "tests.rs"
        || name.ends_with("_tests.rs")
}

/// `crate`, `self` and `super` at the front made one form: `crate` and the rest.
fn absolute(here: &[String], segments: Vec<String>) -> Vec<String> {
    let ups = segments.iter().take_while(|segment| *segment == "super").count();
    let is_relative = segments.first().is_some_and(|first| first == "self") || ups > 0;
    if !is_relative {
        return segments;
    }
    let base = &here[..here.len().saturating_sub(ups)];
    let root = std::iter::once("crate".to_owned());
    root.chain(base.iter().cloned()).chain(segments.into_iter().skip(ups.max(1))).collect()
}

/// Adds the names and paths of the code to the modules that they stand in. `use` trees and the
/// names of modules are no code.
fn add_words(tokens: &[Token], scopes: &mut [Scope]) {
    let is = |at: usize, text: &str| tokens.get(at).is_some_and(|token| token.is(text));
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        let before = at.checked_sub(1).map_or("", |before| tokens[before].text.as_str());
        if token.is("use") && before != "+" {
            at += tokens[at..].iter().take_while(|token| !token.is(";")).count();
        } else if token.is_name() && !token.in_test && before != "mod" {
            let is_inside = |scope: &Scope| {
                scope.span.is_none_or(|(open, close)| open < token.place && token.place < close)
            };
            // The file itself holds them all, and an inline module stands after those around it.
            let Some(scope) = scopes.iter_mut().rfind(|scope| is_inside(scope)) else { break };
            scope.words.insert(token.text.clone());
            if is(at + 1, "::") && !matches!(before, "::" | ".") {
                let mut path = vec![token.text.clone()];
                let mut next = at;
                while is(next + 1, "::")
                    && let Some(name) = tokens.get(next + 2).filter(|token| token.is_name())
                {
                    path.push(name.text.clone());
                    next += 2;
                }
                scope.paths.push((path, token.place.0));
            }
        }
        at += 1;
    }
}

/// Walks the syntax tree and collects what is not test code.
struct Reader<'a> {
    tokens: &'a [Token],
    scopes: Vec<Scope>,
    functions: Vec<Function>,
    /// The module that is read.
    scope: usize,
    /// Blocks of functions around: what stands there is nobody's item.
    depth: usize,
    /// The type whose `impl` is read.
    target: Option<Vec<String>>,
    /// Variables whose type is written, the innermost last.
    variables: Vec<(String, Vec<String>)>,
}

impl<'a> Reader<'a> {
    fn new(tokens: &'a [Token]) -> Self {
        let (functions, variables) = (Vec::new(), Vec::new());
        let scopes = vec![Scope::default()];
        Self { tokens, scopes, functions, scope: 0, depth: 0, target: None, variables }
    }

    /// Whether only tests see what stands there.
    fn is_test(&self, span: Span) -> bool {
        let at = self.tokens.partition_point(|token| token.place < place(span));
        self.tokens.get(at).is_some_and(|token| token.in_test)
    }

    fn function(&mut self, name: &syn::Ident, span: Span, body: &syn::Block) {
        let braces = body.brace_token.span;
        let (open, close) = (place(braces.open()), place(braces.close()));
        let from = self.tokens.partition_point(|token| token.place <= open);
        let inside = self.tokens[from..].iter().take_while(|token| token.place < close);
        let mut lines: Vec<usize> = inside.map(|token| token.place.0).collect();
        lines.dedup();
        let (line, lines) = (place(span).0, lines.len());
        self.functions.push(Function { name: name.to_string(), line, lines });
    }

    fn define(&mut self, name: &syn::Ident, fields: Vec<&syn::Field>, is_type: bool) {
        let mut item = Item { name: plain(name), is_type, fields: Vec::new() };
        for (number, field) in fields.into_iter().enumerate() {
            if !self.is_test(field.span()) {
                let name = field.ident.as_ref().map_or_else(|| number.to_string(), plain);
                let is_visible = !matches!(field.vis, syn::Visibility::Inherited);
                item.fields.push((name, path_of(&field.ty), is_visible));
            }
        }
        self.scopes[self.scope].items.push(item);
    }

    /// Adds what an item at the level of a module defines.
    fn add(&mut self, item: &syn::Item) {
        match item {
            syn::Item::Struct(it) => self.define(&it.ident, it.fields.iter().collect(), true),
            syn::Item::Union(it) => {
                self.define(&it.ident, it.fields.named.iter().collect(), true);
            }
            syn::Item::Enum(it) => self.define(&it.ident, Vec::new(), true),
            syn::Item::Trait(it) => self.define(&it.ident, Vec::new(), false),
            syn::Item::Type(it) => self.define(&it.ident, Vec::new(), false),
            syn::Item::Static(it) => self.define(&it.ident, Vec::new(), false),
            syn::Item::Const(it) => self.define(&it.ident, Vec::new(), false),
            syn::Item::Fn(it) => self.define(&it.sig.ident, Vec::new(), false),
            syn::Item::Macro(it) => {
                it.ident.iter().for_each(|name| self.define(name, Vec::new(), false));
            }
            _ => {}
        }
    }

    /// What an expression is, if its type is written somewhere.
    fn receiver(&self, expr: &syn::Expr) -> Option<Receiver> {
        match expr {
            syn::Expr::Paren(it) => self.receiver(&it.expr),
            syn::Expr::Reference(it) => self.receiver(&it.expr),
            syn::Expr::Field(it) => {
                let base = self.receiver(&it.base)?;
                let name = match &it.member {
                    syn::Member::Named(name) => plain(name),
                    syn::Member::Unnamed(number) => number.index.to_string(),
                };
                Some(Receiver::Field(Box::new(base), name))
            }
            syn::Expr::Path(it) => {
                let name = plain(it.path.get_ident()?);
                if name == "self" {
                    return self.target.clone().map(Receiver::Type);
                }
                let known = self.variables.iter().rfind(|(variable, _)| *variable == name);
                known.map(|(_, of)| Receiver::Type(of.clone()))
            }
            _ => None,
        }
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if self.is_test(item.span()) {
            return;
        }
        if self.depth == 0 {
            self.add(item);
        }
        visit::visit_item(self, item);
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        let name = plain(&item.ident);
        let Some((brace, items)) = &item.content else {
            return self.scopes[self.scope].declared.push(name);
        };
        let outer = std::mem::replace(&mut self.scope, self.scopes.len());
        let path = self.scopes[outer].path.iter().cloned().chain([name]).collect();
        let span = Some((place(brace.span.open()), place(brace.span.close())));
        self.scopes.push(Scope { path, parent: Some(outer), span, ..Scope::default() });
        items.iter().for_each(|item| self.visit_item(item));
        self.scope = outer;
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let is_public = !matches!(item.vis, syn::Visibility::Inherited);
        let uses = &mut self.scopes[self.scope].uses;
        add_leaves(&item.tree, &mut Vec::new(), is_public, uses);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let target = path_of(&item.self_ty);
        if let Some(target) = target.clone().filter(|_| self.depth == 0) {
            let mut methods = Vec::new();
            for item in &item.items {
                if let syn::ImplItem::Fn(method) = item
                    && !self.is_test(method.span())
                {
                    methods.push(plain(&method.sig.ident));
                }
            }
            let (is_of_trait, line) = (item.trait_.is_some(), place(item.impl_token.span).0);
            self.scopes[self.scope].impls.push(Impl { target, is_of_trait, line, methods });
        }
        let outer = std::mem::replace(&mut self.target, target);
        visit::visit_item_impl(self, item);
        self.target = outer;
    }

    fn visit_impl_item(&mut self, item: &'ast syn::ImplItem) {
        if !self.is_test(item.span()) {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.function(&item.sig.ident, item.sig.fn_token.span, &item.block);
        let known = self.variables.len();
        visit::visit_item_fn(self, item);
        self.variables.truncate(known);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.function(&item.sig.ident, item.sig.fn_token.span, &item.block);
        let known = self.variables.len();
        visit::visit_impl_item_fn(self, item);
        self.variables.truncate(known);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(body) = &item.default {
            self.function(&item.sig.ident, item.sig.fn_token.span, body);
        }
        visit::visit_trait_item_fn(self, item);
    }

    fn visit_block(&mut self, block: &'ast syn::Block) {
        self.depth += 1;
        visit::visit_block(self, block);
        self.depth -= 1;
    }

    /// Parameters of functions and closures, and `let` with a type.
    fn visit_pat_type(&mut self, pat: &'ast syn::PatType) {
        if let (syn::Pat::Ident(name), Some(of)) = (&*pat.pat, path_of(&pat.ty)) {
            self.variables.push((plain(&name.ident), of));
        }
        visit::visit_pat_type(self, pat);
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        if let Some(on) = self.receiver(&call.receiver) {
            let method = plain(&call.method);
            self.scopes[self.scope].calls.push(Call { on, method });
        }
        visit::visit_expr_method_call(self, call);
    }

    fn visit_expr_path(&mut self, path: &'ast syn::ExprPath) {
        let mut names: Vec<String> = path.path.segments.iter().map(|it| plain(&it.ident)).collect();
        if let Some(method) = names.pop()
            && !names.is_empty()
        {
            if names == ["Self"] {
                names = self.target.clone().unwrap_or(names);
            }
            let on = Receiver::Type(names);
            self.scopes[self.scope].calls.push(Call { on, method });
        }
        visit::visit_expr_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        let list = Punctuated::<syn::Expr, syn::Token![,]>::parse_terminated;
        if let Ok(list) = call.parse_body_with(list) {
            let mut inner = Reader {
                variables: std::mem::take(&mut self.variables),
                ..Reader::new(self.tokens)
            };
            inner.target.clone_from(&self.target);
            inner.depth = self.depth + 1;
            list.iter().for_each(|expr| inner.visit_expr(expr));
            self.variables = inner.variables;
            self.scopes[self.scope].calls.append(&mut inner.scopes[0].calls);
        }
    }
}

fn plain(name: &syn::Ident) -> String {
    let name = name.to_string();
    name.strip_prefix("r#").unwrap_or(&name).to_owned()
}

/// The path of a type behind references, `dyn` and `Box`.
fn path_of(of: &syn::Type) -> Option<Vec<String>> {
    match of {
        syn::Type::Reference(it) => path_of(&it.elem),
        syn::Type::Paren(it) => path_of(&it.elem),
        syn::Type::TraitObject(it) => it.bounds.iter().find_map(|bound| match bound {
            syn::TypeParamBound::Trait(it) => Some(names(&it.path)),
            _ => None,
        }),
        syn::Type::Path(it) => {
            let last = it.path.segments.last()?;
            if let syn::PathArguments::AngleBracketed(arguments) = &last.arguments
                && let Some(syn::GenericArgument::Type(inner)) = arguments.args.first()
                && last.ident == "Box"
            {
                return path_of(inner);
            }
            Some(names(&it.path))
        }
        _ => None,
    }
}

fn names(path: &syn::Path) -> Vec<String> {
    path.segments.iter().map(|segment| plain(&segment.ident)).collect()
}

/// Adds each leaf of a `use` tree below `path`.
fn add_leaves(tree: &syn::UseTree, path: &mut Vec<String>, is_public: bool, uses: &mut Vec<Use>) {
    let (name, bound) = match tree {
        syn::UseTree::Path(it) => {
            path.push(plain(&it.ident));
            add_leaves(&it.tree, path, is_public, uses);
            path.pop();
            return;
        }
        syn::UseTree::Group(it) => {
            return it.items.iter().for_each(|tree| add_leaves(tree, path, is_public, uses));
        }
        syn::UseTree::Name(it) => (plain(&it.ident), None),
        syn::UseTree::Rename(it) => (plain(&it.ident), Some(plain(&it.rename))),
        syn::UseTree::Glob(_) => ("*".to_owned(), None),
    };
    let mut path = path.clone();
    if name != "self" || path.is_empty() {
        path.push(name);
    }
    let bound = bound.or_else(|| path.last().cloned()).unwrap_or_default();
    uses.push(Use { path, bound, is_public, line: place(tree.span()).0 });
}
