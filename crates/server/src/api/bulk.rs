//! The same action for many runs: first what would be hit, then the action, run by run.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::json;
use stepwell_dialects::document::is_undoing;
use stepwell_engine::Error;
use stepwell_engine::store::{DocumentFilter, NewDocument, RunFilter, RunNo, RunSummary, Store};
use stepwell_kernel::command::{Command, Env};
use stepwell_kernel::keys::{TokenKey, sha256_hex};
use stepwell_kernel::rejection::Code;
use stepwell_kernel::state::Status;
use stepwell_kernel::time::Time;
use stepwell_views::RunView;
use stepwell_views::allowed::refusal;
use stepwell_views::run_ext::UndoPreview;
use stepwell_views::stuck::open_steps;
use stepwell_views::undo;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::body::Body;
use super::cursor::Before;
use super::run_filter::RunQuery;
use super::runs::of_own_project;
use crate::access::{Caller, Lost};
use crate::app::App;
use crate::problem::ApiProblem;

/// The most runs of one request.
const MAX_RUNS: usize = 1_000;
/// The most steps of a run that are named.
const NAMED_STEPS: usize = 5;
/// How long a dry run tries runs: each is read from its log.
const TRY_OUT: Duration = Duration::from_secs(5);

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
    /// Retry the steps that have failed and wait for an operator.
    RetryHeldSteps,
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
    /// Only say what would be hit, and which runs would refuse and why. True if absent: a request without it changes nothing.
    #[serde(default = "yes")]
    dry_run: bool,
    /// Cancel also runs that are undoing their steps: the rest of their undo is dropped. Without it they are left out.
    #[serde(default)]
    abandon_undo: bool,
    /// The reason, which the log of each run keeps.
    #[serde(default)]
    reason: Option<String>,
    /// An id that the caller chooses: a repetition of the request within a day is for the runs of the first one, and counts
    /// once for each run.
    #[serde(default)]
    request_id: Option<String>,
}

fn yes() -> bool {
    true
}

/// The documents of requests with an id.
const PINNED: &str = "bulk";
/// How long they are kept.
const PINNED_MS: u64 = 86_400_000;

impl BulkRequest {
    /// What is asked for, as a text that is equal for equal requests.
    fn asked(&self) -> String {
        let asked = format!(
            "{:?} {:?} {:?} {} {}",
            self.action, self.filter, self.runs, self.all, self.abandon_undo
        );
        sha256_hex(&asked)
    }
}

/// What came of a bulk action.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct BulkAnswer {
    dry_run: bool,
    /// How many runs are meant.
    count: usize,
    /// How many of them refuse, or would refuse. Each says why.
    refused: usize,
    /// How many of them are left out, because they are undoing their steps.
    undoing: usize,
    /// Whether more runs fit than the limit allows.
    more: bool,
    runs: Vec<BulkRow>,
}

/// The completed steps of a run that a cancel would, or could, undo.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct BulkUndo {
    /// How many steps a cancel with undo undoes; a cancel without it leaves them as they are.
    count: usize,
    /// The first of them, in the order of the undo.
    steps: Vec<String>,
    /// How many completed steps have an effect outside of the run and no undo.
    cannot_undo: usize,
}

impl BulkUndo {
    fn of(view: &RunView) -> BulkUndo {
        let UndoPreview {
            mut undo,
            cannot_undo,
            ..
        } = undo::preview(view);
        let count = undo.len();
        undo.truncate(NAMED_STEPS);
        BulkUndo {
            count,
            steps: undo,
            cannot_undo: cannot_undo.len(),
        }
    }
}

/// What becomes of the undo of a run that is undoing its steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum RestOfUndo {
    /// The run is left out, and goes on undoing.
    Kept,
    /// The run is cancelled: what is not undone yet stays as it is.
    Dropped,
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct BulkRow {
    run_id: String,
    plan_id: String,
    status: String,
    /// For a cancel of a run that is undoing its steps: what becomes of the rest of the undo.
    #[serde(skip_serializing_if = "Option::is_none")]
    undo: Option<RestOfUndo>,
    /// In a dry run of a cancel: the completed steps that it would, or could, undo.
    #[serde(skip_serializing_if = "Option::is_none")]
    would_undo: Option<BulkUndo>,
    /// Why the action was refused for this run, or would be in a dry run; absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<ApiProblem>,
    /// A dry run did not try this run, because the runs before took too long.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    untried: bool,
}

