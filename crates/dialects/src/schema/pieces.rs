//! Pieces of the JSON Schemas: texts, durations, templates, and which fields are given. A field that is null counts as
//! absent, for the schemas as for the readers.

use serde_json::{Map, Value as Json, json};

use crate::duration::{DurationRule, MAX_DURATION_MS};

/// What a text with a template contains, as `stepwell_kernel::expr::has_template` says.
const TEMPLATE: &str = r"\{[{%]";

/// Text that is not blank.
pub(crate) fn text() -> Json {
    json!({ "type": "string", "pattern": r"\S" })
}

/// Text that is not blank and no template.
pub(crate) fn plain_text() -> Json {
    json!({ "type": "string", "pattern": format!(r"^(?![\s\S]*{TEMPLATE})[\s\S]*\S") })
}

/// Text with a template.
pub(crate) fn template() -> Json {
    json!({ "type": "string", "pattern": TEMPLATE })
}

/// A template or a truth value.
pub(crate) fn condition() -> Json {
    json!({ "type": ["string", "boolean"], "pattern": TEMPLATE })
}

/// The name of a step, a queue, a task and the like.
pub(crate) fn name() -> Json {
    json!({
        "title": "Name",
        "description": "Up to 200 characters, without | # [ ].",
        "type": "string",
        "maxLength": 200,
        "pattern": r"^(?!\s)[^|#\[\]\x00-\x1f\x7f-\x9f]*[^|#\[\]\x00-\x1f\x7f-\x9f\s]$",
    })
}

/// The names that a variable may have, as a part of a pattern.
const VARIABLE: &str = r"[^. \[\]{}]+";

/// Assignments to variables of one scope: `x: …`.
pub(crate) fn assignments(scope: &str) -> Json {
    let pattern = format!(r"^({scope}\.)?{VARIABLE}$");
    json!({ "type": "object", "propertyNames": { "pattern": pattern } })
}

/// Assignments with their scope: `ctx.x: …`, or `ctx: {x: …}`. Where `bare` names are taken, they are those of other words.
pub(crate) fn scoped_assignments(scopes: &[&str], bare: bool) -> Json {
    let words = scopes.join("|");
    let optional = if bare { "?" } else { "" };
    let mut pattern = format!(r"^(({words})\.){optional}{VARIABLE}$");
    if !bare {
        pattern = format!("{pattern}|^({words})$");
    }
    let nested = scopes.iter().map(|scope| {
        let word = if *scope == "input" { "args" } else { scope };
        ((*scope).to_owned(), assignments(word))
    });
    json!({
        "type": "object",
        "propertyNames": { "pattern": pattern },
        "properties": nested.collect::<Map<_, _>>(),
    })
}

/// A duration with units, as text.
pub(crate) fn duration_text(zero: bool) -> Json {
    const NUMBER: &str = r"[0-9]+(\.[0-9]+)?";
    let each = |units: &[&str], then: &str| {
        let each = units.iter().map(|unit| format!("({NUMBER}{unit}{then})?"));
        each.collect::<String>()
    };
    let units = each(&["w", "d", "h", "m(?!s)", "s", "ms"], r"\s*");
    let (date, time) = (each(&["W", "D"], ""), each(&["H", "M", "S"], ""));
    let more_than_zero = if zero { "" } else { "(?=[^1-9]*[1-9])" };
    let pattern =
        format!(r"^{more_than_zero}\s*((?=[0-9]){units}|P(?=[0-9T]){date}(T(?=[0-9]){time})?\s*)$");
    json!({ "type": "string", "pattern": pattern })
}

/// A duration with units, or a number in the unit of the rule.
pub(crate) fn duration(rule: DurationRule) -> Json {
    let Some(unit) = rule.bare else {
        let name = if rule.zero { "delay" } else { "duration" };
        return json!({ "$ref": format!("#/$defs/{name}") });
    };
    // Half a millisecond is rounded to one.
    let least = if rule.zero {
        0.0
    } else {
        0.5 / unit.in_millis()
    };
    let most = MAX_DURATION_MS as f64 / unit.in_millis();
    let number = json!({ "type": "number", "minimum": number(least), "maximum": number(most) });
    any_of([number, duration_text(rule.zero)])
}

/// A number without `.0`.
fn number(value: f64) -> Json {
    if value.fract() == 0.0 {
        return json!(value as u64);
    }
    json!(value)
}

/// A whole number within limits.
pub(crate) fn whole(low: i64, high: i64) -> Json {
    let mut schema = json!({ "type": "integer" });
    if low > i64::MIN {
        schema["minimum"] = low.into();
    }
    if high < i64::MAX {
        schema["maximum"] = high.into();
    }
    schema
}

pub(crate) fn any_of(schemas: impl IntoIterator<Item = Json>) -> Json {
    json!({ "anyOf": schemas.into_iter().collect::<Vec<_>>() })
}

/// The value, or null.
pub(crate) fn or_null(mut schema: Json) -> Json {
    let is_plain = |name: &str| !["allOf", "anyOf", "oneOf", "not", "if", "$ref"].contains(&name);
    let plain = schema
        .as_object()
        .is_some_and(|it| it.keys().all(|it| is_plain(it)));
    if schema.as_object().is_none_or(Map::is_empty) {
        return schema;
    }
    if let (true, Some(kind)) = (plain, schema.get_mut("type")) {
        match kind {
            Json::Array(kinds) => kinds.push("null".into()),
            Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) | Json::Object(_) => {
                *kind = json!([kind, "null"]);
            }
        }
        return schema;
    }
    if let Some(Json::Array(values)) = schema.get_mut("enum") {
        values.push(Json::Null);
        return schema;
    }
    if let Some(Json::Array(choices)) = schema.get_mut("anyOf") {
        choices.push(json!({ "type": "null" }));
        return schema;
    }
    // Not `anyOf`: a validator then says what is wrong with the value.
    json!({ "if": { "not": { "type": "null" } }, "then": schema })
}

/// All of these fields are given.
pub(crate) fn given(names: &[&str]) -> Json {
    let value = |name: &&str| ((*name).to_owned(), json!({ "not": { "type": "null" } }));
    let properties: Map<String, Json> = names.iter().map(value).collect();
    json!({ "type": "object", "required": names, "properties": properties })
}

/// None of these fields is given.
pub(crate) fn absent(names: &[&str]) -> Json {
    let none = names
        .iter()
        .map(|name| ((*name).to_owned(), json!({ "type": "null" })));
    json!({ "properties": none.collect::<Map<_, _>>() })
}

/// At most one of these holds, or exactly one. Nothing if that says nothing.
pub(crate) fn one_of(mut choices: Vec<Json>, required: bool) -> Option<Json> {
    match (&choices[..], required) {
        ([] | [_], false) => None,
        ([_], true) => choices.pop(),
        ([one, two], false) => Some(json!({ "not": { "allOf": [one, two] } })),
        (_, true) => Some(json!({ "oneOf": choices })),
        (all, false) => {
            let none = json!({ "not": { "anyOf": all } });
            choices.push(none);
            Some(json!({ "oneOf": choices }))
        }
    }
}
