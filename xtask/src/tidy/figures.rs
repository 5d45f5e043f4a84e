//! Figures of the structure: how far parts keep to themselves. `limits` says how large they may be.
//!
//! Decides what is counted; refuses to know what is too much. Tests do not count.
//!
//! | figure | what is counted |
//! |---|---|
//! | `code.CRATE` | lines with code |
//! | `largest.CRATE.methods` | functions in the blocks `impl T` of one type, not of traits |
//! | `largest.CRATE.files` | files with an `impl` block of one type |
//! | `largest.CRATE.visible` | fields of one struct with [`PART`] methods that others can see |
//! | `circle_files.CRATE` | files that import each other in a circle |
//! | `side_circle_files.CRATE` | the same without imports between a file and those below it |
//! | `call_circle_files.CRATE` | files that share the methods of a type and call them in a circle |
//! | `outside.CRATE` | blocks `impl T` outside the module of `T` |
//! | `assigned.FIELD.files` | files of the core that assign to a field of this name |

use std::collections::{BTreeMap, BTreeSet};

use super::modules::{Crate, crates};
use super::source::Source;
use super::tree::Tree;

/// Methods from which on a struct is a part and hides its fields. Plain data may show them.
const PART: usize = 8;
/// The crate whose assignments are counted.
const CORE: &str = "proto";

/// One figure.
pub(crate) struct Figure {
    pub(crate) value: usize,
    /// What it is made of.
    pub(crate) details: Vec<String>,
}

/// Figures by key.
pub(crate) type Figures = BTreeMap<String, Figure>;

/// Files and those that they lead to.
type Graph<'t> = BTreeMap<&'t str, BTreeSet<&'t str>>;

/// All figures. `fields` are those whose assignments are counted.
pub(crate) fn measure(tree: &Tree, fields: &[&str]) -> Figures {
    let mut figures = Figures::new();
    for it in crates(tree) {
        let mut put = |kind: &str, value: usize, details: Vec<String>| {
            let key = match kind.split_once('.') {
                Some((before, after)) => format!("{before}.{}.{after}", it.name),
                None => format!("{kind}.{}", it.name),
            };
            figures.insert(key, Figure { value, details });
        };
        let lines = it.files.iter().map(|(path, source)| source.code_lines(tree.text(path)));
        put("code", lines.sum(), Vec::new());
        let parts = parts(&it);
        for (kind, (value, name)) in largest(&it, &parts) {
            put(kind, value, vec![name.to_owned()]);
        }
        let outside = outside(&it);
        put("outside", outside.len(), outside);
        let (all, side) = import_circles(&it);
        put("circle_files", all.0, all.1);
        put("side_circle_files", side.0, side.1);
        let (files, details) = call_circles(&it, &parts);
        put("call_circle_files", files, details);
        for field in fields.iter().filter(|_| it.name == CORE) {
            let assigns = |(path, source): (&&str, &&Source)| {
                assigns(source, field).then(|| (*path).to_owned())
            };
            let files: Vec<String> = it.files.iter().filter_map(assigns).collect();
            let key = format!("assigned.{field}.files");
            figures.insert(key, Figure { value: files.len(), details: files });
        }
    }
    figures
}

/// A type as its blocks show it.
#[derive(Default)]
struct Part<'t> {
    /// Files with a block of it, and the methods that they give it.
    files: BTreeMap<&'t str, BTreeSet<&'t str>>,
    methods: usize,
}

/// The types of a crate by module and name.
type Parts<'t> = BTreeMap<(usize, &'t str), Part<'t>>;

fn parts<'t>(it: &Crate<'t>) -> Parts<'t> {
    let mut parts = Parts::new();
    for (module, block, of) in it.impls() {
        let part = parts.entry(of).or_default();
        let gives = part.files.entry(module.file).or_default();
        if !block.is_of_trait {
            part.methods += block.methods.len();
            gives.extend(block.methods.iter().map(String::as_str));
        }
    }
    parts
}

