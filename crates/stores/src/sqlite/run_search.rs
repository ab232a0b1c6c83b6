//! Statements that find runs: one index has them in their order, and conditions that the index does not have are looked up
//! for each run. Which index finds the runs is not left to SQLite, which knows no counts.

use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};
use stepwell_engine::store::{RunFilter, RunNo};
use stepwell_kernel::time::Time;

use super::tasks::limit_of;

/// The runs of a span of time are sorted by their numbers: so many at most.
const NARROW: usize = 10_000;
/// For so many statuses or versions of a plan each has a search of its own.
const SEARCHES: usize = 64;

/// The language of a plan; a net that is damaged has none.
pub(super) const LANGUAGE: &str = "CASE WHEN json_valid(net) THEN net ->> '$.dialect' END";

/// The table that runs are found in, and by which index.
#[derive(Clone, Copy)]
enum Driver {
    Labels,
    Heads(&'static str),
    Runs(&'static str),
}

impl Driver {
    fn table(self) -> &'static str {
        match self {
            Driver::Labels => "run_labels AS found",
            Driver::Heads(_) => "heads",
            Driver::Runs(_) => "runs",
        }
    }

    /// The table whose order counts.
    fn first(self) -> &'static str {
        match self {
            Driver::Labels => "found",
            Driver::Heads(_) => "heads",
            Driver::Runs(_) => "runs",
        }
    }

    fn index(self) -> &'static str {
        match self {
            Driver::Labels => "INDEXED BY run_labels_by_value",
            Driver::Heads(index) | Driver::Runs(index) => index,
        }
    }
}

/// A statement that finds runs in their order.
pub(super) struct Search {
    driver: Driver,
    /// Conditions that the index has.
    indexed: String,
    /// Conditions of rows of `heads` and `runs`, and of others, that are looked up for each run.
    heads: Vec<String>,
    runs: Vec<String>,
    others: Vec<String>,
    pub(super) values: Vec<Value>,
}

impl Search {
    fn new(driver: Driver) -> Search {
        Search {
            driver,
            indexed: String::new(),
            heads: Vec::new(),
            runs: Vec::new(),
            others: Vec::new(),
            values: Vec::new(),
        }
    }

    /// The place of a value in the statement.
    fn value(&mut self, value: impl Into<Value>) -> String {
        self.values.push(value.into());
        format!("?{}", self.values.len())
    }

    /// A condition that the index has.
    fn by(mut self, condition: &str, value: impl Into<Value>) -> Search {
        let place = self.value(value);
        self.indexed.push_str(&format!(" AND {condition} {place}"));
        self
    }

    pub(super) fn looks_up_nothing(&self) -> bool {
        self.heads.is_empty() && self.runs.is_empty() && self.others.is_empty()
    }

    /// The conditions that are looked up. The first one that does not hold ends it.
    fn looked_up(&self) -> Vec<String> {
        let first = self.driver.first();
        let mut all = Vec::new();
        for (table, wanted) in [("heads", &self.heads), ("runs", &self.runs)] {
            let wanted = wanted.join(" AND ");
            if table == first && !wanted.is_empty() {
                all.push(wanted);
            } else if !wanted.is_empty() {
                all.push(format!(
                    "EXISTS (SELECT 1 FROM {table} WHERE {table}.run_no = {first}.run_no AND {wanted})"
                ));
            }
        }
        all.extend(self.others.iter().cloned());
        all
    }

    /// A statement with the number of each run, and NULL for those that do not fit.
    pub(super) fn sql(&mut self, before: RunNo, told: &str) -> String {
        let place = self.value(before.0);
        let first = self.driver.first();
        let fits = match &self.looked_up()[..] {
            [] => told.to_owned(),
            wanted => {
                let none = wanted
                    .iter()
                    .map(|it| format!("WHEN NOT ({it}) THEN NULL "));
                format!("CASE {}ELSE {told} END", none.collect::<String>())
            }
        };
        format!(
            "SELECT {first}.run_no, {fits} FROM {} {} WHERE {first}.run_no < {place}{}
             ORDER BY {first}.run_no DESC",
            self.driver.table(),
            self.driver.index(),
            self.indexed,
        )
    }

