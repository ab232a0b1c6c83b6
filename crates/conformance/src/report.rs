//! The table of statements and columns, the failures, and the same as JSON.

use std::collections::BTreeMap;

use serde_json::{Value as Json, json};

use crate::kit::{KitResults, Played, Verdict, statements};
use crate::scenario::Scenario;

impl Verdict {
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Verdict::Passed => "passed",
            Verdict::Known(..) => "known",
            Verdict::Failed(_) => "failed",
            Verdict::Fixed(_) => "fixed",
            Verdict::NotApplicable(_) => "n/a",
        }
    }
}

/// What a cell of the table says about several scenarios: the worst of them.
fn worst(words: &[&'static str]) -> &'static str {
    let order = ["failed", "fixed", "known", "passed", "n/a"];
    let found = order.into_iter().find(|it| words.contains(it));
    found.unwrap_or("-")
}

/// The rows of the table: every statement or promise that has a scenario, with one word for each column.
fn rows(results: &KitResults) -> Vec<(String, Vec<&'static str>)> {
    let mut words: BTreeMap<String, Vec<Vec<&'static str>>> = BTreeMap::new();
    for played in &results.played {
        let scenario = &results.scenarios[played.scenario];
        let names = scenario.statements.iter().chain(&scenario.promise);
        for name in names {
            let columns = words.entry(name.clone()).or_default();
            columns.resize(results.columns.len(), Vec::new());
            columns[played.column].push(played.verdict.word());
        }
    }
    let mut order: Vec<String> = statements().map(|(number, _)| number.to_owned()).collect();
    order.retain(|it| words.contains_key(it));
    let promises = words.keys().filter(|it| !order.contains(it)).cloned();
    let promises: Vec<String> = promises.collect();
    let row = |name: String| {
        let cells = words[&name].iter().map(|it| worst(it)).collect();
        (name, cells)
    };
    order.into_iter().chain(promises).map(row).collect()
}

/// One line about one scenario on one column.
pub(crate) fn line(scenario: &Scenario, column: &str, played: &Played) -> String {
    format!(
        "{:<7} {:<9} {:>6} ms  {}",
        played.verdict.word(),
        column,
        played.time.as_millis(),
        scenario.file
    )
}

pub(crate) fn text(results: &KitResults) -> String {
    let rows = rows(results);
    let width = rows.iter().map(|(name, _)| name.chars().count()).max();
    let width = width.unwrap_or(0).max("statement".len());
    let mut text = format!("{:<width$}", "statement");
    for column in &results.columns {
        text.push_str(&format!("  {column:<8}"));
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    for (name, cells) in &rows {
        let mut line = format!("{name:<width$}");
        for cell in cells {
            line.push_str(&format!("  {cell:<8}"));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    for played in &results.played {
        text.push_str(&failure(results, played));
    }
    text.push_str(&summary(results, &rows));
    text
}

fn failure(results: &KitResults, played: &Played) -> String {
    let scenario = &results.scenarios[played.scenario];
    let column = &results.columns[played.column];
    let (head, step) = match &played.verdict {
        Verdict::Failed(step) => ("failed".to_owned(), Some(step)),
        Verdict::Known(known, _) => (format!("known: {known}"), None),
        Verdict::Fixed(known) => (
            format!("passes although it says `known: {known}`; remove that line"),
            None,
        ),
        Verdict::Passed | Verdict::NotApplicable(_) => return String::new(),
    };
    let mut text = format!(
        "\n{} on {column}: {head}\n  {}\n",
        scenario.file, scenario.title
    );
    if let Some(step) = step {
        text.push_str(&format!(
            "  line {}: {}\n  {}\n",
            step.line, step.step, step.why
        ));
    }
    if let Some(folder) = &played.folder {
        text.push_str(&format!("  its files are in {}\n", folder.display()));
    }
    text
}

fn summary(results: &KitResults, rows: &[(String, Vec<&'static str>)]) -> String {
    let n = |word: &str| {
        let played = results.played.iter();
        played.filter(|it| it.verdict.word() == word).count()
    };
    let shown: Vec<&str> = rows.iter().map(|(name, _)| name.as_str()).collect();
    let all = statements().count();
    let with = statements()
        .filter(|(number, _)| shown.contains(number))
        .count();
    let mut text = format!(
        "\n{} scenarios on {} columns in {:.1} s: {} passed, {} failed, {} known, {} not applicable",
        results.scenarios.len(),
        results.columns.len(),
        results.time.as_secs_f64(),
        n("passed"),
        n("failed"),
        n("known"),
        n("n/a"),
    );
    if n("fixed") > 0 {
        text.push_str(&format!(", {} known that pass now", n("fixed")));
    }
    text.push_str(&format!(
        "\n{with} of {all} statements have a scenario here\n"
    ));
    text
}

pub(crate) fn json(results: &KitResults) -> Json {
    let scenarios: Vec<Json> = results
        .played
        .iter()
        .map(|played| {
            let scenario = &results.scenarios[played.scenario];
            let (reason, step) = match &played.verdict {
                Verdict::Passed => (None, None),
                Verdict::Failed(step) => (None, Some(step)),
                Verdict::Known(known, step) => (Some(known), Some(step)),
                Verdict::Fixed(why) | Verdict::NotApplicable(why) => (Some(why), None),
            };
            json!({
                "file": scenario.file,
                "title": scenario.title,
                "statements": scenario.statements,
                "promise": scenario.promise,
                "column": results.columns[played.column],
                "outcome": played.verdict.word(),
                "reason": reason,
                "milliseconds": u64::try_from(played.time.as_millis()).unwrap_or(u64::MAX),
                "failure": step.map(|it| json!({"line": it.line, "step": it.step, "why": it.why})),
            })
        })
        .collect();
    let table: Vec<Json> = rows(results)
        .into_iter()
        .map(|(name, cells)| {
            let cells: BTreeMap<&String, &str> = results.columns.iter().zip(cells).collect();
            json!({"statement": name, "columns": cells})
        })
        .collect();
    json!({
        "columns": results.columns,
        "milliseconds": u64::try_from(results.time.as_millis()).unwrap_or(u64::MAX),
        "good": results.is_good(),
        "table": table,
        "scenarios": scenarios,
    })
}
