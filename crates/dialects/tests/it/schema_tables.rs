//! The readers and the JSON Schemas are made from the same tables of fields: they give the same answer about every
//! definition of the repository and about mutations of it. What only code can check is listed in [`ONLY_CODE`].

use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};

use serde_json::{Value as Json, json};
use stepwell_dialects::tools::kind_names;
use stepwell_dialects::{Problem, Severity, Source, document, load};
use stepwell_kernel::plan::Dialect;

use crate::definition::{examples, validator};

/// Problems that a reader reports and a JSON Schema cannot: the code, a part of the message or of the help (empty: all
/// of them), and the reason.
const ONLY_CODE: &[(&str, &str, &str)] = &[
    ("TEMPLATE_SYNTAX", "", "templates are parsed"),
    (
        "FIELD_UNKNOWN",
        "did you mean",
        "a slip in a mapping that takes other keys is found by comparing words",
    ),
    (
        "FIELD_DURATION",
        "longer than 366 days",
        "a pattern cannot add up the units of a text",
    ),
    ("FIELD_CONFLICT", "differ", "two values are compared"),
    (
        "FIELD_CONFLICT",
        "a request has one body",
        "a body that is a template may be absent when the task runs",
    ),
    (
        "FIELD_VALUE",
        "must begin with `https://`",
        "an address may come from a template or a secret",
    ),
    (
        "FIELD_VALUE",
        "is no time zone",
        "the names of time zones are in a database",
    ),
    (
        "FIELD_VALUE",
        "while undoing",
        "a compensation has the same blocks as a step",
    ),
    (
        "INVALID_STEP_SCHEMA",
        "only waits",
        "whether a tool block only waits is known after it is read",
    ),
    ("TOOL_NOT_ALONE", "", "about the other tasks of the block"),
    (
        "NAME_DUPLICATE",
        "",
        "names of different steps are compared",
    ),
    ("STEP_UNDEFINED", "", "a reference to a step"),
    ("DAG_STEP_UNKNOWN", "", "a reference to a step"),
    (
        "DAG_STEP_DUPLICATE",
        "",
        "names of different steps are compared",
    ),
    ("DAG_COMPENSATION_UNKNOWN", "", "a reference to a step"),
    (
        "DAG_COMPENSATION_DUPLICATE",
        "",
        "references to steps are compared",
    ),
    (
        "DAG_COMPENSATION_MISSING",
        "",
        "about another part of the file",
    ),
    ("DAG_CYCLE", "", "about the graph"),
    ("DAG_NO_ROOT", "", "about the graph"),
    ("DEPENDENCY_UNKNOWN", "", "a reference to an action"),
    ("DEPENDENCY_SELF", "", "a reference to an action"),
    ("DEPENDENCY_CYCLE", "", "about the graph"),
    ("DUTY_UNKNOWN", "", "a reference to an action"),
    ("DUTY_SELF", "", "a reference to an action"),
    ("NAME_UNKNOWN", "", "names in templates"),
    (
        "FIELD_VALUE",
        "is not a schedule",
        "numbers inside of a text",
    ),
    ("FIELD_MISSING", "where the server is", "one of two fields"),
    (
        "FIELD_MISSING",
        "a `file` task",
        "depends on the value of `action`",
    ),
    (
        "ORDER_INVALID",
        "",
        "numbers of different actions are compared",
    ),
    (
        "INVALID_PLAN_SCHEMA",
        "there is no step",
        "a reference to a step",
    ),
    (
        "WORKBOOK_UNKNOWN",
        "",
        "a reference to an entry of the workbook",
    ),
    ("TASK_UNKNOWN", "", "a reference to a task"),
    ("PLAN_CAPABILITY_UNSUPPORTED", "", "what this engine can do"),
    (
        "PLAN_ADAPTER_UNSUPPORTED",
        "",
        "which engines this program has",
    ),
    (
        "PLAN_SECRET_VALUE",
        "",
        "a secret is found by the words of its name and by its form",
    ),
];

fn is_only_code(problem: &Problem) -> bool {
    let help = problem.help.as_deref().unwrap_or_default();
    ONLY_CODE.iter().any(|(code, part, _)| {
        *code == problem.code && (problem.message.contains(part) || help.contains(part))
    })
}

/// The errors that a reader reports; none if the text is in another language.
fn errors(dialect: Dialect, definition: &Json) -> Option<Vec<Problem>> {
    let text = definition.to_string();
    let source = Source::from_bytes("t.json", text.as_bytes()).expect("JSON is UTF-8");
    let loaded = load(&source);
    let other = loaded.dialect.is_some_and(|it| it != dialect);
    let errors = loaded.problems.into_iter();
    let errors = errors.filter(|it| it.severity == Severity::Error);
    (!other).then(|| errors.collect())
}

