//! Documents name only what exists: paths in backticks, and relative links.

use super::{Finding, Tree};
use crate::repo::Repo;

/// What a path of this repository begins with.
const ROOTS: &[&str] = &[
    "crates/",
    "docs/",
    "examples/",
    "fixtures/",
    "schemas/",
    "xtask/",
    "fuzz/",
    ".ci/",
];

/// Made by running things, so absent from a fresh checkout.
const MADE: &[&str] = &["fuzz/target", "fuzz/corpus", "fuzz/artifacts"];

pub(super) fn check(repo: &Repo, tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.files.iter().filter(|(path, _)| is_searched(path)) {
        for (line, named) in named_paths(text) {
            if !repo.exists(&named) {
                let message = format!("names `{named}`, which does not exist");
                findings.push(Finding::error(path, line, message));
            }
        }
        for (line, target) in links(text) {
            let resolved = resolve(path, &target);
            if !repo.exists(&resolved) {
                let message = format!("links to {target}, which does not exist");
                findings.push(Finding::error(path, line, message));
            }
        }
    }
    findings
}

fn is_searched(path: &str) -> bool {
    let in_root = !path.contains('/');
    path.ends_with(".md") && (in_root || path.starts_with("docs/"))
}

/// The lines outside fenced blocks, numbered from 1.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
            return None;
        }
        (!fenced).then_some((index + 1, line))
    })
}

/// Paths in backticks. Of a pattern (`crates/*/src`, `docs/errors/<CODE>.md`) the fixed folders at
/// its beginning; line numbers, anchors and item names are cut off.
fn named_paths(text: &str) -> Vec<(usize, String)> {
    let mut paths = Vec::new();
    for (line, text) in prose(text) {
        for span in text.split('`').skip(1).step_by(2) {
            if !ROOTS.iter().any(|root| span.starts_with(root))
                || span.contains(char::is_whitespace)
            {
                continue;
            }
            let span = span.split([':', '#']).next().unwrap_or_default();
            let fixed: Vec<&str> = span
                .split('/')
                .take_while(|part| !part.contains(['*', '<', '{', '…', '$', '?']))
                .take_while(|part| !part.contains("..."))
                .filter(|part| !part.is_empty())
                .collect();
            let path = fixed.join("/");
            if !path.is_empty() && !MADE.iter().any(|made| path.starts_with(made)) {
                paths.push((line, path));
            }
        }
    }
    paths
}

/// Targets of relative links, without anchors. Code spans hold no links.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut links = Vec::new();
    for (line, text) in prose(text) {
        let visible: String = text.split('`').step_by(2).collect::<Vec<_>>().join("`");
        for part in visible.split("](").skip(1) {
            let target = part.split([')', ' ']).next().unwrap_or_default();
            let target = target.split('#').next().unwrap_or_default();
            let outside = target.contains("://") || target.starts_with("mailto:");
            if !target.is_empty() && !outside {
                links.push((line, target.to_owned()));
            }
        }
    }
    links
}

/// A link's target as a path from the root.
fn resolve(document: &str, target: &str) -> String {
    let mut parts: Vec<&str> = match target.strip_prefix('/') {
        Some(_) => Vec::new(),
        None => document.split('/').collect(),
    };
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." if !parts.is_empty() => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(text: &str) -> Vec<String> {
        named_paths(text)
            .into_iter()
            .map(|(_, path)| path)
            .collect()
    }

    #[test]
    fn backticked_paths_are_found() {
        assert_eq!(
            paths("See `crates/kernel/src/decide.rs:12`, `docs/a.md#b` and `.ci/run`."),
            ["crates/kernel/src/decide.rs", "docs/a.md", ".ci/run"]
        );
    }

    #[test]
    fn patterns_are_cut_at_their_first_hole() {
        assert_eq!(
            paths("`crates/*/src` `docs/errors/<CODE>.md` `fuzz/corpus/x`"),
            ["crates", "docs/errors"]
        );
    }

    #[test]
    fn other_code_is_no_path() {
        assert!(paths("`a/b` `cargo run -p x` `crates/x y`").is_empty());
        assert!(paths("```\n`crates/none.rs`\n```\n").is_empty());
    }

    #[test]
    fn relative_links_are_resolved() {
        assert_eq!(
            links("[a](../README.md#top) [b](https://x.y/z) [c](#here) `[d](e.md)`"),
            [(1, "../README.md".to_owned())]
        );
        assert_eq!(resolve("docs/a/b.md", "../c.md"), "docs/c.md");
        assert_eq!(resolve("README.md", "./docs/c.md"), "docs/c.md");
        assert_eq!(resolve("docs/a.md", "/LICENSE"), "LICENSE");
    }

    #[test]
    fn links_whose_text_is_code_are_links() {
        assert_eq!(links("[`x`](y.rs)"), [(1, "y.rs".to_owned())]);
    }
}
