//! Values between JSON and PostgreSQL, both ways as the server's own text: it knows every type, and
//! so nothing has to be known here about most of them.

use serde_json::{Map, Value as Json};
use tokio_postgres::types::{Kind, Type};

use crate::outcome::ToolError;
use crate::tools::sql::params::wrong;
use crate::tools::sql::rows::{exact, float, iso};

/// A value that the server sent, as JSON.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the kinds of the library; a new one is text, as every type can be"
)]
pub(super) fn to_json(text: &str, kind: &Type) -> Json {
    match kind.kind() {
        Kind::Array(member) => array(text, member).unwrap_or_else(|| text.into()),
        Kind::Domain(base) => to_json(text, base),
        _ => scalar(text, kind),
    }
}

fn scalar(text: &str, kind: &Type) -> Json {
    match *kind {
        Type::BOOL => Json::Bool(text == "t"),
        Type::INT2 | Type::INT4 | Type::INT8 | Type::OID | Type::NUMERIC => exact(text),
        Type::FLOAT4 | Type::FLOAT8 => float(text),
        Type::JSON | Type::JSONB => serde_json::from_str(text).unwrap_or_else(|_| text.into()),
        Type::TIMESTAMP | Type::TIMESTAMPTZ => iso(text).into(),
        _ => text.into(),
    }
}

/// Reads the text form of an array: `{1,NULL,"a b",{…}}`. None if the text is not valid.
fn array(text: &str, member: &Type) -> Option<Json> {
    // Bounds other than from 1 are written before it: `[0:1]={a,b}`.
    let text = match text.starts_with('[') {
        true => text.split_once('=')?.1,
        false => text,
    };
    let delimiter = if *member == Type::BOX { ';' } else { ',' };
    let mut reader = Array {
        rest: text,
        member,
        delimiter,
    };
    let list = reader.list()?;
    reader.rest.is_empty().then_some(list)
}

struct Array<'a> {
    rest: &'a str,
    member: &'a Type,
    delimiter: char,
}

impl Array<'_> {
    fn eat(&mut self, c: char) -> bool {
        let rest = self.rest.strip_prefix(c);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn list(&mut self) -> Option<Json> {
        if !self.eat('{') {
            return None;
        }
        let mut items = Vec::new();
        if self.eat('}') {
            return Some(Json::Array(items));
        }
        loop {
            items.push(self.item()?);
            if self.eat('}') {
                return Some(Json::Array(items));
            }
            if !self.eat(self.delimiter) {
                return None;
            }
        }
    }

    fn item(&mut self) -> Option<Json> {
        if self.rest.starts_with('{') {
            return self.list();
        }
        if self.eat('"') {
            let text = self.quoted()?;
            return Some(to_json(&text, self.member));
        }
        let end = self.rest.find([self.delimiter, '}'])?;
        let (text, rest) = self.rest.split_at(end);
        self.rest = rest;
        Some(match text {
            "NULL" => Json::Null,
            text => to_json(text, self.member),
        })
    }

    fn quoted(&mut self) -> Option<String> {
        let mut text = String::new();
        let mut characters = self.rest.char_indices();
        while let Some((at, c)) = characters.next() {
            match c {
                '"' => {
                    self.rest = &self.rest[at + 1..];
                    return Some(text);
                }
                '\\' => text.push(characters.next()?.1),
                c => text.push(c),
            }
        }
        None
    }
}

/// A parameter as a literal without a type, which the server reads as the type that its place
/// expects. A list becomes an array unless JSON or text is expected; a mapping becomes JSON.
pub(super) fn literal(value: &Json, expected: Option<&Type>) -> Result<String, ToolError> {
    if value.is_null() {
        return Ok("NULL".to_owned());
    }
    match value.as_array().filter(|_| !takes_json(expected)) {
        Some(items) => quote(&array_text(items, expected)),
        None => quote(&plain(value)),
    }
}

fn takes_json(expected: Option<&Type>) -> bool {
    let json = [Type::JSON, Type::JSONB, Type::TEXT, Type::VARCHAR];
    expected.is_some_and(|kind| json.contains(kind))
}

fn plain(value: &Json) -> String {
    let text = value.as_str().map(str::to_owned);
    text.unwrap_or_else(|| value.to_string())
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the kinds of the library; only an array has members"
)]
fn array_text(items: &[Json], expected: Option<&Type>) -> String {
    let json = expected.is_some_and(|kind| match kind.kind() {
        Kind::Array(member) => [Type::JSON, Type::JSONB].contains(member),
        _ => false,
    });
    let items = items.iter().map(|item| match item {
        Json::Null => "NULL".to_owned(),
        // A text in a list of JSON is a text, not JSON: lists are never written by hand.
        item if json => quoted_item(&item.to_string()),
        Json::Array(inner) => array_text(inner, expected),
        Json::Bool(_) | Json::Number(_) | Json::String(_) | Json::Object(_) => {
            quoted_item(&plain(item))
        }
    });
    format!("{{{}}}", items.collect::<Vec<_>>().join(","))
}

fn quoted_item(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// A text as a literal, whatever the server's settings are. The blanks around it keep it from
/// growing together with its neighbours.
fn quote(text: &str) -> Result<String, ToolError> {
    if text.contains('\0') {
        return Err(wrong(
            "a parameter has a character NUL, which PostgreSQL cannot keep in text",
        ));
    }
    let doubled = text.replace('\'', "''");
    Ok(match doubled.contains('\\') {
        true => format!(" E'{}' ", doubled.replace('\\', "\\\\")),
        false => format!(" '{doubled}' "),
    })
}

/// A row as a mapping.
pub(super) fn row(columns: &[String], values: impl Iterator<Item = Json>) -> Json {
    let row: Map<String, Json> = columns.iter().cloned().zip(values).collect();
    Json::Object(row)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn arrays_become_lists() {
        let ints = |text| to_json(text, &Type::INT4_ARRAY);
        assert_eq!(ints("{}"), json!([]));
        assert_eq!(ints("{1,NULL,-3}"), json!([1, null, -3]));
        assert_eq!(ints("{{1,2},{3,4}}"), json!([[1, 2], [3, 4]]));
        assert_eq!(ints("[0:1]={5,6}"), json!([5, 6]));
        let texts = to_json(r#"{a,"b,c","d\"e\\f",NULL,"NULL"}"#, &Type::TEXT_ARRAY);
        assert_eq!(texts, json!(["a", "b,c", "d\"e\\f", null, "NULL"]));
        assert_eq!(to_json("{1", &Type::INT4_ARRAY), json!("{1"));
    }

    #[test]
    fn lists_are_written_as_what_is_expected() {
        let list = json!([1, [2, null], "a\"b\\c"]);
        assert_eq!(
            literal(&list, Some(&Type::JSONB)).unwrap(),
            r#" E'[1,[2,null],"a\\"b\\\\c"]' "#
        );
        let texts = json!(["a'b", null, {"k": 1}]);
        assert_eq!(
            literal(&texts, Some(&Type::TEXT_ARRAY)).unwrap(),
            r#" E'{"a''b",NULL,"{\\"k\\":1}"}' "#
        );
    }
}
