//! The parity report: where engines differ from the first one, and the reason that is written for each difference.

use std::collections::BTreeMap;

use crate::kit::{KitResults, Verdict};
use crate::parity::{Agreement, ParityRow};

/// The lines between which a document has the report.
const BEGIN: &str =
    "<!-- parity: begin, written by `stepwell conformance --engine all --report` -->";
const END: &str = "<!-- parity: end -->";

/// The report of what engines do differently than the first column.
#[derive(Debug)]
pub struct ParityReport<'a> {
    /// None if no scenario was played.
    pub kit: Option<&'a KitResults>,
    pub definitions: &'a [ParityRow],
    /// Engines that were not there, with the reason.
    pub missing: &'a [(String, String)],
}

/// Differences of a column: the scenarios or definitions for each reason.
type Reasons = BTreeMap<(String, String), Vec<String>>;

impl ParityReport<'_> {
    /// Differences that have no reason, one line each.
    #[must_use]
    pub fn unexplained(&self) -> Vec<String> {
        let differs = self
            .definitions
            .iter()
            .filter_map(|row| match &row.agreement {
                Agreement::Differs(what) => {
                    Some(format!("{} on {}: {what}", row.definition, row.column))
                }
                Agreement::Same(_) | Agreement::Exempt(_) => None,
            });
        differs.collect()
    }

    /// What was found on each column, and every difference with its reason, as Markdown.
    #[must_use]
    pub fn markdown(&self) -> String {
        let mut text = String::from(
            "| engine | definitions with the same events | scenarios that passed | not played, or other |\n|---|---|---|---|\n",
        );
        for (name, line) in self.totals() {
            let (passed, others) = match self.kit {
                Some(_) => (line.1.to_string(), line.2.to_string()),
                None => ("not played".to_owned(), String::new()),
            };
            text.push_str(&format!("| {name} | {} | {passed} | {others} |\n", line.0));
        }
        for (name, why) in self.missing {
            text.push_str(&format!("| {name} | SKIPPED | SKIPPED | {why} |\n"));
        }
        let reasons = self.reasons();
        if reasons.is_empty() {
            return text;
        }
        text.push_str("\n| engine | reason | where |\n|---|---|---|\n");
        for ((column, reason), places) in reasons {
            let places: Vec<String> = places.iter().map(|it| format!("`{it}`")).collect();
            text.push_str(&format!(
                "| {column} | {} | {} |\n",
                reason.replace('|', "\\|"),
                places.join(", ")
            ));
        }
        text
    }

    /// A document with this report between its markers.
    pub fn written_into(&self, document: &str) -> Result<String, String> {
        let missing = || format!("the document has no lines `{BEGIN}` and `{END}`");
        let (head, rest) = document.split_once(BEGIN).ok_or_else(missing)?;
        let (_, tail) = rest.split_once(END).ok_or_else(missing)?;
        Ok(format!("{head}{BEGIN}\n\n{}\n{END}{tail}", self.markdown()))
    }

    /// For each column: definitions that agree, scenarios that passed, and the others.
    fn totals(&self) -> BTreeMap<String, (String, usize, usize)> {
        let mut totals: BTreeMap<String, (usize, usize, usize, usize)> = BTreeMap::new();
        for row in self.definitions {
            let total = totals.entry(row.column.clone()).or_default();
            total.1 += 1;
            total.0 += usize::from(matches!(row.agreement, Agreement::Same(_)));
        }
        for played in self.kit.iter().flat_map(|it| &it.played) {
            let Some(kit) = self.kit else { continue };
            let total = totals
                .entry(kit.columns[played.column].clone())
                .or_default();
            match played.verdict {
                Verdict::Passed => total.2 += 1,
                _ => total.3 += 1,
            }
        }
        let shown = totals.into_iter();
        shown
            .map(|(name, it)| (name, (format!("{} of {}", it.0, it.1), it.2, it.3)))
            .collect()
    }

    /// The differences, by column and reason.
    fn reasons(&self) -> Reasons {
        let mut reasons = Reasons::new();
        for row in self.definitions {
            if let Agreement::Exempt(reason) = row.agreement {
                let key = (row.column.clone(), reason.to_owned());
                reasons
                    .entry(key)
                    .or_default()
                    .push(row.definition.to_owned());
            }
        }
        let Some(kit) = self.kit else { return reasons };
        for played in kit.played.iter().filter(|it| it.column > 0) {
            let native = kit
                .played
                .iter()
                .find(|it| it.scenario == played.scenario && it.column == 0);
            let same = native.is_some_and(|it| it.verdict.word() == played.verdict.word());
            let reason = match &played.verdict {
                _ if same => continue,
                Verdict::NotApplicable(why) => why.trim_start_matches("exempt: ").to_owned(),
                Verdict::Known(why, _) => format!("known fault: {why}"),
                Verdict::Passed => {
                    "passes here, and is not played natively on this store".to_owned()
                }
                Verdict::Failed(_) | Verdict::Fixed(_) => "FAILED without a reason".to_owned(),
            };
            let key = (kit.columns[played.column].clone(), reason);
            let file = &kit.scenarios[played.scenario].file;
            let name = file.trim_end_matches(".yaml").to_owned();
            reasons.entry(key).or_default().push(name);
        }
        reasons
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test it is the shortest assertion")]
mod tests {
    use super::*;

    #[test]
    fn the_report_replaces_what_is_between_the_markers() {
        let row = |column: &str, agreement| ParityRow {
            definition: "dag",
            column: column.to_owned(),
            agreement,
        };
        let rows = [
            row("sqlite", Agreement::Same(7)),
            row("mock", Agreement::Exempt("simulated")),
            row("temporal", Agreement::Differs("a key".to_owned())),
        ];
        let report = ParityReport {
            kit: None,
            definitions: &rows,
            missing: &[("conductor".to_owned(), "not there".to_owned())],
        };
        let document = format!("before\n{BEGIN}\nold\n{END}\nafter\n");
        let written = report.written_into(&document).unwrap();
        assert!(written.starts_with("before\n") && written.ends_with("\nafter\n"));
        assert!(!written.contains("old") && written.contains("| mock | simulated | `dag` |"));
        assert!(written.contains("| conductor | SKIPPED"));
        assert_eq!(report.unexplained().len(), 1);
        assert!(report.written_into("nothing").is_err());
        // Written twice, it stays the same.
        assert_eq!(report.written_into(&written).unwrap(), written);
    }
}
