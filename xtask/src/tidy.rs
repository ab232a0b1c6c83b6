//! `cargo xtask tidy`: the rules of this repository that the compiler does not check.
//!
//! One file per rule. A rule takes text and returns findings, so that each rule is tested with strings;
//! only this file reads the checkout.

mod dead_files;
mod decision_numbers;
mod doc_items;
mod doc_paths;
mod error_codes;
mod file_size;
mod kernel_calls;
mod kernel_deps;
mod language_names;
mod layers;
mod machine_paths;
mod module_doc;
mod plain_words;
mod short_docs;
mod test_names;
mod type_names;

use crate::no_arguments;
use crate::repo::Repo;
use anyhow::{Result, bail};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;

pub(crate) const HELP: &str = "\
Rules of this repository that the compiler does not check.

Usage: cargo xtask tidy

  module-doc     every .rs file opens with a `//!` that describes its content
  kernel-calls   crates/kernel/src does no I/O, awaits nothing, reads no clock, draws no randomness
  kernel-deps    the kernel's dependency tree is on the list in xtask/src/tidy/kernel_deps.rs
  layers         crates depend inward only; no SQL and no HTTP in dialects and engine
  language-names no identifier in engine and stores names a language, no code there asks for it
  doc-paths      paths in backticks and links in the Markdown files exist
  doc-items      items in backticks (`crates/x/src/y.rs::name`) exist in that file
  file-size      at most 800 lines in a file of crates/*/src (a warning from 600)
  dead-files     every .rs file is reached by a `mod` from a crate root
  decisions      each decision has a number of its own, in its file name and in its title
  machine-paths  no absolute path of one machine in any file
  type-names     public types of different crates have different names
  plain-words    no phrases and type names of the list in xtask/src/tidy/plain_words.rs
  short-docs     no doc comment of one line and three words or fewer, except help texts and values
  test-names     tests are named after behaviour: no `test_` prefix; none is ignored
  error-codes    each code in the code has a page docs/errors/CODE.md with `## Cause` and
                 `## What to do`, or a section of the page of its tool, and each page has a code

Every finding is one line: path:line: what is wrong and how to fix it.
";

/// One violation of a rule.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) path: String,
    /// From 1; 0 for the file as a whole.
    pub(crate) line: usize,
    pub(crate) message: String,
    pub(crate) severity: Severity,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Severity {
    Error,
    Warning,
}

impl Finding {
    pub(crate) fn error(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self {
            path: path.to_owned(),
            line,
            message: message.into(),
            severity: Severity::Error,
        }
    }

    pub(crate) fn warning(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Warning,
            ..Self::error(path, line, message)
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path)?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        if self.severity == Severity::Warning {
            write!(f, ": warning")?;
        }
        write!(f, ": {}", self.message)
    }
}

/// The text files of the project by path, and the cargo metadata of the workspace.
#[derive(Debug)]
pub(crate) struct Tree {
    pub(crate) files: BTreeMap<String, String>,
    pub(crate) metadata: Value,
}

impl Tree {
    fn read(repo: &Repo) -> Result<Self> {
        let mut files = BTreeMap::new();
        for path in repo.files()? {
            // Binary files are not checked.
            if let Ok(text) = repo.read(&path) {
                files.insert(path, text);
            }
        }
        let metadata = repo.cargo_output(&["metadata", "--format-version=1", "--no-deps"])?;
        Ok(Self {
            files,
            metadata: serde_json::from_str(&metadata)?,
        })
    }

    /// The Rust files under a folder, or all of them for `""`.
    pub(crate) fn rust<'a>(
        &'a self,
        folder: &'a str,
    ) -> impl Iterator<Item = (&'a String, &'a String)> {
        self.files
            .iter()
            .filter(move |(path, _)| path.starts_with(folder) && path.ends_with(".rs"))
    }
}

type Rule = fn(&Repo, &Tree) -> Result<Vec<Finding>>;

const RULES: &[(&str, Rule)] = &[
    ("module-doc", |_, tree| Ok(module_doc::check(tree))),
    ("kernel-calls", |_, tree| Ok(kernel_calls::check(tree))),
    ("kernel-deps", |repo, _| kernel_deps::check(repo)),
    ("layers", |_, tree| Ok(layers::check(tree))),
    ("language-names", |_, tree| Ok(language_names::check(tree))),
    ("doc-paths", |repo, tree| Ok(doc_paths::check(repo, tree))),
    ("doc-items", |_, tree| Ok(doc_items::check(tree))),
    ("file-size", |_, tree| Ok(file_size::check(tree))),
    ("dead-files", |repo, tree| Ok(dead_files::check(repo, tree))),
    ("decisions", |_, tree| Ok(decision_numbers::check(tree))),
    ("machine-paths", |_, tree| Ok(machine_paths::check(tree))),
    ("type-names", |_, tree| Ok(type_names::check(tree))),
    ("plain-words", |_, tree| Ok(plain_words::check(tree))),
    ("short-docs", |_, tree| Ok(short_docs::check(tree))),
    ("test-names", |_, tree| Ok(test_names::check(tree))),
    ("error-codes", |_, tree| Ok(error_codes::check(tree))),
];

pub(crate) fn run(repo: &Repo, args: &[String]) -> Result<()> {
    no_arguments(args)?;
    let tree = Tree::read(repo)?;
    let mut broken = Vec::new();
    for (name, rule) in RULES {
        let findings = rule(repo, &tree)?;
        let errors = findings
            .iter()
            .filter(|finding| finding.severity == Severity::Error)
            .count();
        match (errors, findings.len() - errors) {
            (0, 0) => println!("tidy: {name:<14} ok"),
            (0, warnings) => println!("tidy: {name:<14} ok, {warnings} warnings"),
            (errors, _) => {
                println!("tidy: {name:<14} {errors} errors");
                broken.push(*name);
            }
        }
        for finding in findings {
            println!("  {finding}");
        }
    }
    if !broken.is_empty() {
        bail!("tidy: broken rules: {}", broken.join(", "));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_names_every_rule() {
        for (name, _) in RULES {
            assert!(HELP.contains(name), "{name}");
        }
    }

    #[test]
    fn a_finding_is_one_line() {
        assert_eq!(Finding::error("a.rs", 3, "no").to_string(), "a.rs:3: no");
        assert_eq!(
            Finding::warning("a.rs", 0, "long").to_string(),
            "a.rs: warning: long"
        );
    }
}
