//! The JSON Schema of a tool block: its tasks, whose fields depend on the kind, and the rules of tasks. The fields come
//! from the table of tools.

use serde_json::{Map, Value as Json, json};

use super::pieces::{
    any_of, assignments, condition, duration, given, one_of, or_null, plain_text,
    scoped_assignments, template, text, whole,
};
use crate::backoff;
use crate::duration::DurationRule;
use crate::tools::kinds::{FieldShape, FieldSpec, ToolKind};
use crate::tools::table::{COMMON, KINDS};
use crate::tools::{MAX_TASKS, RuleAction, RunBy, kind_names};

/// The definition of a tool block. What it refers to is in the shared file of the published schemas.
pub(super) const TOOL: &str = "tool";

/// What every length of time of a task may be.
const SECONDS: &str = "A number of seconds, or text with a unit such as \"500ms\" or \"1h30m\".";

/// All definitions of this file.
pub(super) fn definitions() -> impl Iterator<Item = (String, Json)> {
    let shared = [
        (TOOL, tool()),
        ("task", task()),
        ("taskFields", task_fields()),
        ("rule", rule()),
        ("ruleAction", rule_action()),
        ("set", set()),
    ];
    let shared = shared.map(|(name, definition)| (name.to_owned(), definition));
    let kinds = KINDS
        .iter()
        .map(|kind| (kind_name(kind), kind_fields(kind)));
    shared.into_iter().chain(kinds)
}

/// The name of the definition with the fields of a kind.
fn kind_name(kind: &ToolKind) -> String {
    format!("{}Task", kind.name)
}

fn reference(name: &str) -> Json {
    json!({ "$ref": format!("#/$defs/{name}") })
}

fn tool() -> Json {
    let task = reference("task");
    json!({
        "title": "Tool",
        "description": "Run by the built-in worker: one task, or a list of tasks that run in order.",
        "if": { "type": "array" },
        "then": { "minItems": 1, "maxItems": MAX_TASKS, "items": task },
        "else": task,
    })
}

/// One task, with or without a label above it.
fn task() -> Json {
    json!({
        "title": "Task",
        "description": "One task: its fields, or a label with its fields below.",
        "type": "object",
        "if": {
            "minProperties": 1,
            "maxProperties": 1,
            "not": { "required": ["kind"] },
            "additionalProperties": { "type": "object" },
        },
        "then": {
            "propertyNames": reference("name"),
            "additionalProperties": reference("taskFields"),
        },
        "else": reference("taskFields"),
    })
}

/// What tasks of every kind have. A field of a kind may also be in `spec`.
fn task_fields() -> Json {
    let mut properties = properties(COMMON);
    let mut spec = properties.clone();
    spec.insert(
        "policy".to_owned(),
        or_null(json!({
            "type": "object",
            "description": "Policy of the task.",
            "properties": {
                "rules": or_null(json!({ "type": "array", "items": reference("rule") })),
            },
        })),
    );
    let own = json!({
        "name": described(
            or_null(reference("name")),
            "The task's name in templates; task_N if absent. For kind workbook: the entry that is called.",
        ),
        "kind": { "enum": kind_names(), "description": "Which tool." },
        "set_ctx": described(
            or_null(assignments("ctx")),
            "Variables of the run, set when the task has succeeded.",
        ),
        "set_iter": described(or_null(assignments("iter")), "Variables of the iteration."),
        "set": or_null(reference("set")),
        "spec": described(or_null(json!({ "type": "object", "properties": spec })), "Settings of the task."),
    });
    if let Json::Object(own) = own {
        properties.extend(own);
    }
    let mut all = places(COMMON, false);
    for kind in KINDS {
        let names: Vec<&str> = std::iter::once(&kind.name)
            .chain(kind.aliases)
            .copied()
            .collect();
        all.push(json!({
            "if": { "required": ["kind"], "properties": { "kind": { "enum": names } } },
            "then": reference(&kind_name(kind)),
        }));
    }
    json!({
        "type": "object",
        "description": "The fields of a task; those of its kind may also be in spec.",
        "required": ["kind"],
        "properties": properties,
        "allOf": all,
    })
}

fn described(mut schema: Json, description: &str) -> Json {
    schema["description"] = description.into();
    schema
}

