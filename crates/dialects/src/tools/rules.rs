//! Task policy: `spec.policy.rules`, looked at after every task, the first match decides.

use serde_json::{Map, Value as Json, json};
use stepwell_kernel::expr::has_template;
use stepwell_kernel::plan::BackoffKind;

use super::sets::{Assignments, VarScope};
use crate::backoff;
use crate::codes;
use crate::duration::DurationRule;
use crate::field::Field;
use crate::problem::Problems;
use crate::reader::Fields;
use crate::template;
use crate::tree::Node;
use crate::words::{nearest, quote};

/// What a rule does after its task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleAction {
    /// The task is executed again.
    Retry,
    /// Another task of the block is next.
    Jump,
    /// The block ends as completed.
    Break,
    /// The block ends and the step fails.
    Fail,
    /// The next task follows.
    Continue,
}

impl RuleAction {
    /// Every action that a rule can have.
    pub const ALL: [RuleAction; 5] = [
        RuleAction::Retry,
        RuleAction::Jump,
        RuleAction::Break,
        RuleAction::Fail,
        RuleAction::Continue,
    ];

    /// The word for the action in files and in normalised rules.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            RuleAction::Retry => "retry",
            RuleAction::Jump => "jump",
            RuleAction::Break => "break",
            RuleAction::Fail => "fail",
            RuleAction::Continue => "continue",
        }
    }

    /// The action of a word.
    #[must_use]
    pub fn of(word: &str) -> Option<RuleAction> {
        RuleAction::ALL.into_iter().find(|it| it.word() == word)
    }
}

/// Reads the rules into the worker's form.
pub(super) fn read(field: &Field<'_>, p: &mut Problems) -> Option<Json> {
    let items = field.list(p)?;
    let mut rules = Vec::with_capacity(items.len());
    let mut decided = false;
    let mut ok = true;
    for item in &items {
        if decided {
            p.warn(
                codes::RULE_UNREACHABLE,
                item.span(),
                format!(
                    "{} is never looked at: a rule before it always matches",
                    item.label
                ),
            )
            .help("put the rule without a condition last");
        }
        match rule(item, p) {
            Some(rule) => {
                decided |= !rule.contains_key("when");
                rules.push(Json::Object(rule));
            }
            None => ok = false,
        }
    }
    ok.then_some(Json::Array(rules))
}

/// `{when, then}`, `{else: {then: …}}`, `{else: {do: …}}`, or `{else: …, then: …}`.
fn rule(item: &Field<'_>, p: &mut Problems) -> Option<Map<String, Json>> {
    let mut f = item.fields(p)?;
    let when = f.opt("when", p);
    let otherwise = f.opt("else", p);
    let then = f.opt("then", p);
    let empty_else = item.node.get("else").is_some();
    let span = f.span();
    f.finish(p);
    let mut out = Map::new();
    let body = match (&when, &otherwise) {
        (Some(_), _) if empty_else => {
            p.error(
                codes::RULE_SHAPE,
                span,
                "a rule has either `when` or `else`, not both",
            )
            .help("make two rules of it");
            return None;
        }
        (Some(when), _) => {
            // What is wrong with the condition is reported; the rest of the rule is still read.
            template::condition(when, p);
            let text = when.node.as_str().map(str::to_owned);
            let text = text.unwrap_or_else(|| format!("{{{{ {} }}}}", when.json()));
            out.insert("when".to_owned(), json!(text));
            then
        }
        (None, Some(otherwise)) if then.is_none() => Some(else_body(otherwise)),
        (None, _) if empty_else => then,
        (None, _) => {
            p.error(codes::RULE_SHAPE, span, "this rule has neither `when` nor `else`")
                .help("write `when: \"{{ … }}\"` with `then`, or `else: {then: {do: continue}}` as the last rule");
            return None;
        }
    };
    let Some(body) = body else {
        p.error(codes::RULE_SHAPE, span, "this rule does not say what to do")
            .help("add `then: {do: continue}`, or retry, jump, break or fail");
        return None;
    };
    action_of(&body, out, p)
}

/// What stands below `else`: with or without a `then` between.
fn else_body<'n>(otherwise: &Field<'n>) -> Field<'n> {
    match otherwise.node.as_map() {
        Some([entry]) if entry.key == "then" => Field::of(entry),
        _ => otherwise.clone(),
    }
}

/// Reads `{do, …}` into a rule.
fn action_of(
    body: &Field<'_>,
    mut out: Map<String, Json>,
    p: &mut Problems,
) -> Option<Map<String, Json>> {
    let mut f = body.fields(p)?;
    let given = f.opt("do", p);
    let action = match &given {
        Some(field) => {
            let words = RuleAction::ALL.map(RuleAction::word);
            let word = match field.one_of(&words, p) {
                Some(word) => word,
                // Reported; the rest is read as what was probably meant.
                None => nearest(field.node.as_str()?, &words)?,
            };
            RuleAction::of(word)?
        }
        None => RuleAction::Continue,
    };
    out.insert("do".to_owned(), json!(action.word()));
    retry(&mut f, action, &mut out, p);
    if let Some(to) = f.opt("to", p) {
        if action == RuleAction::Jump {
            if let Some(name) = to.string(p) {
                out.insert("to".to_owned(), json!(name));
            }
        } else {
            useless(&to, RuleAction::Jump, p);
        }
    } else if action == RuleAction::Jump {
        p.error(
            codes::RULE_SHAPE,
            f.span(),
            "`jump` needs `to`, the name of a task",
        )
        .help("add `to: …`, or `to: previous`");
    }
    sets(&mut f, p).write(&mut out);
    f.finish(p);
    Some(out)
}