/// The places of all values of a tree: the pointer, and the pointer with kinds in the place of numbers, which is the same
/// for places of the same kind.
fn places(value: &Json, at: &str, general: &str, found: &mut Vec<(String, String)>) {
    let kind = value.get("kind").and_then(Json::as_str).unwrap_or_default();
    let general = match kind {
        "" => general.to_owned(),
        kind => format!("{general}({kind})"),
    };
    found.push((at.to_owned(), general.clone()));
    match value {
        Json::Object(map) => {
            for (key, item) in map {
                let key = key.replace('~', "~0").replace('/', "~1");
                places(
                    item,
                    &format!("{at}/{key}"),
                    &format!("{general}/{key}"),
                    found,
                );
            }
        }
        Json::Array(items) => {
            for (place, item) in items.iter().enumerate() {
                places(
                    item,
                    &format!("{at}/{place}"),
                    &format!("{general}/*"),
                    found,
                );
            }
        }
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => {}
    }
}

/// The Markdown files below a folder.
fn pages(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder of documents") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            pages(&path, found);
        } else if path.extension().is_some_and(|it| it == "md") {
            found.push(path);
        }
    }
}

/// Every example of a language, and every definition in the documents that has no errors.
fn definitions(dialect: Dialect) -> Vec<(String, Json)> {
    let files = examples(dialect.name()).into_iter();
    let mut all: Vec<(String, Json)> = files
        .map(|(name, text)| (name, crate::node(&text).to_json()))
        .collect();
    let mut files = Vec::new();
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    pages(&docs, &mut files);
    files.sort();
    for file in files {
        let text = std::fs::read_to_string(&file).expect("a document");
        for block in text.split("```yaml\n").skip(1) {
            let block = block.split("```").next().unwrap_or_default();
            let source = Source::from_bytes("t.yaml", block.as_bytes()).expect("UTF-8");
            let loaded = load(&source);
            if loaded.dialect == Some(dialect) && loaded.plan.is_some() {
                all.push((file.display().to_string(), crate::node(block).to_json()));
            }
        }
    }
    // A place is looked at once, in the smallest definition that has it.
    all.sort_by_key(|(_, definition)| definition.to_string().len());
    all
}

/// What a schema says about the same value, in all its branches.
fn branches<'a>(root: &'a Json, schema: &'a Json, found: &mut Vec<&'a Json>) {
    if found.iter().any(|it| std::ptr::eq(*it, schema)) {
        return;
    }
    found.push(schema);
    let target = schema.get("$ref").and_then(Json::as_str);
    let target = target.and_then(|it| root.pointer(it.strip_prefix('#')?));
    let one = ["if", "then", "else"]
        .into_iter()
        .filter_map(|it| schema.get(it));
    let lists = ["anyOf", "oneOf", "allOf"]
        .into_iter()
        .filter_map(|it| schema.get(it));
    for inner in target.into_iter().chain(one) {
        branches(root, inner, found);
    }
    for inner in lists.filter_map(Json::as_array).flatten() {
        branches(root, inner, found);
    }
}

/// The names of the fields that a schema has at a place, whatever else stands there.
fn field_names(root: &Json, place: &str) -> BTreeSet<String> {
    let mut at = Vec::new();
    branches(root, root, &mut at);
    for key in place.split('/').skip(1) {
        let mut below = Vec::new();
        for schema in at {
            let by_name = schema.get("properties").and_then(|it| it.get(key));
            let others = ["additionalProperties", "items"].map(|it| schema.get(it));
            for inner in by_name.into_iter().chain(others.into_iter().flatten()) {
                branches(root, inner, &mut below);
            }
        }
        at = below;
    }
    let properties = at.iter().filter_map(|it| it.get("properties")?.as_object());
    properties.flat_map(|it| it.keys().cloned()).collect()
}

/// Compares reader and schema, and counts.
struct Comparison {
    dialect: Dialect,
    schema: jsonschema::Validator,
    accepted: usize,
    refused: usize,
    disagree: BTreeSet<String>,
}

