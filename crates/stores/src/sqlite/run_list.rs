//! Lists of runs. The runs are found first, by one index that has them in their order; what a list says of them is read
//! afterwards, for those that it shows. Which index finds the runs is not left to SQLite, which knows no counts.

use std::collections::{BTreeMap, HashMap};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension as _, params_from_iter};
use stepwell_engine::store::{Result, RunFilter, RunNo, RunSummary, SEARCHED};
use stepwell_kernel::time::Time;

use super::SqliteStore;
use super::log::{HEAD, head};
use super::tasks::limit_of;

/// How long a list may hold its view of the database: some conditions have no index, and few runs may fit them.
const LONGEST_LIST: Duration = Duration::from_secs(10);

/// The language of a plan; a net that is damaged has none.
const LANGUAGE: &str = "CASE WHEN json_valid(net) THEN net ->> '$.dialect' END";

impl SqliteStore {
    pub(super) fn list_runs(&self, filter: &RunFilter) -> Result<Vec<RunSummary>> {
        self.look_long(|conn| list(conn, filter))
    }

    pub(super) fn last_searched(&self, filter: &RunFilter) -> Result<Option<String>> {
        if text_of(filter).is_none() {
            return Ok(None);
        }
        self.look_long(|conn| {
            let numbers = numbers(conn, filter, SEARCHED + 1)?;
            match numbers
                .get(SEARCHED - 1)
                .filter(|_| numbers.len() > SEARCHED)
            {
                Some(last) => conn
                    .prepare_cached("SELECT run_id FROM runs WHERE run_no = ?1")?
                    .query_row([last], |row| row.get(0))
                    .optional(),
                None => Ok(None),
            }
        })
    }

    pub(super) fn count_listed(&self, filter: &RunFilter) -> Result<Vec<(String, u64)>> {
        self.look_long(|conn| count(conn, filter))
    }

