//! Which runs a list, a count or a bulk action is about: one form for all of them.

use serde::Deserialize;
use stepwell_dialects::document;
use stepwell_engine::store::RunFilter;
use stepwell_kernel::plan::Dialect;
use stepwell_kernel::snapshot::RunStatus;
use stepwell_kernel::time::Time;
use utoipa::{IntoParams, ToSchema};

use super::runs::read_time;
use crate::access::Caller;
use crate::problem::ApiProblem;

/// How many runs a list looks at for conditions that no index has.
pub(super) const LOOK_AT: usize = 2_000;
/// The longest text that is looked for, in characters.
const MAX_TEXT: usize = 200;

/// Which runs are meant. All conditions must be true; without any, all runs of the caller are meant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, IntoParams, ToSchema)]
#[into_params(parameter_in = Query)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct RunQuery {
    /// Only runs with one of these statuses, separated by commas: PENDING, RUNNING, PAUSED, COMPLETED, FAILED, CANCELLED.
    status: Option<String>,
    /// Only runs with this state, in the words of the language, which must be named too. A count takes the statuses that
    /// the state can have.
    pub(super) state: Option<String>,
    /// Only runs of the definition with this name.
    plan: Option<String>,
    /// Only runs in this language: actions, dag, plan, playbook or linear.
    language: Option<String>,
    /// Only runs that have not ended.
    open: bool,
    tenant: Option<String>,
    project: Option<String>,
    environment: Option<String>,
    /// Only runs with all of these labels: `name=value`, separated by commas. A comma in a value is written as `\,` and
    /// a backslash as `\\`.
    labels: Option<String>,
    /// Only runs with this text in their id, the name of their definition, their business key or the value of a label: at
    /// most 200 characters, which are taken as they are. The case of the letters A to Z does not matter.
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
    /// Only runs older than this one: the `next` of the page before, or the id of a run. A count ignores it.
    pub(super) before: Option<String>,
}

