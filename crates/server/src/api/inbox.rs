//! The inbox of a person: approvals and manual steps that wait.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use stepwell_engine::Error;
use stepwell_engine::store::RunFilter;
use stepwell_kernel::decide::{barred, barred_from_run};
use stepwell_kernel::event::{Body, WaitKind};
use stepwell_kernel::explain::{WakeSource, wake_sources};
use stepwell_kernel::time::Time;
use stepwell_views::allowed::approved_before;
use stepwell_views::{RunView, people, phrases};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::body::Params;
use super::cursor::{Before, next_page};
use super::run_filter::{LOOK_AT, open_statuses};
use crate::access::Caller;
use crate::app::App;
use crate::problem::ApiProblem;

/// The most runs that are looked at for one page.
const MAX_RUNS: usize = 500;
const RUNS: usize = 100;

pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(inbox))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct InboxQuery {
    /// How many open runs are looked at; 100 if absent, 500 at most.
    limit: Option<usize>,
    /// The `next` of the page before.
    before: Option<String>,
}

/// A page of the inbox.
#[derive(Debug, Serialize, ToSchema)]
struct InboxPage {
    tasks: Vec<PersonTask>,
    /// The `before` of the next page; absent on the last page. A page may have no tasks and still a next page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// Something that waits for a person.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct PersonTask {
    run_id: String,
    plan_id: String,
    tenant_id: String,
    /// The step; absent for the approval of the whole run.
    #[serde(skip_serializing_if = "Option::is_none")]
    step_id: Option<String>,
    /// `run_approval`, `approval` or `manual`.
    kind: &'static str,
    /// What is waited for, in words.
    text: String,
    /// What the definition says about the step, such as the question that is asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    /// Since when it is waited for.
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<String>,
    /// The wait ends at this time, if it has an end.
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<String>,
    /// Who started the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    started_by: Option<String>,
    /// How many people have approved, where more than one must.
    #[serde(skip_serializing_if = "Option::is_none")]
    approvals: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    approvals_needed: Option<u32>,
    /// Why separation of duties forbids the caller to answer; absent if it does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) forbidden: Option<String>,
}

/// List what waits for a person, newest runs first.
#[utoipa::path(get, path = "/api/v1/inbox", tag = "actions", security(("token" = ["view"])),
    params(InboxQuery),
    responses((status = 200, body = InboxPage), (status = 400, body = ApiProblem), (status = 403, body = ApiProblem),
        (status = 404, body = ApiProblem), (status = 503, body = ApiProblem)))]
async fn inbox(
    State(app): State<Arc<App>>,
    caller: Caller,
    Params(query): Params<InboxQuery>,
) -> Result<Json<InboxPage>, ApiProblem> {
    let limit = query.limit.unwrap_or(RUNS);
    if !(1..=MAX_RUNS).contains(&limit) {
        return Err(ApiProblem::bad_request(format!(
            "limit: a number from 1 to {MAX_RUNS} is needed"
        )));
    }
    let before = query.before.as_deref().map(|it| Before::read(&app, it));
    let (before, now) = (before.transpose()?, app.now());
    let (tasks, last) = app
        .ask(move |store| {
            let before = before.map(|it| it.find(&caller, store)).transpose()?;
            let found = store.search(&RunFilter {
                tenant: caller.tenant.clone(),
                project: caller.project.clone(),
                statuses: open_statuses(),
                before,
                limit: limit + 1,
                look_at: Some(LOOK_AT),
                ..RunFilter::default()
            })?;
            let (runs, searched_to) = (found.runs, found.searched_to);
            let more = runs.len() > limit;
            let mut tasks = Vec::new();
            let mut last = None;
            for run in runs.into_iter().take(limit) {
                // A run that cannot be read is told elsewhere; the others are still to be answered.
                if let Ok(view) = RunView::read(store, &run.run_id)
                    && caller.may_see(view.state.context())
                {
                    tasks.extend(tasks_of(&view, &caller, now));
                }
                last = Some(run.run);
            }
            Ok::<_, Error>((tasks, last.filter(|_| more).or(searched_to)))
        })
        .await?;
    let next = last.map(|it| next_page(&app, it)).transpose()?;
    Ok(Json(InboxPage { tasks, next }))
}

pub(super) fn tasks_of(view: &RunView, caller: &Caller, now: Time) -> Vec<PersonTask> {
    let (plan, state) = (&view.plan, &view.state);
    let task = |kind, step_id: Option<String>, text: String| PersonTask {
        run_id: state.run_id().to_owned(),
        plan_id: plan.net().plan_id.clone(),
        tenant_id: state.context().tenant_id.clone(),
        step_id,
        kind,
        text,
        description: None,
        since: None,
        until: None,
        started_by: state.context().triggered_by.clone(),
        approvals: None,
        approvals_needed: None,
        forbidden: None,
    };
    let mut tasks = Vec::new();
    for source in wake_sources(plan, state) {
        match source {
            WakeSource::Queue if plan.policy().needs_approval && !state.approved() => {
                let mut row = task(
                    "run_approval",
                    None,
                    "waits for approval before it starts".to_owned(),
                );
                row.since = Some(state.created_at().to_rfc3339());
                row.forbidden = barred_from_run(plan, state, &caller.name);
                tasks.push(row);
            }
            WakeSource::Outside { step, wait } => {
                let kind = match wait {
                    WaitKind::Gate | WaitKind::Approval => "approval",
                    WaitKind::Manual => "manual",
                    WaitKind::Event { .. } | WaitKind::Timer { .. } | WaitKind::Child { .. } => {
                        continue;
                    }
                };
                let text = phrases::waits(plan, state, step, now);
                let mut row = task(kind, Some(plan.step_id(step)), text.unwrap_or_default());
                row.description = plan.step(step.step).description.clone();
                // An answer that does not end the wait, such as the first of two approvals, does not begin it anew.
                let is_answer = |body: &Body| {
                    matches!(body, Body::StepAnswered { .. } | Body::StepApproved { .. })
                };
                let mut events = view.events.iter().rev();
                let last =
                    events.find(|event| event.body.step() == Some(step) && !is_answer(&event.body));
                row.since = last.map(|event| event.at.to_rfc3339());
                let open = state.run(step).and_then(|run| run.wait());
                row.until = open.and_then(|wait| wait.deadline()).map(Time::to_rfc3339);
                let approvals = people::approvals(view, step);
                row.approvals = approvals.as_ref().map(|it| it.given);
                row.approvals_needed = approvals.map(|it| it.needed);
                row.forbidden = barred(plan, state, step, &caller.name)
                    .or_else(|| approved_before(state, step, &caller.name));
                tasks.push(row);
            }
            WakeSource::Queue
            | WakeSource::Task { .. }
            | WakeSource::Lease { .. }
            | WakeSource::Child { .. }
            | WakeSource::Timer { .. }
            | WakeSource::Operator
            | WakeSource::Ctx { .. }
            | WakeSource::Proceed => {}
        }
    }
    tasks
}
