//! Reading one run: its snapshot now and at any event, its events, what it waits for, evidence, logs and artifacts.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use stepwell_engine::Error;
use stepwell_engine::read::{LogRecords, LoggedRun};
use stepwell_engine::store::{RunSummary, Store};
use stepwell_kernel::keys::TokenKey;
use stepwell_kernel::time::Time;
use stepwell_views::evidence::{EvidenceDocument, RunEvidence};
use stepwell_views::run_ext::{RunShown, UndoPreview};
use stepwell_views::why::ReasonRow;
use stepwell_views::{RunView, artifact_ref, people, snapshot as views, undo, why};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::body::Params;
use super::definition_texts::shown_net;
use super::described::{EvidenceBody, NetBody, ReasonBody, RunEvent, RunViewBody, UndoPreviewBody};
use crate::access::Caller;
use crate::app::App;
use crate::codes;
use crate::problem::ApiProblem;

/// The most events of a page.
const MAX_EVENTS: usize = 1_000;
const EVENTS: usize = 200;
/// How many commits are read at a time.
const COMMITS: usize = 64;

pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(show))
        .routes(routes!(snapshot_at))
        .routes(routes!(events))
        .routes(routes!(net))
        .routes(routes!(completion_tokens))
        .routes(routes!(explain))
        .routes(routes!(undo_preview))
        .routes(routes!(evidence_of))
        .routes(routes!(artifacts))
        .routes(routes!(artifact))
}

/// The run as the contract's snapshot, with `ext` beside it.
pub(super) async fn snapshot(
    app: &App,
    caller: &Caller,
    run: &str,
) -> Result<RunShown, ApiProblem> {
    let view = app.run_view(caller, run).await?;
    let unserved = app.workers.attendance.unserved(app, &view).await?;
    let now = app.now();
    app.ask(move |store| views::shown(store, &view, now, &unserved))
        .await
}

/// Show a run: the snapshot of the contract, and `ext` with the words of its language, its steps, what it waits for and
/// who answered.
#[utoipa::path(get, path = "/api/v1/runs/{run}", tag = "runs", security(("token" = ["view"])),
    params(("run" = String, Path, description = "The id of the run.")),
    responses((status = 200, body = RunViewBody), (status = 403, body = ApiProblem), (status = 404, body = ApiProblem),
        (status = 503, body = ApiProblem)))]
async fn show(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(run): Path<String>,
) -> Result<Json<RunShown>, ApiProblem> {
    Ok(Json(snapshot(&app, &caller, &run).await?))
}

/// Show a run as it was after one of its events: the same as the run itself, at that moment.
#[utoipa::path(get, path = "/api/v1/runs/{run}/at/{seq}", tag = "runs", security(("token" = ["view"])),
    params(("run" = String, Path, description = "The id of the run."),
        ("seq" = u64, Path, description = "The number of the event, from 1.")),
    responses((status = 200, body = RunViewBody), (status = 400, body = ApiProblem), (status = 403, body = ApiProblem),
        (status = 404, body = ApiProblem), (status = 503, body = ApiProblem)))]
async fn snapshot_at(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path((run, seq)): Path<(String, String)>,
) -> Result<Json<RunShown>, ApiProblem> {
    let seq: u64 = seq
        .parse()
        .map_err(|_| ApiProblem::bad_request("seq: a whole number is needed"))?;
    let row = app.row(&caller, &run).await?;
    if seq == 0 || seq > row.last_seq {
        return Err(ApiProblem::not_found(
            codes::EVENT_UNKNOWN,
            format!("the run has events 1 to {}", row.last_seq),
        ));
    }
    let value = app.ask(move |store| match RunView::read_at(store, &run, seq)? {
        Some(view) => views::shown_at(store, &view, seq).map(Some),
        None => Ok::<_, Error>(None),
    });
    let value = value.await?.ok_or_else(|| {
        let why = format!("the run has no event {seq}");
        ApiProblem::not_found(codes::EVENT_UNKNOWN, why)
    })?;
    Ok(Json(value))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct EventsQuery {
    /// Only events after this number: the watermark of the reader.
    #[serde(default)]
    after: u64,
    /// At most this many events; 200 if absent, 1000 at most.
    limit: Option<usize>,
}

/// A page of the log of a run.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct EventPage {
    /// The events as the contract has them, with `ext`, `prevHash` and `hash` beside.
    #[schema(value_type = Vec<RunEvent>)]
    events: Vec<Value>,
    /// The number of the last event of the run: the page is complete when its last event has this number.
    last_seq: u64,
    /// The hash of the compiled definition, which `net` gives.
    plan_hash: String,
    /// The status of the contract.
    status: String,
    /// When the run ended; absent while it is open.
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_at: Option<String>,
    /// Whether a process works on the run now.
    has_owner: bool,
}