fn retry(f: &mut Fields<'_>, action: RuleAction, out: &mut Map<String, Json>, p: &mut Problems) {
    let attempts = f.opt(["attempts", "max_attempts"], p);
    let backoff = f.opt("backoff", p);
    let delay = f.opt(["delay", "delay_s"], p);
    if action != RuleAction::Retry {
        for field in [attempts, backoff, delay].iter().flatten() {
            useless(field, RuleAction::Retry, p);
        }
        return;
    }
    let attempts = attempts.map_or(Some(json!(3)), |field| number(&field, 1..=1000, p));
    out.extend(attempts.map(|it| ("attempts".to_owned(), it)));
    let kind = backoff.map_or(Some(BackoffKind::Constant), |field| {
        field
            .one_of(&backoff::task_words(), p)
            .and_then(backoff::of_task)
    });
    out.extend(kind.map(|kind| ("backoff".to_owned(), json!(kind.name()))));
    match delay {
        None => {
            out.insert("delay_ms".to_owned(), json!(1000));
        }
        Some(delay) => duration("delay", &delay, out, p),
    }
}

/// A whole number, or a template for one.
fn number(
    field: &Field<'_>,
    range: std::ops::RangeInclusive<i64>,
    p: &mut Problems,
) -> Option<Json> {
    if is_template(field.node) {
        return template::check(field.node, p).then(|| field.json());
    }
    field.int(range, p).map(|it| json!(it))
}

/// `key_ms` for a fixed length of time, `key` for a template.
pub(super) fn duration(
    key: &str,
    field: &Field<'_>,
    out: &mut Map<String, Json>,
    p: &mut Problems,
) {
    if is_template(field.node) {
        if template::check(field.node, p) {
            out.insert(key.to_owned(), field.json());
        }
    } else if let Some(millis) = field.duration(DurationRule::SECONDS.or_zero(), p) {
        out.insert(format!("{key}_ms"), json!(millis));
    }
}

/// Reads the assignments of a task or of a rule.
pub(super) fn sets<'n>(f: &mut Fields<'n>, p: &mut Problems) -> Assignments<'n> {
    let mut sets = Assignments::default();
    if let Some(field) = f.opt("set_ctx", p) {
        sets.bare(&field, VarScope::Ctx, p);
    }
    if let Some(field) = f.opt("set_iter", p) {
        sets.bare(&field, VarScope::Iter, p);
    }
    if let Some(field) = f.opt("set", p) {
        sets.scoped(&field, &[VarScope::Ctx, VarScope::Iter, VarScope::Step], p);
    }
    sets
}

pub(super) fn is_template(node: &Node) -> bool {
    node.as_str().is_some_and(has_template)
}

fn useless(field: &Field<'_>, action: RuleAction, p: &mut Problems) {
    let action = action.word();
    p.warn(
        codes::FIELD_UNUSED,
        field.span(),
        format!("{} means nothing without `do: {action}`", field.label),
    )
    .help(format!("write `do: {action}`, or remove it"));
}

/// Checks that every `to` of a task names a task of the block, or `previous`.
pub(super) fn targets(item: &Field<'_>, names: &[&str], p: &mut Problems) -> bool {
    let mut ok = true;
    each_target(item.node, &mut |node| {
        let Some(to) = node.as_str() else { return };
        if to == "previous" || names.contains(&to) {
            return;
        }
        ok = false;
        let help = match nearest(to, names) {
            Some(near) => format!("did you mean {}?", quote(near)),
            None => format!(
                "the tasks of this block are {}; `previous` is the one before",
                crate::words::list(names)
            ),
        };
        p.error(
            codes::TASK_UNKNOWN,
            node.span,
            format!("there is no task {} in this block", quote(to)),
        )
        .help(help);
    });
    ok
}

/// Visits the `to` of every rule below a task, in whichever of the shapes they are written.
fn each_target(task: &Node, visit: &mut dyn FnMut(&Node)) {
    let task = match task.as_map() {
        Some([entry]) if entry.key != "kind" => &entry.node,
        _ => task,
    };
    let rules = task
        .get("spec")
        .and_then(|spec| spec.get("policy"))
        .and_then(|policy| policy.get("rules"))
        .and_then(Node::as_seq);
    for rule in rules.unwrap_or_default() {
        let bodies = [
            rule.get("then"),
            rule.get("else"),
            rule.get("else").and_then(|it| it.get("then")),
        ];
        for body in bodies.into_iter().flatten() {
            let jumps = body.get("do").and_then(Node::as_str) == Some("jump");
            if let Some(to) = body.get("to").filter(|_| jumps) {
                visit(to);
            }
        }
    }
}
