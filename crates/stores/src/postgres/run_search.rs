//! Statements that find runs: one index has them in their order, and what the index does not have is looked up for each
//! run. A statement has only the conditions that are asked for, because a plan is made once for each statement.

use std::collections::BTreeSet;

use stepwell_engine::store::RunFilter;
use stepwell_kernel::time::Time;

use super::limit;
use super::query::Param;

/// The runs of a span of time are sorted by their numbers: so many at most.
const NARROW: usize = 10_000;
/// What a list says of the runs that were found.
pub(super) const DETAILS: &str = "
SELECT h.status, h.substatus, h.session_no, h.wake_at, h.queued, h.ended_at, h.slots,
       r.run_no, r.run_id, p.plan_id, p.version, COALESCE(plan_dialect(p.net), ''), r.tenant, r.project,
       r.environment, r.parent, r.event_key, r.created_at,
       COALESCE((SELECT l.last_seq FROM log l WHERE l.run_no = r.run_no
                 ORDER BY l.first_seq DESC LIMIT 1), 0),
       ARRAY(SELECT l.name FROM run_labels l WHERE l.run_no = r.run_no ORDER BY l.name),
       ARRAY(SELECT l.value FROM run_labels l WHERE l.run_no = r.run_no ORDER BY l.name)
FROM found f JOIN runs r ON r.run_no = f.run_no JOIN heads h ON h.run_no = f.run_no
JOIN plans p ON p.plan_no = r.plan_no ORDER BY f.run_no DESC";

/// Which conditions of a filter an index has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum IndexChoice {
    Label,
    Key,
    Parent,
    Created,
    Ended,
    Statuses,
    Plan,
    Open,
    Tenant,
    All,
}

impl IndexChoice {
    /// The table that the runs are found in.
    fn table(self) -> (&'static str, &'static str) {
        match self {
            IndexChoice::Label => ("run_labels", "w"),
            IndexChoice::Key | IndexChoice::Parent | IndexChoice::Created | IndexChoice::Plan => {
                ("runs", "r")
            }
            IndexChoice::Ended
            | IndexChoice::Statuses
            | IndexChoice::Open
            | IndexChoice::Tenant
            | IndexChoice::All => ("heads", "h"),
        }
    }
}

/// How many runs the indexes have that could be used, up to a number.
#[derive(Clone, Copy, Default)]
pub(super) struct Entries {
    pub(super) created: Option<i64>,
    pub(super) ended: Option<i64>,
    pub(super) statuses: Option<i64>,
    pub(super) plan: Option<i64>,
}

impl Entries {
    /// The index that leaves few runs to be looked at.
    pub(super) fn way(self, filter: &RunFilter) -> IndexChoice {
        let is_narrow = |it: Option<i64>| it.is_some_and(|it| it <= limit(NARROW));
        if !filter.labels.is_empty() {
            IndexChoice::Label
        } else if filter.unique_key.is_some() {
            IndexChoice::Key
        } else if filter.parent.is_some() {
            IndexChoice::Parent
        } else if is_narrow(self.created) {
            IndexChoice::Created
        } else if is_narrow(self.ended) {
            IndexChoice::Ended
        } else if let (Some(statuses), Some(plan)) = (self.statuses, self.plan) {
            match plan < statuses {
                true => IndexChoice::Plan,
                false => IndexChoice::Statuses,
            }
        } else if !filter.statuses.is_empty() {
            IndexChoice::Statuses
        } else if filter.plan_id.is_some() {
            IndexChoice::Plan
        } else if filter.open {
            IndexChoice::Open
        } else if filter.tenant.is_some() {
            IndexChoice::Tenant
        } else {
            IndexChoice::All
        }
    }
}

/// A statement under way, and the values in its places.
#[derive(Default)]
pub(super) struct Search {
    values: Vec<Box<dyn Param>>,
    /// How many of the values are of conditions that the index has.
    indexed: usize,
    /// Conditions of rows of `heads` (h) and `runs` (r), and of others, that are looked up for each run.
    heads: Vec<String>,
    runs: Vec<String>,
    others: Vec<String>,
}

impl Search {
    /// The place of a value in the statement.
    fn value(&mut self, value: impl Param + 'static) -> String {
        self.values.push(Box::new(value));
        format!("${}", self.values.len())
    }

    fn looks_up_nothing(&self) -> bool {
        self.heads.is_empty() && self.runs.is_empty() && self.others.is_empty()
    }

