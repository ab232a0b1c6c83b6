//! A type name has one meaning: public types of different crates have different names.

use super::{Finding, Tree};
use crate::source::Source;
use std::collections::BTreeMap;

/// Names that several crates may use, with the reason.
const SHARED: &[(&str, &str)] = &[
    ("Config", "always written with its module: `outbox::Config`"),
    (
        "Error",
        "the error type of a crate's boundary, written as `engine::Error`",
    ),
    ("Options", "always written with its module: `sim::Options`"),
    (
        "PostgresOptions",
        "options of the PostgreSQL store, and of the PostgreSQL tool",
    ),
    (
        "Reply",
        "the reply of the kernel to a command, and the reply of a handler to its job",
    ),
    (
        "SqliteOptions",
        "options of the SQLite store, and of the SQLite tool",
    ),
];

/// Where a name was defined first.
type Places<'a> = BTreeMap<String, Vec<(&'a str, usize)>>;

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let files = tree
        .files
        .iter()
        .map(|(path, text)| (path.as_str(), text.as_str()));
    repeated(files, SHARED)
}

fn repeated<'a>(
    files: impl Iterator<Item = (&'a str, &'a str)>,
    shared: &[(&str, &str)],
) -> Vec<Finding> {
    let mut places: Places<'a> = BTreeMap::new();
    for (path, text) in files {
        if crate_of(path).is_some() && path.ends_with(".rs") {
            for (line, name) in public_types(text) {
                places.entry(name).or_default().push((path, line));
            }
        }
    }
    let mut findings = Vec::new();
    for (name, places) in &places {
        let (first, rest) = match places.split_first() {
            Some(((first, _), rest)) => (*first, rest),
            None => continue,
        };
        if shared.iter().any(|(known, _)| known == name) {
            continue;
        }
        for (path, line) in rest.iter().filter(|it| crate_of(it.0) != crate_of(first)) {
            let message = format!("the public type {name} has the name of a type in {first}");
            findings.push(Finding::error(path, *line, message));
        }
    }
    for (name, _) in shared
        .iter()
        .filter(|(name, _)| !places.contains_key(*name))
    {
        let message = format!("no public type is called {name}; remove it from the list");
        findings.push(Finding::error("xtask/src/tidy/type_names.rs", 0, message));
    }
    findings
}

/// The crate of a source file; none for tests, benches and other files.
fn crate_of(path: &str) -> Option<&str> {
    let (name, rest) = path.strip_prefix("crates/")?.split_once('/')?;
    rest.starts_with("src/").then_some(name)
}

/// Types that are `pub`, with their lines; not those of the unit tests.
fn public_types(text: &str) -> Vec<(usize, String)> {
    let source = Source::scan(text);
    let code = &source.code[..source.tests_start().min(source.code.len())];
    let mut types = Vec::new();
    for (index, line) in code.lines().enumerate() {
        let mut words = line.split_whitespace();
        let is_public = words.next() == Some("pub");
        let is_type = |word: &str| matches!(word, "struct" | "enum" | "trait" | "type" | "union");
        if is_public && words.next().is_some_and(is_type) {
            let name = words.next().unwrap_or_default();
            let name = name
                .split(|c: char| !c.is_alphanumeric() && c != '_')
                .next();
            // A type that a macro defines has no name here: `pub enum $enum`.
            let name = name.filter(|name| !name.is_empty());
            types.extend(name.map(|name| (index + 1, name.to_owned())));
        }
    }
    types
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_in_two_crates_is_found() {
        let files = [
            (
                "crates/a/src/lib.rs",
                "//! A.\npub struct Place;\npub struct Own<T>(T);\n",
            ),
            (
                "crates/b/src/x.rs",
                "pub enum Place {}\npub(crate) struct Own;\n",
            ),
        ];
        let found = repeated(files.into_iter(), &[]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(
            (found[0].path.as_str(), found[0].line),
            ("crates/b/src/x.rs", 1)
        );
        assert!(repeated(files.into_iter(), &[("Place", "why")]).is_empty());
    }

    #[test]
    fn an_entry_of_the_list_that_is_not_needed_is_found() {
        let files = [("crates/a/src/lib.rs", "pub struct One;")];
        assert_eq!(repeated(files.into_iter(), &[("Two", "why")]).len(), 1);
    }

    #[test]
    fn tests_and_private_types_do_not_count() {
        let tests = "#[cfg(test)]\nmod tests {\n    pub struct Place;\n}\n";
        assert!(public_types(tests).is_empty());
        assert!(public_types("struct Place;\n// pub struct Place;\n").is_empty());
        assert!(public_types("pub enum $enum {}\n").is_empty());
        assert_eq!(crate_of("crates/a/tests/it/main.rs"), None);
    }
}
