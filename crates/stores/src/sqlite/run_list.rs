//! Lists of runs. The runs are found first (`run_search.rs`), as long as the list may look. What a list says of the runs is
//! read afterwards, for those that it shows.

use std::collections::{BTreeMap, HashMap};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension as _, Rows, params_from_iter};
use stepwell_engine::store::{
    COUNTED_FASTER, FoundRuns, Result, RunCounts, RunFilter, RunNo, RunSummary,
};
use stepwell_kernel::time::Time;

use super::SqliteStore;
use super::log::{HEAD, head};
use super::run_search::{IndexChoice, LANGUAGE, Search, statuses_of};

/// How long a list may hold its view of the database: some conditions have no index, and few runs may fit them.
const LONGEST_LIST: Duration = Duration::from_secs(10);

impl SqliteStore {
    pub(super) fn search_runs(&self, filter: &RunFilter) -> Result<FoundRuns> {
        self.look_long(|conn| found(conn, filter))
    }

    pub(super) fn count_listed(&self, filter: &RunFilter) -> Result<RunCounts> {
        self.look_long(|conn| count(conn, filter))
    }

    fn look_long<T>(&self, work: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T> {
        let until = Instant::now() + LONGEST_LIST;
        self.look(work, Some(move || Instant::now() > until))
    }
}

/// The row that a search is at: the number of the run, and what is told of it if it fits.
type At<T> = Option<(i64, Option<T>)>;

fn next<T: rusqlite::types::FromSql>(rows: &mut Rows<'_>) -> rusqlite::Result<At<T>> {
    let row = rows.next()?;
    row.map(|row| Ok((row.get(0)?, row.get(1)?))).transpose()
}

/// Goes through the runs of some searches, newest first, until enough is seen.
fn walk<T: rusqlite::types::FromSql>(
    conn: &Connection,
    mut searches: Vec<Search>,
    before: RunNo,
    told: impl Fn(&Search) -> &'static str,
    mut see: impl FnMut(i64, Option<T>) -> bool,
) -> rusqlite::Result<()> {
    let prepared = searches.iter_mut().map(|search| {
        let told = told(search);
        conn.prepare_cached(&search.sql(before, told))
    });
    let mut prepared: Vec<_> = prepared.collect::<rusqlite::Result<_>>()?;
    let mut sources = Vec::new();
    for (statement, search) in prepared.iter_mut().zip(searches) {
        let mut rows = statement.query(params_from_iter(search.values))?;
        let at: At<T> = next(&mut rows)?;
        sources.push((rows, at));
    }
    loop {
        let newest = sources
            .iter_mut()
            .filter(|(_, at)| at.is_some())
            .max_by_key(|(_, at)| at.as_ref().map(|it| it.0));
        let Some((rows, at)) = newest else {
            return Ok(());
        };
        let Some((run, fits)) = at.take() else {
            return Ok(());
        };
        if !see(run, fits) {
            return Ok(());
        }
        *at = next(rows)?;
    }
}

fn found(conn: &Connection, filter: &RunFilter) -> rusqlite::Result<FoundRuns> {
    let before = filter.before.unwrap_or(RunNo(i64::MAX));
    let searches = IndexChoice::of(conn, filter)?.searches(filter);
    // An index that has all that is asked for ends by itself.
    let is_looking = searches.iter().any(|it| !it.looks_up_nothing());
    let most = filter.look_at.filter(|_| is_looking).unwrap_or(usize::MAX);
    let (mut numbers, mut looked_at, mut searched_to) = (Vec::new(), 0, None);
    if filter.limit > 0 {
        walk(
            conn,
            searches,
            before,
            |_| "1",
            |run, fits: Option<i64>| {
                looked_at += 1;
                if fits.is_some() {
                    numbers.push(run);
                }
                let (is_enough, is_end) = (numbers.len() >= filter.limit, looked_at >= most);
                searched_to = (is_end && !is_enough).then_some(RunNo(run));
                !is_enough && !is_end
            },
        )?;
    }
    let mut plans = Plans::default();
    let rows = numbers.into_iter().map(|no| plans.summary(conn, no));
    let runs: rusqlite::Result<_> = rows.filter_map(rusqlite::Result::transpose).collect();
    Ok(FoundRuns {
        runs: runs?,
        searched_to,
    })
}

fn count(conn: &Connection, filter: &RunFilter) -> rusqlite::Result<RunCounts> {
    let mut way = IndexChoice::of(conn, filter)?;
    if matches!(way, IndexChoice::All) {
        way = IndexChoice::Tenant(statuses_of(conn, None)?);
    }
    let has_statuses = matches!(way, IndexChoice::Tenant(_) | IndexChoice::Statuses);
    let searches = way.searches(filter);
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    let mut is_partial = false;
    if has_statuses && searches.iter().all(Search::looks_up_nothing) {
        let most = filter
            .look_at
            .map_or(usize::MAX, |it| it.saturating_mul(COUNTED_FASTER));
        for search in searches {
            let Some(Value::Text(status)) = search.values.last().cloned() else {
                continue;
            };
            let count = search.entries(conn, most)?;
            is_partial |= count >= most;
            if count > 0 {
                counts.insert(status, count as u64);
            }
        }
    } else {
        let (mut looked_at, most) = (0, filter.look_at.unwrap_or(usize::MAX));
        walk(
            conn,
            searches,
            RunNo(i64::MAX),
            Search::status,
            |_, status: Option<String>| {
                looked_at += 1;
                if let Some(status) = status {
                    *counts.entry(status).or_default() += 1;
                }
                is_partial = looked_at >= most;
                !is_partial
            },
        )?;
    }
    Ok(RunCounts {
        by_status: counts.into_iter().collect(),
        is_partial,
    })
}

/// Id, version and language of a plan.
type PlanWords = (String, String, String);

/// Plans of a list: most of its runs have few plans, and a net is long.
#[derive(Default)]
struct Plans(HashMap<i64, Option<PlanWords>>);

impl Plans {
    fn words(&mut self, conn: &Connection, no: i64) -> rusqlite::Result<Option<PlanWords>> {
        if let Some(known) = self.0.get(&no) {
            return Ok(known.clone());
        }
        let sql = format!(
            "SELECT plan_id, version, coalesce({LANGUAGE}, '') FROM plans WHERE plan_no = ?1"
        );
        let read = conn
            .prepare_cached(&sql)?
            .query_row([no], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
            .optional()?;
        self.0.insert(no, read.clone());
        Ok(read)
    }

    /// A run that lacks its rows or its plan is in no list.
    fn summary(&mut self, conn: &Connection, no: i64) -> rusqlite::Result<Option<RunSummary>> {
        static RUN: LazyLock<String> = LazyLock::new(|| {
            format!(
                "SELECT run_id, plan_no, runs.tenant, project, environment, parent, event_key, created_at,
                   coalesce((SELECT last_seq FROM log WHERE log.run_no = runs.run_no
                             ORDER BY first_seq DESC LIMIT 1), 0),
                   {HEAD}
                 FROM runs JOIN heads USING (run_no) WHERE runs.run_no = ?1"
            )
        });
        let read = conn
            .prepare_cached(&RUN)?
            .query_row([no], |row| {
                let (run_id, event_key): (String, String) = (row.get(0)?, row.get(6)?);
                let plan: i64 = row.get(1)?;
                let summary = RunSummary {
                    run: RunNo(no),
                    unique_key: (event_key != run_id).then_some(event_key),
                    run_id,
                    plan_id: String::new(),
                    plan_version: String::new(),
                    language: String::new(),
                    tenant: row.get(2)?,
                    project: row.get(3)?,
                    environment: row.get(4)?,
                    parent: row.get(5)?,
                    labels: BTreeMap::new(),
                    created_at: Time(row.get(7)?),
                    last_seq: row.get(8)?,
                    head: head(row, 9)?,
                };
                Ok((plan, summary))
            })
            .optional()?;
        let Some((plan, mut summary)) = read else {
            return Ok(None);
        };
        let Some((plan_id, version, language)) = self.words(conn, plan)? else {
            return Ok(None);
        };
        (summary.plan_id, summary.plan_version, summary.language) = (plan_id, version, language);
        summary.labels = labels(conn, no)?;
        Ok(Some(summary))
    }
}

/// The labels of a run.
pub(super) fn labels(conn: &Connection, no: i64) -> rusqlite::Result<BTreeMap<String, String>> {
    conn.prepare_cached("SELECT name, value FROM run_labels WHERE run_no = ?1")?
        .query_map([no], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect()
}
