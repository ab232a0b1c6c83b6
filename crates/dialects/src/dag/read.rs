//! From the tree to the model: one field after the other, every problem reported.

use serde_json::{Map, Value as Json, json};

use super::model::{DagCompensation, DagWorkflow, FailurePolicy, StepMention};
use super::{API_VERSION, fields};
use crate::codes;
use crate::problem::Problems;
use crate::reader::{Field, Fields};
use crate::tree::{Node, Value};
use crate::trigger::KEY;
use crate::words::quote;
use crate::{template, undo};

mod step;
mod trigger;

pub(super) use step::{default_retry, retry_on_schema};

/// Reads the whole file; what cannot be read is reported and left out.
pub(crate) fn workflow<'n>(root: &'n Node, p: &mut Problems) -> Option<DagWorkflow<'n>> {
    let mut f = Fields::known(root, "the workflow", &fields::RESOURCE, p)?;
    if let Some(version) = f.req("apiVersion", p) {
        check_version(&version, p);
    }
    if let Some(kind) = f.req("kind", p) {
        kind.word(p);
    }
    let metadata = f.req("metadata", p);
    let spec = f.req("spec", p);
    f.finish(p);

    let mut extra = Map::new();
    let (name, version) = metadata
        .and_then(|field| self::metadata(&field, &mut extra, p))
        .unwrap_or_default();
    spec.and_then(|field| self::spec(&field, name, version, extra, p))
}

fn check_version(field: &Field<'_>, p: &mut Problems) {
    let Some(version) = field.string(p) else {
        return;
    };
    if version != API_VERSION {
        let message = format!("the version {} is not known", quote(version));
        p.error(codes::DAG_VERSION_UNKNOWN, field.span(), message)
            .help(format!("write `apiVersion: {API_VERSION}`"));
    }
}

fn metadata<'n>(
    field: &Field<'n>,
    extra: &mut Map<String, Json>,
    p: &mut Problems,
) -> Option<(&'n str, String)> {
    let mut f = field.known(&fields::METADATA, p)?;
    let name = f.req("name", p).and_then(|name| workflow_name(&name, p));
    let version = f.opt("version", p).and_then(|v| version_text(&v, p));
    let mut kept = Map::new();
    if let Some(owner) = f.opt("owner", p).and_then(|owner| owner.string(p)) {
        kept.insert("owner".to_owned(), owner.into());
    }
    for key in ["labels", "annotations"] {
        if let Some(labels) = f.opt(key, p).and_then(|field| words_by_key(&field, p)) {
            kept.insert(key.to_owned(), labels);
        }
    }
    f.finish(p);
    if !kept.is_empty() {
        extra.insert("metadata".to_owned(), Json::Object(kept));
    }
    Some((
        name.unwrap_or_default(),
        version.unwrap_or_else(|| "1".to_owned()),
    ))
}

/// `^[a-z][a-z0-9-]*$`, so that it can be a part of addresses and labels.
fn workflow_name<'n>(field: &Field<'n>, p: &mut Problems) -> Option<&'n str> {
    let name = field.name(p)?;
    let lower = |c: char| c.is_ascii_lowercase();
    let fits = name.starts_with(lower)
        && name
            .chars()
            .all(|c| lower(c) || c.is_ascii_digit() || c == '-');
    if fits {
        return Some(name);
    }
    let better: String = name
        .to_lowercase()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .collect();
    let better = better.trim_start_matches(|c: char| !lower(c));
    let better = if better.is_empty() {
        "my-workflow"
    } else {
        better
    };
    let message = format!(
        "the name {} must be lower-case letters, digits and `-`, and begin with a letter",
        quote(name)
    );
    p.error(codes::NAME_INVALID, field.span(), message)
        .help(format!("write a name such as {}", quote(better)));
    None
}

/// A version: text, or a whole number. `1.10` as a number would become `1.1`.
fn version_text(field: &Field<'_>, p: &mut Problems) -> Option<String> {
    if let Value::Int(int) = field.node.value {
        return Some(int.to_string());
    }
    let version = field.string(p)?;
    if version.contains('|') {
        field
            .error(codes::NAME_INVALID, "must not hold `|`", p)
            .help("write a version such as `1.2.0`");
        return None;
    }
    Some(version.to_owned())
}

