//! From the tree to the model, field by field. What concerns several fields is in `validate`.

use stepwell_kernel::plan::Duty;

use super::fields;
use super::model::{Action, ActionCompensation, ActionsWorkflow, Located, Tier};
use super::retry;
use crate::codes;
use crate::losses::Losses;
use crate::problem::Problems;
use crate::reader::{Field, Fields};
use crate::source::Span;
use crate::tree::Node;
use crate::words::{nearest, quote};
use crate::{template, tools, undo};

/// The timeout of an action that gives none: five minutes.
const TIMEOUT_MS: u64 = 300_000;

pub(super) fn workflow(root: &Node, p: &mut Problems) -> Option<ActionsWorkflow> {
    let mut f = Fields::known(root, "a workflow", &fields::WORKFLOW, p)?;
    if let Some(version) = f.req("schemaVersion", p) {
        schema_version(&version, p);
    }
    let id = f.req("workflowId", p).and_then(|v| v.name(p));
    let workspace = f.req("workspaceId", p).and_then(|v| v.string(p));
    let name = f.req("name", p).and_then(|v| v.string(p));
    let description = f.opt("description", p).and_then(|v| v.text(p));
    let version = f.req("version", p).and_then(|v| v.whole(p));
    let active = f.req("active", p).and_then(|v| at(&v, v.bool(p)));
    let tier = f.req("executionTier", p).and_then(|v| tier(&v, p));
    let list = f.req("actions", p).and_then(|v| actions(&v, p));
    f.finish(p);
    Some(ActionsWorkflow {
        id: id.unwrap_or_default().to_owned(),
        workspace: workspace.unwrap_or_default().to_owned(),
        name: name.unwrap_or_default().to_owned(),
        description: description.map(str::to_owned),
        version: version.unwrap_or(1),
        active: active.unwrap_or(Located {
            value: true,
            span: root.span,
        }),
        tier: tier.unwrap_or(Tier::Auto),
        actions: list?,
    })
}

fn at<T>(field: &Field<'_>, value: Option<T>) -> Option<Located<T>> {
    let span: Span = field.span();
    value.map(|value| Located { value, span })
}

/// The first version of the format, which files write as a number or as text.
fn schema_version(field: &Field<'_>, p: &mut Problems) {
    let known = match field.scalar_text(p) {
        None => return,
        Some(text) => matches!(text.trim_start_matches('v'), "1" | "1.0"),
    };
    if !known {
        let message = format!("must be 1, but is {}", field.node.describe());
        field
            .error(codes::SCHEMA_VERSION_UNSUPPORTED, &message, p)
            .help("write `schemaVersion: 1`");
    }
}

fn tier(field: &Field<'_>, p: &mut Problems) -> Option<Tier> {
    field.word(p).and_then(Tier::from_name)
}

fn actions(field: &Field<'_>, p: &mut Problems) -> Option<Vec<Action>> {
    let items = field.list(p)?;
    if items.is_empty() {
        field
            .error(codes::FIELD_VALUE, "must not be empty", p)
            .help("add at least one action");
    }
    Some(items.iter().filter_map(|item| action(item, p)).collect())
}

fn action(item: &Field<'_>, p: &mut Problems) -> Option<Action> {
    let mut f = item.known(&fields::ACTION, p)?;
    let id = f.req("actionId", p).and_then(|v| at(&v, v.name(p)));
    let order = f.req("order", p);
    let order = order.and_then(|v| at(&v, v.int(i64::MIN..=i64::MAX, p)));
    let port_family = f.req("portFamily", p).and_then(|v| v.name(p));
    let operation = f.req("operation", p).and_then(|v| operation(&v, p));
    let tier_override = f.opt("executionTierOverride", p);
    let tier = tier_override.and_then(|v| at(&v, tier(&v, p)));
    let mut notes = Vec::new();
    for key in ["capability", "inputSchemaRef", "outputSchemaRef"] {
        let text = f.opt(key, p).and_then(|v| v.string(p));
        notes.extend(text.map(|text| (key, text.to_owned())));
    }
    let depends_on = f.opt("dependsOn", p).map(|v| names(&v, p));
    let retry_field = f.opt("retryPolicy", p);
    let retry = retry::read(retry_field.as_ref(), retry::ACTION, p);
    let losses = Losses::read(&mut f, p);
    losses.exclude(&retry_field, p);
    let timeout = f.opt("timeoutMs", p);
    let timeout = timeout.and_then(|v| v.time(p));
    let manual = f.opt("completionMode", p).and_then(|v| {
        let word = v.word(p);
        at(&v, word.map(|word| word == "manual"))
    });
    let input = f.opt("input", p).inspect(|v| {
        template::check(v.node, p);
    });
    let side_effecting = f.opt("sideEffecting", p).and_then(|v| at(&v, v.bool(p)));
    let compensation = f.opt("compensation", p).and_then(|v| compensation(&v, p));
    let tool = f.opt("tool", p).and_then(|v| tools::work(&v, p));
    let duties = f.opt("separationOfDuties", p).map(|v| duties(&v, p));
    f.finish(p);
    Some(Action {
        id: id.map(|id| Located {
            value: id.value.to_owned(),
            span: id.span,
        }),
        order,
        port_family: port_family.unwrap_or_default().to_owned(),
        operation: operation.unwrap_or_default(),
        tier,
        notes,
        depends_on,
        retry,
        retry_given: retry_field.is_some(),
        losses,
        timeout_ms: timeout.unwrap_or(TIMEOUT_MS),
        timeout_given: timeout.is_some(),
        manual,
        input: input.map(|v| v.json()).unwrap_or_default(),
        side_effecting,
        compensation,
        tool,
        duties: duties.unwrap_or_default(),
    })
}

