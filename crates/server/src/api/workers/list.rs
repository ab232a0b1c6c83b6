//! Which workers asked this server for work lately, and what they have.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use stepwell_engine::store::TaskRow;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::dto::Served;
use crate::access::Caller;
use crate::app::App;
use crate::problem::ApiProblem;

/// The most leases that are listed.
const MAX_LEASES: usize = 1_000;

pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(workers))
}

/// A task that a worker has.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct HeldTask {
    run_id: String,
    /// The step-run; with `~undo` for its undo.
    step_id: String,
    /// The name of the queue.
    queue: String,
    /// The name of the operation.
    operation: String,
    /// The end of the lease, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_until: Option<String>,
    /// The run no longer wants the work, and waits for the worker to stop.
    stopping: bool,
}

/// A worker in another process.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct ListedWorker {
    worker_id: String,
    /// The tenant that the worker is bound to; absent: all tenants.
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant: Option<String>,
    /// What the worker serves; empty if this server has not seen it.
    serves: Vec<Served>,
    /// When the worker last asked this server for work, RFC 3339; absent: never, or long ago.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_seen: Option<String>,
    /// The tasks that the worker has.
    leases: Vec<HeldTask>,
}

/// Workers in other processes.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct WorkerList {
    workers: Vec<ListedWorker>,
}

/// List workers in other processes: those that asked this server for work in the last ten minutes, and those that have
/// tasks.
#[utoipa::path(get, path = "/api/v1/workers", tag = "workers", security(("token" = ["view"])),
    responses((status = 200, body = WorkerList), (status = 403, body = ApiProblem), (status = 503, body = ApiProblem)))]
async fn workers(
    State(app): State<Arc<App>>,
    caller: Caller,
) -> Result<Json<WorkerList>, ApiProblem> {
    let tenant = caller.tenant.clone();
    let registry = &app.workers.registry;
    let mut all: BTreeMap<String, ListedWorker> = BTreeMap::new();
    for (name, seen) in registry.workers(tenant.as_deref(), app.now()) {
        let serves = seen.serves.into_iter();
        let worker = ListedWorker {
            worker_id: seen.worker_id,
            tenant: seen.tenant,
            serves: serves
                .map(|(queue, operation)| Served { queue, operation })
                .collect(),
            last_seen: Some(seen.last_seen.to_rfc3339()),
            leases: Vec::new(),
        };
        all.insert(name, worker);
    }
    let leases: Vec<TaskRow> = app
        .ask(move |store| store.leases(None, tenant.as_deref(), MAX_LEASES))
        .await?;
    for task in leases {
        let Some(name) = task.worker.clone() else {
            continue;
        };
        let Some(run_id) = run_id_of(&app, &caller, &task).await? else {
            continue;
        };
        let worker = all.entry(name.clone()).or_insert_with(|| {
            let (tenant, id) = match name.split_once('/') {
                Some((tenant, id)) => (Some(tenant.to_owned()), id),
                None => (None, &*name),
            };
            ListedWorker {
                worker_id: id.to_owned(),
                tenant,
                serves: Vec::new(),
                last_seen: None,
                leases: Vec::new(),
            }
        });
        worker.leases.push(HeldTask {
            run_id,
            step_id: task.target,
            queue: task.queue,
            operation: task.op,
            lease_until: task.until.map(|it| it.to_rfc3339()),
            stopping: task.stopping,
        });
    }
    let workers = all.into_values().collect();
    Ok(Json(WorkerList { workers }))
}

/// The run of a task, if the caller may see it.
async fn run_id_of(
    app: &App,
    caller: &Caller,
    task: &TaskRow,
) -> Result<Option<String>, ApiProblem> {
    let known = app.workers.registry.run_id_of(task.run, &task.target);
    let run_id = match known {
        Some(run_id) => Some(run_id),
        None => {
            let run = task.run;
            let stored = app.ask(move |store| store.load(run)).await?;
            stored.map(|it| it.run_id)
        }
    };
    match run_id {
        // Tasks are kept by tenant; only the run says of which project it is.
        Some(run_id) if caller.project.is_some() => {
            let seen = app.find(caller, &run_id).await.is_ok();
            Ok(seen.then_some(run_id))
        }
        run_id => Ok(run_id),
    }
}
