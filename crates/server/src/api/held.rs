//! Runs that are held up: a step that no worker serves, a step that has failed and waits for an operator, a run that has stalled,
//! or no free slot.
//! A list of runs marks them, so that nobody has to open each run to find out.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use stepwell_engine::Error;
use stepwell_engine::store::{RunFilter, RunNo, RunSummary, Store, TaskRow};
use stepwell_kernel::event::Body;
use stepwell_kernel::snapshot::RunStatus;
use stepwell_kernel::state::Status;
use stepwell_kernel::time::Time;
use stepwell_views::stuck::open_steps;
use stepwell_views::why::WorkName;
use stepwell_views::{RunView, phrases};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::body::Params;
use super::run_filter::{LOOK_AT, RunQuery};
use super::run_list::RunRow;
use crate::access::Caller;
use crate::app::App;
use crate::problem::ApiProblem;
use crate::workers::{OwnNote, ServedWork};

/// The most runs of an answer.
const MAX_RUNS: usize = 500;
const RUNS: usize = 200;
/// The most kinds of work that are looked at.
const MAX_KINDS: usize = 1_000;
/// The most runs whose failed steps are remembered.
const REMEMBERED: usize = 5_000;
/// The most steps of a run that are named.
const MAX_STEPS: usize = 5;

pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(held))
}

/// What a run that is held up waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum HeldFor {
    /// A worker: nobody serves the work of a step.
    Worker,
    /// An operator: a step has failed, and the definition says that a person decides what becomes of it.
    Operator,
    /// A variable: the run has stalled, because no condition lets a token go on.
    Variable,
    /// A slot: the limit of runs at a time is reached.
    Slot,
}

/// A step that holds its run up.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct HeldStep {
    step_id: String,
    /// The queue that a worker must serve, if a worker is waited for.
    #[serde(skip_serializing_if = "Option::is_none")]
    queue: Option<String>,
    /// The operation that a worker must serve, if a worker is waited for.
    #[serde(skip_serializing_if = "Option::is_none")]
    operation: Option<String>,
    /// Since when its work is offered, or when it failed.
    since: String,
}

/// A run that is held up.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct HeldRun {
    run: RunRow,
    waits_for: HeldFor,
    /// Since when it waits.
    since: String,
    /// What it waits for and what to do, as a sentence.
    says: String,
    /// The steps that hold it up, five at most.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    steps: Vec<HeldStep>,
}

/// The runs that are held up.
#[derive(Debug, Default, Serialize, ToSchema)]
struct HeldRuns {
    /// The runs, the newest one first.
    runs: Vec<HeldRun>,
    /// Whether there may be more than were looked at.
    more: bool,
}

/// List the open runs that are held up: a step that nobody serves, a step that has failed and waits for an operator, a run that has
/// stalled, or no free slot.
///
/// The conditions are those of the list of runs; `before` is not used, because there is one page. Failed steps and stalls are looked
/// for in the 500 newest runs that fit and that no server works on.
#[utoipa::path(get, path = "/api/v1/runs/held", tag = "runs", security(("token" = ["view"])),
    params(RunQuery),
    responses((status = 200, body = HeldRuns), (status = 400, body = ApiProblem), (status = 403, body = ApiProblem),
        (status = 503, body = ApiProblem)))]
async fn held(
    State(app): State<Arc<App>>,
    caller: Caller,
    Params(query): Params<RunQuery>,
) -> Result<Json<HeldRuns>, ApiProblem> {
    let limit = query.limit.unwrap_or(RUNS);
    if !(1..=MAX_RUNS).contains(&limit) {
        return Err(ApiProblem::bad_request(format!(
            "limit: a number from 1 to {MAX_RUNS} is needed"
        )));
    }
    let Some(filter) = query.only_open().filter(&caller)? else {
        return Ok(Json(HeldRuns::default()));
    };
    let own = app.workers.attendance.own(&app);
    let look = Look {
        filter,
        limit,
        now: app.now(),
        stuck: app.held_steps.clone(),
    };
    let found = app.ask(move |store| look.at(store, own));
    Ok(Json(found.await?))
}

/// Counts the runs that are held up.
pub(super) struct HeldCount {
    look: Option<Look>,
    own: OwnNote,
}

impl HeldCount {
    /// Of the runs that the caller may see; `most` of them are looked for.
    pub(super) fn of(
        app: &Arc<App>,
        caller: &Caller,
        most: usize,
    ) -> Result<HeldCount, ApiProblem> {
        let filter = RunQuery::default().only_open().filter(caller)?;
        let look = filter.map(|filter| Look {
            filter,
            limit: most,
            now: app.now(),
            stuck: app.held_steps.clone(),
        });
        let own = app.workers.attendance.own(app);
        Ok(HeldCount { look, own })
    }

    /// How many there are, and whether there may be more.
    pub(super) fn count(self, store: &dyn Store) -> Result<(usize, bool), Error> {
        let Some(look) = self.look else {
            return Ok((0, false));
        };
        let found = look.at(store, self.own)?;
        Ok((found.runs.len(), found.more))
    }
}

/// Runs with what holds them up.
type HeldSoFar = Vec<(RunSummary, WhyHeld)>;