    fn look_long<T>(&self, work: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T> {
        let until = Instant::now() + LONGEST_LIST;
        self.look(work, Some(move || Instant::now() > until))
    }
}

/// The table that runs are found in, and by which index.
enum Driver {
    Labels,
    Heads(&'static str),
    Runs(&'static str),
}

/// What runs are looked for: those that are counted need no order, but their statuses.
#[derive(Clone, Copy)]
enum Purpose {
    List,
    Count,
}

/// A statement that finds runs: its conditions, and which tables they are about.
struct Search {
    driver: Driver,
    wanted: String,
    values: Vec<Value>,
    needs_heads: bool,
    needs_runs: bool,
}

impl Search {
    fn new(driver: Driver) -> Search {
        Search {
            wanted: String::new(),
            values: Vec::new(),
            needs_heads: matches!(driver, Driver::Heads(_)),
            needs_runs: matches!(driver, Driver::Runs(_)),
            driver,
        }
    }

    /// The place of a value in the statement.
    fn value(&mut self, value: impl Into<Value>) -> String {
        self.values.push(value.into());
        format!("?{}", self.values.len())
    }

    fn heads(&mut self, condition: &str, value: impl Into<Value>) {
        let place = self.value(value);
        self.needs_heads = true;
        self.wanted
            .push_str(&format!(" AND heads.{condition} {place}"));
    }

    fn runs(&mut self, condition: &str, value: impl Into<Value>) {
        let place = self.value(value);
        self.needs_runs = true;
        self.wanted
            .push_str(&format!(" AND runs.{condition} {place}"));
    }

    /// The table whose order counts.
    fn first(&self) -> &'static str {
        match self.driver {
            Driver::Labels => "found",
            Driver::Heads(_) => "heads",
            Driver::Runs(_) => "runs",
        }
    }

    fn tables(&self) -> String {
        let first = self.first();
        let mut tables = match self.driver {
            Driver::Labels => "run_labels AS found INDEXED BY run_labels_by_value".to_owned(),
            Driver::Heads(index) | Driver::Runs(index) => format!("{first} {index}"),
        };
        for (table, needed) in [("heads", self.needs_heads), ("runs", self.needs_runs)] {
            if needed && table != first {
                tables.push_str(&format!(
                    " CROSS JOIN {table} ON {table}.run_no = {first}.run_no"
                ));
            }
        }
        tables
    }

    fn numbers(
        mut self,
        conn: &Connection,
        before: RunNo,
        limit: i64,
    ) -> rusqlite::Result<Vec<i64>> {
        let (first, place) = (self.first(), self.value(before.0));
        let sql = format!(
            "SELECT {first}.run_no FROM {} WHERE {first}.run_no < {place}{}
             ORDER BY {first}.run_no DESC LIMIT {limit}",
            self.tables(),
            self.wanted,
        );
        conn.prepare_cached(&sql)?
            .query_map(params_from_iter(self.values), |row| row.get(0))?
            .collect()
    }

    fn counts(mut self, conn: &Connection) -> rusqlite::Result<Vec<(String, u64)>> {
        self.needs_heads = true;
        let sql = format!(
            "SELECT heads.status, count(*) FROM {} WHERE true{} GROUP BY heads.status",
            self.tables(),
            self.wanted,
        );
        conn.prepare_cached(&sql)?
            .query_map(params_from_iter(self.values), |row| {
                Ok((row.get(0)?, row.get(1)?))
            })?
            .collect()
    }
}

/// Statements that together find all runs that are asked for, each run once.
fn searches(
    conn: &Connection,
    filter: &RunFilter,
    purpose: Purpose,
) -> rusqlite::Result<Vec<Search>> {
    let found = if let Some((name, value)) = filter.labels.first() {
        let mut search = Search::new(Driver::Labels);
        let (name, value) = (search.value(name.clone()), search.value(value.clone()));
        search.wanted = format!(" AND found.name = {name} AND found.value = {value}");
        vec![search]
    } else if filter.unique_key.is_some() {
        vec![Search::new(Driver::Runs("INDEXED BY runs_by_event_key"))]
    } else if filter.parent.is_some() {
        vec![Search::new(Driver::Runs("INDEXED BY runs_by_parent"))]
    } else if !filter.statuses.is_empty() {
        let index = match &filter.tenant {
            Some(_) => "INDEXED BY heads_by_tenant",
            None => "INDEXED BY heads_by_status",
        };
        return Ok(by_status(filter, index));
    } else if filter.open {
        vec![Search::new(Driver::Heads("INDEXED BY heads_open"))]
    } else if let Some(plan_id) = &filter.plan_id {
        return by_plan(conn, filter, plan_id);
    } else if let Some(tenant) = &filter.tenant {
        match purpose {
            Purpose::List => {
                let of_each = RunFilter {
                    statuses: statuses_of(conn, tenant)?,
                    ..filter.clone()
                };
                return Ok(by_status(&of_each, "INDEXED BY heads_by_tenant"));
            }
            Purpose::Count => vec![Search::new(Driver::Heads("INDEXED BY heads_by_tenant"))],
        }
    } else if filter.created_from.is_some() || filter.created_until.is_some() {
        vec![Search::new(Driver::Runs("INDEXED BY runs_by_creation"))]
    } else if filter.ended_from.is_some() || filter.ended_until.is_some() {
        vec![Search::new(Driver::Heads("INDEXED BY heads_by_end"))]
    } else {
        vec![Search::new(Driver::Heads(match purpose {
            Purpose::List => "NOT INDEXED",
            Purpose::Count => "INDEXED BY heads_by_status",
        }))]
    };
    let asked = |mut search: Search| {
        ask(&mut search, filter);
        search
    };
    Ok(found.into_iter().map(asked).collect())
}

/// The statuses that runs of a tenant have: few, and each is the next one in the index.
fn statuses_of(conn: &Connection, tenant: &str) -> rusqlite::Result<Vec<String>> {
    conn.prepare_cached(
        "WITH RECURSIVE its (status) AS (
           SELECT min(status) FROM heads INDEXED BY heads_by_tenant WHERE tenant = ?1
           UNION ALL SELECT (SELECT min(heads.status) FROM heads INDEXED BY heads_by_tenant
                             WHERE tenant = ?1 AND heads.status > its.status)
           FROM its WHERE its.status IS NOT NULL)
         SELECT status FROM its WHERE status IS NOT NULL",
    )?
    .query_map([tenant], |row| row.get(0))?
    .collect()
}

/// One statement for each status: the index has the runs of one status in their order.
fn by_status(filter: &RunFilter, index: &'static str) -> Vec<Search> {
    let mut statuses = filter.statuses.clone();
    statuses.sort();
    statuses.dedup();
    let of_one = |status: String| {
        let one = RunFilter {
            statuses: vec![status],
            ..filter.clone()
        };
        let mut search = Search::new(Driver::Heads(index));
        ask(&mut search, &one);
        search
    };
    statuses.into_iter().map(of_one).collect()
}

/// One statement for each version of the plan.
fn by_plan(conn: &Connection, filter: &RunFilter, plan_id: &str) -> rusqlite::Result<Vec<Search>> {
    let plans: Vec<i64> = conn
        .prepare_cached("SELECT plan_no FROM plans WHERE plan_id = ?1")?
        .query_map([plan_id], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    let rest = RunFilter {
        plan_id: None,
        ..filter.clone()
    };
    let of_one = |plan: i64| {
        let mut search = Search::new(Driver::Runs("INDEXED BY runs_by_plan"));
        search.runs("plan_no =", plan);
        ask(&mut search, &rest);
        search
    };
    Ok(plans.into_iter().map(of_one).collect())
}

/// Adds the conditions of a filter.
fn ask(search: &mut Search, filter: &RunFilter) {
    let statuses = filter.statuses.iter().map(|it| search.value(it.clone()));
    let statuses: Vec<String> = statuses.collect();
    if !statuses.is_empty() {
        search.needs_heads = true;
        let one_of = match &statuses[..] {
            [one] => format!(" AND heads.status = {one}"),
            more => format!(" AND heads.status IN ({})", more.join(", ")),
        };
        search.wanted.push_str(&one_of);
    }
    if filter.open {
        search.needs_heads = true;
        search.wanted.push_str(" AND heads.ended_at IS NULL");
    }
    if let Some(tenant) = filter.tenant.clone() {
        match search.driver {
            Driver::Heads(_) => search.heads("tenant =", tenant),
            Driver::Labels | Driver::Runs(_) => search.runs("tenant =", tenant),
        }
    }
    for (column, wanted) in [
        ("project =", &filter.project),
        ("environment =", &filter.environment),
        ("parent =", &filter.parent),
        ("event_key =", &filter.unique_key),
    ] {
        if let Some(wanted) = wanted.clone() {
            search.runs(column, wanted);
        }
    }
    if filter.unique_key.is_some() {
        search.wanted.push_str(" AND runs.event_key <> runs.run_id");
    }
    for (condition, time) in [
        ("created_at >=", filter.created_from),
        ("created_at <", filter.created_until),
    ] {
        if let Some(time) = time {
            search.runs(condition, time.0);
        }
    }
    for (condition, time) in [
        ("ended_at >=", filter.ended_from),
        ("ended_at <", filter.ended_until),
    ] {
        if let Some(time) = time {
            search.heads(condition, time.0);
        }
    }
    for (column, wanted) in [("plan_id", &filter.plan_id), (LANGUAGE, &filter.language)] {
        if let Some(wanted) = wanted.clone() {
            let place = search.value(wanted);
            search.needs_runs = true;
            search.wanted.push_str(&format!(
                " AND runs.plan_no IN (SELECT plan_no FROM plans WHERE {column} = {place})"
            ));
        }
    }
    ask_for_labels(search, filter);
}

fn ask_for_labels(search: &mut Search, filter: &RunFilter) {
    for (name, value) in &filter.labels {
        let (name, value) = (search.value(name.clone()), search.value(value.clone()));
        let first = search.first();
        search.wanted.push_str(&format!(
            " AND EXISTS (SELECT 1 FROM run_labels WHERE run_labels.run_no = {first}.run_no
               AND run_labels.name = {name} AND run_labels.value = {value})"
        ));
    }
}

fn text_of(filter: &RunFilter) -> Option<&String> {
    filter.text.as_ref().filter(|it| !it.is_empty())
}

/// Those of some runs that have a text, in their order. SQLite's `lower` knows the letters A to Z.
fn with_text(conn: &Connection, runs: &[i64], text: &str) -> rusqlite::Result<Vec<i64>> {
    let runs: Vec<String> = runs.iter().map(ToString::to_string).collect();
    let runs = format!("[{}]", runs.join(","));
    conn.prepare_cached(
        "SELECT runs.run_no FROM json_each(?1) AS looked CROSS JOIN runs ON runs.run_no = looked.value
         WHERE instr(lower(run_id), ?2) OR instr(lower(event_key), ?2)
           OR plan_no IN (SELECT plan_no FROM plans WHERE instr(lower(plan_id), ?2))
           OR EXISTS (SELECT 1 FROM run_labels
                      WHERE run_labels.run_no = runs.run_no AND instr(lower(value), ?2))
         ORDER BY runs.run_no DESC",
    )?
    .query_map([runs, text.to_ascii_lowercase()], |row| row.get(0))?
    .collect()
}

/// The runs that all of a filter but its text leaves, newest first.
fn numbers(conn: &Connection, filter: &RunFilter, limit: usize) -> rusqlite::Result<Vec<i64>> {
    let before = filter.before.unwrap_or(RunNo(i64::MAX));
    let mut numbers = Vec::new();
    for search in searches(conn, filter, Purpose::List)? {
        numbers.extend(search.numbers(conn, before, limit_of(limit))?);
    }
    numbers.sort_unstable_by(|a, b| b.cmp(a));
    numbers.truncate(limit);
    Ok(numbers)
}

fn list(conn: &Connection, filter: &RunFilter) -> rusqlite::Result<Vec<RunSummary>> {
    let mut numbers = match text_of(filter) {
        Some(text) => with_text(conn, &numbers(conn, filter, SEARCHED)?, text)?,
        None => numbers(conn, filter, filter.limit)?,
    };
    numbers.truncate(filter.limit);
    let mut plans = Plans::default();
    let rows = numbers.into_iter().map(|no| plans.summary(conn, no));
    rows.filter_map(rusqlite::Result::transpose).collect()
}

fn count(conn: &Connection, filter: &RunFilter) -> rusqlite::Result<Vec<(String, u64)>> {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    if let Some(text) = text_of(filter) {
        let newest = RunFilter {
            before: None,
            ..filter.clone()
        };
        for run in with_text(conn, &numbers(conn, &newest, SEARCHED)?, text)? {
            let status: Option<String> = conn
                .prepare_cached("SELECT status FROM heads WHERE run_no = ?1")?
                .query_row([run], |row| row.get(0))
                .optional()?;
            *counts.entry(status.unwrap_or_default()).or_default() += 1;
        }
        return Ok(counts.into_iter().collect());
    }
    for search in searches(conn, filter, Purpose::Count)? {
        for (status, count) in search.counts(conn)? {
            *counts.entry(status).or_default() += count;
        }
    }
    Ok(counts.into_iter().collect())
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
