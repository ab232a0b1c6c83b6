//! What the process runs: plans that end by themselves however often it is killed.

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::{Value as Json, json};
use stepwell_dialects::{Source, load};
use stepwell_engine::port::Catalog;
use stepwell_kernel::expr::TemplateValue;
use stepwell_kernel::plan::{
    Backoff, ChildSpec, Dialect, Edge, ErrorClass, Net, OnFailure, Plan, RetryPolicy, RunPolicy,
    SourceRef, Step, StepNo, Undo, Work,
};

const LINEAR: &str = r#"
workflowType: killed.linear
workflowVersion: 1
bizKey: "{{ workload.orderId }}"
defaults: {maxAttempts: 1000, backoff: {initial: 1ms, max: 5ms}}
steps: [{stepType: ONE}, {stepType: TWO}, {stepType: THREE}]
"#;

/// Every kill is an execution; none may be the last.
fn retry() -> RetryPolicy {
    RetryPolicy {
        max_executions: 100_000,
        backoff: Backoff::none(),
        // A result that could not be written in time is a timeout.
        classes: vec![ErrorClass::Transient, ErrorClass::Timeout],
    }
}

fn step(name: &str, work: Work) -> Step {
    Step {
        retry: retry(),
        ..Step::new(name, work)
    }
}

fn task(name: &str) -> Step {
    let work = Work::Task {
        queue: "kill".into(),
        operation: "work".into(),
        config: Json::Null,
    };
    step(name, work)
}

/// The operation whose work always fails for good.
pub(crate) const DOOMED: &str = "doomed";

fn net(plan_id: &str, steps: Vec<Step>, edges: &[(u32, u32)]) -> Option<Arc<Plan>> {
    let edges = edges
        .iter()
        .map(|(from, to)| Edge::plain(StepNo(*from), StepNo(*to)));
    let net = Net {
        dialect: Dialect::Plan,
        plan_id: plan_id.into(),
        plan_version: "1".into(),
        schema_version: "v1.2".into(),
        source: SourceRef {
            uri: format!("kill:{plan_id}"),
            sha256: "0".repeat(64),
        },
        workload: Json::Null,
        steps,
        edges: edges.collect(),
        policy: RunPolicy::default(),
        library: Default::default(),
        extra: Json::Null,
    };
    Plan::new(net).ok().map(Arc::new)
}

fn chain() -> Option<Arc<Plan>> {
    let steps = ["a", "b", "c", "d", "e"].map(task);
    net("chain", steps.into(), &[(0, 1), (1, 2), (2, 3), (3, 4)])
}

fn fan() -> Option<Arc<Plan>> {
    let steps = ["split", "left", "middle", "right", "join"].map(task);
    let edges = [(0, 1), (0, 2), (0, 3), (1, 4), (2, 4), (3, 4)];
    net("fan", steps.into(), &edges)
}

/// Two steps that can be undone, then one that fails for good.
fn saga() -> Option<Arc<Plan>> {
    let undoable = |name: &str| Step {
        undo: Some(Undo {
            queue: "kill".into(),
            operation: "undo".into(),
            input: Json::Null,
            tasks: Json::Null,
            retry: retry(),
            timeout_ms: None,
        }),
        ..task(name)
    };
    let work = Work::Task {
        queue: "kill".into(),
        operation: DOOMED.into(),
        config: Json::Null,
    };
    let last = Step {
        on_failure: OnFailure::Stop { compensate: true },
        ..step("ship", work)
    };
    let steps = vec![undoable("reserve"), undoable("charge"), last];
    net("saga", steps, &[(0, 1), (1, 2)])
}

fn parent() -> Option<Arc<Plan>> {
    let spec = ChildSpec {
        path: "chain".into(),
        return_step: None,
        input: TemplateValue::parse(&json!({})).ok()?,
    };
    let steps = vec![
        task("before"),
        step("call", Work::Child(spec)),
        task("after"),
    ];
    net("parent", steps, &[(0, 1), (1, 2)])
}

fn linear() -> Option<Arc<Plan>> {
    let source = Source::from_bytes("linear.yaml", LINEAR.as_bytes()).ok()?;
    load(&source).plan.map(Arc::new)
}

/// The plans, and children by their name.
#[derive(Clone, Debug)]
pub(crate) struct PlanCatalog(Vec<Arc<Plan>>);

impl PlanCatalog {
    pub(crate) fn load() -> PlanCatalog {
        let plans = [chain(), fan(), saga(), parent(), linear()];
        PlanCatalog(plans.into_iter().flatten().collect())
    }

    /// Each plan in turn.
    pub(crate) fn nth(&self, number: usize) -> Arc<Plan> {
        self.0[number % self.0.len()].clone()
    }

    /// What this process can do.
    pub(crate) fn serves(&self) -> HashSet<(String, String)> {
        let ours = ["work", "undo", DOOMED].map(|op| ("kill".to_owned(), op.to_owned()));
        let steps = ["ONE", "TWO", "THREE"];
        let linear = steps.map(|op| ("killed.linear".to_owned(), op.to_owned()));
        ours.into_iter().chain(linear).collect()
    }
}

impl Catalog for PlanCatalog {
    fn find(&self, _: &Plan, path: &str) -> Option<Arc<Plan>> {
        let named = |plan: &&Arc<Plan>| plan.net().plan_id == path;
        self.0.iter().find(named).cloned()
    }
}