    /// The numbers of the runs that the index has, newest first; the rest of the filter is to be looked up.
    fn candidates(&mut self, way: IndexChoice, filter: &RunFilter, most: usize) -> String {
        let (table, first) = way.table();
        let mut rest = filter.clone();
        if way == IndexChoice::Created {
            let span = [rest.created_from.take(), rest.created_until.take()];
            return self.narrow("runs", "created_at", span, &rest, most);
        }
        if way == IndexChoice::Ended {
            let span = [rest.ended_from.take(), rest.ended_until.take()];
            return self.narrow("heads", "ended_at", span, &rest, most);
        }
        let before = match filter.before {
            Some(before) => {
                let before = self.value(before.0);
                format!("{first}.run_no < {before}")
            }
            None => "true".to_owned(),
        };
        let (mut one_of, mut wanted) = (String::new(), String::new());
        match way {
            IndexChoice::Label => {
                let (name, value) = rest.labels.remove(0);
                let (name, value) = (self.value(name), self.value(value));
                wanted = format!(" AND w.name = {name} AND w.value = {value}");
            }
            IndexChoice::Key => {
                let key = self.value(rest.unique_key.take().unwrap_or_default());
                wanted = format!(" AND r.event_key = {key} AND r.event_key <> r.run_id");
            }
            IndexChoice::Parent => {
                let parent = self.value(rest.parent.take().unwrap_or_default());
                wanted = format!(" AND r.parent = {parent}");
            }
            // Each status and each version of a plan by itself: the index has the runs of one in their order.
            IndexChoice::Statuses => {
                let statuses: BTreeSet<String> = rest.statuses.drain(..).collect();
                let place = self.value(statuses.into_iter().collect::<Vec<_>>());
                one_of = format!("unnest({place}::text[]) AS s (status) CROSS JOIN LATERAL ");
                wanted = " AND h.status = s.status".to_owned();
                if let Some(tenant) = rest.tenant.take() {
                    let tenant = self.value(tenant);
                    wanted.push_str(&format!(" AND h.tenant = {tenant}"));
                }
            }
            IndexChoice::Tenant => {
                let tenant = self.value(rest.tenant.take().unwrap_or_default());
                let statuses = statuses_of(Some(&tenant));
                one_of = format!("({statuses}) AS s CROSS JOIN LATERAL ");
                wanted = format!(" AND h.tenant = {tenant} AND h.status = s.status");
            }
            IndexChoice::Plan => {
                let plan_id = self.value(rest.plan_id.take().unwrap_or_default());
                one_of = format!(
                    "(SELECT p.plan_no FROM plans p WHERE p.plan_id = {plan_id}) AS s CROSS JOIN LATERAL "
                );
                wanted = " AND r.plan_no = s.plan_no".to_owned();
            }
            IndexChoice::Open => {
                rest.open = false;
                wanted = " AND h.ended_at IS NULL".to_owned();
            }
            IndexChoice::All | IndexChoice::Created | IndexChoice::Ended => {}
        }
        self.look_up(&rest, first == "h");
        let most = limit(most);
        let found = format!(
            "SELECT {first}.run_no FROM {table} {first} WHERE {before}{wanted}
             ORDER BY {first}.run_no DESC LIMIT {most}"
        );
        match one_of.is_empty() {
            true => found,
            false => format!(
                "SELECT x.run_no FROM {one_of}({found}) AS x ORDER BY x.run_no DESC LIMIT {most}"
            ),
        }
    }

