//! Workers in other processes: they ask for work, keep it, report it and give it back.

mod answers;
mod dto;
mod files;
mod list;
mod poll;
mod references;
mod results;
mod task;

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use serde::Serialize;
use stepwell_engine::remote::{LeaseState, RemoteWorker};
use stepwell_engine::store::StoreError;
use stepwell_kernel::rejection::Code;
use tokio::time::Instant;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::body::Body;
use crate::access::{Caller, Lost};
use crate::app::App;
use crate::codes;
use crate::problem::ApiProblem;
use crate::workers::SeenWorker;
use dto::{
    HeartbeatAnswer, HeartbeatsAnswer, HeartbeatsRequest, LeaseWord, PROTOCOL, PollAnswer,
    PollRequest, ResultsAnswer, ResultsRequest,
};
use poll::{Found, Visit, Wanted};

/// The most tasks and results of one request.
const MAX_BATCH: usize = 256;
/// The most queues and operations of one worker.
const MAX_SERVES: usize = 1_000;
/// The most heartbeats of one request.
const MAX_HEARTBEATS: usize = 1_000;
/// The longest wait for work, in seconds.
const MAX_WAIT: u64 = 50;
/// The longest lease, in seconds.
const MAX_LEASE: u64 = 3_600;

pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(poll))
        .routes(routes!(report))
        .routes(routes!(heartbeats))
        .routes(routes!(drain))
        .merge(files::routes())
        .merge(list::routes())
}

/// A request for work that is open: the worker is there as long as it is.
struct OpenPoll<'a> {
    app: &'a App,
    worker: &'a str,
}

impl Drop for OpenPoll<'_> {
    fn drop(&mut self) {
        let app = self.app;
        app.workers.registry.ends(self.worker, app.now());
    }
}

/// Ask for work, report results of earlier work, or both in one request. Waits for work if there is none.
#[utoipa::path(post, path = "/api/v1/worker/poll", tag = "workers", security(("token" = ["work"])),
    request_body = PollRequest,
    responses((status = 200, body = PollAnswer), (status = 400, body = ApiProblem), (status = 403, body = ApiProblem),
        (status = 413, body = ApiProblem), (status = 415, body = ApiProblem), (status = 503, body = ApiProblem)))]
async fn poll(
    State(app): State<Arc<App>>,
    caller: Caller,
    lost: Lost,
    Body(body): Body<PollRequest>,
) -> Result<Json<PollAnswer>, ApiProblem> {
    let came = Instant::now();
    speaks(body.protocol)?;
    within("max", body.max, 0, MAX_BATCH)?;
    within("serves", body.serves.len(), 0, MAX_SERVES)?;
    within("completed", body.completed.len(), 0, MAX_BATCH)?;
    within("waitSeconds", body.wait_seconds, 0, MAX_WAIT)?;
    within("leaseSeconds", body.lease_seconds, 1, MAX_LEASE)?;
    let serves = body.serves.into_iter();
    let worker = RemoteWorker {
        name: name_of(&caller, &body.worker_id)?,
        tenant: caller.tenant.clone(),
        serves: serves.map(|it| (it.queue, it.operation)).collect(),
    };
    let (tenant, serves) = (worker.tenant.clone(), worker.serves.clone());
    let seen = SeenWorker::new(body.worker_id, tenant, serves, app.now());
    app.workers.registry.begins(&worker.name, seen);
    let _open = OpenPoll {
        app: &app,
        worker: &worker.name,
    };
    let wanted = Wanted {
        max: body.max,
        lease_ms: body.lease_seconds * 1_000,
        until: came + Duration::from_secs(body.wait_seconds),
    };
    let visit = Visit::begin(&app, (&caller, &lost), &worker, wanted);
    let (results, found) = visit.work(body.completed).await;
    let found = match found {
        Ok(found) => found,
        // What became of the results is worth more than why there is no work.
        Err(problem) if !results.is_empty() => {
            tracing::warn!(
                code = problem.code,
                "work cannot be looked for: {}",
                problem.detail
            );
            Found::default()
        }
        Err(problem) => return Err(problem),
    };
    Ok(Json(PollAnswer {
        protocol: PROTOCOL,
        tasks: found.tasks,
        results,
        cancel: found.cancel,
    }))
}

/// Report results of tasks. Each result has an answer of its own.
#[utoipa::path(post, path = "/api/v1/worker/results", tag = "workers", security(("token" = ["work"])),
    request_body = ResultsRequest,
    responses((status = 200, body = ResultsAnswer), (status = 400, body = ApiProblem), (status = 403, body = ApiProblem),
        (status = 413, body = ApiProblem), (status = 415, body = ApiProblem), (status = 503, body = ApiProblem)))]
