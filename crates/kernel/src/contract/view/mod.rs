//! An event as the contract shows it: which component speaks, and the fields of its type. What the
//! contract has no field for (outputs, params, routes, payloads) stays in `ext`.

mod run;
mod step;
mod words;

use serde_json::{Map, Value as Json};

use super::check::is_hash;
use super::fields::TRIGGER_SOURCES;
use super::stamps::Stamps;
use crate::event::{Body, Event, RunContext};
use crate::keys;
use crate::plan::{Plan, StepRef};

use crate::time::Time;
use words::{as_uri, as_version};

/// The contract's JSON of an event. `before` has seen every event before this one.
pub(super) fn to_contract(plan: &Plan, run_id: &str, event: &Event, before: &Stamps) -> Json {
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
        Body::SignalAccepted { .. } | Body::SignalRejected { .. } => "system",
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
        if let Some(source) = source.filter(|source| TRIGGER_SOURCES.contains(source)) {
            fields.insert("triggerSource".into(), source.into());
        }
        self.put("context", fields);
    }
}
