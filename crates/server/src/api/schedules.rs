//! Schedules: definitions that are started at the due times of a cron line.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use stepwell_dialects::trigger::Schedule;
use stepwell_engine::StartRequest;
use stepwell_engine::store::{Store, StoreError};
use stepwell_kernel::event::RunContext;
use stepwell_kernel::time::Time;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::body::{Body, Params};
use super::pages::{NamedQuery, TenantQuery};
use super::run_list::RunRow;
use crate::access::{Caller, LOCAL};
use crate::app::App;
use crate::definitions::{Registry, name_taken};
use crate::problem::ApiProblem;
use crate::schedules::{
    CatchUp, MissedDue, OF_DEFINITION, Overlap, ScheduleDocument, Schedules, StartedDue, invalid,
    unknown, upcoming,
};

/// The most due times that are made good.
const MAX_CATCH_UP: u32 = 1_000;
/// The largest parameters of a schedule, as text.
const MAX_PARAMS: usize = 64 * 1024;
/// How many due times to come are shown.
const SHOWN: usize = 10;

pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(list_schedules))
        .routes(routes!(put_schedule, schedule, delete_schedule))
        .routes(routes!(pause))
        .routes(routes!(resume))
}

/// A schedule to be kept.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PutSchedule {
    /// The name of the definition that is started.
    definition: String,
    /// The revision of the definition; the one that is current at each due time if absent.
    #[serde(default)]
    revision: Option<u32>,
    /// Five fields (minute, hour, day, month, day of the week), six with the second first, or a short name such as `@daily`.
    cron: String,
    /// A time zone of the IANA database, such as `Europe/Berlin`; UTC if absent.
    #[serde(default)]
    timezone: Option<String>,
    /// The parameters of each run. `trigger` is added: the cron line and the due time.
    #[serde(default)]
    #[schema(value_type = Option<Object>)]
    params: Option<Value>,
    /// Which due times are made good that no server has acted on within a minute.
    #[serde(default)]
    catch_up: CatchUp,
    /// How many due times `all` makes good, up to 1000; 100 if absent.
    #[serde(default)]
    catch_up_most: Option<u32>,
    /// What happens at a due time while the run before is still open.
    #[serde(default)]
    overlap: Overlap,
    /// Whether the schedule is paused from the beginning.
    #[serde(default)]
    paused: bool,
    /// Of the runs that wait for a slot, the one with the greatest number starts first.
    #[serde(default)]
    priority: i32,
    /// The project of the schedule and its runs, for callers that may act for all projects. Absent: as it is; of a new
    /// schedule the project of its definition.
    #[serde(default)]
    project: Option<String>,
    #[serde(default)]
    environment: Option<String>,
    /// The tenant of the schedule, for callers that may act for all tenants.
    #[serde(default)]
    tenant: Option<String>,
}

/// A schedule as it is now.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct ScheduleView {
    tenant: String,
    /// Begins with `definition:` if the schedule comes from the trigger of a definition.
    name: String,
    definition: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    revision: Option<u32>,
    cron: String,
    timezone: String,
    #[schema(value_type = Object)]
    params: Value,
    catch_up: CatchUp,
    catch_up_most: u32,
    overlap: Overlap,
    paused: bool,
    priority: i32,
    project: String,
    environment: String,
    /// Who has changed the schedule last, and when.
    changed_by: String,
    changed_at: String,
    /// The next ten due times; none while the schedule is paused.
    next: Vec<String>,
    /// Due times whose runs are decided on and wait: for the run before, or for a free slot.
    waiting: Vec<String>,
    /// The last due times whose runs were started or could not be, newest first.
    last_runs: Vec<ScheduledRun>,
    /// The last due times that have started no run, newest first.
    missed: Vec<MissedDue>,
    /// How many due times have started no run in all.
    missed_total: u64,
}

/// A due time whose run was started, or could not be.
#[derive(Debug, Serialize, ToSchema)]
struct ScheduledRun {
    #[serde(flatten)]
    due: StartedDue,
    /// How the run is now. Only of the ten newest ones; absent if the run was deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    run: Option<RunRow>,
}

impl ScheduledRun {
    /// The runs of a schedule, newest first.
    fn all(store: &dyn Store, started: Vec<StartedDue>) -> Result<Vec<ScheduledRun>, StoreError> {
        let mut all = Vec::new();
        for (index, due) in started.into_iter().rev().enumerate() {
            let known = due.run_id.as_deref().filter(|_| index < SHOWN);
            let no = known.map(|it| store.find(it)).transpose()?.flatten();
            let run = no.map(|it| store.summary(it)).transpose()?.flatten();
            let run = run.map(|it| RunRow::new(it, false));
            all.push(ScheduledRun { due, run });
        }
        Ok(all)
    }
}

