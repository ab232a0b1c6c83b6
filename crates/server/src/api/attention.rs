//! What asks for a person's attention, as numbers: they are beside the names of pages, on every page, and asked for often.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use stepwell_engine::Error;
use stepwell_engine::store::{NoticeFilter, RunFilter, RunNo, RunSummary, Store};
use stepwell_kernel::effect::Priority;
use stepwell_kernel::time::Time;
use stepwell_views::RunView;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::body::Params;
use super::held::HeldCount;
use super::inbox::tasks_of;
use super::operations::own;
use super::run_filter::{LOOK_AT, open_statuses};
use crate::access::{Caller, Right};
use crate::app::App;
use crate::problem::ApiProblem;

/// The largest number of alerts and of dead letters: who has more sees that there are more.
const MOST: usize = 100;
/// How many of the newest alerts are looked at, whatever their urgency.
const ALERTS: usize = 500;
/// How long an alert that nobody has looked at asks for attention.
const RECENT_MS: i64 = 24 * 60 * 60 * 1000;
/// The most open runs that are looked at.
const RUNS: usize = 500;
/// The most logs that are read for one answer. What is left is read for the next answers.
const READS: usize = 50;
/// For how many runs and people the number of tasks is remembered.
const REMEMBERED: usize = 10_000;

pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(attention))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct AttentionQuery {
    /// Only alerts after the one with this number: the newest one that the person has looked at.
    alerts_after: Option<i64>,
}

/// A number of things that ask for attention.
#[derive(Debug, Default, Serialize, ToSchema)]
struct Attention {
    count: usize,
    /// Whether there are or may be more.
    more: bool,
}

/// What asks for the attention of the caller. What the caller may not see or do is absent.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct AttentionNumbers {
    /// Alerts of priority P1 of the last 24 hours.
    alerts: Attention,
    /// Deliveries that were given up.
    #[serde(skip_serializing_if = "Option::is_none")]
    dead_letters: Option<Attention>,
    /// Tasks of the inbox that the caller may answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    inbox: Option<Attention>,
    /// Open runs that are held up, as `GET /api/v1/runs/held` has them.
    held: Attention,
}

/// Count what asks for the attention of the caller: urgent alerts, dead letters, tasks of the inbox that the caller may answer, and
/// runs that are held up.
///
/// The answer is cheap: no number goes beyond what a page shows, and the log of a run is read once for each length that it has.
#[utoipa::path(get, path = "/api/v1/attention", tag = "operations", security(("token" = ["view"])),
    params(AttentionQuery),
    responses((status = 200, body = AttentionNumbers), (status = 400, body = ApiProblem), (status = 403, body = ApiProblem),
        (status = 503, body = ApiProblem)))]
async fn attention(
    State(app): State<Arc<App>>,
    caller: Caller,
    Params(query): Params<AttentionQuery>,
) -> Result<Json<AttentionNumbers>, ApiProblem> {
    let (now, tasks) = (app.now(), app.person_tasks.clone());
    let held = HeldCount::of(&app, &caller, MOST)?;
    let found = app.ask(move |store| {
        let letters = match caller.has(Right::Operate) {
            true => Some(dead_letters(store, &caller)?),
            false => None,
        };
        let inbox = match caller.has(Right::Approve) {
            true => Some(tasks.count(store, &caller, now)?),
            false => None,
        };
        Ok::<_, Error>(AttentionNumbers {
            alerts: alerts(store, &caller, query.alerts_after, now)?,
            dead_letters: letters,
            inbox,
            held: held
                .count(store)
                .map(|(count, more)| Attention { count, more })?,
        })
    });
    Ok(Json(found.await?))
}

fn alerts(
    store: &dyn Store,
    caller: &Caller,
    after: Option<i64>,
    now: Time,
) -> Result<Attention, Error> {
    let rows = store.list_alerts(&NoticeFilter {
        limit: ALERTS,
        ..own(caller.clone())
    })?;
    // Of an alert that is not there nobody has looked at: the store is another one than then.
    let after = after.filter(|last| rows.first().is_some_and(|newest| *last <= newest.no));
    let is_new = |no: i64, at: Time| {
        after.is_none_or(|last| no > last) && now.0.saturating_sub(at.0) < RECENT_MS
    };
    let new = rows.iter().take_while(|it| is_new(it.no, it.at));
    let all_new = new.clone().count() >= ALERTS;
    let count = new.filter(|it| it.priority == Priority::P1).count();
    Ok(Attention {
        count: count.min(MOST),
        more: count > MOST || all_new,
    })
}

fn dead_letters(store: &dyn Store, caller: &Caller) -> Result<Attention, Error> {
    let rows = store.list_dead_letters(&NoticeFilter {
        limit: MOST + 1,
        ..own(caller.clone())
    })?;
    Ok(Attention {
        count: rows.len().min(MOST),
        more: rows.len() > MOST,
    })
}

/// How many tasks of a run a person may answer. They follow from the log and the name of the person, so a log is read once for
/// each length that it has. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct PersonTasks(Arc<Mutex<TasksByRun>>);

/// The number of the last event that was read, and the number of tasks then.
type TasksByRun = HashMap<(RunNo, String), (u64, usize)>;

impl PersonTasks {
    fn count(&self, store: &dyn Store, caller: &Caller, now: Time) -> Result<Attention, Error> {
        let found = store.search(&RunFilter {
            tenant: caller.tenant.clone(),
            project: caller.project.clone(),
            statuses: open_statuses(),
            limit: RUNS,
            look_at: Some(LOOK_AT),
            ..RunFilter::default()
        })?;
        let mut all = Attention {
            count: 0,
            more: found.runs.len() >= RUNS || found.searched_to.is_some(),
        };
        let mut reads = 0;
        for run in &found.runs {
            match self.of(store, run, caller, now, reads < READS) {
                Known::Before(count) => all.count += count,
                Known::Read(count) => (all.count, reads) = (all.count + count, reads + 1),
                Known::No => all.more = true,
            }
        }
        Ok(all)
    }

    fn of(
        &self,
        store: &dyn Store,
        run: &RunSummary,
        caller: &Caller,
        now: Time,
        may_read: bool,
    ) -> Known {
        let key = (run.run, caller.name.clone());
        let known = self.lock().get(&key).copied();
        if let Some((_, count)) = known.filter(|(seq, _)| *seq == run.last_seq || !may_read) {
            return Known::Before(count);
        }
        if !may_read {
            return Known::No;
        }
        // A run that cannot be read is told elsewhere.
        let count = RunView::read(store, &run.run_id).map_or(0, |view| {
            let tasks = tasks_of(&view, caller, now);
            tasks.iter().filter(|it| it.forbidden.is_none()).count()
        });
        let mut all = self.lock();
        if all.len() >= REMEMBERED {
            all.clear();
        }
        all.insert(key, (run.last_seq, count));
        Known::Read(count)
    }

    fn lock(&self) -> MutexGuard<'_, TasksByRun> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is known of the tasks of a run.
enum Known {
    /// The number, from a time before.
    Before(usize),
    /// The number, for which the log was read.
    Read(usize),
    /// Nothing: its log was not read yet, and other logs had to be read first.
    No,
}