/// Looks for runs that are held up.
struct Look {
    filter: RunFilter,
    limit: usize,
    now: Time,
    stuck: HeldSteps,
}

impl Look {
    fn at(&self, store: &dyn Store, own: OwnNote) -> Result<HeldRuns, Error> {
        let served = own.with_others(store)?;
        let (mut runs, more_tasks) = self.without_worker(store, &served)?;
        let known: BTreeSet<RunNo> = runs.iter().map(|it| it.0.run).collect();
        let (queued, more_queued) = self.without_slot(store)?;
        let (stuck, more_stuck) = self.without_operator(store)?;
        runs.extend(queued);
        runs.extend(stuck.into_iter().filter(|it| !known.contains(&it.0.run)));
        runs.sort_by_key(|it| Reverse((it.0.created_at, it.0.run)));
        let more = more_tasks || more_queued || more_stuck || runs.len() > self.limit;
        runs.truncate(self.limit);
        let damaged = store.quarantined()?;
        let row = |(run, why): (RunSummary, WhyHeld)| {
            let is_damaged = damaged.iter().any(|(it, _)| *it == run.run);
            why.row(RunRow::new(run, is_damaged))
        };
        Ok(HeldRuns {
            runs: runs.into_iter().map(row).collect(),
            more,
        })
    }

    /// Runs with steps that nobody serves, and whether there may be more.
    fn without_worker(
        &self,
        store: &dyn Store,
        served: &ServedWork,
    ) -> Result<(HeldSoFar, bool), Error> {
        let mut kinds = store.open_kinds(MAX_KINDS)?;
        kinds.retain(|(queue, operation)| !served.has_for_all(queue, operation));
        if kinds.is_empty() {
            return Ok((Vec::new(), false));
        }
        let tenant = self.filter.tenant.as_deref();
        // A run may have several.
        let most = self.limit * MAX_STEPS;
        let tasks = store.open_for(tenant, &kinds, self.now, most)?;
        let more = tasks.len() >= most;
        let mut by_run: BTreeMap<RunNo, Vec<TaskRow>> = BTreeMap::new();
        for task in tasks {
            by_run.entry(task.run).or_default().push(task);
        }
        let numbers: Vec<RunNo> = by_run.keys().rev().copied().collect();
        let mut found = Vec::new();
        for run in store.summaries(&numbers)? {
            // Work of a paused run waits for the pause to end.
            if run.head.status != RunStatus::Running.word() || !self.filter.fits(&run) {
                continue;
            }
            let mut tasks = by_run.remove(&run.run).unwrap_or_default();
            tasks.retain(|it| !served.has(&run.tenant, &work_of(it)));
            if !tasks.is_empty() {
                found.push((run, WhyHeld::Unserved(tasks)));
            }
        }
        Ok((found, more))
    }

    /// Runs that wait for an operator, because a step has failed or the run has stalled, and whether there may be more.
    fn without_operator(&self, store: &dyn Store) -> Result<(HeldSoFar, bool), Error> {
        let running = RunStatus::Running.word().to_owned();
        if !self.filter.statuses.contains(&running) {
            return Ok((Vec::new(), false));
        }
        let found = store.search(&RunFilter {
            statuses: vec![running],
            limit: MAX_RUNS,
            look_at: Some(LOOK_AT),
            ..self.filter.clone()
        })?;
        let more = found.runs.len() >= MAX_RUNS || found.searched_to.is_some();
        let mut held = Vec::new();
        for run in found.runs {
            // A run that a server works on goes on.
            if run.head.session.is_some() {
                continue;
            }
            let found = self.stuck.of(store, &run);
            if !found.failed.is_empty() {
                held.push((run, WhyHeld::Failed(found.failed)));
            } else if let Some(stall) = found.stall {
                held.push((run, WhyHeld::Stalled(stall)));
            }
        }
        Ok((held, more))
    }

    /// Runs that wait for a slot, and whether there may be more.
    fn without_slot(&self, store: &dyn Store) -> Result<(HeldSoFar, bool), Error> {
        let not_started = [RunStatus::Pending, RunStatus::Approved];
        let words = not_started.iter().map(|it| it.word().to_owned());
        let wanted: BTreeSet<&String> = self.filter.statuses.iter().collect();
        let statuses: Vec<String> = words.filter(|it| wanted.contains(it)).collect();
        if statuses.is_empty() {
            return Ok((Vec::new(), false));
        }
        let found = store.search(&RunFilter {
            statuses,
            limit: MAX_RUNS,
            look_at: Some(LOOK_AT),
            ..self.filter.clone()
        })?;
        let more = found.runs.len() >= MAX_RUNS || found.searched_to.is_some();
        let waits = |it: &RunSummary| {
            it.head.queued && it.head.wake_at.is_none_or(|start| start <= self.now)
        };
        let runs = found.runs.into_iter().filter(waits);
        Ok((runs.map(|it| (it, WhyHeld::Queued)).collect(), more))
    }
}

/// What waits for an operator, by run: failed steps, and stalls. They follow from the log alone, so a log is read once for each length
/// that it has. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct HeldSteps(Arc<Mutex<StepsByRun>>);