async fn report(
    State(app): State<Arc<App>>,
    caller: Caller,
    Body(body): Body<ResultsRequest>,
) -> Result<Json<ResultsAnswer>, ApiProblem> {
    speaks(body.protocol)?;
    within("results", body.results.len(), 0, MAX_BATCH)?;
    let results = results::report_all(&app, &caller, body.results).await;
    Ok(Json(ResultsAnswer { results }))
}

/// Extend the leases of tasks, and learn which of them must be stopped.
#[utoipa::path(post, path = "/api/v1/worker/heartbeats", tag = "workers", security(("token" = ["work"])),
    request_body = HeartbeatsRequest,
    responses((status = 200, body = HeartbeatsAnswer), (status = 400, body = ApiProblem), (status = 403, body = ApiProblem),
        (status = 413, body = ApiProblem), (status = 415, body = ApiProblem), (status = 503, body = ApiProblem)))]
async fn heartbeats(
    State(app): State<Arc<App>>,
    caller: Caller,
    Body(body): Body<HeartbeatsRequest>,
) -> Result<Json<HeartbeatsAnswer>, ApiProblem> {
    speaks(body.protocol)?;
    within("taskTokens", body.task_tokens.len(), 0, MAX_HEARTBEATS)?;
    within("leaseSeconds", body.lease_seconds, 1, MAX_LEASE)?;
    let claims = body.task_tokens.into_iter();
    let claims = claims.map(|token| (app.workers.claim(&caller, &token).ok(), token));
    let claims: Vec<_> = claims.collect();
    let (remote, lease_ms) = (app.workers.remote.clone(), body.lease_seconds * 1_000);
    let leases = app.block(move || {
        let states = claims.into_iter().map(|(claim, task_token)| {
            let state = match claim {
                Some(claim) => remote.heartbeat(&claim, lease_ms)?,
                // A token that nobody gave has no lease.
                None => LeaseState::Lost,
            };
            let state = match state {
                LeaseState::Held => LeaseWord::Held,
                LeaseState::Stopping => LeaseWord::Cancel,
                LeaseState::Lost => LeaseWord::Lost,
            };
            Ok(HeartbeatAnswer { task_token, state })
        });
        states.collect::<Result<Vec<_>, StoreError>>()
    });
    Ok(Json(HeartbeatsAnswer {
        leases: leases.await?,
    }))
}

/// What a worker gave back.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct DrainAnswer {
    /// How many tasks the worker still had; others get them soon.
    given_back: usize,
}

/// A worker ends: what it still has is offered to others at once, instead of when its leases end.
#[utoipa::path(delete, path = "/api/v1/worker/{id}", tag = "workers", security(("token" = ["work"])),
    params(("id" = String, Path, description = "The `workerId` of the worker.")),
    responses((status = 200, body = DrainAnswer), (status = 400, body = ApiProblem), (status = 403, body = ApiProblem),
        (status = 503, body = ApiProblem)))]
async fn drain(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<DrainAnswer>, ApiProblem> {
    let name = name_of(&caller, &id)?;
    app.workers.registry.forget_worker(&name);
    let remote = app.workers.remote.clone();
    let given_back = app.block(move || remote.give_back(&name)).await?;
    Ok(Json(DrainAnswer { given_back }))
}

/// Refuses versions of the protocol that this server does not speak.
fn speaks(protocol: u32) -> Result<(), ApiProblem> {
    match protocol {
        PROTOCOL => Ok(()),
        other => Err(ApiProblem::new(
            StatusCode::BAD_REQUEST,
            codes::PROTOCOL_UNKNOWN,
            format!("the server speaks version {PROTOCOL} of the protocol, not {other}"),
        )),
    }
}

fn within<N: PartialOrd + std::fmt::Display>(
    field: &str,
    value: N,
    least: N,
    most: N,
) -> Result<(), ApiProblem> {
    match (&least..=&most).contains(&&value) {
        true => Ok(()),
        false => Err(ApiProblem::bad_request(format!(
            "{field}: {least} to {most} are allowed, not {value}"
        ))),
    }
}

/// The name that leases of a worker have. Workers of different tenants never share one.
fn name_of(caller: &Caller, id: &str) -> Result<String, ApiProblem> {
    let good = |c: char| c.is_ascii_alphanumeric() || "._:-".contains(c);
    if !(1..=100).contains(&id.len()) || !id.chars().all(good) {
        return Err(ApiProblem::bad_request(
            "workerId: 1 to 100 letters, digits and . _ : - are allowed",
        ));
    }
    if caller.project.is_some() {
        // Tasks are given out by tenant: such a worker would get the work of other projects.
        return Err(ApiProblem::new(
            StatusCode::FORBIDDEN,
            Code::AuthzDenied.name(),
            "a worker works for a whole tenant: its token must not be bound to a project",
        ));
    }
    Ok(match &caller.tenant {
        Some(tenant) => format!("{tenant}/{id}"),
        None => id.to_owned(),
    })
}
