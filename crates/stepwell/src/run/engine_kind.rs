//! Which engine moves a run: `native`, `mock`, which pretends the work, or an engine outside by its address; and whether that
//! engine can do all work of a definition.

use anyhow::Result;
use stepwell_dialects::Severity;
use stepwell_dialects::plan::check_engine;
use stepwell_dialects::words::{list, quote};
use stepwell_engines::EngineAddress;
use stepwell_engines::capabilities::engines;
use stepwell_kernel::plan::{Plan, Step, Work};
use stepwell_kernel::state::State;

use super::args::GoArgs;
use crate::runs::Refused;
use crate::store::word;
use crate::usage;

/// Most names that a message lists.
const LISTED: usize = 6;

/// Which engine was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EngineKind {
    Native,
    Mock,
    /// An engine outside, by the name that events have.
    Outside(&'static str),
}

impl EngineKind {
    /// The name that events have.
    pub(super) fn name(self) -> &'static str {
        match self {
            EngineKind::Native => "native",
            EngineKind::Mock => "mock",
            EngineKind::Outside(name) => name,
        }
    }
}

pub(super) fn kind(name: &str) -> Result<EngineKind> {
    match name {
        "native" => return Ok(EngineKind::Native),
        "mock" => return Ok(EngineKind::Mock),
        _ => {}
    }
    let Some(address) = EngineAddress::parse(name) else {
        return usage(format!(
            "unknown engine {}; available: `native`, `mock`, `temporal://HOST:PORT/NAMESPACE`, \
             `conductor+http://HOST:PORT/api`; `stepwell engines` lists what each can do",
            quote(name)
        ));
    };
    let engine = match address {
        Ok(address) => address.engine(),
        Err(error) => return usage(error.to_string()),
    };
    must_be_built(engine)?;
    Ok(EngineKind::Outside(engine))
}

/// Refuses an engine outside that this program was built without.
pub(crate) fn must_be_built(engine: &str) -> Result<()> {
    let built = engines()
        .into_iter()
        .any(|it| it.name == engine && it.built);
    match built {
        true => Ok(()),
        false => usage(format!(
            "ENGINE_ADDRESS: this program was built without the engine `{engine}`; build it with `cargo build -p stepwell \
             --features {engine}`"
        )),
    }
}

/// Refuses to go on with a run on an engine that may not run its plan; `run` has checked the definition.
pub(super) fn may_run(engine: &str, plan: &Plan) -> Result<()> {
    let found = check_engine(plan, engine);
    match found.iter().find(|it| it.severity == Severity::Error) {
        Some(problem) => Err(Refused(format!("{}: {}", problem.code, problem.message)).into()),
        None => Ok(()),
    }
}

/// Refuses to go on with a run of another engine: what was begun as a rehearsal must not be finished for real, and what
/// was begun for real must not be finished by pretending.
pub(super) fn must_be_of(args: &GoArgs, state: &State) -> Result<()> {
    let asked = kind(&args.engine)?.name();
    let Some(engine) = state.engine().filter(|engine| *engine != asked) else {
        return Ok(());
    };
    let run_id = state.run_id();
    let differs = stepwell_engine::Error::OtherEngine {
        run_id: run_id.to_owned(),
        engine: engine.to_owned(),
        asked: asked.to_owned(),
    };
    let address = engines().into_iter().find(|it| it.name == engine);
    let address = address.map_or(engine, |it| it.address);
    let how = format!("stepwell resume {} --engine {address}", word(run_id));
    Err(Refused(format!("{differs}; continue the run with: {how}")).into())
}

/// A step without a worker would wait without end, so the check happens before the start: a step that
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
        "no worker serves {shown}{more}: give these steps a `tool`, or embed the engine in a \
         program that has handlers for them; `--engine mock` pretends the work: {} --engine mock",
        how()
    ))
}