/// Read the log of a run from a watermark on. Sequence numbers rise; a reader must tolerate gaps.
#[utoipa::path(get, path = "/api/v1/runs/{run}/events", tag = "runs", security(("token" = ["view"])),
    params(("run" = String, Path, description = "The id of the run."), EventsQuery),
    responses((status = 200, body = EventPage), (status = 400, body = ApiProblem), (status = 403, body = ApiProblem),
        (status = 404, body = ApiProblem), (status = 503, body = ApiProblem)))]
async fn events(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(run): Path<String>,
    Params(query): Params<EventsQuery>,
) -> Result<Json<EventPage>, ApiProblem> {
    let limit = query.limit.unwrap_or(EVENTS);
    if !(1..=MAX_EVENTS).contains(&limit) {
        return Err(ApiProblem::bad_request(format!(
            "limit: a number from 1 to {MAX_EVENTS} is needed"
        )));
    }
    let row = app.row(&caller, &run).await?;
    let page = app.ask(move |store| page(store, &row, query.after, limit));
    Ok(Json(page.await?))
}

/// Reads the commits that the page has, and no others.
fn page(store: &dyn Store, row: &RunSummary, after: u64, limit: usize) -> Result<EventPage, Error> {
    // The head is read before the log: an end that it knows is in the log.
    let logged = LoggedRun::numbered(store, row.run)?;
    let mut log = LogRecords::after(store, row, after)?;
    let mut last_seq = row.last_seq;
    let mut events = Vec::new();
    while events.len() < limit {
        let records = log.unread(store, COMMITS)?;
        if records.is_empty() {
            break;
        }
        for record in records {
            let seq = record.contract["runSeq"].as_u64().unwrap_or_default();
            last_seq = last_seq.max(seq);
            if seq > after {
                events.push(views::event(record));
            }
        }
    }
    events.truncate(limit);
    Ok(EventPage {
        events,
        last_seq,
        plan_hash: logged.plan.hash().to_owned(),
        status: logged.head.status,
        ended_at: logged.head.ended_at.map(Time::to_rfc3339),
        has_owner: logged.head.session.is_some(),
    })
}

/// The compiled definition of a run: the net that its events speak of. Secrets that are written out in it are masked.
#[utoipa::path(get, path = "/api/v1/runs/{run}/net", tag = "runs", security(("token" = ["view"])),
    params(("run" = String, Path, description = "The id of the run.")),
    responses((status = 200, body = NetBody), (status = 403, body = ApiProblem), (status = 404, body = ApiProblem),
        (status = 503, body = ApiProblem)))]
async fn net(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(run): Path<String>,
) -> Result<Json<Value>, ApiProblem> {
    let no = app.find(&caller, &run).await?;
    let plan = app
        .ask(move |store| Ok::<_, Error>(LoggedRun::numbered(store, no)?.plan))
        .await?;
    Ok(Json(shown_net(&plan)?))
}

/// The completion tokens of the steps of a run that wait for a person, by step. A token allows its holder to answer.
#[utoipa::path(get, path = "/api/v1/runs/{run}/completion-tokens", tag = "actions", security(("token" = ["approve"])),
    params(("run" = String, Path, description = "The id of the run.")),
    responses((status = 200, body = BTreeMap<String, String>), (status = 403, body = ApiProblem), (status = 404, body = ApiProblem),
        (status = 503, body = ApiProblem)))]
async fn completion_tokens(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(run): Path<String>,
) -> Result<Json<BTreeMap<String, String>>, ApiProblem> {
    let view = app.run_view(&caller, &run).await?;
    let key = TokenKey(app.ask(|store| store.secret()).await?);
    Ok(Json(people::tokens(&view, &key).into_iter().collect()))
}

/// What an open run waits for.
#[derive(Debug, Serialize, ToSchema)]
struct Explanation {
    /// Whether the run has ended: then nothing can move it.
    ended: bool,
    /// Everything that can make the run move, one sentence each (`text`). A reason of the kind `task` names the `queue` and
    /// the `operation` that a worker must serve; it has `unserved: true` if no server of the store does this work and no
    /// worker asked for it lately.
    #[schema(value_type = Vec<ReasonBody>)]
    reasons: Vec<ReasonRow>,
}

/// Explain what an open run waits for: everything that can make it move, in sentences.
#[utoipa::path(get, path = "/api/v1/runs/{run}/explain", tag = "runs", security(("token" = ["view"])),
    params(("run" = String, Path, description = "The id of the run.")),
    responses((status = 200, body = Explanation), (status = 403, body = ApiProblem), (status = 404, body = ApiProblem),
        (status = 503, body = ApiProblem)))]