/// Do the same to many runs: pause, resume, cancel or retry all runs that fit a filter, or retry their steps that are held.
///
/// A cancel leaves out runs that are undoing their steps, unless `abandonUndo` is true.
#[utoipa::path(post, path = "/api/v1/runs/bulk", tag = "actions", security(("token" = ["operate"])),
    request_body = BulkRequest,
    responses((status = 200, body = BulkAnswer), (status = 400, body = ApiProblem), (status = 403, body = ApiProblem),
        (status = 404, body = ApiProblem), (status = 409, body = ApiProblem),
        (status = 413, body = ApiProblem), (status = 415, body = ApiProblem), (status = 503, body = ApiProblem)))]
async fn bulk(
    State(app): State<Arc<App>>,
    caller: Caller,
    lost: Lost,
    Body(body): Body<BulkRequest>,
) -> Result<Json<BulkAnswer>, ApiProblem> {
    let asked = body.asked();
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
    let cancels = matches!(body.action, BulkAction::Cancel | BulkAction::CancelAndUndo);
    if body.abandon_undo && !matches!(body.action, BulkAction::Cancel) {
        return Err(ApiProblem::bad_request(
            "abandonUndo: only for the action `cancel`, which drops the rest of an undo",
        ));
    }
    let before = body.filter.before.as_deref();
    let before = before.map(|it| Before::read(&app, it)).transpose()?;
    // A run that is named and has ended is not left out without a word: it refuses.
    let query = match ended || !body.runs.is_empty() {
        true => body.filter,
        false => body.filter.only_open(),
    };
    let Some(filter) = query.filter(&caller)? else {
        return Ok(Json(BulkAnswer {
            dry_run: body.dry_run,
            count: 0,
            refused: 0,
            undoing: 0,
            more: false,
            runs: Vec::new(),
        }));
    };
    let (wanted, finder) = (body.runs, caller.clone());
    let mut runs = app
        .ask(move |store| {
            let filter = RunFilter {
                before: before.map(|it| it.find(&finder, store)).transpose()?,
                limit: limit + 1,
                ..filter
            };
            if wanted.is_empty() {
                return store.list(&filter).map_err(Error::from);
            }
            // Each is looked up by itself: a few names must not cost a look at all runs of the store.
            let mut numbers = BTreeSet::new();
            for run in &wanted {
                numbers.extend(store.find(run)?);
            }
            let newest_first: Vec<RunNo> = numbers.into_iter().rev().collect();
            let mut runs = store.summaries(&newest_first)?;
            runs.retain(|run| filter.fits(run));
            Ok::<_, Error>(runs)
        })
        .await?;
    let more = runs.len() > limit;
    runs.truncate(limit);
    if let (Some(request_id), false) = (body.request_id.clone(), body.dry_run) {
        let (by, now) = (caller.clone(), app.now());
        runs = app
            .ask(move |store| pinned(store, &by, &request_id, &asked, runs, now))
            .await?;
    }
    let batch = body
        .request_id
        .unwrap_or_else(|| uuid::Uuid::now_v7().to_string());
    let orders = Orders {
        action: body.action,
        caller: caller.clone(),
        reason: body.reason,
        signal_id: format!("bulk-{batch}"),
        keep_undo: !body.abandon_undo,
    };
    let mut tried = match body.dry_run {
        true => try_out(&app, &runs, &orders).await?,
        false => Vec::new(),
    }
    .into_iter();
    let mut rows = Vec::new();
    for run in runs {
        let (mut untried, mut would_undo) = (false, None);
        // Who loses the right in the middle does nothing more to the runs that are left.
        let problem = match (body.dry_run, lost.check()) {
            (true, _) => match tried.next() {
                Some(tried) => {
                    would_undo = tried.would_undo;
                    tried.problem
                }
                None => {
                    untried = true;
                    None
                }
            },
            (false, Err(problem)) => Some(problem),
            (false, Ok(())) => match orders.give(&app, &run.run_id).await {
                Ok(()) => None,
                Err(problem) => Some(of_own_project(&app, &caller, problem).await),
            },
        };
        let is_kept = |it: &ApiProblem| it.code == Code::RunUndoing.name();
        let undo = match (&problem, is_undoing(run.head.substatus.as_deref())) {
            (Some(problem), _) if is_kept(problem) => Some(RestOfUndo::Kept),
            (None, true) if body.abandon_undo => Some(RestOfUndo::Dropped),
            // Of a run that was not tried only the head is known.
            (None, true) if cancels && untried => Some(RestOfUndo::Kept),
            (None | Some(_), _) => None,
        };
        rows.push(BulkRow {
            run_id: run.run_id,
            plan_id: run.plan_id,
            status: run.head.status,
            undo,
            would_undo,
            problem,
            untried,
        });
    }
    Ok(Json(BulkAnswer {
        dry_run: body.dry_run,
        count: rows.len(),
        refused: rows.iter().filter(|row| row.problem.is_some()).count(),
        undoing: rows
            .iter()
            .filter(|row| row.undo == Some(RestOfUndo::Kept))
            .count(),
        more,
        runs: rows,
    }))
}

