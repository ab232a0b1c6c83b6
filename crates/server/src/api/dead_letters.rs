//! Dead letters: deliveries that were given up. They are listed, and put back into the outbox one by one or many at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use stepwell_engine::Error;
use stepwell_engine::store::{DeadLetter, NoticeFilter, Store};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::body::{Body, Params};
use super::operations::{MAX_ROWS, limit_of, own};
use crate::access::Caller;
use crate::app::App;
use crate::codes;
use crate::problem::ApiProblem;

/// The most dead letters that a dry run counts.
const MOST_COUNTED: usize = 20_000;

pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(dead_letters))
        .routes(routes!(redrive_many))
        .routes(routes!(redrive))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct LetterQuery {
    /// Only deliveries to this sink.
    sink: Option<String>,
    /// Only deliveries of the run with this id.
    run: Option<String>,
    /// Only dead letters after the one with this number: the last `no` of the page before.
    after: Option<i64>,
    /// The newest ones first.
    #[serde(default)]
    newest: bool,
    /// Only dead letters before the one with this number, the newest ones first: the last `no` of the page before.
    before: Option<i64>,
    /// At most this many rows; 100 if absent, 1000 at most.
    limit: Option<usize>,
}

/// A delivery that was given up.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct DeadLetterOfRun {
    no: i64,
    sink: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    run_id: Option<String>,
    /// The first event of the commit that was not delivered.
    first_seq: u64,
    /// How often the delivery was tried.
    attempts: u32,
    reason: String,
    at: String,
}

/// List dead letters, deliveries that were given up: the oldest first, or with `newest` the newest first.
#[utoipa::path(get, path = "/api/v1/dead-letters", tag = "operations", security(("token" = ["operate"])),
    params(LetterQuery),
    responses((status = 200, body = Vec<DeadLetterOfRun>), (status = 400, body = ApiProblem),
        (status = 403, body = ApiProblem), (status = 503, body = ApiProblem)))]
async fn dead_letters(
    State(app): State<Arc<App>>,
    caller: Caller,
    Params(query): Params<LetterQuery>,
) -> Result<Json<Vec<DeadLetterOfRun>>, ApiProblem> {
    let newest_first = query.newest || query.before.is_some();
    if query.after.is_some() && newest_first {
        return Err(ApiProblem::bad_request(
            "after: pages that have the newest first go on with `before`",
        ));
    }
    let filter = NoticeFilter {
        run_id: query.run,
        word: query.sink,
        newest_first,
        past: query.before.or(query.after),
        limit: limit_of(query.limit)?,
        ..own(caller)
    };
    let rows = app.ask(move |store| store.list_dead_letters(&filter));
    let row = |letter: DeadLetter| DeadLetterOfRun {
        no: letter.no,
        run_id: Some(letter.marker.run_id).filter(|it| !it.is_empty()),
        sink: letter.marker.sink,
        first_seq: letter.marker.first,
        attempts: letter.marker.attempts,
        reason: letter.why,
        at: letter.at.to_rfc3339(),
    };
    Ok(Json(rows.await?.into_iter().map(row).collect()))
}

/// Put a dead letter back into the outbox: its delivery is tried again.
#[utoipa::path(post, path = "/api/v1/dead-letters/{no}/redrive", tag = "operations",
    security(("token" = ["operate"])),
    params(("no" = i64, Path, description = "The number of the dead letter.")),
    responses((status = 204, description = "The delivery is tried again."), (status = 400, body = ApiProblem),
        (status = 403, body = ApiProblem), (status = 404, body = ApiProblem), (status = 503, body = ApiProblem)))]
async fn redrive(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(no): Path<String>,
) -> Result<StatusCode, ApiProblem> {
    let no: i64 = no
        .parse()
        .map_err(|_| ApiProblem::bad_request("no: a whole number is needed"))?;
    let done = app
        .ask(move |store| match letter_of(&own(caller), store, no)? {
            Some(_) => store.redrive(no).map_err(Error::from),
            None => Ok(false),
        })
        .await?;
    match done {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(ApiProblem::not_found(
            codes::DEAD_LETTER_UNKNOWN,
            "there is no dead letter of this number",
        )),
    }
}

/// The dead letter of this number, if the caller may see it.
fn letter_of(own: &NoticeFilter, store: &dyn Store, no: i64) -> Result<Option<DeadLetter>, Error> {
    let filter = NoticeFilter {
        past: Some(no.saturating_sub(1)),
        limit: 1,
        ..own.clone()
    };
    let letters = store.list_dead_letters(&filter)?;
    Ok(letters.into_iter().find(|it| it.no == no))
}