/// The fields that only a kind has.
fn kind_fields(kind: &ToolKind) -> Json {
    let mut own = properties(kind.keys);
    if kind.run_by == RunBy::Engine {
        // No worker evaluates the timeout of a wait.
        let timeout = COMMON.iter().filter(|it| it.names.contains(&"timeout"));
        let fixed = timeout.flat_map(|it| it.names);
        let seconds = or_null(duration(DurationRule::SECONDS.or_zero()));
        own.extend(fixed.map(|name| ((*name).to_owned(), seconds.clone())));
    }
    let mut all = places(kind.keys, kind.has_script());
    let mut properties = own.clone();
    if kind.name == "workbook" {
        let task = described(
            or_null(text()),
            "The entry that is called, if name is the task's own.",
        );
        properties.insert("task".to_owned(), task);
        all.push(any_of(["name", "task"].map(|name| given(&[name]))));
    }
    if !own.is_empty() {
        let spec = json!({ "properties": own });
        properties.insert("spec".to_owned(), spec);
    }
    let mut schema = json!({ "description": format!("{}.", kind.summary) });
    if !properties.is_empty() {
        schema["properties"] = Json::Object(properties);
    }
    if !all.is_empty() {
        schema["allOf"] = json!(all);
    }
    schema
}

/// The properties of some fields, by their names and aliases.
fn properties(fields: &[FieldSpec]) -> Map<String, Json> {
    let mut properties = Map::new();
    for field in fields {
        let schema = or_null(value(field.shape));
        let Some((main, others)) = field.names.split_first() else {
            continue;
        };
        let help = match field.shape == FieldShape::Duration {
            true => format!("{} {SECONDS}", field.help),
            false => field.help.to_owned(),
        };
        properties.insert((*main).to_owned(), described(schema.clone(), &help));
        for other in others {
            let same = format!("The same as {main}.");
            properties.insert((*other).to_owned(), described(schema.clone(), &same));
        }
    }
    properties
}

/// How often each of some fields is given: in the task or in its `spec`, under one of its names, and as often as it is
/// required. A script can replace the program.
fn places(fields: &[FieldSpec], has_script: bool) -> Vec<Json> {
    let place = |name: &&str| {
        let inside = json!({ "required": ["spec"], "properties": { "spec": given(&[name]) } });
        [given(&[name]), inside]
    };
    let program = |field: &FieldSpec| has_script && field.may_be_script();
    let rule = |field: &FieldSpec| {
        let mut choices: Vec<Json> = field.names.iter().flat_map(place).collect();
        if program(field) {
            choices.extend(place(&"script"));
        }
        one_of(choices, field.required)
    };
    // The rule of the program includes the script.
    let scripted = fields.iter().any(program);
    let fields = fields
        .iter()
        .filter(|it| it.shape != FieldShape::Script || !scripted);
    fields.filter_map(rule).collect()
}

/// The values that a field takes.
fn value(shape: FieldShape) -> Json {
    match shape {
        FieldShape::Any => json!({}),
        FieldShape::Text | FieldShape::Code => text(),
        FieldShape::Plain => plain_text(),
        FieldShape::Commands => any_of([
            text(),
            json!({ "type": "array", "minItems": 1, "items": text() }),
        ]),
        FieldShape::Map => any_of([json!({ "type": "object" }), template()]),
        FieldShape::Flag => any_of([json!({ "type": "boolean" }), template()]),
        FieldShape::Duration => any_of([duration(DurationRule::SECONDS.or_zero()), template()]),
        FieldShape::OneOf(words) => any_of([json!({ "enum": words }), any_case(words), template()]),
        FieldShape::Script => script(),
    }
}

/// These words in upper and lower case.
fn any_case(words: &[&str]) -> Json {
    let letter = |c: char| format!("[{}{}]", c.to_ascii_uppercase(), c.to_ascii_lowercase());
    let words: Vec<String> = words
        .iter()
        .map(|word| word.chars().map(letter).collect())
        .collect();
    json!({ "type": "string", "pattern": format!("^({})$", words.join("|")) })
}

