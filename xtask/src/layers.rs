//! `cargo xtask layers`: who imports whom, against the picture in `docs/architecture.md`.
//!
//! In: the sources of every crate of the workspace (`use` trees and paths that begin with `crate`, `super` or `self`, those in
//! macro calls included; code under `#[cfg(test)]` is left out) and the fenced blocks of the page that begin with
//! "```layers CRATE". A module is an entry directly under `src/`. In a block every line is a row of modules; a module
//! imports from rows above its own, nothing from its own row or below.
//!
//! Fails on a cycle between modules, on an import against the picture, on a module that the picture of its crate leaves out, and on a file of tests
//! that no program runs.
//! Cycles between the files of one folder, and those of crates without a picture, are listed and fail nothing.

use anyhow::{Context, Result, bail};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// Imports: from, to, where the first one stands.
type Imports = BTreeMap<(String, String), String>;

/// Checks all crates; the report is printed.
pub fn check(root: &Path) -> Result<()> {
    let page = root.join("docs/architecture.md");
    let pictures = pictures(&std::fs::read_to_string(&page).context("docs/architecture.md")?);
    let mut wrong = Vec::new();
    let mut crates: Vec<_> = std::fs::read_dir(root)?.filter_map(|e| Some(e.ok()?.path())).collect();
    crates.retain(|path| path.join("Cargo.toml").is_file() && path.join("src").is_dir());
    crates.sort();
    for folder in std::iter::once(root.to_owned()).chain(crates) {
        let name = match folder == root {
            true => "tileas".to_owned(),
            false => folder.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        };
        let source = Crate::read(&folder.join("src"))?;
        let drawn = pictures.get(&name);
        for cycle in cycles(&source.imports) {
            let text = format!("{name}: modules import each other: {}", describe(&cycle, &source.imports));
            if drawn.is_some() { wrong.push(text) } else { println!("{text}") }
        }
        for (module, imports) in &source.inside {
            for cycle in cycles(imports) {
                println!("{name}/{module}: files that import each other: {}", cycle.join(", "));
            }
        }
        if let Some(rows) = drawn {
            against(&name, rows, &source, &mut wrong);
        }
        left_out(&name, &folder, &mut wrong)?;
    }
    for name in pictures.keys().filter(|name| *name != "tileas" && !root.join(name).is_dir()) {
        wrong.push(format!("the picture shows `{name}`, which is no crate"));
    }
    if wrong.is_empty() {
        return Ok(());
    }
    bail!("{}", wrong.join("\n"))
}

/// Files of tests that no program has: where `tests/main.rs` lists them, Cargo does not look for them.
fn left_out(name: &str, folder: &Path, wrong: &mut Vec<String>) -> Result<()> {
    let manifest = std::fs::read_to_string(folder.join("Cargo.toml"))?;
    if !manifest.contains("autotests = false") {
        return Ok(());
    }
    let main = std::fs::read_to_string(folder.join("tests/main.rs"))
        .with_context(|| format!("{name}: tests/main.rs"))?;
    let mut files: Vec<_> =
        std::fs::read_dir(folder.join("tests"))?.filter_map(|e| Some(e.ok()?.path())).collect();
    files.sort();
    for file in files.iter().filter(|file| file.extension().is_some_and(|e| e == "rs")) {
        let stem = file.file_stem().unwrap_or_default().to_string_lossy();
        let listed = main.lines().any(|line| line == format!("mod {stem};"));
        if stem != "main" && listed == manifest.contains(&format!("\"tests/{stem}.rs\"")) {
            wrong.push(format!("{name}: tests/{stem}.rs is to be either in tests/main.rs or in Cargo.toml"));
        }
    }
    Ok(())
}

