//! Runs as a whole: start and list.

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
use stepwell_engine::store::{Mark, RunFilter, RunSummary};
use stepwell_engine::{Error, StartRequest, run_id_of_request};
use stepwell_kernel::event::RunContext;
use stepwell_kernel::plan::Plan;
use stepwell_kernel::rejection::Code;
use stepwell_kernel::time::Time;
use stepwell_worker::large_params;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::body::{Body, Params};
use super::operations::whole_installation;
use super::run_filter::RunQuery;
use super::run_reads;
use crate::access::{Caller, Lost};
use crate::app::App;
use crate::changes::NextLook;
use crate::definitions::{Permits, Registry, check_file, compile_for, serves, with_findings};
use crate::problem::ApiProblem;
use crate::telemetry::CallerTrace;

/// The longest wait for the end of a run that is started.
const MAX_WAIT_SECONDS: u64 = 50;
/// The most runs of a page.
const MAX_PAGE: usize = 500;
const PAGE: usize = 50;

pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(start, list))
        .routes(routes!(counts))
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
    /// How many seconds to wait for the end of the run, at most 50; the answer then has the snapshot of the run.
    #[serde(default)]
    wait_seconds: u64,
}

/// Where the definition of a run is: its text, its name, or a reference.
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
    /// The plan reference of the contract: the definition is fetched, and its hash is checked.
    #[serde(default)]
    #[schema(value_type = Option<Object>)]
    reference: Option<Value>,
}

/// Which tools the definition of a run may use.
fn permits<'a>(app: &'a App, context: &'a RunContext) -> Permits<'a> {
    Permits {
        tools: &app.settings.tools,
        tenant: &context.tenant_id,
        project: Some(&context.project_id),
    }
}

impl DefinitionOfRun {
    /// The plan of a text that was compiled before: nothing blocks.
    fn known_plan(&self, app: &App, context: &RunContext) -> Result<Option<Arc<Plan>>, ApiProblem> {
        let (Some(text), None, None, None, None) = (
            &self.text,
            &self.file,
            &self.name,
            &self.reference,
            self.revision,
        ) else {
            return Ok(None);
        };
        let plan = app.plans.known_text(permits(app, context), text);
        if let Some(plan) = &plan {
            serves(plan)?;
        }
        Ok(plan)
    }