    /// The status of the run of a row.
    pub(super) fn status(&self) -> &'static str {
        match self.driver {
            Driver::Heads(_) => "heads.status",
            Driver::Runs(_) => "(SELECT status FROM heads WHERE heads.run_no = runs.run_no)",
            Driver::Labels => "(SELECT status FROM heads WHERE heads.run_no = found.run_no)",
        }
    }
}

/// Which conditions of a filter an index has.
pub(super) enum IndexChoice {
    Label,
    Key,
    Parent,
    Created,
    Ended,
    Statuses,
    Plan(Vec<i64>),
    Open,
    Tenant(Vec<String>),
    All,
}

impl IndexChoice {
    /// The index that leaves few runs to be looked at, as far as that can be known without looking.
    pub(super) fn of(conn: &Connection, filter: &RunFilter) -> rusqlite::Result<IndexChoice> {
        if !filter.labels.is_empty() {
            return Ok(IndexChoice::Label);
        } else if filter.unique_key.is_some() {
            return Ok(IndexChoice::Key);
        } else if filter.parent.is_some() {
            return Ok(IndexChoice::Parent);
        }
        let created = [filter.created_from, filter.created_until];
        let ended = [filter.ended_from, filter.ended_until];
        for (way, table, index, column, span) in [
            (
                IndexChoice::Created,
                "runs",
                "runs_by_creation",
                "created_at",
                created,
            ),
            (
                IndexChoice::Ended,
                "heads",
                "heads_by_end",
                "ended_at",
                ended,
            ),
        ] {
            if span.iter().any(Option::is_some) {
                let [from, until] = span.map(|it| it.map(|it| it.0));
                let (from, until) = (from.unwrap_or(i64::MIN), until.unwrap_or(i64::MAX));
                let rows =
                    format!("{table} INDEXED BY {index} WHERE {column} >= ?1 AND {column} < ?2");
                if entries(conn, &rows, vec![from.into(), until.into()], NARROW + 1)? <= NARROW {
                    return Ok(way);
                }
            }
        }
        let plans = match &filter.plan_id {
            Some(plan_id) => Some(plans_of(conn, plan_id)?).filter(|it| it.len() <= SEARCHES),
            None => None,
        };
        match (plans, filter.statuses.is_empty()) {
            (Some(plans), true) => Ok(IndexChoice::Plan(plans)),
            (Some(plans), false) => {
                let most = filter.look_at.unwrap_or(NARROW);
                let of_statuses = entries_of_statuses(conn, filter, most)?;
                let of_plans = entries_of_plans(conn, &plans, of_statuses)?;
                Ok(match of_plans < of_statuses {
                    true => IndexChoice::Plan(plans),
                    false => IndexChoice::Statuses,
                })
            }
            (None, false) => Ok(IndexChoice::Statuses),
            (None, true) if filter.open => Ok(IndexChoice::Open),
            (None, true) => Ok(match &filter.tenant {
                Some(tenant) => IndexChoice::Tenant(statuses_of(conn, Some(tenant))?),
                None => IndexChoice::All,
            }),
        }
    }

