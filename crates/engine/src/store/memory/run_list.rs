//! Which runs a list has, and what it says of a run.

use serde_json::Value as Json;

use super::{PlanNo, Run, Tables};
use crate::store::{RunFilter, RunNo, RunSummary, SEARCHED};

impl Tables {
    fn language(&self, plan: PlanNo) -> &str {
        let index = usize::try_from(plan.0).unwrap_or(0).checked_sub(1);
        let language = index.and_then(|index| self.languages.get(index));
        language.map_or("", String::as_str)
    }

    /// The runs of a list before this number, newest first.
    pub(super) fn listed<'a>(
        &'a self,
        filter: &'a RunFilter,
        before: RunNo,
    ) -> impl Iterator<Item = (RunNo, &'a Run)> {
        let most = filter.text.as_ref().map_or(usize::MAX, |_| SEARCHED);
        let looked_at = self.candidates(filter, before).take(most);
        looked_at.filter(|(_, run)| {
            let plan_id = self.plan(run.plan).map_or("", |it| it.plan_id.as_str());
            let text = filter.text.as_deref();
            text.is_none_or(|text| has_text(run, plan_id, text))
        })
    }

    /// The last run that is looked at for a text, if there are more.
    pub(super) fn searched_to(&self, filter: &RunFilter, before: RunNo) -> Option<String> {
        filter.text.as_ref()?;
        let mut rest = self.candidates(filter, before).skip(SEARCHED - 1);
        let last = rest.next()?;
        rest.next().map(|_| last.1.row.run_id.clone())
    }

    /// The runs that a list with this filter has, or looks at for a text.
    fn candidates<'a>(
        &'a self,
        filter: &'a RunFilter,
        before: RunNo,
    ) -> impl Iterator<Item = (RunNo, &'a Run)> {
        let all = self.runs.range(..before).rev().map(|(no, run)| (*no, run));
        all.filter(|(_, run)| self.fits(run, filter))
    }

    /// Whether all of a filter but its text fits a run; `before` and `limit` are not looked at.
    fn fits(&self, run: &Run, filter: &RunFilter) -> bool {
        let (row, head) = (&run.row, &run.head);
        let says = |wanted: &Option<String>, is: &str| wanted.as_deref().is_none_or(|it| it == is);
        let plan_id = self.plan(run.plan).map_or("", |it| it.plan_id.as_str());
        let has_label = |(name, value): &(String, String)| row.labels.get(name) == Some(value);
        let ended = head.ended_at;
        (filter.statuses.is_empty() || filter.statuses.contains(&head.status))
            && says(&filter.plan_id, plan_id)
            && says(&filter.tenant, &row.tenant)
            && says(&filter.project, &row.project)
            && says(&filter.environment, &row.environment)
            && says(&filter.language, self.language(run.plan))
            && (filter.parent.is_none() || filter.parent == row.parent)
            && (filter.unique_key.is_none() || filter.unique_key.as_deref() == unique_key(run))
            && filter.labels.iter().all(has_label)
            && filter.created_from.is_none_or(|it| row.created_at >= it)
            && filter.created_until.is_none_or(|it| row.created_at < it)
            && filter.ended_from.is_none_or(|it| ended >= Some(it))
            && filter
                .ended_until
                .is_none_or(|it| ended.is_some_and(|ended| ended < it))
            && (!filter.open || ended.is_none())
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

fn has_text(run: &Run, plan_id: &str, text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    let own = [run.row.run_id.as_str(), run.row.event_key.as_str(), plan_id];
    let labels = run.row.labels.values().map(String::as_str);
    let mut texts = own.into_iter().chain(labels);
    texts.any(|it| it.to_ascii_lowercase().contains(&text))
}