/// The rows of modules by crate.
fn pictures(page: &str) -> BTreeMap<String, Vec<Vec<String>>> {
    let mut out: BTreeMap<String, Vec<Vec<String>>> = BTreeMap::new();
    let mut open: Option<String> = None;
    for line in page.lines() {
        match (&open, line.strip_prefix("```")) {
            (None, Some(head)) => open = head.strip_prefix("layers ").map(|name| name.trim().to_owned()),
            (Some(_), Some(_)) => open = None,
            (Some(name), None) if !line.trim().is_empty() => {
                let row = line.split_whitespace().map(str::to_owned).collect();
                out.entry(name.clone()).or_default().push(row);
            }
            _ => {}
        }
    }
    out
}

fn against(name: &str, rows: &[Vec<String>], source: &Crate, wrong: &mut Vec<String>) {
    let row = |module: &str| rows.iter().position(|r| r.iter().any(|m| m == module));
    for module in source.modules.iter().filter(|m| row(m).is_none()) {
        wrong.push(format!("{name}: the picture leaves `{module}` out"));
    }
    for module in rows.iter().flatten().filter(|m| !source.modules.contains(*m)) {
        wrong.push(format!("{name}: the picture shows `{module}`, which is no module"));
    }
    for ((from, to), place) in &source.imports {
        if let (Some(a), Some(b)) = (row(from), row(to))
            && a <= b
        {
            wrong.push(format!("{name}: `{from}` imports `{to}` against the picture, at {place}"));
        }
    }
}

/// A cycle with a place for each import.
fn describe(cycle: &[String], imports: &Imports) -> String {
    let inside = imports.iter().filter(|((a, b), _)| cycle.contains(a) && cycle.contains(b));
    inside.map(|((a, b), place)| format!("{a} -> {b} ({place})")).collect::<Vec<_>>().join(", ")
}

/// Strongly connected sets of more than one module.
fn cycles(imports: &Imports) -> Vec<Vec<String>> {
    fn reach<'a>(imports: &'a Imports, from: &'a String) -> BTreeSet<&'a String> {
        let (mut seen, mut work) = (BTreeSet::new(), vec![from]);
        while let Some(at) = work.pop() {
            work.extend(imports.keys().filter(|(a, _)| a == at).map(|(_, b)| b).filter(|b| seen.insert(*b)));
        }
        seen
    }
    let names: BTreeSet<&String> = imports.keys().flat_map(|(a, b)| [a, b]).collect();
    let reached: BTreeMap<&String, BTreeSet<&String>> =
        names.iter().map(|&n| (n, reach(imports, n))).collect();
    let mut out: Vec<Vec<String>> = Vec::new();
    for &name in &names {
        let both = |other: &&String| reached[name].contains(*other) && reached[*other].contains(name);
        let set: Vec<String> = names.iter().copied().filter(|o| both(o)).cloned().collect();
        if set.len() > 1 && !out.contains(&set) {
            out.push(set);
        }
    }
    out
}

/// The modules of a crate and their imports.
#[derive(Default)]
struct Crate {
    modules: BTreeSet<String>,
    imports: Imports,
    /// Imports between the files of a folder.
    inside: BTreeMap<String, Imports>,
    /// Names that the root gives on, and the module they come from.
    given: BTreeMap<String, String>,
}

impl Crate {
    fn read(src: &Path) -> Result<Crate> {
        let mut files = Vec::new();
        walk(src, &mut Vec::new(), &mut files)?;
        let mut out = Crate::default();
        out.modules.extend(files.iter().filter_map(|(path, _)| path.first().cloned()));
        let mut parsed = Vec::new();
        for (module, path) in files {
            let text = std::fs::read_to_string(&path)?;
            let file = syn::parse_file(&text).with_context(|| path.display().to_string())?;
            let place = path.strip_prefix(src.parent().unwrap_or(src)).unwrap_or(&path).display().to_string();
            parsed.push((module, place, file));
        }
        for (_, place, file) in parsed.iter().filter(|(module, ..)| module.is_empty()) {
            let mut paths = Paths::of(&[], place);
            paths.visit_file(file);
            for (path, _) in paths.found {
                if let [module, .., name] = &path[..]
                    && out.modules.contains(module)
                {
                    out.given.insert(name.clone(), module.clone());
                }
            }
        }
        for (module, place, file) in parsed.iter().filter(|(module, ..)| !module.is_empty()) {
            let mut paths = Paths::of(module, place);
            paths.visit_file(file);
            for (path, place) in paths.found {
                out.add(module, &path, place);
            }
        }
        Ok(out)
    }

