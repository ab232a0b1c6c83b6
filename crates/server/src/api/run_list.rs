//! Lists and counts of runs.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use stepwell_dialects::document;
use stepwell_engine::Error;
use stepwell_engine::store::{Mark, RunFilter, RunSummary, Store};
use stepwell_kernel::time::Time;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::body::Params;
use super::cursor::{Before, next_page};
use super::run_filter::{LOOK_AT, RunQuery};
use crate::access::Caller;
use crate::app::App;
use crate::feed::FeedRow;
use crate::problem::ApiProblem;

/// The most runs of a page.
const MAX_PAGE: usize = 500;
const PAGE: usize = 50;
/// How many runs a count looks at for conditions that no index has.
const COUNTED: usize = 2_000;

pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(counts))
}

/// What a list says of a run whose log is damaged.
const DAMAGED: &str = "DAMAGED";

/// The state of a run in the words of its language.
fn listed_word(run: &RunSummary) -> &str {
    let head = &run.head;
    match document::dialect_named(&run.language) {
        Some(dialect) => document::listed_word(dialect, &head.status, head.substatus.as_deref()),
        None => &head.status,
    }
}

/// The header with the watermark of a list.
const WATERMARK: &str = "stepwell-watermark";
type WithWatermark<T> = ([(&'static str, String); 1], Json<T>);

/// A page of runs.
#[derive(Debug, Serialize, ToSchema)]
struct RunPage {
    runs: Vec<RunRow>,
    /// The `before` of the next page; absent on the last page. A page may have fewer runs than asked for, or none, and be
    /// followed by others: conditions that no index has are looked for in 2,000 runs at a time. So may a page with `state`.
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
    /// The state in the words of the language, as far as status and substatus tell it.
    word: String,
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
    /// A row of the stream of all runs.
    pub(super) fn of(row: &FeedRow) -> RunRow {
        RunRow::new(row.run.clone(), row.is_damaged)
    }

    pub(super) fn created_at(&self) -> &str {
        &self.created_at
    }

    pub(super) fn new(run: RunSummary, damaged: bool) -> RunRow {
        let word = match damaged {
            true => DAMAGED,
            false => listed_word(&run),
        };
        RunRow {
            word: word.to_owned(),
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
                DAMAGED.to_owned()
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
) -> Result<WithWatermark<RunPage>, ApiProblem> {
    let limit = query.limit.unwrap_or(PAGE);
    if !(1..=MAX_PAGE).contains(&limit) {
        return Err(ApiProblem::bad_request(format!(
            "limit: a number from 1 to {MAX_PAGE} is needed"
        )));
    }
    let before = query.before.as_deref().map(|it| Before::read(&app, it));
    let before = before.transpose()?;
    let wanted = query.state.clone();
    let Some(filter) = query.filter(&caller)? else {
        let mark = app.ask(|store| store.mark()).await?;
        let none = RunPage {
            runs: Vec::new(),
            next: None,
        };
        return Ok(([(WATERMARK, sealed(&app, &mark)?)], Json(none)));
    };
    let (mark, found, damaged) = app
        .ask(move |store| {
            let before = before.map(|it| it.find(&caller, store)).transpose()?;
            let filter = RunFilter {
                before,
                // One row more than shown tells whether there is another page.
                limit: limit + 1,
                look_at: Some(LOOK_AT),
                ..filter
            };
            // Before the list is read: what changes meanwhile is told once more.
            let mark = store.mark()?;
            Ok::<_, Error>((mark, store.search(&filter)?, store.quarantined()?))
        })
        .await?;
    let mut runs = found.runs;
    let more = runs.len() > limit;
    runs.truncate(limit);
    let last = runs.last().filter(|_| more).map(|it| it.run);
    let next = last.or(found.searched_to).map(|it| next_page(&app, it));
    if let Some(wanted) = wanted {
        runs.retain(|run| listed_word(run) == wanted);
    }
    let row = |run: RunSummary| {
        let is_damaged = damaged.iter().any(|(it, _)| *it == run.run);
        RunRow::new(run, is_damaged)
    };
    let page = RunPage {
        runs: runs.into_iter().map(row).collect(),
        next: next.transpose()?,
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
    /// If a language is asked for: the states that runs have, in the words of the language, each with the number of runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    words: Option<BTreeMap<String, u64>>,
    /// There may be more runs than were counted. Runs of a tenant and of a status are counted up to 100,000 for each
    /// status; with other conditions the newest 2,000 runs are looked at that an index finds.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    partial: bool,
}

/// Count runs by status, and those of one language by the words of the language too.
#[utoipa::path(get, path = "/api/v1/runs/counts", tag = "runs", security(("token" = ["view"])),
    params(RunQuery),
    responses((status = 200, body = RunCounts, headers(
            ("stepwell-watermark" = String, description = "Where the stream of all runs goes on from."))), (status = 400, body = ApiProblem), (status = 403, body = ApiProblem),
        (status = 503, body = ApiProblem)))]
async fn counts(
    State(app): State<Arc<App>>,
    caller: Caller,
    Params(query): Params<RunQuery>,
) -> Result<WithWatermark<RunCounts>, ApiProblem> {
    let filter = query.filter(&caller)?.map(|filter| RunFilter {
        look_at: Some(COUNTED),
        ..filter
    });
    let (mark, counted, words) = app
        .ask(move |store| {
            let mark = store.mark()?;
            let words = filter.as_ref().map(|filter| words(store, filter));
            let counted = filter.map(|filter| store.count_runs(&filter)).transpose()?;
            let words = words.transpose()?.flatten();
            Ok::<_, Error>((mark, counted.unwrap_or_default(), words))
        })
        .await?;
    let (words, is_cut) = words.unzip();
    let counts = RunCounts {
        total: counted.by_status.iter().map(|(_, count)| count).sum(),
        counts: counted.by_status.into_iter().collect(),
        words,
        partial: counted.is_partial || is_cut.unwrap_or_default(),
    };
    Ok(([(WATERMARK, sealed(&app, &mark)?)], Json(counts)))
}

/// The words of a language, each with the number of runs, and whether there may be more.
type CountedWords = (BTreeMap<String, u64>, bool);

/// How many runs have each word of their language, and whether there may be more; none if no language is asked for. As the
/// statuses of one language have no index, as many runs are looked at for both.
fn words(store: &dyn Store, filter: &RunFilter) -> Result<Option<CountedWords>, Error> {
    if filter.language.is_none() {
        return Ok(None);
    }
    let found = store.search(&RunFilter {
        limit: COUNTED,
        ..filter.clone()
    })?;
    let mut words = BTreeMap::new();
    for run in &found.runs {
        *words.entry(listed_word(run).to_owned()).or_default() += 1;
    }
    let is_cut = found.searched_to.is_some() || found.runs.len() >= COUNTED;
    Ok(Some((words, is_cut)))
}