impl ScheduleView {
    fn new(
        store: &dyn Store,
        tenant: &str,
        document: ScheduleDocument,
        now: Time,
    ) -> Result<ScheduleView, StoreError> {
        let time = |it: i64| Time(it).to_rfc3339();
        let schedule = document.schedule().ok().filter(|_| !document.paused);
        let from = now.max(Time(document.decided_to));
        let next = schedule.map(|it| upcoming(&it, from, SHOWN));
        let next = next.into_iter().flatten().map(Time::to_rfc3339);
        Ok(ScheduleView {
            tenant: tenant.to_owned(),
            name: document.name,
            definition: document.definition,
            revision: document.revision,
            cron: document.cron,
            timezone: document.timezone.unwrap_or_else(|| "UTC".to_owned()),
            params: document.params,
            catch_up: document.catch_up,
            catch_up_most: document.catch_up_most,
            overlap: document.overlap,
            paused: document.paused,
            priority: document.priority,
            project: document.project,
            environment: document.environment,
            changed_by: document.by,
            changed_at: document.changed_at,
            next: next.collect(),
            waiting: document.pending.into_iter().map(time).collect(),
            last_runs: ScheduledRun::all(store, document.started)?,
            missed: document.missed.into_iter().rev().collect(),
            missed_total: document.missed_total,
        })
    }
}

fn check_name(name: &str) -> Result<(), ApiProblem> {
    let good = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    match (1..=200).contains(&name.len()) && name.chars().all(good) {
        true => Ok(()),
        false => Err(invalid(
            "the name of a schedule has 1 to 200 letters from A to Z, digits, -, _ and .",
        )),
    }
}

/// The parameters of the runs, if they can be some.
pub(super) fn fixed_params(params: Option<Value>) -> Result<Value, ApiProblem> {
    let params = params.unwrap_or_else(|| json!({}));
    if !params.is_object() {
        return Err(ApiProblem::bad_request("params: an object is needed"));
    }
    for key in ["event", "trigger"] {
        if params.get(key).is_some() {
            return Err(ApiProblem::bad_request(format!(
                "params: {key} says what has triggered a run; use another name"
            )));
        }
    }
    match params.to_string().len() > MAX_PARAMS {
        true => Err(ApiProblem::bad_request(format!(
            "params: at most {MAX_PARAMS} bytes are kept"
        ))),
        false => Ok(params),
    }
}

/// Refuses now what would keep every run of the schedule from being started.
fn start_rules(tenant: &str, schedule: &ScheduleDocument) -> Result<(), ApiProblem> {
    let request = StartRequest {
        run_id: "run_of_a_schedule".to_owned(),
        params: schedule.params.clone(),
        context: RunContext {
            tenant_id: tenant.to_owned(),
            project_id: schedule.project.clone(),
            environment_id: schedule.environment.clone(),
            ..RunContext::default()
        },
        ..StartRequest::default()
    };
    request.check().map_err(ApiProblem::from)
}

/// Create or change a schedule.
///
/// A schedule that is new, or whose cron line or time zone changes, begins now: due times before are neither started nor
/// missed.
#[utoipa::path(put, path = "/api/v1/schedules/{name}", tag = "schedules", security(("token" = ["engineer"])),
    params(("name" = String, Path, description = "The name of the schedule.")), request_body = PutSchedule,
    responses((status = 200, description = "The schedule was changed.", body = ScheduleView),
        (status = 201, description = "The schedule was created.", body = ScheduleView),
        (status = 400, body = ApiProblem), (status = 403, body = ApiProblem), (status = 404, body = ApiProblem),
        (status = 409, body = ApiProblem), (status = 413, body = ApiProblem), (status = 415, body = ApiProblem),
        (status = 422, body = ApiProblem), (status = 503, body = ApiProblem)))]