    fn add(&mut self, from: &[String], path: &[String], place: String) {
        let Some(first) = path.first() else { return };
        let to = if self.modules.contains(first) { Some(first) } else { self.given.get(first) };
        let Some(to) = to.cloned() else { return };
        if to != from[0] {
            self.imports.entry((from[0].clone(), to)).or_insert(place);
        } else if let (Some(a), Some(b)) = (from.get(1), path.get(1))
            && a != b
        {
            let inside = self.inside.entry(to).or_default();
            inside.entry((a.clone(), b.clone())).or_insert(place);
        }
    }
}

/// Files with the path of their module, the root's first.
fn walk(
    folder: &Path,
    module: &mut Vec<String>,
    out: &mut Vec<(Vec<String>, std::path::PathBuf)>,
) -> Result<()> {
    let mut entries: Vec<_> = std::fs::read_dir(folder)?.filter_map(|e| Some(e.ok()?.path())).collect();
    entries.sort();
    for path in entries {
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() {
            module.push(stem);
            walk(&path, module, out)?;
            module.pop();
        } else if path.extension().is_some_and(|e| e == "rs") && stem != "tests" {
            let mut at = module.clone();
            if !["lib", "main", "mod"].contains(&stem.as_str()) {
                at.push(stem);
            }
            out.push((at, path));
        }
    }
    Ok(())
}

/// Paths into the own crate, as a walk over a file finds them.
struct Paths {
    module: Vec<String>,
    place: String,
    found: Vec<(Vec<String>, String)>,
}

impl Paths {
    fn of(module: &[String], place: &str) -> Paths {
        Paths { module: module.to_vec(), place: place.to_owned(), found: Vec::new() }
    }

    /// Notes a path where it leads into the crate.
    fn path(&mut self, segments: &[String], line: usize) {
        let mut at = match segments.first().map(String::as_str) {
            Some("crate") => Vec::new(),
            Some("self" | "super") => self.module.clone(),
            // In the root modules stand by their names.
            Some(_) if self.module.is_empty() => Vec::new(),
            _ => return,
        };
        for segment in segments {
            match segment.as_str() {
                "crate" | "self" => {}
                "super" => {
                    at.pop();
                }
                name => at.push(name.to_owned()),
            }
        }
        self.found.push((at, format!("{}:{line}", self.place)));
    }

    fn tree(&mut self, tree: &syn::UseTree, before: &mut Vec<String>) {
        match tree {
            syn::UseTree::Path(p) => {
                before.push(p.ident.to_string());
                self.tree(&p.tree, before);
                before.pop();
            }
            syn::UseTree::Group(g) => g.items.iter().for_each(|t| self.tree(t, before)),
            syn::UseTree::Name(n) => self.leaf(before, &n.ident),
            syn::UseTree::Rename(r) => self.leaf(before, &r.ident),
            syn::UseTree::Glob(g) => self.path(&before.clone(), g.span().start().line),
        }
    }

    fn leaf(&mut self, before: &mut Vec<String>, ident: &syn::Ident) {
        before.push(ident.to_string());
        self.path(&before.clone(), ident.span().start().line);
        before.pop();
    }

