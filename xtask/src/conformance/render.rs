//! The page itself. Same facts, same bytes: no dates, no line numbers, nothing that drifts.

use super::Facts;
use super::proofs::Proof;
use super::tables::{LETTERS, Number, Statement};
use std::fmt::Write as _;

const HEAD: &str = "\
<!-- Written by `cargo xtask conformance`. Do not edit: change a test or a table, and run it. -->
# Conformance

What must hold, statement by statement, and what proves it: *rule* are tests of the rule itself, in the
kernel or in a part; *seen from outside* are scenarios of the [conformance kit](../conformance/README.md),
which see it through the binary. A statement counts as proven with both. `†` marks a place where a
specification is ambiguous, silent or contradicts itself; the statement records the reading chosen
here. *Later* and *not seen* name the part that a statement waits for.

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
        page.push_str("| no. | statement | section | rule | seen from outside |\n");
        page.push_str("|---|---|---|---|---|\n");
        for statement in rows {
            let _ = writeln!(
                page,
                "| {} | {} | {} | {} | {} |",
                statement.number,
                cell(&statement.text),
                cell(&statement.section),
                proof(facts, statement.number),
                seen(facts, statement.number)
            );
        }
    }
    let missing = facts.missing();
    if !missing.is_empty() {
        let _ = write!(page, "\n## Missing\n\nmissing: {}\n", numbers(&missing));
    }
    page
}

/// The numbers as a list for the page: `A1, A2, C7`.
pub(super) fn numbers(numbers: &[Number]) -> String {
    let shown: Vec<String> = numbers.iter().map(Number::to_string).collect();
    shown.join(", ")
}

fn summary(page: &mut String, facts: &Facts) {
    page.push_str("| language | statements | rule | seen from outside | proven |\n");
    page.push_str("|---|---:|---:|---:|---:|\n");
    let mut total = [0; 4];
    for (letter, name) in LETTERS {
        let count = |holds: &dyn Fn(Number) -> bool| {
            let numbers = of_letter(facts, *letter).map(|it| it.number);
            numbers.filter(|it| holds(*it)).count()
        };
        let counts = [
            count(&|_| true),
            count(&|it| facts.proofs.contains_key(&it)),
            count(&|it| facts.is_seen(it)),
            count(&|it| facts.is_proven(it)),
        ];
        let [all, rule, seen, proven] = counts;
        let _ = writeln!(
            page,
            "| {letter}: {name} | {all} | {rule} | {seen} | {proven} |"
        );
        for (sum, count) in total.iter_mut().zip(counts) {
            *sum += count;
        }
    }
    let [all, rule, seen, proven] = total;
    let _ = writeln!(page, "| all | {all} | {rule} | {seen} | {proven} |");
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

fn seen(facts: &Facts, number: Number) -> String {
    if let Some(seen) = facts.seen.get(&number) {
        let links = seen.iter().map(|by| {
            let name = by.file.trim_start_matches("conformance/");
            let name = name.trim_end_matches(".yaml");
            let mark = if by.is_known { " (fails today)" } else { "" };
            format!("[{name}](../{}){mark}", by.file)
        });
        let links: Vec<String> = links.collect();
        return links.join("<br>");
    }
    match facts.unseen.get(&number) {
        Some(unseen) => format!(
            "not seen: needs {} ({})",
            unseen.needs,
            cell(&unseen.reason)
        ),
        None => "**none**".to_owned(),
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
    use super::super::scenarios::SeenBy;
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
            unseen: tables::later("h\nA2\ta door\tnone\n").unwrap(),
            seen: BTreeMap::from([(
                Number::parse("A1").unwrap(),
                vec![SeenBy {
                    file: "conformance/actions/a1.yaml".to_owned(),
                    is_known: false,
                }],
            )]),
        };
        let page = page(&facts);
        for line in [
            "| A1 | A `a\\|b` MUST. | §1 | [`a1_x`](../crates/kernel/src/x.rs) | [actions/a1](../conformance/actions/a1.yaml) |",
            "| A2 | Two. | §2 | later: needs a store (rows) | not seen: needs a door (none) |",
            "| A3 | Three. | §3 | **missing** | **none** |",
            "| all | 3 | 1 | 1 | 1 |",
            "missing: A3",
        ] {
            assert!(page.lines().any(|it| it == line), "{line}\n{page}");
        }
    }
}
