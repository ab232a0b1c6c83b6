//! No file contains an absolute path of one machine.

use super::{Finding, Tree};

/// Written in two parts, so that this file keeps its own rule.
const PLACES: &[&str] = &[
    concat!("/", "work/"),
    concat!("/", "root/"),
    concat!("/", "home/"),
    concat!("/", "Users/"),
];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in &tree.files {
        for (line, place) in machine_paths(text) {
            let message = format!("names {place}, a place on one machine; use a relative path");
            findings.push(Finding::error(path, line, message));
        }
    }
    findings
}

/// Absolute paths only: `src/work/mod.rs` and `https://x.org/home/` are none.
fn machine_paths(text: &str) -> Vec<(usize, &'static str)> {
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        for place in PLACES {
            let absolute = line.match_indices(place).any(|(at, _)| {
                let before = line[..at].chars().next_back();
                !before.is_some_and(|c| c.is_alphanumeric() || "._-/*})]>".contains(c))
            });
            if absolute {
                found.push((index + 1, *place));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absolute_paths_are_found() {
        for place in PLACES {
            let text = format!("a\npath = \"{place}x\"");
            assert_eq!(machine_paths(&text), [(2, *place)]);
        }
    }

    #[test]
    fn folders_of_the_same_name_are_not() {
        for place in PLACES {
            for before in ["src", "https://x.org", "..", "{root}", "*"] {
                assert!(machine_paths(&format!("{before}{place}x")).is_empty());
            }
        }
    }
}