    /// Paths in the tokens of a macro call: `crate::a::B`.
    fn tokens(&mut self, tokens: proc_macro2::TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut line = 0;
        let mut colons = 0;
        for token in tokens {
            match token {
                proc_macro2::TokenTree::Ident(ident) => {
                    let name = ident.to_string();
                    if path.is_empty() || colons != 2 {
                        path.clear();
                        line = ident.span().start().line;
                    }
                    if !path.is_empty() || ["crate", "super", "self"].contains(&name.as_str()) {
                        path.push(name);
                        if path.len() > 1 {
                            self.path(&path.clone(), line);
                        }
                    }
                    colons = 0;
                }
                proc_macro2::TokenTree::Punct(p) if p.as_char() == ':' => colons += 1,
                proc_macro2::TokenTree::Group(group) => {
                    (path, colons) = (Vec::new(), 0);
                    self.tokens(group.stream());
                }
                _ => (path, colons) = (Vec::new(), 0),
            }
        }
    }
}

fn is_test(attrs: &[syn::Attribute]) -> bool {
    attrs.iter().any(|a| {
        let names_test =
            |list: &syn::MetaList| list.tokens.to_string().split_whitespace().any(|t| t == "test");
        a.path().is_ident("cfg") && a.meta.require_list().is_ok_and(names_test)
    })
}

impl<'ast> Visit<'ast> for Paths {
    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if !is_test(&item.attrs) {
            self.tree(&item.tree, &mut Vec::new());
        }
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_test(&item.attrs) && item.content.is_some() {
            self.module.push(item.ident.to_string());
            visit::visit_item_mod(self, item);
            self.module.pop();
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: Vec<String> = path.segments.iter().map(|s| s.ident.to_string()).collect();
        if segments.len() > 1 && ["crate", "super", "self"].contains(&segments[0].as_str()) {
            self.path(&segments, path.span().start().line);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.tokens(call.tokens.clone());
        visit::visit_macro(self, call);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(module: &[&str], text: &str) -> Vec<String> {
        let module: Vec<String> = module.iter().map(|s| s.to_string()).collect();
        let mut paths = Paths::of(&module, "f.rs");
        paths.visit_file(&syn::parse_file(text).expect("Rust"));
        paths.found.iter().map(|(path, place)| format!("{} {place}", path.join("::"))).collect()
    }

    #[test]
    fn paths_are_found_wherever_they_stand() {
        let text = "use crate::{a::B, c::{self, D as E}};\nuse super::x;\nfn f() {\n    crate::g::h();\n    m!(1, crate::i::j + 2);\n}\n\
                    #[cfg(test)]\nmod tests {\n    use crate::t::T;\n}\nmod inner {\n    use super::super::y::Z;\n}\nuse std::fmt;";
        let want = [
            "a::B f.rs:1",
            "c f.rs:1",
            "c::D f.rs:1",
            "p::x f.rs:2",
            "g::h f.rs:4",
            "i f.rs:5",
            "i::j f.rs:5",
            "p::y::Z f.rs:12",
        ];
        assert_eq!(found(&["p", "q"], text), want);
    }

    #[test]
    fn cycles_and_imports_against_the_picture_are_refused() {
        let pictures = pictures("text\n```layers c\na b\nd\n```\n```\nnot read\n```\n");
        assert_eq!(pictures["c"], [vec!["a", "b"], vec!["d"]]);
        let imports = |pairs: &[(&str, &str)]| -> Imports {
            pairs.iter().map(|(a, b)| ((a.to_string(), b.to_string()), "f.rs:1".to_owned())).collect()
        };
        assert_eq!(cycles(&imports(&[("a", "b"), ("b", "d")])).len(), 0);
        assert_eq!(cycles(&imports(&[("a", "b"), ("b", "d"), ("d", "a"), ("e", "a")])), [["a", "b", "d"]]);
        let modules = ["a", "b", "d", "e"].map(str::to_owned).into();
        let source =
            Crate { modules, imports: imports(&[("d", "a"), ("a", "b"), ("b", "d")]), ..Crate::default() };
        let mut wrong = Vec::new();
        against("c", &pictures["c"], &source, &mut wrong);
        assert_eq!(wrong.len(), 3, "{wrong:?}");
        assert!(
            wrong[0].contains("leaves `e` out")
                && wrong[1].contains("`a` imports `b`")
                && wrong[2].contains("`b` imports `d`")
        );
    }
}
