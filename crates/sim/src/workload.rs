//! What is run: small definitions in all five languages, chosen so that together they use everything
//! that can be lost: retries, undos, holds, approvals, waits, timers, loops and children.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use serde_json::{Value as Json, json};
use stepwell_dialects::{Source, load};
use stepwell_engine::port::Catalog;
use stepwell_engine::rows::served_by;
use stepwell_kernel::effect::Target;
use stepwell_kernel::plan::{Plan, StepRef};

use crate::definitions::{Definition, Language};
use crate::pipelines;
use crate::rng::Rng;
use crate::sabotage::Sabotage;

const SAGA: &str = r#"
schemaVersion: 1
workflowId: saga
workspaceId: shop
name: A saga
version: 1
active: true
executionTier: Auto
actions:
  - actionId: pay
    order: 1
    portFamily: payments
    operation: payment:authorise
    input: {orderId: "{{ workload.n }}"}
    timeoutMs: 30000
    compensation:
      compensationOperation: payment:void
      compensationInput: {orderId: "{{ workload.n }}"}
  - actionId: reserve
    order: 2
    portFamily: warehouse
    operation: stock:reserve
    input: {orderId: "{{ workload.n }}"}
    retryPolicy: {maxAttempts: 5, initialBackoffMs: 500, maxBackoffMs: 8000}
    compensation:
      compensationOperation: stock:release
      compensationInput: {orderId: "{{ workload.n }}"}
      timeoutMs: 60000
      retryPolicy: {maxAttempts: 4}
  - actionId: ship
    order: 3
    portFamily: carrier
    operation: parcel:ship
    sideEffecting: true
    input: {orderId: "{{ workload.n }}"}
"#;

const DAG: &str = r#"
apiVersion: ioa.dev/v0.2
kind: Workflow
metadata: {name: fan, owner: sim}
spec:
  timeout: 2h
  failurePolicy: abort
  steps:
    - name: left
      agent: loader
      action: extract:left
      timeout: 20m
      retryPolicy: {maxRetries: 3, backoff: exponential, initialDelay: 5s, maxDelay: 1m}
    - name: right
      agent: loader
      action: extract:right
      timeout: 30m
      retryPolicy: {maxRetries: 4, backoff: 1s}
    - name: middle
      agent: loader
      action: extract:middle
      timeout: 30m
      onFailure: skip
    - name: load
      agent: loader
      action: load:facts
      dependsOn: [left, right, middle]
      timeout: 45m
      retryPolicy: {maxRetries: 5, backoff: 2s}
    - name: report
      agent: writer
      action: report:daily
      dependsOn: [load]
      timeout: 15m
      onFailure: compensate
    - name: notify
      agent: writer
      action: chat:post
      dependsOn: [report]
      timeout: 1m
      onFailure: skip
  compensation:
    - step: load
      agent: loader
      action: unload:facts
      timeout: 1m
"#;

const PLAN: &str = r#"
metadata:
  planId: release
  planVersion: "17"
  schemaVersion: v1.2
  onStepFailure: hold
  holdTimeout: 8h
steps:
  - stepId: build
    kind: build
    queue: builders
    timeout: 10m
    retryPolicy: { maxAttempts: 2, backoff: exponential, initialDelay: 10s, maxDelay: 5m }
  - stepId: approve
    approval: {approvers: 2, timeout: 24h}
  - stepId: deploy
    kind: deploy
    queue: builders
    timeout: 5m
    compensation:
      tool: { kind: shell, cmds: ["rm -f release.txt"] }
      timeout: 5m
  - stepId: soak
    waitFor: { delay: 20s }
  - stepId: verify
    timeout: 1m
    onStepFailure: fail
    sideEffect: pure
    tool: { kind: shell, cmds: ["test -s release.txt"] }
"#;

const PARENT: &str = r#"
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: parent}
executor:
  spec:
    final_step: summary
    policy: {completion: partial}
workload: {items: [1, 2, 3, 4, 5], n: 0}
workflow:
- step: before
  tool: {kind: noop}
  next:
    spec: {mode: inclusive}
    arcs:
      - step: each
      - step: call
