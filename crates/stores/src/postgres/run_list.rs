//! Lists of runs. A statement finds the runs by the index that has them in their order, and reads what the list says of
//! those that it shows. It has only the conditions that are asked for, because a plan is made once for each statement.

use std::collections::{BTreeMap, BTreeSet};

use stepwell_engine::store::{Result, RunFilter, RunNo, RunSummary, SEARCHED};
use stepwell_kernel::time::Time;
use tokio_postgres::Row;

use super::query::Param;
use super::reads::head;
use super::{PostgresStore, limit, unsigned};

/// What a list says of the runs that were found.
const DETAILS: &str = "
SELECT h.status, h.substatus, h.session_no, h.wake_at, h.queued, h.ended_at, h.slots,
       r.run_no, r.run_id, p.plan_id, p.version, COALESCE(plan_dialect(p.net), ''), r.tenant, r.project,
       r.environment, r.parent, r.event_key, r.created_at,
       COALESCE((SELECT l.last_seq FROM log l WHERE l.run_no = r.run_no
                 ORDER BY l.first_seq DESC LIMIT 1), 0),
       ARRAY(SELECT l.name FROM run_labels l WHERE l.run_no = r.run_no ORDER BY l.name),
       ARRAY(SELECT l.value FROM run_labels l WHERE l.run_no = r.run_no ORDER BY l.name)
FROM found f JOIN runs r ON r.run_no = f.run_no JOIN heads h ON h.run_no = f.run_no
JOIN plans p ON p.plan_no = r.plan_no ORDER BY f.run_no DESC";

/// The table that runs are found in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Driver {
    Labels,
    Heads,
    Runs,
}

impl Driver {
    fn of(filter: &RunFilter) -> Driver {
        if !filter.labels.is_empty() {
            Driver::Labels
        } else if filter.unique_key.is_some() || filter.parent.is_some() {
            Driver::Runs
        } else if !filter.statuses.is_empty() || filter.open {
            Driver::Heads
        } else if filter.plan_id.is_some() {
            Driver::Runs
        } else if filter.tenant.is_some() {
            Driver::Heads
        } else if filter.created_from.is_some() || filter.created_until.is_some() {
            Driver::Runs
        } else {
            Driver::Heads
        }
    }

    fn name(self) -> &'static str {
        match self {
            Driver::Labels => "w",
            Driver::Heads => "h",
            Driver::Runs => "r",
        }
    }
}

/// A statement under way: the conditions of the runs, and the values in their places.
struct Search {
    driver: Driver,
    wanted: String,
    values: Vec<Box<dyn Param>>,
    needs_heads: bool,
    needs_runs: bool,
}

impl Search {
    fn new(driver: Driver) -> Search {
        Search {
            driver,
            wanted: String::new(),
            values: Vec::new(),
            needs_heads: driver == Driver::Heads,
            needs_runs: driver == Driver::Runs,
        }
    }

    /// The place of a value in the statement.
    fn value(&mut self, value: impl Param + 'static) -> String {
        self.values.push(Box::new(value));
        format!("${}", self.values.len())
    }

    fn heads(&mut self, condition: &str, value: impl Param + 'static) {
        let place = self.value(value);
        self.needs_heads = true;
        self.wanted.push_str(&format!(" AND h.{condition} {place}"));
    }

    fn runs(&mut self, condition: &str, value: impl Param + 'static) {
        let place = self.value(value);
        self.needs_runs = true;
        self.wanted.push_str(&format!(" AND r.{condition} {place}"));
    }

    fn tables(&self) -> String {
        let first = self.driver.name();
        let mut tables = match self.driver {
            Driver::Labels => "run_labels w",
            Driver::Heads => "heads h",
            Driver::Runs => "runs r",
        }
        .to_owned();
        if self.needs_heads && self.driver != Driver::Heads {
            tables.push_str(&format!(" JOIN heads h ON h.run_no = {first}.run_no"));
        }
        if self.needs_runs && self.driver != Driver::Runs {
            tables.push_str(&format!(" JOIN runs r ON r.run_no = {first}.run_no"));
        }
        tables
    }