/// The number of the last event that was read, and what was held then.
type StepsByRun = HashMap<RunNo, (u64, Stuck)>;

/// What of a run waits for an operator.
#[derive(Clone, Debug, Default)]
struct Stuck {
    failed: Vec<FailedStep>,
    stall: Option<Stall>,
}

/// A run in which nothing can move.
#[derive(Clone, Debug)]
struct Stall {
    since: Time,
    /// The tokens and joins that cannot move, in words.
    stuck: Vec<String>,
}

/// A step that has failed and waits for an operator.
#[derive(Clone, Debug)]
struct FailedStep {
    step_id: String,
    since: Time,
    error: Option<String>,
}

impl HeldSteps {
    fn of(&self, store: &dyn Store, run: &RunSummary) -> Stuck {
        let known = self.lock().get(&run.run).cloned();
        if let Some((_, found)) = known.filter(|(seq, _)| *seq == run.last_seq) {
            return found;
        }
        // A run that cannot be read is told elsewhere.
        let Ok(view) = RunView::read(store, &run.run_id) else {
            return Stuck::default();
        };
        let open = open_steps(&view.state).into_iter();
        let held = open.filter(|(_, step)| step.status() == Status::Held);
        let failed = held
            .map(|(at, step)| {
                let mut events = view.events.iter().rev();
                let last = events.find(|event| event.body.step() == Some(at));
                FailedStep {
                    step_id: view.plan.step_id(at),
                    since: last.map_or(run.created_at, |event| event.at),
                    error: step.error().map(phrases::error),
                }
            })
            .collect();
        let stall = view.state.stalled().map(|stuck| {
            let mut events = view.events.iter().rev();
            let last = events.find(|event| matches!(event.body, Body::RunStalled { .. }));
            Stall {
                since: last.map_or(run.created_at, |event| event.at),
                stuck: stuck.to_vec(),
            }
        });
        let found = Stuck { failed, stall };
        let mut all = self.lock();
        if all.len() >= REMEMBERED {
            all.clear();
        }
        all.insert(run.run, (run.last_seq, found.clone()));
        found
    }

    fn lock(&self) -> MutexGuard<'_, StepsByRun> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why a run is held up.
enum WhyHeld {
    Unserved(Vec<TaskRow>),
    Failed(Vec<FailedStep>),
    Stalled(Stall),
    Queued,
}

impl WhyHeld {
    fn row(self, run: RunRow) -> HeldRun {
        match self {
            WhyHeld::Queued => HeldRun {
                since: run.created_at().to_owned(),
                run,
                waits_for: HeldFor::Slot,
                says: "waits for a free slot: as many runs are open as the limit allows".to_owned(),
                steps: Vec::new(),
            },
            WhyHeld::Stalled(stall) => HeldRun {
                since: stall.since.to_rfc3339(),
                run,
                waits_for: HeldFor::Variable,
                says: format!(
                    "stalled: {}; set a variable that lets it go on, or cancel the run",
                    stall.stuck.join("; ")
                ),
                steps: Vec::new(),
            },
            WhyHeld::Failed(steps) => {
                let what = |it: &FailedStep| match &it.error {
                    Some(error) => format!("step `{}` failed ({error})", it.step_id),
                    None => format!("step `{}` failed", it.step_id),
                };
                let first = steps.first();
                HeldRun {
                    since: first.map_or_else(String::new, |it| it.since.to_rfc3339()),
                    run,
                    waits_for: HeldFor::Operator,
                    says: format!(
                        "{} and waits for an operator: retry the step or skip it",
                        first.map(what).unwrap_or_default()
                    ),
                    steps: steps.into_iter().take(MAX_STEPS).map(failed).collect(),
                }
            }
            WhyHeld::Unserved(mut tasks) => {
                tasks.sort_by_key(|it| it.visible_at);
                let kinds: BTreeSet<String> =
                    tasks.iter().map(|it| work_of(it).to_string()).collect();
                let how = tasks.first().map(|it| work_of(it).how_to_serve("URL"));
                let kinds: Vec<String> = kinds.into_iter().collect();
                HeldRun {
                    since: tasks
                        .first()
                        .map_or_else(String::new, |it| it.visible_at.to_rfc3339()),
                    run,
                    waits_for: HeldFor::Worker,
                    says: format!(
                        "nobody serves {}: {}",
                        kinds.join(", "),
                        how.unwrap_or_default()
                    ),
                    steps: tasks.into_iter().take(MAX_STEPS).map(step).collect(),
                }
            }
        }
    }
}

fn step(task: TaskRow) -> HeldStep {
    HeldStep {
        step_id: task.target,
        queue: Some(task.queue),
        operation: Some(task.op),
        since: task.visible_at.to_rfc3339(),
    }
}

fn failed(step: FailedStep) -> HeldStep {
    HeldStep {
        step_id: step.step_id,
        queue: None,
        operation: None,
        since: step.since.to_rfc3339(),
    }
}

fn work_of(task: &TaskRow) -> WorkName {
    WorkName {
        queue: task.queue.clone(),
        operation: task.op.clone(),
    }
}
