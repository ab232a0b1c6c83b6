//! The root of a playbook: header, metadata, keychain, workload, workbook and the list of steps.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json, json};
use stepwell_kernel::expr::{Template, has_template};

use super::model::{Playbook, StepDef};
use super::{executor, fields, step};
use crate::codes;
use crate::field::Field;
use crate::leftover;
use crate::problem::Problems;
use crate::reader::Fields;
use crate::secret_literals::is_reference;
use crate::tools::{self, TaskDef};
use crate::tree::{Node, Value};
use crate::words::{list, nearest, quote};

const API_VERSION: &str = "noetl.io/v2";

/// Reads a playbook as far as it can be read.
pub(super) fn playbook(root: &Node, p: &mut Problems) -> Option<Playbook> {
    let mut f = Fields::known(root, "a playbook", &fields::PLAYBOOK, p)?;
    header(&mut f, p);
    let metadata = f.req("metadata", p).and_then(|it| metadata(&it, p));
    let executor = match f.opt("executor", p) {
        Some(field) => executor::read(&field, p),
        None => executor::Executor::default(),
    };
    let keychain = f.opt("keychain", p).map(|it| keychain(&it, p));
    let workload = f.opt("workload", p).map(|it| workload(&it, p));
    let library = f.opt("workbook", p).map(|it| workbook(&it, p));
    let steps = f.req("workflow", p).and_then(|it| workflow(&it, p));
    leftover::finish(&f, "a playbook", p);
    let (metadata, steps) = (metadata?, steps?);
    let mut extra = Map::new();
    let mut put = |key: &str, value: Option<Json>| {
        if let Some(value) = value.filter(|it| !it.is_null()) {
            extra.insert(key.to_owned(), value);
        }
    };
    put("metadata", Some(metadata.all));
    put("keychain", keychain);
    put("requires", Some(executor.requires.clone()));
    put("executor", Some(executor.profile.clone()));
    Some(Playbook {
        name: metadata.name,
        version: metadata.version,
        workload: workload.unwrap_or_default(),
        executor,
        steps,
        library: library.unwrap_or_default(),
        extra: Json::Object(extra),
    })
}

fn header(f: &mut Fields<'_>, p: &mut Problems) {
    if let Some(field) = f.req("apiVersion", p)
        && let Some(text) = field.string(p)
        && text != API_VERSION
    {
        p.error(
            codes::API_VERSION,
            field.span(),
            format!("{} is not a version of playbooks that is read here", quote(text)),
        )
        .help(format!(
            "write `apiVersion: {API_VERSION}`; steps of version 1 must be rewritten with `tool` and `next.arcs`"
        ));
    }
    if let Some(field) = f.req("kind", p) {
        field.word(p);
    }
}

struct Metadata {
    name: String,
    version: String,
    all: Json,
}

/// Free keys are allowed here: people label things.
fn metadata(field: &Field<'_>, p: &mut Problems) -> Option<Metadata> {
    let mut f = field.known(&fields::METADATA, p)?;
    let name = f
        .req("name", p)
        .and_then(|it| it.name(p).map(str::to_owned));
    let version = f.opt("version", p).map(|it| (it.scalar_text(p), it.span()));
    if let Some(path) = f.opt("path", p) {
        path.string(p);
    }
    for text in ["description", "desc"] {
        f.opt(text, p).and_then(|it| it.text(p));
    }
    let version = match version {
        Some((Some(text), span)) => crate::reader::check_name_text(&text, span, p).then_some(text),
        Some((None, _)) => None,
        None => Some("1".to_owned()),
    };
    Some(Metadata {
        name: name?,
        version: version?,
        all: field.json(),
    })
}

/// Secrets are references that a worker resolves; one written out is in every copy of the file.
fn keychain(field: &Field<'_>, p: &mut Problems) -> Json {
    let mut names: Vec<&str> = Vec::new();
    for item in field.list(p).unwrap_or_default() {
        let Some(mut f) = item.known(&fields::KEYCHAIN, p) else {
            continue;
        };
        if let Some(name) = f.req("name", p)
            && let Some(text) = name.string(p)
        {
            if names.contains(&text) {
                let message = format!("the keychain has {} twice", quote(text));
                p.error(codes::NAME_DUPLICATE, name.span(), message)
                    .help("give each entry a name of its own");
            }
            names.push(text);
        }
        crate::template::check(item.node, p);
        keychain_kind(item.node, p);
        for key in ["password", "secret", "token", "value", "api_key"] {
            let secret = f.opt(key, p);
            if let Some(secret) = secret.filter(|it| is_written_out(it.node)) {
                p.warn(
                    codes::KEYCHAIN_PLAINTEXT,
                    secret.span(),
                    format!(
                        "{} of a keychain entry is written out in the file",
                        secret.label
                    ),
                )
                .help("refer to a stored secret instead, with `ref` or `credential`");
            }
        }
    }
    field.json()
}