    /// Adds the conditions of a filter.
    fn ask(&mut self, filter: &RunFilter) {
        if let Some((name, value)) = filter.labels.first() {
            let (name, value) = (self.value(name.clone()), self.value(value.clone()));
            self.wanted
                .push_str(&format!(" AND w.name = {name} AND w.value = {value}"));
        }
        for (name, value) in filter.labels.iter().skip(1) {
            let (name, value) = (self.value(name.clone()), self.value(value.clone()));
            self.wanted.push_str(&format!(
                " AND EXISTS (SELECT FROM run_labels x WHERE x.run_no = w.run_no
                   AND x.name = {name} AND x.value = {value})"
            ));
        }
        if filter.open {
            self.needs_heads = true;
            self.wanted.push_str(" AND h.ended_at IS NULL");
        }
        if let Some(tenant) = filter.tenant.clone() {
            match self.driver {
                Driver::Heads => self.heads("tenant =", tenant),
                Driver::Labels | Driver::Runs => self.runs("tenant =", tenant),
            }
        }
        for (column, wanted) in [
            ("project =", &filter.project),
            ("environment =", &filter.environment),
            ("parent =", &filter.parent),
            ("event_key =", &filter.unique_key),
        ] {
            if let Some(wanted) = wanted.clone() {
                self.runs(column, wanted);
            }
        }
        if filter.unique_key.is_some() {
            self.wanted.push_str(" AND r.event_key <> r.run_id");
        }
        for (condition, time) in [
            ("created_at >=", filter.created_from),
            ("created_at <", filter.created_until),
        ] {
            if let Some(time) = time {
                self.runs(condition, time.0);
            }
        }
        for (condition, time) in [
            ("ended_at >=", filter.ended_from),
            ("ended_at <", filter.ended_until),
        ] {
            if let Some(time) = time {
                self.heads(condition, time.0);
            }
        }
        if let Some(language) = filter.language.clone() {
            self.of_plans("plan_dialect(p.net) =", language);
        }
    }

    fn of_plans(&mut self, condition: &str, value: String) {
        let place = self.value(value);
        self.needs_runs = true;
        self.wanted.push_str(&format!(
            " AND r.plan_no = ANY(ARRAY(SELECT p.plan_no FROM plans p WHERE {condition} {place}))"
        ));
    }

    /// With the collation "C" only the letters A to Z have a case.
    fn with_text(&mut self, text: &str, most: &str) -> String {
        let place = self.value(text.to_ascii_lowercase());
        format!(
            ", found AS MATERIALIZED (
                SELECT r.run_no FROM looked_at l JOIN runs r ON r.run_no = l.run_no
                WHERE strpos(lower(r.run_id), {place}) > 0 OR strpos(lower(r.event_key), {place}) > 0
                  OR r.plan_no = ANY(ARRAY(SELECT p.plan_no FROM plans p WHERE strpos(lower(p.plan_id), {place}) > 0))
                  OR EXISTS (SELECT FROM run_labels x
                             WHERE x.run_no = r.run_no AND strpos(lower(x.value), {place}) > 0)
                ORDER BY r.run_no DESC LIMIT {most}
            )"
        )
    }

    /// The runs `found` that a list has; with a text those of `looked_at` that have it.
    fn found(&mut self, filter: &RunFilter) -> String {
        let most = self.value(limit(filter.limit));
        match text_of(filter) {
            Some(text) => {
                let searched = self.value(limit(SEARCHED));
                let looked_at = self.candidates(filter, "looked_at", &searched);
                format!("{looked_at}{}", self.with_text(text, &most))
            }
            None => self.candidates(filter, "found", &most),
        }
    }

    /// The runs that all of a filter but its text leaves.
    fn candidates(&mut self, filter: &RunFilter, name: &str, most: &str) -> String {
        self.ask(filter);
        let first = self.driver.name();
        let before = self.value(filter.before.map_or(i64::MAX, |it| it.0));
        // Each status and each version of a plan by itself: the index has the runs of one in their order.
        let mut one_of = String::new();
        if !filter.statuses.is_empty() {
            let statuses: BTreeSet<String> = filter.statuses.iter().cloned().collect();
            let place = self.value(statuses.into_iter().collect::<Vec<_>>());
            self.needs_heads = true;
            one_of = format!("unnest({place}::text[]) AS s (status) CROSS JOIN LATERAL ");
            self.wanted.push_str(" AND h.status = s.status");
        } else if let Some(tenant) = filter.tenant.clone()
            && self.driver == Driver::Heads
            && !filter.open
        {
            let place = self.value(tenant);
            one_of = format!("({}) AS s CROSS JOIN LATERAL ", statuses_of(&place));
            self.wanted.push_str(" AND h.status = s.status");
        }
        match filter.plan_id.clone() {
            Some(plan_id) if one_of.is_empty() && self.driver == Driver::Runs => {
                let place = self.value(plan_id);
                one_of = format!(
                    "(SELECT p.plan_no FROM plans p WHERE p.plan_id = {place}) AS s CROSS JOIN LATERAL "
                );
                self.wanted.push_str(" AND r.plan_no = s.plan_no");
            }
            Some(plan_id) => self.of_plans("p.plan_id =", plan_id),
            None => {}
        }
        format!(
            "{name} AS MATERIALIZED (
                SELECT x.run_no FROM {one_of}(
                    SELECT {first}.run_no FROM {} WHERE {first}.run_no < {before}{}
                    ORDER BY {first}.run_no DESC LIMIT {most}) AS x
                ORDER BY x.run_no DESC LIMIT {most}
            )",
            self.tables(),
            self.wanted,
        )
    }

    fn list(mut self, filter: &RunFilter) -> Statement {
        let found = self.found(filter);
        (format!("WITH {found}{DETAILS}"), self.values)
    }

    /// The last run that is looked at for a text, if there are more.
    fn searched_to(mut self, filter: &RunFilter) -> Statement {
        let (last, more) = (
            self.value(limit(SEARCHED - 1)),
            self.value(limit(SEARCHED + 1)),
        );
        let looked_at = self.candidates(filter, "looked_at", &more);
        let sql = format!(
            "WITH {looked_at}, last AS (
                SELECT l.run_no FROM looked_at l ORDER BY l.run_no DESC OFFSET {last} LIMIT 1)
             SELECT r.run_id FROM last JOIN runs r ON r.run_no = last.run_no
             WHERE EXISTS (SELECT FROM looked_at l WHERE l.run_no < last.run_no)"
        );
        (sql, self.values)
    }

    fn count(mut self, filter: &RunFilter) -> Statement {
        if text_of(filter).is_some() {
            let newest = RunFilter {
                before: None,
                limit: SEARCHED,
                ..filter.clone()
            };
            let found = self.found(&newest);
            let sql = format!(
                "WITH {found} SELECT h.status, count(*) FROM found f JOIN heads h ON h.run_no = f.run_no
                 GROUP BY h.status ORDER BY h.status"
            );
            return (sql, self.values);
        }
        self.needs_heads = true;
        self.ask(filter);
        if !filter.statuses.is_empty() {
            let place = self.value(filter.statuses.clone());
            self.wanted
                .push_str(&format!(" AND h.status = ANY({place})"));
        }
        if let Some(plan_id) = filter.plan_id.clone() {
            self.of_plans("p.plan_id =", plan_id);
        }
        let sql = format!(
            "SELECT h.status, count(*) FROM {} WHERE true{} GROUP BY h.status ORDER BY h.status",
            self.tables(),
            self.wanted,
        );
        (sql, self.values)
    }
}

