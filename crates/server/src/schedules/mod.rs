//! Schedules: definitions that are started at the due times of a cron line. A schedule is a document of the store. First a
//! server decides what becomes of the due times that have come, by a compare-and-set of the document; then any server
//! starts the runs that were decided on. The id of a run follows from its due time, so each due time starts one run,
//! however many servers there are and whenever they die.

mod decide;
mod runner;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use stepwell_dialects::trigger::Schedule;
use stepwell_kernel::time::Time;
use utoipa::ToSchema;

pub(crate) use decide::upcoming;
pub(crate) use runner::{Runner, Waker};

use crate::codes;
use crate::named_documents::{Named, NamedDocuments};
use crate::problem::ApiProblem;

/// What the names of schedules begin with that come from the trigger of a definition.
pub(crate) const OF_DEFINITION: &str = "definition:";
/// How many started runs and missed due times are remembered.
const REMEMBERED: usize = 50;

/// Which due times are made good that no server has acted on within a minute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) enum CatchUp {
    /// No due time that is late starts a run.
    #[default]
    None,
    /// The latest of them.
    Latest,
    /// The latest ones, up to `catchUpMost`.
    All,
}

/// What happens at a due time while the run before is still open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Overlap {
    /// Another run starts beside it.
    #[default]
    Allow,
    /// No run starts; the due time is noted as missed.
    Skip,
    /// The run starts when the one before has ended.
    Queue,
}

/// A schedule as it is stored.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ScheduleDocument {
    pub(crate) name: String,
    /// The name of the definition that is started.
    pub(crate) definition: String,
    pub(crate) revision: Option<u32>,
    pub(crate) cron: String,
    pub(crate) timezone: Option<String>,
    pub(crate) params: Json,
    pub(crate) project: String,
    pub(crate) environment: String,
    pub(crate) priority: i32,
    pub(crate) catch_up: CatchUp,
    pub(crate) catch_up_most: u32,
    pub(crate) overlap: Overlap,
    pub(crate) paused: bool,
    pub(crate) by: String,
    pub(crate) changed_at: String,
    /// What becomes of due times up to this one is decided.
    pub(crate) decided_to: i64,
    /// Due times whose runs are to be started, oldest first.
    pub(crate) pending: Vec<i64>,
    /// Due times whose runs were started or could not be, oldest first.
    pub(crate) started: Vec<StartedDue>,
    /// Due times that start no run, oldest first.
    pub(crate) missed: Vec<MissedDue>,
    pub(crate) missed_total: u64,
}

/// A due time whose run was started, or could not be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StartedDue {
    /// When the run was due.
    pub(crate) due_at: String,
    /// The run; absent if it could not be started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) run_id: Option<String>,
    /// The code and the reason, if the run could not be started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) problem: Option<String>,
}

/// A due time that starts no run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MissedDue {
    /// When the run was due.
    pub(crate) due_at: String,
    /// LATE: no server acted in time, and the catch-up policy does not make it good. OVERLAP: the run before was still
    /// open. QUEUE_FULL: too many due times wait already.
    pub(crate) reason: String,
}

impl ScheduleDocument {
    /// The cron line in its time zone.
    pub(crate) fn schedule(&self) -> Result<Schedule, ApiProblem> {
        Schedule::read(&self.cron, self.timezone.as_deref()).map_err(|why| invalid(&why))
    }

    /// Whether it was made from the trigger of its definition.
    pub(crate) fn is_of_definition(&self) -> bool {
        self.name.starts_with(OF_DEFINITION)
    }

    /// What the id of the run of a due time follows from. A trigger of a definition has the same cause as a process that
    /// waits for it (`stepwell run --idle`).
    pub(crate) fn cause(&self, due: Time) -> String {
        match self.is_of_definition() {
            true => format!("due|{}", due.to_rfc3339()),
            false => format!("schedule|{}|{}", self.name, due.to_rfc3339()),
        }
    }

    fn note_started(&mut self, started: StartedDue) {
        self.started.push(started);
        let more = self.started.len().saturating_sub(REMEMBERED);
        self.started.drain(..more);
    }

    fn note_missed(&mut self, due: Time, reason: &str) {
        self.missed_total += 1;
        self.missed.push(MissedDue {
            due_at: due.to_rfc3339(),
            reason: reason.to_owned(),
        });
        let more = self.missed.len().saturating_sub(REMEMBERED);
        self.missed.drain(..more);
    }
}

/// A cron line, a time zone or a policy that cannot be used.
pub(crate) fn invalid(why: &str) -> ApiProblem {
    ApiProblem::new(
        axum::http::StatusCode::UNPROCESSABLE_ENTITY,
        codes::SCHEDULE_INVALID,
        why,
    )
}

pub(crate) fn unknown(name: &str) -> ApiProblem {
    ApiProblem::not_found(
        codes::SCHEDULE_UNKNOWN,
        format!("there is no schedule {name}"),
    )
}

/// The schedules in a store.
pub(crate) type Schedules<'a> = NamedDocuments<'a, ScheduleDocument>;

impl Named for ScheduleDocument {
    const KIND: &str = "schedule";

    fn name(&self) -> &str {
        &self.name
    }

    fn project(&self) -> &str {
        &self.project
    }

    fn unknown(name: &str) -> ApiProblem {
        unknown(name)
    }
}