/// Kinds of keychain entries: what `auth` of the tools can be.
const KEYCHAIN_KINDS: [&str; 9] = [
    "api_key",
    "basic",
    "bearer",
    "credential",
    "header",
    "none",
    "postgres",
    "redis",
    "secret",
];

/// Where secrets are kept.
const PROVIDERS: [&str; 3] = ["env", "file", "vault"];

/// A kind or a provider that does not exist would be left out in silence.
fn keychain_kind(entry: &Node, p: &mut Problems) {
    for (keys, known, what) in [
        (&["kind", "type"][..], &KEYCHAIN_KINDS[..], "kind"),
        (&["provider"][..], &PROVIDERS[..], "provider"),
    ] {
        let given = keys.iter().find_map(|key| entry.get(key));
        let Some((node, text)) = given.and_then(|node| Some((node, node.as_str()?))) else {
            continue;
        };
        let plain = text.to_ascii_lowercase().replace('-', "_");
        if has_template(text) || known.contains(&plain.as_str()) {
            continue;
        }
        let help = match nearest(text, known) {
            Some(near) => format!("did you mean {}?", quote(near)),
            None => format!("the {what}s are {}", list(known)),
        };
        p.warn(
            codes::KEYCHAIN_UNKNOWN,
            node.span,
            format!("there is no {what} {} of keychain entries", quote(text)),
        )
        .help(help);
    }
}

fn is_written_out(node: &Node) -> bool {
    matches!(&node.value, Value::Str(text) if !is_reference(text))
}

fn workload(field: &Field<'_>, p: &mut Problems) -> Json {
    field.map(p);
    if let Some(node) = first_broken_template(field.node) {
        p.warn(
            codes::TEMPLATE_IGNORED,
            node.span,
            "this text of `workload` is no template that can be read: it stays as it is",
        )
        .help("fix it, or write `{{ '{{' }}` for braces that are meant");
    }
    field.json()
}

fn first_broken_template(node: &Node) -> Option<&Node> {
    match &node.value {
        Value::Str(text) => (has_template(text) && Template::parse(text).is_err()).then_some(node),
        Value::Seq(items) => items.iter().find_map(first_broken_template),
        Value::Map(entries) => entries
            .iter()
            .find_map(|it| first_broken_template(&it.node)),
        Value::Null | Value::Bool(_) | Value::Int(_) | Value::Float(_) => None,
    }
}

fn workbook(field: &Field<'_>, p: &mut Problems) -> BTreeMap<String, Vec<TaskDef>> {
    let mut library = BTreeMap::new();
    for item in field.list(p).unwrap_or_default() {
        let Some(mut f) = item.known(&fields::WORKBOOK, p) else {
            continue;
        };
        let name = f.req("name", p);
        let text = name.as_ref().and_then(|it| it.name(p));
        let tasks = f.req("tool", p).and_then(|it| tools::pipeline(&it, p));
        for text in ["desc", "description"] {
            f.opt(text, p).and_then(|it| it.text(p));
        }
        leftover::finish(&f, "a workbook entry", p);
        let (Some(name), Some(text)) = (name, text) else {
            continue;
        };
        for task in tasks.iter().flatten() {
            if matches!(task.kind, "workbook" | "wait" | "manual") {
                p.error(
                    codes::TOOL_NOT_ALONE,
                    task.span,
                    format!("a workbook entry cannot hold {}", quote(task.kind)),
                )
                .help("put it into a step of its own");
            }
        }
        if library
            .insert(text.to_owned(), tasks.unwrap_or_default())
            .is_some()
        {
            let message = format!("the workbook has {} twice", quote(text));
            p.error(codes::NAME_DUPLICATE, name.span(), message)
                .help("give each entry a name of its own");
        }
    }
    library
}

fn workflow(field: &Field<'_>, p: &mut Problems) -> Option<Vec<StepDef>> {
    let items = field.list(p)?;
    if items.is_empty() {
        field
            .error(codes::FIELD_VALUE, "must have at least one step", p)
            .help("add `- step: hello` with a `tool`");
        return None;
    }
    let steps: Vec<Option<StepDef>> = items.iter().map(|item| step::read(item, p)).collect();
    // A step that cannot be read would make every arc to it unknown as well.
    steps.into_iter().collect()
}

/// The library as the worker sees it.
pub(super) fn library_json(library: BTreeMap<String, Vec<TaskDef>>) -> BTreeMap<String, Json> {
    let tasks = |tasks: Vec<TaskDef>| -> Json {
        tasks
            .into_iter()
            .map(|task| Json::Object(task.json))
            .collect()
    };
    library
        .into_iter()
        .map(|(name, list)| (name, json!({ "tasks": tasks(list) })))
        .collect()
}
