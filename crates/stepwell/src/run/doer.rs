//! Who does the work of a run: the tools of this process (`native`), or the mock, which pretends it.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use stepwell_dialects::words::{list, quote};
use stepwell_engine::mock::{FailRule, Mock};
use stepwell_kernel::plan::{Plan, Step, Work};
use stepwell_kernel::time::Time;
use stepwell_worker::Crew;
use stepwell_worker::logs::LogEntry;

use super::RunEngine;
use super::native::Native;
use crate::usage;

/// Most names that a message lists.
const LISTED: usize = 6;

/// Which engine was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EngineKind {
    Native,
    Mock,
}

pub(super) fn kind(name: &str) -> Result<EngineKind> {
    match name {
        "native" => Ok(EngineKind::Native),
        "mock" => Ok(EngineKind::Mock),
        other => usage(format!(
            "there is no engine {} in this build; there are `native` and `mock`",
            quote(other)
        )),
    }
}

/// A step that nobody works on would wait for ever, so that is said before anything starts: a step that
/// names a tool is done here, one that names an operation needs a program that has a handler for it.
/// `how` is the command as it was called.
pub(super) fn must_have_workers(
    kind: EngineKind,
    plan: &Plan,
    how: impl FnOnce() -> String,
) -> Result<()> {
    let needs = |step: &&Step| {
        let undo = step.undo.as_ref().is_some_and(|undo| undo.tasks.is_null());
        matches!(step.work, Work::Task { .. }) || undo
    };
    let steps = plan.net().steps.iter().filter(needs);
    let names: Vec<&str> = steps.map(|step| step.name.as_str()).collect();
    if kind == EngineKind::Mock || names.is_empty() {
        return Ok(());
    }
    let more = match names.len().saturating_sub(LISTED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let shown = list(&names[..names.len().min(LISTED)]);
    usage(format!(
        "nobody here does the work of {shown}{more}: give them a `tool`, or embed the engine in a \
         program that has handlers for them; `--engine mock` pretends the work: {} --engine mock",
        how()
    ))
}

/// An engine with whoever does its work.
pub(super) enum Doer {
    Native(Box<Native>),
    Mock(Box<Mock<super::RunClock>>),
}

impl Doer {
    pub(super) fn native(engine: RunEngine, crew: Crew) -> Doer {
        Doer::Native(Box::new(Native::new(engine, crew)))
    }

    pub(super) fn mock(engine: RunEngine, rules: Vec<FailRule>, work_ms: u64) -> Result<Doer> {
        let mut mock = Mock::new(engine)?;
        mock.rules = rules;
        mock.work_ms = work_ms;
        Ok(Doer::Mock(Box::new(mock)))
    }

    pub(super) fn engine(&mut self) -> &mut RunEngine {
        match self {
            Doer::Native(native) => &mut native.engine,
            Doer::Mock(mock) => &mut mock.engine,
        }
    }

    pub(super) fn seen(&self) -> &RunEngine {
        match self {
            Doer::Native(native) => &native.engine,
            Doer::Mock(mock) => &mock.engine,
        }
    }

    /// Does one thing that is due now. Says whether there was one.
    pub(super) fn act(&mut self) -> Result<bool> {
        Ok(match self {
            Doer::Native(native) => native.act()?,
            Doer::Mock(mock) => mock.act()?,
        })
    }

    /// When there is something to do next.
    pub(super) fn due(&self) -> Option<Time> {
        match self {
            Doer::Native(native) => native.engine.next_wake(),
            Doer::Mock(mock) => mock.due(),
        }
    }

    /// Whether nobody here works, answers, or is about to.
    pub(super) fn is_idle(&self) -> bool {
        match self {
            Doer::Native(native) => native.is_idle(),
            Doer::Mock(mock) => mock.is_idle(),
        }
    }

    /// Rests until something happens here, and no longer than this.
    pub(super) fn rest(&mut self, nap: Duration) {
        match self {
            Doer::Native(native) => native.rest(nap),
            Doer::Mock(_) => std::thread::sleep(nap),
        }
    }

    /// What steps have said since this was asked last.
    pub(super) fn said(&mut self) -> Option<Arc<LogEntry>> {
        match self {
            Doer::Native(native) => native.said(),
            Doer::Mock(_) => None,
        }
    }

    /// How many steps are being done.
    pub(super) fn busy(&self) -> usize {
        match self {
            Doer::Native(native) => native.busy(),
            Doer::Mock(_) => 0,
        }
    }

    /// Lets what runs end by itself for as long as `patience`, then stops it.
    pub(super) fn settle(&mut self, patience: Duration) -> Result<()> {
        match self {
            Doer::Native(native) => native.settle(patience),
            Doer::Mock(_) => Ok(()),
        }
    }

    /// Whether people and events are real, and may come at any time.
    pub(super) fn waits_for_people(&self) -> bool {
        matches!(self, Doer::Native(_))
    }

    /// What was done that the log does not show.
    pub(super) fn notes(&mut self) -> Vec<String> {
        match self {
            Doer::Native(_) => Vec::new(),
            Doer::Mock(mock) => mock.notes.drain(..).collect(),
        }
    }
}
