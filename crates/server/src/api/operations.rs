//! The installation: sinks, pending deliveries and the queue of runs.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use stepwell_bus::{is_sink_name, open_sink, shown_address};
use stepwell_engine::Error;
use stepwell_engine::store::{NoticeFilter, RunFilter, SinkRow, SinkStart, Store};
use stepwell_kernel::codes::HOST_DENIED;
use stepwell_kernel::time::Time;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::body::{Body, Params};
use crate::access::Caller;
use crate::app::App;
use crate::codes;
use crate::deliveries::SinkFaults;
use crate::problem::ApiProblem;

/// The most rows of an answer.
pub(super) const MAX_ROWS: usize = 1_000;
const ROWS: usize = 100;

pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(sinks))
        .routes(routes!(add_sink, remove_sink))
        .routes(routes!(outbox))
        .routes(routes!(queue))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct RowsQuery {
    /// At most this many rows; 100 if absent, 1000 at most.
    limit: Option<usize>,
}

impl RowsQuery {
    fn limit(&self) -> Result<usize, ApiProblem> {
        limit_of(self.limit)
    }
}

pub(super) fn limit_of(asked: Option<usize>) -> Result<usize, ApiProblem> {
    let limit = asked.unwrap_or(ROWS);
    match (1..=MAX_ROWS).contains(&limit) {
        true => Ok(limit),
        false => Err(ApiProblem::bad_request(format!(
            "limit: a number from 1 to {MAX_ROWS} is needed"
        ))),
    }
}

/// Which alerts or dead letters the caller may see.
pub(super) fn own(caller: Caller) -> NoticeFilter {
    NoticeFilter {
        // What is about the whole installation is not of a tenant.
        about_store: caller.tenant.is_none(),
        tenant: caller.tenant,
        project: caller.project,
        ..NoticeFilter::default()
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
    /// How many of its deliveries are dead letters; at most 1,000 are counted.
    dead_letters: usize,
    /// Why nothing arrives there, as far as it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<SinkProblem>,
}

/// How many dead letters of a sink are counted.
const MOST_COUNTED: usize = 1_000;

/// Why a sink gets nothing.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct SinkProblem {
    /// What the sink, or the way to it, says; often it begins with a code.
    message: String,
    /// How often the delivery was tried; none if the sink cannot even be tried, until its address or the configuration of the
    /// server is another.
    #[serde(skip_serializing_if = "Option::is_none")]
    attempts: Option<u32>,
    /// When the delivery is tried again.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_at: Option<String>,
}

impl SinkProblem {
    /// What is known of a sink: what this server found when it opened the sink, else the failure that the store has.
    fn of(
        store: &dyn Store,
        faults: &SinkFaults,
        sink: &str,
    ) -> Result<Option<SinkProblem>, Error> {
        if let Some(message) = faults.of(sink) {
            return Ok(Some(SinkProblem {
                message,
                attempts: None,
                next_at: None,
            }));
        }
        let failure = store.delivery_failure(sink)?;
        Ok(failure.map(|it| SinkProblem {
            message: it.why,
            attempts: Some(it.attempts),
            next_at: Some(it.due_at.to_rfc3339()),
        }))
    }
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
    let faults = app.sink_faults.clone();
    let sinks = app
        .ask(move |store| {
            let mut rows = Vec::new();
            for sink in store.sinks()? {
                let (pending, oldest) = store.backlog(&sink.name)?;
                rows.push(SinkState {
                    problem: SinkProblem::of(store, &faults, &sink.name)?,
                    address: shown_address(&sink.address),
                    since: sink.since.to_rfc3339(),
                    dead_letters: store.count_dead_letters(&sink.name, MOST_COUNTED)?,
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
    /// `webhook:https://…`, or the address of a broker such as `nats://HOST/STREAM`. Never with a password: `auth` names a
    /// secret.
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
            "the name of a sink may contain letters from A to Z, digits, `-`, `_` and `.`",
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
    let around = app.around.clone();
    app.block(move || match open_sink(&checked, &around) {
        Ok(_) => Ok(()),
        Err(why) => Err(bad_address(&why, ApiProblem::bad_request)),
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

/// Why an address cannot be used.
pub(super) fn bad_address(why: &str, other: impl FnOnce(String) -> ApiProblem) -> ApiProblem {
    let told = format!("address: {why}");
    match why.contains(HOST_DENIED) {
        true => ApiProblem::new(StatusCode::BAD_REQUEST, HOST_DENIED, told),
        false => other(told),
    }
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
    let removed = match is_sink_name(&name) {
        true => app.ask(move |store| store.remove_sink(&wanted)).await?,
        false => None,
    };
    match removed {
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

/// A run that is created and has not started.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct WaitingRun {
    run_id: String,
    plan_id: String,
    tenant_id: String,
    created_at: String,
    /// Why it waits, in the word of the contract.
    #[schema(required)]
    substatus: Option<String>,
    /// When it may start at the earliest.
    #[schema(required)]
    start_at: Option<String>,
}

/// The runs that wait for a slot, and the limits.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct QueueState {
    /// Runs that are created and have not started, oldest first.
    waiting: Vec<WaitingRun>,
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
            let row = |run: stepwell_engine::store::RunSummary| WaitingRun {
                run_id: run.run_id,
                plan_id: run.plan_id,
                tenant_id: run.tenant,
                created_at: run.created_at.to_rfc3339(),
                substatus: run.head.substatus,
                start_at: run.head.wake_at.map(Time::to_rfc3339),
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