impl RunQuery {
    /// The filter of the store; none if no run can fit. A caller who names a tenant or a project of others is refused.
    pub(super) fn filter(self, caller: &Caller) -> Result<Option<RunFilter>, ApiProblem> {
        let tenant = caller.tenant_of(self.tenant)?;
        let project = caller.project_of(self.project)?;
        let mut wanted = self.status.as_deref().map(statuses).transpose()?;
        if let Some(state) = &self.state {
            wanted = Some(in_both(wanted, of_state(self.language.as_deref(), state)?));
        }
        if self.open {
            wanted = Some(in_both(wanted, open_statuses()));
        }
        if wanted.as_ref().is_some_and(Vec::is_empty) {
            // No run has them all.
            return Ok(None);
        }
        let statuses = wanted.unwrap_or_default();
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
        if let Some(text) = &self.text
            && text.chars().count() > MAX_TEXT
        {
            return Err(ApiProblem::bad_request(format!(
                "text: at most {MAX_TEXT} characters are looked for"
            )));
        }
        let [created_from, created_until] = span(
            ["createdFrom", "createdUntil"],
            [&self.created_from, &self.created_until],
        )?;
        let [ended_from, ended_until] = span(
            ["endedFrom", "endedUntil"],
            [&self.ended_from, &self.ended_until],
        )?;
        Ok(Some(RunFilter {
            statuses,
            plan_id: self.plan,
            tenant,
            project,
            environment: self.environment,
            language: self.language,
            parent: self.parent,
            unique_key: self.business_key,
            labels: labels.unwrap_or_default(),
            text: self.text.filter(|it| !it.is_empty()),
            created_from,
            created_until,
            ended_from,
            ended_until,
            // The statuses say it, and there is an index of them.
            open: false,
            before: None,
            limit: 0,
            look_at: None,
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

/// The statuses of the contract that runs with this word of their language may have.
fn of_state(language: Option<&str>, state: &str) -> Result<Vec<String>, ApiProblem> {
    let Some(dialect) = language.and_then(document::dialect_named) else {
        return Err(ApiProblem::bad_request(
            "state: a state is a word of a language; send `language` too",
        ));
    };
    let found = document::statuses_of(dialect, state);
    if found.is_empty() {
        let known = document::words(dialect).run.iter().map(|it| it.word);
        let known: Vec<&str> = known.collect();
        return Err(ApiProblem::bad_request(format!(
            "state: {state:?} is no state of a listed run; states of {} are {}",
            dialect.name(),
            known.join(", ")
        )));
    }
    Ok(found.into_iter().map(str::to_owned).collect())
}

/// Those of the wanted statuses that are among others; all of the others where none is wanted.
fn in_both(wanted: Option<Vec<String>>, others: Vec<String>) -> Vec<String> {
    match wanted {
        Some(wanted) => wanted
            .into_iter()
            .filter(|it| others.contains(it))
            .collect(),
        None => others,
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

/// The statuses of runs that have not ended.
pub(super) fn open_statuses() -> Vec<String> {
    let all = [
        RunStatus::Pending,
        RunStatus::Approved,
        RunStatus::Running,
        RunStatus::Paused,
    ];
    all.iter().map(|it| it.word().to_owned()).collect()
}

/// A span of time that is not turned round: no run would be in it, and nobody would know why.
fn span(
    [from_name, until_name]: [&str; 2],
    [from, until]: [&Option<String>; 2],
) -> Result<[Option<Time>; 2], ApiProblem> {
    let time = |name: &str, text: &Option<String>| match text.as_deref() {
        Some(text) => read_time(text).map(Some).map_err(|_| {
            ApiProblem::bad_request(format!(
                "{name}: {text:?} is not a time; write it as 2026-03-01T08:00:00Z"
            ))
        }),
        None => Ok(None),
    };
    let (from, until) = (time(from_name, from)?, time(until_name, until)?);
    if let (Some(from), Some(until)) = (from, until)
        && from > until
    {
        return Err(ApiProblem::bad_request(format!(
            "{from_name} is later than {until_name}: exchange them"
        )));
    }
    Ok([from, until])
}

fn labels(text: &str) -> Result<Vec<(String, String)>, ApiProblem> {
    let pair = |pair: &String| match pair.split_once('=') {
        Some((name, value)) if !name.trim().is_empty() => {
            Ok((name.trim().to_owned(), value.to_owned()))
        }
        _ => Err(ApiProblem::bad_request(format!(
            "labels: write {pair:?} as name=value"
        ))),
    };
    split(text).iter().map(pair).collect()
}

/// The parts between commas; a comma or a backslash after a backslash is taken as it is.
fn split(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        let taken = match character {
            ',' => {
                parts.push(String::new());
                continue;
            }
            '\\' => characters.next_if(|it| ",\\".contains(*it)).unwrap_or('\\'),
            other => other,
        };
        if let Some(part) = parts.last_mut() {
            part.push(taken);
        }
    }
    parts
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
        let odd = labels(r"team= a\, b\\ , env=").unwrap();
        assert_eq!(odd[0], ("team".to_owned(), r" a, b\ ".to_owned()));
        assert_eq!(odd[1], ("env".to_owned(), String::new()));
        let times = ["2026-03-01T08:00:00Z", "2026-03-01T07:00:00Z"].map(|it| Some(it.to_owned()));
        assert!(span(["a", "b"], [&times[0], &times[1]]).is_err());
        assert!(span(["a", "b"], [&times[1], &times[0]]).is_ok());
    }

    #[test]
    fn a_state_is_a_word_of_its_language() {
        assert_eq!(of_state(Some("linear"), "CANCELED").unwrap(), ["CANCELLED"]);
        assert_eq!(of_state(Some("dag"), "blocked").unwrap(), ["RUNNING"]);
        assert_eq!(
            of_state(Some("dag"), "completed").unwrap(),
            ["COMPLETED", "FAILED"]
        );
        assert!(of_state(Some("dag"), "RUNNING").is_err());
        assert!(of_state(None, "RUNNING").is_err());
    }
}
