//! One value, read as text, a number, a duration, a list and so on.
//!
//! Here: [`Field`] and the wording of type errors. Not here: finding the value
//! in a mapping, which is [`crate::reader`], through which this is used.

use std::ops::RangeInclusive;

use serde_json::Value as Json;

use crate::codes;
use crate::duration::{self, DurationRule};
use crate::name::check_name;
use crate::problem::{Problem, Problems};
use crate::reader::Fields;
use crate::shape::{KnownFields, Row};
use crate::source::Span;
use crate::tree::{MapEntry, Node, Value};
use crate::words::{self, quote};

/// One value with the name it has in messages.
#[derive(Debug, Clone)]
pub struct Field<'n> {
    /// The name in messages, quoted: "`timeout`", "`steps[2]`".
    pub label: String,
    pub node: &'n Node,
    /// The row of the field in the table of its mapping; absent for a value that has no row.
    pub(crate) row: Option<&'static Row>,
}

impl<'n> Field<'n> {
    /// A value under a name of the caller's choice.
    pub fn new(label: impl Into<String>, node: &'n Node) -> Self {
        Field {
            label: label.into(),
            node,
            row: None,
        }
    }

    /// The value of a mapping's entry.
    #[must_use]
    pub fn of(entry: &'n MapEntry) -> Self {
        Field::new(quote(&entry.key), &entry.node)
    }

    /// Where the value stands.
    #[must_use]
    pub fn span(&self) -> Span {
        self.node.span
    }