- step: each
  loop:
    in: "{{ workload.items }}"
    iterator: item
    spec: {mode: parallel, max_in_flight: 2, policy: {failure: {mode: continue}}}
  tool: {kind: noop}
  next: [{step: after}]
- step: call
  tool: {kind: playbook, path: child, args: {n: "{{ workload.n }}"}, return_step: answer}
  next: [{step: after}]
- step: after
  join: all
  tool: {kind: noop}
- step: summary
  tool: {kind: noop}
"#;

const CHILD: &str = r#"
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: child}
workflow:
- step: answer
  tool: {kind: noop}
  next:
    arcs:
      - step: tidy
        when: "{{ event.name == 'call.done' }}"
      - step: ask
        when: "{{ event.name == 'call.error' }}"
- step: ask
  tool: {kind: manual, timeout: 2h}
  next: tidy
- step: tidy
  tool: {kind: noop}
"#;

/// A token that may not enter until another branch opens the gate, which it does not when it fails.
const GATES: &str = r#"
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: gates}
workflow:
- step: begin
  tool: {kind: noop}
  next:
    spec: {mode: inclusive}
    arcs: [{step: guarded}, {step: opener}]
- step: opener
  tool: {kind: noop}
  set_ctx: {go: true}
- step: guarded
  spec:
    policy:
      admit:
        rules:
          - when: "{{ ctx.go | default(false) }}"
            then: {allow: true}
          - else: {then: {allow: false}}
  tool: {kind: noop}
"#;

const LINEAR: &str = r#"
workflowType: payment.capture
workflowVersion: 2
bizKey: "{{ workload.paymentId }}"
defaults:
  maxAttempts: 5
  leaseSeconds: 60
  backoff: {initial: 2s, max: 2m}
steps:
  - stepType: SUBMIT
    timeout: 30s
  - stepType: CONFIRMED
    waitFor: {event: bank.confirmed, timeout: 24h}
  - stepType: RECEIPT
    handler: RECEIPT
    waitFor: {event: bank.receipt, timeout: 1h}
  - stepType: BOOK
    queue: ledger
    maxAttempts: 20
"#;

/// Most of its time a run sleeps: for hours, and for days.
const SLEEPER: &str = r#"
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: sleeper}
executor:
  spec:
    timeout: 90d
workflow:
- step: nap
  tool: {kind: sleep, duration: 3h}
  next:
    spec: {mode: inclusive}
    arcs: [{step: look}, {step: ask}]
- step: look
  tool: {kind: noop}
  next: winter
- step: ask
  tool: {kind: manual, timeout: 20d}
- step: winter
  tool: {kind: sleep, duration: 30d}
  next: wake
- step: wake
  tool: {kind: noop}
"#;

/// The definitions that can be chosen, by name. Those that are drawn differ from seed to seed.
pub const NAMES: [&str; 12] = [
    "saga",
    "dag",
    "plan",
    "playbook",
    "linear",
    "gates",
    "sleeper",
    "pipelines",
    "drawn-actions",
    "drawn-dag",
    "drawn-linear",
    "drawn-playbook",
];