/// A statement, and the values in its places.
type Statement = (String, Vec<Box<dyn Param>>);

fn text_of(filter: &RunFilter) -> Option<&String> {
    filter.text.as_ref().filter(|it| !it.is_empty())
}

/// The statuses that runs of a tenant have: few, and each is the next one in the index.
fn statuses_of(tenant: &str) -> String {
    format!(
        "WITH RECURSIVE its (status) AS (
            SELECT min(h.status) FROM heads h WHERE h.tenant = {tenant}
            UNION ALL SELECT (SELECT min(h.status) FROM heads h WHERE h.tenant = {tenant} AND h.status > its.status)
            FROM its WHERE its.status IS NOT NULL)
         SELECT its.status FROM its WHERE its.status IS NOT NULL"
    )
}

/// No text of the database has a NUL, so no run is found by one.
fn has_nul(filter: &RunFilter) -> bool {
    let texts = [
        &filter.plan_id,
        &filter.tenant,
        &filter.project,
        &filter.environment,
        &filter.language,
        &filter.parent,
        &filter.unique_key,
        &filter.text,
    ];
    let labels = filter.labels.iter().flat_map(|(name, value)| [name, value]);
    let mut texts = texts.into_iter().flatten().chain(labels);
    texts.any(|it| it.contains('\0'))
}