/// What an action would do to a run.
struct TriedRun {
    problem: Option<ApiProblem>,
    would_undo: Option<BulkUndo>,
}

/// What each run would do; shorter than the list of runs if that takes too long. Nothing is changed.
async fn try_out(
    app: &App,
    runs: &[RunSummary],
    orders: &Orders,
) -> Result<Vec<TriedRun>, ApiProblem> {
    let ids: Vec<String> = runs.iter().map(|run| run.run_id.clone()).collect();
    let (orders, now) = (orders.clone(), app.now());
    app.ask(move |store| {
        let key = TokenKey(store.secret()?);
        let env = Env { now, key };
        let began = Instant::now();
        let mut tried = Vec::new();
        for id in &ids {
            if began.elapsed() > TRY_OUT {
                break;
            }
            tried.push(match RunView::read(store, id) {
                Ok(view) => orders.try_on(&view, &env),
                Err(error) => TriedRun {
                    problem: Some(error.into()),
                    would_undo: None,
                },
            });
        }
        Ok::<_, ApiProblem>(tried)
    })
    .await
}

/// The runs that the first request with an id was for: a repetition, after a lost connection for example, must not reach for
/// the next runs that fit by now.
fn pinned(
    store: &dyn Store,
    caller: &Caller,
    request_id: &str,
    asked: &str,
    runs: Vec<RunSummary>,
    now: Time,
) -> Result<Vec<RunSummary>, ApiProblem> {
    if !(1..=200).contains(&request_id.len()) || request_id.chars().any(char::is_control) {
        return Err(ApiProblem::bad_request(
            "requestId: 1 to 200 characters without control characters are needed",
        ));
    }
    forget_old(store, now)?;
    let tenant = caller.context().tenant_id;
    let pin = PinnedRuns {
        asked: asked.to_owned(),
        runs: runs.iter().map(|it| it.run_id.clone()).collect(),
    };
    let document = NewDocument {
        kind: PINNED.to_owned(),
        tenant: tenant.clone(),
        // Ids of different callers have nothing to do with each other.
        key: format!("{}|{request_id}", caller.name),
        body: serde_json::to_string(&pin).map_err(|error| ApiProblem::internal(&error))?,
    };
    if store.put_document(&document, None, now)?.is_some() {
        return Ok(runs);
    }
    let Some(known) = store.document(PINNED, &tenant, &document.key)? else {
        // Forgotten in this moment.
        return Ok(runs);
    };
    let first: PinnedRuns =
        serde_json::from_str(&known.body).map_err(|error| ApiProblem::internal(&error))?;
    if first.asked != asked {
        return Err(ApiProblem::new(
            StatusCode::CONFLICT,
            Code::RequestContradicted.name(),
            "a bulk request with this id asked for something else; use a new id",
        ));
    }
    let mut numbers = BTreeSet::new();
    for run in &first.runs {
        numbers.extend(store.find(run)?);
    }
    let newest_first: Vec<RunNo> = numbers.into_iter().rev().collect();
    let mut runs = store.summaries(&newest_first)?;
    runs.retain(|run| caller.may_see_row(run));
    Ok(runs)
}

