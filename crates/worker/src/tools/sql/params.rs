//! Parameters of statements: which value belongs to which placeholder. Each database writes values in its own way.

use serde_json::{Map, Value as Json};

use super::scan::{Placeholder, SqlDialect, TokenKind, scan};
use super::{SqlStatement, codes};
use crate::outcome::ToolError;
use crate::tool::kind_of;

/// The field `params` of a task: absent, a list for numbered placeholders, or a map for named ones.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Params {
    None,
    List(Vec<Json>),
    Map(Map<String, Json>),
}

/// A statement whose placeholders were replaced.
#[derive(Debug)]
pub(crate) struct Rewritten {
    pub(crate) text: String,
    /// Where a stretch of the new text begins, and where it comes from; both in bytes.
    origins: Vec<(usize, usize)>,
}

impl Rewritten {
    /// The line of the original statement that a character of the new text comes from, from 0.
    pub(crate) fn line(&self, original: &str, character: usize) -> usize {
        let mut characters = self.text.char_indices();
        let byte = characters.nth(character).map_or(self.text.len(), |it| it.0);
        let before = self.origins.iter().rev().find(|(new, _)| *new <= byte);
        let (new, old) = before.copied().unwrap_or_default();
        let at = (old + byte - new).min(original.len());
        original.as_bytes()[..at]
            .iter()
            .filter(|byte| **byte == b'\n')
            .count()
    }
}

impl Params {
    /// Reads the field. A template may have made text of it.
    pub(crate) fn read(field: Option<&Json>) -> Result<Params, ToolError> {
        let parsed = match field {
            Some(Json::String(text)) => serde_json::from_str(text).ok(),
            other => other.cloned(),
        };
        match parsed {
            None if field.is_none() => Ok(Params::None),
            Some(Json::Null) => Ok(Params::None),
            Some(Json::Array(values)) => Ok(Params::List(values)),
            Some(Json::Object(values)) => Ok(Params::Map(values)),
            _ => Err(wrong(format!(
                "`params` must be a list or a mapping, it is {}",
                field.map_or("null", kind_of)
            ))),
        }
    }

    /// A message without the values, which databases like to repeat in quotes.
    pub(crate) fn hidden_in(&self, message: &str) -> String {
        let values: Vec<&Json> = match self {
            Params::None => Vec::new(),
            Params::List(values) => values.iter().collect(),
            Params::Map(values) => values.values().collect(),
        };
        let mut message = message.to_owned();
        for value in values {
            let text = value.as_str().map(str::to_owned);
            let text = text.unwrap_or_else(|| value.to_string());
            for quoted in [format!("\"{text}\""), format!("'{text}'")] {
                message = message.replace(&quoted, "(a parameter)");
            }
        }
        message
    }

    /// The value with this number, from 1.
    pub(crate) fn number(&self, number: usize) -> Result<&Json, ToolError> {
        let Params::List(values) = self else {
            return Err(wrong(format!(
                "parameter {number} is asked for, and `params` is no list"
            )));
        };
        let found = number.checked_sub(1).and_then(|at| values.get(at));
        found.ok_or_else(|| {
            let count = values.len();
            wrong(format!(
                "parameter {number} is asked for, and `params` has {count}"
            ))
        })
    }

    /// The value of this name.
    pub(crate) fn name(&self, name: &str) -> Result<&Json, ToolError> {
        let Params::Map(values) = self else {
            return Err(wrong(format!(
                "parameter `{name}` is asked for, and `params` is no mapping"
            )));
        };
        values
            .get(name)
            .ok_or_else(|| wrong(format!("parameter `{name}` is not in `params`")))
    }

    /// Puts something in the place of each placeholder that these parameters are for.
    pub(crate) fn rewrite<'p>(
        &'p self,
        statement: &SqlStatement,
        dialect: SqlDialect,
        mut write: impl FnMut(&Placeholder<'_>, &'p Json) -> Result<String, ToolError>,
    ) -> Result<Rewritten, ToolError> {
        let mut text = String::with_capacity(statement.text.len());
        let mut origins = Vec::new();
        let mut passed = 0;
        for token in scan(&statement.text, dialect) {
            let value = match token.kind {
                TokenKind::Placeholder(place) => {
                    self.at(place, &mut passed)?.map(|value| (place, value))
                }
                TokenKind::Blank
                | TokenKind::Quoted
                | TokenKind::Word
                | TokenKind::Semicolon
                | TokenKind::Other => None,
            };
            origins.push((text.len(), token.start));
            match value {
                Some((place, value)) => text.push_str(&write(&place, value)?),
                None => text.push_str(token.text),
            }
        }
        Ok(Rewritten { text, origins })
    }

    /// The value for a place, if parameters of this sort were given at all.
    fn at(&self, place: Placeholder<'_>, passed: &mut usize) -> Result<Option<&Json>, ToolError> {
        let value = match (self, place) {
            (Params::List(_), Placeholder::Number(number)) => self.number(number)?,
            (Params::List(_), Placeholder::Next) => {
                *passed += 1;
                self.number(*passed)?
            }
            (Params::Map(_), Placeholder::Name(name)) => self.name(name)?,
            (Params::None, _)
            | (Params::List(_), Placeholder::Name(_))
            | (Params::Map(_), Placeholder::Number(_) | Placeholder::Next) => return Ok(None),
        };
        Ok(Some(value))
    }
}

/// Something is wrong with the parameters.
pub(crate) fn wrong(message: impl Into<String>) -> ToolError {
    ToolError::invalid(codes::SQL_PARAMS, message)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    fn statement(text: &str) -> SqlStatement {
        SqlStatement {
            text: text.to_owned(),
            words: Vec::new(),
            shown: String::new(),
            line: 1,
        }
    }

    fn rewrite(text: &str, params: &Json) -> Result<Rewritten, ToolError> {
        let params = Params::read(Some(params))?;
        params.rewrite(&statement(text), SqlDialect::Postgres, |_, value| {
            Ok(value.to_string())
        })
    }

    #[test]
    fn only_placeholders_of_the_given_sort_are_replaced() {
        let by_name = rewrite("a = :a AND b = $1 AND c = %(a)s", &json!({"a": 7})).unwrap();
        assert_eq!(by_name.text, "a = 7 AND b = $1 AND c = 7");
        let by_number = rewrite("a = :a AND b = $1", &json!([8])).unwrap();
        assert_eq!(by_number.text, "a = :a AND b = 8");
        let as_text = rewrite("$1", &json!("[9]")).unwrap();
        assert_eq!(as_text.text, "9");
    }

    #[test]
    fn a_value_that_is_missing_is_told() {
        for (text, params) in [
            ("$2", json!([1])),
            ("$0", json!([1])),
            (":b", json!({"a": 1})),
        ] {
            let error = rewrite(text, &params).unwrap_err();
            assert_eq!(error.code, "SQL_PARAMS");
        }
        assert_eq!(rewrite("", &json!(3)).unwrap_err().code, "SQL_PARAMS");
    }

    #[test]
    fn values_are_kept_out_of_messages() {
        let params = Params::read(Some(&json!(["secret", 42]))).unwrap();
        let seen = params.hidden_in("no \"secret\", no '42', but 42");
        assert_eq!(seen, "no (a parameter), no (a parameter), but 42");
    }

    #[test]
    fn lines_are_those_of_the_original() {
        let text = "SELECT :a,\n :a,\n nonsense";
        let long = rewrite(text, &json!({"a": "x\n\n\n\n"})).unwrap();
        let at = long.text.find("nonsense").unwrap();
        assert_eq!(long.line(text, at), 2);
    }
}
