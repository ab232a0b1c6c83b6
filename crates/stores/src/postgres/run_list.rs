//! Lists of runs: statements find them (`run_search.rs`) and read what the list says of those that it shows.

use std::collections::BTreeMap;

use stepwell_engine::store::{
    COUNTED_FASTER, FoundRuns, Result, RunCounts, RunFilter, RunNo, RunSummary,
};
use stepwell_kernel::time::Time;
use tokio_postgres::Row;

use super::query::Param;
use super::reads::head;
use super::run_search::{DETAILS, Entries, IndexChoice, Search, Statement};
use super::{PostgresStore, limit, unsigned};

/// How many runs one statement looks at, where all may be looked at.
const AT_A_TIME: usize = 20_000;

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

    fn way(&self, filter: &RunFilter) -> Result<IndexChoice> {
        let Some(statement) = Search::default().entries(filter) else {
            return Ok(Entries::default().way(filter));
        };
        let rows = self.ask_for_runs(statement)?;
        let entries = rows.first().map_or_else(Entries::default, |row| Entries {
            created: row.get(0),
            ended: row.get(1),
            statuses: row.get(2),
            plan: row.get(3),
        });
        Ok(entries.way(filter))
    }

    pub(super) fn search_runs(&self, filter: &RunFilter) -> Result<FoundRuns> {
        if has_nul(filter) || filter.limit == 0 {
            return Ok(FoundRuns::default());
        }
        let way = self.way(filter)?;
        if let Some(look_at) = filter.look_at {
            return self.search_some(way, filter, look_at);
        }
        let mut rest = filter.clone();
        let mut runs = Vec::new();
        loop {
            let found = self.search_some(way, &rest, AT_A_TIME.max(rest.limit))?;
            runs.extend(found.runs);
            rest.limit = filter.limit - runs.len().min(filter.limit);
            rest.before = found.searched_to;
            if rest.before.is_none() || rest.limit == 0 {
                return Ok(FoundRuns {
                    runs,
                    searched_to: None,
                });
            }
        }
    }

    fn search_some(
        &self,
        way: IndexChoice,
        filter: &RunFilter,
        look_at: usize,
    ) -> Result<FoundRuns> {
        let look_at = look_at.max(1);
        let (statement, is_looking) = Search::default().list(way, filter, look_at);
        let rows = self.ask_for_runs(statement)?;
        let runs: Vec<RunSummary> = rows.iter().map(summary).collect::<Result<_>>()?;
        let searched_to = match is_looking && runs.len() < filter.limit {
            true => self.ask_for_runs(Search::default().last_looked_at(way, filter, look_at))?,
            false => Vec::new(),
        };
        Ok(FoundRuns {
            runs,
            searched_to: searched_to.first().map(|row| RunNo(row.get(0))),
        })
    }

    pub(super) fn read_summaries(&self, runs: &[RunNo]) -> Result<Vec<RunSummary>> {
        let runs: Vec<i64> = runs.iter().map(|it| it.0).collect();
        let sql =
            format!("WITH found AS MATERIALIZED (SELECT unnest($1::bigint[]) AS run_no){DETAILS}");
        let rows = self.connections.read(&sql, &[&runs])?;
        rows.iter().map(summary).collect()
    }

    pub(super) fn count_listed(&self, filter: &RunFilter) -> Result<RunCounts> {
        if has_nul(filter) {
            return Ok(RunCounts::default());
        }
        let filter = RunFilter {
            before: None,
            ..filter.clone()
        };
        let only_heads = RunFilter {
            tenant: filter.tenant.clone(),
            statuses: filter.statuses.clone(),
            limit: filter.limit,
            look_at: filter.look_at,
            ..RunFilter::default()
        };
        let look_at = filter.look_at.unwrap_or(usize::MAX);
        let (rows, most) = match filter == only_heads {
            true => {
                let most = limit(look_at.saturating_mul(COUNTED_FASTER));
                let statement = Search::default().count_by_index(&filter, most);
                (self.ask_for_runs(statement)?, most)
            }
            false => {
                let way = self.way(&filter)?;
                let statement = Search::default().count(way, &filter, look_at);
                (self.ask_for_runs(statement)?, limit(look_at))
            }
        };
        let mut counts = RunCounts::default();
        for row in &rows {
            let number: i64 = row.get(1);
            counts.is_partial |= number >= most;
            if let Some(status) = row.get(0) {
                counts.by_status.push((status, unsigned(number)));
            }
        }
        counts.by_status.sort();
        Ok(counts)
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
