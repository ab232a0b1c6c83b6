//! P: playbooks, run. Loops have a file of their own.

mod children;
mod ctx;
mod ending;
mod routing;

use serde_json::Value as Json;
use stepwell_dialects::playbook::words::{run_substatus, run_word};
use stepwell_kernel::command::{Claimed, Reply};
use stepwell_kernel::event::Body;

use crate::support::Sim;

/// A playbook with this below its header.
pub(super) fn text(body: &str) -> String {
    format!("apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {{name: t}}\n{body}")
}

#[track_caller]
pub(super) fn defined(body: &str) -> Sim {
    super::defined(&text(body))
}

#[track_caller]
pub(super) fn started(body: &str) -> Sim {
    super::started(&text(body))
}

/// Claims a step and says what its worker gets.
#[track_caller]
pub(super) fn claimed(sim: &mut Sim, step: &str) -> Claimed {
    match sim.claim(step).unwrap() {
        Reply::Claimed(claimed) => *claimed,
        other => panic!("{other:?}"),
    }
}

/// What a step's token carries.
fn args(sim: &Sim, step: &str) -> Json {
    let visit = sim.state.visit(sim.at(step)).expect("a token came");
    visit.args().map(|it| Json::clone(it)).unwrap_or_default()
}

/// Claims a step and completes it with these patches of ctx.
#[track_caller]
fn run_patching(sim: &mut Sim, step: &str, ctx: Json) {
    sim.claim(step).unwrap();
    let claim = sim.claim_on(step);
    sim.complete_all(claim, Json::Null, ctx, Vec::new())
        .unwrap();
}

fn ctx(sim: &Sim) -> Json {
    let entries = sim.state.ctx().iter();
    entries
        .map(|(key, value)| (key.clone(), Json::clone(value)))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

/// Steps by name in the order they started.
fn starts(sim: &Sim) -> Vec<String> {
    let step = |body: &Body| match body {
        Body::StepStarted { step, .. } => Some(sim.plan.step_id(*step)),
        _ => None,
    };
    sim.events()
        .iter()
        .filter_map(|it| step(&it.body))
        .collect()
}

fn words(sim: &Sim) -> (&'static str, Option<&'static str>) {
    (run_word(&sim.state), run_substatus(&sim.state))
}

const FORK: &str = r#"
workflow:
- step: fork
  next: {spec: {mode: inclusive}, arcs: [{step: left}, {step: right}]}
- step: left
- step: right
"#;

/// A gate that `rules` guard, behind an open step.
fn guarded(rules: &str) -> Sim {
    started(&format!(
        "workflow:\n- step: a\n  next: b\n- step: b\n  spec: {{policy: {{admit: {{{rules}}}}}}}\n"
    ))
}

const GATE: &str =
    r#"rules: [{when: "{{ ctx.go }}", then: {allow: true}}, {else: {then: {allow: false}}}]"#;
