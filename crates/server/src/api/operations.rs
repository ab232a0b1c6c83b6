//! The installation: alerts, sinks, pending deliveries, dead letters and the queue of runs.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use stepwell_bus::{is_sink_name, open_sink};
use stepwell_engine::Error;
use stepwell_engine::store::{RunFilter, RunNo, SinkRow, SinkStart, Store};
use stepwell_kernel::effect::Priority;
use stepwell_kernel::time::Time;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::body::{Body, Params};
use crate::access::Caller;
use crate::app::App;
use crate::codes;
use crate::problem::ApiProblem;

/// The most rows of an answer.
const MAX_ROWS: usize = 1_000;
const ROWS: usize = 100;

pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(alerts))
        .routes(routes!(sinks))
        .routes(routes!(add_sink, remove_sink))
        .routes(routes!(outbox))
        .routes(routes!(dead_letters))
        .routes(routes!(redrive))
        .routes(routes!(queue))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct RowsQuery {
    /// At most this many rows; 100 if absent, 1000 at most.
    limit: Option<usize>,
}

impl RowsQuery {
    fn limit(&self) -> Result<usize, ApiProblem> {
        let limit = self.limit.unwrap_or(ROWS);
        match (1..=MAX_ROWS).contains(&limit) {
            true => Ok(limit),
            false => Err(ApiProblem::bad_request(format!(
                "limit: a number from 1 to {MAX_ROWS} is needed"
            ))),
        }
    }
}

/// Something that a person must be told.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct AlertOfRun {
    no: i64,
    /// The run that the alert is about; absent for the whole installation.
    #[serde(skip_serializing_if = "Option::is_none")]
    run_id: Option<String>,
    code: String,
    /// P1, P2 or P3; P1 is the most urgent.
    priority: &'static str,
    message: String,
    at: String,
}

/// List alerts, newest first.
#[utoipa::path(get, path = "/api/v1/alerts", tag = "operations", security(("token" = ["view"])),
    params(RowsQuery),
    responses((status = 200, body = Vec<AlertOfRun>), (status = 400, body = ApiProblem),
        (status = 403, body = ApiProblem), (status = 503, body = ApiProblem)))]
async fn alerts(
    State(app): State<Arc<App>>,
    caller: Caller,
    Params(query): Params<RowsQuery>,
) -> Result<Json<Vec<AlertOfRun>>, ApiProblem> {
    let limit = query.limit()?;
    let rows = app
        .ask(move |store| {
            let mut of_tenant = OwnRuns::new(&caller);
            let mut rows = store.alerts(usize::MAX)?;
            rows.retain(|row| match &row.run_id {
                Some(run) => of_tenant.has_id(store, run),
                None => caller.tenant.is_none(),
            });
            rows.truncate(limit);
            Ok::<_, Error>(rows)
        })
        .await?;
    let row = |row: stepwell_engine::store::AlertRow| AlertOfRun {
        no: row.no,
        run_id: row.run_id,
        code: row.code,
        priority: match row.priority {
            Priority::P1 => "P1",
            Priority::P2 => "P2",
            Priority::P3 => "P3",
        },
        message: row.message,
        at: row.at.to_rfc3339(),
    };
    Ok(Json(rows.into_iter().map(row).collect()))
}

/// The runs that a caller may see, remembered while one answer is made.
struct OwnRuns {
    caller: Caller,
    known: HashMap<String, bool>,
}

impl OwnRuns {
    fn new(caller: &Caller) -> OwnRuns {
        OwnRuns {
            caller: caller.clone(),
            known: HashMap::new(),
        }
    }

    fn has_id(&mut self, store: &dyn Store, run: &str) -> bool {
        if self.caller.tenant.is_none() && self.caller.project.is_none() {
            return true;
        }
        let caller = &self.caller;
        *self.known.entry(run.to_owned()).or_insert_with(|| {
            let view = stepwell_views::RunView::read(store, run);
            view.is_ok_and(|view| caller.may_see(view.state.context()))
        })
    }