/// Forgets requests of the day before.
fn forget_old(store: &dyn Store, now: Time) -> Result<(), ApiProblem> {
    let some = store.documents(&DocumentFilter {
        kind: PINNED.to_owned(),
        limit: 500,
        ..DocumentFilter::default()
    })?;
    for old in some
        .iter()
        .filter(|it| now.since(it.changed_at) > PINNED_MS)
    {
        store.delete_document(PINNED, &old.tenant, &old.key, old.version)?;
    }
    Ok(())
}

/// What the first request with an id was for.
#[derive(Debug, Deserialize, Serialize)]
struct PinnedRuns {
    /// The request in other words: what differs is another request.
    asked: String,
    runs: Vec<String>,
}

/// What is asked of each run.
#[derive(Clone, Debug)]
struct Orders {
    action: BulkAction,
    caller: Caller,
    reason: Option<String>,
    signal_id: String,
    keep_undo: bool,
}

impl Orders {
    /// The commands for a run: one, or one for each step that is held.
    fn of_held(&self, view: &RunView) -> Result<Vec<Command>, ApiProblem> {
        let open = open_steps(&view.state).into_iter();
        let held = open.filter(|(_, step)| step.status() == Status::Held);
        let commands: Vec<Command> = held
            .map(|(at, _)| {
                let step = view.plan.step_id(at);
                let id = format!("{}-{step}", self.signal_id);
                self.signal(id, "RETRY_STEP", json!({ "stepId": step }))
            })
            .collect();
        match commands.is_empty() {
            true => Err(ApiProblem::new(
                StatusCode::CONFLICT,
                Code::StepNotTerminal.name(),
                "no step of the run has failed and is held",
            )),
            false => Ok(commands),
        }
    }

    /// What a run would do.
    fn try_on(&self, view: &RunView, env: &Env) -> TriedRun {
        let problem = self.refused(view, env);
        let cancels = matches!(self.action, BulkAction::Cancel | BulkAction::CancelAndUndo);
        let would_undo = (cancels && problem.is_none()).then(|| BulkUndo::of(view));
        TriedRun {
            problem,
            would_undo,
        }
    }

    /// Why a run would refuse; none if it would not.
    fn refused(&self, view: &RunView, env: &Env) -> Option<ApiProblem> {
        let commands = match self.action {
            BulkAction::RetryHeldSteps => match self.of_held(view) {
                Ok(commands) => commands,
                Err(problem) => return Some(problem),
            },
            BulkAction::Pause
            | BulkAction::Resume
            | BulkAction::Cancel
            | BulkAction::CancelAndUndo
            | BulkAction::Retry => vec![self.command()],
        };
        let mut refusals = commands.into_iter().filter_map(|it| refusal(view, it, env));
        refusals.next().map(ApiProblem::from)
    }

    /// Does it to a run.
    async fn give(&self, app: &App, run: &str) -> Result<(), ApiProblem> {
        let commands = match self.action {
            BulkAction::RetryHeldSteps => {
                let (orders, run) = (self.clone(), run.to_owned());
                app.ask(move |store| orders.of_held(&RunView::read(store, &run)?))
                    .await?
            }
            BulkAction::Pause
            | BulkAction::Resume
            | BulkAction::Cancel
            | BulkAction::CancelAndUndo
            | BulkAction::Retry => vec![self.command()],
        };
        for command in commands {
            app.submit(run, command).await?;
        }
        Ok(())
    }

    fn signal(&self, signal_id: String, name: &str, payload: serde_json::Value) -> Command {
        Command::Signal {
            signal_id,
            signal: name.to_owned(),
            payload,
            reason: self.reason.clone(),
            actor: self.caller.actor(),
        }
    }

    /// The command of an action that is one for every run.
    fn command(&self) -> Command {
        let signal = |name: &str| self.signal(self.signal_id.clone(), name, json!({}));
        match self.action {
            BulkAction::Pause => signal("PAUSE"),
            BulkAction::Resume => signal("RESUME"),
            BulkAction::Retry => signal("RETRY_RUN"),
            BulkAction::RetryHeldSteps => signal("RETRY_STEP"),
            BulkAction::Cancel | BulkAction::CancelAndUndo => Command::CancelRun {
                actor: self.caller.actor(),
                reason: self.reason.clone(),
                compensate: matches!(self.action, BulkAction::CancelAndUndo),
                keep_undo: self.keep_undo,
            },
        }
    }
}
