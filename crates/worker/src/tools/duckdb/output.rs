//! Reads what the program wrote: JSON for each statement that returns rows, and a line that counts
//! changes.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::{Map, Value as Json};

use super::process::DuckdbExit;
use super::script::{OutputPart, Script};
use crate::outcome::ToolError;
use crate::tools::sql::codes;
use crate::tools::sql::rows::{Budget, StatementResult, distinct, exact, iso};

/// The statement at which the script ended.
pub(super) enum DuckdbFailure {
    /// The program reported an error at the statement with this number, from 1; the number after the last is the
    /// commit.
    Statement(usize),
    /// The worker rejected the output of the statement with this number; the program reported no error.
    Ours(usize, ToolError),
}

/// The answers of all statements, if all were done.
pub(super) fn read(
    ended: &DuckdbExit,
    script: &Script,
    mut budget: Budget,
) -> Result<Vec<StatementResult>, DuckdbFailure> {
    let mark = format!("{}\n", script.mark);
    let mut sections: Vec<&str> = ended.output.split(mark.as_str()).collect();
    // What stands behind the last mark belongs to a statement that was not finished.
    sections.pop();
    let mut answers: Vec<StatementResult> = Vec::new();
    let mut columns = Vec::new();
    let mut changes = 0;
    for (part, section) in script.parts.iter().zip(&sections) {
        let number = answers.len() + 1;
        let ours = |error| DuckdbFailure::Ours(number, error);
        match part {
            OutputPart::Quiet => {}
            OutputPart::Columns => columns = described(section).map_err(ours)?,
            OutputPart::Rows => {
                let described = std::mem::take(&mut columns);
                let answer = answer(section, described, &mut changes, &mut budget);
                answers.push(answer.map_err(ours)?);
            }
        }
    }
    if ended.too_large {
        let used = budget.take(usize::MAX);
        return match used {
            Err(error) => Err(DuckdbFailure::Ours(answers.len() + 1, error)),
            Ok(()) => Err(DuckdbFailure::Statement(answers.len() + 1)),
        };
    }
    match ended.success && sections.len() == script.parts.len() {
        true => Ok(answers),
        false => Err(DuckdbFailure::Statement(answers.len() + 1)),
    }
}

/// A column and its type, as the engine names it.
type Column = (String, String);

fn described(section: &str) -> Result<Vec<Column>, ToolError> {
    let (rows, _) = rows(section)?;
    let text = |row: &DuckdbRow, name: &str| {
        let found = row.0.iter().find(|(column, _)| column == name);
        let text = found.and_then(|(_, value)| value.as_str());
        text.unwrap_or_default().to_owned()
    };
    let rows = rows.unwrap_or_default();
    let columns = rows.iter();
    Ok(columns
        .map(|row| (text(row, "column_name"), text(row, "column_type")))
        .collect())
}

fn answer(
    section: &str,
    described: Vec<Column>,
    changes: &mut u64,
    budget: &mut Budget,
) -> Result<StatementResult, ToolError> {
    budget.take(section.len())?;
    let (rows, total) = rows(section)?;
    let changed = total.saturating_sub(*changes);
    *changes = total.max(*changes);
    let Some(rows) = rows else {
        return Ok(StatementResult {
            row_count: changed,
            ..StatementResult::default()
        });
    };
    let columns = match rows.first() {
        Some(row) => distinct(row.0.iter().map(|(name, _)| name.as_str())),
        None => distinct(described.iter().map(|(name, _)| name.as_str())),
    };
    let row_count = rows.len() as u64;
    let rows = rows.into_iter().map(|row| {
        let values = row.0.into_iter().enumerate().map(|(at, (_, value))| {
            let kind = described.get(at).map_or("", |(_, kind)| kind.as_str());
            typed(value, kind)
        });
        let row: Map<String, Json> = columns.iter().cloned().zip(values).collect();
        Json::Object(row)
    });
    Ok(StatementResult {
        rows: Some(rows.collect()),
        columns: columns.clone(),
        row_count,
    })
}

/// Numbers that the program writes as text, and times.
fn typed(value: Json, kind: &str) -> Json {
    let number = [
        "DECIMAL(", "HUGEINT", "UHUGEINT", "BIGINT", "UBIGINT", "BIGNUM",
    ];
    let Json::String(text) = value else {
        return value;
    };
    if kind.ends_with(']') {
        text.into()
    } else if number.iter().any(|name| kind.starts_with(name)) {
        exact(&text)
    } else if kind.starts_with("TIMESTAMP") {
        iso(&text).into()
    } else {
        text.into()
    }
}

/// The rows of a section, if there are any to speak of, and how many rows were changed so far.
fn rows(section: &str) -> Result<(Option<Vec<DuckdbRow>>, u64), ToolError> {
    let mut json = section.trim_end();
    let mut total = 0;
    // Lines of JSON begin with a bracket, so this one is what we asked for.
    let (before, last) = json.rsplit_once('\n').unwrap_or(("", json));
    if last.starts_with("changes:") {
        let count = last.rsplit(' ').next().unwrap_or_default();
        total = count.parse().unwrap_or_default();
        json = before.trim();
    }
    if !json.starts_with('[') {
        return Ok((None, total));
    }
    let rows = serde_json::from_str(&quoted_words(json)).map_err(|error| {
        let message = format!("the program wrote what cannot be read as JSON: {error}");
        ToolError::invalid(codes::DUCKDB_ERROR, message)
    })?;
    Ok((Some(rows), total))
}

/// `NaN` and `Infinity` are no JSON; as text they are.
fn quoted_words(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    let mut rest = json;
    let mut inside = false;
    while let Some(c) = rest.chars().next() {
        let words = ["NaN", "-NaN", "Infinity", "-Infinity", "nan", "inf", "-inf"];
        let word = words
            .iter()
            .find(|word| !inside && rest.starts_with(**word));
        if let Some(word) = word {
            text.push_str(&format!("\"{word}\""));
            rest = &rest[word.len()..];
            continue;
        }
        let len = match (c, inside) {
            ('\\', true) => 1 + rest[1..].chars().next().map_or(0, char::len_utf8),
            _ => c.len_utf8(),
        };
        inside ^= c == '"';
        text.push_str(&rest[..len]);
        rest = &rest[len..];
    }
    text
}

/// A row whose columns keep their order, and their names if two are the same.
struct DuckdbRow(Vec<(String, Json)>);

impl<'de> Deserialize<'de> for DuckdbRow {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<DuckdbRow, D::Error> {
        deserializer.deserialize_map(RowVisitor)
    }
}

struct RowVisitor;

impl<'de> Visitor<'de> for RowVisitor {
    type Value = DuckdbRow;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a row")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<DuckdbRow, A::Error> {
        let mut columns = Vec::new();
        while let Some(column) = map.next_entry()? {
            columns.push(column);
        }
        Ok(DuckdbRow(columns))
    }
}
