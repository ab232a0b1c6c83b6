//! What must hold between fields and between actions.

use std::collections::HashMap;

use stepwell_kernel::plan::{Duty, MAX_EDGES, MAX_STEPS};

use super::model::{Action, ActionsWorkflow, Located, Tier};
use crate::codes;
use crate::depends;
use crate::problem::Problems;
use crate::words::{nearest, quote};

/// How many cycles are named.
const MOST_CYCLES: usize = 10;

pub(super) fn check(workflow: &ActionsWorkflow, p: &mut Problems) {
    if !workflow.active.value {
        p.warn(
            codes::WORKFLOW_INACTIVE,
            workflow.active.span,
            "this workflow is not active",
        )
        .help("write `active: true` once it is meant to be run");
    }
    let by_id = ids(&workflow.actions, p);
    orders(&workflow.actions, p);
    sizes(&workflow.actions, p);
    dependencies(&workflow.actions, &by_id, p);
    for action in &workflow.actions {
        tier(action, workflow.tier, p);
        people(action, workflow.tier, p);
        duties(action, &workflow.actions, &by_id, p);
        side_effect(action, p);
    }
}

/// Action ids by place; a repeated one is reported.
fn ids<'w>(actions: &'w [Action], p: &mut Problems) -> HashMap<&'w str, usize> {
    let mut by_id = HashMap::new();
    for (at, action) in actions.iter().enumerate() {
        let Some(id) = &action.id else { continue };
        if by_id.contains_key(id.value.as_str()) {
            let name = quote(&id.value);
            p.error(
                codes::NAME_DUPLICATE,
                id.span,
                format!("two actions have the id {name}"),
            )
            .help("give each action an id of its own");
        } else {
            by_id.insert(id.value.as_str(), at);
        }
    }
    by_id
}

/// `order` is exactly 1..N, in whatever order the file lists them.
fn orders(actions: &[Action], p: &mut Problems) {
    let count = actions.len();
    let mut taken: Vec<bool> = vec![false; count];
    let mut wrong: Vec<&Located<i64>> = Vec::new();
    for order in actions.iter().filter_map(|action| action.order.as_ref()) {
        let slot = usize::try_from(order.value.saturating_sub(1)).ok();
        match slot.and_then(|slot| taken.get_mut(slot)) {
            Some(taken) if !*taken => *taken = true,
            _ => wrong.push(order),
        }
    }
    let mut free = (1..=count).filter(|order| !taken[order - 1]);
    for order in wrong {
        let value = order.value;
        let again = value >= 1 && usize::try_from(value).is_ok_and(|value| value <= count);
        let message = if again {
            format!("the order {value} is used twice; orders must be exactly 1 to {count}")
        } else {
            format!("the order {value} leaves a gap; orders must be exactly 1 to {count}")
        };
        let help = free.next().map(|free| format!("{free} is free"));
        p.error(codes::ORDER_INVALID, order.span, message)
            .maybe_help(help);
    }
}

fn sizes(actions: &[Action], p: &mut Problems) {
    let needs = actions
        .iter()
        .filter_map(|action| action.depends_on.as_ref());
    let edges: usize = needs.map(Vec::len).sum();
    let Some(first) = actions.iter().find_map(|action| action.id.as_ref()) else {
        return;
    };
    if actions.len() > MAX_STEPS || edges > MAX_EDGES {
        p.error(
            codes::PLAN_TOO_LARGE,
            first.span,
            format!("a workflow may have {MAX_STEPS} actions and {MAX_EDGES} dependencies"),
        )
        .help("split the workflow");
    }
}

fn dependencies(actions: &[Action], by_id: &HashMap<&str, usize>, p: &mut Problems) {
    let mut needs = vec![Vec::new(); actions.len()];
    for (at, action) in actions.iter().enumerate() {
        for need in action.depends_on.iter().flatten() {
            let name = quote(&need.value);
            match by_id.get(need.value.as_str()) {
                Some(_) if need.value == action.id() => {
                    p.error(
                        codes::DEPENDENCY_SELF,
                        need.span,
                        format!("{name} depends on itself"),
                    )
                    .help("remove it");
                }
                Some(other) if needs[at].contains(other) => {
                    let message = format!("{} depends on {name} twice", quote(action.id()));
                    p.error(codes::DEPENDENCY_DUPLICATE, need.span, message)
                        .help("keep one of the two");
                }
                Some(other) => needs[at].push(*other),
                None if p.is_full() => {}
                None => {
                    if let Some(it) = unknown(&need.value, actions, by_id) {
                        p.error(codes::DEPENDENCY_UNKNOWN, need.span, it.message)
                            .help(it.help);
                    }
                }
            }
        }
    }
    for cycle in depends::dependency_cycles(&needs)
        .cycles
        .iter()
        .take(MOST_CYCLES)
    {
        report_cycle(actions, cycle, p);
    }
}