    /// Statements that together find all runs that the index has, each run once.
    pub(super) fn searches(self, filter: &RunFilter) -> Vec<Search> {
        let text = |it: &Option<String>| it.clone().unwrap_or_default();
        let mut rest = filter.clone();
        let found = match self {
            IndexChoice::Label => {
                let (name, value) = rest.labels.remove(0);
                let search = Search::new(Driver::Labels).by("found.name =", name);
                vec![search.by("found.value =", value)]
            }
            IndexChoice::Key => {
                let search = Search::new(Driver::Runs("INDEXED BY runs_by_event_key"));
                let mut search = search.by("runs.event_key =", text(&rest.unique_key.take()));
                search
                    .indexed
                    .push_str(" AND runs.event_key <> runs.run_id");
                vec![search]
            }
            IndexChoice::Parent => {
                let search = Search::new(Driver::Runs("INDEXED BY runs_by_parent"));
                vec![search.by("runs.parent =", text(&rest.parent.take()))]
            }
            IndexChoice::Created => {
                let span = [rest.created_from.take(), rest.created_until.take()];
                let search = Search::new(Driver::Runs("INDEXED BY runs_by_creation"));
                vec![within(search, "runs.created_at", span)]
            }
            IndexChoice::Ended => {
                let span = [rest.ended_from.take(), rest.ended_until.take()];
                let search = Search::new(Driver::Heads("INDEXED BY heads_by_end"));
                vec![within(search, "heads.ended_at", span)]
            }
            IndexChoice::Statuses => {
                let statuses = std::mem::take(&mut rest.statuses);
                of_each(statuses, rest.tenant.take())
            }
            IndexChoice::Tenant(statuses) => of_each(statuses, rest.tenant.take()),
            IndexChoice::Plan(plans) => {
                rest.plan_id = None;
                let of_one = |plan: i64| {
                    let search = Search::new(Driver::Runs("INDEXED BY runs_by_plan"));
                    search.by("runs.plan_no =", plan)
                };
                plans.into_iter().map(of_one).collect()
            }
            IndexChoice::Open => {
                rest.open = false;
                let mut search = Search::new(Driver::Heads("INDEXED BY heads_open"));
                search.indexed.push_str(" AND heads.ended_at IS NULL");
                vec![search]
            }
            IndexChoice::All => vec![Search::new(Driver::Heads("NOT INDEXED"))],
        };
        let asked = |mut search: Search| {
            look_up(&mut search, &rest);
            search
        };
        found.into_iter().map(asked).collect()
    }
}

fn within(search: Search, column: &str, [from, until]: [Option<Time>; 2]) -> Search {
    let (from, until) = (
        from.map_or(i64::MIN, |it| it.0),
        until.map_or(i64::MAX, |it| it.0),
    );
    let search = search.by(&format!("{column} >="), from);
    search.by(&format!("{column} <"), until)
}

/// One statement for each status: the index has the runs of one status in their order.
fn of_each(mut statuses: Vec<String>, tenant: Option<String>) -> Vec<Search> {
    statuses.sort();
    statuses.dedup();
    let of_one = |status: String| match &tenant {
        Some(tenant) => {
            let search = Search::new(Driver::Heads("INDEXED BY heads_by_tenant"));
            let search = search.by("heads.tenant =", tenant.clone());
            search.by("heads.status =", status)
        }
        None => {
            Search::new(Driver::Heads("INDEXED BY heads_by_status")).by("heads.status =", status)
        }
    };
    statuses.into_iter().map(of_one).collect()
}

/// How many entries an index has, up to a number.
fn entries(
    conn: &Connection,
    rows: &str,
    values: Vec<Value>,
    most: usize,
) -> rusqlite::Result<usize> {
    let sql = format!(
        "SELECT count(*) FROM (SELECT 1 FROM {rows} LIMIT {})",
        limit_of(most)
    );
    conn.prepare_cached(&sql)?
        .query_row(params_from_iter(values), |row| row.get(0))
}

fn entries_of_statuses(
    conn: &Connection,
    filter: &RunFilter,
    most: usize,
) -> rusqlite::Result<usize> {
    let mut sum = 0;
    for search in of_each(filter.statuses.clone(), filter.tenant.clone()) {
        sum += search.entries(conn, most)?;
    }
    Ok(sum)
}

/// How many runs have one of these plans; counts no further than `most`.
fn entries_of_plans(conn: &Connection, plans: &[i64], most: usize) -> rusqlite::Result<usize> {
    let mut sum = 0;
    for plan in plans {
        let rows = "runs INDEXED BY runs_by_plan WHERE plan_no = ?1";
        sum += entries(conn, rows, vec![(*plan).into()], most)?;
        if sum >= most {
            break;
        }
    }
    Ok(sum)
}

impl Search {
    /// How many entries of the index there are, up to a number.
    pub(super) fn entries(self, conn: &Connection, most: usize) -> rusqlite::Result<usize> {
        let (table, index) = (self.driver.table(), self.driver.index());
        let rows = format!("{table} {index} WHERE true{}", self.indexed);
        entries(conn, &rows, self.values, most)
    }
}

/// The versions of a plan.
fn plans_of(conn: &Connection, plan_id: &str) -> rusqlite::Result<Vec<i64>> {
    conn.prepare_cached("SELECT plan_no FROM plans WHERE plan_id = ?1")?
        .query_map([plan_id], |row| row.get(0))?
        .collect()
}