/// `entity:verb`, such as `payment:authorise`.
fn operation(field: &Field<'_>, p: &mut Problems) -> Option<String> {
    let text = field.string(p)?;
    let word = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_alphabetic())
            && part
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'))
    };
    if text
        .split_once(':')
        .is_some_and(|(entity, verb)| word(entity) && word(verb))
    {
        return Some(text.to_owned());
    }
    let message = format!("must be `entity:verb`, but is {}", quote(text));
    field
        .error(codes::OPERATION_INVALID, &message, p)
        .help("write what is acted on and what is done, such as `payment:authorise`");
    None
}

fn names(field: &Field<'_>, p: &mut Problems) -> Vec<Located<String>> {
    let items = field.list(p).unwrap_or_default();
    let name = |item: &Field<'_>, p: &mut Problems| at(item, item.string(p).map(str::to_owned));
    items.iter().filter_map(|item| name(item, p)).collect()
}

fn compensation(field: &Field<'_>, p: &mut Problems) -> Option<ActionCompensation> {
    let mut f = field.known(&fields::COMPENSATION, p)?;
    let operation_field = f.opt("compensationOperation", p);
    let input = f.opt("compensationInput", p);
    for (key, other, missing) in [
        (
            "compensationOperation",
            "compensationInput",
            operation_field.is_none(),
        ),
        (
            "compensationInput",
            "compensationOperation",
            input.is_none(),
        ),
    ] {
        if missing {
            p.error(
                codes::COMPENSATION_INCOMPLETE,
                f.span(),
                format!("a compensation needs `{key}`; it comes in a pair with `{other}`"),
            )
            .help(match key {
                "compensationInput" => {
                    "add `compensationInput: {}` if the operation needs no input"
                }
                _ => "add `compensationOperation: entity:verb`, or remove `compensation`",
            });
        }
    }
    let operation = operation_field.and_then(|v| operation(&v, p));
    if let Some(input) = &input {
        template::check(input.node, p);
    }
    let tool = f.opt("tool", p).and_then(|v| undo::tool_tasks(&v, p));
    let timeout = f.opt("timeoutMs", p);
    let timeout = timeout.and_then(|v| v.time(p));
    let retry = retry::read(f.opt("retryPolicy", p).as_ref(), retry::HOOK, p);
    f.finish(p);
    Some(ActionCompensation {
        operation: operation?,
        input: input?.json(),
        tool,
        timeout_ms: timeout.unwrap_or(TIMEOUT_MS),
        retry,
    })
}

fn duties(field: &Field<'_>, p: &mut Problems) -> Vec<Located<Duty>> {
    let items = field.list(p).unwrap_or_default();
    let duty = |item: &Field<'_>, p: &mut Problems| at(item, duty(item, p));
    items.iter().filter_map(|item| duty(item, p)).collect()
}

/// `MakerChecker`, `{distinctApprovers: 2}` or `{incompatibleDuties: [actionId, …]}`.
fn duty(item: &Field<'_>, p: &mut Problems) -> Option<Duty> {
    const HELP: &str =
        "write `MakerChecker`, `{distinctApprovers: 2}` or `{incompatibleDuties: [an-action]}`";
    if let Some(text) = item.node.as_str() {
        if text == "MakerChecker" {
            return Some(Duty::MakerChecker);
        }
        let near = nearest(text, &["MakerChecker"]).map(|near| format!("did you mean `{near}`?"));
        let message = format!("must be a duty, but is {}", quote(text));
        item.error(codes::FIELD_VALUE, &message, p)
            .help(near.unwrap_or_else(|| HELP.to_owned()));
        return None;
    }
    let mut f = item.known(&fields::DUTY, p)?;
    let count = f.opt("distinctApprovers", p);
    let keys = f.opt("incompatibleDuties", p);
    let duty = match (count, keys) {
        (Some(count), None) => count.whole(p).map(|count| Duty::DistinctApprovers {
            count: u32::try_from(count).unwrap_or(1),
        }),
        (None, Some(keys)) => {
            let list = names(&keys, p);
            if keys.node.as_seq().is_some_and(<[Node]>::is_empty) {
                keys.error(codes::FIELD_VALUE, "must not be empty", p)
                    .help(HELP);
            }
            let keys = list.into_iter().map(|key| key.value).collect();
            Some(Duty::IncompatibleDuties { keys })
        }
        _ => {
            item.error(codes::FIELD_VALUE, "must hold exactly one duty", p)
                .help(HELP);
            None
        }
    };
    f.finish(p);
    duty
}
