//! What is run: small definitions in all five languages, chosen so that together they use everything
//! that can be lost: retries, undos, holds, approvals, waits, timers, loops and children.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value as Json, json};
use stepwell_dialects::{Source, load};
use stepwell_engine::port::Catalog;
use stepwell_engine::rows::served_by;
use stepwell_kernel::effect::Target;
use stepwell_kernel::plan::{Plan, StepRef};

use crate::rng::Rng;

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
    approval: {approvers: 1, timeout: 24h}
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

/// The definitions that can be chosen, by name.
pub const NAMES: [&str; 5] = ["saga", "dag", "plan", "playbook", "linear"];

/// The plans of a simulation, and the catalog that children are found in.
#[derive(Clone, Debug)]
pub(crate) struct Workload {
    /// What is started, with its name.
    pub(crate) plans: Vec<(&'static str, Arc<Plan>)>,
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

impl Workload {
    /// All plans, or only the one of that name.
    pub(crate) fn new(only: Option<&str>) -> Result<Workload, String> {
        let texts = [SAGA, DAG, PLAN, PARENT, LINEAR];
        let mut plans = Vec::new();
        for (name, text) in NAMES.into_iter().zip(texts) {
            if only.is_none_or(|only| only == name) {
                plans.push((name, compile(name, text)?));
            }
        }
        if plans.is_empty() {
            return Err(format!("no such workload; there are {}", NAMES.join(", ")));
        }
        let child = compile("child", CHILD)?;
        Ok(Workload { plans, child })
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