async fn put_schedule(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(name): Path<String>,
    Body(body): Body<PutSchedule>,
) -> Result<Response, ApiProblem> {
    check_name(&name)?;
    Schedule::read(&body.cron, body.timezone.as_deref()).map_err(|why| invalid(&why))?;
    let most = body.catch_up_most.unwrap_or(100);
    if !(1..=MAX_CATCH_UP).contains(&most) {
        return Err(invalid(&format!(
            "catchUpMost: a number from 1 to {MAX_CATCH_UP} is needed"
        )));
    }
    let own = caller.context();
    let project = caller.project_of(body.project)?;
    let tenant = caller.one_tenant(body.tenant)?;
    let now = app.now();
    let mut wanted = ScheduleDocument {
        name: name.clone(),
        definition: body.definition,
        revision: body.revision,
        cron: body.cron.trim().to_owned(),
        timezone: body.timezone,
        params: fixed_params(body.params)?,
        project: String::new(),
        environment: body.environment.unwrap_or(own.environment_id),
        priority: body.priority,
        catch_up: body.catch_up,
        catch_up_most: most,
        overlap: body.overlap,
        paused: body.paused,
        by: caller.name.clone(),
        changed_at: now.to_rfc3339(),
        decided_to: now.0,
        pending: Vec::new(),
        started: Vec::new(),
        missed: Vec::new(),
        missed_total: 0,
    };
    let plans = app.plans.clone();
    let (created, view) = app
        .ask(move |store| {
            let schedules = Schedules::new(store);
            let known = schedules.find(&tenant, &name)?;
            wanted.project = match (project, known) {
                (Some(project), _) => project,
                // Nobody says of which project it is from now on.
                (None, Some((known, _))) => known.project,
                (None, None) => Registry::new(store)
                    .project(&tenant, &wanted.definition)?
                    .unwrap_or_else(|| LOCAL.to_owned()),
            };
            start_rules(&tenant, &wanted)?;
            let registry = Registry::of_project(store, Some(&wanted.project));
            // A schedule of a definition that nobody knows is most likely a typing mistake.
            registry.plan_of_new_run(&plans, &tenant, &wanted.definition, wanted.revision)?;
            let mut created = false;
            let changed = schedules.change(&tenant, &name, now, |known| {
                let mut next = wanted.clone();
                created = known.is_none();
                if let Some(known) = known {
                    if !caller.is_of(&tenant, &known.project) {
                        return Err(name_taken("schedule", &name));
                    }
                    let same = known.cron == next.cron && known.timezone == next.timezone;
                    if same && !known.paused {
                        (next.decided_to, next.pending) = (known.decided_to, known.pending);
                    }
                    (next.started, next.missed) = (known.started, known.missed);
                    next.missed_total = known.missed_total;
                }
                Ok(next)
            })?;
            let view = ScheduleView::new(store, &tenant, changed, now)?;
            Ok::<_, ApiProblem>((created, view))
        })
        .await?;
    app.due.changed();
    let status = match created {
        true => StatusCode::CREATED,
        false => StatusCode::OK,
    };
    Ok((status, Json(view)).into_response())
}

/// A page of schedules.
#[derive(Debug, Serialize, ToSchema)]
struct SchedulePage {
    schedules: Vec<ScheduleView>,
    /// The `after` of the next page; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// List the schedules by name, with their next due times.
#[utoipa::path(get, path = "/api/v1/schedules", tag = "schedules", security(("token" = ["view"])),
    params(NamedQuery),
    responses((status = 200, body = SchedulePage), (status = 400, body = ApiProblem), (status = 403, body = ApiProblem),
        (status = 503, body = ApiProblem)))]
async fn list_schedules(
    State(app): State<Arc<App>>,
    caller: Caller,
    Params(query): Params<NamedQuery>,
) -> Result<Json<SchedulePage>, ApiProblem> {
    let page = query.page()?;
    let tenant = caller.tenant_of(query.tenant)?;
    let now = app.now();
    let page = app.ask(move |store| {
        let whose = (tenant, caller.project.as_deref());
        let found = Schedules::new(store).list(whose, page.after.clone(), page.rows())?;
        let (found, next) = page.cut(found, |it| (&it.0, &it.1.name));
        let view = |(tenant, document, _): (String, ScheduleDocument, u64)| {
            ScheduleView::new(store, &tenant, document, now)
        };
        let schedules: Result<_, StoreError> = found.into_iter().map(view).collect();
        Ok::<_, ApiProblem>(SchedulePage {
            schedules: schedules?,
            next,
        })
    });
    Ok(Json(page.await?))
}