fn words_by_key(field: &Field<'_>, p: &mut Problems) -> Option<Json> {
    let entries = field.map(p)?;
    let mut kept = Map::new();
    for entry in entries {
        if let Some(text) = Field::of(entry).scalar_text(p) {
            kept.insert(entry.key.clone(), text.into());
        }
    }
    Some(Json::Object(kept))
}

fn spec<'n>(
    field: &Field<'n>,
    name: &'n str,
    version: String,
    mut extra: Map<String, Json>,
    p: &mut Problems,
) -> Option<DagWorkflow<'n>> {
    let mut f = field.known(&fields::SPEC, p)?;
    if let Some(text) = f.opt("description", p).and_then(|field| field.text(p)) {
        extra.insert("description".to_owned(), text.into());
    }
    if let Some(domains) = f.opt("domainsInvolved", p).and_then(|it| it.strings(p)) {
        extra.insert("domainsInvolved".to_owned(), json!(domains));
    }
    if let Some(trigger) = f.opt("trigger", p).and_then(|it| trigger::trigger(&it, p)) {
        extra.insert(KEY.to_owned(), trigger);
    }
    let timeout_ms = f.opt("timeout", p).and_then(|field| field.time(p));
    let failure = f.opt("failurePolicy", p).and_then(|field| {
        let word = field.word(p)?;
        let policy = match word {
            "compensate" => FailurePolicy::Compensate,
            "retry" => FailurePolicy::Retry,
            _ => FailurePolicy::Abort,
        };
        Some((policy, field.span()))
    });
    let steps_field = f.req("steps", p);
    let steps_span = steps_field.as_ref().map_or(f.span(), Field::span);
    let items = steps_field.and_then(|steps| steps.list(p));
    if items.as_ref().is_some_and(Vec::is_empty) {
        p.error(
            codes::DAG_EMPTY,
            steps_span,
            "a workflow needs at least one step",
        )
        .help("add `- name: …` with an `agent` and an `action`, or a `tool`");
    }
    let steps = items
        .iter()
        .flatten()
        .filter_map(|item| step::step(item, p));
    let steps = steps.collect();
    let undos = f.opt("compensation", p).and_then(|undos| undos.list(p));
    let compensation = undos
        .iter()
        .flatten()
        .filter_map(|it| compensation(it, p))
        .collect();
    f.finish(p);
    items?;
    Some(DagWorkflow {
        name,
        version,
        steps,
        steps_span,
        compensation,
        timeout_ms,
        failure,
        extra: Json::Object(extra),
    })
}

fn compensation<'n>(field: &Field<'n>, p: &mut Problems) -> Option<DagCompensation<'n>> {
    let mut f = field.known(&fields::COMPENSATION, p)?;
    let step = f.req("step", p).and_then(|step| mention(&step, p));
    let tool = f.opt("tool", p);
    let input = f.opt("input", p);
    if let Some(input) = &input {
        template::check(input.node, p);
    }
    let input = input.map_or(Json::Null, |input| input.json());
    let timeout_ms = f.opt("timeout", p).and_then(|field| field.time(p));
    // Beside a tool these only say for people what is done and by whom.
    let by_tool = tool.is_some();
    let mut said = |key: &'static str, p: &mut Problems| {
        let field = if by_tool {
            f.opt(key, p)
        } else {
            f.req(key, p)
        };
        field.and_then(|field| field.string(p)).map(str::to_owned)
    };
    let (agent, action) = (said("agent", p), said("action", p));
    let (queue, operation, tasks) = match tool {
        Some(tool) => {
            let tasks = undo::tool_tasks(&tool, p).unwrap_or_default();
            let queue = agent.unwrap_or_else(|| undo::TOOL_QUEUE.to_owned());
            let operation = action.unwrap_or_else(|| undo::TOOL_OPERATION.to_owned());
            (Some(queue), Some(operation), tasks)
        }
        None => (agent, action, Json::Null),
    };
    f.finish(p);
    Some(DagCompensation {
        step: step?,
        queue: queue?,
        operation: operation?,
        input,
        tasks,
        timeout_ms,
    })
}

/// A step's name where it is pointed at.
fn mention<'n>(field: &Field<'n>, p: &mut Problems) -> Option<StepMention<'n>> {
    let name = field.string(p)?;
    let span = field.span();
    Some(StepMention { name, span })
}