    fn has(&mut self, store: &dyn Store, run: RunNo) -> bool {
        let id = store.load(run).ok().flatten().map(|it| it.run_id);
        id.is_some_and(|id| self.has_id(store, &id))
    }
}

/// A sink that gets every event of every run.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct SinkState {
    name: String,
    /// The address, without user, password and query.
    address: String,
    since: String,
    /// How many commits wait for their delivery.
    pending: u64,
    /// Since when the oldest of them waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    oldest: Option<String>,
}

/// List the sinks and what waits for them.
#[utoipa::path(get, path = "/api/v1/sinks", tag = "operations", security(("token" = ["administer"])),
    responses((status = 200, body = Vec<SinkState>), (status = 403, body = ApiProblem),
        (status = 503, body = ApiProblem)))]
async fn sinks(
    State(app): State<Arc<App>>,
    caller: Caller,
) -> Result<Json<Vec<SinkState>>, ApiProblem> {
    whole_installation(&caller)?;
    let sinks = app
        .ask(|store| {
            let mut rows = Vec::new();
            for sink in store.sinks()? {
                let (pending, oldest) = store.backlog(&sink.name)?;
                rows.push(SinkState {
                    address: shown(&sink.address),
                    since: sink.since.to_rfc3339(),
                    name: sink.name,
                    pending,
                    oldest: oldest.map(Time::to_rfc3339),
                });
            }
            Ok::<_, Error>(rows)
        })
        .await?;
    Ok(Json(sinks))
}

/// An address without what may be secret in it.
fn shown(address: &str) -> String {
    stepwell_dialects::secret_literals::masked_address(address)
        .split(['?', '#'])
        .next()
        .unwrap_or_default()
        .to_owned()
}

/// What is about the whole store is for those who are of no tenant.
pub(super) fn whole_installation(caller: &Caller) -> Result<(), ApiProblem> {
    match caller.tenant.is_none() && caller.project.is_none() {
        true => Ok(()),
        false => Err(ApiProblem::new(
            StatusCode::FORBIDDEN,
            stepwell_kernel::rejection::Code::AuthzTenantForbidden.name(),
            "this is about the whole installation; a caller of one tenant may not see it",
        )),
    }
}

/// How a sink is registered.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RegisterSink {
    /// `webhook:https://…`.
    address: String,
    /// Also deliver what is in the store already.
    #[serde(default)]
    from_beginning: bool,
}

/// A sink that was registered.
#[derive(Debug, Serialize, ToSchema)]
struct RegisteredSink {
    name: String,
    /// How many commits that were there already are delivered too.
    marked: u64,
}

/// Register a sink, or change its address. From now on every commit is delivered to it.
#[utoipa::path(put, path = "/api/v1/sinks/{name}", tag = "operations", security(("token" = ["administer"])),
    params(("name" = String, Path, description = "The name of the sink: letters, digits, `-`, `_` and `.`.")),
    request_body = RegisterSink,
    responses((status = 200, body = RegisteredSink), (status = 400, body = ApiProblem), (status = 403, body = ApiProblem),
        (status = 413, body = ApiProblem), (status = 415, body = ApiProblem), (status = 503, body = ApiProblem)))]
async fn add_sink(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(name): Path<String>,
    Body(body): Body<RegisterSink>,
) -> Result<Json<RegisteredSink>, ApiProblem> {
    whole_installation(&caller)?;
    if !is_sink_name(&name) {
        return Err(ApiProblem::bad_request(
            "the name of a sink may contain letters, digits, `-`, `_` and `.`",
        ));
    }
    let now = app.now();
    let sink = SinkRow {
        name: name.clone(),
        address: body.address,
        since: now,
    };
    let checked = sink.clone();
    // A sink has threads of its own, which end here again.
    app.block(move || match open_sink(&checked, Duration::from_secs(10)) {
        Ok(_) => Ok(()),
        Err(why) => Err(ApiProblem::bad_request(format!("address: {why}"))),
    })
    .await?;
    let start = match body.from_beginning {
        true => SinkStart::Beginning,
        false => SinkStart::Now,
    };
    let marked = app
        .ask(move |store| store.add_sink(&sink, start, now))
        .await?;
    Ok(Json(RegisteredSink { name, marked }))
}