/// Read a schedule: its next ten due times, its last runs, and what it has missed.
#[utoipa::path(get, path = "/api/v1/schedules/{name}", tag = "schedules", security(("token" = ["view"])),
    params(("name" = String, Path, description = "The name of the schedule."), TenantQuery),
    responses((status = 200, body = ScheduleView), (status = 400, body = ApiProblem), (status = 403, body = ApiProblem),
        (status = 404, body = ApiProblem), (status = 503, body = ApiProblem)))]
async fn schedule(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(name): Path<String>,
    Params(query): Params<TenantQuery>,
) -> Result<Json<ScheduleView>, ApiProblem> {
    let tenant = caller.one_tenant(query.tenant)?;
    let now = app.now();
    let view = app.ask(
        move |store| match Schedules::new(store).find(&tenant, &name)? {
            Some((document, _)) if caller.is_of(&tenant, &document.project) => {
                Ok(ScheduleView::new(store, &tenant, document, now)?)
            }
            Some(_) | None => Err(unknown(&name)),
        },
    );
    Ok(Json(view.await?))
}

/// Delete a schedule. Runs that it has started go on.
#[utoipa::path(delete, path = "/api/v1/schedules/{name}", tag = "schedules", security(("token" = ["engineer"])),
    params(("name" = String, Path, description = "The name of the schedule."), TenantQuery),
    responses((status = 204), (status = 400, body = ApiProblem), (status = 403, body = ApiProblem),
        (status = 404, body = ApiProblem), (status = 422, body = ApiProblem), (status = 503, body = ApiProblem)))]
async fn delete_schedule(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(name): Path<String>,
    Params(query): Params<TenantQuery>,
) -> Result<StatusCode, ApiProblem> {
    if name.starts_with(OF_DEFINITION) {
        return Err(invalid(
            "this schedule is the trigger of a definition: pause it, or register the definition without the trigger",
        ));
    }
    let (tenant, project) = (caller.one_tenant(query.tenant)?, caller.project);
    app.ask(move |store| Schedules::new(store).delete(&tenant, project.as_deref(), &name))
        .await?;
    app.due.changed();
    Ok(StatusCode::NO_CONTENT)
}

/// Pause a schedule: due times neither start runs nor are missed until it is resumed.
#[utoipa::path(post, path = "/api/v1/schedules/{name}/pause", tag = "schedules", security(("token" = ["operate"])),
    params(("name" = String, Path, description = "The name of the schedule."), TenantQuery),
    responses((status = 200, body = ScheduleView), (status = 400, body = ApiProblem), (status = 403, body = ApiProblem),
        (status = 404, body = ApiProblem), (status = 503, body = ApiProblem)))]
async fn pause(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(name): Path<String>,
    Params(query): Params<TenantQuery>,
) -> Result<Json<ScheduleView>, ApiProblem> {
    set_paused(&app, &caller, name, query.tenant, true).await
}

/// Resume a schedule from now on.
#[utoipa::path(post, path = "/api/v1/schedules/{name}/resume", tag = "schedules", security(("token" = ["operate"])),
    params(("name" = String, Path, description = "The name of the schedule."), TenantQuery),
    responses((status = 200, body = ScheduleView), (status = 400, body = ApiProblem), (status = 403, body = ApiProblem),
        (status = 404, body = ApiProblem), (status = 503, body = ApiProblem)))]
async fn resume(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(name): Path<String>,
    Params(query): Params<TenantQuery>,
) -> Result<Json<ScheduleView>, ApiProblem> {
    set_paused(&app, &caller, name, query.tenant, false).await
}

async fn set_paused(
    app: &Arc<App>,
    caller: &Caller,
    name: String,
    tenant: Option<String>,
    paused: bool,
) -> Result<Json<ScheduleView>, ApiProblem> {
    let tenant = caller.one_tenant(tenant)?;
    let (now, by) = (app.now(), caller.name.clone());
    let caller = caller.clone();
    let view = app
        .ask(move |store| {
            let changed = Schedules::new(store).change(&tenant, &name, now, |known| {
                let known = known.filter(|it| caller.is_of(&tenant, &it.project));
                let mut next = known.ok_or_else(|| unknown(&name))?;
                if next.paused && !paused {
                    next.decided_to = now.0;
                }
                if next.paused != paused {
                    next.paused = paused;
                    next.by.clone_from(&by);
                    next.changed_at = now.to_rfc3339();
                }
                Ok(next)
            })?;
            Ok::<_, ApiProblem>(ScheduleView::new(store, &tenant, changed, now)?)
        })
        .await?;
    app.due.changed();
    Ok(Json(view))
}