    /// The plan of a new run, as the definition is now. May block.
    fn plan(
        self,
        app: &App,
        context: &RunContext,
    ) -> Result<(Arc<Plan>, Option<String>), ApiProblem> {
        let (tenant, permits) = (&context.tenant_id, permits(app, context));
        check_file(self.file.as_deref())?;
        if self.file.is_some() && self.text.is_none() {
            return Err(ApiProblem::bad_request("file: only a text has one"));
        }
        let plan = match (self.text, self.name, self.reference) {
            (Some(text), None, None) if self.revision.is_none() => {
                let plan = match self.file.as_deref() {
                    None => app.plans.plan_of_text(permits, &text)?,
                    file => Arc::new(compile_for(permits, file, &text)?),
                };
                (plan, None)
            }
            (None, Some(name), None) => {
                let registry = Registry::new(&*app.store);
                let plan = registry.plan_of_new_run(&app.plans, tenant, &name, self.revision)?;
                (plan, None)
            }
            (None, None, Some(reference)) if self.revision.is_none() => {
                let reference: PlanRef = serde_json::from_value(reference)
                    .map_err(|error| ApiProblem::bad_request(format!("reference: {error}")))?;
                let fetched = app.fetch.fetch(&reference);
                let fetched = fetched.map_err(|findings| with_findings(&findings, None))?;
                (Arc::new(fetched.plan), fetched.changed)
            }
            (_, _, _) => {
                return Err(ApiProblem::bad_request(
                    "definition: one of text, name (with or without revision) and reference is needed",
                ));
            }
        };
        serves(&plan.0)?;
        permits.check(None, &plan.0)?;
        Ok(plan)
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
    #[schema(value_type = Option<Object>)]
    run: Option<Value>,
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
    let key = headers.get("idempotency-key");
    if let (None, Some(key)) = (&body.request_id, key) {
        let key = key.to_str().unwrap_or_default();
        body.request_id = Some(key.to_owned());
    }
    let mut context = context(&caller, &body)?;
    context.trace = trace.map(|it| it.0.0);
    let start_after = body.start_at.as_deref().map(read_time).transpose()?;
    let (definition, whose) = (body.definition, context.clone());
    let (plan, changed) = match definition.known_plan(&app, &context)? {
        Some(plan) => (plan, None),
        None => {
            let asked = Arc::clone(&app);
            app.block(move || definition.plan(&asked, &whose)).await?
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
    let known = run_id.clone();
    let is_known =
        body.request_id.is_some() && app.ask(move |store| store.find(&known)).await?.is_some();
    let mut run = run_id.clone();
    if !is_known {
        let params = body.params.unwrap_or_else(|| json!({}));
        if !params.is_object() {
            return Err(ApiProblem::bad_request("params: an object is needed"));
        }
        let params = match large_params::may_be_large(&plan, &params) {
            true => large_params::shrink(&app.artifacts, &run_id, &plan, params)
                .await
                .map_err(|error| ApiProblem::internal(&error))?,
            false => params,
        };
        let request = StartRequest {
            run_id: run_id.clone(),
            request_id: body.request_id.clone(),
            params,
            context,
            // A run that fails before it starts does so now.
            start_after: start_after.filter(|_| changed.is_none()),
            fetched_sha256: changed,
            ..StartRequest::default()
        };
        run = match app.start(&plan, request).await {
            // The id follows from the request id: another request was a moment faster.
            Err(problem) if problem.code == Code::RunExists.name() && body.request_id.is_some() => {
                run_id
            }
            answer => answer?,
        };
    }
    let wait = Duration::from_secs(body.wait_seconds.min(MAX_WAIT_SECONDS));
    let shown = match wait.is_zero() {
        true => None,
        false => {
            ended(&app, &run, wait, &lost).await?;
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
    Ok((status, [(header::LOCATION, location)], Json(started)).into_response())
}

/// The context of a new run: what the caller may say about it.
fn context(caller: &Caller, body: &StartRun) -> Result<RunContext, ApiProblem> {
    let fits = |text: &String| text.chars().count() <= 200 && !text.chars().any(char::is_control);
    let are_good = body.labels.iter().all(|(name, value)| {
        fits(name) && fits(value) && !name.is_empty() && !name.contains(['=', ','])
    });
    if body.labels.len() > 32 || !are_good {
        return Err(ApiProblem::bad_request(
            "labels: at most 32, with names and values of at most 200 characters, and names without = and ,",
        ));
    }
    let own = caller.context();
    let choose =
        |what: &str, wanted: &Option<String>, bound: &Option<String>, default: String| match (
            wanted, bound,
        ) {
            (None, _) => Ok(default),
            (Some(wanted), None) => Ok(wanted.clone()),
            (Some(wanted), Some(bound)) if wanted == bound => Ok(wanted.clone()),
            (Some(_), Some(_)) => Err(ApiProblem::new(
                StatusCode::FORBIDDEN,
                Code::AuthzTenantForbidden.name(),
                format!("you may not start runs of another {what}"),
            )),
        };
    Ok(RunContext {
        tenant_id: choose("tenant", &body.tenant, &caller.tenant, own.tenant_id)?,
        project_id: choose("project", &body.project, &caller.project, own.project_id)?,
        environment_id: body.environment.clone().unwrap_or(own.environment_id),
        priority: body.priority,
        labels: body.labels.clone(),
        ..own
    })
}

fn check_request_id(id: &str) -> Result<(), ApiProblem> {
    let fits = (1..=200).contains(&id.chars().count()) && !id.contains('|');
    match fits && !id.chars().any(char::is_control) {
        true => Ok(()),
        false => Err(ApiProblem::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            Code::InvalidId.name(),
            "a request id has 1 to 200 characters, without | and control characters",
        )),
    }
}

pub(super) fn read_time(text: &str) -> Result<Time, ApiProblem> {
    Time::from_rfc3339(text).ok_or_else(|| {
        ApiProblem::bad_request(format!(
            "{text:?} is not a time; write it as 2026-03-01T08:00:00Z"
        ))
    })
}

/// Waits until a run has ended, or so long.
async fn ended(app: &Arc<App>, run: &str, wait: Duration, lost: &Lost) -> Result<(), ApiProblem> {
    let until = tokio::time::Instant::now() + wait;
    let no = {
        let run = run.to_owned();
        app.ask(move |store| store.find(&run)).await?
    };
    let Some(no) = no else { return Ok(()) };
    let mut changes = app.changes.of_run(no);
    let mut look = NextLook::new(app.store.is_shared());
    loop {
        let row = app.ask(move |store| store.summary(no)).await?;
        if row.is_none_or(|it| it.head.ended_at.is_some()) {
            return Ok(());
        }
        // A change of this run, or a look now and then: another server may end it.
        let next = tokio::time::Instant::now() + look.pause();
        tokio::select! {
            () = changes.changed() => look.reset(),
            () = tokio::time::sleep_until(next.min(until)) => {}
            () = app.stopping.cancelled() => {}
        }
        lost.check()?;
        if tokio::time::Instant::now() >= until || app.stopping.is_cancelled() {
            return Ok(());
        }
    }
}

/// The header with the watermark of a list.
const WATERMARK: &str = "stepwell-watermark";
type WithWatermark = ([(&'static str, String); 1], Json<RunPage>);

/// A page of runs.
#[derive(Debug, Serialize, ToSchema)]
struct RunPage {
    runs: Vec<RunRow>,
    /// The `before` of the next page; absent on the last page. With `text` a page may have fewer runs than asked for, or
    /// none, and be followed by others: the text is looked for in 5,000 runs at a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// A run in a list.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct RunRow {
    run_id: String,
    plan_id: String,
    plan_version: String,
    /// actions, dag, plan, playbook or linear.
    language: String,
    tenant_id: String,
    project_id: String,
    environment_id: String,
    /// The run that waits for this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_run_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    business_key: Option<String>,
    /// The status of the contract; DAMAGED if the log of the run is damaged.
    status: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    substatus: Option<String>,
    created_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_at: Option<String>,
    /// When the run goes on by itself, if it waits for a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    wake_at: Option<String>,
    /// How many events the log of the run has.
    events: u64,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    labels: BTreeMap<String, String>,
}

impl RunRow {
    pub(super) fn new(run: RunSummary, damaged: bool) -> RunRow {
        RunRow {
            run_id: run.run_id,
            plan_id: run.plan_id,
            plan_version: run.plan_version,
            language: run.language,
            tenant_id: run.tenant,
            project_id: run.project,
            environment_id: run.environment,
            parent_run_id: run.parent,
            business_key: run.unique_key,
            // What the head of a damaged run says is not to be trusted.
            status: if damaged {
                "DAMAGED".to_owned()
            } else {
                run.head.status
            },
            substatus: run.head.substatus.filter(|_| !damaged),
            created_at: run.created_at.to_rfc3339(),
            ended_at: run.head.ended_at.map(Time::to_rfc3339),
            wake_at: run.head.wake_at.map(Time::to_rfc3339),
            events: run.last_seq,
            labels: run.labels,
        }
    }
}

/// List runs, newest first.
///
/// The header `stepwell-watermark` of the answer is a watermark: `GET /api/v1/stream` with it as `Last-Event-ID` tells what
/// has changed since the list was read.
#[utoipa::path(get, path = "/api/v1/runs", tag = "runs", security(("token" = ["view"])),
    params(RunQuery),
    responses((status = 200, body = RunPage, headers(
            ("stepwell-watermark" = String, description = "Where the stream of all runs goes on from."))), (status = 400, body = ApiProblem), (status = 403, body = ApiProblem),
        (status = 404, body = ApiProblem), (status = 503, body = ApiProblem)))]
async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    Params(query): Params<RunQuery>,
) -> Result<WithWatermark, ApiProblem> {
    let limit = query.limit.unwrap_or(PAGE);
    if !(1..=MAX_PAGE).contains(&limit) {
        return Err(ApiProblem::bad_request(format!(
            "limit: a number from 1 to {MAX_PAGE} is needed"
        )));
    }
    let before = query.before.clone();
    let Some(filter) = query.filter(&caller)? else {
        let mark = app.ask(|store| store.mark()).await?;
        let none = RunPage {
            runs: Vec::new(),
            next: None,
        };
        return Ok(([(WATERMARK, sealed(&app, &mark)?)], Json(none)));
    };
    let (mark, mut runs, damaged, searched_to) = app
        .ask(move |store| {
            let before = before.map(|run| caller.find(store, &run)).transpose()?;
            let filter = RunFilter {
                before,
                // One row more than shown tells whether there is another page.
                limit: limit + 1,
                ..filter
            };
            // Before the list is read: what changes meanwhile is told once more.
            let mark = store.mark()?;
            let runs = store.list(&filter)?;
            let searched_to = match runs.len() > limit {
                true => None,
                false => store.searched_to(&filter)?,
            };
            Ok::<_, Error>((mark, runs, store.quarantined()?, searched_to))
        })
        .await?;
    let more = runs.len() > limit;
    runs.truncate(limit);
    let last = runs.last().filter(|_| more).map(|it| it.run_id.clone());
    let next = last.or(searched_to);
    let row = |run: RunSummary| {
        let is_damaged = damaged.iter().any(|(it, _)| *it == run.run);
        RunRow::new(run, is_damaged)
    };
    let page = RunPage {
        runs: runs.into_iter().map(row).collect(),
        next,
    };
    Ok(([(WATERMARK, sealed(&app, &mark)?)], Json(page)))
}

fn sealed(app: &App, mark: &Mark) -> Result<String, ApiProblem> {
    let sealed = app.watermarks.seal(mark);
    sealed.map_err(|error| ApiProblem::internal(&error))
}

/// How many runs have each status.
#[derive(Debug, Serialize, ToSchema)]
struct RunCounts {
    /// The statuses that runs have, each with the number of runs.
    counts: BTreeMap<String, u64>,
    total: u64,
}

/// Count runs by status.
#[utoipa::path(get, path = "/api/v1/runs/counts", tag = "runs", security(("token" = ["view"])),
    params(RunQuery),
    responses((status = 200, body = RunCounts), (status = 400, body = ApiProblem), (status = 403, body = ApiProblem),
        (status = 503, body = ApiProblem)))]
async fn counts(
    State(app): State<Arc<App>>,
    caller: Caller,
    Params(query): Params<RunQuery>,
) -> Result<Json<RunCounts>, ApiProblem> {
    let counts = match query.filter(&caller)? {
        Some(filter) => app.ask(move |store| store.count_runs(&filter)).await?,
        None => Vec::new(),
    };
    let total = counts.iter().map(|(_, count)| count).sum();
    Ok(Json(RunCounts {
        counts: counts.into_iter().collect(),
        total,
    }))
}