    /// The runs of a span of time, which are few: by the index of the time, and then sorted.
    fn narrow(
        &mut self,
        table: &str,
        column: &str,
        span: [Option<Time>; 2],
        rest: &RunFilter,
        most: usize,
    ) -> String {
        let [from, until] = self.span(span);
        let before = self.value(rest.before.map_or(i64::MAX, |it| it.0));
        self.look_up(rest, table == "heads");
        let most = limit(most);
        format!(
            "WITH span AS MATERIALIZED (
                SELECT t.run_no FROM {table} t WHERE t.{column} >= {from} AND t.{column} < {until})
             SELECT span.run_no FROM span WHERE span.run_no < {before} ORDER BY span.run_no DESC LIMIT {most}"
        )
    }

    fn span(&mut self, [from, until]: [Option<Time>; 2]) -> [String; 2] {
        [
            self.value(from.map_or(i64::MIN, |it| it.0)),
            self.value(until.map_or(i64::MAX, |it| it.0)),
        ]
    }

    /// Adds the conditions of a filter that the index does not have.
    fn look_up(&mut self, filter: &RunFilter, has_heads: bool) {
        self.indexed = self.values.len();
        if !filter.statuses.is_empty() {
            let place = self.value(filter.statuses.clone());
            self.heads.push(format!("h.status = ANY({place})"));
        }
        if filter.open {
            self.heads.push("h.ended_at IS NULL".to_owned());
        }
        if let Some(tenant) = filter.tenant.clone() {
            let place = self.value(tenant);
            match has_heads {
                true => self.heads.push(format!("h.tenant = {place}")),
                false => self.runs.push(format!("r.tenant = {place}")),
            }
        }
        for (column, wanted) in [
            ("project", &filter.project),
            ("environment", &filter.environment),
            ("parent", &filter.parent),
            ("event_key", &filter.unique_key),
        ] {
            if let Some(wanted) = wanted.clone() {
                let place = self.value(wanted);
                self.runs.push(format!("r.{column} = {place}"));
            }
        }
        if filter.unique_key.is_some() {
            self.runs.push("r.event_key <> r.run_id".to_owned());
        }
        for (condition, time) in [
            ("created_at >=", filter.created_from),
            ("created_at <", filter.created_until),
        ] {
            if let Some(time) = time {
                let place = self.value(time.0);
                self.runs.push(format!("r.{condition} {place}"));
            }
        }
        for (condition, time) in [
            ("ended_at >=", filter.ended_from),
            ("ended_at <", filter.ended_until),
        ] {
            if let Some(time) = time {
                let place = self.value(time.0);
                self.heads.push(format!("h.{condition} {place}"));
            }
        }
        for (condition, wanted) in [
            ("p.plan_id =", &filter.plan_id),
            ("plan_dialect(p.net) =", &filter.language),
        ] {
            if let Some(wanted) = wanted.clone() {
                let place = self.value(wanted);
                self.runs.push(format!(
                    "r.plan_no = ANY(ARRAY(SELECT p.plan_no FROM plans p WHERE {condition} {place}))"
                ));
            }
        }
        for (name, value) in &filter.labels {
            let (name, value) = (self.value(name.clone()), self.value(value.clone()));
            self.others.push(format!(
                "EXISTS (SELECT FROM run_labels x WHERE x.run_no = l.run_no AND x.name = {name} AND x.value = {value})"
            ));
        }
        if let Some(text) = filter.text.as_ref().filter(|it| !it.is_empty()) {
            // With the collation "C" only the letters A to Z have a case.
            let place = self.value(text.to_ascii_lowercase());
            self.runs.push(format!(
                "(strpos(lower(r.run_id), {place}) > 0 OR strpos(lower(r.event_key), {place}) > 0
                  OR r.plan_no = ANY(ARRAY(SELECT p.plan_no FROM plans p WHERE strpos(lower(p.plan_id), {place}) > 0))
                  OR EXISTS (SELECT FROM run_labels x
                             WHERE x.run_no = r.run_no AND strpos(lower(x.value), {place}) > 0))"
            ));
        }
    }

    /// The tables and conditions of what is looked up for each run `l`; with its head, if the head is needed anyway.
    fn looked_up(&self, needs_heads: bool) -> (String, String) {
        let mut tables = Vec::new();
        let mut wanted = Vec::new();
        if needs_heads || !self.heads.is_empty() {
            tables.push("heads h");
            wanted.push("h.run_no = l.run_no");
        }
        if !self.runs.is_empty() {
            tables.push("runs r");
            wanted.push("r.run_no = l.run_no");
        }
        let conditions = self.heads.iter().chain(&self.runs).chain(&self.others);
        wanted.extend(conditions.map(String::as_str));
        (tables.join(", "), wanted.join(" AND "))
    }

    /// A statement for a list, and whether something is looked up for each run.
    pub(super) fn list(
        mut self,
        way: IndexChoice,
        filter: &RunFilter,
        look_at: usize,
    ) -> (Statement, bool) {
        let most = limit(filter.limit);
        let candidates = self.candidates(way, filter, look_at);
        if self.looks_up_nothing() {
            // An index that has all that is asked for ends by itself.
            let mut search = Search::default();
            let found = search.candidates(way, filter, filter.limit);
            let sql = format!("WITH found AS MATERIALIZED ({found}){DETAILS}");
            return ((sql, search.values), false);
        }
        let (tables, wanted) = self.looked_up(false);
        let from = match tables.is_empty() {
            true => String::new(),
            false => format!("FROM {tables}"),
        };
        // A limit of one keeps the order of the runs, and ends the search when there are enough.
        let sql = format!(
            "WITH found AS MATERIALIZED (
                SELECT l.run_no FROM ({candidates}) AS l
                CROSS JOIN LATERAL (SELECT 1 {from} WHERE {wanted} LIMIT 1) AS fits
                ORDER BY l.run_no DESC LIMIT {most}){DETAILS}"
        );
        ((sql, self.values), true)
    }

    /// The last run that a list looks at, if there are so many.
    pub(super) fn last_looked_at(
        mut self,
        way: IndexChoice,
        filter: &RunFilter,
        look_at: usize,
    ) -> Statement {
        let candidates = self.candidates(way, filter, look_at);
        self.values.truncate(self.indexed);
        let sql = format!(
            "SELECT l.run_no FROM ({candidates}) AS l ORDER BY l.run_no DESC OFFSET {} LIMIT 1",
            limit(look_at) - 1
        );
        (sql, self.values)
    }

    /// How many runs the indexes have that a filter could use; none if there is nothing to choose from.
    pub(super) fn entries(mut self, filter: &RunFilter) -> Option<Statement> {
        let most = limit(NARROW) + 1;
        let mut counts = Vec::new();
        let mut count = |rows: Option<String>| {
            counts.push(match rows {
                Some(rows) => {
                    format!("(SELECT count(*) FROM (SELECT FROM {rows} LIMIT {most}) AS c)")
                }
                None => "NULL::bigint".to_owned(),
            });
        };
        let spans = [
            (
                "runs",
                "created_at",
                [filter.created_from, filter.created_until],
            ),
            ("heads", "ended_at", [filter.ended_from, filter.ended_until]),
        ];
        let is_found =
            !filter.labels.is_empty() || filter.unique_key.is_some() || filter.parent.is_some();
        let has_both = filter.plan_id.is_some() && !filter.statuses.is_empty();
        if is_found || !(has_both || spans.iter().any(|it| it.2.iter().any(Option::is_some))) {
            return None;
        }
        for (table, column, span) in spans {
            let rows = span.iter().any(Option::is_some).then(|| {
                let [from, until] = self.span(span);
                format!("{table} t WHERE t.{column} >= {from} AND t.{column} < {until}")
            });
            count(rows);
        }
        let statuses = has_both.then(|| {
            let statuses = self.value(filter.statuses.clone());
            let tenant = match filter.tenant.clone() {
                Some(tenant) => format!(" AND h.tenant = {}", self.value(tenant)),
                None => String::new(),
            };
            format!("heads h WHERE h.status = ANY({statuses}){tenant}")
        });
        count(statuses);
        let plan = filter.plan_id.clone().filter(|_| has_both).map(|plan_id| {
            let plan_id = self.value(plan_id);
            format!("runs r WHERE r.plan_no IN (SELECT p.plan_no FROM plans p WHERE p.plan_id = {plan_id})")
        });
        count(plan);
        Some((format!("SELECT {}", counts.join(", ")), self.values))
    }

    /// Counts runs by their status, and all runs that are looked at.
    pub(super) fn count(
        mut self,
        way: IndexChoice,
        filter: &RunFilter,
        look_at: usize,
    ) -> Statement {
        let candidates = self.candidates(way, filter, look_at);
        let (tables, wanted) = self.looked_up(true);
        let sql = format!(
            "WITH looked_at AS MATERIALIZED ({candidates})
             SELECT fits.status, count(*) FROM looked_at l
             CROSS JOIN LATERAL (SELECT h.status FROM {tables} WHERE {wanted} LIMIT 1) AS fits
             GROUP BY fits.status
             UNION ALL SELECT NULL, count(*) FROM looked_at"
        );
        (sql, self.values)
    }

    /// Counts runs by their status with the index alone, so many of each.
    pub(super) fn count_by_index(mut self, filter: &RunFilter, most: i64) -> Statement {
        let tenant = filter.tenant.clone().map(|it| self.value(it));
        let statuses = match filter.statuses.is_empty() {
            true => statuses_of(tenant.as_deref()),
            false => {
                let statuses: BTreeSet<String> = filter.statuses.iter().cloned().collect();
                let place = self.value(statuses.into_iter().collect::<Vec<_>>());
                format!("SELECT unnest({place}::text[]) AS status")
            }
        };
        let of_tenant = tenant.map_or_else(String::new, |it| format!(" AND h.tenant = {it}"));
        let sql = format!(
            "SELECT s.status, c.number FROM ({statuses}) AS s CROSS JOIN LATERAL (
                SELECT count(*) AS number FROM (
                    SELECT h.run_no FROM heads h WHERE h.status = s.status{of_tenant}
                    ORDER BY h.run_no DESC LIMIT {most}) AS k) AS c
             WHERE c.number > 0"
        );
        (sql, self.values)
    }
}

/// A statement, and the values in its places.
pub(super) type Statement = (String, Vec<Box<dyn Param>>);

/// The statuses that runs have, of a tenant or of all: few, and each is the next one in the index.
fn statuses_of(tenant: Option<&str>) -> String {
    let of = tenant.map_or_else(String::new, |it| format!("h.tenant = {it} AND "));
    format!(
        "WITH RECURSIVE its (status) AS (
            SELECT min(h.status) FROM heads h WHERE {of}true
            UNION ALL SELECT (SELECT min(h.status) FROM heads h WHERE {of}h.status > its.status)
            FROM its WHERE its.status IS NOT NULL)
         SELECT its.status FROM its WHERE its.status IS NOT NULL"
    )
}
