//! The same action for many runs: first what would be hit, then the action, run by run.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::json;
use stepwell_engine::Error;
use stepwell_engine::store::RunFilter;
use stepwell_kernel::command::Command;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::body::Body;
use super::run_filter::RunQuery;
use crate::access::Caller;
use crate::app::App;
use crate::problem::ApiProblem;

/// The most runs of one request.
const MAX_RUNS: usize = 1_000;

pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(bulk))
}

/// What is done to each run.
#[derive(Clone, Copy, Debug, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum BulkAction {
    Pause,
    Resume,
    Cancel,
    /// Cancel, and undo the completed steps.
    CancelAndUndo,
    /// Repeat runs that have ended as new runs.
    Retry,
}

/// An action for many runs.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct BulkRequest {
    action: BulkAction,
    /// Which runs are meant.
    #[serde(default)]
    filter: RunQuery,
    /// Exactly these runs; the other filters count too.
    #[serde(default)]
    runs: Vec<String>,
    /// All open runs are meant: needed where neither `filter` nor `runs` says which.
    #[serde(default)]
    all: bool,
    /// Only say what would be hit. True if absent: a request without it changes nothing.
    #[serde(default = "yes")]
    dry_run: bool,
    /// The reason, which the log of each run keeps.
    #[serde(default)]
    reason: Option<String>,
    /// An id that the caller chooses: a repetition of the request counts once for each run.
    #[serde(default)]
    request_id: Option<String>,
}

fn yes() -> bool {
    true
}

/// What came of a bulk action.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct BulkAnswer {
    dry_run: bool,
    /// How many runs are hit.
    count: usize,
    /// Whether more runs fit than the limit allows.
    more: bool,
    runs: Vec<BulkRow>,
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct BulkRow {
    run_id: String,
    plan_id: String,
    status: String,
    /// Why the action was refused for this run; absent if it was done, or if this is a dry run.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<ApiProblem>,
}

/// Do the same to many runs: pause, resume, cancel or retry all runs that fit a filter.
#[utoipa::path(post, path = "/api/v1/runs/bulk", tag = "actions", security(("token" = ["operate"])),
    request_body = BulkRequest,
    responses((status = 200, body = BulkAnswer), (status = 400, body = ApiProblem), (status = 403, body = ApiProblem),
        (status = 404, body = ApiProblem),
        (status = 413, body = ApiProblem), (status = 415, body = ApiProblem), (status = 503, body = ApiProblem)))]
async fn bulk(
    State(app): State<Arc<App>>,
    caller: Caller,
    Body(body): Body<BulkRequest>,
) -> Result<Json<BulkAnswer>, ApiProblem> {
    let limit = body.filter.limit.unwrap_or(MAX_RUNS);
    if !(1..=MAX_RUNS).contains(&limit) || body.runs.len() > MAX_RUNS {
        return Err(ApiProblem::bad_request(format!(
            "limit, runs: from 1 to {MAX_RUNS} runs of one request"
        )));
    }
    let ended = matches!(body.action, BulkAction::Retry);
    if ended && !body.filter.names_a_status() && body.runs.is_empty() {
        return Err(ApiProblem::bad_request(
            "a retry needs a status or a list of runs: it repeats every run that fits",
        ));
    }
    if !body.dry_run && !body.all && body.runs.is_empty() && body.filter.is_empty() {
        return Err(ApiProblem::bad_request(
            "a filter, a list of runs, or `\"all\": true` is needed: without them every open run is meant",
        ));
    }
    let before = body.filter.before.clone();
    let query = match ended {
        true => body.filter,
        false => body.filter.only_open(),
    };
    let Some(filter) = query.filter(&caller)? else {
        return Ok(Json(BulkAnswer {
            dry_run: body.dry_run,
            count: 0,
            more: false,
            runs: Vec::new(),
        }));
    };
    let (wanted, finder) = (body.runs, caller.clone());
    let mut runs = app
        .ask(move |store| {
            let before = before.map(|run| finder.find(store, &run)).transpose()?;
            let filter = RunFilter {
                before,
                limit: if wanted.is_empty() {
                    limit + 1
                } else {
                    usize::MAX
                },
                ..filter
            };
            let mut runs = store.list(&filter)?;
            if !wanted.is_empty() {
                runs.retain(|run| wanted.contains(&run.run_id));
            }
            Ok::<_, Error>(runs)
        })
        .await?;
    let more = runs.len() > limit;
    runs.truncate(limit);
    let batch = body
        .request_id
        .unwrap_or_else(|| uuid::Uuid::now_v7().to_string());
    let mut rows = Vec::new();
    for run in runs {
        let problem = match body.dry_run {
            true => None,
            false => {
                let id = format!("bulk-{batch}");
                let command = command(body.action, &caller, body.reason.clone(), id);
                app.submit(&run.run_id, command).await.err()
            }
        };
        rows.push(BulkRow {
            run_id: run.run_id,
            plan_id: run.plan_id,
            status: run.head.status,
            problem,
        });
    }
    Ok(Json(BulkAnswer {
        dry_run: body.dry_run,
        count: rows.len(),
        more,
        runs: rows,
    }))
}

fn command(
    action: BulkAction,
    caller: &Caller,
    reason: Option<String>,
    signal_id: String,
) -> Command {
    let signal = |name: &str, reason| Command::Signal {
        signal_id,
        signal: name.to_owned(),
        payload: json!({}),
        reason,
        actor: caller.actor(),
    };
    match action {
        BulkAction::Pause => signal("PAUSE", reason),
        BulkAction::Resume => signal("RESUME", reason),
        BulkAction::Retry => signal("RETRY_RUN", reason),
        BulkAction::Cancel | BulkAction::CancelAndUndo => Command::CancelRun {
            actor: caller.actor(),
            reason,
            compensate: matches!(action, BulkAction::CancelAndUndo),
        },
    }
}
