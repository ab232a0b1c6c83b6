//! Starts of runs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use stepwell_dialects::plan::reference::PlanRef;
use stepwell_engine::read::LoggedRun;
use stepwell_engine::store::{Store, StoreError};
use stepwell_engine::{
    AskedDefinition, StartRequest, check_labels, check_repeated, check_request_id,
    run_id_of_request,
};
use stepwell_kernel::event::RunContext;
use stepwell_kernel::plan::Plan;
use stepwell_kernel::rejection::Code;
use stepwell_kernel::time::Time;
use stepwell_views::run_ext::RunShown;
use stepwell_worker::large_params;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::body::Body;
use super::described::RunViewBody;
use super::operations::whole_installation;
use super::run_reads;
use crate::access::{ActedOn, Caller, Lost};
use crate::app::App;
use crate::changes::{NextLook, RunEnd};
use crate::definitions::{Permits, Registry, check_file, compile_for, with_findings};
use crate::problem::ApiProblem;
use crate::telemetry::CallerTrace;

/// The longest wait for the end of a run that is started.
const MAX_WAIT_SECONDS: u64 = 50;

pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(start))
}

/// What a run is started with.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct StartRun {
    /// The definition of the run.
    definition: DefinitionOfRun,
    /// Merged over the workload or the defaults of the definition.
    #[serde(default)]
    #[schema(value_type = Object)]
    params: Option<Value>,
    /// An id that the caller chooses: a second start of the same definition with the same id gets the same run. The header
    /// `Idempotency-Key` does the same.
    #[serde(default)]
    request_id: Option<String>,
    /// The id of the run: `run_` and 1 to 200 letters, digits, `-` or `_`. Ids are of the whole installation, so only
    /// callers that may act for all tenants can choose one.
    #[serde(default)]
    run_id: Option<String>,
    /// The tenant of the run, for callers that may act for all tenants.
    #[serde(default)]
    tenant: Option<String>,
    #[serde(default)]
    project: Option<String>,
    #[serde(default)]
    environment: Option<String>,
    /// What lists of runs can be searched by: names and values of at most 200 characters, 32 at most.
    #[serde(default)]
    labels: BTreeMap<String, String>,
    /// Of the runs that wait for a slot, the one with the greatest number starts first.
    #[serde(default)]
    priority: i32,
    /// The run does not start before this time, as `2026-03-01T08:00:00Z`.
    #[serde(default)]
    start_at: Option<String>,
    /// The id of the run that the new run repeats, with other parameters or another definition: a run of the same tenant. The
    /// new run says so, as a run does that RETRY_RUN has made.
    #[serde(default)]
    repeats: Option<String>,
    /// How many seconds to wait for the end of the run, at most 50; the answer then has the snapshot of the run.
    #[serde(default)]
    wait_seconds: u64,
}

/// Where the definition of a run is: its text, its name, another run, or a reference.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct DefinitionOfRun {
    /// The text of the definition, in YAML or JSON.
    #[serde(default)]
    text: Option<String>,
    /// What the file of the text is called, as `flows/order.yaml`: definitions of child runs are searched beside it.
    #[serde(default)]
    file: Option<String>,
    /// The name of a definition that was registered.
    #[serde(default)]
    name: Option<String>,
    /// The revision of the name; the current one if absent.
    #[serde(default)]
    revision: Option<u32>,
    /// The id of a run: the new run has the same compiled definition, also if that is not registered.
    #[serde(default)]
    run: Option<String>,
    /// The plan reference of the contract: the definition is fetched, and its hash is checked.
    #[serde(default)]
    #[schema(value_type = Option<Object>)]
    reference: Option<Value>,
}

/// Which tools the definition of a run may use.
fn permits<'a>(app: &'a App, context: &'a RunContext) -> Permits<'a> {
    Permits::new(&app.settings, &context.tenant_id, Some(&context.project_id))
}

impl DefinitionOfRun {
    /// Whether the request names a definition that stays as it is.
    fn asked(&self) -> AskedDefinition {
        match self.name.is_some() && self.revision.is_none() {
            true => AskedDefinition::Current,
            false => AskedDefinition::Fixed,
        }
    }