impl PostgresStore {
    fn ask_for_runs(&self, (sql, values): Statement) -> Result<Vec<Row>> {
        let values: Vec<&dyn Param> = values.iter().map(|it| &**it).collect();
        self.connections.read(&sql, &values)
    }

    pub(super) fn list_runs(&self, filter: &RunFilter) -> Result<Vec<RunSummary>> {
        if has_nul(filter) {
            return Ok(Vec::new());
        }
        let rows = self.ask_for_runs(Search::new(Driver::of(filter)).list(filter))?;
        rows.iter().map(summary).collect()
    }

    pub(super) fn read_summaries(&self, runs: &[RunNo]) -> Result<Vec<RunSummary>> {
        let runs: Vec<i64> = runs.iter().map(|it| it.0).collect();
        let sql =
            format!("WITH found AS MATERIALIZED (SELECT unnest($1::bigint[]) AS run_no){DETAILS}");
        let rows = self.connections.read(&sql, &[&runs])?;
        rows.iter().map(summary).collect()
    }

    pub(super) fn last_searched(&self, filter: &RunFilter) -> Result<Option<String>> {
        if has_nul(filter) || text_of(filter).is_none() {
            return Ok(None);
        }
        let rows = self.ask_for_runs(Search::new(Driver::of(filter)).searched_to(filter))?;
        Ok(rows.first().map(|row| row.get(0)))
    }

    pub(super) fn count_listed(&self, filter: &RunFilter) -> Result<Vec<(String, u64)>> {
        if has_nul(filter) {
            return Ok(Vec::new());
        }
        let rows = self.ask_for_runs(Search::new(Driver::of(filter)).count(filter))?;
        let counted = |row: &Row| (row.get(0), unsigned(row.get::<_, i64>(1)));
        Ok(rows.iter().map(counted).collect())
    }
}

fn summary(row: &Row) -> Result<RunSummary> {
    let (run_id, event_key): (String, String) = (row.get(8), row.get(16));
    Ok(RunSummary {
        run: RunNo(row.get(7)),
        unique_key: (event_key != run_id).then_some(event_key),
        run_id,
        plan_id: row.get(9),
        plan_version: row.get(10),
        language: row.get(11),
        tenant: row.get(12),
        project: row.get(13),
        environment: row.get(14),
        parent: row.get(15),
        labels: labels(row, 19),
        created_at: Time(row.get(17)),
        head: head(row)?,
        last_seq: unsigned(row.get::<_, i32>(18)),
    })
}

/// The names of labels and their values, from two columns.
pub(super) fn labels(row: &Row, names: usize) -> BTreeMap<String, String> {
    let (names, values): (Vec<String>, Vec<String>) = (row.get(names), row.get(names + 1));
    names.into_iter().zip(values).collect()
}