/// Remove a sink: deliveries that are pending are forgotten.
#[utoipa::path(delete, path = "/api/v1/sinks/{name}", tag = "operations", security(("token" = ["administer"])),
    params(("name" = String, Path, description = "The name of the sink.")),
    responses((status = 200, body = RemovedSink), (status = 403, body = ApiProblem),
        (status = 404, body = ApiProblem), (status = 503, body = ApiProblem)))]
async fn remove_sink(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Json<RemovedSink>, ApiProblem> {
    whole_installation(&caller)?;
    let wanted = name.clone();
    match app.ask(move |store| store.remove_sink(&wanted)).await? {
        Some(dropped) => Ok(Json(RemovedSink { name, dropped })),
        None => Err(ApiProblem::not_found(
            codes::SINK_UNKNOWN,
            "there is no sink of this name",
        )),
    }
}

/// A sink that was removed.
#[derive(Debug, Serialize, ToSchema)]
struct RemovedSink {
    name: String,
    /// How many pending deliveries were forgotten.
    dropped: u64,
}

/// What waits for a sink, registered or not.
#[derive(Debug, Serialize, ToSchema)]
struct PendingDeliveries {
    sink: String,
    /// How many commits wait for their delivery.
    waiting: u64,
    /// Since when the oldest of them waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<String>,
}

/// Show the outbox: what waits for which sink. The server delivers it by itself.
#[utoipa::path(get, path = "/api/v1/outbox", tag = "operations", security(("token" = ["administer"])),
    responses((status = 200, body = Vec<PendingDeliveries>), (status = 403, body = ApiProblem),
        (status = 503, body = ApiProblem)))]
async fn outbox(
    State(app): State<Arc<App>>,
    caller: Caller,
) -> Result<Json<Vec<PendingDeliveries>>, ApiProblem> {
    whole_installation(&caller)?;
    let rows = app
        .ask(|store| {
            let mut rows = Vec::new();
            for sink in store.waiting_sinks()? {
                let (waiting, since) = store.backlog(&sink)?;
                rows.push(PendingDeliveries {
                    sink,
                    waiting,
                    since: since.map(Time::to_rfc3339),
                });
            }
            Ok::<_, Error>(rows)
        })
        .await?;
    Ok(Json(rows))
}

/// A delivery that was given up.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct DeadLetterOfRun {
    no: i64,
    sink: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    run_id: Option<String>,
    /// The first event of the commit that was not delivered.
    first_seq: u64,
    /// How often the delivery was tried.
    attempts: u32,
    reason: String,
    at: String,
}

/// List dead letters: deliveries that were given up.
#[utoipa::path(get, path = "/api/v1/dead-letters", tag = "operations", security(("token" = ["operate"])),
    params(RowsQuery),
    responses((status = 200, body = Vec<DeadLetterOfRun>), (status = 400, body = ApiProblem),
        (status = 403, body = ApiProblem), (status = 503, body = ApiProblem)))]