fn report_cycle(actions: &[Action], cycle: &[usize], p: &mut Problems) {
    let Some(first) = cycle.first().and_then(|at| actions.get(*at)) else {
        return;
    };
    let next = cycle.get(1).or(cycle.first()).map(|at| actions[*at].id());
    let mut needs = first.depends_on.iter().flatten();
    let Some(edge) = needs.find(|need| Some(need.value.as_str()) == next) else {
        return;
    };
    let path = depends::path(cycle, |at| quote(actions[at].id()));
    let message = format!("these wait for each other: {path}");
    p.error(codes::DEPENDENCY_CYCLE, edge.span, message)
        .help("remove one of these dependencies");
}

/// What to say about a reference to an action that there is not. Nothing while some id could not be
/// read: it might be the one that is meant.
fn unknown(
    name: &str,
    actions: &[Action],
    by_id: &HashMap<&str, usize>,
) -> Option<UnknownReference> {
    if actions.iter().any(|action| action.id.is_none()) {
        return None;
    }
    let mut known: Vec<&str> = by_id.keys().copied().collect();
    known.sort_unstable();
    let near = nearest(name, &known).map(|near| format!("did you mean {}?", quote(near)));
    Some(UnknownReference {
        message: format!("there is no action {}", quote(name)),
        help: near.unwrap_or_else(|| "write the `actionId` of an action in this file".to_owned()),
    })
}

struct UnknownReference {
    message: String,
    help: String,
}

/// An override may only be stricter.
fn tier(action: &Action, workflow: Tier, p: &mut Problems) {
    let Some(tier) = action.tier.as_ref().filter(|tier| tier.value < workflow) else {
        return;
    };
    let (own, whole) = (tier.value.name(), workflow.name());
    p.error(
        codes::TIER_LOOSENED,
        tier.span,
        format!("`{own}` is less strict than the workflow's `{whole}`"),
    )
    .help(format!(
        "remove it, or write `{whole}`; the tiers from loose to strict are {}",
        Tier::NAMES.join(", ")
    ));
}

fn people(action: &Action, workflow: Tier, p: &mut Problems) {
    let tier = action.effective_tier(workflow);
    let manual = action.manual.as_ref();
    if let Some(mode) = manual.filter(|mode| tier == Tier::ManualOnly && !mode.value) {
        p.error(
            codes::COMPLETION_CONTRADICTED,
            mode.span,
            "a `ManualOnly` action is completed by a person, not automatically",
        )
        .help("remove `completionMode`, or choose another tier");
    }
    let nobody = tier < Tier::HumanApprove && !manual.is_some_and(|mode| mode.value);
    if let Some(duty) = action.duties.first().filter(|_| nobody) {
        p.warn(
            codes::DUTY_UNUSED,
            duty.span,
            "no person has a part in this action",
        )
        .help("choose the tier `HumanApprove` or `ManualOnly`, or `completionMode: manual`");
    }
}

fn duties(action: &Action, actions: &[Action], by_id: &HashMap<&str, usize>, p: &mut Problems) {
    for duty in &action.duties {
        let Duty::IncompatibleDuties { keys } = &duty.value else {
            continue;
        };
        if keys.iter().any(|key| key == action.id()) {
            p.error(
                codes::DUTY_SELF,
                duty.span,
                format!(
                    "{} is incompatible with itself, so nobody could complete it twice",
                    quote(action.id())
                ),
            )
            .help("name the other actions that the same person must not complete or approve");
        }
        let strange = keys.iter().filter(|key| !by_id.contains_key(key.as_str()));
        for key in strange {
            if let Some(it) = unknown(key, actions, by_id).filter(|_| !p.is_full()) {
                p.error(codes::DUTY_UNKNOWN, duty.span, it.message)
                    .help(it.help);
            }
        }
    }
}

fn side_effect(action: &Action, p: &mut Problems) {
    let denied = action.side_effecting.as_ref().filter(|says| !says.value);
    if let Some(says) = denied.filter(|_| action.compensation.is_some()) {
        p.warn(
            codes::SIDE_EFFECT_CONTRADICTED,
            says.span,
            format!(
                "{} has a compensation, so it counts as side-effecting",
                quote(action.id())
            ),
        )
        .help("remove `sideEffecting: false`, or the compensation");
    }
}
