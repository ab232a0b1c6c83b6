//! Which runs a list has, and what it says of a run.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use super::{PlanNo, Run, Tables};
use crate::store::{FoundRuns, RunCounts, RunFilter, RunNo, RunSummary};

impl Tables {
    fn language(&self, plan: PlanNo) -> &str {
        let index = usize::try_from(plan.0).unwrap_or(0).checked_sub(1);
        let language = index.and_then(|index| self.languages.get(index));
        language.map_or("", String::as_str)
    }

    pub(super) fn search(&self, filter: &RunFilter) -> FoundRuns {
        let before = filter.before.unwrap_or(RunNo(i64::MAX));
        let mut found = FoundRuns::default();
        for (place, (no, run)) in self.runs.range(..before).rev().enumerate() {
            if found.runs.len() >= filter.limit {
                break;
            }
            let run = self.summary(*no, run);
            if filter.fits(&run) {
                found.runs.push(run);
            }
            if filter.look_at.is_some_and(|most| place + 1 >= most) {
                let is_enough = found.runs.len() >= filter.limit;
                found.searched_to = (!is_enough).then_some(*no);
                break;
            }
        }
        found
    }

    pub(super) fn count(&self, filter: &RunFilter) -> RunCounts {
        let mut counts: BTreeMap<String, u64> = BTreeMap::new();
        let most = filter.look_at.unwrap_or(usize::MAX);
        let filter = RunFilter {
            before: None,
            ..filter.clone()
        };
        for (no, run) in self.runs.iter().rev().take(most) {
            if filter.fits(&self.summary(*no, run)) {
                *counts.entry(run.head.status.clone()).or_default() += 1;
            }
        }
        RunCounts {
            by_status: counts.into_iter().collect(),
            is_partial: self.runs.len() > most,
        }
    }

    pub(super) fn summary(&self, no: RunNo, run: &Run) -> RunSummary {
        let plan = self.plan(run.plan);
        let row = &run.row;
        RunSummary {
            run: no,
            run_id: row.run_id.clone(),
            plan_id: plan.map_or_else(String::new, |it| it.plan_id.clone()),
            plan_version: plan.map_or_else(String::new, |it| it.version.clone()),
            language: self.language(run.plan).to_owned(),
            tenant: row.tenant.clone(),
            project: row.project.clone(),
            environment: row.environment.clone(),
            parent: row.parent.clone(),
            unique_key: unique_key(run).map(ToOwned::to_owned),
            labels: row.labels.clone(),
            created_at: row.created_at,
            head: run.head.clone(),
            last_seq: run.last_seq(),
        }
    }
}

/// The language that a net names; empty if it names none.
pub(super) fn language(net: &str) -> String {
    let net: Option<Json> = serde_json::from_str(net).ok();
    let language = net.as_ref().and_then(|it| it.get("dialect")?.as_str());
    language.unwrap_or_default().to_owned()
}

/// What events reach the run by, if that is more than its id: no other open run may have it.
fn unique_key(run: &Run) -> Option<&str> {
    let row = &run.row;
    (row.event_key != row.run_id).then_some(row.event_key.as_str())
}