async fn dead_letters(
    State(app): State<Arc<App>>,
    caller: Caller,
    Params(query): Params<RowsQuery>,
) -> Result<Json<Vec<DeadLetterOfRun>>, ApiProblem> {
    let limit = query.limit()?;
    let rows = app
        .ask(move |store| {
            let mut own = OwnRuns::new(&caller);
            let mut rows = Vec::new();
            for letter in store.dead_letters(usize::MAX)? {
                if rows.len() == limit {
                    break;
                }
                if own.has(store, letter.marker.run) {
                    rows.push(DeadLetterOfRun {
                        no: letter.no,
                        run_id: store.load(letter.marker.run)?.map(|it| it.run_id),
                        sink: letter.marker.sink,
                        first_seq: letter.marker.first,
                        attempts: letter.marker.attempts,
                        reason: letter.why,
                        at: letter.at.to_rfc3339(),
                    });
                }
            }
            Ok::<_, Error>(rows)
        })
        .await?;
    Ok(Json(rows))
}

/// Put a dead letter back into the outbox: its delivery is tried again.
#[utoipa::path(post, path = "/api/v1/dead-letters/{no}/redrive", tag = "operations",
    security(("token" = ["operate"])),
    params(("no" = i64, Path, description = "The number of the dead letter.")),
    responses((status = 204, description = "The delivery is tried again."), (status = 400, body = ApiProblem),
        (status = 403, body = ApiProblem), (status = 404, body = ApiProblem), (status = 503, body = ApiProblem)))]
async fn redrive(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(no): Path<String>,
) -> Result<StatusCode, ApiProblem> {
    let no: i64 = no
        .parse()
        .map_err(|_| ApiProblem::bad_request("no: a whole number is needed"))?;
    let done = app
        .ask(move |store| {
            let letters = store.dead_letters(usize::MAX)?;
            let letter = letters.into_iter().find(|it| it.no == no);
            let mut own = OwnRuns::new(&caller);
            match letter.filter(|it| own.has(store, it.marker.run)) {
                Some(_) => store.redrive(no).map_err(Error::from),
                None => Ok(false),
            }
        })
        .await?;
    match done {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(ApiProblem::not_found(
            codes::DEAD_LETTER_UNKNOWN,
            "there is no dead letter of this number",
        )),
    }
}

/// The runs that wait for a slot, and the limits.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct QueueState {
    /// Runs that are created and have not started, oldest first.
    #[schema(value_type = Vec<Object>)]
    waiting: Vec<serde_json::Value>,
    /// How many runs of all tenants hold a slot, if the number is limited.
    #[serde(skip_serializing_if = "Option::is_none")]
    taken: Option<u32>,
    /// How many runs may hold a slot at a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<u32>,
}

/// Show the queue: runs that wait for a slot or for their time to start.
#[utoipa::path(get, path = "/api/v1/queue", tag = "operations", security(("token" = ["view"])),
    params(RowsQuery),
    responses((status = 200, body = QueueState), (status = 400, body = ApiProblem), (status = 403, body = ApiProblem),
        (status = 503, body = ApiProblem)))]
async fn queue(
    State(app): State<Arc<App>>,
    caller: Caller,
    Params(query): Params<RowsQuery>,
) -> Result<Json<QueueState>, ApiProblem> {
    let limit = query.limit()?;
    let total = app.limits.total.filter(|_| caller.tenant.is_none());
    let state = app
        .ask(move |store| {
            let filter = RunFilter {
                statuses: vec!["PENDING".to_owned()],
                project: caller.project.clone(),
                tenant: caller.tenant.clone(),
                open: true,
                limit,
                ..RunFilter::default()
            };
            let mut waiting = store.list(&filter)?;
            waiting.reverse();
            let row = |run: stepwell_engine::store::RunSummary| {
                serde_json::json!({
                    "runId": run.run_id, "planId": run.plan_id, "tenantId": run.tenant,
                    "createdAt": run.created_at.to_rfc3339(), "substatus": run.head.substatus,
                    "startAt": run.head.wake_at.map(Time::to_rfc3339),
                })
            };
            let taken = match total {
                Some(_) => Some(store.slots_taken("all")?),
                None => None,
            };
            Ok::<_, Error>(QueueState {
                waiting: waiting.into_iter().map(row).collect(),
                taken,
                limit: total,
            })
        })
        .await?;
    Ok(Json(state))
}
