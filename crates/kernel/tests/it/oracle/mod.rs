//! Another way to record events, to compare with: the contract part as a tree of JSON, filled field by
//! field, and the chain's hash of trees. Slow, and written without a look at how the recorder writes.

mod run;
mod step;
mod words;

use serde_json::{Map, Value as Json};

use std::collections::HashMap;

use stepwell_kernel::chain::{GENESIS, link};
use stepwell_kernel::contract::Record;
use stepwell_kernel::event::{Body, Event, RunContext};
use stepwell_kernel::keys;
use stepwell_kernel::plan::{Plan, StepRef};
use stepwell_kernel::time::Time;
use words::{as_uri, as_version, is_hash};

/// Records a whole log.
pub(crate) fn records(plan: &Plan, run_id: &str, events: &[Event]) -> Vec<Record> {
    let mut stamps = Stamps::default();
    let mut prev_hash = GENESIS.to_owned();
    let mut records = Vec::new();
    for event in events {
        let contract = to_contract(plan, run_id, event, &stamps);
        stamps.fold(event);
        let ext = serde_json::to_value(&event.body).unwrap();
        let hash = link(&contract, &ext, &prev_hash);
        records.push(Record {
            contract,
            ext,
            prev_hash: std::mem::replace(&mut prev_hash, hash.clone()),
            hash,
        });
    }
    records
}

/// What an event's view needs from the events before it.
#[derive(Debug, Default)]
struct Stamps {
    context: RunContext,
    run_started: Option<Time>,
    /// Since when, and whether a worker has it.
    open: HashMap<StepRef, (Time, bool)>,
}

impl Stamps {
    fn fold(&mut self, event: &Event) {
        match &event.body {
            Body::RunCreated { context, .. } => self.context = context.clone(),
            Body::RunStarted { .. } => self.run_started = Some(event.at),
            Body::StepStarted { step, lease, .. } => {
                self.open.insert(*step, (event.at, lease.is_some()));
            }
            Body::StepExecutionStarted { step, .. } => self.lease(*step, true),
            Body::StepExecutionFailed { step, .. } | Body::StepWaiting { step, .. } => {
                self.lease(*step, false);
            }
            Body::StepCompleted { step, .. }
            | Body::StepFailed { step, .. }
            | Body::StepSkipped { step, .. } => {
                self.open.remove(step);
            }
            _ => {}
        }
    }

    fn lease(&mut self, at: StepRef, leased: bool) {
        if let Some(open) = self.open.get_mut(&at) {
            open.1 = leased;
        }
    }

    fn started(&self, at: StepRef) -> Option<Time> {
        self.open.get(&at).map(|open| open.0)
    }

    fn is_leased(&self, at: StepRef) -> bool {
        self.open.get(&at).is_some_and(|open| open.1)
    }
}

/// The contract's JSON of an event. `before` has seen every event before this one.
fn to_contract(plan: &Plan, run_id: &str, event: &Event, before: &Stamps) -> Json {
    let version = &plan.net().plan_version;
    let at = event.at.to_rfc3339();
    let mut view = View {
        plan,
        before,
        at: event.at,
        now: &at,
        fields: Map::new(),
    };
    view.text("eventType", event.body.kind());
    view.text("eventId", keys::event_id(run_id, event.seq));
    view.text("runId", run_id);
    view.put("runSeq", event.seq);
    view.text("idempotencyKey", event.key(plan).digest(run_id, version));
    view.text("emittedAt", at.as_str());
    view.text("emittedBy", emitted_by(&event.body, before));
    match &event.body {
        body if body.kind().starts_with("Step") => view.step_event(body),
        body if body.kind().starts_with("Undo") => view.undo_event(body),
        body => view.run_event(body),
    }
    Json::Object(view.fields)
}

