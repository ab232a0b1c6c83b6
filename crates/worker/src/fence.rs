//! Which execution is at work, as the outside sees it: one table of names, from which the environment of programs, the
//! headers of requests, the settings of SQL sessions and the variable `execution` of templates are made.

use serde_json::{Map, Value as Json};

use crate::tool::TaskContext;

/// One fact about an execution, under each of its names.
pub(crate) struct ExecutionFact {
    /// Below `execution` in templates.
    pub(crate) field: &'static str,
    /// In the environment of programs.
    pub(crate) variable: &'static str,
    /// In requests over HTTP.
    pub(crate) header: &'static str,
    /// In sessions of SQL.
    pub(crate) setting: &'static str,
    value: fn(&ExecutionRef<'_>) -> Json,
}

/// An execution, and what of it is at work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExecutionRef<'a> {
    pub(crate) run_id: &'a str,
    pub(crate) step_id: &'a str,
    pub(crate) execution: u32,
    pub(crate) attempt: u32,
    pub(crate) idempotency_key: &'a str,
    pub(crate) task_key: &'a str,
    pub(crate) fence: u64,
}

/// All facts, in the order in which they are shown.
pub(crate) const FACTS: [ExecutionFact; 7] = [
    ExecutionFact {
        field: "run_id",
        variable: "STEPWELL_RUN_ID",
        header: "stepwell-run",
        setting: "stepwell.run_id",
        value: |it| it.run_id.into(),
    },
    ExecutionFact {
        field: "step_id",
        variable: "STEPWELL_STEP_ID",
        header: "stepwell-step",
        setting: "stepwell.step_id",
        value: |it| it.step_id.into(),
    },
    ExecutionFact {
        field: "number",
        variable: "STEPWELL_EXECUTION",
        header: "stepwell-execution",
        setting: "stepwell.execution",
        value: |it| it.execution.into(),
    },
    ExecutionFact {
        field: "attempt",
        variable: "STEPWELL_ATTEMPT",
        header: "stepwell-attempt",
        setting: "stepwell.attempt",
        value: |it| it.attempt.into(),
    },
    ExecutionFact {
        field: "idempotency_key",
        variable: "STEPWELL_IDEMPOTENCY_KEY",
        header: "idempotency-key",
        setting: "stepwell.idempotency_key",
        value: |it| it.idempotency_key.into(),
    },
    ExecutionFact {
        field: "task_key",
        variable: "STEPWELL_TASK_KEY",
        header: "stepwell-task-key",
        setting: "stepwell.task_key",
        value: |it| it.task_key.into(),
    },
    ExecutionFact {
        field: "fence",
        variable: "STEPWELL_FENCE",
        header: "stepwell-fence",
        setting: "stepwell.fence",
        value: |it| it.fence.into(),
    },
];

impl ExecutionRef<'_> {
    /// The value of the variable `execution` in templates.
    pub(crate) fn in_templates(&self) -> Json {
        let fields = FACTS.iter();
        let fields = fields.map(|fact| (fact.field.to_owned(), (fact.value)(self)));
        Json::Object(fields.collect::<Map<_, _>>())
    }
}

impl TaskContext {
    /// The facts about the execution, each with its value as text.
    pub(crate) fn facts(&self) -> impl Iterator<Item = (&'static ExecutionFact, String)> {
        let execution = ExecutionRef {
            run_id: &self.run_id,
            step_id: &self.step_id,
            execution: self.execution,
            attempt: self.attempt,
            idempotency_key: &self.idempotency_key,
            task_key: &self.task_key,
            fence: self.fence,
        };
        FACTS.iter().map(move |fact| {
            let text = match (fact.value)(&execution) {
                Json::String(text) => text,
                other @ (Json::Null
                | Json::Bool(_)
                | Json::Number(_)
                | Json::Array(_)
                | Json::Object(_)) => other.to_string(),
            };
            (fact, text)
        })
    }
}

impl TaskContext {
    /// The place in a distributed trace, under the names of the standard: in requests and, in capitals, in the
    /// environment of programs.
    pub(crate) fn trace_headers(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let trace = self.trace.as_ref();
        let parent = trace.map(|it| ("traceparent", it.traceparent.as_str()));
        let state = trace.and_then(|it| it.tracestate.as_deref());
        parent.into_iter().chain(state.map(|it| ("tracestate", it)))
    }
}

/// The key of a task: that of its step or undo, the place and name of the task, and the visit if a jump has led to
/// the task again.
pub(crate) fn task_key(step: &str, task: &str, (at, visit): (usize, u32)) -> String {
    match visit {
        0 | 1 => format!("{step}:{at}.{task}"),
        visit => format!("{step}:{at}.{task}#{visit}"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use stepwell_dialects::tools::execution_fields;

    use super::*;

    #[test]
    fn templates_know_the_fields_that_check_knows() {
        let here: BTreeSet<&str> = FACTS.iter().map(|fact| fact.field).collect();
        assert_eq!(here, execution_fields::NAMES.into_iter().collect());
    }

    #[test]
    fn each_fact_has_one_name_in_each_place() {
        for name in [
            |it: &ExecutionFact| it.field,
            |it: &ExecutionFact| it.variable,
            |it: &ExecutionFact| it.header,
            |it: &ExecutionFact| it.setting,
        ] {
            let names: BTreeSet<&str> = FACTS.iter().map(name).collect();
            assert_eq!(names.len(), FACTS.len());
        }
    }
}
