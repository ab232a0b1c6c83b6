//! Which runs a list, a count or a bulk action is about: one form for all of them.

use serde::Deserialize;
use stepwell_engine::store::RunFilter;
use stepwell_kernel::plan::Dialect;
use stepwell_kernel::snapshot::RunStatus;
use utoipa::{IntoParams, ToSchema};

use super::runs::read_time;
use crate::access::Caller;
use crate::problem::ApiProblem;

/// Which runs are meant. All conditions must be true; without any, all runs of the caller are meant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, IntoParams, ToSchema)]
#[into_params(parameter_in = Query)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct RunQuery {
    /// Only runs with one of these statuses, separated by commas: PENDING, RUNNING, PAUSED, COMPLETED, FAILED, CANCELLED.
    status: Option<String>,
    /// Only runs of the definition with this name.
    plan: Option<String>,
    /// Only runs in this language: actions, dag, plan, playbook or linear.
    language: Option<String>,
    /// Only runs that have not ended.
    open: bool,
    tenant: Option<String>,
    project: Option<String>,
    environment: Option<String>,
    /// Only runs with all of these labels: `name=value`, separated by commas.
    labels: Option<String>,
    /// Only runs with this text in their id, the name of their definition, their business key or the value of a label.
    text: Option<String>,
    /// Only runs that have or had this business key.
    business_key: Option<String>,
    /// Only child runs of the run with this id.
    parent: Option<String>,
    /// Only runs that were created at this time or later, as `2026-03-01T08:00:00Z`.
    created_from: Option<String>,
    /// Only runs that were created before this time.
    created_until: Option<String>,
    /// Only runs that ended at this time or later.
    ended_from: Option<String>,
    /// Only runs that ended before this time.
    ended_until: Option<String>,
    /// At most this many runs. A list has 50 if absent and 500 at most, a bulk action 1000; a count ignores it.
    pub(super) limit: Option<usize>,
    /// Only runs older than this one: the `next` of the page before. A count ignores it.
    pub(super) before: Option<String>,
}

impl RunQuery {
    /// The filter of the store; none if the caller may see no run that it means.
    pub(super) fn filter(self, caller: &Caller) -> Result<Option<RunFilter>, ApiProblem> {
        let statuses = self.status.as_deref().map(statuses).transpose()?;
        if let Some(language) = &self.language {
            let known: Vec<&str> = Dialect::ALL.iter().map(|it| it.name()).collect();
            if !known.contains(&language.as_str()) {
                return Err(ApiProblem::bad_request(format!(
                    "language: {language:?} is none of {}",
                    known.join(", ")
                )));
            }
        }
        let labels = self.labels.as_deref().map(labels).transpose()?;
        let time = |text: &Option<String>| text.as_deref().map(read_time).transpose();
        let bound = |own: &Option<String>, wanted: Option<String>| match (own, wanted) {
            (Some(own), Some(wanted)) if *own != wanted => None,
            (own, wanted) => Some(own.clone().or(wanted)),
        };
        let tenant = bound(&caller.tenant, self.tenant);
        let project = bound(&caller.project, self.project);
        let (Some(tenant), Some(project)) = (tenant, project) else {
            // For this caller there are no other tenants and projects.
            return Ok(None);
        };
        Ok(Some(RunFilter {
            statuses: statuses.unwrap_or_default(),
            plan_id: self.plan,
            tenant,
            project,
            environment: self.environment,
            language: self.language,
            parent: self.parent,
            unique_key: self.business_key,
            labels: labels.unwrap_or_default(),
            text: self.text.filter(|it| !it.is_empty()),
            created_from: time(&self.created_from)?,
            created_until: time(&self.created_until)?,
            ended_from: time(&self.ended_from)?,
            ended_until: time(&self.ended_until)?,
            open: self.open,
            before: None,
            limit: 0,
        }))
    }

    /// Whether every run is meant, however many are listed at a time.
    pub(super) fn is_empty(&self) -> bool {
        let rest = RunQuery {
            limit: None,
            before: None,
            ..self.clone()
        };
        rest == RunQuery::default()
    }

    /// Whether only runs are meant that have a certain status.
    pub(super) fn names_a_status(&self) -> bool {
        self.status.is_some()
    }

    /// Only runs that have not ended, whatever the query says.
    pub(super) fn only_open(mut self) -> RunQuery {
        self.open = true;
        self
    }
}

fn statuses(text: &str) -> Result<Vec<String>, ApiProblem> {
    let words = text.split(',').map(|it| it.trim().to_uppercase());
    words
        .map(|word| match RunStatus::WORDS.contains(&word.as_str()) {
            true => Ok(word),
            false => Err(ApiProblem::bad_request(format!(
                "status: {word:?} is none of {}",
                RunStatus::WORDS.join(", ")
            ))),
        })
        .collect()
}

fn labels(text: &str) -> Result<Vec<(String, String)>, ApiProblem> {
    let pair = |pair: &str| match pair.split_once('=') {
        Some((name, value)) if !name.trim().is_empty() => {
            Ok((name.trim().to_owned(), value.trim().to_owned()))
        }
        _ => Err(ApiProblem::bad_request(format!(
            "labels: write {pair:?} as name=value"
        ))),
    };
    text.split(',').map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_and_wrong_ones_refused() {
        assert_eq!(statuses("running, paused").unwrap(), ["RUNNING", "PAUSED"]);
        assert!(statuses("odd").is_err());
        let pairs = labels("team=a,env=b=c").unwrap();
        assert_eq!(pairs[1], ("env".to_owned(), "b=c".to_owned()));
        assert!(labels("team").is_err());
    }
}
