//! What statements answer, as the result of a task; and the bound that keeps it from growing.

use std::collections::HashSet;

use serde_json::{Map, Number, Value as Json, json};

use super::codes;
use crate::outcome::ToolError;

/// What one statement answered.
#[derive(Debug, Default)]
pub(crate) struct StatementResult {
    /// Nothing if the statement is of a kind that returns no rows.
    pub(crate) rows: Option<Vec<Json>>,
    pub(crate) columns: Vec<String>,
    /// Rows that were returned, or else changed.
    pub(crate) row_count: u64,
}

impl StatementResult {
    fn into_json(self) -> Json {
        let StatementResult {
            rows,
            columns,
            row_count,
        } = self;
        match rows {
            Some(rows) => json!({
                "status": "success",
                "rows": rows,
                "row_count": row_count,
                "columns": columns,
            }),
            None => json!({
                "status": "success",
                "rows": [],
                "row_count": row_count,
                "columns": [],
                "message": format!("{row_count} rows affected"),
            }),
        }
    }
}

/// The result of a task: each statement's answer as `command_N`, the last rows at the top, and all
/// again below `result`, where many files look for it.
pub(crate) fn result(answers: Vec<StatementResult>) -> Json {
    let last = answers.iter().rposition(|answer| answer.rows.is_some());
    let last = last.or(answers.len().checked_sub(1)).unwrap_or_default();
    let mut commands = Map::new();
    for (number, answer) in answers.into_iter().enumerate() {
        commands.insert(format!("command_{number}"), answer.into_json());
    }
    let shown = commands.get(&format!("command_{last}"));
    let part = |name: &str| shown.and_then(|it| it.get(name)).cloned();
    let mut top = Map::new();
    for name in ["rows", "row_count", "columns"] {
        top.insert(name.to_owned(), part(name).unwrap_or_default());
    }
    // Files read rows in each of these ways, and must not begin to fail when there are more of them.
    top.insert("result".into(), Json::Object(commands.clone()));
    top.extend(commands);
    Json::Object(top)
}

/// Names for the columns of a row, each once: a second `id` becomes `id_2`.
pub(crate) fn distinct<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let mut taken = HashSet::new();
    let names = names.into_iter().map(|name| {
        let mut distinct = name.to_owned();
        let mut number = 1;
        while !taken.insert(distinct.clone()) {
            number += 1;
            distinct = format!("{name}_{number}");
        }
        distinct
    });
    names.collect()
}

/// How much the rows of a task may still take.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: usize,
    left: usize,
}

impl Budget {
    pub(crate) fn new(limit: usize) -> Budget {
        Budget { limit, left: limit }
    }

    /// Takes from it; an error when nothing is left.
    pub(crate) fn take(&mut self, bytes: usize) -> Result<(), ToolError> {
        self.left = self.left.checked_sub(bytes).ok_or_else(|| {
            let limit = self.limit;
            ToolError::invalid(
                codes::SQL_TOO_LARGE,
                format!(
                    "the rows are more than the {limit} bytes that a result may have; \
                     ask for fewer with WHERE or LIMIT, or keep them in a table"
                ),
            )
        })?;
        Ok(())
    }

    /// Takes what a value with the name of its column needs, roughly as JSON.
    pub(crate) fn value(&mut self, column: &str, bytes: usize) -> Result<(), ToolError> {
        self.take(column.len() + bytes + 6)
    }
}

/// A decimal number as a JSON number if that keeps every digit, else as the text that it was.
pub(crate) fn exact(text: &str) -> Json {
    if let Ok(whole) = text.parse::<i64>() {
        return whole.into();
    }
    if let Ok(whole) = text.parse::<u64>() {
        return whole.into();
    }
    let parsed = text.parse::<f64>().ok();
    let number = parsed.filter(|it| plain(&it.to_string()) == plain(text));
    match number.and_then(Number::from_f64) {
        Some(number) => Json::Number(number),
        None => text.into(),
    }
}

/// A decimal without zeros that mean nothing.
fn plain(text: &str) -> &str {
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.'),
        false => text,
    }
}

/// A floating number as JSON, or as the text that it was if JSON has none like it.
pub(crate) fn float(text: &str) -> Json {
    let parsed = text.parse().ok().and_then(Number::from_f64);
    parsed.map_or_else(|| text.into(), Json::Number)
}

/// `2024-01-02 03:04:05+00` as ISO 8601 has it. What is not of that form stays as it is.
pub(crate) fn iso(text: &str) -> String {
    let dated = text.len() > 18
        && text.is_ascii()
        && text.as_bytes()[10] == b' '
        && text.as_bytes()[13] == b':'
        && !text.ends_with("BC");
    if !dated {
        return text.to_owned();
    }
    let zone = text[11..].find(['+', '-']).map(|at| &text[11 + at..]);
    let minutes = match zone {
        Some(zone) if zone.len() == 3 => ":00",
        _ => "",
    };
    format!("{}T{}{minutes}", &text[..10], &text[11..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(count: usize) -> StatementResult {
        StatementResult {
            rows: Some(vec![json!({"a": 1}); count]),
            columns: vec!["a".into()],
            row_count: count as u64,
        }
    }

    #[test]
    fn few_rows_are_found_wherever_files_look() {
        let changed = StatementResult {
            row_count: 5,
            ..StatementResult::default()
        };
        let seen = result(vec![rows(2), changed]);
        assert_eq!(seen["command_0"]["rows"], seen["rows"]);
        assert_eq!(seen["result"]["command_0"]["rows"][1]["a"], 1);
        assert_eq!(
            (&seen["row_count"], &seen["columns"]),
            (&json!(2), &json!(["a"]))
        );
        assert_eq!(seen["command_1"]["row_count"], 5);
    }

    #[test]
    fn without_rows_the_count_is_the_last_statements() {
        let changed = |row_count| StatementResult {
            row_count,
            ..StatementResult::default()
        };
        let seen = result(vec![changed(3), changed(4)]);
        assert_eq!((&seen["row_count"], &seen["rows"]), (&json!(4), &json!([])));
    }

    #[test]
    fn a_decimal_is_a_number_only_if_no_digit_is_lost() {
        assert_eq!(exact("9007199254740993"), json!(9_007_199_254_740_993_i64));
        assert_eq!(exact("1.50"), json!(1.5));
        assert_eq!(exact("-0.1"), json!(-0.1));
        for text in ["0.12345678901234567890", "99999999999999999999999", "NaN"] {
            assert_eq!(exact(text), json!(text));
        }
    }

    #[test]
    fn times_are_written_as_iso_has_them() {
        assert_eq!(iso("2024-01-02 03:04:05.5"), "2024-01-02T03:04:05.5");
        assert_eq!(iso("2024-01-02 03:04:05+00"), "2024-01-02T03:04:05+00:00");
        assert_eq!(
            iso("2024-01-02 03:04:05-05:30"),
            "2024-01-02T03:04:05-05:30"
        );
        for other in ["infinity", "0044-03-15 00:00:00 BC", "2024-01-02"] {
            assert_eq!(iso(other), other);
        }
    }

    #[test]
    fn columns_of_one_name_are_kept_apart() {
        assert_eq!(
            distinct(["id", "id", "id_2", "id"]),
            ["id", "id_2", "id_2_2", "id_3"]
        );
    }
}