/// The largest figures of a type, each with the type's name.
fn largest<'t>(it: &Crate<'t>, parts: &Parts<'t>) -> [(&'static str, (usize, &'t str)); 3] {
    let visible = |at: usize, name: &str| {
        let fields = it.item(at, name).into_iter().flat_map(|item| &item.fields);
        fields.filter(|(_, _, is_visible)| *is_visible).count()
    };
    let largest = |of: &dyn Fn(&(usize, &'t str), &Part<'t>) -> usize| {
        parts.iter().map(|(key, part)| (of(key, part), key.1)).max().unwrap_or_default()
    };
    [
        ("largest.methods", largest(&|_, part| part.methods)),
        ("largest.files", largest(&|_, part| part.files.len())),
        (
            "largest.visible",
            largest(&|&(at, name), part| if part.methods < PART { 0 } else { visible(at, name) }),
        ),
    ]
}

/// The blocks `impl T` outside the module of `T` and those below it.
fn outside(it: &Crate<'_>) -> Vec<String> {
    let inherent = it.impls().filter(|(_, block, _)| !block.is_of_trait);
    let outside = inherent.filter_map(|(module, block, (at, name))| {
        let home = &it.modules[at];
        let is_inside = module.root == home.root && module.path.starts_with(&home.path);
        let (file, line) = (module.file, block.line);
        (!is_inside).then(|| format!("{file}:{line}: impl {name}, which {} defines", home.file))
    });
    outside.collect()
}

/// The files in import circles with the imports of each circle, and the same without imports
/// between a file and those below its module.
fn import_circles(it: &Crate<'_>) -> ((usize, Vec<String>), (usize, Vec<String>)) {
    let imports = it.imports();
    let graph = |is_kept: &dyn Fn(&str, &str) -> bool| -> Graph<'_> {
        let files = imports.iter().map(|(from, to)| {
            let kept = to.keys().copied().filter(|to| is_kept(from, to));
            (*from, kept.collect())
        });
        files.collect()
    };
    let describe = |graph: &Graph<'_>| {
        let (mut files, mut details) = (0, Vec::new());
        for circle in circles(graph) {
            files += circle.len();
            details.push(format!("circle of {} files", circle.len()));
            for from in &circle {
                for to in graph[from].iter().filter(|to| circle.contains(to)) {
                    let names: Vec<&str> = imports[from][to].iter().copied().collect();
                    details.push(format!("  {from} -> {to}: {}", names.join(", ")));
                }
            }
        }
        (files, details)
    };
    let is_side = |from: &str, to: &str| !is_below(from, to) && !is_below(to, from);
    (describe(&graph(&|_, _| true)), describe(&graph(&is_side)))
}

/// Whether the file `a` lies below the module of the file `b`.
fn is_below(a: &str, b: &str) -> bool {
    let (folder, name) = b.rsplit_once('/').unwrap_or(("", b));
    let module = if matches!(name, "mod.rs" | "lib.rs" | "main.rs") {
        folder
    } else {
        b.trim_end_matches(".rs")
    };
    a != b && a.strip_prefix(module).is_some_and(|rest| rest.starts_with('/'))
}

/// The files that share the methods of a type and call each other's in a circle, through `self`
/// or another variable. Such files can be understood only all together.
fn call_circles<'t>(it: &Crate<'t>, parts: &Parts<'t>) -> (usize, Vec<String>) {
    let mut calls: BTreeMap<(usize, &str), BTreeMap<&str, BTreeSet<&str>>> = BTreeMap::new();
    for (at, module) in it.modules.iter().enumerate() {
        for call in &module.scope.calls {
            if let Some(of) = it.type_of(at, &call.on) {
                let files = calls.entry(of).or_default();
                files.entry(module.file).or_default().insert(&call.method);
            }
        }
    }
    let (mut found, mut details) = (BTreeSet::new(), Vec::new());
    for (of, part) in parts.iter().filter(|(_, part)| part.files.len() > 1) {
        let mut graph = Graph::new();
        for from in part.files.keys() {
            let called = calls.get(of).and_then(|files| files.get(from));
            for method in called.into_iter().flatten() {
                let gives = |file: &&&str| part.files[**file].contains(method);
                let own = part.files[from].contains(method);
                let to = part.files.keys().find(gives).filter(|_| !own);
                graph.entry(*from).or_default().extend(to.copied());
            }
        }
        for circle in circles(&graph) {
            details.push(format!("`{}` in a circle of calls: {}", of.1, circle.join(" ")));
            found.extend(circle);
        }
    }
    (found.len(), details)
}

/// The groups of files in which each leads to all others.
fn circles<'t>(graph: &Graph<'t>) -> Vec<Vec<&'t str>> {
    let reached = |start: &'t str| {
        let (mut seen, mut next) = (BTreeSet::new(), vec![start]);
        while let Some(at) = next.pop() {
            let to = graph.get(at).into_iter().flatten().copied();
            next.extend(to.filter(|to| seen.insert(*to)));
        }
        seen
    };
    let reach: BTreeMap<&str, BTreeSet<&str>> = graph.keys().map(|at| (*at, reached(at))).collect();
    let leads = |from: &str, to: &str| reach.get(from).is_some_and(|reach| reach.contains(to));
    let group = |at: &str| reach[at].iter().copied().filter(|to| leads(to, at)).collect();
    let groups: BTreeSet<Vec<&str>> = reach.keys().map(|at| group(at)).collect();
    groups.into_iter().filter(|group| !group.is_empty()).collect()
}