    /// The plan of a text that was compiled before: nothing blocks.
    fn known_plan(&self, app: &App, context: &RunContext) -> Result<Option<Arc<Plan>>, ApiProblem> {
        let (Some(text), None, None, None, None, None) = (
            &self.text,
            &self.file,
            &self.name,
            &self.run,
            &self.reference,
            self.revision,
        ) else {
            return Ok(None);
        };
        let plan = app.plans.known_text(permits(app, context), text);
        if let Some(plan) = &plan {
            permits(app, context).must_suit(plan)?;
        }
        Ok(plan)
    }

    /// The plan of a new run, as the definition is now, what else was fetched, and the project of the run: if nobody has
    /// named one, the project of the definition. May block.
    fn plan(
        self,
        app: &App,
        mut context: RunContext,
        is_named: bool,
    ) -> Result<(Arc<Plan>, Option<String>, String), ApiProblem> {
        if let (Some(name), false) = (&self.name, is_named) {
            let registry = Registry::new(&*app.store);
            let of = registry.project(&context.tenant_id, name)?;
            context.project_id = of.unwrap_or(context.project_id);
        }
        let (tenant, permits) = (&context.tenant_id, permits(app, &context));
        check_file(self.file.as_deref())?;
        if self.file.is_some() && self.text.is_none() {
            return Err(ApiProblem::bad_request("file: only a text has one"));
        }
        let plan = match (self.text, self.name, self.run, self.reference) {
            (Some(text), None, None, None) if self.revision.is_none() => {
                let plan = match self.file.as_deref() {
                    None => app.plans.plan_of_text(permits, &text)?,
                    file => Arc::new(compile_for(permits, file, &text)?),
                };
                (plan, None)
            }
            (None, Some(name), None, None) => {
                let registry = Registry::of_project(&*app.store, Some(&context.project_id));
                let plan = registry.plan_of_new_run(&app.plans, tenant, &name, self.revision)?;
                (plan, None)
            }
            (None, None, Some(run), None) if self.revision.is_none() => {
                (LoggedRun::open(&*app.store, &run)?.plan, None)
            }
            (None, None, None, Some(reference)) if self.revision.is_none() => {
                let reference: PlanRef = serde_json::from_value(reference)
                    .map_err(|error| ApiProblem::bad_request(format!("reference: {error}")))?;
                let fetched = app.fetch.fetch(&reference);
                let fetched = fetched.map_err(|findings| with_findings(&findings, None))?;
                (Arc::new(fetched.plan), fetched.changed)
            }
            (_, _, _, _) => {
                return Err(ApiProblem::bad_request(
                    "definition: one of text, name (with or without revision), run and reference is needed",
                ));
            }
        };
        permits.must_suit(&plan.0)?;
        permits.check(None, &plan.0)?;
        let (plan, changed) = plan;
        Ok((plan, changed, context.project_id))
    }
}

/// A run that was started.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct StartedRun {
    run_id: String,
    /// Whether this request has created the run; false if an earlier request with the same id has.
    created: bool,
    /// The run as it is now, if its end was waited for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<RunViewBody>)]
    run: Option<RunShown>,
}

/// Start a run.
///
/// With `waitSeconds` the answer comes when the run has ended, or when the time is over; `run.status` says which.
#[utoipa::path(post, path = "/api/v1/runs", tag = "runs", security(("token" = ["operate"])),
    request_body = StartRun,
    responses(
        (status = 201, description = "The run was created.", body = StartedRun),
        (status = 200, description = "An earlier request with the same id has created the run.", body = StartedRun),
        (status = 400, body = ApiProblem), (status = 403, body = ApiProblem), (status = 404, body = ApiProblem),
        (status = 409, body = ApiProblem), (status = 413, body = ApiProblem), (status = 415, body = ApiProblem), (status = 422, body = ApiProblem),
        (status = 429, body = ApiProblem), (status = 503, body = ApiProblem), (status = 504, body = ApiProblem)))]
