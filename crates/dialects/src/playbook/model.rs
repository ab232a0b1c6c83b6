//! A playbook as typed data, with places where later checks need them.

use std::collections::BTreeMap;

use serde_json::Value as Json;
use stepwell_kernel::expr::{Template, TemplateValue};
use stepwell_kernel::plan::{Admission, Loop, OnFailure, Route, RunPolicy};

use crate::losses::Losses;
use crate::source::Span;
use crate::tools::TaskDef;

/// A name and where it is written.
#[derive(Clone, Debug)]
pub(super) struct Named {
    pub(super) text: String,
    pub(super) span: Span,
}

/// A definition after reading, before it is compiled to a net.
#[derive(Debug)]
pub(super) struct Playbook {
    pub(super) name: String,
    pub(super) version: String,
    pub(super) workload: Json,
    pub(super) executor: Executor,
    pub(super) steps: Vec<StepDef>,
    /// Workbook tasks by name.
    pub(super) library: BTreeMap<String, Vec<TaskDef>>,
    /// What the worker gets beside the steps.
    pub(super) extra: Json,
}

/// The content of `executor`: entry, final step, policies and requirements.
#[derive(Debug, Default)]
pub(super) struct Executor {
    pub(super) entry: Option<Named>,
    pub(super) final_step: Option<Named>,
    pub(super) policy: RunPolicy,
    /// The timeout of steps that give none.
    pub(super) default_timeout_ms: Option<u64>,
    pub(super) requires: Json,
    pub(super) profile: Json,
}

/// An entry of `workflow`.
#[derive(Debug)]
pub(super) struct StepDef {
    pub(super) name: Named,
    pub(super) description: Option<String>,
    pub(super) input: Json,
    pub(super) set_ctx: Vec<(String, TemplateValue)>,
    pub(super) admit: Option<Admission>,
    pub(super) timeout_ms: Option<u64>,
    pub(super) losses: Losses,
    pub(super) on_failure: OnFailure,
    pub(super) each: Option<Loop>,
    /// Absent for a step that only routes.
    pub(super) tasks: Option<Vec<TaskDef>>,
    pub(super) route: Route,
    pub(super) arcs: Vec<ArcDef>,
    /// Where `join: all` is written.
    pub(super) join_all: Option<Span>,
}

/// One arc of a step's `next`.
#[derive(Debug)]
pub(super) struct ArcDef {
    pub(super) to: Named,
    pub(super) when: Option<Template>,
    pub(super) args: Option<TemplateValue>,
    pub(super) set_ctx: Vec<(String, TemplateValue)>,
}