/// Which dead letters are put back into the outbox: those that are named, or all that fit.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RedriveMany {
    /// The numbers of dead letters, 1000 at most. Numbers that are there no more are left out.
    #[serde(default)]
    numbers: Vec<i64>,
    /// Without numbers: all deliveries to this sink.
    sink: Option<String>,
    /// Without numbers: only dead letters up to this number, so that what was given up after a dry run is left alone.
    up_to: Option<i64>,
    /// Only tell what would be put back.
    #[serde(default)]
    dry_run: bool,
}

/// What was put back into the outbox, or would be.
#[derive(Debug, Default, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct RedrivenMany {
    dry_run: bool,
    /// How many dead letters are meant. An answer puts at most 1000 back.
    count: usize,
    /// Whether there are more: ask again, until there are none.
    more: bool,
    /// How many of them each sink gets.
    sinks: BTreeMap<String, usize>,
    /// How many runs they are of.
    runs: usize,
    /// The largest number among them: the `upTo` of the request that does it.
    #[serde(skip_serializing_if = "Option::is_none")]
    newest: Option<i64>,
}

/// Put many dead letters back into the outbox: their deliveries are tried again, oldest first.
#[utoipa::path(post, path = "/api/v1/dead-letters/redrive", tag = "operations",
    security(("token" = ["operate"])),
    request_body = RedriveMany,
    responses((status = 200, body = RedrivenMany), (status = 400, body = ApiProblem), (status = 403, body = ApiProblem),
        (status = 413, body = ApiProblem), (status = 415, body = ApiProblem), (status = 503, body = ApiProblem)))]
async fn redrive_many(
    State(app): State<Arc<App>>,
    caller: Caller,
    Body(body): Body<RedriveMany>,
) -> Result<Json<RedrivenMany>, ApiProblem> {
    if body.numbers.len() > MAX_ROWS {
        return Err(ApiProblem::bad_request(format!(
            "numbers: at most {MAX_ROWS} of one request"
        )));
    }
    if body.numbers.is_empty() == body.sink.is_none() {
        return Err(ApiProblem::bad_request(
            "numbers, sink: one of them is needed, and not both",
        ));
    }
    let own = own(caller);
    let done = app.ask(move |store| {
        let (letters, more) = meant(&own, store, &body)?;
        let mut done = RedrivenMany {
            dry_run: body.dry_run,
            more,
            ..RedrivenMany::default()
        };
        let mut runs = BTreeSet::new();
        for letter in letters {
            // Somebody else may have put it back since.
            if !body.dry_run && !store.redrive(letter.no)? {
                continue;
            }
            done.count += 1;
            done.newest = done.newest.max(Some(letter.no));
            runs.insert(letter.marker.run);
            *done.sinks.entry(letter.marker.sink).or_default() += 1;
        }
        done.runs = runs.len();
        Ok::<_, Error>(done)
    });
    Ok(Json(done.await?))
}

/// The dead letters that a request is about, oldest first, and whether there are more.
fn meant(
    own: &NoticeFilter,
    store: &dyn Store,
    body: &RedriveMany,
) -> Result<(Vec<DeadLetter>, bool), Error> {
    if body.sink.is_none() {
        let mut numbers = body.numbers.clone();
        numbers.sort_unstable();
        numbers.dedup();
        let found = numbers.into_iter().map(|no| letter_of(own, store, no));
        let found: Result<Vec<Option<DeadLetter>>, Error> = found.collect();
        return Ok((found?.into_iter().flatten().collect(), false));
    }
    let most = match body.dry_run {
        true => MOST_COUNTED,
        false => MAX_ROWS,
    };
    let mut filter = NoticeFilter {
        word: body.sink.clone(),
        limit: MAX_ROWS,
        ..own.clone()
    };
    let mut found = Vec::new();
    loop {
        let page = store.list_dead_letters(&filter)?;
        let is_last = page.len() < MAX_ROWS;
        filter.past = page.last().map(|it| it.no);
        let fits = |it: &DeadLetter| body.up_to.is_none_or(|last| it.no <= last);
        let length = page.len();
        found.extend(page.into_iter().filter(fits));
        let is_past = length > 0 && body.up_to.is_some_and(|last| filter.past > Some(last));
        if is_last || is_past {
            return Ok((found, false));
        }
        if found.len() >= most {
            return Ok((found, true));
        }
    }
}