async fn start(
    State(app): State<Arc<App>>,
    caller: Caller,
    lost: Lost,
    trace: Option<Extension<CallerTrace>>,
    headers: HeaderMap,
    Body(mut body): Body<StartRun>,
) -> Result<Response, ApiProblem> {
    let mut keys = headers.get_all("idempotency-key").iter();
    if let Some(key) = keys.next() {
        if keys.next().is_some() {
            return Err(ApiProblem::bad_request(
                "the header `idempotency-key` is there more than once",
            ));
        }
        let key = key.to_str().unwrap_or_default();
        if body.request_id.as_deref().is_some_and(|id| id != key) {
            return Err(ApiProblem::bad_request(
                "`requestId` and the header `idempotency-key` name different requests: send one of them",
            ));
        }
        body.request_id = Some(key.to_owned());
    }
    let mut context = context(&caller, &body)?;
    context.trace = trace.map(|it| it.0.0);
    let start_after = body.start_at.as_deref().map(read_time).transpose()?;
    let (definition, whose) = (body.definition, context.clone());
    let asked_definition = definition.asked();
    if let Some(run) = &definition.run {
        // Whose run it is decides who may repeat it.
        app.find(&caller, run).await?;
    }
    if let Some(run) = &body.repeats {
        let first = app.row(&caller, run).await?;
        if first.tenant != context.tenant_id {
            return Err(ApiProblem::bad_request(format!(
                "repeats: run {run} is of the tenant `{}`, and the new run of `{}`",
                first.tenant, context.tenant_id
            )));
        }
    }
    let is_named = body.project.is_some() || caller.project.is_some();
    let (plan, changed) = match definition.known_plan(&app, &context)? {
        Some(plan) => (plan, None),
        None => {
            let asked = Arc::clone(&app);
            let found = app.block(move || definition.plan(&asked, whose, is_named));
            let (plan, changed, project) = found.await?;
            context.project_id = project;
            (plan, changed)
        }
    };
    let run_id = match (&body.run_id, &body.request_id) {
        (Some(id), _) => {
            // A server that trusts everyone has no tenants to keep apart.
            if caller.token.is_some() {
                whole_installation(&caller)?;
            }
            id.clone()
        }
        (None, Some(id)) => {
            check_request_id(id)?;
            run_id_of_request(&plan, &context, id)
        }
        (None, None) => format!("run_{}", uuid::Uuid::now_v7()),
    };
    let params = body.params.unwrap_or_else(|| json!({}));
    if !params.is_object() {
        return Err(ApiProblem::bad_request("params: an object is needed"));
    }
    let mut request = StartRequest {
        run_id: run_id.clone(),
        request_id: body.request_id.clone(),
        params,
        context,
        // A run that fails before it starts does so now.
        start_after: start_after.filter(|_| changed.is_none()),
        fetched_sha256: changed,
        original_run_id: body.repeats,
        ..StartRequest::default()
    };
    let repeated = Repeated {
        plan: Arc::clone(&plan),
        definition: asked_definition,
    };
    let known = run_id.clone();
    let mut is_known =
        body.request_id.is_some() && app.ask(move |store| store.find(&known)).await?.is_some();
    let mut run = run_id.clone();
    let tenant = request.context.tenant_id.clone();
    let wait = Duration::from_secs(body.wait_seconds.min(MAX_WAIT_SECONDS));
    // Heard from before the run is there, so that its end is not missed.
    let mut end = (!wait.is_zero()).then(|| app.changes.end_of(&run));
    if is_known {
        repeated.check(&app, &run, request).await?;
    } else {
        if large_params::may_be_large(&plan, &request.params) {
            let params = std::mem::take(&mut request.params);
            request.params = large_params::shrink(&app.artifacts, &run_id, &plan, params)
                .await
                .map_err(|error| ApiProblem::internal(&error))?;
        }
        let again = body.request_id.is_some().then(|| request.clone());
        run = match (app.start(&plan, request).await, again) {
            // The id follows from the request id: another request was a moment faster.
            (Err(problem), Some(again)) if problem.code == Code::RunExists.name() => {
                is_known = true;
                repeated.check(&app, &run_id, again).await?;
                run_id
            }
            // A run with an id of its own was started with this request id.
            (Ok(first), Some(again)) if first != run_id => {
                is_known = true;
                repeated.check(&app, &first, again).await?;
                first
            }
            (answer, _) => match answer {
                Ok(run) => run,
                Err(problem) => return Err(of_own_project(&app, &caller, problem).await),
            },
        };
    }
    if end.as_ref().is_some_and(|it| it.run_id() != run) {
        // An earlier run of the same request.
        end = Some(app.changes.end_of(&run));
    }
    let shown = match end {
        None => None,
        Some(end) => {
            ended(&app, end, !is_known, wait, &lost).await?;
            Some(run_reads::snapshot(&app, &caller, &run).await?)
        }
    };
    let status = match is_known {
        true => StatusCode::OK,
        false => StatusCode::CREATED,
    };
    let location = format!("/api/v1/runs/{run}");
    let started = StartedRun {
        run_id: run,
        created: !is_known,
        run: shown,
    };
    let acted_on = Extension(ActedOn { tenant });
    let location = [(header::LOCATION, location)];
    Ok((status, location, acted_on, Json(started)).into_response())
}

