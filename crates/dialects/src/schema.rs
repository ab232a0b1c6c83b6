//! The JSON Schemas of the languages. They are written from the tables of fields that the readers use; what a table
//! refers to and does not define is put in here: names, durations, backoffs, and tool blocks ([`task`]). Not here:
//! what only one language has.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value as Json, json};

use stepwell_kernel::plan::Dialect;

use crate::backoff::{self, Kinds};
use crate::shape::KnownFields;
use task::TOOL;

pub(crate) mod pieces;
mod task;

/// What a reference to a definition of the same file begins with.
const LOCAL: &str = "#/$defs/";

/// The shared file of the published schemas. A new tool changes this file only.
pub const TOOL_FILE: &str = "tool.schema.json";

/// The schema of a language: its tables of fields, with every shared definition that they refer to.
///
/// `own` gives definitions that the language has in tables of its own.
pub(crate) fn language(
    dialect: Dialect,
    title: &str,
    root: &KnownFields,
    own: &[(&str, Json)],
) -> Json {
    let mut defs = Map::new();
    let mut schema = root.schema(&mut defs);
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
    schema["$id"] = format!(
        "https://stepwell.dev/schemas/definitions/{}.schema.json",
        dialect.name()
    )
    .into();
    schema["title"] = title.into();
    schema["$defs"] = Json::Object(defs);
    complete(schema, own)
}

/// A schema with every shared definition that it refers to.
fn complete(mut schema: Json, own: &[(&str, Json)]) -> Json {
    let mut shared = shared();
    let own = own.iter().cloned();
    shared.extend(own.map(|(name, definition)| (name.to_owned(), definition)));
    loop {
        let missing: Vec<String> = references(&schema)
            .into_iter()
            .filter(|name| schema["$defs"].get(name).is_none())
            .collect();
        let known = missing.iter().filter_map(|name| shared.remove_entry(name));
        let known: Vec<(String, Json)> = known.collect();
        if known.is_empty() {
            return schema;
        }
        for (name, definition) in known {
            schema["$defs"][name] = definition;
        }
    }
}

/// The schema of a tool block, as a file next to the schemas of the languages.
#[must_use]
pub fn tool_file() -> Json {
    let skeleton = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": format!("https://stepwell.dev/schemas/definitions/{TOOL_FILE}"),
        "$ref": format!("{LOCAL}{TOOL}"),
    });
    complete(skeleton, &[])
}

/// The schema of a language as a file next to [`tool_file`]: definitions that
/// [`tool_file`] has are references to that file.
#[must_use]
pub fn linked(mut schema: Json) -> Json {
    let shared = tool_file();
    let moved: BTreeSet<String> = references(&shared)
        .into_iter()
        .filter(|name| schema["$defs"].get(name) == shared["$defs"].get(name))
        .collect();
    if let Some(definitions) = schema["$defs"].as_object_mut() {
        definitions.retain(|name, _| !moved.contains(name));
    }
    relink(&mut schema, &moved);
    schema
}

/// Turns references to moved definitions into references to the shared file.
fn relink(schema: &mut Json, moved: &BTreeSet<String>) {
    match schema {
        Json::Object(fields) => {
            if let Some(Json::String(reference)) = fields.get_mut("$ref")
                && let Some(name) = reference.strip_prefix(LOCAL)
                && moved.contains(name)
            {
                *reference = format!("{TOOL_FILE}{LOCAL}{name}");
            }
            fields.values_mut().for_each(|it| relink(it, moved));
        }
        Json::Array(items) => items.iter_mut().for_each(|it| relink(it, moved)),
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => {}
    }
}

/// The names of the definitions that a schema refers to.
fn references(schema: &Json) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut open = vec![schema];
    while let Some(next) = open.pop() {
        match next {
            Json::Object(fields) => {
                let reference = fields.get("$ref").and_then(Json::as_str);
                let name = reference.and_then(|it| it.strip_prefix(LOCAL));
                found.extend(name.map(str::to_owned));
                open.extend(fields.values());
            }
            Json::Array(items) => open.extend(items),
            Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => {}
        }
    }
    found
}

fn shared() -> BTreeMap<String, Json> {
    let own = [
        ("name", pieces::name()),
        ("duration", duration()),
        ("delay", delay()),
        ("backoff", step_backoff(Kinds::Specified)),
    ];
    let own = own.map(|(name, definition)| (name.to_owned(), definition));
    own.into_iter().chain(task::definitions()).collect()
}

fn duration() -> Json {
    let mut schema = pieces::duration_text(false);
    schema["title"] = "Duration".into();
    schema["description"] = "A number with a unit, such as 500ms, 30s, 5m, 1h30m or 2d, or ISO 8601 such as PT5M; at most 366 days.".into();
    schema["examples"] = json!(["30s", "5m", "1h30m", "24h"]);
    schema
}

fn delay() -> Json {
    let mut schema = pieces::duration_text(true);
    schema["title"] = "Delay".into();
    schema["description"] = "A duration, which may be zero.".into();
    schema["examples"] = json!(["0s", "30s", "5m"]);
    schema
}

/// The backoff of a step's retry policy.
pub(crate) fn step_backoff(offered: Kinds) -> Json {
    json!({
        "title": "Backoff",
        "description": "A strategy, or a duration that is waited each time.",
        "default": "exponential",
        "anyOf": [{ "enum": backoff::step_words(offered) }, { "$ref": "#/$defs/delay" }],
    })
}
