//! `cargo xtask conformance`: docs/conformance.md, generated from the tests that prove it.
//!
//! Three inputs: the numbered statements, the tests named after them, and the list of those that
//! need a part that does not exist yet. Every statement is in exactly one of the last two.

mod proofs;
mod render;
mod tables;

use crate::repo::Repo;
use crate::wants_check;
use anyhow::{Context, Result, bail};
use proofs::Proof;
use std::collections::BTreeMap;
use std::fs;
use tables::{Later, Number, Statement};

pub(crate) const HELP: &str = "\
Write docs/conformance.md from the tests, or check that it is complete and up to date.

Usage: cargo xtask conformance [--check]

A test proves a statement by its name: `fn c12_cancel_is_refused_when_terminal` with #[test]
proves C12. One that proves more says so in a comment right above it:

    // also proves: C15, C16
    #[test]
    fn c14_retry_leaves_the_old_attempt() { ... }

Tests are looked for in crates/*/src, crates/*/tests and xtask.
docs/conformance/statements.tsv  the statements: number, section, text
docs/conformance/later.tsv       those that wait for a part: number, needs, reason
                                 (needs: a store, a server, an engine, a worker)

--check fails when a statement has neither a test nor a line in later.tsv, when it has both,
when a test names no statement or is no test, or when docs/conformance.md is not what would
be written. Without --check the file is written and the same findings are printed.
";

const STATEMENTS: &str = "docs/conformance/statements.tsv";
const LATER: &str = "docs/conformance/later.tsv";
const OUTPUT: &str = "docs/conformance.md";

/// Everything the page is made of.
#[derive(Debug)]
struct Facts {
    statements: Vec<Statement>,
    later: BTreeMap<Number, Later>,
    proofs: BTreeMap<Number, Vec<Proof>>,
}

impl Facts {
    fn missing(&self) -> Vec<Number> {
        self.statements
            .iter()
            .map(|statement| statement.number)
            .filter(|number| !self.later.contains_key(number) && !self.proofs.contains_key(number))
            .collect()
    }

    /// Contradictions between the three inputs, one line each.
    fn contradictions(&self) -> Vec<String> {
        let known = |number: &Number| self.statements.iter().any(|it| it.number == *number);
        let mut lines = Vec::new();
        for number in self.later.keys() {
            if !known(number) {
                lines.push(format!("{LATER}: {number} is no statement"));
            } else if let Some(proof) = self.proofs.get(number).and_then(|it| it.first()) {
                lines.push(format!(
                    "{LATER}: {number} has a test ({} in {}); remove the line",
                    proof.test, proof.file
                ));
            }
        }
        for (number, proofs) in &self.proofs {
            if !known(number) {
                for proof in proofs {
                    lines.push(format!(
                        "{}: {} proves {number}, which is no statement",
                        proof.file, proof.test
                    ));
                }
            }
        }
        lines
    }
}

pub(crate) fn run(repo: &Repo, args: &[String]) -> Result<()> {
    let check = wants_check(args)?;
    let statements = tables::statements(&repo.read(STATEMENTS)?).context(STATEMENTS)?;
    let later = tables::later(&repo.read(LATER)?).context(LATER)?;
    let mut proofs: BTreeMap<Number, Vec<Proof>> = BTreeMap::new();
    let mut problems = Vec::new();
    for path in repo.rust_files()? {
        if !proofs::is_searched(&path) {
            continue;
        }
        let known = |number: Number| statements.iter().any(|it| it.number == number);
        let found = proofs::find(&path, &repo.read(&path)?, known);
        problems.extend(found.problems);
        for (number, proof) in found.proofs {
            proofs.entry(number).or_default().push(proof);
        }
    }
    for list in proofs.values_mut() {
        list.sort();
        list.dedup();
    }
    let facts = Facts {
        statements,
        later,
        proofs,
    };
    problems.extend(facts.contradictions());
    let page = render::page(&facts);

    if check {
        if repo.read(OUTPUT).unwrap_or_default() != page {
            problems.push(format!(
                "{OUTPUT} is out of date; `cargo xtask conformance` rewrites it"
            ));
        }
    } else {
        fs::write(repo.root.join(OUTPUT), &page)
            .with_context(|| format!("cannot write {OUTPUT}"))?;
    }
    report(&facts, &problems, check)
}

fn report(facts: &Facts, problems: &[String], check: bool) -> Result<()> {
    println!(
        "conformance: {} statements, {} proven, {} later",
        facts.statements.len(),
        facts.proofs.len(),
        facts.later.len()
    );
    for problem in problems {
        println!("conformance: {problem}");
    }
    let missing = facts.missing();
    if !missing.is_empty() {
        println!("missing: {}", render::numbers(&missing));
    }
    if check && (!problems.is_empty() || !missing.is_empty()) {
        bail!(
            "conformance: {} statements missing, {} other findings",
            missing.len(),
            problems.len()
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(later: &str, test: &str) -> Facts {
        let proof = Proof {
            file: "crates/kernel/src/x.rs".to_owned(),
            test: test.to_owned(),
        };
        let number = test.split('_').next().and_then(Number::parse).unwrap();
        Facts {
            statements: tables::statements(
                "number\tsection\tstatement\nA1\t§1\tOne.\nA2\t§1\tTwo.\n",
            )
            .unwrap(),
            later: tables::later(&format!("number\tneeds\treason\n{later}")).unwrap(),
            proofs: BTreeMap::from([(number, vec![proof])]),
        }
    }

    #[test]
    fn a_statement_is_proven_or_later_or_missing() {
        assert_eq!(facts("", "a1_x").missing(), [Number::parse("A2").unwrap()]);
        let complete = facts("A2\ta store\tbecause\n", "a1_x");
        assert!(complete.missing().is_empty());
        assert!(complete.contradictions().is_empty());
    }

    #[test]
    fn both_and_unknown_are_contradictions() {
        let both = facts("A1\ta store\tbecause\n", "a1_x").contradictions();
        assert_eq!(both.len(), 1, "{both:?}");
        assert!(both[0].contains("remove the line"));
        let unknown = facts("A9\ta store\tbecause\n", "a7_x").contradictions();
        assert_eq!(unknown.len(), 2, "{unknown:?}");
    }

    #[test]
    fn the_committed_tables_are_sound() {
        let repo = Repo::find().unwrap();
        let statements = tables::statements(&repo.read(STATEMENTS).unwrap()).unwrap();
        assert_eq!(statements.len(), 166);
        tables::later(&repo.read(LATER).unwrap()).unwrap();
    }
}
