//! The named workloads and their plans.

use std::sync::Arc;

use serde_json::{Value as Json, json};
use stepwell_kernel::expr::TemplateValue;
use stepwell_kernel::plan::{
    Dialect, Edge, Loop, LoopMode, MaxInFlight, Net, OnLoopFailure, Plan, PlanFault, RunPolicy,
    SourceRef, Step, StepNo, WaitOn, WaitSpec, Work,
};

/// The event that waiting runs wait for.
pub(super) const EVENT: &str = "bench.go";

/// The queue and the operation of the no-op steps.
pub(super) const QUEUE: &str = "bench";
pub(super) const OPERATION: &str = "noop";

/// What the runs of a measurement do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Workload {
    /// Sequential steps, many concurrent runs.
    Chain(u32),
    /// Ten sequential steps, one run at a time.
    Idle,
    /// One step, this many parallel steps, one step.
    FanOut(u32),
    /// A loop over this many items.
    Loop(u32),
    /// This many waiting runs, then chains, then events for some of the waiting runs.
    Waiting(u32),
}

/// All workloads by name, in the order of `all`.
pub(super) const NAMES: [(&str, Workload); 9] = [
    ("chain-1", Workload::Chain(1)),
    ("chain-3", Workload::Chain(3)),
    ("chain-10", Workload::Chain(10)),
    ("chain-1000", Workload::Chain(1_000)),
    ("chain-10000", Workload::Chain(10_000)),
    ("idle", Workload::Idle),
    ("fan-out", Workload::FanOut(1_000)),
    ("loop", Workload::Loop(100_000)),
    ("waiting", Workload::Waiting(1_000_000)),
];

impl Workload {
    /// The number of steps of one run.
    pub(super) fn steps(self) -> u64 {
        match self {
            Workload::Chain(steps) => u64::from(steps),
            Workload::Idle | Workload::Waiting(_) => 10,
            Workload::FanOut(width) => u64::from(width) + 2,
            Workload::Loop(items) => u64::from(items),
        }
    }

    pub(super) fn plan(self) -> Result<Arc<Plan>, PlanFault> {
        let plan = match self {
            Workload::Chain(steps) => chain(steps),
            Workload::Idle | Workload::Waiting(_) => chain(10),
            Workload::FanOut(width) => fan_out(width),
            Workload::Loop(items) => looped(items),
        };
        plan.map(Arc::new)
    }
}

fn task(name: String) -> Step {
    let work = Work::Task {
        queue: QUEUE.into(),
        operation: OPERATION.into(),
        config: Json::Null,
    };
    Step {
        timeout_ms: Some(300_000),
        ..Step::new(name, work)
    }
}

fn net(steps: Vec<Step>, edges: Vec<Edge>) -> Net {
    Net {
        dialect: Dialect::Actions,
        plan_id: "bench".into(),
        plan_version: "1".into(),
        schema_version: "v1.0".into(),
        source: SourceRef {
            uri: "bench:".into(),
            sha256: "0".repeat(64),
        },
        workload: Json::Null,
        steps,
        edges,
        policy: RunPolicy::default(),
        library: Default::default(),
        extra: Json::Null,
    }
}

fn chain(length: u32) -> Result<Plan, PlanFault> {
    let steps = (0..length).map(|no| task(format!("step-{no}")));
    let edges = (1..length).map(|no| Edge::plain(StepNo(no - 1), StepNo(no)));
    Plan::new(net(steps.collect(), edges.collect()))
}

fn fan_out(width: u32) -> Result<Plan, PlanFault> {
    let middle = (1..=width).map(|no| task(format!("branch-{no}")));
    let steps = std::iter::once(task("split".into()))
        .chain(middle)
        .chain([task("join".into())]);
    let edges = (1..=width).flat_map(|no| {
        [
            Edge::plain(StepNo(0), StepNo(no)),
            Edge::plain(StepNo(no), StepNo(width + 1)),
        ]
    });
    Plan::new(net(steps.collect(), edges.collect()))
}

fn looped(items: u32) -> Result<Plan, PlanFault> {
    let mut step = task("each".into());
    let range = json!(format!("{{{{ range({items}) }}}}"));
    step.each = TemplateValue::parse(&range).ok().map(|items| Loop {
        items,
        iterator: "item".into(),
        mode: LoopMode::Parallel,
        max_in_flight: MaxInFlight::Fixed(1_000),
        on_failure: OnLoopFailure::Fail,
    });
    Plan::new(net(vec![step], Vec::new()))
}

/// One step that waits for an event, then one no-op step.
pub(super) fn waiting() -> Result<Arc<Plan>, PlanFault> {
    let wait = Work::Wait(WaitSpec {
        on: WaitOn::Event {
            event_type: EVENT.into(),
        },
        deadline_ms: None,
    });
    let steps = vec![Step::new("wait", wait), task("after".into())];
    let edges = vec![Edge::plain(StepNo(0), StepNo(1))];
    Plan::new(net(steps, edges)).map(Arc::new)
}
