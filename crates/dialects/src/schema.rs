//! The JSON Schemas of the languages. What a language's own `schema.json` refers to and does not define is
//! put in here, from the tables that the readers use: names, durations, tools and their fields, rules,
//! backoffs. Not here: what only one language has.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value as Json, json};

use crate::backoff::{self, Jitter};
use crate::tools::kinds::{FieldShape, FieldSpec};
use crate::tools::table::{COMMON, KINDS};
use crate::tools::{MAX_TASKS, RuleAction, kind_names};

/// What every length of time of a task may be.
const SECONDS: &str = "A number of seconds, or text with a unit such as \"500ms\" or \"1h30m\".";

/// A language's schema: its own part, with every shared definition that it refers to.
///
/// `own` gives definitions that the language has in tables of its own.
pub(crate) fn complete(skeleton: &str, own: &[(&str, Json)]) -> Json {
    let mut schema: Json = serde_json::from_str(skeleton)
        .expect("the schemas in this crate are JSON, as a test checks");
    let mut shared: BTreeMap<&str, Json> = shared();
    shared.extend(own.iter().cloned());
    loop {
        let missing: Vec<String> = references(&schema)
            .into_iter()
            .filter(|name| schema["$defs"].get(name).is_none())
            .collect();
        let known = missing
            .iter()
            .filter_map(|name| shared.remove_entry(&**name));
        let known: Vec<(String, Json)> = known.map(|(name, it)| (name.to_owned(), it)).collect();
        if known.is_empty() {
            return schema;
        }
        for (name, definition) in known {
            schema["$defs"][name] = definition;
        }
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
                let name = reference.and_then(|it| it.strip_prefix("#/$defs/"));
                found.extend(name.map(str::to_owned));
                open.extend(fields.values());
            }
            Json::Array(items) => open.extend(items),
            Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => {}
        }
    }
    found
}

fn shared() -> BTreeMap<&'static str, Json> {
    let mapping = |description: &str| json!({ "type": "object", "description": description });
    BTreeMap::from([
        ("name", name()),
        ("duration", duration()),
        ("backoff", step_backoff(Jitter::NotOffered)),
        ("tool", tool()),
        ("task", task()),
        ("rule", rule()),
        ("action", action()),
        (
            "set",
            mapping("Assignments with their scope: `ctx.x`, `iter.x` or `step.x`."),
        ),
    ])
}

fn name() -> Json {
    json!({
        "title": "Name",
        "description": "Up to 200 characters, without | # [ ].",
        "type": "string",
        "minLength": 1,
        "maxLength": 200,
        "pattern": r"^[^|#\[\]]+$",
    })
}

fn duration() -> Json {
    json!({
        "title": "Duration",
        "description": "A number with a unit, such as 500ms, 30s, 5m, 1h30m or 2d, or ISO 8601 such as PT5M; at most 366 days.",
        "type": "string",
        "pattern": r"^\s*(P.+|([0-9]+(\.[0-9]+)?(ms|s|m|h|d|w)\s*)+)$",
        "examples": ["30s", "5m", "1h30m", "24h"],
    })
}

/// The backoff of a step's retry policy.
pub(crate) fn step_backoff(jitter: Jitter) -> Json {
    json!({
        "title": "Backoff",
        "description": "A strategy, or a duration that is waited each time.",
        "default": "exponential",
        "anyOf": [{ "enum": backoff::step_words(jitter) }, { "$ref": "#/$defs/duration" }],
    })
}

fn tool() -> Json {
    let task = json!({ "$ref": "#/$defs/task" });
    json!({
        "title": "Tool",
        "description": "Run by the built-in worker: one task, or a list of tasks that run in order.",
        "anyOf": [
            task,
            { "type": "array", "minItems": 1, "maxItems": MAX_TASKS, "items": task },
        ],
    })
}

/// One task. A field of a kind may stand in `spec` too, so nothing but `kind` is required here.
fn task() -> Json {
    let mut properties = fields();
    let own = json!({
        "name": {
            "$ref": "#/$defs/name",
            "description": "The task's name in templates; task_N if absent. For kind workbook: the entry that is called.",
        },
        "kind": { "enum": kind_names(), "description": "Which tool." },
        "task": {
            "type": "string",
            "description": "workbook: the entry that is called, if name is the task's own.",
        },
        "set_ctx": {
            "type": "object",
            "description": "Variables of the run, set when the task has succeeded.",
        },
        "set_iter": { "type": "object", "description": "Variables of the iteration." },
        "set": { "$ref": "#/$defs/set" },
        "spec": {
            "type": "object",
            "description": "Settings of the task.",
            "properties": {
                "policy": {
                    "type": "object",
                    "description": "Policy of the task.",
                    "properties": {
                        "rules": { "type": "array", "items": { "$ref": "#/$defs/rule" } },
                    },
                },
            },
        },
    });
    if let Json::Object(own) = own {
        properties.extend(own);
    }
    let labelled = json!({ "type": "object", "required": ["kind"] });
    json!({
        "title": "Task",
        "type": "object",
        "description": "One task. Fields of a kind may also stand in spec.",
        "anyOf": [
            { "required": ["kind"] },
            { "minProperties": 1, "maxProperties": 1, "additionalProperties": labelled },
        ],
        "properties": properties,
    })
}

