//! One thing that an open run waits for: in words, with the command that gives it, and as programs read it.

use std::fmt;

use schemars::JsonSchema;
use serde::Serialize;
use stepwell_dialects::words::quote;
use stepwell_engine::rows::BUILT_IN;
use stepwell_kernel::event::StepError;
use stepwell_kernel::time::Time;

/// One thing that can continue a run.
#[derive(Clone, Debug)]
pub struct Reason {
    pub kind: &'static str,
    pub step: Option<String>,
    /// What is waited for, without the step and without the time that is left.
    pub(crate) what: String,
    /// The time that is left, as `, in 5 s`; empty where nothing is counted down.
    pub(crate) left: String,
    /// What else there is to know, after the time that is left.
    pub(crate) more: String,
    /// What a person or a system outside must give; absent where the run goes on by itself.
    pub needs: Option<Need>,
    /// The command that gives what is waited for, where a person can give it.
    pub command: Option<String>,
    /// Since when it is waited for.
    pub since: Option<Time>,
    /// When the wait ends by itself.
    pub until: Option<Time>,
    /// The work that a worker must serve, if that is waited for.
    pub work: Option<WorkName>,
    /// Whether it is known that nobody serves it.
    pub is_unserved: bool,
    /// The attempt that comes after a backoff, if that is waited for.
    pub retry: Option<NextAttempt>,
}

/// The attempt that comes next, after one that has failed.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct NextAttempt {
    /// Its number; the first one is 1.
    pub attempt: u32,
    /// How many attempts there may be. A person may have asked for more.
    pub of: u32,
    /// Why the attempt before has failed; its message may be cut.
    pub error: Option<StepError>,
}

/// What a person or a system outside of the engine must give.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(
    tag = "need",
    rename_all = "snake_case",
    rename_all_fields = "camelCase"
)]
pub enum Need {
    /// A person approves or rejects.
    Approval,
    /// A person does the work, and says how it ended.
    Completion,
    /// An event of this type comes.
    Event { event_type: String },
    /// The child run of a step ends.
    ChildRun { run_id: String },
    /// An operator resumes the run.
    Resume,
    /// An operator retries or skips a step that has failed.
    Repair,
}

/// The name of a kind of work, which workers serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkName {
    pub queue: String,
    pub operation: String,
}

impl WorkName {
    /// How to get somebody who does the work. `server` is the address of the server, if it is known.
    #[must_use]
    pub fn how_to_serve(&self, server: &str) -> String {
        match self.queue == BUILT_IN {
            true => format!("start `stepwell worker --server {server}`"),
            false => "start a worker that serves this queue and operation".to_owned(),
        }
    }
}

impl fmt::Display for WorkName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", quote(&self.queue), quote(&self.operation))
    }
}

impl Reason {
    pub(crate) fn new(kind: &'static str, step: Option<String>, what: impl Into<String>) -> Reason {
        Reason {
            kind,
            step,
            what: what.into(),
            left: String::new(),
            more: String::new(),
            needs: None,
            command: None,
            since: None,
            until: None,
            work: None,
            is_unserved: false,
            retry: None,
        }
    }

    pub(crate) fn by(mut self, command: String) -> Reason {
        self.command = Some(command);
        self
    }

    pub(crate) fn needs(mut self, need: Need) -> Reason {
        self.needs = Some(need);
        self
    }

    pub(crate) fn until(mut self, until: Option<Time>) -> Reason {
        self.until = until;
        self
    }

    /// What is waited for, without the command.
    #[must_use]
    pub fn says(&self) -> String {
        let Reason {
            what, left, more, ..
        } = self;
        match &self.step {
            Some(step) => format!("{step}: {what}{left}{more}"),
            None => format!("{what}{left}{more}"),
        }
    }

    /// What is waited for, with the command that gives it.
    #[must_use]
    pub fn text(&self) -> String {
        match &self.command {
            Some(command) => format!("{} (`{command}`)", self.says()),
            None => self.says(),
        }
    }

    #[must_use]
    pub fn row(&self) -> ReasonRow {
        ReasonRow {
            kind: self.kind.to_owned(),
            step_id: self.step.clone(),
            text: self.text(),
            says: self.says(),
            what: format!("{}{}", self.what, self.more),
            needs: self.needs.clone(),
            command: self.command.clone(),
            since: self.since.map(Time::to_rfc3339),
            until: self.until.map(Time::to_rfc3339),
            queue: self.work.as_ref().map(|it| it.queue.clone()),
            operation: self.work.as_ref().map(|it| it.operation.clone()),
            unserved: self.is_unserved,
            retry: self.retry.clone(),
        }
    }
}

/// One thing that can continue a run, for programs.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReasonRow {
    /// What is waited for: `task`, `lease`, `outside`, `operator`, `child`, `timer`, `queue`, `start`, `ctx` or `proceed`;
    /// `limit`: a time that comes only if nothing else does before.
    pub kind: String,
    /// The step that waits; null if the whole run does.
    pub step_id: Option<String>,
    /// What is waited for, with the command that gives it.
    pub text: String,
    /// What is waited for, without the command.
    pub says: String,
    /// What is waited for, without the command, the step and the time that is left.
    pub what: String,
    /// What a person or a system outside must give; absent where the run goes on by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub needs: Option<Need>,
    /// The command that gives what is waited for, where a person can give it.
    pub command: Option<String>,
    /// Since when it is waited for.
    pub since: Option<String>,
    /// When the wait ends by itself.
    pub until: Option<String>,
    /// The queue that a worker must serve, if that is waited for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// The operation that a worker must serve, if that is waited for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
    /// Whether it is known that nobody serves it; absent otherwise.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unserved: bool,
    /// The attempt that comes after a backoff, and why the one before has failed; absent otherwise. `until` is when it comes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<NextAttempt>,
}
