//! The modules of a crate over its files: what a path leads to, and which file imports which.
//!
//! Decides where a name is defined, as far as `use` lines show it; refuses to know which imports
//! are allowed. Limits: no traits, no types of expressions beyond those that are written, no
//! `#[path]`.

use std::collections::{BTreeMap, BTreeSet};

use super::source::{Impl, Item, Receiver, Scope, Source, is_test_file};
use super::tree::Tree;

/// A crate that is built from this repository.
pub(crate) struct Crate<'t> {
    /// The name of its folder.
    pub(crate) name: &'t str,
    pub(crate) modules: Vec<Module<'t>>,
    /// Its files outside tests.
    pub(crate) files: BTreeMap<&'t str, &'t Source>,
}

/// A module of it.
pub(crate) struct Module<'t> {
    pub(crate) file: &'t str,
    pub(crate) scope: &'t Scope,
    /// Where it stands below the root of its library or program.
    pub(crate) path: Vec<String>,
    pub(crate) root: usize,
    parent: Option<usize>,
    children: BTreeMap<&'t str, usize>,
    /// Where the files of its children lie.
    folder: String,
}

/// What a path leads to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Target<'n> {
    Module(usize),
    /// What a module defines under this name. A macro may define it, so it is not always shown.
    Item(usize, &'n str),
}

/// Which files a file imports, and which names it takes from each.
pub(crate) type Imports<'t> = BTreeMap<&'t str, BTreeMap<&'t str, BTreeSet<&'t str>>>;

/// Lookups under way: a name that leads to itself leads nowhere.
type Seen<'n> = Vec<(usize, &'n str, bool)>;

/// The crates that the workspace is made of.
pub(crate) fn crates(tree: &Tree) -> Vec<Crate<'_>> {
    let manifests = tree.texts().filter(|(path, _)| path.ends_with("/Cargo.toml"));
    let crates = manifests.map(|(path, manifest)| {
        let folder = path.trim_end_matches("/Cargo.toml");
        let name = folder.rsplit('/').next().unwrap_or(folder);
        let mut it = Crate { name, modules: Vec::new(), files: BTreeMap::new() };
        for root in roots(tree, folder, manifest) {
            let folder = root.rsplit_once('/').map_or("", |(folder, _)| folder).to_owned();
            it.read(tree, &root, Vec::new(), None, folder);
        }
        it
    });
    crates.collect()
}

/// The files in which the modules of a crate begin.
fn roots(tree: &Tree, folder: &str, manifest: &str) -> BTreeSet<String> {
    let own = ["src/lib.rs", "src/main.rs", "build.rs"].map(str::to_owned).into_iter();
    let named = manifest.lines().filter_map(|line| line.strip_prefix("path = \""));
    let named = named.filter_map(|rest| rest.split('"').next()).map(str::to_owned);
    let roots = own.chain(named.filter(|path| path.ends_with(".rs")));
    let programs = format!("{folder}/src/bin/");
    let programs = tree
        .rust()
        .map(|(path, _)| path)
        .filter(|path| path.strip_prefix(&programs).is_some_and(|file| !file.contains('/')));
    roots.map(|path| format!("{folder}/{path}")).chain(programs.map(str::to_owned)).collect()
}

impl<'t> Crate<'t> {
    /// Reads the module in this file and those that it declares.
    fn read(
        &mut self,
        tree: &'t Tree,
        file: &str,
        path: Vec<String>,
        parent: Option<usize>,
        folder: String,
    ) -> Option<usize> {
        let (file, source) = tree.source(file).filter(|(file, _)| !is_test_file(file))?;
        self.files.insert(file, source);
        let first = self.modules.len();
        let root = parent.map_or(first, |parent| self.modules[parent].root);
        for scope in &source.scopes {
            let path = path.iter().chain(&scope.path).cloned().collect();
            let parent = scope.parent.map_or(parent, |outer| Some(first + outer));
            let folder = [std::slice::from_ref(&folder), &scope.path].concat().join("/");
            let children = BTreeMap::new();
            self.modules.push(Module { file, scope, path, root, parent, children, folder });
        }
        for (number, scope) in source.scopes.iter().enumerate() {
            let at = first + number;
            if let (Some(outer), Some(name)) = (scope.parent, scope.path.last()) {
                self.modules[first + outer].children.insert(name, at);
            }
            for name in &scope.declared {
                let mut path = self.modules[at].path.clone();
                path.push(name.clone());
                let folder = format!("{}/{name}", self.modules[at].folder);
                let places = [format!("{folder}.rs"), format!("{folder}/mod.rs")];
                let Some(place) = places.iter().find(|place| tree.holds(place)) else { continue };
                if let Some(child) = self.read(tree, place, path, Some(at), folder) {
                    self.modules[at].children.insert(name, child);
                }
            }
        }
        Some(first)
    }