impl Comparison {
    fn look_at(&mut self, definition: &Json, what: &dyn Fn() -> String) {
        let Some(errors) = errors(self.dialect, definition) else {
            return;
        };
        let refused = match self.schema.is_valid(definition) {
            true => None,
            false => self.schema.iter_errors(definition).next(),
        };
        match (&refused, errors.iter().find(|it| !is_only_code(it))) {
            (Some(refused), None) if errors.is_empty() => {
                let at = refused.instance_path();
                let why = format!("only the schema refuses {}: {at}: {refused}", what());
                self.disagree.insert(why);
            }
            (None, Some(problem)) => {
                let (code, message) = (problem.code, &problem.message);
                let why = format!("only the reader refuses {}: {code}: {message}", what());
                self.disagree.insert(why);
            }
            (Some(_), _) => self.refused += 1,
            (None, None) => self.accepted += 1,
        }
    }
}

fn mutants(key: &str) -> Vec<Json> {
    let mut values = vec![
        json!(null),
        json!(7),
        json!(0),
        json!(-1),
        json!(1.5),
        json!(1_000_000_000_000_u64),
        json!(true),
        json!(""),
        json!(" "),
        json!("zzz"),
        json!("7"),
        json!("a|b"),
        json!(" a"),
        json!("5m"),
        json!("1h 30m"),
        json!("30m 1h"),
        json!("5 minutes"),
        json!("0s"),
        json!("-5m"),
        json!("PT5M"),
        json!("PTX"),
        json!("{{ workload.x }}"),
        json!([]),
        json!([7]),
        json!([null]),
        json!(["zzz"]),
        json!(["zzz", "zzz"]),
        json!({}),
        json!({ "zzz": 1 }),
        json!({ "zzz": {} }),
        json!({ "kind": "noop" }),
        json!([{ "kind": "noop" }, { "kind": "noop" }]),
    ];
    if key == "kind" {
        values.extend(kind_names().iter().map(|name| json!(name)));
    }
    values
}

/// Compares reader and schema for every definition of a language and its mutations.
fn agree(dialect: Dialect) {
    let schema = document::schema(dialect);
    let mut comparison = Comparison {
        dialect,
        schema: validator(&schema),
        accepted: 0,
        refused: 0,
        disagree: BTreeSet::new(),
    };
    let mut seen: HashSet<(String, String)> = HashSet::new();
    for (name, definition) in definitions(dialect) {
        let name = name.rsplit('/').next().unwrap_or_default();
        comparison.look_at(&definition, &|| name.to_owned());
        let mut found = Vec::new();
        places(&definition, "", "", &mut found);
        for (place, general) in &found {
            // Another value, or none.
            if let Some((parent, key)) = place.rsplit_once('/')
                && seen.insert((general.clone(), String::new()))
            {
                let mut without = definition.clone();
                if let Some(Json::Object(map)) = without.pointer_mut(parent) {
                    map.remove(key);
                    comparison.look_at(&without, &|| format!("{name} without {place}"));
                }
                for value in mutants(key) {
                    let mut changed = definition.clone();
                    *changed.pointer_mut(place).expect("a place of it") = value.clone();
                    comparison.look_at(&changed, &|| format!("{name} {place}: {value}"));
                }
            }
            // One more field.
            let Some(Json::Object(map)) = definition.pointer(place) else {
                continue;
            };
            let mut names = field_names(&schema, place);
            names.insert("zzz".to_owned());
            for key in names {
                if map.contains_key(&key) || !seen.insert((general.clone(), key.clone())) {
                    continue;
                }
                let values = [json!(null), json!("zzz"), json!(7), json!({})];
                for value in values {
                    let mut changed = definition.clone();
                    changed.pointer_mut(place).expect("a place of it")[&key] = value.clone();
                    let what = || format!("{name} {place} with {key}: {value}");
                    comparison.look_at(&changed, &what);
                }
            }
        }
    }
    let Comparison {
        accepted,
        refused,
        disagree,
        ..
    } = comparison;
    let count = disagree.len();
    let shown: Vec<String> = disagree.into_iter().collect();
    assert!(count == 0, "{count} disagreements:\n{}", shown.join("\n"));
    assert!(
        accepted > 100 && refused > 1000,
        "{accepted} accepted, {refused} refused"
    );
}

#[test]
fn reader_and_schema_of_actions_agree() {
    agree(Dialect::Actions);
}

#[test]
fn reader_and_schema_of_dag_agree() {
    agree(Dialect::Dag);
}

#[test]
fn reader_and_schema_of_plan_agree() {
    agree(Dialect::Plan);
}

#[test]
fn reader_and_schema_of_playbook_agree() {
    agree(Dialect::Playbook);
}

#[test]
fn reader_and_schema_of_linear_agree() {
    agree(Dialect::Linear);
}