/// Whether a file assigns to a field of this name.
fn assigns(source: &Source, field: &str) -> bool {
    let tokens = &source.tokens;
    tokens.windows(6).any(|next| {
        let texts = [2, 3, 4].map(|at| next[at].text.as_str());
        let is_assigned = match texts {
            ["=", second, _] => !matches!(second, "=" | ">"),
            ["+" | "-" | "*" | "/" | "%" | "&" | "|" | "^", "=", _] => true,
            ["<", "<", "="] | [">", ">", "="] => true,
            _ => false,
        };
        !next[0].in_test && next[0].is(".") && next[1].is(field) && is_assigned
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The figures of a crate `x` with these files.
    fn figures(files: &[(&str, &str)]) -> Figures {
        let mut tree = Tree::default();
        tree.files.insert("crates/proto/Cargo.toml".to_owned(), Some(String::new()));
        for (name, text) in files {
            tree.files.insert(format!("crates/proto/src/{name}.rs"), Some((*text).to_owned()));
        }
        measure(&tree, &["health"])
    }

    /// Names that are resolved through every kind of import, each figure counted by hand.
    const SAMPLE: [(&str, &str); 6] = [
        (
            "lib",
            "mod a; pub mod b; mod c; #[cfg(test)] mod checks;\nconst TEXT: &str = \"a\n\nb\";\n\
             /// Doc.\nconst fn two() {}",
        ),
        ("checks", "const N: u8 = 1;"),
        (
            "a",
            "use crate::b::{self, deep as Seen, inner::{X}};\npub struct Same(pub(crate) u8, u8);\n\
             impl<T> crate::c::Big<'_, T> { fn five(&self) { b::f() } }",
        ),
        (
            "b/mod",
            "mod deep; use super::a::{self}; pub(crate) use deep::{deep, Shown};\n\
             pub mod inner { pub struct X; }\npub enum Same { A }\npub const SIZE: usize = 1;",
        ),
        (
            "b/deep",
            "use {super::{super::a::Same, SIZE}, std::fmt as c};\npub struct Shown;\n\
             pub fn deep() {}\nimpl Clone for &'static crate::c::Big<'_, u8> {}",
        ),
        (
            "c",
            "pub struct Big<'a, T> { pub one: Vec<u8>, #[cfg(test)] pub two: u8, five: &'a T }\n\
             impl<'a, T> Big<'a, T> { fn one() { self.low.health += 1; } #[cfg(test)] fn no() {} }",
        ),
    ];

    #[test]
    fn figures_of_a_sample_are_as_counted_by_hand() {
        let figures = figures(&SAMPLE);
        for (key, value) in [
            ("code.proto", 17),
            ("largest.proto.methods", 2),
            ("largest.proto.files", 3),
            ("outside.proto", 1),
            ("circle_files.proto", 2),
            ("side_circle_files.proto", 2),
            ("assigned.health.files", 1),
        ] {
            assert_eq!(figures[key].value, value, "{key}: {:?}", figures[key].details);
        }
    }

    const PEER: (&str, &str) = ("peer", "mod a; mod b; mod c; pub struct Peer { part: Part }");
    const A: (&str, &str) = ("peer/a", "impl super::Peer { fn one(&self) { self.two(); } }");
    const B: (&str, &str) =
        ("peer/b", "use super::*; impl Peer { fn two(&self) { Self::three(); } }");

    /// The circle of calls that a third file closes, if it does.
    fn circle_with(third: &str) -> Vec<String> {
        let files = [("lib", "mod peer;"), PEER, A, B, ("peer/c", third)];
        let mut figures = figures(&files);
        figures.remove("call_circle_files.proto").map(|it| it.details).unwrap_or_default()
    }

    #[test]
    fn calls_in_a_circle_are_found_through_any_variable() {
        let folder = "crates/proto/src/peer";
        let circle =
            format!("`Peer` in a circle of calls: {folder}/a.rs {folder}/b.rs {folder}/c.rs");
        for call in [
            "self.one()",
            "assert!(self.one(), \"x\")",
            "Peer::one(self)",
            "let other: &mut Peer = x(); other.one()",
            "f(|peer: &Peer| peer.one())",
        ] {
            let third = format!("use super::Peer; impl Peer {{ fn three(&self) {{ {call} }} }}");
            assert_eq!(circle_with(&third), [circle.as_str()], "{call}");
        }
        let third = "use super::*; impl Peer { fn three() {} }
            struct Holder { peer: Box<Peer> } impl Holder { fn f(&self) { self.peer.one() } }";
        assert_eq!(circle_with(third), [circle.as_str()]);
    }

    #[test]
    fn an_order_is_no_circle() {
        for third in [
            "impl super::Peer { fn three(&self) { self.four() } fn four(&self) { self.three() } }",
            "impl super::Peer { fn three() {} } impl super::Part { fn f(&self) { self.one() } }",
            "impl super::Peer { fn three() {} #[cfg(test)] fn f(&self) { self.one() } }",
        ] {
            assert_eq!(circle_with(third), [""; 0], "{third}");
        }
    }
}
