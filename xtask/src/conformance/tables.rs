//! The committed tables: the statements, those without a test, and those without a scenario.

use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::fmt;

/// The specifications in the order of the page: letter, name.
pub(super) const LETTERS: &[(char, &str)] = &[
    ('A', "actions"),
    ('D', "dag"),
    ('C', "contract"),
    ('P', "playbook"),
    ('L', "linear"),
];

/// The parts a statement may wait for.
const PARTS: &[&str] = &[
    "a store",
    "a server",
    "an engine",
    "a worker",
    "a program",
    "a door",
];

/// The number of a statement, such as `C12`. Sorts in the order of the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Number {
    /// The language, as an index into [`LETTERS`].
    letter: usize,
    count: u32,
}

impl Number {
    /// Reads `C12` or `c12`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut chars = text.chars();
        let first = chars.next()?.to_ascii_uppercase();
        let letter = LETTERS.iter().position(|(known, _)| *known == first)?;
        let digits = chars.as_str();
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let count = digits.parse().ok()?;
        Some(Self { letter, count })
    }

    pub(super) fn letter(self) -> char {
        LETTERS[self.letter].0
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.letter(), self.count)
    }
}

/// A statement of a specification, with the section that it comes from.
#[derive(Debug)]
pub(super) struct Statement {
    pub(super) number: Number,
    pub(super) section: String,
    pub(super) text: String,
}

/// Why a statement has no test, or no scenario, yet.
#[derive(Debug)]
pub(super) struct Later {
    pub(super) needs: String,
    pub(super) reason: String,
}

/// Reads statements.tsv; each letter counts from 1 without gaps, in order.
pub(super) fn statements(text: &str) -> Result<Vec<Statement>> {
    let mut statements: Vec<Statement> = Vec::new();
    for (number, section, text) in rows(text)? {
        let expected = match statements.last() {
            Some(last) if last.number.letter == number.letter => last.number.count + 1,
            _ => 1,
        };
        let moved_back = statements
            .last()
            .is_some_and(|last| number.letter < last.number.letter);
        if number.count != expected || moved_back {
            bail!("{number} is out of order");
        }
        statements.push(Statement {
            number,
            section: section.to_owned(),
            text: text.to_owned(),
        });
    }
    Ok(statements)
}

/// Reads later.tsv or unseen.tsv. Each entry must name a known part and give a reason.
pub(super) fn later(text: &str) -> Result<BTreeMap<Number, Later>> {
    let mut later = BTreeMap::new();
    for (number, needs, reason) in rows(text)? {
        if !PARTS.contains(&needs) {
            bail!("{number} needs `{needs}`; known are {}", PARTS.join(", "));
        }
        if reason.trim().is_empty() {
            bail!("{number} has no reason");
        }
        let entry = Later {
            needs: needs.to_owned(),
            reason: reason.to_owned(),
        };
        if later.insert(number, entry).is_some() {
            bail!("{number} is listed twice");
        }
    }
    Ok(later)
}

/// Rows of three cells below a header line.
fn rows(text: &str) -> Result<Vec<(Number, &str, &str)>> {
    let mut rows = Vec::new();
    for (index, line) in text.lines().enumerate().skip(1) {
        let place = || format!("line {}", index + 1);
        let cells: Vec<&str> = line.split('\t').collect();
        let [number, second, third] = cells[..] else {
            bail!("{}: {} cells instead of 3", place(), cells.len());
        };
        let number = Number::parse(number)
            .with_context(|| format!("{}: `{number}` is no number", place()))?;
        rows.push((number, second, third));
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_a_letter_and_digits() {
        assert_eq!(Number::parse("c12").unwrap().to_string(), "C12");
        for bad in ["", "C", "X1", "C1a", "1C", "C-1"] {
            assert!(Number::parse(bad).is_none(), "{bad}");
        }
        assert!(Number::parse("A10") > Number::parse("A9"));
        assert!(Number::parse("D1") < Number::parse("C1"), "page order");
    }

    #[test]
    fn statements_count_without_gaps() {
        let table = |numbers: &[&str]| {
            let rows: Vec<String> = numbers.iter().map(|n| format!("{n}\t§1\tText.")).collect();
            statements(&format!("head\n{}\n", rows.join("\n"))).map(|it| it.len())
        };
        assert_eq!(table(&["A1", "A2", "D1"]).unwrap(), 3);
        assert!(table(&["A1", "A3"]).is_err());
        assert!(table(&["A2"]).is_err());
        assert!(table(&["D1", "A1"]).is_err());
    }

    #[test]
    fn later_needs_a_known_part_and_a_reason() {
        let table = |row: &str| later(&format!("head\n{row}\n")).map(|it| it.len());
        assert_eq!(table("C2\ta store\tunique index").unwrap(), 1);
        assert!(table("C2\ta moon\tno").is_err());
        assert!(table("C2\ta store\t").is_err());
        assert!(table("C2\ta store").is_err());
        assert!(table("C2\ta store\tx\nC2\ta store\ty").is_err());
    }
}