/// A property of a task, gathered from every kind that has a field of this name.
#[derive(Default)]
struct Property {
    /// Absent as soon as one kind takes any value.
    types: Option<BTreeSet<&'static str>>,
    takes_any: bool,
    /// Each meaning, and the kinds that give it.
    meanings: Vec<(String, Vec<&'static str>)>,
}

impl Property {
    fn add(&mut self, kind: Option<&'static str>, field: &FieldSpec, name: &str) {
        match types_of(field.shape) {
            [] => self.takes_any = true,
            types => self.types.get_or_insert_default().extend(types),
        }
        let main = field.names.first().copied().unwrap_or_default();
        let mut meaning = match name == main {
            true => field.help.to_owned(),
            false => format!("The same as {main}."),
        };
        if field.shape == FieldShape::Duration && name == main {
            meaning = format!("{meaning} {SECONDS}");
        }
        match self.meanings.iter_mut().find(|(it, _)| *it == meaning) {
            Some((_, kinds)) => kinds.extend(kind),
            None => self.meanings.push((meaning, kind.into_iter().collect())),
        }
    }

    fn json(&self) -> Json {
        let described = self
            .meanings
            .iter()
            .map(|(meaning, kinds)| match &kinds[..] {
                [] => meaning.clone(),
                kinds => format!("{}: {meaning}", kinds.join(", ")),
            });
        let mut json = json!({ "description": described.collect::<Vec<_>>().join(" ") });
        if let Some(types) = self.types.as_ref().filter(|_| !self.takes_any) {
            json["type"] = json!(types);
        }
        json
    }
}

/// The fields of all kinds by their names and aliases.
fn fields() -> Map<String, Json> {
    let mut properties: BTreeMap<&str, Property> = BTreeMap::new();
    let mut add = |kind: Option<&'static str>, field: &'static FieldSpec| {
        for name in field.names {
            properties.entry(name).or_default().add(kind, field, name);
        }
    };
    COMMON.iter().for_each(|field| add(None, field));
    for kind in KINDS {
        kind.keys
            .iter()
            .for_each(|field| add(Some(kind.name), field));
    }
    let described = properties.iter();
    described
        .map(|(name, it)| ((*name).to_owned(), it.json()))
        .collect()
}

/// The types of JSON that a field takes; none means any. Templates are text.
fn types_of(shape: FieldShape) -> &'static [&'static str] {
    match shape {
        FieldShape::Any => &[],
        FieldShape::Text | FieldShape::Plain | FieldShape::Code | FieldShape::Method => &["string"],
        FieldShape::Commands => &["array", "string"],
        FieldShape::Map | FieldShape::Script => &["object", "string"],
        FieldShape::Flag => &["boolean", "string"],
        FieldShape::Duration => &["number", "string"],
    }
}

fn rule() -> Json {
    let action = json!({ "$ref": "#/$defs/action" });
    json!({
        "type": "object",
        "description": "Looked at after the task, whether it succeeded or failed; the first that matches decides.",
        "additionalProperties": false,
        "properties": {
            "when": {
                "description": "A template such as {{ outcome.status == 'error' }}.",
                "type": ["string", "boolean"],
            },
            "then": action,
            "else": {
                "description": "For the last rule, which always matches.",
                "anyOf": [
                    { "type": ["null", "boolean"] },
                    {
                        "type": "object",
                        "required": ["then"],
                        "properties": { "then": action },
                        "additionalProperties": false,
                    },
                    action,
                ],
            },
        },
    })
}

fn action() -> Json {
    json!({
        "type": "object",
        "description": "What a policy rule does.",
        "additionalProperties": false,
        "properties": {
            "do": {
                "enum": RuleAction::ALL.map(RuleAction::word),
                "default": RuleAction::Continue.word(),
                "description": "retry the task, jump to another, break off the pipeline as done, fail the step, or continue with the next task.",
            },
            "attempts": {
                "description": "Total executions, the first included.",
                "type": ["integer", "string"],
                "default": 3,
                "minimum": 1,
                "maximum": 1000,
            },
            "max_attempts": {
                "description": "The same as attempts.",
                "type": ["integer", "string"],
            },
            "backoff": {
                "enum": backoff::task_words(),
                "default": "constant",
                "description": "How the wait grows: d, d·n, or d·2^(n-1).",
            },
            "delay": {
                "description": format!("The wait before the first retry; 1 if absent. {SECONDS}"),
                "type": ["number", "string"],
            },
            "delay_s": {
                "description": format!("The same as delay. {SECONDS}"),
                "type": ["number", "string"],
            },
            "to": {
                "type": "string",
                "description": "For jump: a task of the same block, or previous.",
            },
            "set_ctx": { "type": "object", "description": "Variables of the run." },
            "set_iter": { "type": "object", "description": "Variables of the iteration." },
            "set": { "$ref": "#/$defs/set" },
        },
    })
}