async fn explain(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(run): Path<String>,
) -> Result<Json<Explanation>, ApiProblem> {
    let view = app.run_view(&caller, &run).await?;
    let ended = view.state.phase().is_ended();
    let reasons = match ended {
        true => Vec::new(),
        false => {
            let unserved = app.workers.attendance.unserved(&app, &view).await?;
            why::reasons(&view, app.now(), &unserved)
        }
    };
    Ok(Json(Explanation {
        ended,
        reasons: reasons.iter().map(why::Reason::row).collect(),
    }))
}

/// Preview a cancel with compensation: what would be undone, in this order, what cannot be undone, and the work in flight
/// whose end decides whether it is.
#[utoipa::path(get, path = "/api/v1/runs/{run}/undo-preview", tag = "runs", security(("token" = ["view"])),
    params(("run" = String, Path, description = "The id of the run.")),
    responses((status = 200, body = UndoPreviewBody), (status = 403, body = ApiProblem), (status = 404, body = ApiProblem),
        (status = 503, body = ApiProblem)))]
async fn undo_preview(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(run): Path<String>,
) -> Result<Json<UndoPreview>, ApiProblem> {
    let view = app.run_view(&caller, &run).await?;
    Ok(Json(undo::preview(&view)))
}

/// The evidence of a run for an auditor: every attempt, every end and every decision of a person, as a chain of hashes.
#[utoipa::path(get, path = "/api/v1/runs/{run}/evidence", tag = "runs", security(("token" = ["view"])),
    params(("run" = String, Path, description = "The id of the run.")),
    responses((status = 200, body = EvidenceBody), (status = 403, body = ApiProblem), (status = 404, body = ApiProblem),
        (status = 503, body = ApiProblem)))]
async fn evidence_of(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(run): Path<String>,
) -> Result<Json<EvidenceDocument>, ApiProblem> {
    let view = app.run_view(&caller, &run).await?;
    Ok(Json(RunEvidence::of(&view).document(&view)))
}

/// An artifact of a run.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct ArtifactRow {
    uri: String,
    size_bytes: u64,
    modified: String,
}

/// List the artifacts of a run: large results of its steps.
#[utoipa::path(get, path = "/api/v1/runs/{run}/artifacts", tag = "runs", security(("token" = ["view"])),
    params(("run" = String, Path, description = "The id of the run.")),
    responses((status = 200, body = Vec<ArtifactRow>), (status = 403, body = ApiProblem), (status = 404, body = ApiProblem),
        (status = 503, body = ApiProblem)))]
async fn artifacts(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(run): Path<String>,
) -> Result<Json<Vec<ArtifactRow>>, ApiProblem> {
    app.find(&caller, &run).await?;
    let found = app.artifacts.list(&run).await;
    let found = found.map_err(|error| ApiProblem::internal(&error))?;
    let row = |it: stepwell_worker::artifacts::Stored| {
        let at = it.modified.duration_since(std::time::UNIX_EPOCH);
        let at = i64::try_from(at.unwrap_or_default().as_millis()).unwrap_or(i64::MAX);
        ArtifactRow {
            uri: it.uri,
            size_bytes: it.bytes,
            modified: Time(at).to_rfc3339(),
        }
    };
    Ok(Json(found.into_iter().map(row).collect()))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct ArtifactQuery {
    /// The address of the artifact, as the list has it.
    uri: String,
}

/// Download an artifact that the log of the run refers to. Its hash is checked.
#[utoipa::path(get, path = "/api/v1/runs/{run}/artifact", tag = "runs", security(("token" = ["view"])),
    params(("run" = String, Path, description = "The id of the run."), ArtifactQuery),
    responses((status = 200, content_type = "application/octet-stream", body = Vec<u8>), (status = 400, body = ApiProblem),
        (status = 403, body = ApiProblem), (status = 404, body = ApiProblem), (status = 413, body = ApiProblem),
        (status = 500, body = ApiProblem), (status = 503, body = ApiProblem)))]
async fn artifact(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(run): Path<String>,
    Params(query): Params<ArtifactQuery>,
) -> Result<Response, ApiProblem> {
    let view = app.run_view(&caller, &run).await?;
    let Some(reference) = artifact_ref(&view, &query.uri) else {
        return Err(ApiProblem::not_found(
            codes::ARTIFACT_UNKNOWN,
            "the log of the run refers to no artifact with this address",
        ));
    };
    let bytes = app.artifacts.get(&reference).await?;
    // Never shown by a browser: what a step has written is not a page of this server.
    let headers = [
        (
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/octet-stream"),
        ),
        (
            header::CONTENT_DISPOSITION,
            HeaderValue::from_static("attachment"),
        ),
    ];
    Ok((headers, bytes).into_response())
}
