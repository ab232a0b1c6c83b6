//! The contract: lifecycle, signals, pause, retry and skip, stopping, identity.

mod identity;
mod lifecycle;
mod pause;
mod retry;
mod signals;
mod stopping;

use serde_json::{Value as Json, json};
use stepwell_kernel::command::TimerKind;
use stepwell_kernel::expr::{Template, TemplateValue};
use stepwell_kernel::plan::{
    ChildSpec, Loop, LoopMode, MaxInFlight, OnFailure, OnLoopFailure, Step, Work,
};

use crate::support::{Sim, task};

pub(crate) fn template(text: &str) -> Template {
    Template::parse(text).expect("a template of the test")
}

fn value(json: &Json) -> TemplateValue {
    TemplateValue::parse(json).expect("a value of the test")
}

/// A task whose failure waits for an operator.
fn held(name: &str, timeout_ms: u64) -> Step {
    Step {
        on_failure: OnFailure::Hold { timeout_ms },
        ..task(name)
    }
}

/// A task whose failure undoes the run.
fn compensating(name: &str) -> Step {
    Step {
        on_failure: OnFailure::Stop { compensate: true },
        ..task(name)
    }
}

/// A step that another run does.
pub(crate) fn child(name: &str) -> Step {
    let spec = ChildSpec {
        path: "child".into(),
        return_step: None,
        input: value(&json!({})),
    };
    Step::new(name, Work::Child(spec))
}

/// A task for each of the numbers from 0.
pub(crate) fn looped(name: &str, items: u32, at_a_time: u32) -> Step {
    let each = Loop {
        items: value(&json!((0..items).collect::<Vec<u32>>())),
        iterator: "item".into(),
        mode: LoopMode::Parallel,
        max_in_flight: MaxInFlight::Fixed(at_a_time),
        on_failure: OnLoopFailure::Fail,
    };
    Step {
        each: Some(each),
        ..task(name)
    }
}

/// The kinds of the armed timers, earliest first.
fn timers(sim: &Sim) -> Vec<TimerKind> {
    sim.state.timers().iter().map(|(_, id)| id.kind).collect()
}