    /// Reports an error about this value; the message follows its name.
    pub fn error<'p>(
        &self,
        code: &'static str,
        message: &str,
        p: &'p mut Problems,
    ) -> &'p mut Problem {
        p.error(code, self.node.span, format!("{} {message}", self.label))
    }

    /// Text that is not blank.
    pub fn string(&self, p: &mut Problems) -> Option<&'n str> {
        let text = self.text(p)?;
        if text.trim().is_empty() {
            self.error(codes::FIELD_VALUE, "must not be empty", p);
            return None;
        }
        Some(text)
    }

    /// Text, which may be empty.
    pub fn text(&self, p: &mut Problems) -> Option<&'n str> {
        let text = self.node.as_str();
        if text.is_none() {
            self.wrong_type("text", p);
        }
        text
    }

    /// Text, or a number or truth value written as text (`env` and the like).
    pub fn scalar_text(&self, p: &mut Problems) -> Option<String> {
        match &self.node.value {
            Value::Str(text) => Some(text.clone()),
            Value::Bool(value) => Some(value.to_string()),
            Value::Int(int) => Some(int.to_string()),
            Value::Float(float) => Some(float.to_string()),
            Value::Null => Some(String::new()),
            Value::Seq(_) | Value::Map(_) => {
                self.wrong_type("text, a number, true or false", p);
                None
            }
        }
    }

    /// The truth value; reports a problem if the value is anything else, also for the texts `yes` and `no`.
    pub fn bool(&self, p: &mut Problems) -> Option<bool> {
        let value = self.node.as_bool();
        if value.is_none() {
            self.wrong_type("true or false", p);
        }
        value
    }

    /// A whole number within `range`; a float without a fraction counts.
    pub fn int(&self, range: RangeInclusive<i64>, p: &mut Problems) -> Option<i64> {
        let int = match self.node.value {
            Value::Int(int) => int,
            // Whole and well below 2^63, so the cast is exact.
            Value::Float(float) if float.fract() == 0.0 && float.abs() < 9.0e15 => float as i64,
            Value::Null
            | Value::Bool(_)
            | Value::Float(_)
            | Value::Str(_)
            | Value::Seq(_)
            | Value::Map(_) => {
                self.wrong_type("a whole number", p);
                return None;
            }
        };
        if range.contains(&int) {
            return Some(int);
        }
        let (low, high) = (*range.start(), *range.end());
        let limits = match (low, high) {
            (low, i64::MAX) => format!("must be at least {low}, but is {int}"),
            (i64::MIN, high) => format!("must be at most {high}, but is {int}"),
            (low, high) => format!("must be from {low} to {high}, but is {int}"),
        };
        self.error(codes::FIELD_VALUE, &limits, p);
        None
    }

    /// A number with or without a fraction.
    pub fn number(&self, p: &mut Problems) -> Option<f64> {
        match self.node.value {
            Value::Int(int) => Some(int as f64),
            Value::Float(float) => Some(float),
            Value::Null | Value::Bool(_) | Value::Str(_) | Value::Seq(_) | Value::Map(_) => {
                self.wrong_type("a number", p);
                None
            }
        }
    }

    /// A length of time in milliseconds; `FIELD_DURATION` if it is none.
    pub fn duration(&self, rule: DurationRule, p: &mut Problems) -> Option<u64> {
        let bare = |number: f64| match rule.bare {
            Some(unit) => rule.check(number * unit.in_millis()),
            None => Err("needs a unit"),
        };
        let result = match &self.node.value {
            Value::Int(int) => bare(*int as f64),
            Value::Float(float) => bare(*float),
            Value::Str(text) if text.trim_start().starts_with('-') => Err("must not be negative"),
            Value::Str(text) => match duration::parse_text(text) {
                Some(millis) => rule.check(millis),
                None => Err("is not a duration"),
            },
            Value::Null | Value::Bool(_) | Value::Seq(_) | Value::Map(_) => {
                Err("must be a duration")
            }
        };
        match result {
            Ok(millis) => Some(millis),
            Err(why) => {
                let meant = self.node.as_str().and_then(duration::suggest);
                // What reads as a duration is wrong for another reason, which the suggestion shares.
                let meant = meant.filter(|it| self.node.as_str() != Some(it));
                let help = meant.map_or_else(
                    || rule.help().to_owned(),
                    |meant| format!("write {}", quote(&meant)),
                );
                self.error(codes::FIELD_DURATION, why, p).help(help);
                None
            }
        }
    }

    /// One of the allowed words; `FIELD_VALUE` for another.
    pub fn one_of(&self, allowed: &[&'static str], p: &mut Problems) -> Option<&'static str> {
        let text = self.text(p)?;
        if let Some(word) = allowed.iter().copied().find(|word| *word == text) {
            return Some(word);
        }
        let message = format!("must be {}, but is {}", words::one_of(allowed), quote(text));
        let near = words::nearest(text, allowed);
        self.error(codes::FIELD_VALUE, &message, p)
            .maybe_help(near.map(|near| format!("did you mean {}?", quote(near))));
        None
    }

    /// One of the words that the table allows.
    pub(crate) fn word(&self, p: &mut Problems) -> Option<&'static str> {
        self.one_of(self.row.map(Row::words).unwrap_or_default(), p)
    }

    /// A whole number within the limits of the table.
    pub(crate) fn whole(&self, p: &mut Problems) -> Option<i64> {
        let limits = self.row.map_or(i64::MIN..=i64::MAX, Row::limits);
        self.int(limits, p)
    }

    /// A length of time, written as the table allows.
    pub(crate) fn time(&self, p: &mut Problems) -> Option<u64> {
        self.duration(self.row.map_or(DurationRule::TEXT, Row::duration), p)
    }

    /// A mapping whose fields are in a table; messages call it by this field's name.
    pub(crate) fn known(
        &self,
        table: &'static KnownFields,
        p: &mut Problems,
    ) -> Option<Fields<'n>> {
        Fields::known(self.node, self.label.clone(), table, p)
    }

    /// The items of a list, each named after its place.
    pub fn list(&self, p: &mut Problems) -> Option<Vec<Field<'n>>> {
        let Some(items) = self.node.as_seq() else {
            self.wrong_type("a list", p);
            return None;
        };
        Some(self.items(items))
    }

    /// As [`Field::list`], but a single value counts as a list of one.
    #[must_use]
    pub fn list_or_one(&self) -> Vec<Field<'n>> {
        match self.node.as_seq() {
            Some(items) => self.items(items),
            None => vec![self.clone()],
        }
    }

    fn items(&self, items: &'n [Node]) -> Vec<Field<'n>> {
        let base = self.label.trim_matches('`');
        let label = |at: usize| format!("`{base}[{at}]`");
        let named = |(at, node)| Field::new(label(at), node);
        items.iter().enumerate().map(named).collect()
    }

    /// A list of texts that are not blank. Bad items are reported and left out.
    pub fn strings(&self, p: &mut Problems) -> Option<Vec<&'n str>> {
        let items = self.list(p)?;
        Some(items.iter().filter_map(|item| item.string(p)).collect())
    }

    /// A mapping with keys of the author's choice.
    pub fn map(&self, p: &mut Problems) -> Option<&'n [MapEntry]> {
        let entries = self.node.as_map();
        if entries.is_none() {
            self.wrong_type("a mapping", p);
        }
        entries
    }

    /// A mapping with known keys; messages call it by this field's name.
    pub fn fields(&self, p: &mut Problems) -> Option<Fields<'n>> {
        Fields::open(self.node, self.label.clone(), p)
    }

    /// The value as JSON, whatever it is.
    #[must_use]
    pub fn json(&self) -> Json {
        self.node.to_json()
    }

    /// A name; see [`check_name`].
    pub fn name(&self, p: &mut Problems) -> Option<&'n str> {
        self.text(p)?;
        check_name(self.node, p)
    }

    fn wrong_type(&self, expected: &str, p: &mut Problems) {
        wrong_type(&self.label, expected, self.node, p);
    }
}

/// `FIELD_TYPE`: says what was expected and what was found.
pub(crate) fn wrong_type(what: &str, expected: &str, node: &Node, p: &mut Problems) {
    let found = node.describe();
    let help = match (&node.value, expected) {
        (Value::Bool(_) | Value::Int(_) | Value::Float(_), "text") => {
            Some("put it in quotes".to_owned())
        }
        (Value::Str(text), "true or false") => match text.to_lowercase().as_str() {
            "yes" | "on" | "y" | "true" => Some("write `true`, without quotes".to_owned()),
            "no" | "off" | "n" | "false" => Some("write `false`, without quotes".to_owned()),
            _ => None,
        },
        (Value::Str(text), "a number" | "a whole number") if text.trim().parse::<f64>().is_ok() => {
            Some("remove the quotes".to_owned())
        }
        (Value::Map(_), "a list") => Some("begin each entry with `- `".to_owned()),
        _ => None,
    };
    p.error(
        codes::FIELD_TYPE,
        node.span,
        format!("{what} must be {expected}, but is {found}"),
    )
    .maybe_help(help);
}