    /// The item of that name in a module, if its file shows it.
    pub(crate) fn item(&self, module: usize, name: &str) -> Option<&'t Item> {
        self.modules[module].scope.items.iter().find(|item| item.name == name)
    }

    /// Where a path in a module leads.
    pub(crate) fn resolve(&self, module: usize, path: &'t [String]) -> Option<Target<'t>> {
        self.follow(module, path, true, &mut Seen::new())
    }

    /// `is_item`: whether its last name is rather an item than a module.
    fn follow(
        &self,
        module: usize,
        path: &'t [String],
        is_item: bool,
        seen: &mut Seen<'t>,
    ) -> Option<Target<'t>> {
        let mut at = Target::Module(module);
        for (number, name) in path.iter().enumerate() {
            let Target::Module(here) = at else { break };
            at = match name.as_str() {
                "crate" if number == 0 => Target::Module(self.modules[here].root),
                "super" => Target::Module(self.modules[here].parent?),
                "*" => at,
                "self" if number == 0 => at,
                name => {
                    let is_last = is_item && number + 1 == path.len();
                    let unseen = (number > 0).then_some(Target::Item(here, name));
                    self.lookup(here, name, is_last, seen).or(unseen)?
                }
            };
        }
        Some(at)
    }

    /// What a name means in a module.
    fn lookup(
        &self,
        module: usize,
        name: &'t str,
        is_item: bool,
        seen: &mut Seen<'t>,
    ) -> Option<Target<'t>> {
        if seen.contains(&(module, name, is_item)) {
            return None;
        }
        seen.push((module, name, is_item));
        let it = &self.modules[module];
        let item = || self.item(module, name).map(|_| Target::Item(module, name));
        let child = || it.children.get(name).copied().map(Target::Module);
        let used = it.scope.uses.iter().rfind(|used| used.bound == name && name != "*");
        let depth = seen.len();
        let found = (if is_item { item() } else { child() })
            .or_else(|| self.follow(module, &used?.path, is_item, seen))
            .or_else(|| if is_item { child() } else { item() });
        seen.truncate(depth);
        let mut globs = it.scope.uses.iter().filter(|used| used.bound == "*");
        let found = found.or_else(|| {
            globs.find_map(|glob| {
                let target = self.follow(module, &glob.path, false, seen);
                seen.truncate(depth);
                let Some(Target::Module(there)) = target else { return None };
                let found = self.lookup(there, name, is_item, seen);
                seen.truncate(depth);
                found
            })
        });
        seen.pop();
        found
    }

    /// Which file takes which names from which other one. A re-export that its own file does not
    /// use is no import.
    pub(crate) fn imports(&self) -> Imports<'t> {
        let mut imports = Imports::new();
        for (at, module) in self.modules.iter().enumerate() {
            let scope = module.scope;
            let is_used = |bound: &str| scope.words.contains(bound);
            let uses = scope.uses.iter().filter(|used| used.bound != "*");
            let uses = uses.filter(|used| !used.is_public || is_used(&used.bound));
            let paths = uses.map(|used| &used.path).chain(scope.paths.iter().map(|(path, _)| path));
            let mut targets: Vec<_> = paths.filter_map(|path| self.resolve(at, path)).collect();
            if scope.uses.iter().any(|used| used.bound == "*") {
                let is_bound = |word: &str| {
                    scope.items.iter().any(|item| item.name == word)
                        || scope.uses.iter().any(|used| used.bound == word)
                };
                let words = scope.words.iter().filter(|word| !is_bound(word));
                targets
                    .extend(words.filter_map(|word| self.lookup(at, word, true, &mut Seen::new())));
            }
            for target in targets {
                let Target::Item(there, name) = target else { continue };
                let file = self.modules[there].file;
                if file != module.file {
                    imports.entry(module.file).or_default().entry(file).or_default().insert(name);
                }
            }
        }
        imports
    }

    /// The `impl` blocks of types that this crate defines: the module, the block, and the type.
    pub(crate) fn impls(&self) -> impl Iterator<Item = (&Module<'t>, &'t Impl, (usize, &'t str))> {
        self.modules.iter().enumerate().flat_map(move |(at, module)| {
            module.scope.impls.iter().filter_map(move |block| {
                let Target::Item(there, name) = self.resolve(at, &block.target)? else {
                    return None;
                };
                let is_type = self.item(there, name).is_some_and(|item| item.is_type);
                is_type.then_some((module, block, (there, name)))
            })
        })
    }

    /// The type of what a method is called on, if it is written and of this crate.
    pub(crate) fn type_of(&self, module: usize, on: &'t Receiver) -> Option<(usize, &'t str)> {
        let target = match on {
            Receiver::Type(path) => self.resolve(module, path)?,
            Receiver::Field(base, field) => {
                let (there, name) = self.type_of(module, base)?;
                let mut fields = self.item(there, name)?.fields.iter();
                let (_, path, _) = fields.find(|(name, _, _)| name == field)?;
                self.resolve(there, path.as_ref()?)?
            }
        };
        let Target::Item(there, name) = target else { return None };
        self.item(there, name).filter(|item| item.is_type).map(|_| (there, name))
    }
}