/// The plans of a simulation, and the catalog that children are found in.
#[derive(Clone, Debug)]
pub(crate) struct Workload {
    /// What is started, with its name.
    pub(crate) plans: Vec<(&'static str, Arc<Plan>)>,
    /// What was drawn, by the id of the plan.
    pub(crate) drawn: BTreeMap<String, Definition>,
    child: Arc<Plan>,
}

fn compile(name: &str, text: &str) -> Result<Arc<Plan>, String> {
    let source = Source::from_bytes(format!("{name}.yaml"), text.as_bytes());
    let loaded = load(&source.map_err(|problem| format!("{problem:?}"))?);
    let problems = loaded.problems;
    loaded
        .plan
        .map(Arc::new)
        .ok_or_else(|| format!("{name}: {problems:?}"))
}

/// The definitions that do not differ from seed to seed.
struct Fixed {
    plans: Vec<(&'static str, Arc<Plan>)>,
    child: Arc<Plan>,
    /// All of them, by the text that stores keep.
    known: BTreeMap<String, Arc<Plan>>,
}

impl Fixed {
    fn new() -> Result<Fixed, String> {
        let texts = [
            SAGA,
            DAG,
            PLAN,
            PARENT,
            LINEAR,
            GATES,
            SLEEPER,
            pipelines::DEFINITION,
        ];
        let mut plans = Vec::new();
        for (name, text) in NAMES.into_iter().zip(texts) {
            plans.push((name, compile(name, text)?));
        }
        let child = compile("child", CHILD)?;
        let mut known = BTreeMap::new();
        for plan in plans.iter().map(|(_, plan)| plan).chain([&child]) {
            let net = serde_json::to_string(plan.net()).map_err(|error| error.to_string())?;
            // As a reader of the store makes it.
            let read = serde_json::from_str(&net).map_err(|error| error.to_string())?;
            let read = Plan::new(read).map_err(|error| error.to_string())?;
            known.insert(net, Arc::new(read));
        }
        Ok(Fixed {
            plans,
            child,
            known,
        })
    }
}

/// Made once for all simulations of a process.
fn fixed() -> &'static Result<Fixed, String> {
    static FIXED: OnceLock<Result<Fixed, String>> = OnceLock::new();
    FIXED.get_or_init(Fixed::new)
}

/// The plan that this stored text stands for, if it is one of the definitions that do not differ.
pub(crate) fn known_plan(net: &str) -> Option<&'static Arc<Plan>> {
    fixed().as_ref().ok()?.known.get(net)
}

impl Workload {
    /// All plans, or only the one of that name. With `sabotage` the plans of drawn definitions may be wrong.
    pub(crate) fn new(
        only: Option<&str>,
        sabotage: Option<Sabotage>,
        rng: &mut Rng,
    ) -> Result<Workload, String> {
        let fixed = fixed().as_ref().map_err(String::clone)?;
        let chosen = fixed.plans.iter();
        let chosen = chosen.filter(|(name, _)| only.is_none_or(|only| only == *name));
        let mut plans: Vec<_> = chosen.cloned().collect();
        let mut drawn = BTreeMap::new();
        for language in Language::ALL {
            let definition = Definition::draw(language, rng);
            let name = language.name();
            if only.is_some_and(|only| only != name) {
                continue;
            }
            let mut plan = compile(name, &definition.text())?;
            if let Some(sabotage) = sabotage {
                let mut net = plan.net().clone();
                sabotage.spoil_net(&mut net);
                plan = Arc::new(Plan::new(net).map_err(|error| error.to_string())?);
            }
            drawn.insert(plan.net().plan_id.clone(), definition);
            // Drawn definitions are as likely as the fixed ones.
            plans.extend([(name, plan.clone()), (name, plan)]);
        }
        if plans.is_empty() {
            return Err(format!("no such workload; there are {}", NAMES.join(", ")));
        }
        Ok(Workload {
            plans,
            drawn,
            child: fixed.child.clone(),
        })
    }

    /// Every queue and operation that occurs.
    #[must_use]
    pub(crate) fn pairs(&self) -> Vec<(String, String)> {
        let plans = self.plans.iter().map(|(_, plan)| plan).chain([&self.child]);
        let mut pairs = BTreeSet::new();
        for plan in plans {
            for no in plan.numbers() {
                let at = StepRef::first(no);
                for target in [Target::Step(at), Target::Undo(at)] {
                    let (queue, op) = served_by(plan, target);
                    pairs.insert((queue.to_owned(), op.to_owned()));
                }
            }
        }
        pairs.into_iter().collect()
    }

    /// Parameters of a run. Few business keys, so that they meet.
    #[must_use]
    pub(crate) fn params(&self, name: &str, rng: &mut Rng) -> Json {
        let n = rng.below(4);
        match name {
            "linear" => json!({ "paymentId": format!("p{n}") }),
            _ => json!({ "n": n }),
        }
    }
}

impl Catalog for Workload {
    fn find(&self, _: &Plan, path: &str) -> Option<Arc<Plan>> {
        (path == "child").then(|| self.child.clone())
    }
}