/// Business keys are unique in a tenant: a caller with a project learns that another project has the key, and nothing of the
/// run that has it.
pub(super) async fn of_own_project(app: &App, caller: &Caller, problem: ApiProblem) -> ApiProblem {
    if caller.project.is_none() || problem.code != Code::KeyTaken.name() {
        return problem;
    }
    let holder = problem.detail.split_whitespace().nth(1).unwrap_or_default();
    match app.find(caller, holder).await {
        Ok(_) => problem,
        Err(_) => ApiProblem {
            detail: "an open run of another project has this business key, and business keys are unique in a tenant: choose \
                     another key, or wait until that run has ended"
                .to_owned(),
            ..problem
        },
    }
}

/// A start request that may have come before.
struct Repeated {
    plan: Arc<Plan>,
    definition: AskedDefinition,
}

impl Repeated {
    /// Refuses the request if the run was started with other content.
    async fn check(
        &self,
        app: &App,
        run_id: &str,
        request: StartRequest,
    ) -> Result<(), ApiProblem> {
        let (run_id, plan, definition) =
            (run_id.to_owned(), Arc::clone(&self.plan), self.definition);
        app.ask(move |store| check_repeated(store, &run_id, &plan, definition, &request))
            .await
    }
}

/// The context of a new run: what the caller may say about it.
fn context(caller: &Caller, body: &StartRun) -> Result<RunContext, ApiProblem> {
    check_labels(&body.labels)?;
    let own = caller.context();
    let project = caller.project_of(body.project.clone())?;
    Ok(RunContext {
        tenant_id: caller.one_tenant(body.tenant.clone())?,
        project_id: project.unwrap_or(own.project_id),
        environment_id: body.environment.clone().unwrap_or(own.environment_id),
        priority: body.priority,
        labels: body.labels.clone(),
        ..own
    })
}

pub(super) fn read_time(text: &str) -> Result<Time, ApiProblem> {
    Time::from_rfc3339(text).ok_or_else(|| {
        ApiProblem::bad_request(format!(
            "{text:?} is not a time; write it as 2026-03-01T08:00:00Z"
        ))
    })
}

/// Waits until a run has ended, or so long. Of a run that `is_new` the engine here tells the end.
async fn ended(
    app: &Arc<App>,
    mut end: RunEnd,
    is_new: bool,
    wait: Duration,
    lost: &Lost,
) -> Result<(), ApiProblem> {
    let until = tokio::time::Instant::now() + wait;
    let mut look = NextLook::new(app.store.is_shared());
    let mut looks = !is_new;
    loop {
        let run = end.run_id().to_owned();
        if std::mem::replace(&mut looks, true) && app.ask(move |it| is_over(it, &run)).await? {
            return Ok(());
        }
        // A look now and then: another server may end it.
        let next = tokio::time::Instant::now() + look.pause();
        tokio::select! {
            () = end.ended() => return Ok(()),
            () = tokio::time::sleep_until(next.min(until)) => {}
            () = app.stopping.cancelled() => {}
            () = lost.cancelled() => {}
        }
        lost.check()?;
        if tokio::time::Instant::now() >= until || app.stopping.is_cancelled() {
            return Ok(());
        }
    }
}

/// Whether a run has ended or is not there.
fn is_over(store: &dyn Store, run: &str) -> Result<bool, StoreError> {
    let Some(no) = store.find(run)? else {
        return Ok(true);
    };
    let row = store.summary(no)?;
    Ok(row.is_none_or(|it| it.head.ended_at.is_some()))
}