/// Who speaks: a worker about work it has, the planner about approval, authorization (`system`) about
/// signals and people, the engine about everything else.
fn emitted_by(body: &Body, before: &Stamps) -> &'static str {
    match body {
        Body::RunApproved { .. } => "planner",
        Body::SignalAccepted { .. } | Body::SignalRejected { .. } | Body::StepAnswered { .. } => {
            "system"
        }
        Body::StepCompleted { by: Some(_), .. } | Body::StepFailed { by: Some(_), .. } => "system",
        Body::StepStarted { lease: Some(_), .. }
        | Body::StepExecutionStarted { .. }
        | Body::UndoStarted { .. }
        | Body::UndoExecutionFailed { .. }
        | Body::UndoCompleted { .. }
        | Body::UndoFailed { .. } => "activity-worker",
        Body::StepCompleted { step, .. }
        | Body::StepExecutionFailed { step, .. }
        | Body::StepFailed {
            step,
            cancelled: false,
            ..
        } if before.is_leased(*step) => "activity-worker",
        _ => "engine",
    }
}

struct View<'a> {
    plan: &'a Plan,
    before: &'a Stamps,
    at: Time,
    now: &'a str,
    fields: Map<String, Json>,
}

impl View<'_> {
    fn put(&mut self, name: &str, value: impl Into<Json>) {
        self.fields.insert(name.to_owned(), value.into());
    }

    fn text(&mut self, name: &str, value: impl Into<String>) {
        self.put(name, Json::String(value.into()));
    }

    fn text_if(&mut self, name: &str, value: Option<&String>) {
        if let Some(value) = value {
            self.text(name, value.as_str());
        }
    }

    fn time_if(&mut self, name: &str, value: Option<Time>) {
        if let Some(value) = value {
            self.text(name, value.to_rfc3339());
        }
    }

    /// The event's own time under the name its type has for it.
    fn now(&mut self, name: &str) {
        self.text(name, self.now);
    }

    fn duration(&mut self, since: Option<Time>) {
        if let Some(since) = since {
            self.put("durationMs", self.at.since(since));
        }
    }

    fn step(&mut self, at: StepRef, logical: Option<u32>, execution: Option<u32>) {
        self.text("stepId", self.plan.step_id(at));
        if let Some(logical) = logical {
            self.put("logicalAttemptId", logical);
        }
        if let Some(execution) = execution.filter(|execution| *execution >= 1) {
            self.put("engineAttemptId", execution);
        }
    }

    fn attempt(&mut self, at: StepRef, logical: u32, execution: Option<u32>) {
        self.step(at, Some(logical), execution);
        self.text("planVersion", self.plan.net().plan_version.as_str());
    }

    fn step_ids(&mut self, name: &str, steps: &[StepRef]) {
        let ids: Vec<Json> = steps
            .iter()
            .map(|at| Json::String(self.plan.step_id(*at)))
            .collect();
        self.put(name, ids);
    }

    fn plan_ref(&mut self) {
        let net = self.plan.net();
        let sha256 = if is_hash(&net.source.sha256) {
            &net.source.sha256
        } else {
            self.plan.hash()
        };
        let uri = if net.source.uri.is_empty() {
            format!("urn:sha256:{sha256}")
        } else {
            as_uri(&net.source.uri)
        };
        let mut plan_ref = Map::new();
        plan_ref.insert("uri".into(), uri.into());
        plan_ref.insert("sha256".into(), sha256.into());
        let version = as_version(&net.schema_version);
        plan_ref.insert("schemaVersion".into(), version.into());
        plan_ref.insert("planId".into(), net.plan_id.as_str().into());
        plan_ref.insert("planVersion".into(), net.plan_version.as_str().into());
        self.put("planRef", plan_ref);
    }

    fn context(&mut self, context: &RunContext) {
        let mut fields = Map::new();
        fields.insert("tenantId".into(), context.tenant_id.as_str().into());
        fields.insert("projectId".into(), context.project_id.as_str().into());
        let environment = context.environment_id.as_str();
        fields.insert("environmentId".into(), environment.into());
        if let Some(by) = &context.triggered_by {
            fields.insert("triggeredBy".into(), by.as_str().into());
        }
        let source = context.trigger_source.as_deref();
        if let Some(source) =
            source.filter(|source| ["manual", "schedule", "webhook", "api"].contains(source))
        {
            fields.insert("triggerSource".into(), source.into());
        }
        self.put("context", fields);
    }
}