fn script() -> Json {
    let inline = json!({
        "required": ["source"],
        "properties": {
            "source": {
                "type": "object",
                "required": ["type"],
                "properties": { "type": { "const": "inline" } },
            },
        },
    });
    let kind = or_null(json!({ "enum": ["file", "inline"] }));
    let source = or_null(json!({ "type": "object", "properties": { "type": kind } }));
    let code = json!({ "required": ["code"], "properties": { "code": text() } });
    any_of([
        json!({ "type": "string" }),
        json!({
            "type": "object",
            "properties": { "source": source },
            "if": inline,
            "then": { "properties": { "source": code } },
            "else": { "required": ["uri"], "properties": { "uri": text() } },
        }),
    ])
}

fn set() -> Json {
    let schema = scoped_assignments(&["ctx", "iter", "step"], true);
    described(
        schema,
        "Assignments with their scope: `ctx.x`, `iter.x` or `step.x`.",
    )
}

fn rule() -> Json {
    let action = reference("ruleAction");
    // What is below `else`: an action, with or without `then` between.
    let otherwise = json!({
        "type": "object",
        "if": { "required": ["then"], "maxProperties": 1 },
        "then": { "properties": { "then": action } },
        "else": action,
    });
    json!({
        "type": "object",
        "description": "Looked at after the task, whether it succeeded or failed; the first that matches decides.",
        "additionalProperties": false,
        "properties": {
            "when": described(
                or_null(condition()),
                "A template such as {{ outcome.status == 'error' }}.",
            ),
            "then": or_null(action),
            "else": { "description": "For the last rule, which always matches." },
        },
        "if": given(&["when"]),
        "then": { "allOf": [given(&["then"]), { "not": { "required": ["else"] } }] },
        "else": {
            "required": ["else"],
            "if": { "not": given(&["then"]) },
            "then": { "properties": { "else": otherwise } },
        },
    })
}

fn rule_action() -> Json {
    let number = || any_of([whole(1, 1000), template()]);
    let time = || any_of([duration(DurationRule::SECONDS.or_zero()), template()]);
    // What belongs to another action is reported as unused, whatever it is.
    let only = |action: RuleAction, then: Json| {
        json!({
            "if": { "required": ["do"], "properties": { "do": { "const": action.word() } } },
            "then": then,
        })
    };
    let aliases = [["attempts", "max_attempts"], ["delay", "delay_s"]];
    let aliases = aliases.iter().filter_map(|names| {
        let names = names.iter().map(|name| given(&[name]));
        one_of(names.collect(), false)
    });
    let retried = json!({
        "properties": {
            "attempts": or_null(number()),
            "max_attempts": or_null(number()),
            "backoff": or_null(json!({ "enum": backoff::task_words() })),
            "delay": or_null(time()),
            "delay_s": or_null(time()),
        },
    });
    let jump = json!({ "required": ["to"], "properties": { "to": text() } });
    let actions = [(RuleAction::Retry, retried), (RuleAction::Jump, jump)];
    let actions = actions.map(|(action, then)| only(action, then));
    json!({
        "type": "object",
        "description": "What a policy rule does.",
        "additionalProperties": false,
        "properties": {
            "do": {
                "enum": RuleAction::ALL.map(RuleAction::word).iter().map(|it| json!(it)).chain([Json::Null]).collect::<Vec<_>>(),
                "default": RuleAction::Continue.word(),
                "description": "retry the task, jump to another, break off the pipeline as done, fail the step, or continue with the next task.",
            },
            "attempts": {
                "description": "For retry: total executions, the first included.",
                "default": 3,
            },
            "max_attempts": { "description": "The same as attempts." },
            "backoff": {
                "default": "constant",
                "description": "For retry: how the wait grows: d, d·n, or d·2^(n-1).",
            },
            "delay": {
                "description": format!("For retry: the wait before the first; 1 if absent. {SECONDS}"),
            },
            "delay_s": { "description": "The same as delay." },
            "to": { "description": "For jump: a task of the same block, or previous." },
            "set_ctx": described(or_null(assignments("ctx")), "Variables of the run."),
            "set_iter": described(or_null(assignments("iter")), "Variables of the iteration."),
            "set": or_null(reference("set")),
        },
        "allOf": aliases.chain(actions).collect::<Vec<_>>(),
    })
}
