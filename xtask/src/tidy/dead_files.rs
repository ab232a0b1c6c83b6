//! No dead Rust files: each is a target of cargo, or reached from one through `mod`.

use super::{Finding, Tree};
use crate::repo::{Repo, relative};
use crate::source::{Source, is_word, leading_word};
use std::collections::BTreeSet;
use std::path::Path;

/// Targets of a package that is not in the workspace.
const FUZZ_TARGETS: &str = "fuzz/fuzz_targets/";

pub(super) fn check(repo: &Repo, tree: &Tree) -> Vec<Finding> {
    let mut roots: Vec<String> = tree.metadata["packages"]
        .as_array()
        .into_iter()
        .flatten()
        .flat_map(|package| package["targets"].as_array().into_iter().flatten())
        .filter_map(|target| target["src_path"].as_str())
        .filter_map(|path| relative(&repo.root, Path::new(path)))
        .collect();
    roots.extend(
        tree.rust(FUZZ_TARGETS)
            .filter(|(path, _)| !path[FUZZ_TARGETS.len()..].contains('/'))
            .map(|(path, _)| path.clone()),
    );
    let read = |path: &str| tree.files.get(path).map(String::as_str);
    let alive = reach(roots, &read);
    tree.rust("")
        .filter(|(path, _)| !alive.contains(*path))
        .map(|(path, _)| {
            Finding::error(
                path,
                0,
                "no `mod` reaches this file; declare it or delete it",
            )
        })
        .collect()
}

/// Every file that the roots reach.
fn reach<'a>(roots: Vec<String>, read: &dyn Fn(&str) -> Option<&'a str>) -> BTreeSet<String> {
    let mut alive = BTreeSet::new();
    let mut open: Vec<(String, bool)> = roots.into_iter().map(|root| (root, true)).collect();
    while let Some((path, is_root)) = open.pop() {
        let Some(text) = read(&path) else { continue };
        if !alive.insert(path.clone()) {
            continue;
        }
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", &path));
        let home = if is_root || name == "mod.rs" {
            folder.to_owned()
        } else {
            path.trim_end_matches(".rs").to_owned()
        };
        for module in modules(text) {
            open.push((format!("{home}/{module}.rs"), false));
            open.push((format!("{home}/{module}/mod.rs"), false));
        }
        for named in named_files(text) {
            open.push((plain(&format!("{folder}/{named}")), true));
        }
    }
    alive
}

/// A path without `..`, as files are listed.
fn plain(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// The `mod name;` of a file, as paths: `a/b` for a `mod b;` inside `mod a { … }`.
fn modules(text: &str) -> Vec<String> {
    let source = Source::scan(text);
    let code = source.code.as_str();
    let mut found = Vec::new();
    let mut inline: Vec<(String, usize)> = Vec::new();
    let mut depth = 0;
    let mut rest = code;
    let mut after_word = false;
    while let Some(c) = rest.chars().next() {
        match c {
            '{' => depth += 1,
            '}' => {
                depth = usize::saturating_sub(depth, 1);
                inline.retain(|(_, opened)| *opened <= depth);
            }
            _ => {}
        }
        let word = leading_word(rest);
        if word == "mod" && !after_word {
            let tail = rest[3..].trim_start();
            let tail = tail.strip_prefix("r#").unwrap_or(tail);
            let name = leading_word(tail);
            let next = tail[name.len()..].trim_start();
            if next.starts_with(';') {
                let mut path: Vec<&str> = inline.iter().map(|(name, _)| name.as_str()).collect();
                path.push(name);
                found.push(path.join("/"));
            } else if next.starts_with('{') {
                inline.push((name.to_owned(), depth + 1));
            }
        }
        after_word = is_word(c);
        let step = if word.is_empty() {
            c.len_utf8()
        } else {
            after_word = true;
            word.len()
        };
        rest = &rest[step..];
    }
    found
}

/// Files named by `#[path = "…"]` or `include!("…")`.
fn named_files(text: &str) -> Vec<String> {
    let source = Source::scan(text);
    source
        .strings
        .iter()
        .filter(|literal| literal.text.ends_with(".rs"))
        .filter(|literal| {
            let before: String = source.code[..literal.offset].split_whitespace().collect();
            before.ends_with("#[path=") || before.ends_with("include!(")
        })
        .map(|literal| literal.text.clone())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mod_declarations_are_found_with_their_place() {
        assert_eq!(
            modules(
                "pub mod a;\nmod b { fn f() {} mod c; }\n#[cfg(test)]\nmod d;\n// mod e;\nmod r#fn;"
            ),
            ["a", "b/c", "d", "fn"]
        );
        assert!(modules("use x::modulo; let mode = 1; \"mod x;\"").is_empty());
    }

    #[test]
    fn files_are_reached_through_their_parents() {
        let files = [
            ("c/src/lib.rs", "mod a; mod b;"),
            ("c/src/a.rs", "mod deep;"),
            ("c/src/a/deep.rs", ""),
            ("c/src/b/mod.rs", "mod x; #[path = \"odd.rs\"] mod y;"),
            ("c/src/b/x.rs", ""),
            ("c/src/b/odd.rs", ""),
            ("c/src/dead.rs", "mod child;"),
            ("c/src/dead/child.rs", ""),
        ];
        let read = |path: &str| {
            files
                .iter()
                .find(|(name, _)| *name == path)
                .map(|(_, text)| *text)
        };
        let alive = reach(vec!["c/src/lib.rs".to_owned()], &read);
        assert_eq!(alive.len(), 6, "{alive:?}");
        assert!(!alive.contains("c/src/dead.rs"));
        assert!(!alive.contains("c/src/dead/child.rs"));
    }
}
