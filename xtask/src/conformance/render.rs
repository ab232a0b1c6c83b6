//! The page itself. Same facts, same bytes: no dates, no line numbers, nothing that drifts.

use super::Facts;
use super::proofs::Proof;
use super::tables::{LETTERS, Number, Statement};
use std::fmt::Write as _;

const HEAD: &str = "\
<!-- Written by `cargo xtask conformance`. Do not edit: change a test or a table, and run it. -->
# Conformance

What must hold, statement by statement, and the tests that prove it. `†` marks a place where a
specification is ambiguous, silent or contradicts itself; the statement records the reading chosen
here. *Later* names the part that a statement waits for.

";

pub(super) fn page(facts: &Facts) -> String {
    let mut page = HEAD.to_owned();
    summary(&mut page, facts);
    for (letter, name) in LETTERS {
        let rows: Vec<&Statement> = of_letter(facts, *letter).collect();
        if rows.is_empty() {
            continue;
        }
        page.push_str(&format!("\n## {letter}: {name}\n\n"));
        page.push_str("| no. | statement | section | proof |\n|---|---|---|---|\n");
        for statement in rows {
            let _ = writeln!(
                page,
                "| {} | {} | {} | {} |",
                statement.number,
                cell(&statement.text),
                cell(&statement.section),
                proof(facts, statement.number)
            );
        }
    }
    let missing = facts.missing();
    if !missing.is_empty() {
        let _ = write!(page, "\n## Missing\n\nmissing: {}\n", numbers(&missing));
    }
    page
}

/// `A1, A2, C7`.
pub(super) fn numbers(numbers: &[Number]) -> String {
    let shown: Vec<String> = numbers.iter().map(Number::to_string).collect();
    shown.join(", ")
}

fn summary(page: &mut String, facts: &Facts) {
    page.push_str("| language | statements | proven | later |\n|---|---:|---:|---:|\n");
    let mut total = (0, 0, 0);
    for (letter, name) in LETTERS {
        let all = of_letter(facts, *letter).count();
        let proven = of_letter(facts, *letter)
            .filter(|it| facts.proofs.contains_key(&it.number))
            .count();
        let later = of_letter(facts, *letter)
            .filter(|it| facts.later.contains_key(&it.number))
            .count();
        let _ = writeln!(page, "| {letter}: {name} | {all} | {proven} | {later} |");
        total = (total.0 + all, total.1 + proven, total.2 + later);
    }
    let _ = writeln!(page, "| all | {} | {} | {} |", total.0, total.1, total.2);
}

fn of_letter(facts: &Facts, letter: char) -> impl Iterator<Item = &Statement> {
    facts
        .statements
        .iter()
        .filter(move |statement| statement.number.letter() == letter)
}

fn proof(facts: &Facts, number: Number) -> String {
    if let Some(proofs) = facts.proofs.get(&number) {
        let links: Vec<String> = proofs.iter().map(link).collect();
        return links.join("<br>");
    }
    match facts.later.get(&number) {
        Some(later) => format!("later: needs {} ({})", later.needs, cell(&later.reason)),
        None => "**missing**".to_owned(),
    }
}

fn link(proof: &Proof) -> String {
    format!("[`{}`](../{})", proof.test, proof.file)
}

/// A bare `|` would end the cell, in code too.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::super::tables;
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn the_page_shows_proven_later_and_missing() {
        let statements = "h\nA1\t§1\tA `a|b` MUST.\nA2\t§2\tTwo.\nA3\t§3\tThree.\n";
        let proof = Proof {
            file: "crates/kernel/src/x.rs".to_owned(),
            test: "a1_x".to_owned(),
        };
        let facts = Facts {
            statements: tables::statements(statements).unwrap(),
            later: tables::later("h\nA2\ta store\trows\n").unwrap(),
            proofs: BTreeMap::from([(Number::parse("A1").unwrap(), vec![proof])]),
        };
        let page = page(&facts);
        for line in [
            "| A1 | A `a\\|b` MUST. | §1 | [`a1_x`](../crates/kernel/src/x.rs) |",
            "| A2 | Two. | §2 | later: needs a store (rows) |",
            "| A3 | Three. | §3 | **missing** |",
            "| all | 3 | 1 | 1 |",
            "missing: A3",
        ] {
            assert!(page.lines().any(|it| it == line), "{line}\n{page}");
        }
    }
}
