//! Alerts: what a person must be told, one by one and by code.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use stepwell_engine::Error;
use stepwell_engine::store::{AlertRow, NoticeFilter, Store};
use stepwell_kernel::effect::Priority;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::body::Params;
use super::operations::{MAX_ROWS, limit_of, own};
use crate::access::Caller;
use crate::app::App;
use crate::problem::ApiProblem;

/// The most alerts that are counted by code, the newest ones.
const COUNTED: usize = 10_000;

pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(alerts))
        .routes(routes!(codes))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct AlertQuery {
    /// Only alerts with this code.
    code: Option<String>,
    /// Only alerts about the run with this id.
    run: Option<String>,
    /// Only alerts before the one with this number: the last `no` of the page before.
    before: Option<i64>,
    /// At most this many rows; 100 if absent, 1000 at most.
    limit: Option<usize>,
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

impl AlertOfRun {
    fn of(row: AlertRow) -> AlertOfRun {
        AlertOfRun {
            no: row.no,
            run_id: row.run_id,
            code: row.code,
            priority: word(row.priority),
            message: row.message,
            at: row.at.to_rfc3339(),
        }
    }
}

fn word(priority: Priority) -> &'static str {
    match priority {
        Priority::P1 => "P1",
        Priority::P2 => "P2",
        Priority::P3 => "P3",
    }
}

/// List alerts, newest first.
#[utoipa::path(get, path = "/api/v1/alerts", tag = "operations", security(("token" = ["view"])),
    params(AlertQuery),
    responses((status = 200, body = Vec<AlertOfRun>), (status = 400, body = ApiProblem),
        (status = 403, body = ApiProblem), (status = 503, body = ApiProblem)))]
async fn alerts(
    State(app): State<Arc<App>>,
    caller: Caller,
    Params(query): Params<AlertQuery>,
) -> Result<Json<Vec<AlertOfRun>>, ApiProblem> {
    let own = own(caller);
    let filter = NoticeFilter {
        about_store: own.about_store && query.run.is_none(),
        run_id: query.run,
        word: query.code,
        past: query.before,
        limit: limit_of(query.limit)?,
        ..own
    };
    let rows = app.ask(move |store| store.list_alerts(&filter)).await?;
    Ok(Json(rows.into_iter().map(AlertOfRun::of).collect()))
}

/// The alerts of one code and one priority.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct AlertsOfCode {
    code: String,
    /// P1, P2 or P3; P1 is the most urgent.
    priority: &'static str,
    /// How many alerts there are of this code and priority.
    count: usize,
    /// How many runs they are about. An alert of the whole installation is about none.
    runs: usize,
    /// When the oldest of them was raised.
    since: String,
    /// The newest of them.
    newest: AlertOfRun,
}

/// The alerts that the caller may see, counted by code and priority.
#[derive(Debug, Default, Serialize, ToSchema)]
struct AlertCodes {
    /// The codes, the one with the newest alert first.
    codes: Vec<AlertsOfCode>,
    /// Whether there are more alerts than were counted: then the numbers are lower bounds.
    more: bool,
}

/// Count alerts by code and priority, the code of the newest alert first.
///
/// The 10,000 newest alerts are counted.
#[utoipa::path(get, path = "/api/v1/alerts/codes", tag = "operations", security(("token" = ["view"])),
    responses((status = 200, body = AlertCodes), (status = 403, body = ApiProblem),
        (status = 503, body = ApiProblem)))]
async fn codes(
    State(app): State<Arc<App>>,
    caller: Caller,
) -> Result<Json<AlertCodes>, ApiProblem> {
    let filter = own(caller);
    let found = app.ask(move |store| count(store, &filter));
    Ok(Json(found.await?))
}

fn count(store: &dyn Store, filter: &NoticeFilter) -> Result<AlertCodes, Error> {
    let mut codes: Vec<AlertsOfCode> = Vec::new();
    let mut places: BTreeMap<(String, &'static str), usize> = BTreeMap::new();
    let mut runs: Vec<BTreeSet<String>> = Vec::new();
    let mut past = None;
    for _ in 0..COUNTED / MAX_ROWS {
        let rows = store.list_alerts(&NoticeFilter {
            past,
            limit: MAX_ROWS,
            ..filter.clone()
        })?;
        let is_last = rows.len() < MAX_ROWS;
        past = rows.last().map(|row| row.no);
        for row in rows {
            let priority = word(row.priority);
            let at = row.at.to_rfc3339();
            let run = row.run_id.clone();
            let place = *places
                .entry((row.code.clone(), priority))
                .or_insert(codes.len());
            if place == codes.len() {
                runs.push(BTreeSet::new());
                codes.push(AlertsOfCode {
                    code: row.code.clone(),
                    priority,
                    count: 0,
                    runs: 0,
                    since: String::new(),
                    newest: AlertOfRun::of(row),
                });
            }
            let (Some(code), Some(runs)) = (codes.get_mut(place), runs.get_mut(place)) else {
                continue;
            };
            runs.extend(run);
            code.count += 1;
            code.runs = runs.len();
            // They come newest first: the last one is the oldest.
            code.since = at;
        }
        if is_last {
            return Ok(AlertCodes { codes, more: false });
        }
    }
    Ok(AlertCodes { codes, more: true })
}