/// The statuses that runs have, of a tenant or of all: few, and each is the next one in the index.
pub(super) fn statuses_of(
    conn: &Connection,
    tenant: Option<&str>,
) -> rusqlite::Result<Vec<String>> {
    let (index, of) = match tenant {
        Some(_) => ("heads_by_tenant", "tenant = ?1 AND"),
        None => ("heads_by_status", ""),
    };
    let sql = format!(
        "WITH RECURSIVE its (status) AS (
           SELECT min(status) FROM heads INDEXED BY {index} WHERE {of} true
           UNION ALL SELECT (SELECT min(heads.status) FROM heads INDEXED BY {index}
                             WHERE {of} heads.status > its.status)
           FROM its WHERE its.status IS NOT NULL)
         SELECT status FROM its WHERE status IS NOT NULL"
    );
    conn.prepare_cached(&sql)?
        .query_map(params_from_iter(tenant), |row| row.get(0))?
        .collect()
}

/// Adds the conditions of a filter that the index does not have.
fn look_up(search: &mut Search, filter: &RunFilter) {
    let statuses = filter.statuses.iter().map(|it| search.value(it.clone()));
    let statuses: Vec<String> = statuses.collect();
    if !statuses.is_empty() {
        let one_of = format!("heads.status IN ({})", statuses.join(", "));
        search.heads.push(one_of);
    }
    if filter.open {
        search.heads.push("heads.ended_at IS NULL".to_owned());
    }
    if let Some(tenant) = filter.tenant.clone() {
        let place = search.value(tenant);
        match search.driver {
            Driver::Heads(_) => search.heads.push(format!("heads.tenant = {place}")),
            Driver::Labels | Driver::Runs(_) => search.runs.push(format!("runs.tenant = {place}")),
        }
    }
    for (column, wanted) in [
        ("project", &filter.project),
        ("environment", &filter.environment),
        ("parent", &filter.parent),
        ("event_key", &filter.unique_key),
    ] {
        if let Some(wanted) = wanted.clone() {
            let place = search.value(wanted);
            search.runs.push(format!("runs.{column} = {place}"));
        }
    }
    if filter.unique_key.is_some() {
        search.runs.push("runs.event_key <> runs.run_id".to_owned());
    }
    for (condition, time) in [
        ("created_at >=", filter.created_from),
        ("created_at <", filter.created_until),
    ] {
        if let Some(time) = time {
            let place = search.value(time.0);
            search.runs.push(format!("runs.{condition} {place}"));
        }
    }
    for (condition, time) in [
        ("ended_at >=", filter.ended_from),
        ("ended_at <", filter.ended_until),
    ] {
        if let Some(time) = time {
            let place = search.value(time.0);
            search.heads.push(format!("heads.{condition} {place}"));
        }
    }
    for (column, wanted) in [("plan_id", &filter.plan_id), (LANGUAGE, &filter.language)] {
        if let Some(wanted) = wanted.clone() {
            let place = search.value(wanted);
            search.runs.push(format!(
                "runs.plan_no IN (SELECT plan_no FROM plans WHERE {column} = {place})"
            ));
        }
    }
    let first = search.driver.first();
    for (name, value) in &filter.labels {
        let (name, value) = (search.value(name.clone()), search.value(value.clone()));
        search.others.push(format!(
            "EXISTS (SELECT 1 FROM run_labels WHERE run_labels.run_no = {first}.run_no
               AND run_labels.name = {name} AND run_labels.value = {value})"
        ));
    }
    if let Some(text) = filter.text.as_ref().filter(|it| !it.is_empty()) {
        // SQLite's `lower` knows the letters A to Z.
        let place = search.value(text.to_ascii_lowercase());
        search.runs.push(format!(
            "(instr(lower(run_id), {place}) OR instr(lower(event_key), {place})
              OR plan_no IN (SELECT plan_no FROM plans WHERE instr(lower(plan_id), {place}))
              OR EXISTS (SELECT 1 FROM run_labels
                         WHERE run_labels.run_no = runs.run_no AND instr(lower(value), {place})))"
        ));
    }
}
