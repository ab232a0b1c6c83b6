//! `cargo xtask conformance`: docs/conformance.md, generated from the tests and the scenarios that prove it.
//!
//! Inputs: the numbered statements; the tests named after them (*rule*), and the list of those that need a part that
//! does not exist yet; the scenarios of the conformance kit that name them (*seen from outside*), and the list of
//! those that cannot be seen, with the reason. A statement is proven by a test and a scenario together.

mod proofs;
mod render;
mod scenarios;
mod tables;

use crate::repo::Repo;
use crate::wants_check;
use anyhow::{Context, Result, bail};
use proofs::Proof;
use scenarios::SeenBy;
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

Tests are looked for in crates/*/src, crates/*/tests and xtask. A scenario of the conformance kit
(conformance/**/*.yaml) shows from outside what it names: `statements: [C12, C15]`. A statement
counts as proven with both. A scenario with `known` shows what is wrong, so it does not count.

docs/conformance/statements.tsv  the statements: number, section, text
docs/conformance/later.tsv       those without a test: number, needs, reason
docs/conformance/unseen.tsv      those without a scenario: number, needs, reason
                                 (needs: a store, a server, an engine, a worker, a program, a door)

--check fails when a statement has neither a test nor a line in later.tsv, neither a scenario nor a
line in unseen.tsv, when it has both of a pair, when a test or a scenario names no statement, when a
test is no test, or when docs/conformance.md is not what would be written. Without --check the file
is written and the same findings are printed.
";

const STATEMENTS: &str = "docs/conformance/statements.tsv";
const LATER: &str = "docs/conformance/later.tsv";
const UNSEEN: &str = "docs/conformance/unseen.tsv";
const OUTPUT: &str = "docs/conformance.md";

/// Everything the page is made of.
#[derive(Debug)]
struct Facts {
    statements: Vec<Statement>,
    later: BTreeMap<Number, Later>,
    proofs: BTreeMap<Number, Vec<Proof>>,
    unseen: BTreeMap<Number, Later>,
    seen: BTreeMap<Number, Vec<SeenBy>>,
}

impl Facts {
    /// Whether a scenario shows the statement, and none says that it is wrong.
    fn is_seen(&self, number: Number) -> bool {
        let seen = self.seen.get(&number);
        seen.is_some_and(|it| !it.is_empty() && it.iter().all(|it| !it.is_known))
    }

    /// Whether the statement has a test and a scenario.
    fn is_proven(&self, number: Number) -> bool {
        self.proofs.contains_key(&number) && self.is_seen(number)
    }

    fn missing(&self) -> Vec<Number> {
        self.statements
            .iter()
            .map(|statement| statement.number)
            .filter(|number| !self.later.contains_key(number) && !self.proofs.contains_key(number))
            .collect()
    }

    /// Statements with neither a scenario nor a reason why there is none.
    fn unshown(&self) -> Vec<Number> {
        self.statements
            .iter()
            .map(|statement| statement.number)
            .filter(|number| !self.unseen.contains_key(number) && !self.seen.contains_key(number))
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
        for number in self.unseen.keys() {
            if !known(number) {
                lines.push(format!("{UNSEEN}: {number} is no statement"));
            } else if let Some(by) = self.seen.get(number).and_then(|it| it.first()) {
                lines.push(format!(
                    "{UNSEEN}: {number} has a scenario ({}); remove the line",
                    by.file
                ));
            }
        }
        for (number, seen) in &self.seen {
            if !known(number) {
                for by in seen {
                    lines.push(format!("{}: {number} is no statement", by.file));
                }
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
    let unseen = tables::later(&repo.read(UNSEEN)?).context(UNSEEN)?;
    let mut seen: BTreeMap<Number, Vec<SeenBy>> = BTreeMap::new();
    for path in repo.files()? {
        if !scenarios::is_scenario(&path) {
            continue;
        }
        match scenarios::find(&path, &repo.read(&path)?) {
            Ok(found) => {
                for (number, by) in found {
                    seen.entry(number).or_default().push(by);
                }
            }
            Err(problem) => problems.push(problem),
        }
    }
    for list in seen.values_mut() {
        list.sort();
        list.dedup();
    }
    let facts = Facts {
        statements,
        later,
        proofs,
        unseen,
        seen,
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
    let count = |holds: &dyn Fn(Number) -> bool| {
        let numbers = facts.statements.iter().map(|it| it.number);
        numbers.filter(|it| holds(*it)).count()
    };
    println!(
        "conformance: {} statements, {} with a test, {} seen from outside, {} proven",
        facts.statements.len(),
        count(&|it| facts.proofs.contains_key(&it)),
        count(&|it| facts.is_seen(it)),
        count(&|it| facts.is_proven(it)),
    );
    for problem in problems {
        println!("conformance: {problem}");
    }
    let missing = facts.missing();
    if !missing.is_empty() {
        println!("missing: {}", render::numbers(&missing));
    }
    let unshown = facts.unshown();
    if !unshown.is_empty() {
        println!("without a scenario: {}", render::numbers(&unshown));
    }
    if check && (!problems.is_empty() || !missing.is_empty() || !unshown.is_empty()) {
        bail!(
            "conformance: {} statements without a test, {} without a scenario, {} other findings",
            missing.len(),
            unshown.len(),
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
            unseen: BTreeMap::new(),
            seen: BTreeMap::new(),
        }
    }

    fn by(file: &str, is_known: bool) -> SeenBy {
        SeenBy {
            file: file.to_owned(),
            is_known,
        }
    }

    #[test]
    fn a_statement_is_proven_by_a_test_and_a_scenario_together() {
        let a1 = Number::parse("A1").unwrap();
        let mut facts = facts("", "a1_x");
        assert!(!facts.is_proven(a1));
        assert_eq!(facts.unshown().len(), 2);
        facts.seen.insert(a1, vec![by("conformance/x.yaml", false)]);
        assert!(facts.is_proven(a1));
        assert_eq!(facts.unshown(), [Number::parse("A2").unwrap()]);
        facts.seen.insert(a1, vec![by("conformance/x.yaml", true)]);
        assert!(!facts.is_proven(a1), "the scenario says that it is wrong");
        facts.unseen = tables::later("h\nA1\ta door\tnone\nA9\ta door\tnone\n").unwrap();
        assert_eq!(
            facts.contradictions().len(),
            2,
            "{:?}",
            facts.contradictions()
        );
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
        tables::later(&repo.read(UNSEEN).unwrap()).unwrap();
    }
}
